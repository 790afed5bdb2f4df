"""Inverses of monotone functions against the functions themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gpdsl.results.cells import inverse

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
