"""Distributions known by a log density alone: normalised numerically, one set of panels for each, where its mass is.

A continuous output is mapped to the real line (log for positive, log odds for proportions), and cut where its density
jumps or bends. Between cuts, panels are even in u where v = mode + width * sinh(u), and longer and longer far out:
Gauss–Legendre rules in them tell thin and heavy tails, and the distribution function inside of a panel as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import leggauss, legvander

COARSE, ZOOMED, ZOOMS = 161, 21, 14
SEARCH, NEAREST = 18.0, -36.0
"""Range of asinh v in which modes are looked for, and the logarithm of how near to a cut."""
CLOSE, NEAR_PANELS, FAR_PANELS, NODES = 12.0, 24, 8, 14
"""Of u, on either side: up to where panels are even, how many these are, and those beyond; nodes in each."""
ENDS = {"real": (float(-np.exp(340.0)), float(np.exp(340.0))), "positive": (-690.0, 350.0), "unit": (-690.0, 690.0)}
"""Where numbers end, whose squares are numbers too."""
RESOLVED = (20.0, 27.0)
"""Log odds of proportions near 1: at the second, 1 - y still has four digits."""
DROP = 0.5
"""By how much the log density falls from the mode to the width."""
MOST, NUMBERS, LARGEST = 2**14, 2**24, 2.0**52
"""Counts that are told one by one, of all distributions together as well, and the largest that is told at all."""
LOOK, ALONE, GROWTH, TOPS, WITHIN = 1.05, 512, 1.02, 3, 1024
"""How densely another top is looked for. Of counts in cells: up to where each has its own, by how much those grow
beyond, and how many are about each of how many tops, as of inflated zeros and mixtures."""
ROUNDING = 1e-12
NEGLIGIBLE = 45.0
FAR = (300.0, 330.0)
"""Logarithms of two values far out, between which the fall of a tail is measured."""
SLIGHT = 1e-6
IMPOSSIBLE = -1e6
"""A log density below which a constant says that there is none."""
POINTS, WEIGHTS = leggauss(NODES)
LEGENDRE = legvander(POINTS, NODES - 1).T

Array = np.ndarray
LogDensity = Callable[[Array], Array]


@dataclass(frozen=True)
class Line:
    """A map from the real line to the values of an output, its inverse, and log |dy/dv|."""

    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    log_slope: Callable[[Array], Array]


def _logit(y: Array) -> Array:
    y = np.clip(y, 1e-300, 1 - 1e-16)
    return np.log(y) - np.log1p(-y)


LINES: dict[str, Line] = {
    "real": Line(lambda v: v, lambda y: y, np.zeros_like),
    "positive": Line(
        lambda v: np.exp(np.clip(v, -700, 700)),
        lambda y: np.log(np.maximum(y, 1e-300)),
        lambda v: np.clip(v, -700, 700),
    ),
    "unit": Line(
        lambda v: np.clip(1 / (1 + np.exp(-np.clip(v, -690, 690))), 1e-300, 1 - 1.2e-16),
        _logit,
        lambda v: -np.abs(v) - 2 * np.log1p(np.exp(-np.abs(v))),
    ),
}


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
        """The smallest value whose distribution function reaches p [n]."""
        high = np.clip(np.sum(self.below < p - ROUNDING, axis=0), 0, len(self.values) - 1)
        return np.take_along_axis(self.values, high[None], axis=0)[0]


@dataclass(frozen=True)
class Cells(Curve):
    """Too many whole numbers to be told one by one: `values` stand for all from `first` [points, n] to the next."""

    first: Array

    def cdf(self, y: Array) -> Array:
        """P(Y <= y) for y [n]: of the cells below, and of the numbers of one, which are equally probable."""
        cell = np.maximum(np.sum(self.first <= y, axis=0) - 1, 0)[None]
        first, size, mass, below = self._of(cell)
        share = np.clip((np.floor(y) + 1.0 - first) / np.maximum(size, 1.0), 0.0, 1.0)
        return below - (1.0 - share) * mass

    def quantile(self, p: Array) -> Array:
        """The smallest value whose distribution function reaches p [n]."""
        cell = np.clip(np.sum(self.below < p - ROUNDING, axis=0), 0, len(self.values) - 1)[None]
        first, size, mass, below = self._of(cell)
        short = np.clip((below - p) / np.where(mass > 0, mass, 1.0), 0.0, 1.0)
        return first + np.maximum(np.ceil((1.0 - short) * size - ROUNDING * size), 1.0) - 1.0

    def _of(self, cell: Array) -> list[Array]:
        sizes = np.diff(self.first, axis=0, append=self.first[-1:] + 1.0)
        return [np.take_along_axis(each, cell, axis=0)[0] for each in (self.first, sizes, self.mass, self.below)]


@dataclass(frozen=True)
class Panels(Curve):
    """Continuous ones: `below` is the distribution function where panels end, [panels, n] as all of the below.

    Panels go from `low` to `high` in u, where v = `mode` + `width` * sinh(u).
    """

    line: Line
    mode: Array
    width: Array
    low: Array
    high: Array
    tail: Array
    """The density falls as |y|^(-tail - 1) [n]: moments of this order and above do not exist."""

    @property
    def discrete(self) -> bool:
        """They are not."""
        return False

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance [n] after normalisation; NaN where there is no mean, and infinite variances."""
        mean, variance = super().moments()
        none, infinite = self.tail <= 1 + SLIGHT, self.tail <= 2 + SLIGHT
        return np.where(none, np.nan, mean), np.where(none, np.nan, np.where(infinite, np.inf, variance))

    def cdf(self, y: Array) -> Array:
        """P(Y <= y) for y [n]: of the whole panels below, and of part of one, where the density is a polynomial."""
        v = self.line.inverse(y)
        panel = np.minimum(np.sum(self._end < v, axis=0), len(self.low) - 1)
        low, high, mode, width = (self._of(each, panel) for each in (self.low, self.high, self.mode, self.width))
        t = 2 * (np.arcsinh((v - mode) / width) - low) / np.where(high > low, high - low, 1.0) - 1
        value = self._start(panel) + self._part(panel, np.clip(t, -1.0, 1.0))
        return np.where(y <= 0, 0.0, value) if self.line is LINES["positive"] else value

    def quantile(self, p: Array) -> Array:
        """The smallest value whose distribution function reaches p [n]."""
        panel = np.minimum(np.sum(self.below < p - ROUNDING, axis=0), len(self.low) - 1)
        wanted, a, b = p - self._start(panel), np.full(p.shape, -1.0), np.ones(p.shape)
        for _ in range(60):
            middle = 0.5 * (a + b)
            short = self._part(panel, middle) < wanted
            a, b = np.where(short, middle, a), np.where(short, b, middle)
        low, high, mode, width = (self._of(each, panel) for each in (self.low, self.high, self.mode, self.width))
        return self.line.forward(mode + width * np.sinh(low + 0.5 * (high - low) * (1 + b)))

    @staticmethod
    def _of(values: Array, panel: Array) -> Array:
        return np.take_along_axis(values, panel[None], axis=0)[0]

    def _start(self, panel: Array) -> Array:
        return np.where(panel > 0, self._of(self.below, np.maximum(panel - 1, 0)), 0.0)

    @functools.cached_property
    def _end(self) -> Array:
        return self.mode + self.width * np.sinh(self.high)

    def _part(self, panel: Array, t: Array) -> Array:
        """Probability [n] of a panel up to t, which goes from -1 to 1."""
        mass = self.mass.reshape(len(self.low), NODES, -1)
        moments = np.einsum("kj,jn->kn", LEGENDRE, np.take_along_axis(mass, panel[None, None], axis=0)[0])
        values = legvander(t, NODES).T
        rises = np.concatenate([(t + 1)[None], values[2:] - values[:-2]])
        return np.clip(0.5 * np.sum(moments * rises, axis=0), 0.0, np.maximum(2 * moments[0], 0.0))


