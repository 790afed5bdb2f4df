"""Predictions of every family against SAVIGP eqs. 36 to 39 written out densely, and many rows a part at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import norm

import gpdsl
from gpdsl.inference.posteriors import posterior as chunks

TEXT = """
input x : real
output y : binary
latent f(x) ~ GP(0.4, 1.7 * Matern12(0.8))
y ~ Bernoulli(logit = f)
"""
NEW = np.linspace(-3, 3, 31)


def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 1.7 * np.exp(-np.abs(a[:, None] - b) / 0.8)


def dense(fit: gpdsl.Fit, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances [K, rows] of f by eqs. 38 and 39, from m and S of the inducing values themselves."""
    z = np.asarray(fit.inducing[0].points)[:, 0]
    kzz = kernel(z, z) + fit.jitter * 1.7 * np.eye(len(z))
    factor, inverse, cross = np.linalg.cholesky(kzz), np.linalg.inv(kzz), kernel(new, z)
    means, variances = [], []
    for k in range(len(fit.weights)):
        root = factor @ fit.posterior[0].root[k, 0]
        m, s = factor @ fit.posterior[0].mean[k, 0], root @ root.T
        means.append(0.4 + cross @ inverse @ m)
        middle = inverse - inverse @ s @ inverse
        variances.append(1.7 - np.einsum("nm,mk,nk->n", cross, middle, cross))
    return np.array(means), np.array(variances)


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    x = rng.uniform(-3, 3, 24)
    return {"x": x, "y": (rng.uniform(size=24) < expit(2 * np.sin(2 * x))).astype(int)}


@pytest.mark.parametrize(
    "posterior,inducing",
    [
        ("full", 8),
        ("linear", 8),
        ("diagonal", 0),
        ("mixture(3)", 8),
        pytest.param("mixture_full(2)", 0, marks=pytest.mark.slow),
        pytest.param("mixture_full(2)", 8, marks=pytest.mark.slow),
        pytest.param("full", 0, marks=pytest.mark.slow),
    ],
)
def test_predictions_are_those_of_the_equations(data: dict, posterior: str, inducing: int) -> None:
    fit = gpdsl.compile(TEXT).fit(data, posterior=posterior, inducing=inducing, steps=40)
    means, variances = dense(fit, NEW)
    pi, prediction = fit.weights[:, None], fit.predict({"x": NEW})
    mean = (pi * means).sum(axis=0)
    np.testing.assert_allclose(prediction.mean("f"), mean, atol=1e-6)
    spread = (pi * (variances + (means - mean) ** 2)).sum(axis=0)
    np.testing.assert_allclose(prediction.variance("f"), spread, atol=1e-6)
    sd = np.sqrt(variances)
    for p, values in zip((0.1, 0.9), prediction.quantile("f", [0.1, 0.9]), strict=True):
        np.testing.assert_allclose((pi * norm.cdf(values, means, sd)).sum(axis=0), p, atol=1e-6)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    f = means[..., None] + sd[..., None] * nodes
    chance = (pi[..., None] * expit(f) * weights / weights.sum()).sum(axis=(0, 2))  # eq. 36
    np.testing.assert_allclose(prediction.mean("y"), chance, atol=1e-6)
    y = (np.arange(31) % 2).astype(int)
    density = fit.log_predictive_density({"x": NEW, "y": y})
    np.testing.assert_allclose(density, np.log(np.where(y == 1, chance, 1 - chance)), atol=1e-6)


def test_many_rows_are_taken_a_part_at_a_time(data: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = gpdsl.compile(TEXT).fit(data, posterior="mixture(2)", inducing=5, steps=20)
    new = {"x": np.linspace(-3, 3, 25), "y": np.arange(25) % 2}
    whole, density = fit.predict(new), fit.log_predictive_density(new)
    expected = {(kind, name): getattr(whole, kind)(name) for kind in ("mean", "variance") for name in ("f", "y")}
    quantiles, sizes = whole.quantile("f", [0.2, 0.7]), []
    single = whole.quantile("f", 0.2)
    monkeypatch.setattr(type(whole.beliefs), "at_once", 7)
    inner = gpdsl.results.prediction.Prediction._mean
    monkeypatch.setattr(
        gpdsl.results.prediction.Prediction,
        "_mean",
        lambda self, name: (sizes.append(self.beliefs.count), inner(self, name))[1],
    )
    for (kind, name), values in expected.items():
        np.testing.assert_allclose(getattr(whole, kind)(name), values, rtol=1e-12)
    assert set(sizes) == {7} and len(sizes) == 8
    np.testing.assert_allclose(whole.quantile("f", [0.2, 0.7]), quantiles)
    np.testing.assert_allclose(whole.quantile("f", 0.2), single)
    np.testing.assert_allclose(fit.log_predictive_density(new), density)
    draws = whole.sample("f", 3000, seed=2)
    assert draws.shape == (3000, 25)
    error = np.sqrt(expected["variance", "f"] / 3000)
    assert np.abs((draws.mean(axis=0) - expected["mean", "f"]) / error).max() < 4.5
    assert np.abs(np.corrcoef(draws[:, 0], draws[:, 7])[0, 1]) < 0.1  # parts do not share their draws
    np.testing.assert_array_equal(draws, whole.sample("f", 3000, seed=2))


def test_parts_cover_every_row_once() -> None:
    for count in (1, 6, 7, 8, 20, 21):
        seen = [row for rows, skip in chunks.parts(count, 7) for row in range(count)[rows][skip:]]
        assert seen == list(range(count))
        assert {len(range(count)[rows]) for rows, _ in chunks.parts(count, 7)} == {min(count, 7)}


GIBIBYTE = 2**20  # of the kibibytes that the system counts in

MILLION = """
import resource, sys
import numpy as np
import gpdsl

rng = np.random.default_rng(0)
x = rng.normal(size=(400, 2))
model = gpdsl.compile({text!r})
fit = model.fit({{"x": x, "y": (x[:, 0] > 0).astype(int)}}, inducing=100, batch=0)
small = fit.predict({{"x": x}}).mean("y")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
new = rng.normal(size=(int(sys.argv[1]), 2))
prediction = fit.predict({{"x": new}})
for kind in ("mean", "variance"):
    for name in ("f", "y"):
        assert getattr(prediction, kind)(name).shape == (len(new),)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_grows_by_what_the_rows_and_answers_take() -> None:
    """A quarter of a million rows: inputs and marginals are 15 MB, all nodes of a quadrature would be 130 MB each."""
    text = "input x : real[2]\noutput y : binary\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Bernoulli(logit = f)\n"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", MILLION.format(text=text), "250000"],
        capture_output=True,
        text=True,
        cwd=root,
        check=True,
    )
    assert int(done.stdout) < 0.25 * GIBIBYTE


def test_mixture_densities_add_up(data: dict) -> None:
    """log p(y | x) of a mixture is the log of the weighted sum over components."""
    model = gpdsl.compile(TEXT.replace("binary", "real").replace("Bernoulli(logit = f)", "Normal(f, 0.3)"))
    fit = model.fit({**data, "y": np.sin(data["x"])}, posterior="mixture(2)", inducing=4, steps=20)
    means, variances = dense(fit, NEW)
    y = np.cos(NEW)
    parts = norm.logpdf(y, means, np.sqrt(variances + 0.09)) + np.log(fit.weights)[:, None]
    np.testing.assert_allclose(fit.log_predictive_density({"x": NEW, "y": y}), logsumexp(parts, axis=0), atol=1e-6)
