"""The mean of a sum whose terms have few arguments is one of quadratures, however many latents the sum reads."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.special import expit

import gpdsl
from gpdsl.results.expectation import by_factors
from gpdsl.results.nodes import nodes_of

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


def test_variances_under_a_mixture_are_those_within_and_between(prediction: gpdsl.Prediction) -> None:
    one, weights = prediction.beliefs, np.array([0.3, 0.7])
    expression = one.program.translator.let("ratios", ())
    parts = [replace(one, marginals=replace(one.marginals, mean=one.marginals.mean + far)) for far in (0.0, 0.7)]
    both = jax.tree.map(lambda *a: np.concatenate(a), *(each.marginals for each in parts))
    found, lacking = by_factors(replace(one, marginals=both, weights=weights), expression, (), "variance")
    means, variances = (np.stack([by_factors(b, expression, (), of)[0] for b in parts]) for of in ("mean", "variance"))
    assert not lacking.any()
    np.testing.assert_allclose(found, weights @ variances + weights @ (means - weights @ means) ** 2, rtol=1e-9)


def test_parts_of_many_components_have_the_nodes_of_the_whole(prediction: gpdsl.Prediction) -> None:
    """Each component has nodes from elsewhere, by its number among all of them; weights are those of a normal."""
    one, count = prediction.beliefs, 130
    many = jax.tree.map(lambda a: np.repeat(np.zeros_like(a), count, axis=0), one.marginals)
    whole = replace(one, marginals=replace(many, variance=np.ones_like(many.mean)), weights=np.full(count, 1 / count))
    expressions = {"a": one.program.translator.value("a", ())}
    nodes, weights = nodes_of(whole, expressions, ())
    np.testing.assert_allclose(weights.sum(axis=0), 1.0)
    np.testing.assert_allclose(np.sum(weights[..., None] * nodes["a"] ** 2, axis=0), 1.0, rtol=1e-6)
    assert len(np.unique(np.round(nodes["a"][0, :, 0], 9))) == count
    later, _ = nodes_of(replace(whole, first=5), expressions, ())
    np.testing.assert_allclose(later["a"][:, :-5], nodes["a"][:, 5:], atol=1e-12)
