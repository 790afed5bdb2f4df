"""Densities that settings of parameters are drawn from, and what they find: second modes and long tails, by grids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.proposals import Kernels, Proposal, Split, Sweeps, Weighted, over_prior, tops_along

MODEL = """
input x : real
output y : real
param ell : positive ~ {ell}
param s2 : positive ~ {s2}
param s : positive ~ {s}
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Normal(f, s)
"""
Priors = dict[str, tuple[str, Any]]
WIDE: Priors = {
    "ell": ("LogNormal(0, 1)", stats.lognorm(1)),
    "s2": ("LogNormal(0, 1)", stats.lognorm(1)),
    "s": ("LogNormal(-1, 1)", stats.lognorm(1, scale=np.exp(-1))),
}
HALF: Priors = {
    "ell": ("Gamma(2, 1)", stats.gamma(2)),
    "s2": ("HalfNormal(2)", stats.halfnorm(scale=2)),
    "s": ("HalfNormal(1)", stats.halfnorm(scale=1)),
}


def simulated(priors: Priors, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(10, 41))
    ell, s2, s = (float(np.clip(law.rvs(random_state=rng), 0.03, 20)) for _, law in priors.values())
    x = np.sort(rng.uniform(-3, 3, rows))
    cov = s2 * np.exp(-0.5 * (x[:, None] - x) ** 2 / ell**2) + 1e-9 * np.eye(rows)
    return x, np.linalg.cholesky(cov) @ rng.normal(size=rows) + s * rng.normal(size=rows)


def on_a_grid(priors: Priors, x: np.ndarray, y: np.ndarray) -> dict[str, tuple[float, float]]:
    """Posterior means and standard deviations over a grid of logarithms; one eigendecomposition for each length."""
    lengths, scales, noises = np.linspace(-5, 4.5, 90), np.linspace(-8, 5, 90), np.linspace(-7, 3, 110)
    s2, s = np.exp(scales)[:, None], np.exp(noises)
    base = priors["s2"][1].logpdf(s2) + scales[:, None] + priors["s"][1].logpdf(s) + noises
    log_density = []
    for length in lengths:
        values, vectors = np.linalg.eigh(np.exp(-0.5 * (x[:, None] - x) ** 2 / np.exp(2 * length)))
        variances = s2[..., None] * np.maximum(values, 0) + (s**2)[:, None]
        fits = -0.5 * np.sum((vectors.T @ y) ** 2 / variances + np.log(variances), axis=-1)
        log_density.append(base + fits + priors["ell"][1].logpdf(np.exp(length)) + length)
    weights = np.exp(np.array(log_density) - np.max(log_density))
    found = {}
    for axis, (name, line) in enumerate(zip(("ell", "s2", "s"), (lengths, scales, noises), strict=True)):
        own = weights.sum(axis=tuple({0, 1, 2} - {axis}))
        mean = np.average(np.exp(line), weights=own)
        found[name] = (mean, np.sqrt(np.average((np.exp(line) - mean) ** 2, weights=own)))
    return found


@pytest.mark.parametrize(
    ("priors", "seed"),
    [
        pytest.param(HALF, 1021, id="a second mode where the latent explains nothing"),
        pytest.param(WIDE, 1044, id="a length-scale as the prior has it", marks=pytest.mark.slow),
    ],
)
def test_standard_deviations_are_those_of_a_grid(priors: Priors, seed: int) -> None:
    """Points around the mode alone gave that of `ell` 83% and 73% too small in the first two, and stated 8% and 14%."""
    for mean, sd, stated in errors(priors, seed):
        assert abs(mean) < 0.15
        assert abs(sd) < 2 * stated


@pytest.mark.slow
def test_stated_errors_hold() -> None:
    """Twice the stated error covers all three standard deviations in nine of ten sets of data, with wide priors."""
    covered = [all(abs(sd) < 2 * stated for _, sd, stated in errors(WIDE, seed)) for seed in range(2000, 2010)]
    assert sum(covered) >= 9


def errors(priors: Priors, seed: int) -> Iterator[tuple[float, float, float]]:
    """Of each parameter that of its mean, in standard deviations, and of its standard deviation; what is stated."""
    x, y = simulated(priors, seed)
    text = MODEL.format(**{name: prior for name, (prior, _) in priors.items()})
    settings = gpdsl.compile(text).fit({"x": x, "y": y}, hyperparameters="integrated").settings
    assert settings is not None
    match = re.search(r"within (\d+)%", settings.about)
    assert match is not None
    for name, (mean, sd) in on_a_grid(priors, x, y).items():
        stated = max(float(match.group(1)) / 100, 0.02)
        yield float(settings.mean(name) - mean) / sd, float(settings.sd(name)) / sd - 1, stated


def densities() -> list[Proposal]:
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(40, 2)) * [1.0, 0.3], rng.uniform(0, 1, 40)
    axes = np.array([[1.0, 0.4], [0.0, 0.7]])
    around = Kernels.around(Weighted(points, weights / weights.sum(), np.eye(2)), 64)
    return [Split(np.array([0.3, -0.2]), axes, np.array([0.5, 1.0]), np.array([1.5, 0.4])), around]


def plane() -> tuple[np.ndarray, np.ndarray]:
    """Places in the plane and the area of each, dense around zero and far out."""
    t = np.linspace(-5, 5, 301)
    line, width = np.sinh(t), np.cosh(t) * (t[1] - t[0])
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    return grid, np.outer(width, width).ravel()


@pytest.mark.parametrize("density", densities(), ids=["split", "kernels"])
def test_densities_are_normalised_and_those_of_their_points(density: Proposal) -> None:
    grid, area = plane()
    share = np.exp(density.log_density(grid)) * area
    assert share.sum() == pytest.approx(1.0, abs=0.01)
    rng = np.random.default_rng(1)
    drawn = np.concatenate([density.points(rng.uniform(size=(64, 2))) for _ in range(100)])
    inside = lambda at: (at[:, 0] > 0.2) & (at[:, 1] < 0.1)  # noqa: E731
    assert np.mean(inside(drawn)) == pytest.approx(share[inside(grid)].sum(), abs=0.03)


def test_kernels_follow_two_modes() -> None:
    points = np.concatenate([np.full((50, 1), -5.0), np.full((50, 1), 5.0)]) + np.linspace(-1, 1, 100)[:, None]
    around = Kernels.around(Weighted(points, np.full(100, 0.01), np.eye(1)), 128)
    middle, modes = around.log_density(np.array([[0.0]])), around.log_density(np.array([[-5.0], [5.0]]))
    assert np.all(modes > middle + 0.5)


def test_a_prior_is_followed_and_what_has_none_stays_near() -> None:
    def prior(at: np.ndarray) -> tuple[float, np.ndarray]:
        return -0.5 * float((at[0] - 1) ** 2) / 4, np.array([-(at[0] - 1) / 4, 0.0])

    density: Any = SimpleNamespace(prior=prior, start=np.array([-3.0, 7.0]), known=np.array([True, False]))
    found = over_prior(density, (np.array([0.0, 2.0]), np.array([0.1, 0.5])))
    np.testing.assert_allclose(found.mode, [1.0, 2.0], atol=0.05)
    np.testing.assert_allclose(found.above / found.above[1], [4.0, 1.0], rtol=0.05)


def test_sweeps_are_normalised_and_go_along_the_prior() -> None:
    """Of two numbers, each in turn is as the prior has it while the other stays where points are."""
    prior = Split(np.zeros(2), np.eye(2), np.full(2, 2.0), np.full(2, 2.0))
    points, weights = np.array([[1.0, -1.0], [1.2, -0.8]]), np.array([0.5, 0.5])
    tops = np.array([[3.0, 0.0], [0.0, 3.0]])
    density = Sweeps.around(prior, np.array([True, True]), Weighted(points, weights, 0.04 * np.eye(2)), 64, tops)
    grid, area = plane()
    share = np.exp(density.log_density(grid)) * area
    assert share.sum() == pytest.approx(1.0, abs=0.02)
    rng = np.random.default_rng(1)
    drawn = np.concatenate([density.points(rng.uniform(size=(64, 2))) for _ in range(100)])
    inside = lambda at: (at[:, 0] > 0.3) & (at[:, 1] < 0.5)  # noqa: E731
    assert np.mean(inside(drawn)) == pytest.approx(share[inside(grid)].sum(), abs=0.03)
    assert np.mean(np.abs(drawn[0::2, 0]) > 3) > 0.1 and np.std(drawn[0::2, 1]) < 1


def test_one_number_is_swept_along_its_prior() -> None:
    prior = Split(np.zeros(1), np.eye(1), np.ones(1), np.ones(1))
    weighted = Weighted(np.zeros((3, 1)), np.full(3, 1 / 3), np.eye(1))
    density = Sweeps.around(prior, np.array([True]), weighted, 16, np.zeros((1, 1)))
    line = np.linspace(-5, 5, 11)[:, None]
    np.testing.assert_allclose(density.log_density(line), prior.log_density(line))
    uniform = np.linspace(0.1, 0.9, 16)[:, None]
    np.testing.assert_allclose(density.points(uniform), prior.points(uniform))


def test_tops_are_where_the_others_go_when_one_is_large_or_small() -> None:
    """The highest place along a ridge."""

    def ridge(at: np.ndarray) -> tuple[float, np.ndarray]:
        apart = at[0] + at[1]
        return -0.5 * (apart**2 + 0.1 * at[0] ** 2), np.array([-apart - 0.1 * at[0], -apart])

    prior = Split(np.zeros(2), np.eye(2), np.full(2, 3.6), np.full(2, 3.6))
    found = tops_along(ridge, prior, np.array([True, False]), np.zeros(2))
    np.testing.assert_allclose(found, [[3.0, -3.0]], atol=0.1)
    below = tops_along(ridge, prior, np.array([True, False]), np.zeros(2), -1)
    np.testing.assert_allclose(below, [[-3.0, 3.0]], atol=0.1)


def test_kernels_are_as_wide_as_points_and_their_number_say() -> None:
    """Silverman's rule, whatever the mean of the points; centres as often as weights say."""
    points, weights = np.array([[8.0], [10.0], [12.0]]), np.array([0.25, 0.5, 0.25])
    effective = 1 / 0.375
    share, narrow = effective / (effective + 2), (4 / (3 * effective)) ** 0.2
    around = Kernels.around(Weighted(points, weights, np.array([[5.0]])), 8)
    np.testing.assert_allclose(around.root**2, [[narrow**2 * (share * 2.0 + (1 - share) * 5.0)]])
    np.testing.assert_array_equal(around.centres[:, 0], [8, 8, 10, 10, 10, 10, 12, 12])


def test_tilted_densities_reach_where_squares_of_exponentials_are_highest() -> None:
    ones = np.ones(2)
    found = Split(np.zeros(2), np.eye(2), ones, 0.5 * ones).tilted(np.array([True, False]))
    np.testing.assert_allclose(found.above, [0.5 + 2 * 0.5**2, 0.5])
    np.testing.assert_allclose(found.below, ones)