def curve(log_density: LogDensity, size: int, kind: str, cuts: Array | None = None) -> Curve:
    """The distributions with unnormalised log densities `log_density(y)` at y [points, n], for outputs of a kind.

    They jump or bend nowhere but at the `cuts` [cuts, n], which may lie anywhere.
    """
    if kind not in LINES:
        return _discrete(log_density, size, kind)
    return _continuous(log_density, LINES[kind], ENDS[kind], np.zeros((0, size)) if cuts is None else cuts)


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, -np.inf)


def _continuous(log_density: LogDensity, line: Line, ends: tuple[float, float], cuts: Array) -> Curve:
    size = cuts.shape[1]

    def plain(v: Array) -> Array:
        return log_density(line.forward(v)) + line.log_slope(v)

    along = _to_the_end(plain, size) if line is LINES["unit"] else lambda v: _finite(plain(v))
    with np.errstate(all="ignore"):
        inner = np.sort(np.clip(np.nan_to_num(line.inverse(cuts)), *ends), axis=0)
        edges = np.concatenate([np.full((1, size), ends[0]), inner, np.full((1, size), ends[1])])
        pieces = [_piece(along, low, high) for low, high in zip(edges[:-1], edges[1:], strict=True)]
        peak = np.max([top for *_, top in pieces], axis=0)
        shares = [share * np.exp(top - peak) for _, share, _, top in pieces]
    places = np.concatenate([each[0] for each in pieces], axis=1)
    mass = np.concatenate(shares)
    total = mass.sum(axis=0)
    mass = mass / total
    below = np.clip(np.cumsum(mass.reshape(-1, NODES, size).sum(axis=1), axis=0), 0.0, 1.0)
    values = line.forward(np.concatenate([each[2] for each in pieces]))
    mode, width, low, high = places
    tail = _tail(along, size, line)
    return Panels(values, mass, below, peak + np.log(total), line, mode, width, low, high, tail)


