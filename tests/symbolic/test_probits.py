"""Means of probits, and of intervals between two of them, against quadrature."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import sympy as sp
from scipy import stats

from gpdsl.symbolic import expectations
from gpdsl.symbolic.closed import probit_expectation
from gpdsl.symbolic.functions import log_ndtr, log_ndtr_interval, ndtr
from gpdsl.symbolic.gaussian import joint_moments_of, moments_of
from gpdsl.symbolic.laws import Law, chances
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.translate import Translator

f, g, a = sp.symbols("f g a", real=True)
MEAN, COVARIANCE = np.array([0.4, -1.1]), np.array([[0.9, 0.5], [0.5, 2.0]])

FORMULAS = [
    3 * ndtr(a - 2 * f),
    sp.exp(log_ndtr(f + g / 2 - a)),
    a * sp.exp(log_ndtr_interval(f - g - 1, f - g + a)),
    sp.exp(log_ndtr_interval(7 + f, 8 + f)),
]


def expected(formula: sp.Expr, *, correlated: bool) -> float:
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    covariance = COVARIANCE if correlated else np.diag(np.diag(COVARIANCE))
    z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1)
    points = MEAN + z @ np.linalg.cholesky(covariance).T
    weight = np.outer(weights, weights) / weights.sum() ** 2
    return float(np.sum(weight * evaluate(formula, {f: points[..., 0], g: points[..., 1], a: np.float64(0.7)})))


@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("formula", FORMULAS)
def test_against_quadrature(formula: sp.Expr, correlated: bool) -> None:
    latents = [each for each in (f, g) if formula.has(each)]
    moments = joint_moments_of(latents) if correlated else moments_of(latents)
    closed = probit_expectation(formula, latents, moments)
    assert closed is not None
    numbers = {f: (MEAN[0], COVARIANCE[0, 0]), g: (MEAN[1], COVARIANCE[1, 1])}
    table = {moments.mean[each]: np.float64(numbers[each][0]) for each in latents}
    table |= {moments.variance[each]: np.float64(numbers[each][1]) for each in latents}
    table |= dict.fromkeys(moments.covariance.values(), np.float64(COVARIANCE[0, 1])) | {a: np.float64(0.7)}
    assert float(evaluate(closed, table)) == pytest.approx(expected(formula, correlated=correlated), rel=1e-9)


@pytest.mark.parametrize(
    "formula", [ndtr(f**2), ndtr(f) * ndtr(g), log_ndtr(f), sp.exp(log_ndtr_interval(f, 2 * f + 1)), f * ndtr(f)]
)
def test_nothing_else_has_one(formula: sp.Expr) -> None:
    assert probit_expectation(formula, [f, g], moments_of([f, g])) is None


def test_an_interval_far_out_keeps_its_digits() -> None:
    """The difference of two distribution functions that are 1 but for rounding would have none."""
    moments = moments_of([f])
    closed = probit_expectation(sp.exp(log_ndtr_interval(20 + f, 21 + f)), [f], moments)
    found = evaluate(closed, {moments.mean[f]: np.float64(0.0), moments.variance[f]: np.float64(0.5)})
    wide = np.sqrt(1.5)
    assert float(found) == pytest.approx(stats.norm.sf(20 / wide) - stats.norm.sf(21 / wide), rel=1e-12, abs=0.0)


def test_powers_of_whole_numbers_are_those_of_others() -> None:
    whole = np.arange(1, 6)
    for power in (2, -1, sp.Rational(1, 2), -sp.Rational(1, 2), 3):
        np.testing.assert_allclose(evaluate(f**power, {f: whole}), whole.astype(float) ** float(power), rtol=1e-15)


def test_chances_of_a_binary_output_are_both_said() -> None:
    """Of each of its arguments, against SciPy; what is rare without cancelling."""
    given = {"p": 0.3, "logit": 40.0, "probit": 9.0}
    expected = {"p": 0.7, "logit": stats.logistic.sf(40.0), "probit": stats.norm.sf(9.0)}
    for name, value in given.items():
        one, none = (float(evaluate(each, {f: np.float64(value)})) for each in chances(Law("Bernoulli", {name: f})))
        assert none == pytest.approx(expected[name], rel=1e-12, abs=0.0)
        assert one == pytest.approx(1.0 - expected[name], rel=1e-15)


def test_probits_of_readings_that_are_correlated_as_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """One latent at two places: through the root of their covariance."""
    monkeypatch.setattr(expectations, "correlated", lambda *_: [(f, g)])
    formula, root = ndtr(f - g), np.linalg.cholesky(COVARIANCE)
    closed = expectations.joint_expectation(cast("Translator", None), formula, (f, g), probits=True)
    assert closed is not None
    table = {each: np.float64(mean) for each, mean in zip(moments_of((f, g)).mean.values(), MEAN, strict=True)}
    table |= {
        expectations.root_symbol(s, t): root[i, j] for i, s in enumerate((f, g)) for j, t in enumerate((f, g)[: i + 1])
    }
    assert float(evaluate(closed, table)) == pytest.approx(expected(formula, correlated=True), rel=1e-9)
    assert expectations.joint_expectation(cast("Translator", None), formula, (f, g)) is None
