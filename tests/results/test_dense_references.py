"""Outputs that read outputs, conditions on the left and missing entries together, against the joint Gaussian."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import gpdsl

MODEL = """index p in 1..3
input x : real
output t[p] : real
const s[p] = [0.1, 0.2, 0.3]
latent d(x) ~ GP(0.5, 1.3 * RBF(0.8))
t[1] ~ Normal(2*d, s[1])
t[p > 1] ~ Normal(t[p-1] + p*d, s[p])
"""
N, NOISE, STEPS = 12, np.array([0.1, 0.2, 0.3]), np.array([2.0, 2.0, 3.0])
X = np.linspace(0, 4, N)


def gram(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 1.3 * np.exp(-0.5 * (a[:, None] - b) ** 2 / 0.8**2)


@pytest.fixture(scope="module")
def problem() -> tuple[gpdsl.Fit, np.ndarray, np.ndarray, np.ndarray]:
    """The fit, and the rows, weights of d and increments of t that are observed."""
    rng = np.random.default_rng(3)
    t = np.cumsum(np.sin(X)[:, None] * STEPS + NOISE * rng.standard_normal((N, 3)), axis=1)
    t[3, 2] = t[5, 0] = t[7, 1] = np.nan
    t[9] = np.nan
    increments = np.diff(np.concatenate([np.zeros((N, 1)), t], axis=1), axis=1)
    rows, places = np.nonzero(np.isfinite(increments))
    return gpdsl.compile(MODEL).fit({"x": X, "t": t}), rows, places, increments[rows, places]


def joint(problem: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the observed increments: all are linear in d."""
    _, rows, places, _ = problem
    weights = STEPS[places]
    covariance = weights[:, None] * weights * gram(X, X)[np.ix_(rows, rows)] + np.diag(NOISE[places] ** 2)
    return 0.5 * weights, covariance


def test_the_bound_is_the_log_marginal_likelihood(problem: tuple) -> None:
    fit, _, _, values = problem
    assert fit.elbo == pytest.approx(stats.multivariate_normal.logpdf(values, *joint(problem)), abs=1e-8)


def test_predictions_are_the_conditional_gaussian(problem: tuple) -> None:
    fit, rows, places, values = problem
    mean, covariance = joint(problem)
    at = np.linspace(0, 5, 5)
    cross = gram(at, X)[:, rows] * STEPS[places]
    d = 0.5 + cross @ np.linalg.solve(covariance, values - mean)
    spread = 1.3 - np.einsum("ij,ji->i", cross, np.linalg.solve(covariance, cross.T))
    pred, total = fit.predict({"x": at}), np.cumsum(STEPS)
    np.testing.assert_allclose(pred.mean("d"), d, atol=1e-5)
    np.testing.assert_allclose(pred.variance("d"), spread, atol=1e-5)
    np.testing.assert_allclose(pred.mean("t"), d[:, None] * total, atol=1e-4)
    np.testing.assert_allclose(pred.variance("t"), spread[:, None] * total**2 + np.cumsum(NOISE**2), atol=2e-4)
    expected = pred.mean("t") + stats.norm.ppf(0.9) * np.sqrt(pred.variance("t"))
    np.testing.assert_allclose(pred.quantile("t", 0.9), expected, atol=1e-8)


def test_scores_are_means_over_what_is_observed_of_the_joint_gaussian() -> None:
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(0.8))\ny ~ Normal(f, 0.3)\n")
    rng, at = np.random.default_rng(5), np.linspace(0.2, 4.5, 7)
    y, new = np.sin(X) + 0.3 * rng.standard_normal(N), np.sin(at) + rng.standard_normal(7)
    new[2] = np.nan
    unit = lambda a, b: gram(a, b) / 1.3  # noqa: E731
    weights = np.linalg.solve(unit(X, X) + 0.09 * np.eye(N), unit(X, at)).T
    mean, spread = weights @ y, 1.09 - np.sum(weights * unit(at, X), axis=1)
    seen, fit, data = np.isfinite(new), model.fit({"x": X, "y": y}), {"x": at, "y": new}
    densities = stats.norm.logpdf(new[seen], mean[seen], np.sqrt(spread[seen]))
    assert gpdsl.score.nlpd(fit, data) == pytest.approx(-np.mean(densities))
    square = np.mean((mean - new)[seen] ** 2)
    assert gpdsl.score.rmse(fit, data) == pytest.approx(np.sqrt(square))
    assert gpdsl.score.sse(fit, data) == pytest.approx(square / np.var(new[seen]))