def _to_the_end(plain: LogDensity, size: int) -> LogDensity:
    """A log density along log odds: straight beyond where proportions are too near 1 to be told apart."""
    before, last = (plain(np.full((1, size), v)) for v in RESOLVED)
    slope = np.nan_to_num((last - before) / (RESOLVED[1] - RESOLVED[0]))

    def along(v: Array) -> Array:
        near = np.minimum(v, RESOLVED[1])
        return _finite(plain(near) + slope * (v - near))

    return along


def _piece(along: LogDensity, low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
    """Between two cuts: mode, width and ends in u of panels [4, panels, n], shares of nodes, nodes, and the peak."""
    inside = [np.minimum(1e-14 * (1.0 + np.abs(each)), 0.25 * (high - low)) for each in (low, high)]
    mode = _mode(along, low + inside[0], high - inside[1])
    peak = along(mode[None])[0]
    widths = 2.0 ** np.arange(-45, 40)[:, None] * np.ones(len(mode))
    fallen = (peak - along(mode + widths) > DROP) & (mode + widths < high)
    fallen |= (peak - along(mode - widths) > DROP) & (mode - widths > low)
    width = np.where(fallen.any(axis=0), widths[np.argmax(fallen, axis=0), np.arange(len(mode))], widths[-1])
    width = np.maximum(np.minimum(width, high - low), widths[0])
    ends = [_panels(np.arcsinh(np.abs(each - mode) / width)) for each in (low, high)]
    u = np.concatenate([-ends[0][::-1], ends[1][1:]])
    half = 0.5 * np.diff(u, axis=0)
    at = (u[:-1] + half)[:, None] + half[:, None] * POINTS[:, None]
    v = (mode + width * np.sinh(at)).reshape(-1, len(mode))
    share = np.exp(along(v) - peak) * (half[:, None] * WEIGHTS[:, None] * width * np.cosh(at)).reshape(v.shape)
    places = np.stack([np.broadcast_to(mode, half.shape), np.broadcast_to(width, half.shape), u[:-1], u[1:]])
    return places, np.where(np.isfinite(share), share, 0.0), v, peak


def _panels(reach: Array) -> Array:
    """Ends of panels from 0 to `reach` [n]."""
    near = np.minimum(reach, CLOSE)
    growth = (reach / np.maximum(near, 1e-300)) ** (np.arange(1, FAR_PANELS + 1)[:, None] / FAR_PANELS)
    return np.concatenate([near * np.linspace(0.0, 1.0, NEAR_PANELS + 1)[:, None], near * growth])


def _tail(along: LogDensity, size: int, line: Line) -> Array:
    """The power by which both tails fall, less one: infinite where they fall faster than any."""
    if line is LINES["unit"]:
        return np.full(size, np.inf)
    ends = np.asarray(FAR)[:, None] * np.ones(size)
    sides = [ends] if line is LINES["positive"] else [np.exp(ends), -np.exp(ends)]
    with np.errstate(all="ignore"):
        heights = np.stack([along(each) for each in sides])
        falls = (heights[:, 0] - heights[:, 1]) / (FAR[1] - FAR[0])
    falls = np.where(np.isfinite(falls) & (heights[:, 0] > IMPOSSIBLE), falls, np.inf) - (
        0.0 if line is LINES["positive"] else 1.0
    )
    return falls.min(axis=0)


def _mode(along: LogDensity, low: Array, high: Array) -> Array:
    """The highest point between two, found on a wide grid and then on ever finer ones around it."""
    near = np.exp(np.linspace(NEAREST, SEARCH, COARSE // 2))[:, None]
    wide = np.sinh(np.linspace(-SEARCH, SEARCH, COARSE))[:, None] * np.ones(len(low))
    grid = np.sort(np.clip(np.concatenate([wide, low + near, high - near]), low, high), axis=0)
    columns = np.arange(len(low))
    for _ in range(ZOOMS):
        best = np.argmax(along(grid), axis=0)
        a, b = grid[np.maximum(best - 1, 0), columns], grid[np.minimum(best + 1, len(grid) - 1), columns]
        found = grid[best, columns]
        grid = np.linspace(a, b, ZOOMED)
    return found


def _discrete(log_density: LogDensity, size: int, kind: str) -> Curve:
    count = 2 if kind == "binary" else 64
    while True:
        values = np.arange(float(count))[:, None] * np.ones(size)
        heights = _finite(log_density(values))
        fallen = (heights[-1] < heights.max(axis=0) - NEGLIGIBLE).all()
        if kind == "binary" or (fallen and not _rises(log_density, values[-1:])):
            break
        if count >= MOST or count * size >= NUMBERS:
            return _in_cells(log_density, size)
        count *= 4  # each size is compiled
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
    heights = _finite(log_density(beyond))
    return bool(((heights[1:] > heights[:-1]) & (heights[1:] > IMPOSSIBLE)).any())


def _in_cells(log_density: LogDensity, size: int) -> Curve:
    """Counts in cells of about as probable ones: small ones alone, others in cells that grow, and about each of the
    highest tops in as many as there is room for, up to where it has fallen to nothing."""
    growing = np.floor(ALONE * GROWTH ** np.arange(np.log(LARGEST / ALONE) / np.log(GROWTH)))
    wide = np.concatenate([np.arange(float(ALONE)), growing])[:, None] * np.ones(size)
    sides = np.pad(heights := _finite(log_density(wide)), ((1, 1), (0, 0)), constant_values=-np.inf)
    tops = np.where((heights >= sides[:-2]) & (heights > sides[2:]), heights, -np.inf)
    order = np.argsort(tops, axis=0)[-TOPS:]
    order = np.where(np.take_along_axis(tops, order, axis=0) > IMPOSSIBLE, order, order[-1])
    first = np.sort(np.concatenate([wide, *(_about(log_density, wide, each[None]) for each in order)]), axis=0)
    sizes = np.diff(first, axis=0, append=first[-1:] + 1.0)
    values = first + 0.5 * np.maximum(sizes - 1.0, 0.0)
    middle = [_finite(log_density(each)) for each in (np.floor(values), np.ceil(values))]
    with np.errstate(divide="ignore"):
        heights = np.logaddexp(*middle) + np.log(0.5 * sizes)
    return Cells(values, *_told(heights), first)


def _about(log_density: LogDensity, grid: Array, best: Array) -> Array:
    """Where cells begin about the top next to the `best` [1, n] of a grid."""
    for _ in range(ZOOMS):
        low, top, high = (
            np.take_along_axis(grid, np.clip(best + side, 0, len(grid) - 1), axis=0)[0] for side in (-1, 0, 1)
        )
        grid = np.floor(np.linspace(low, high, ZOOMED))
        best = np.argmax(_finite(log_density(grid)), axis=0)[None]
    reach, ends = 2.0 ** np.arange(52.0)[:, None], []
    least = _finite(log_density(top[None])) - NEGLIGIBLE
    for side in (-1, 1):
        at = np.clip(top + side * reach, 0.0, LARGEST)
        fallen = (_finite(log_density(at)) < least) | (at == 0.0)
        ends.append(np.take_along_axis(at, np.where(fallen.any(axis=0), fallen.argmax(axis=0), -1)[None], axis=0)[0])
    return np.asarray(np.floor(np.linspace(ends[0], ends[1], WITHIN)))
