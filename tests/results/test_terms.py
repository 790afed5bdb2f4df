"""The mean of a sum whose terms have few arguments is one of quadratures, however many latents the sum reads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import gpdsl

MODEL = """\
input x : real
output y : real
param s : positive = 0.3 fixed
latent a(x) ~ GP(1, RBF(1))
latent b(x) ~ GP(0, 4 * RBF(1))
latent c(x) ~ GP(-1, RBF(2))
latent d(x) ~ GP(0.5, 2 * RBF(1))
let ratios = sin(a) * sigmoid(3 * b) + tanh(c) * sigmoid(d) + 2
let whole  = sin(a) * sigmoid(3 * b) * tanh(c + d)
y ~ Normal(a + b + c + d, s)
"""


@pytest.fixture
def prediction() -> gpdsl.Prediction:
    x = np.linspace(0.0, 3.0, 6)
    fit = gpdsl.compile(MODEL).fit({"x": x, "y": np.cos(x)}, posterior="full", steps=5, progress=False)
    return fit.predict({"x": np.array([0.3, 1.7])})


def average(prediction: gpdsl.Prediction, name: str, function: object) -> np.ndarray:
    """E[function(f)] by Gauss and Hermite."""
    z, w = np.polynomial.hermite_e.hermegauss(120)
    mean, sd = prediction.mean(name), np.sqrt(prediction.variance(name))
    return function(mean[:, None] + sd[:, None] * z) @ w / w.sum()


def test_means_term_by_term(prediction: gpdsl.Prediction) -> None:
    """Products of independent latents; what no term makes simpler is sampled, and its error says so."""
    one = average(prediction, "a", np.sin) * average(prediction, "b", lambda b: expit(3 * b))
    other = average(prediction, "c", np.tanh) * average(prediction, "d", expit)
    np.testing.assert_allclose(prediction.mean("ratios"), one + other + 2, atol=1e-6)
    assert np.all(prediction.error("ratios") < 1e-4)
    assert np.all(prediction.error("whole") > 1e-5)
    assert np.all(prediction.error("ratios", "variance") > 0)
