"""Searches leave the saddles where they end, and stay at maxima."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.ascent.lbfgs import maximise, maximise_off_saddles, upwards
from gpdsl.inference.natural import site_starts
from gpdsl.program.cache import precision
from gpdsl.program.joint import Marginals


def test_the_direction_that_bends_upwards_is_found(rng: np.random.Generator) -> None:
    """Of a quadratic with one eigenvalue above zero among strong ones below: its vector and its value."""
    vectors = np.linalg.qr(rng.normal(size=(7, 7)))[0]
    values = np.array([0.5, -1.0, -3.0, -20.0, -50.0, -90.0, -100.0])
    hessian = vectors * values @ vectors.T
    found = upwards(lambda at: hessian @ at, rng.normal(size=7))
    assert found is not None
    assert found[1] == pytest.approx(0.5, rel=1e-4)
    assert abs(found[0] @ vectors[:, 0]) == pytest.approx(1.0, abs=1e-4)
    assert upwards(lambda at: -hessian @ hessian @ at, rng.normal(size=7)) is None
    rounded = np.array([-1000.0, -1.0, 1e-3])  # what differences make of a maximum: upwards by less than they tell
    assert upwards(lambda at: rounded * at, np.zeros(3)) is None


@pytest.mark.parametrize("search", [maximise, maximise_off_saddles])
def test_a_search_that_starts_on_a_saddle(search: Any) -> None:
    """f = 4 (y^2 - y^4) - x^2 has a saddle at 0, where its gradient vanishes, and maxima of 1 beside it."""
    function = jax.value_and_grad(lambda at: 4.0 * (at["y"] ** 2 - at["y"] ** 4) - at["x"] ** 2)
    reported: list[int] = []
    with precision("float64"):
        start = {"x": jnp.asarray(0.7), "y": jnp.asarray(0.0)}
        found = search(
            lambda at: (float(function(at)[0]), function(at)[1]),
            start,
            steps=50,
            tolerance=1e-12,
            report=lambda step, value: reported.append(step),
            size=1.0,
        )
    assert found.message == "converged"
    assert found.value == pytest.approx(1.0 if search is maximise_off_saddles else 0.0, abs=1e-9)
    assert reported == sorted(reported)


def test_loadings_of_zero_are_left_within_one_search(rng: np.random.Generator) -> None:
    """Given as zero, no slope leads away from them: the bound would be that of noise alone."""
    x = np.linspace(0, 6, 30)
    y = np.stack([np.sin(x), np.cos(x)], axis=1) + 0.1 * rng.normal(size=(30, 2))
    text = """
index p in 1..2
index q in 1..2
input x : real
output y[p] : real
param W[p, q] : real = 0
param s : positive = 0.5
latent h[q](x) ~ GP(0, RBF(q))
y[p] ~ Normal(sum(q, W[p, q] * h[q]), s)
"""
    fit = gpdsl.compile(text).fit({"x": x, "y": y})
    assert np.abs(fit.parameters["W"]).max() > 0.3 and fit.elbo > 20.0


def test_a_search_with_short_first_steps_stays_at_the_maximum_it_begins_beside() -> None:
    """Another one every 0.1 along `period`, as those of periods that many cycles tell apart; `level` is far off."""

    def objective(at: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
        a, b = float(at["level"]), float(at["period"])
        wave = 20 * np.pi * b
        value = -40 * (a - 2) ** 2 + 30 * np.cos(wave) - b**2
        return value, {"level": np.array(-80 * (a - 2)), "period": np.array(-600 * np.pi * np.sin(wave) - 2 * b)}

    ends = []
    for units in ({}, {"period": 1 / (20 * np.pi)}):
        start = {"level": np.array(0.0), "period": np.array(0.011)}
        found = maximise(objective, start, steps=100, tolerance=1e-9, report=lambda *_: None, size=1.0, units=units)
        ends.append(float(found.point["period"]))
    assert abs(ends[0]) > 0.05 and abs(ends[1]) < 1e-3


def test_columns_are_without_slope_where_no_row_has_one_beside_that_in_its_variance() -> None:
    """In units of standard deviations; of columns without either nothing is known."""
    flat = site_starts.FLAT
    variance = np.array([[4.0, 1.0, 1.0], [1.0, 9.0, 1.0]])
    slopes, bends = np.array([[0.0, 0.5, 0.0], [0.9, 0.0, 0.0]]), np.array([[0.2, 0.5, 0.0], [1.0, 0.0, 0.0]])
    q = Marginals(jnp.zeros((1, 2, 3)), jnp.asarray(variance)[None])
    for factor, expected in ((0.9, [True, True, False]), (1.1, [True, False, False]), (1.2, [False, False, False])):
        slope = Marginals(jnp.asarray(factor * flat * slopes)[None], jnp.asarray(bends)[None])
        assert site_starts._slopeless(q, slope).tolist() == expected
