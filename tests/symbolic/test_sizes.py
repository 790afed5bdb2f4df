"""Priors that penalise complexity, against their definition: tail probabilities, and a density that integrates to 1."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from scipy.integrate import quad

import gpdsl
from gpdsl.symbolic.data_scales import Size, log_size, log_spread
from gpdsl.symbolic.densities import DENSITIES
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.scales import Scales

LAWS: list[tuple[str, dict[str, float]]] = [
    ("PCScale", {"above": 3.0, "alpha": 0.01}),
    *[("PCLengthscale", {"below": 0.2, "alpha": 0.05, "dimension": d}) for d in (1.0, 2.0, 3.0)],
]
MODEL = """input x : real
output y : real
param ell : positive = 1 ~ PCLengthscale(0.5, 0.05, 1)
param s : positive = 1 ~ PCScale(2, 0.1)
param b : real(lower = -1, upper = 3) = 0.5 ~ Uniform(-1, 3)
param noise : positive = 0.1 fixed
latent f(x) ~ GP(b, s^2 * Matern32(ell))
y ~ Normal(f, noise)
"""


@pytest.mark.parametrize(("name", "a"), LAWS)
def test_tails_and_mass_are_those_of_the_definition(name: str, a: dict[str, float]) -> None:
    y = sp.Symbol("y", positive=True)
    formula = DENSITIES[name].log_density(y, {key: sp.Float(value, 17) for key, value in a.items()})

    def mass(low: float, high: float) -> float:
        def slice_of(log: float) -> float:
            return float(np.exp(evaluate(formula, {y: np.exp(log)}) + log))

        return float(quad(slice_of, low, high, limit=400, epsabs=1e-12)[0])

    where = np.log(a.get("above", a.get("below", 0.0)))
    low, high = mass(-40.0, where), mass(where, 60.0)
    assert low + high == pytest.approx(1.0, abs=1e-9)
    assert (high if name == "PCScale" else low) == pytest.approx(a["alpha"], abs=1e-9)


def test_the_joint_prior_is_that_of_the_paper() -> None:
    """Fuglstad et al. (2019), theorem 2.6."""
    d, (rho0, alpha1), (sigma0, alpha2) = 2, (0.4, 0.05), (1.5, 0.1)
    rho, sigma = 0.7, 0.9
    rates = -np.log(alpha1) * rho0 ** (d / 2), -np.log(alpha2) / sigma0
    joint = d / 2 * rates[0] * rates[1] * rho ** (-d / 2 - 1) * np.exp(-rates[0] * rho ** (-d / 2) - rates[1] * sigma)
    y = sp.Symbol("y", positive=True)
    of_range = DENSITIES["PCLengthscale"].log_density(y, {"below": rho0, "alpha": alpha1, "dimension": d})
    of_sd = DENSITIES["PCScale"].log_density(y, {"above": sigma0, "alpha": alpha2})
    found = float(of_range.subs(y, rho)) + float(of_sd.subs(y, sigma))
    assert found == pytest.approx(np.log(joint), rel=1e-12)


def test_a_fit_with_them_is_at_the_highest_posterior_density() -> None:
    x = np.linspace(0, 3, 12)
    data: dict[str, Any] = {"x": x, "y": np.sin(2 * x)}
    fit = gpdsl.compile(MODEL).fit(data, tolerance=1e-12)
    ell, s, b = (float(fit.parameters[name]) for name in ("ell", "s", "b"))

    def log_posterior(ell: float, s: float, b: float) -> float:
        scaled = np.sqrt(3) * np.abs(x[:, None] - x) / ell
        covariance = s**2 * (1 + scaled) * np.exp(-scaled) + 0.01 * np.eye(12)
        residual = data["y"] - b
        evidence = -0.5 * residual @ np.linalg.solve(covariance, residual) - 0.5 * np.linalg.slogdet(covariance)[1]
        prior = -1.5 * np.log(ell) + np.log(0.05) * np.sqrt(0.5 / ell) + s * np.log(0.1) / 2
        return float(evidence + prior)

    best = log_posterior(ell, s, b)
    for factor in (0.99, 1.01):
        assert log_posterior(factor * ell, s, b) < best > log_posterior(ell, factor * s, b)
    rates = -np.log(0.05) * np.sqrt(0.5), -np.log(0.1) / 2
    constants = np.log(0.5 * rates[0] * rates[1] / 4)
    expected = constants - 1.5 * np.log(ell) - rates[0] / np.sqrt(ell) - rates[1] * s
    assert fit.log_prior == pytest.approx(expected, rel=1e-6)


def test_simulated_parameters_have_the_tails() -> None:
    model = gpdsl.compile(MODEL)
    drawn = [model.sample_prior(rows=1, seed=k, draw_parameters=True).parameters for k in range(300)]
    ell, s, b = (np.array([float(each[name]) for each in drawn]) for name in ("ell", "s", "b"))
    assert abs(np.mean(ell < 0.5) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 300)
    assert abs(np.mean(s > 2) - 0.1) < 4 * np.sqrt(0.1 * 0.9 / 300)
    assert -1 < b.min() < -0.9 < 2.9 < b.max() < 3


def test_values_are_refused_beyond_their_bounds() -> None:
    text = MODEL.replace("Normal(f, noise)", "Uniform(-1, 2)")
    with pytest.raises(gpdsl.GpdslError, match="row 2: 3 lies above 2, the upper bound of `Uniform`"):
        gpdsl.compile(text).fit({"x": [0.0, 1.0], "y": [0.0, 3.0]})


@pytest.mark.slow
def test_uniform_outliers_beside_good_rows() -> None:
    mixed = gpdsl.compile(MODEL.replace("Normal(f, noise)", "Mixture(0.9, Normal(f, noise), Uniform(-5, 5))"))
    x = np.linspace(0, 3, 12)
    y = np.where(x == x[5], 4.0, np.sin(2 * x))
    fit = mixed.fit({"x": x, "y": y}, fixed=["ell", "s"], steps=60)
    assert abs(fit.predict({"x": x}).mean("f")[5] - np.sin(2 * x[5])) < 0.5
    density = np.exp(fit.log_predictive_density({"x": [x[5]], "y": jnp.asarray([4.5])}))
    assert density == pytest.approx(0.1 / 10, rel=1e-3)


def test_sizes_of_products_are_sums_of_logarithms() -> None:
    one = Size(0.5, {("a", ()): 1.0, ("b", (1,)): -2.0}, number=True, reals=frozenset({"a"}))
    other = Size(-0.2, {("b", (1,)): 0.5, ("c", ()): 3.0}, number=True, latent=True, level=True)
    found = one.times(other, -2.0)
    assert found.constant == pytest.approx(0.9)
    assert found.unknown == {("a", ()): 1.0, ("b", (1,)): -3.0, ("c", ()): -6.0}
    assert (found.number, found.reals, found.latent, found.level) == (True, {"a"}, True, True)


def test_sizes_and_spreads_of_values_are_their_moments_however_large_they_are() -> None:
    values = np.random.default_rng(0).normal(2.0, 3.0, size=50)
    for unit in (1e-200, 1.0, 1e200):
        shift, given = np.log(unit), np.append(unit * values, [np.nan, np.inf])
        assert log_size(given) == pytest.approx(0.5 * np.log(np.mean(values**2)) + shift, abs=1e-12)
    given = np.append(1e3 * values, np.nan)
    assert log_spread(given) == pytest.approx(np.log(1e3 * np.std(values)), abs=1e-12)
    assert log_spread(np.full(3, -2.0)) == pytest.approx(np.log(2.0)) and log_size(np.zeros(3)) == 0.0
    assert log_spread(np.full(3, np.nan)) == 0.0  # nothing is known: the scale stays as it is


def test_known_parameters_have_the_sizes_of_their_elements() -> None:
    param: Any = SimpleNamespace(name="a", constraint="positive")
    known: Any = SimpleNamespace(known={"a": np.array([[2.0, 3.0, 5.0], [7.0, 11.0, 13.0]])}, unitless=False)
    known._number = partial(Scales._number, known)
    for where, value in (((1, 3), 5.0), ((2, 1), 7.0), ((2, 2), 11.0)):
        assert Scales._param(known, param, where).constant == pytest.approx(np.log(value))
