"""Probabilities written the plain way have the same logarithms as those written the careful way, and finite ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings, strategies as st

from gpdsl.lowering.table import evaluate
from gpdsl.symbolic.functions import (
    lgamma,
    log1mexp,
    log1p,
    log_ndtr,
    log_ndtr_interval,
    log_rising,
    logsumexp,
    ndtr,
    sigmoid,
    softplus,
    times_log,
)
from gpdsl.symbolic.gaussian import pull_exponentials
from gpdsl.symbolic.stable import stable

from .models import scalar, terms

F, G = sp.symbols("f g", real=True)
S = sp.Symbol("s", positive=True)

PAIRS = [
    (sp.log(sigmoid(F)), -softplus(-F)),
    (log1p(-sigmoid(F)), -softplus(F)),
    (sp.log(1 - sigmoid(F)), -softplus(F)),
    (sp.log(ndtr(F)), log_ndtr(F)),
    (log1p(-ndtr(F)), log_ndtr(-F)),
    (sp.log(1 + sp.exp(F)), softplus(F)),
    (log1p(sp.exp(F)), softplus(F)),
    (sp.log(1 / (1 + sp.exp(-F))), -softplus(-F)),
    (log1p(-1 / (1 + sp.exp(-F))), -F - softplus(-F)),
    (log1p(-sp.exp(F) / (1 + sp.exp(F))), -softplus(F)),
    (sp.log(1 - sp.exp(-sp.exp(F))), log1mexp(sp.exp(F))),
    (log1p(-1 + sp.exp(-sp.exp(F))), -sp.exp(F)),
    (sp.log(sp.exp(F) + sp.exp(G)), logsumexp(F, G)),
    (sp.log(S + sp.exp(F)), sp.log(S) + softplus(F - sp.log(S))),
    (sp.log(S * sigmoid(F) * ndtr(G)), sp.log(S) - softplus(-F) + log_ndtr(G)),
    (sp.log(1 + (F - G) ** 2 / S), log1p((F - G) ** 2 / S)),
    (sp.log(ndtr(F + S) - ndtr(F)), log_ndtr_interval(F, F + S)),
    (sp.log(S * (ndtr(F + 1) - ndtr(F))), sp.log(S) + log_ndtr_interval(F, F + 1)),
    (sp.log(sigmoid(F + S) - sigmoid(F)), -softplus(-F - S) - softplus(F) + log1mexp(S)),
    (lgamma(S / 2 + 1.5) - lgamma(S / 2 + 1) - F, log_rising(S / 2 + 1, 0.5) - F),
]


def lowered(expression: sp.Expr, **values: float) -> float:
    with jax.enable_x64(True):
        return float(evaluate(expression, lambda each: jnp.asarray(values[each.name], float)))


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=str)
def test_rewritten(before: sp.Expr, after: sp.Expr) -> None:
    found = stable(pull_exponentials(before))
    assert sp.simplify(found - after) == 0
    at = {"f": 0.7, "g": -1.2, "s": 0.4}
    assert lowered(found, **at) == pytest.approx(lowered(before, **at), rel=1e-12)
    for extreme in (-600.0, 600.0):
        assert np.isfinite(lowered(found, f=extreme, g=-extreme, s=0.4))


@pytest.mark.parametrize(
    "expression",
    [
        sp.log(F),  # the sign of f is not known
        sp.log(F + sp.exp(G)),
        sp.log(1 - sp.exp(F)),  # only for negative f a number at all
        log1p(F),
        sp.log(ndtr(F) - sigmoid(G)),
        sp.log(ndtr(F) - ndtr(G) / 2),
        sp.sin(F) + F**2,
        log1p(-S * sp.exp(F) / (1 + sp.exp(F))),  # what is taken off is no part of the sum
    ],
    ids=str,
)
def test_left_alone(expression: sp.Expr) -> None:
    assert stable(expression) == expression


sums = st.lists(
    st.tuples(st.sampled_from([sp.Integer(1), S, 2 * S]), st.sampled_from([0, F, -F, 2 * F - G, G / 2])),
    min_size=1,
    max_size=4,
).map(lambda parts: sp.Add(*[c * sp.exp(e) for c, e in parts]))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(sums, sums, st.floats(-3, 3), st.floats(-3, 3), st.floats(0.1, 3))
def test_random_ratios_of_sums_keep_their_value(top: sp.Expr, bottom: sp.Expr, f: float, g: float, s: float) -> None:
    """log and log1p of n / d and of -n / (n + d): what odds and probabilities are made of."""
    for before in (sp.log(top / bottom), log1p(top / bottom), log1p(-top / sp.expand(top + bottom))):
        found = stable(pull_exponentials(before))
        assert lowered(found, f=f, g=g, s=s) == pytest.approx(lowered(before, f=f, g=g, s=s), rel=1e-9, abs=1e-12)


LINKS = {
    "logit = f": ["p = sigmoid(f)", "p = 1/(1 + exp(-f))", "p = exp(f)/(1 + exp(f))", "p = 1 - sigmoid(-f)"],
    "probit = f": ["p = Phi(f)", "p = 1 - Phi(-f)"],
}


@pytest.mark.parametrize(("careful", "plain"), [(c, p) for c, each in LINKS.items() for p in each])
def test_a_probability_in_a_model_is_as_good_as_its_link(careful: str, plain: str) -> None:
    for distribution, kind in (("Bernoulli({})", "binary"), ("Binomial(4, {})", "count")):
        (a,), (b,) = (terms(scalar(distribution.format(each), kind)) for each in (careful, plain))
        for f in (-300.0, -37.5, -2.0, 0.0, 3.0, 38.0, 300.0):
            for y in (0.0, 1.0):
                assert lowered(b.log_density, f=f, y=y) == pytest.approx(lowered(a.log_density, f=f, y=y), rel=1e-12)


@pytest.mark.parametrize("shift", [-40.0, 0.3, 12.0, 40.0])
def test_the_probability_of_an_interval_far_out(shift: float) -> None:
    """A rounded value by its formula, in 50 digits."""
    density = "density rounded(y | f, s) = log(Phi((y + 0.5 - f)/s) - Phi((y - 0.5 - f)/s))\noutput y"
    (o,) = terms(scalar("rounded(f, s)").replace("output y", density))
    with mpmath.workdps(50):
        ends = ((abs(shift) + side) / mpmath.sqrt(2) / 0.7 for side in (-0.5, 0.5))
        true = mpmath.log((mpmath.erfc(next(ends)) - mpmath.erfc(next(ends))) / 2)
    assert lowered(o.log_density, f=1.0 - shift, y=1.0, s=0.7) == pytest.approx(float(true), rel=1e-12)


def test_a_negative_binomial_does_not_overflow() -> None:
    (o,) = terms(scalar("NegativeBinomial(exp(f), s)", "count"))
    assert lowered(o.log_density, f=800.0, y=3.0, s=2.0) == pytest.approx(-800.0 * 2, rel=1e-2)


def test_a_count_of_nothing_is_certain_where_nothing_is_exposed() -> None:
    """log Poisson(0; 0) = 0; what is known to be positive keeps its plain logarithm."""
    y, e = sp.symbols("y e", real=True)
    found = stable(pull_exponentials(times_log(y, S * e * sp.exp(F))))
    assert found == y * F + times_log(y, S * e)
    assert stable(times_log(y, S * sp.exp(F))) == y * (sp.log(S) + F)
    assert lowered(found, y=0, e=0, s=2, f=1.5) == 0
    assert lowered(found, y=3, e=0, s=2, f=1.5) == -np.inf
    assert lowered(found, y=3, e=0.5, s=2, f=1.5) == pytest.approx(4.5)
    with jax.enable_x64(True):
        slope = jax.grad(lambda s: evaluate(found, lambda a: {"y": 0.0, "e": 0.0, "s": s, "f": 1.5}[a.name]))(2.0)
    assert float(slope) == 0
