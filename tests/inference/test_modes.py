"""Other modes of the evidence: those of periods, and where other searches have ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference import modes, proposals
from gpdsl.inference.ascent.lbfgs import flat, unflat
from gpdsl.inference.images import Images

PERIODS, HEIGHTS, WIDTH = np.log([0.7, 1.4, 3.1, 0.35]), np.array([0.0, 0.5, -3.0, -40.0]), 0.01
"""Logarithms of periods that are modes, their heights, and how wide each is; the other parameter is normal."""


class Density:
    """Of a period and a spread, in logarithms: bells."""

    def __init__(self) -> None:
        like = {"p": np.zeros(()), "s": np.zeros(())}
        self.learnt = lambda at: unflat(like, np.asarray(at))
        self.steps, self.widest, self.evaluations = np.array([0.02, 1.0]), np.array([2.0, 2.0]), 0
        self.images = Images.of_nothing(2)

    def __call__(self, at: np.ndarray) -> tuple[float, np.ndarray]:
        self.evaluations += 1
        each = HEIGHTS - 0.5 * ((at[0] - PERIODS) / WIDTH) ** 2
        value = np.logaddexp.reduce([*each, -60.0])
        slope = np.sum(np.exp(each - value) * (PERIODS - at[0])) / WIDTH**2
        return float(value - 0.5 * at[1] ** 2), np.array([slope, -at[1]])

    def value(self, at: np.ndarray) -> float:
        return self(at)[0]

    def values(self, points: np.ndarray) -> np.ndarray:
        return np.array([self.value(each) for each in points])

    def most_moved(self, direction: np.ndarray) -> str:
        return "s"


def looked_for(others: tuple[float, ...] = (), ends: tuple[float, ...] = ()) -> tuple[list[float], Density]:
    """Periods of the modes that are found beside the first."""
    density: Any = Density()
    first, _ = modes.around(density, np.array([PERIODS[0], 0.0]), 0.0)
    plain = SimpleNamespace(forward=np.exp, inverse=np.log, contains=lambda value: True)
    data = SimpleNamespace(steps={"p": 0.02}, others={"p": np.array(others)})
    program: Any = SimpleNamespace(parameters=SimpleNamespace(data=data, bijectors={"p": plain}))
    at = [flat({"p": np.log(end), "s": np.array(0.2)}) for end in ends]
    found = modes.others(density, program, first, 0.0, at)
    assert all(each.covariance[0, 0] == pytest.approx((proposals.WIDER * WIDTH) ** 2, rel=0.05) for each in found)
    return [float(np.exp(each.mode[0])) for each in found], density


def test_twice_the_period_is_found_and_what_is_far_below_is_not() -> None:
    found, density = looked_for()
    assert found == pytest.approx([1.4], rel=1e-3)
    assert density.evaluations < 100


def test_other_cycles_and_ends_of_searches_are_looked_at() -> None:
    assert looked_for(others=(3.13, 0.7))[0] == pytest.approx([1.4, 3.1], rel=1e-3)
    assert looked_for(ends=(3.08, 0.705))[0] == pytest.approx([1.4, 3.1], rel=1e-3)


def test_shares_are_those_of_points_next_to_each() -> None:
    density: Any = Density()
    known = [modes.around(density, np.array([period, 0.0]), 0.0)[0] for period in PERIODS[:2]]
    points = np.array([[PERIODS[0], 0.5], [PERIODS[1] + 0.01, 0.0], [PERIODS[1], -1.0]])
    assert modes.shares(known, density.images, points, np.array([0.5, 0.2, 0.3])) == pytest.approx((0.5, 0.5))


CYCLE = """
input x : real
output y : real
param p : positive ~ LogNormal(0, 0.3)
param ell : positive ~ LogNormal(0, 0.5)
param s : positive ~ LogNormal(-1, 0.5)
latent f(x) ~ GP(0, Periodic(ell, p))
y ~ Normal(f, s)
"""


@pytest.mark.slow
def test_a_weak_cycle_and_twice_its_period_beside_a_grid() -> None:
    """The search begins, and ends, at the one with 0.39 of the probability."""
    rng = np.random.default_rng(0)
    x, period = np.sort(rng.uniform(0, 8, 40)), np.exp(0.3 * rng.standard_normal())
    y = np.sin(2 * np.pi * x / period) + 0.5 * rng.standard_normal(40)
    logs = np.linspace(-0.9, 0.9, 451), np.linspace(-1.5, 1.9, 9), np.linspace(-2.0, 0.6, 21)
    density = np.empty([len(each) for each in logs])
    gap = x[:, None] - x
    for place, p in enumerate(np.exp(logs[0])):
        cov = np.exp(-2 * np.sin(np.pi * gap / p) ** 2 / np.exp(2 * logs[1])[:, None, None])
        sizes, directions = np.linalg.eigh(cov)
        squares = np.einsum("lij,i->lj", directions, y) ** 2
        spread = np.maximum(sizes, 0)[:, None] + np.exp(2 * logs[2])[:, None]
        density[place] = -0.5 * np.sum(squares[:, None] / spread + np.log(spread), axis=-1)
    density += stats.norm.logpdf(logs[0], 0, 0.3)[:, None, None] + stats.norm.logpdf(logs[1], 0, 0.5)[:, None]
    weights = np.exp(density + stats.norm.logpdf(logs[2], -1, 0.5) - density.max())
    weights /= weights.sum()
    fit = gpdsl.compile(CYCLE).fit({"x": x, "y": y}, hyperparameters="integrated", init={"p": 0.68})
    for axis, name in enumerate(("p", "ell", "s")):
        marginal = weights.sum(axis=tuple({0, 1, 2} - {axis}))
        values = np.exp(logs[axis])
        mean = marginal @ values
        sd = np.sqrt(marginal @ (values - mean) ** 2)
        assert abs(fit.settings.mean(name) - mean) < 0.1 * sd
        assert fit.settings.sd(name) == pytest.approx(sd, rel=0.1)
    assert "2 maxima (0.6" in str(fit.summary())
    assert any("around other maxima" in note for note in fit.notes)


@pytest.mark.parametrize(("moved", "told"), [(0.0, True), (3.0, False)])
def test_the_regular_set_is_taken_alone_where_the_others_find_nothing_beside_it(moved: float, told: bool) -> None:
    """By its weights, of values over its own density; not where the moments of all are others."""
    rng, count = np.random.default_rng(0), 400
    points = rng.standard_normal((count + 100, 1))
    density = -0.5 * points[:, 0] ** 2
    first = -0.5 * (points[:, 0] / 1.05) ** 2
    points[count:] += moved
    several: Any = SimpleNamespace(
        values=density + 1.7, points=points, own=points[:, None], sources=[("first", count)], _log_density=None
    )
    several._log_density = lambda source, at: first[: len(at)]
    weights = np.full(count + 100, 1.0 / (count + 100))
    found = modes.Drawn.alone(several, count, weights)
    assert (found is not None) == told
    if found is not None:
        expected = np.exp(density - first)[:count]
        assert found[0].sum() == pytest.approx(1.0) and not np.any(found[0][count:])
        np.testing.assert_allclose(found[0][:count], expected / expected.sum(), rtol=0.05)
