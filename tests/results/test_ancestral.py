"""Outputs that read other outputs: what counts, what is predicted, against sums written out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.program.cache import precision
from tests.inference.problems import unlearnt

SEISMIC = """model seismic "the likelihood of SAVIGP eq. 43: each reflection time adds to the one above"
index p in 1..3
input x : real
output t[p] : real
const s[p] = [0.1, 0.2, 0.3]
latent d[p](x) ~ GP(0, RBF(1))
t[1] ~ Normal(2*d[1], s[1])
t[p > 1] ~ Normal(t[p-1] + 2*(d[p] - d[p-1]), s[p])
"""
N = 14
X = np.linspace(0, 4, N)


def times(rng: np.random.Generator) -> np.ndarray:
    steps = 2 * np.diff(np.stack([np.zeros(N), np.sin(X), np.cos(X), 0.3 * X], axis=1), axis=1)
    return np.cumsum(steps + rng.standard_normal((N, 3)) * [0.1, 0.2, 0.3], axis=1)


def rows_of(d: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Expected log density of every element [rows, 3] under marginals of d: SAVIGP eq. 43 with unit velocity."""
    s, total = np.array([0.1, 0.2, 0.3]), np.zeros_like(t)
    for p in range(3):
        before = t[:, p - 1] if p else 0.0
        mean = before + 2 * (d[:, p] - (d[:, p - 1] if p else 0.0))
        spread = 4 * (v[:, p] + (v[:, p - 1] if p else 0.0))
        total[:, p] = stats.norm.logpdf(t[:, p], mean, s[p]) - spread / (2 * s[p] ** 2)
    return total


@pytest.fixture(scope="module")
def fitted() -> tuple[gpdsl.Fit, np.ndarray]:
    t = times(np.random.default_rng(0))
    t[3, 0] = t[5, 1] = t[7, 2] = np.nan
    return gpdsl.compile(SEISMIC).fit({"x": X, "t": t}, posterior="full"), t


def test_an_element_counts_where_what_it_reads_is_observed(fitted: tuple[gpdsl.Fit, np.ndarray]) -> None:
    fit, t = fitted
    beliefs = fit.beliefs(fit.bind({"x": X, "t": t}, None, outputs=True))
    with precision("float64"):
        found = expected_log_likelihood(fit.program, beliefs.parameters, beliefs.rows, beliefs.marginals)[0]
    marginals = beliefs.marginals
    expected = rows_of(np.asarray(marginals.mean[0]), np.asarray(marginals.variance[0]), t)
    np.testing.assert_allclose(found, np.nansum(expected, axis=1), atol=1e-8)


def test_chains_of_normals_are_predicted_exactly(fitted: tuple[gpdsl.Fit, np.ndarray]) -> None:
    pred = fitted[0].predict({"x": X[:4]})
    np.testing.assert_allclose(pred.mean("t"), 2 * pred.mean("d"), atol=1e-10)
    noise = np.cumsum(np.array([0.1, 0.2, 0.3]) ** 2)
    np.testing.assert_allclose(pred.variance("t"), 4 * pred.variance("d") + noise, atol=1e-10)
    spread = np.sqrt(pred.variance("t"))
    np.testing.assert_allclose(pred.quantile("t", 0.9), pred.mean("t") + spread * stats.norm.ppf(0.9), atol=1e-8)


def test_draws_of_a_chain_belong_together(fitted: tuple[gpdsl.Fit, np.ndarray]) -> None:
    pred = fitted[0].predict({"x": X[:2]})
    draws, latents = pred.sample("t", 40_000, seed=5), pred.sample("d", 40_000, seed=5)
    steps = np.diff(draws, axis=-1) - 2 * np.diff(latents, axis=-1)
    # at the same latents, each step has its own noise and no other
    np.testing.assert_allclose(steps.std(axis=0), np.broadcast_to([0.2, 0.3], (2, 2)), rtol=0.02)
    np.testing.assert_allclose(draws.std(axis=0), np.sqrt(pred.variance("t")), rtol=0.02)


def test_log_predictive_density_uses_the_values_of_the_data(fitted: tuple[gpdsl.Fit, np.ndarray]) -> None:
    fit, t = fitted
    rows = slice(8, 12)
    pred = fit.predict({"x": X[rows]})
    d, v = pred.mean("d"), pred.variance("d")
    jump = np.array([[1, 0, 0], [-1, 1, 0], [0, -1, 1]]) * 2.0
    expected = []
    for n, observed in enumerate(t[rows]):
        steps = observed - np.concatenate([[0.0], observed[:-1]])
        covariance = jump @ np.diag(v[n]) @ jump.T + np.diag(np.array([0.1, 0.2, 0.3]) ** 2)
        expected.append(stats.multivariate_normal(jump @ d[n], covariance).logpdf(steps))
    np.testing.assert_allclose(fit.log_predictive_density({"x": X[rows], "t": t[rows]}), expected, atol=1e-8)


def test_other_dependences_are_drawn_one_after_the_other() -> None:
    text = (
        "input x : real\noutput y : real\noutput w : positive\nlatent f(x) ~ GP(0, RBF(1))\n"
        "w ~ Gamma(4, 4*exp(-y))\ny ~ Normal(f, 0.3)\n"
    )
    rng = np.random.default_rng(1)
    y = np.sin(X) + 0.3 * rng.standard_normal(N)
    fit = unlearnt(text, {"x": X, "y": y, "w": np.exp(y) * rng.gamma(4, 0.25, N)}, spread=0.1)
    pred = fit.predict({"x": X[:3]})
    mean, variance = pred.mean("y"), pred.variance("y")
    np.testing.assert_allclose(pred.mean("w"), np.exp(mean + variance / 2), rtol=0.06)  # 4,096 draws: 4 standard errors
    np.testing.assert_allclose(np.median(pred.sample("w", 20_000), axis=0), pred.quantile("w", 0.5), rtol=0.06)


# --- missing entries --------------------------------------------------------------------------------------------

TWO = """input x : real
output y : real
output n : count
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(f, 0.2)
n ~ Poisson(exp(f))
"""


def test_outputs_observed_at_different_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    y, n = np.sin(X) + 0.2 * rng.standard_normal(N), rng.poisson(np.exp(np.sin(X))).astype(float)
    y[8:], n[:5] = np.nan, np.nan
    fit = gpdsl.compile(TWO).fit({"x": X, "y": y, "n": n})
    lines = [f"{a},{'' if np.isnan(b) else b},{'' if np.isnan(c) else int(c)}" for a, b, c in zip(X, y, n, strict=True)]
    path = tmp_path / "holes.csv"
    path.write_text("x,y,n\n" + "\n".join(lines) + "\n")
    np.testing.assert_allclose(gpdsl.compile(TWO).fit(str(path)).elbo, fit.elbo, atol=1e-6)
    # a row with one of the outputs missing has the predictive density of the other
    both = fit.log_predictive_density({"x": X[:2], "y": y[:2], "n": n[:2]})
    pred = fit.predict({"x": X[:2]})
    expected = stats.norm.logpdf(y[:2], pred.mean("y"), np.sqrt(pred.variance("y")))
    np.testing.assert_allclose(both, expected, atol=1e-6)
