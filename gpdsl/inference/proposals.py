"""Densities that settings of the learnt parameters are drawn from, and weights of such draws whose tail is smoothed.

The densities are around a mode, over the prior, or around other points. All of them have tails of Student's t with few
degrees of freedom, so that no place that the posterior may be at is without points for long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

from gpdsl.inference.ascent.lbfgs import maximise

if TYPE_CHECKING:
    from gpdsl.inference.integrated import Explored

Density = Callable[[Float[np.ndarray, " d"]], tuple[float, Float[np.ndarray, " d"]]]
"""A log density, up to a constant, and its gradient."""

TAILS = 6.0
"""Degrees of freedom of the density that points are drawn from."""

WIDER = 1.2
"""Times as wide as that points are drawn, so that they reach the tails: 128 points for three parameters of a regression
then give standard deviations within one in a hundred, and means within 0.02 of these."""

FALL, TRIES = (0.3, 2.5), 24
"""Nats of the fall that tells a width, and the most doublings and halvings to get there."""

ASIDE = np.sqrt(2.0)
"""Standard deviations from the mode at which the density is looked at first: a normal one falls by one nat."""

SETTLED = 1e-4
"""Nats of the density that a step towards its mode has to gain."""

WIDEST_PRIOR = 20.0
"""Standard deviation on the real line beyond which a prior is not followed."""


CLEAR = 1.0
"""Above its mode that a number is put at least."""

MANY = 12
"""Numbers beyond which none of them is put anywhere."""

CLIMB, NEAR = 8, 0.3
"""Steps towards the highest place beside it, at most, and nats that one of them has to gain."""


class Proposal(Protocol):
    """A density that points are drawn from."""

    def points(self, uniform: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Points from uniform numbers."""

    def log_density(self, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """At points, normalised."""


@dataclass(frozen=True, eq=False)
class Split:
    """A density with its own width on either side of each axis through `mode`: `axes` are columns."""

    mode: Float[np.ndarray, " d"]
    axes: Float[np.ndarray, "d d"]
    below: Float[np.ndarray, " d"]
    above: Float[np.ndarray, " d"]

    def points(self, uniform: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Points from uniform numbers."""
        share = self.below / (self.below + self.above)
        low = uniform < share
        inside = np.where(low, 0.5 * uniform / share, 0.5 + 0.5 * (uniform - share) / (1.0 - share))
        along = scipy.stats.t.ppf(inside, TAILS) * np.where(low, self.below, self.above)
        return self.mode + along @ self.axes.T

    def log_density(self, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """At points, normalised."""
        return scipy.stats.t.logpdf(self.along_axes(points), TAILS).sum(axis=1) - self.log_volume

    def along_axes(self, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """How far points are along each axis, in its widths."""
        along = np.linalg.solve(self.axes, (points - self.mode).T).T
        return along / np.where(along < 0, self.below, self.above)

    @property
    def log_volume(self) -> float:
        """Of the widths along all axes."""
        return float(np.linalg.slogdet(self.axes)[1] + np.sum(np.log(0.5 * (self.below + self.above))))

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """By the widths, those of both sides alike."""
        return self.axes * (0.5 * (self.below + self.above)) ** 2 @ self.axes.T

    @property
    def sds(self) -> Float[np.ndarray, " d"]:
        """Of every number, by the same."""
        return np.sqrt(np.diag(self.covariance))

    def along(self, axis: int) -> Split:
        """That of one number, where axes are those of the numbers."""
        own = slice(axis, axis + 1)
        return Split(self.mode[own], np.eye(1), self.below[own], self.above[own])

    def tilted(self, growing: Bool[np.ndarray, " d"]) -> Split:
        """Wider above along logarithms: the square of exp(u) times N(u; m, s^2) is highest at m + 2 s^2."""
        above = np.where(growing, np.minimum(self.above * (1.0 + 2.0 * self.above), WIDEST_PRIOR), self.above)
        return Split(self.mode, self.axes, self.below, above)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Points with weights, and the covariance that was expected `before` them."""

    points: Float[np.ndarray, "n d"]
    weights: Float[np.ndarray, " n"]
    before: Float[np.ndarray, "d d"]

    def kernels(self, count: int) -> tuple[Float[np.ndarray, "count d"], Float[np.ndarray, "d d"]]:
        """Centres of `count` kernels as often as weights say, and their covariance by Silverman's rule.

        Few points are no wider than what was expected before.
        """
        points, weights = self.points, self.weights
        size, effective = points.shape[1], worth(weights)
        apart = points - weights @ points
        share = effective / (effective + 2 * size)
        spread = share * (apart.T * weights) @ apart + (1 - share) * self.before
        narrow = (4.0 / (effective * (size + 2.0))) ** (1.0 / (size + 4.0))
        places = np.searchsorted(np.cumsum(weights) / weights.sum(), (np.arange(count) + 0.5) / count)
        return points[np.minimum(places, len(points) - 1)], min(narrow, 1.0) ** 2 * spread


@dataclass(frozen=True, eq=False)
class Kernels:
    """A density of equal kernels around centres, some of them several times: `root` is that of their covariance."""

    centres: Float[np.ndarray, "n d"]
    root: Float[np.ndarray, "d d"]

    @classmethod
    def around(cls, weighted: Weighted, count: int) -> Kernels:
        """`count` kernels around weighted points."""
        centres, spread = weighted.kernels(count)
        return cls(centres, np.linalg.cholesky(spread))

    def points(self, uniform: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """One for each kernel, from uniform numbers."""
        return self.centres + scipy.stats.t.ppf(uniform, TAILS) @ self.root.T

    def log_density(self, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """At points, normalised."""
        centres, often = np.unique(self.centres, axis=0, return_counts=True)
        scaled = np.linalg.solve(self.root, (points[:, None] - centres).reshape(-1, points.shape[1]).T).T
        each = scipy.stats.t.logpdf(scaled, TAILS).sum(axis=1).reshape(len(points), -1)
        share = np.log(often / len(self.centres)) - np.linalg.slogdet(self.root)[1]
        found: Float[np.ndarray, " n"] = np.logaddexp.reduce(each + share, axis=1)
        return found


@dataclass(frozen=True, eq=False)
class Sweeps:
    """Along one axis after the other the whole prior, what is known of that axis, and kernels across it.

    Where latents explain nothing, their length-scales are as the prior has them while the noise is what it has to be:
    a draw of the prior for all of them together hardly ever is.
    """

    prior: Split
    axes: Int[np.ndarray, " n"]
    centres: Float[np.ndarray, "n d"]
    spread: Float[np.ndarray, "d d"]

    @classmethod
    def around(
        cls, prior: Split, known: Bool[np.ndarray, " d"], weighted: Weighted, count: int, tops: np.ndarray
    ) -> Sweeps:
        """`count` of them, each along the next axis that is known: through weighted points, and through each axis's own
        `tops` [known, d], in turn."""
        centres, spread = weighted.kernels(count)
        axes = np.resize(np.flatnonzero(known), count)
        turns = np.arange(count) // len(tops) % 2 == 0
        centres[turns] = np.resize(tops, centres.shape)[turns]
        return cls(prior, axes, centres, spread)

    def points(self, uniform: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """One along each axis through each centre, from uniform numbers."""
        found = self.prior.points(uniform)
        for axis in np.unique(self.axes):
            own, others = self.axes == axis, np.arange(uniform.shape[1]) != axis
            apart = scipy.stats.t.ppf(uniform[own][:, others], TAILS) @ self._root(others).T
            found[np.ix_(own, others)] = self.centres[np.ix_(own, others)] + apart
        return found

    def log_density(self, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """At points, normalised."""
        parts = []
        for axis in np.unique(self.axes):
            own, others = self.axes == axis, np.arange(points.shape[1]) != axis
            apart = points[:, None, others] - self.centres[own][:, others]
            root = self._root(others)
            scaled = np.einsum("ij,nkj->nki", np.linalg.inv(root), apart)
            across = scipy.stats.t.logpdf(scaled, TAILS).sum(axis=-1) - np.sum(np.log(np.diag(root)))
            along = self.prior.along(axis).log_density(points[:, [axis]])
            parts.append(np.logaddexp.reduce(across, axis=1) + along)
        found: Float[np.ndarray, " n"] = np.logaddexp.reduce(parts, axis=0) - np.log(len(self.axes))
        return found

    def _root(self, others: Bool[np.ndarray, " d"]) -> Float[np.ndarray, "e e"]:
        return np.linalg.cholesky(self.spread[np.ix_(others, others)])


def mode_of(
    density: Density,
    start: Float[np.ndarray, " d"],
    units: Float[np.ndarray, " d"] | None = None,
    steps: int = 50,
    tolerance: float = SETTLED,
) -> tuple[Float[np.ndarray, " d"], float]:
    """The mode next to a start, and its value; first steps are no longer than `units`."""
    found = maximise(density, start, steps=steps, tolerance=tolerance, report=lambda *_: None, size=1.0, units=units)
    return np.asarray(found.point, float), float(found.value)


def tops_along(
    density: Density, prior: Split, known: Bool[np.ndarray, " d"], mode: Float[np.ndarray, " d"], side: int = 1
) -> Float[np.ndarray, "known d"]:
    """About the highest places where one number each, of those that are known, is far above its mode by the prior, or
    far below (`side` -1).

    Of many numbers it would take too long: the mode stands for each.
    """
    found = []
    if np.sum(known) > MANY:
        return np.tile(mode, (int(np.sum(known)), 1))
    for axis in np.flatnonzero(known):
        free = np.arange(len(mode)) != axis
        width = (prior.above if side > 0 else prior.below)[axis] / WIDER
        away = side * max(side * prior.mode[axis] + width, side * mode[axis] + CLEAR)
        start = np.where(free, mode, away)

        def held(at: np.ndarray, free: np.ndarray = free) -> tuple[float, np.ndarray]:
            value, slope = density(at)
            return value, np.where(free, slope, 0.0)

        top = maximise(held, start, steps=CLIMB, tolerance=NEAR, report=lambda *_: None, size=1.0)
        found.append(np.asarray(top.point, float))
    return np.stack(found)


def over_prior(density: Explored, near: tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]) -> Split:
    """As wide as the prior along each parameter that has one; as `near`, a mode and widths, along others."""
    mode, top = mode_of(density.prior, density.start)
    mode = np.where(density.known, mode, near[0])
    widths = np.stack([near[1], near[1]])
    for place in np.flatnonzero(density.known):
        unit = np.eye(len(mode))[place]
        alone = lambda at: density.prior(at)[0]  # noqa: E731
        widths[:, place] = [min(reach(alone, mode, top, side * unit), WIDEST_PRIOR) for side in (-1, 1)]
    return Split(mode, np.eye(len(mode)), *(WIDER * widths))


def as_wide_at(density: Explored, tops: Float[np.ndarray, "known d"], prior: Split) -> Split:
    """As wide along parameters without a prior as the density is at any of the `tops`: where a scale is large, a level
    of what it scales is open."""
    widths, known = np.stack([prior.below, prior.above]), density.known
    for top in tops if not known.all() and len(tops) <= MANY else ():
        height = density.value(top)
        for place in np.flatnonzero(~known) if np.isfinite(height) else ():
            unit, most = np.eye(len(top))[place], density.widest[place]
            there = [min(reach(density.value, top, height, side * unit), most) for side in (-1, 1)]
            widths[:, place] = np.maximum(widths[:, place], np.multiply(WIDER, there))
    return replace(prior, below=widths[0], above=widths[1])


def reach(value: Callable[[np.ndarray], float], mode: np.ndarray, top: float, direction: np.ndarray) -> float:
    """Standard deviations along a direction, in its own length: where a log density has fallen by about a nat."""
    at = ASIDE
    for _ in range(TRIES):
        fall = top - value(mode + at * direction)
        if not fall < FALL[1]:
            at *= 0.5
        elif fall < FALL[0]:
            at *= 2.0
        else:
            break
    return float(at / np.sqrt(2 * np.clip(fall, *FALL)))


def uniform_points(dimensions: int, count: int, seed: int, number: int) -> Float[np.ndarray, "n d"]:
    """Quasi-random points of the unit cube: along each axis the middles of equal intervals, the first time."""
    if number:
        drawn = scipy.stats.qmc.Sobol(dimensions, seed=np.random.default_rng([seed, number])).random(count)
        return np.clip(drawn, 1e-6, 1 - 1e-6)
    return scipy.stats.qmc.Sobol(dimensions, scramble=False).random(count) + 0.5 / count


def points_of(dimensions: int) -> int:
    """Points of one round: a power of two, as quasi-random ones like to be."""
    return 64 if dimensions == 1 else 128


def error_of_spread(values: Float[np.ndarray, "points images d"], weights: Float[np.ndarray, " points"]) -> float:
    """The largest standard error of a standard deviation, as a share of it: of a mean of influences of the points."""
    mean, sd = moments(values, weights)
    squares = np.mean((values - mean) ** 2, axis=1)
    influence = 0.5 * (squares / np.where(sd > 0, sd, 1.0) ** 2 - 1.0)
    return float(np.sqrt(np.max(weights**2 @ influence**2, initial=0.0)))


def moments(
    values: Float[np.ndarray, "points images d"], weights: Float[np.ndarray, " points"]
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Means and standard deviations, where all images of a point have equal weights."""
    mean = weights @ values.mean(axis=1)
    return mean, np.sqrt(weights @ np.mean((values - mean) ** 2, axis=1))


# Importance weights whose largest are replaced by quantiles of a generalised Pareto distribution fitted to them.
#
# Vehtari, Simpson, Gelman, Yao and Gabry (2024), "Pareto smoothed importance sampling"; the fit is that of Zhang and
# Stephens (2009), with the paper's weak prior on the shape.

FEW = 25
"""Weights below which no tail can be fitted: they stay as they are."""

EQUAL = 1e-9
"""Share of the largest weight up to which differences are rounding."""


def worth(weights: Float[np.ndarray, " draws"]) -> float:
    """As many draws of equal weight tell as much (Kish 1965)."""
    return float(np.sum(weights) ** 2 / np.sum(weights**2))


def smoothed(log_ratios: Float[np.ndarray, " draws"]) -> tuple[Float[np.ndarray, " draws"], float]:
    """Log weights that add up to 1, and Pareto's k, above 0.7 not to be trusted; NaN of few weights, or equal ones."""
    found = np.asarray(log_ratios, float)
    found = np.where(np.isfinite(found), found, -np.inf) - np.max(found)
    count = len(found)
    tail = int(np.ceil(min(0.2 * count, 3 * np.sqrt(count))))
    shape = float("nan")
    if count >= FEW and tail >= 5:
        order = np.argsort(found)
        largest, threshold = order[-tail:], found[order[-tail - 1]]
        excess = np.exp(found[largest]) - np.exp(threshold)
        if np.isfinite(threshold) and excess[-1] - excess[0] > EQUAL:
            shape, scale = generalised_pareto(np.maximum(excess, np.finfo(float).tiny))
            places = (np.arange(tail) + 0.5) / tail
            quantiles = scale * (np.expm1(-shape * np.log1p(-places)) / shape if shape else -np.log1p(-places))
            found[largest] = np.minimum(np.log(np.exp(threshold) + quantiles), 0.0)
    return found - np.logaddexp.reduce(found), shape


def generalised_pareto(excess: Float[np.ndarray, " tail"]) -> tuple[float, float]:
    """Shape and scale of excesses in increasing order."""
    count = len(excess)
    candidates = 30 + int(np.sqrt(count))
    quarter = excess[int(count / 4 + 0.5) - 1]
    b = 1 / excess[-1] + (1 - np.sqrt(candidates / (np.arange(candidates) + 0.5))) / (3 * quarter)
    shapes = np.mean(np.log1p(-b[:, None] * excess), axis=1)
    likelihood = count * (np.log(-b / shapes) - shapes - 1)
    weights = np.exp(likelihood - np.logaddexp.reduce(likelihood))
    best = weights @ b
    shape = float(np.mean(np.log1p(-best * excess)))
    scale = -shape / best
    return float((count * shape + 10 * 0.5) / (count + 10)), float(scale)
