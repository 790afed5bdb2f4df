"""Rows left out of draws of several latents and of row variables, beside NumPy and brute force."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.mcmc import engine
from gpdsl.inference.mcmc.chains import Chains
from gpdsl.results.criticism.left_out import LeaveOneOut

INPUT = "input x : real\n"
PRODUCT = INPUT + "output y : real\nlatent f(x) ~ GP(0, 2 * RBF(1))\nlatent g(x) ~ GP(0.5, RBF(0.6))\n"
PRODUCT += "y ~ Normal(f * g, 0.4)"
COUNTS = INPUT + "output y : count\nlatent f(x) ~ GP(0.5, RBF(1))\nrow e ~ Normal(0.1, 0.8)\ny ~ Poisson(exp(f + e))"
X = np.array([0.0, 0.5, 1.0, 2.0])
PRODUCTS, COUNTED = {"x": X, "y": np.array([1.5, 1.0, 0.2, -0.6])}, {"x": X, "y": np.array([3, 6, 0, 9])}
SHORT: dict[str, Any] = {"engine": "mcmc", "chains": 1, "draws": 4, "warm_up": 20, "diagnose": "no"}


def rbf(variance: float, length: float) -> np.ndarray:
    return variance * np.exp(-0.5 * ((X[:, None] - X) / length) ** 2)


def by_the_prior(white: np.ndarray, mean: float, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each value of f = mean + L w given the others, by the prior."""
    inverse, variance = np.linalg.inv(covariance), 1 / np.diag(np.linalg.inv(covariance))
    f = np.linalg.cholesky(covariance) @ white
    return mean + f - variance * (inverse @ f), variance


def drawn(target: Any, chains: int, warm_up: int, draws: int, *_: Any) -> Chains:
    """Positions of chains without a sampler, which takes seconds to compile."""
    rng = np.random.default_rng(0)
    positions = jax.tree.map(lambda leaf: rng.standard_normal((chains, draws, *np.shape(leaf))), target.start)
    return Chains(positions, {name: np.zeros((chains, draws)) for name in ("diverging", "energy", "lp")})


def left_and_draws(text: str, data: dict[str, np.ndarray]) -> list[tuple[Any, list[np.ndarray]]]:
    """What is left of each draw, and its whitened values, latent by latent. Any values are draws to what leaves out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "nuts", drawn)
        fit = gpdsl.compile(text).fit(data, progress=False, **SHORT)
    left = fit.loo(data).left
    assert fit.settings is not None and len(left) == 4
    draws = [[w for own in each.q for w in own.mean[0]] for each in fit.settings.posteriors(fit.at_rows)]
    return [(beliefs.marginals, white) for beliefs, white in zip(left, draws, strict=True)]


def test_latents_that_an_observation_mixes_follow_their_priors_without_a_row() -> None:
    for known, (f, g) in left_and_draws(PRODUCT, PRODUCTS):
        for column, (own, mean, covariance) in enumerate(((f, 0.0, rbf(2, 1)), (g, 0.5, rbf(1, 0.6)))):
            expected = by_the_prior(own, mean, covariance)
            np.testing.assert_allclose(known.mean[0, :, column], expected[0], atol=1e-5)
            np.testing.assert_allclose(known.variance[0, :, column], expected[1], rtol=1e-5)
        np.testing.assert_allclose(known.covariance[0, :, 0, 1], 0.0, atol=1e-12)
        np.testing.assert_allclose(known.covariance[0, :, [0, 1], [0, 1]].T, known.variance[0])


def test_a_row_variable_is_as_before_any_data_without_its_row() -> None:
    for known, q in left_and_draws(COUNTS, COUNTED):
        values, variances = np.asarray(known.mean[0]), np.asarray(known.variance[0])
        row = next(column for column in (0, 1) if np.allclose(variances[:, column], 0.64, rtol=1e-5))
        np.testing.assert_allclose(values[:, row], 0.1, atol=1e-6)
        expected = by_the_prior(q[1 - row], 0.5, rbf(1, 1))
        np.testing.assert_allclose(values[:, 1 - row], expected[0], atol=1e-5)
        np.testing.assert_allclose(variances[:, 1 - row], expected[1], rtol=1e-5)


def brute(each: np.ndarray) -> np.ndarray:
    """log p(y_n | the others) from log densities [draws of the prior, rows]."""
    whole = np.logaddexp.reduce(each.sum(axis=1))
    return np.array([whole - np.logaddexp.reduce(each.sum(axis=1) - own) for own in each.T])


@pytest.mark.slow
@pytest.mark.parametrize("text", [PRODUCT, COUNTS], ids=["product", "counts"])
def test_rows_of_two_latents_are_left_out_as_by_brute_force(text: str) -> None:
    """Weights by each row's own density were up to a nat off here."""
    rng, data = np.random.default_rng(0), PRODUCTS if text == PRODUCT else COUNTED
    f, g = rng.standard_normal((2, 1_000_000, 4))
    if text == PRODUCT:
        f, g = f @ np.linalg.cholesky(rbf(2, 1)).T, 0.5 + g @ np.linalg.cholesky(rbf(1, 0.6)).T
        exact = brute(stats.norm.logpdf(data["y"], f * g, 0.4))
    else:
        rate = np.exp(0.5 + f @ np.linalg.cholesky(rbf(1, 1)).T + 0.1 + 0.8 * g)
        exact = brute(stats.poisson.logpmf(data["y"], rate))
    left: LeaveOneOut = gpdsl.compile(text).fit(data, posterior="corrected", diagnose="no", progress=False).loo(data)
    np.testing.assert_allclose(left.pointwise, exact, atol=0.3)
    assert abs(left.elpd - exact.sum()) < 0.3
