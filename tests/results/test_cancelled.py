"""Products of functions of one latent each, where their sums cancel, and laws whose values have ends."""

from __future__ import annotations

import time

import numpy as np
import pytest
import sympy as sp

import gpdsl
from gpdsl.symbolic.expectations import products
from tests.inference.problems import unlearnt

FAR = """
input x : real
output a : real
output b : real
output c : real
latent d(x) ~ GP(1000, RBF(1))
latent v(x) ~ GP(1000, RBF(1))
latent w(x) ~ GP(0, RBF(1))
latent u(x) ~ GP(0, 0.1 * RBF(1))
let apart = (d - v)^3 * sigmoid(w) * exp(u)
let level = (d - 1000)^4 * sigmoid(w) * exp(u)
a ~ Normal(d, 0.5)
b ~ Normal(v, 0.5)
c ~ Normal(w, 0.5)
"""

Z, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@pytest.fixture(scope="module")
def far() -> gpdsl.Prediction:
    """Latents far from zero beside their standard deviations, independent of each other."""
    data = {"x": [0.0, 1.0], "a": [1000.0, 1000.0], "b": [1000.5, 1000.3], "c": [0.0, 0.1]}
    return gpdsl.compile(FAR).fit(data, posterior="full").predict({"x": [0.5, 3.0]})


def expected(p: gpdsl.Prediction, mean: np.ndarray, variance: np.ndarray, power: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a power of a normal number times sigmoid(w) exp(u)."""
    moved = (mean[:, None] + np.sqrt(variance)[:, None] * Z) ** power
    share = 1 / (1 + np.exp(-p.mean("w")[:, None] - p.sd("w")[:, None] * Z))
    first = (moved @ WEIGHTS) * (share @ WEIGHTS) * np.exp(p.mean("u") + p.variance("u") / 2)
    second = (moved**2 @ WEIGHTS) * (share**2 @ WEIGHTS) * np.exp(2 * p.mean("u") + 2 * p.variance("u"))
    return first, second - first**2


def test_powers_of_constants_beside_a_latent_are_not_multiplied_out(far: gpdsl.Prediction) -> None:
    mean, variance = expected(far, far.mean("d") - 1000, far.variance("d"), 4)
    assert np.allclose(far.mean("level"), mean, rtol=1e-7)
    assert np.allclose(far.variance("level"), variance, rtol=1e-7)
    assert np.all(far.error("level", "variance") == 0)


def test_what_cancels_is_sampled_and_its_error_is_said(far: gpdsl.Prediction) -> None:
    """The variance of (d - v)^3 multiplied out has terms of 1e13: it came out negative, with an error of 0."""
    mean, variance = expected(far, far.mean("d") - far.mean("v"), far.variance("d") + far.variance("v"), 3)
    errors = {of: far.error("apart", of) for of in ("mean", "variance")}
    assert np.all(errors["variance"] > 0)
    assert np.all(np.abs(far.mean("apart") - mean) < 5 * errors["mean"] + 1e-4 * np.sqrt(variance))
    assert np.all(np.abs(far.variance("apart") - variance) < 5 * errors["variance"])


ENDS = """
input x : real
output y : positive
output share : unit
latent f(x) ~ GP(0, 4 * RBF(1))
latent g(x) ~ GP(0, RBF(1))
y ~ LogNormal(f, exp(g))
share ~ Beta(10 * sigmoid(f), 10 * sigmoid(-f))
"""


@pytest.fixture(scope="module")
def ends() -> gpdsl.Prediction:
    """Outputs with a least or a largest value."""
    fit = unlearnt(ENDS, {"x": [0.0, 1.0], "y": [1.0, 2.0], "share": [0.4, 0.6]})
    return fit.predict({"x": [0.5, 2.0, 9.0]})


def test_log_normal_probabilities_are_as_exact_as_quantiles(ends: gpdsl.Prediction) -> None:
    """They were shares of samples, 2e-4 off."""
    for row, y in enumerate(ends.quantile("y", 0.95)):
        assert abs(ends.probability(f"y <= {float(y)!r}")[row] - 0.95) < 1e-9
    assert np.all(ends.probability("y < 0") == 0) and np.all(ends.probability("y > -1") == 1)


def test_quantiles_end_where_values_do(ends: gpdsl.Prediction) -> None:
    """Those of a share far from the data were 1 + 4e-16."""
    found = ends.quantile("share", [1e-6, 0.5, 0.9999, 1 - 1e-9])
    assert np.all((found >= 0) & (found <= 1)) and found[-1, -1] == pytest.approx(1)


def test_products_of_many_sums_are_not_multiplied_out() -> None:
    """Fourteen sums of two have 16,384 terms, which took 13 s to find to be too many."""
    h, began = sp.symbols("h:16", real=True), time.perf_counter()
    chain = sp.exp(h[0]) * sp.Mul(*(h[i] + h[i + 1] for i in range(1, 15)))
    assert products(chain, h) is None and products(sp.exp(h[0]) * sum(h[1:7]) ** 14, h) is None
    assert time.perf_counter() - began < 2
    assert products(sp.exp(h[0]) * (h[1] + h[2]) ** 2, h) is not None
