"""Counts of 1e5 to 1e9: what a row tells is far more than the prior does, and digits are lost where they can be.

Each count is then as good as a normal observation of the logarithm of its rate, with the variance 1 / y: the reference
is dense algebra with that, which has no large numbers in it.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg, optimize, stats

import gpdsl
from gpdsl.inference.ascent.lbfgs import maximise
from gpdsl.inference.natural.lapack import row_posterior
from gpdsl.kernels.numerics import jitter_for

ROWS = 40
X = np.linspace(0, 10, ROWS)

MODEL = """
input x : real
output y : count
param m : real{}
param s2 : positive
param ell : positive
latent f(x) ~ GP(m, s2 * RBF(ell))
y ~ Poisson(exp(f))
"""


def covariance(s2: float, ell: float, jitter: float, x: np.ndarray = X) -> np.ndarray:
    return s2 * (np.exp(-0.5 * (x[:, None] - X) ** 2 / ell**2) + jitter * (x[:, None] == X))


def log_evidence(y: np.ndarray, m: float, s2: float, ell: float, jitter: float) -> float:
    """Stirling's terms, and normal observations of log y."""
    terms = np.sum(stats.poisson.logpmf(y, y) + 0.5 * np.log(2 * np.pi / y))
    noisy = covariance(s2, ell, jitter) + np.diag(1 / y)
    return float(terms + stats.multivariate_normal(np.full(ROWS, m), noisy).logpdf(np.log(y)))


def test_means_keep_their_digits_where_sites_are_sharp() -> None:
    """Sites of a precision of 1e8 at values that a smooth prior determines by a few of them."""
    prior = covariance(2.0, 3.0, 1e-8)
    values, precision = 0.3 * np.sin(X) + 1e-4 * np.cos(40 * X), np.full(ROWS, 1e8)
    precision[7] = 0.0  # a row that is not observed, with a linear term of its own
    linear = precision * values
    linear[7] = 3.0
    q = row_posterior(prior, precision, linear)
    assert q is not None
    seen = precision > 0
    gain = linalg.solve(prior[seen][:, seen] + np.diag(1 / precision[seen]), prior[seen], assume_a="pos")
    mean = gain.T @ values[seen] + 3.0 * (prior[7] - gain.T @ prior[seen, 7])
    deviation = np.sqrt(np.diag(prior) - np.sum(gain * prior[seen], axis=0))
    np.testing.assert_allclose((q.mean - mean) / deviation, 0, atol=1e-3)
    np.testing.assert_allclose(prior @ q.alpha, q.mean, atol=1e-12)


def test_a_fall_into_an_abyss_does_not_end_a_search() -> None:
    """Interpolating from -1e40 a line search finds a step of length nothing, whose gain of nothing looks converged."""

    def objective(at: dict) -> tuple[float, dict]:
        x = float(at["x"])
        root, fall = np.sqrt(1 + (x - 50) ** 2), np.exp(np.clip(10 * (x - 51), -700, 100))
        return -root - fall, {"x": np.asarray(-(x - 50) / root - 10 * fall)}

    found = maximise(objective, {"x": np.zeros(())}, steps=100, tolerance=1e-9, report=lambda *_: None, size=40)
    assert found.value == pytest.approx(-1.0, abs=0.01)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("size", "given"),
    [
        pytest.param(1e5, " = 0", marks=SLOW),
        (1.5e7, " = 0"),
        pytest.param(1.5e7, "", marks=SLOW),
        pytest.param(5e8, " = 0", marks=SLOW),
        (5e8, ""),
    ],
)
def test_counts_of_millions_are_fitted(size: float, given: str) -> None:
    """Whether the level starts where the data are, or at a rate of one, which is no start but what people write."""
    y = np.random.default_rng(165).poisson(size * np.exp(0.3 * np.sin(X)))
    fit = gpdsl.compile(MODEL.format(given)).fit({"x": X, "y": y})
    jitter = jitter_for(np.dtype(float))

    def worth(at: np.ndarray) -> float:
        return -log_evidence(y, at[0], *np.exp(at[1:]), jitter)

    starts = [np.array([np.log(size), a, b]) for a in (0.0, -2.0) for b in (0.5, 1.0)]
    best = min((optimize.minimize(worth, start, method="Nelder-Mead") for start in starts), key=lambda each: each.fun)
    assert fit.elbo == pytest.approx(-best.fun, abs=0.01)
    m, s2, ell = (float(fit.parameters[name]) for name in ("m", "s2", "ell"))
    new = np.array([1.03, 5.2, 8.9])
    noisy = covariance(s2, ell, jitter) + np.diag(1 / y)
    mean = m + covariance(s2, ell, 0.0, new) @ linalg.solve(noisy, np.log(y) - m, assume_a="pos")
    np.testing.assert_allclose(fit.predict({"x": new}).mean("f"), mean, atol=1e-4)
