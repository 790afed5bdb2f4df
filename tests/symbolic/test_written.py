"""Expressions shown in the words of the language: read back, they mean the same."""

from __future__ import annotations

import pytest
import sympy as sp

from gpdsl.symbolic import functions as f
from gpdsl.symbolic.conditions import choose, less
from gpdsl.symbolic.numeric import written

from .models import scalar, terms

X, Y = sp.symbols("x y", real=True)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (sp.Float(-49.999999999999994) * (Y - 2 * X) ** 2, "-50*(-2*x + y)^2"),
        (1 / X**2, "x^(-2)"),
        (sp.exp(-X) / 2 + sp.sqrt(Y), "sqrt(y) + exp(-x)/2"),
        (X ** sp.Float(-0.3), "x^(-0.3)"),
        (f.absolute(X) + f.maximum(X, Y), "max(x, y) + abs(x)"),
        (f.ndtr(X) * f.log_ndtr(-X), "log(Phi(-x))*Phi(x)"),
        (f.log_ndtr_interval(X, Y), "log(Phi(y) - Phi(x))"),
        (-f.log_beta(X, Y), "-(lgamma(x) + lgamma(y) - lgamma(x + y))"),
        (f.logsumexp(X, Y), "log(exp(x) + exp(y))"),
        (choose(less(X, Y), X, -Y), "(if (x < y) then x else -y)"),
    ],
    ids=str,
)
def test_written(expression: sp.Expr, expected: str) -> None:
    assert written(expression) == expected


@pytest.mark.parametrize(
    ("distribution", "kind"),
    [
        ("StudentT(4, f, s)", "real"),
        ("NegativeBinomial(exp(f), s)", "count"),
        ("Bernoulli(probit = f)", "binary"),
        ("Truncated(Normal(f, s), lower = 0)", "positive"),
        ("Censored(Gamma(2, exp(f)), upper = 3)", "positive"),
        ("Mixture(0.3, Normal(f, s), Laplace(0, 2))", "real"),
        ("Normal(if f > 0 then f else 0, s)", "real"),
    ],
)
def test_no_name_of_the_inside_is_shown(distribution: str, kind: str) -> None:
    (observation,) = terms(scalar(distribution, kind))
    text = written(observation.log_density)
    assert "**" not in text
    assert not any(name in text for name in ("ndtr", "choose", "less", "log_", "log1mexp", "absolute", "logsumexp"))
