"""Distributions of whole numbers known by a log density alone: told one by one, or in cells where they are too many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

ZOOMED, ZOOMS = 21, 14
"""Of a finer grid, and how often one is laid."""
MOST, NUMBERS, LARGEST = 2**12, 2**24, 2.0**52
"""Counts that are told one by one, of all distributions together as well, and the largest that is told at all."""
LOOK, ALONE, GROWTH, TOPS, WITHIN = 1.05, 256, 1.04, 3, 512
"""How densely another top is looked for. Of counts in cells: up to where each has its own, by how much those grow
beyond, and how many are about each of how many tops, as of inflated zeros and mixtures."""
ROUNDING = 1e-12
NEGLIGIBLE = 45.0
IMPOSSIBLE = -1e6
"""A log density below which a constant says that there is none."""

FALLS, EVEN, SLIGHT = 2.0 ** np.array([28.0, 34.0, 40.0]), 0.05, 2e-3
"""Counts between which the fall of a tail is measured, how alike falls are that are of one power, and to what it is
known."""

Array = np.ndarray
LogDensity = Callable[[Array], Array]


@dataclass(frozen=True)
class Curve:
    """Distributions side by side: `values`, their probabilities `mass`, and what lies `below`, are [points, n].

    `log_mass` [n] is the logarithm of what the unnormalised density integrates to.
    """

    values: Array
    mass: Array
    below: Array
    log_mass: Array

    @property
    def discrete(self) -> bool:
        """Whether the values are all that there are, whole numbers; else they are nodes."""
        return True

    @property
    def doubt(self) -> Array:
        """By how much mass differs from one, or may [n]."""
        return np.abs(np.expm1(np.minimum(self.log_mass, 700.0)))

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance [n] after normalisation; NaN where there is no mean, and infinite variances."""
        values = np.where(self.mass > 0, self.values, 0.0)
        mean = np.sum(self.mass * values, axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            return mean, np.sum(np.where(self.mass > 0, self.mass * (values - mean) ** 2, 0.0), axis=0)

    def cdf(self, y: Array) -> Array:
        """P(Y <= y) for y [n]."""
        found = np.clip(np.floor(y), -1, len(self.values) - 1).astype(int)
        inside = np.take_along_axis(self.below, np.maximum(found, 0)[None], axis=0)[0]
        return np.where(found < 0, 0.0, inside)

    def quantile(self, p: Array) -> Array:
        """The smallest value whose distribution function reaches p [n], or one for all."""
        high = np.clip(np.sum(self.below < p - ROUNDING, axis=0), 0, len(self.values) - 1)
        return np.take_along_axis(self.values, high[None], axis=0)[0]


def existing(tail: Array, slight: float, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Mean and variance where a density falls as |y|^(-tail - 1): moments of this order and above do not exist."""
    none, infinite = tail <= 1 + slight, tail <= 2 + slight
    return np.where(none, np.nan, mean), np.where(none, np.nan, np.where(infinite, np.inf, variance))


@dataclass(frozen=True)
class Cells(Curve):
    """Too many whole numbers to be told one by one: all from `first` [points, n] to the next, whose means are `values`.

    Inside of a cell probabilities rise along a line, by a `tilt` from -1 to 1.
    """

    first: Array
    tail: Array
    tilt: Array

    @property
    def doubt(self) -> Array:
        """All of the mass is missing where that is infinite."""
        return np.where(self.tail <= SLIGHT, np.inf, super().doubt)

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance [n] after normalisation; NaN where there is no mean, and infinite variances."""
        mean, variance = super().moments()
        size = np.maximum(self._sizes, 1.0)
        inside = (size**2 - 1.0) / 12.0 - (self.tilt * (size + 1.0) / 6.0) ** 2
        return existing(self.tail, SLIGHT, mean, variance + np.sum(self.mass * inside, axis=0))

    def cdf(self, y: Array) -> Array:
        """P(Y <= y) for y [n]: of the cells below, and of some numbers of one."""
        first, size, mass, below, tilt = self._of(np.maximum(np.sum(self.first <= y, axis=0) - 1, 0)[None])
        some = np.clip(np.floor(y) + 1.0 - first, 0.0, size)
        share = some * (1.0 + tilt * (some - size) / np.maximum(size - 1.0, 1.0)) / np.maximum(size, 1.0)
        return below - (1.0 - share) * mass

    def quantile(self, p: Array) -> Array:
        """The smallest value whose distribution function reaches p [n], or one for all."""
        cell = np.clip(np.sum(self.below < p - ROUNDING, axis=0), 0, len(self.values) - 1)[None]
        first, size, mass, below, tilt = self._of(cell)
        wanted = size * (1.0 - np.clip((below - p) / np.where(mass > 0, mass, 1.0), 0.0, 1.0))
        slope = tilt / np.maximum(size - 1.0, 1.0)
        begin = 1.0 - slope * size
        root = begin + np.sqrt(np.maximum(begin**2 + 4.0 * slope * wanted, 0.0))
        some = 2.0 * wanted / np.where(root > 0, root, 1.0)
        return first + np.clip(np.ceil(some - ROUNDING * size), 1.0, np.maximum(size, 1.0)) - 1.0

    @property
    def _sizes(self) -> Array:
        return np.diff(self.first, axis=0, append=self.first[-1:] + 1.0)

    def _of(self, cell: Array) -> list[Array]:
        each = self.first, self._sizes, self.mass, self.below, self.tilt
        return [np.take_along_axis(values, cell, axis=0)[0] for values in each]


def finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, -np.inf)


def discrete(log_density: LogDensity, size: int, kind: str) -> Curve:
    """The distributions of whole numbers with unnormalised log densities, each of them for as many as count."""
    count = 2 if kind == "binary" else 64
    while True:
        values = np.arange(float(count))[:, None] * np.ones(size)
        heights = finite(log_density(values))
        fallen = (heights[-1] < heights.max(axis=0) - NEGLIGIBLE).all()
        if kind == "binary" or (fallen and not _rises(log_density, values[-1:])):
            break
        if count >= MOST or count * size >= NUMBERS:
            return _in_cells(log_density, size)
        count *= 4
    return Curve(values, *_told(heights))


def _told(heights: Array) -> tuple[Array, Array, Array]:
    """Mass, distribution function and log mass of values with these log densities."""
    peak = heights.max(axis=0)
    mass = np.exp(heights - peak)
    total = mass.sum(axis=0)
    mass = mass / total
    return mass, np.minimum(np.cumsum(mass, axis=0), 1.0), peak + np.log(total)


def _rises(log_density: LogDensity, last: Array) -> bool:
    """Whether a density has another top beyond the last [1, n] of its values, as one of inflated zeros has."""
    beyond = np.floor(last * LOOK ** np.arange(np.log(LARGEST / last.max()) / np.log(LOOK))[:, None])
    heights = finite(log_density(beyond))
    return bool((heights[1:] > heights[:-1]).any())


def _in_cells(log_density: LogDensity, size: int) -> Curve:
    """Counts in cells of about as probable ones: small ones alone, others in cells that grow, and about each of the
    highest tops in as many as there is room for, up to where it has fallen to nothing."""
    growing = np.floor(ALONE * GROWTH ** np.arange(np.log(LARGEST / ALONE) / np.log(GROWTH)))
    wide = np.concatenate([np.arange(float(ALONE)), growing])[:, None] * np.ones(size)
    sides = np.pad(heights := finite(log_density(wide)), ((1, 1), (0, 0)), constant_values=-np.inf)
    tops = np.where((heights >= sides[:-2]) & (heights > sides[2:]), heights, -np.inf)
    order = np.argsort(tops, axis=0)[-TOPS:]
    order = np.where(np.take_along_axis(tops, order, axis=0) > -np.inf, order, order[-1])
    first = np.sort(np.concatenate([wide, *(_about(log_density, wide, each[None]) for each in order)]), axis=0)
    return _filled(log_density, first, np.diff(first, axis=0, append=first[-1:] + 1.0))


def _filled(log_density: LogDensity, first: Array, size: Array) -> Cells:
    """Cells by parabolas through their first, middle and last numbers, whose sums are those of Simpson's rule for whole
    numbers."""
    half = 0.5 * (size - 1.0)
    between = np.where(size % 2 == 0, 0.125, 0.0)  # of an even number there is none in the middle
    with np.errstate(all="ignore"):
        share = np.where(size < 3, 0.0, ((size**2 - 1.0) / 24.0 - between) / (0.5 * half**2 - between))
        low, high = (finite(log_density(first + far * np.maximum(2 * half, 0.0))) for far in (0.0, 1.0))
        middle = [finite(log_density(first + np.maximum(each, 0.0))) for each in (np.floor(half), np.ceil(half))]
        inner, outer = np.logaddexp(*middle) + np.log(0.5 - 0.5 * share), np.logaddexp(low, high) + np.log(0.5 * share)
        heights = np.logaddexp(inner, outer)
        tilt = np.clip(np.nan_to_num(0.5 * (np.exp(high - heights) - np.exp(low - heights))), -1.0, 1.0)
    tilt = np.where(size < 2, 0.0, tilt)
    values = first + np.maximum(half, 0.0) + tilt * (size + 1.0) / 6.0
    tail = _tail(log_density, first.shape[1])
    with np.errstate(divide="ignore"):
        return Cells(values, *_told(heights + np.log(size)), first, tail, tilt)


def _tail(log_density: LogDensity, size: int) -> Array:
    """The power by which counts fall, less one: infinite where they fall by none, or faster."""
    heights = finite(log_density(FALLS[:, None] * np.ones(size)))
    with np.errstate(invalid="ignore"):
        near, far = -np.diff(heights, axis=0) / np.diff(np.log(FALLS))[:, None]
        even = (np.abs(near - far) < EVEN) & (heights[-1] > IMPOSSIBLE)
    return np.where(even, far - 1.0, np.inf)


def _about(log_density: LogDensity, grid: Array, best: Array) -> Array:
    """Where cells begin about the top next to the `best` [1, n] of a grid."""
    for _ in range(ZOOMS):
        low, top, high = (
            np.take_along_axis(grid, np.clip(best + side, 0, len(grid) - 1), axis=0)[0] for side in (-1, 0, 1)
        )
        grid = np.floor(np.linspace(low, high, ZOOMED))
        best = np.argmax(finite(log_density(grid)), axis=0)[None]
    reach, ends = 2.0 ** np.arange(52.0)[:, None], []
    least = finite(log_density(top[None])) - NEGLIGIBLE
    for side in (-1, 1):
        at = np.clip(top + side * reach, 0.0, LARGEST)
        fallen = (finite(log_density(at)) < least) | (at == 0.0)
        ends.append(np.take_along_axis(at, np.where(fallen.any(axis=0), fallen.argmax(axis=0), -1)[None], axis=0)[0])
    return np.asarray(np.floor(np.linspace(ends[0], ends[1], WITHIN)))
