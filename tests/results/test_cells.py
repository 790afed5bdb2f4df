"""Integrals in cells and around modes against other quadratures; inverses against the functions themselves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

import gpdsl
from gpdsl.inference.sampling import shared_normals
from gpdsl.results.cells import around_modes, inverse, log_mean
from tests.inference.problems import unlearnt

FUNCTIONS = {
    "warp": (
        lambda y: y + 3 * np.tanh(20 * (y - 1)),
        lambda y: 1 + 60 / np.cosh(np.clip(20 * (y - 1), -300, 300)) ** 2,
    ),
    "cube": (lambda y: y**3, lambda y: 3 * y**2),
    "exponential": (np.exp, np.exp),
    "steps": (lambda y: y + 0.999 * np.sin(y), lambda y: 1 + 0.999 * np.cos(y)),
    "falling": (lambda y: -y - y**5, lambda y: -1 - 5 * y**4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_round_trip(name: str) -> None:
    value, slope = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    y = rng.normal(size=(20, 7)) * 10.0 ** rng.integers(-3, 2, size=(20, 7))
    found = inverse(lambda v: (value(v), slope(v)), value(y), increasing=name != "falling")
    np.testing.assert_allclose(found, y, rtol=1e-10, atol=1e-8 if name == "cube" else 1e-10)


def test_far_away_values_are_bracketed() -> None:
    y = np.array([-1e12, -3e5, 0.0, 1e-9, 4e7, 1e15])
    found = inverse(lambda v: (2 * v + 1, np.full_like(v, 2.0)), 2 * y + 1)
    np.testing.assert_allclose(found, y, rtol=1e-10, atol=1e-10)


def test_what_is_never_reached_gives_an_end_of_the_line() -> None:
    found = inverse(lambda v: (np.tanh(v), 1 - np.tanh(v) ** 2), np.array([-2.0, 0.0, 2.0]))
    assert found[0] < -1e10
    assert abs(found[1]) < 1e-12
    assert found[2] > 1e10


def test_the_root_once_found_is_not_left() -> None:
    """Half of the quantiles of a mixture came to a step of nothing at an end of the bracket, and were bisected."""
    rng, asked = np.random.default_rng(0), []
    mean, sd, weight = rng.normal(size=(200, 8)), np.exp(rng.normal(size=(200, 8))), rng.dirichlet(np.ones(8), 200)

    def function(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked.append(y)
        z = (y[:, None] - mean) / sd
        return np.sum(weight * stats.norm.cdf(z), axis=1), np.sum(weight * stats.norm.pdf(z) / sd, axis=1)

    found = inverse(function, np.full(200, 0.05))
    assert len(asked) < 40
    np.testing.assert_allclose(function(found)[0], 0.05, rtol=1e-13)


@pytest.mark.parametrize("sd", [0.2, 1.0, 6.0])
@pytest.mark.parametrize("count", [0.0, 7.0, 100.0, 1e4, 1e6])
def test_counts_however_far_from_what_a_latent_says(count: float, sd: float) -> None:
    def exponent(z: np.ndarray) -> np.ndarray:
        return count * sd * z - np.exp(sd * z) - special.gammaln(count + 1)

    def slope(z: float) -> float:
        return count * sd - sd * np.exp(sd * z) - z

    mode = optimize.brentq(slope, -100.0, 1000.0 if sd < 1 else 100.0, xtol=1e-13)
    width = 1.0 / np.sqrt(1.0 + sd**2 * np.exp(sd * mode))

    def ratio(t: float) -> float:
        z = mode + width * t
        return np.exp(exponent(z) - exponent(mode) - 0.5 * (z**2 - mode**2))

    area = integrate.quad(ratio, -12.0, 12.0, epsabs=0.0, epsrel=1e-11)[0]
    expected = exponent(mode) - 0.5 * mode**2 + np.log(area * width) - 0.5 * np.log(2 * np.pi)
    found = log_mean(lambda _, z: exponent(z[..., 0]), [], 1, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_a_jump_far_out_and_nothing_anywhere() -> None:
    levels = np.array([3.0, -20.0, 30.0])
    places = np.array([[-3.0], [20.0], [-30.0]])[:, 0]

    def above(rows: np.ndarray, z: np.ndarray) -> np.ndarray:
        return np.where(z[..., 0] > places[rows, None], 0.0, -np.inf)

    found = log_mean(above, [(levels, np.ones((3, 1)))], 3, 1)
    np.testing.assert_allclose(found, stats.norm.logsf(places), rtol=1e-11, atol=1e-12)
    assert log_mean(lambda _, z: np.full(z.shape[:2], -np.inf), [], 2, 1).tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("at", [3.0001, 2.9999, 0.0, 11.99999, 48.002])
@pytest.mark.parametrize("width", [1e-2, 1e-5])
def test_narrow_peaks_beside_the_ends_of_cells(at: float, width: float) -> None:
    found = log_mean(lambda _, z: stats.norm.logpdf(z[..., 0], at, width), [], 1, 1)
    np.testing.assert_allclose(found, stats.norm.logpdf(at, 0.0, np.hypot(1.0, width)), rtol=1e-11)


def test_functions_of_two_normals_may_jump_at_lines_that_cross() -> None:
    """Where z1 + z2 > a and z2 - 2 z1 < b: a corner of two correlated normals. Cells end where the lines cross."""
    a, b = np.array([0.4, -1.0]), np.array([0.3, 2.0])
    looked_at = list[int]()

    def inside(rows: np.ndarray, z: np.ndarray) -> np.ndarray:
        looked_at.append(z[..., 0].size)
        fits = (z[..., 0] + z[..., 1] > a[rows][:, None]) & (z[..., 1] - 2 * z[..., 0] < b[rows][:, None])
        return np.where(fits, 0.0, -np.inf)

    one = np.ones(2)
    lines = [(-a, np.stack([one, one], axis=1)), (-b, np.stack([-2 * one, one], axis=1))]
    corner = stats.multivariate_normal(np.zeros(2), np.array([[2.0, 1.0], [1.0, 5.0]]))
    expected = np.log([corner.cdf(each) for each in np.stack([-a, b], axis=1)])
    np.testing.assert_allclose(log_mean(inside, lines, 2, 2), expected, rtol=1e-7)
    assert sum(looked_at) < 2_000_000  # three times as many with other cuts


@pytest.mark.parametrize("count", [3.0, 80.0])
def test_samples_around_the_modes_of_several_latents(count: float) -> None:
    """Three modes, as any one of the latents may make a large sum; all of them far from the origin."""

    def exponent(z: jax.Array) -> jax.Array:
        return count * jax.nn.logsumexp(z, axis=-1) - jnp.sum(jnp.exp(z), axis=-1) - special.gammaln(count + 1)

    along = np.linspace(-9.0, 9.0, 121)
    grid = np.stack(np.meshgrid(along, along, along), axis=-1).reshape(-1, 3)
    values = count * special.logsumexp(grid, axis=-1) - np.exp(grid).sum(axis=-1) - special.gammaln(count + 1)
    values -= 0.5 * np.sum(grid**2, axis=1)
    expected = special.logsumexp(values) + 3 * np.log((along[1] - along[0]) / np.sqrt(2 * np.pi))
    starts, normals = (jnp.asarray(shared_normals(k, 1024, 1, 3, "qmc").reshape(-1, 3)) for k in (5, 6))
    found, error = around_modes(exponent, 2, starts, normals)
    assert np.all(error < 0.1)
    np.testing.assert_array_less(np.abs(found - expected), 4 * error)


def test_densities_of_outputs_that_three_latents_hardly_allow() -> None:
    text = "input x : real\n" + "".join(f"latent {name}(x) ~ GP(0, RBF(1))\n" for name in "fgh")
    model = gpdsl.compile(text + "output y : count\ny ~ Poisson(exp(f) + exp(g) + exp(h))")
    fit = unlearnt(model, {"x": np.arange(4.0), "y": [3, 2, 4, 3]}, posterior="diagonal", seed=0)
    found = fit.log_predictive_density({"x": [90.0, 90.0], "y": [3, 1000]})
    np.testing.assert_allclose(found, [-1.976595, -30.525708], atol=0.03)  # by a grid, of latents as in the prior
