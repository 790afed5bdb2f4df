"""Rows that say several things of a latent: searches begin from draws of the prior, and what remains open is said."""

from __future__ import annotations

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.sides import NORMALS, _two_peaks

HEAD = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, {scale} * RBF(1))\n"
FOLDED = HEAD.format(scale=1.5) + "y ~ Normal(abs(f), 0.4)\n"
DIFFERENCE = HEAD.format(scale=1) + "latent g(x) ~ GP(0, 0.8 * RBF(1))\ny ~ Normal(abs(f - 2 * g), 0.5)\n"
MIXED = HEAD.format(scale=4.2) + "y ~ Mixture(0.5, Normal(f + 1.5, 0.4), Normal(f - 1.5, 0.4))\n"


@pytest.mark.parametrize(
    ("text", "x", "y", "best"),
    [
        (FOLDED, [1.0, -0.88], [1.553, 1.208], -3.3451),
        pytest.param(DIFFERENCE, [0.3], [2.0], -2.1147, marks=pytest.mark.slow),
        pytest.param(MIXED, [0.3], [-0.244], -2.5289, marks=pytest.mark.slow),
    ],
)
def test_the_best_maximum_is_found_or_doubted(text: str, x: list[float], y: list[float], best: float) -> None:
    """The best are those of 14 random starts of an optimiser of q's moments, integrated on a grid."""
    fit = gpdsl.compile(text).fit({"x": x, "y": y})
    assert fit.elbo == pytest.approx(best, abs=2e-4)


def test_one_search_is_enough_where_rows_say_one_thing() -> None:
    rng = np.random.default_rng(0)
    x = np.linspace(-3, 3, 30)
    text = HEAD.format(scale=1) + "y ~ StudentT(4, f, 0.3)\n"
    fit = gpdsl.compile(text).fit({"x": x, "y": np.sin(2 * x) + 0.3 * rng.normal(size=30)})
    assert "draw" not in fit.message and not fit.notes


@pytest.mark.parametrize(("apart", "lower", "two"), [(3.0, 0.5, True), (3.0, 4.0, False), (0.5, 0.0, False)])
def test_peaks_count_where_they_are_close_and_apart(apart: float, lower: float, two: bool) -> None:
    parts = [-0.5 * ((NORMALS - side * apart / 2) / 0.5) ** 2 - (lower if side < 0 else 0.0) for side in (-1, 1)]
    assert _two_peaks(np.logaddexp(*parts)) == two
    assert not _two_peaks(np.full(len(NORMALS), np.nan))
