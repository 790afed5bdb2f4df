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
let shared = sin(a) * tanh(c) - 3 * cos(a) * exp(d)
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
    assert np.all(prediction.error("ratios", "variance") == 0)
    assert np.all(prediction.error("whole", "variance") > 0)


def test_variances_by_factors(prediction: gpdsl.Prediction) -> None:
    """Of products of functions of one latent each, E[u^2] E[v^2] - E[u]^2 E[v]^2, and one latent in two terms."""

    def of_product(*factors: tuple[str, object]) -> np.ndarray:
        square = np.prod([average(prediction, name, lambda v, g=g: g(v) ** 2) for name, g in factors], axis=0)
        return square - np.prod([average(prediction, name, g) for name, g in factors], axis=0) ** 2

    one = of_product(("a", np.sin), ("b", lambda b: expit(3 * b)))
    other = of_product(("c", np.tanh), ("d", expit))
    np.testing.assert_allclose(prediction.variance("ratios"), one + other, rtol=1e-6)
    # c_1 c_2 Cov[sin(a) tanh(c), cos(a) exp(d)], twice, beside the variances of both
    first, second = of_product(("a", np.sin), ("c", np.tanh)), of_product(("a", np.cos), ("d", np.exp))
    mixed = average(prediction, "a", lambda a: np.sin(a) * np.cos(a))
    mixed -= average(prediction, "a", np.sin) * average(prediction, "a", np.cos)
    mixed *= average(prediction, "c", np.tanh) * average(prediction, "d", np.exp)
    np.testing.assert_allclose(prediction.variance("shared"), first + 9 * second - 6 * mixed, rtol=1e-6)
    mean = average(prediction, "a", np.sin) * average(prediction, "c", np.tanh)
    mean -= 3 * average(prediction, "a", np.cos) * average(prediction, "d", np.exp)
    np.testing.assert_allclose(prediction.mean("shared"), mean, rtol=1e-6)
