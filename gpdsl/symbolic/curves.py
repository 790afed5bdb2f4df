"""Distributions known by a log density alone: normalised numerically, one grid for each, placed where its mass is.

A continuous output is mapped to the real line (log for positive, log odds for proportions). The grid is mode + width *
sinh(u) for evenly spaced u: the trapezoidal rule then converges fast for thin and for heavy tails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

COARSE, ZOOMED, ZOOMS = 161, 21, 14
REACH, POINTS = 15.0, 1201
SEARCH = 18.0
DROP = 0.5
"""By how much the log density falls from the mode to the width."""
MOST = 2**14
ROUNDING = 1e-12
NEGLIGIBLE = 45.0
FAR = (300.0, 330.0)
"""Logarithms of two values far out, between which the fall of a tail is measured."""
SLIGHT = 1e-6

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
    """Distributions side by side: `values` and the distribution function `below` there are [points, n].

    `log_mass` [n] is the logarithm of what the unnormalised density integrates to. Continuous ones stand on the grid
    `mode` + `width` * sinh(u); discrete ones have no `mode`.
    """

    values: Array
    mass: Array
    below: Array
    log_mass: Array
    line: Line | None = None
    mode: Array | None = None
    width: Array | None = None
    tail: Array | None = None
    """The density falls as |y|^(-tail - 1): moments of this order and above do not exist."""

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance [n] after normalisation; NaN where there is no mean, and infinite variances."""
        values = np.where(self.mass > 0, self.values, 0.0)
        mean = np.sum(self.mass * values, axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            variance = np.sum(np.where(self.mass > 0, self.mass * (values - mean) ** 2, 0.0), axis=0)
        if self.tail is None:
            return mean, variance
        none, infinite = self.tail <= 1 + SLIGHT, self.tail <= 2 + SLIGHT
        return np.where(none, np.nan, mean), np.where(none, np.nan, np.where(infinite, np.inf, variance))

    def cdf(self, y: Array) -> Array:
        """P(Y <= y) for y [n], by cubic interpolation of the distribution function in u."""
        if self.line is None or self.mode is None or self.width is None:
            found = np.clip(np.floor(y), -1, len(self.values) - 1).astype(int)
            inside = np.take_along_axis(self.below, np.maximum(found, 0)[None], axis=0)[0]
            return np.where(found < 0, 0.0, inside)
        step = 2 * REACH / (POINTS - 1)
        at = (np.arcsinh((self.line.inverse(y) - self.mode) / self.width) + REACH) / step
        low = np.clip(np.floor(at), 0, POINTS - 2).astype(int)
        t = np.clip(at - low, 0.0, 1.0)
        f0, f1 = (np.take_along_axis(self.below, (low + k)[None], axis=0)[0] for k in (0, 1))
        d0, d1 = (np.take_along_axis(self.mass, (low + k)[None], axis=0)[0] for k in (0, 1))
        hermite = (
            (1 + 2 * t) * (1 - t) ** 2 * f0 + t * (1 - t) ** 2 * d0 + t**2 * (3 - 2 * t) * f1 + t**2 * (t - 1) * d1
        )
        value = np.where(at <= 0, 0.0, np.where(at >= POINTS - 1, 1.0, np.clip(hermite, 0.0, 1.0)))
        return np.where(y <= 0, 0.0, value) if self.line is LINES["positive"] else value

    def quantile(self, p: Array) -> Array:
        """The smallest value whose distribution function reaches p [n]."""
        high = np.clip(np.sum(self.below < p - ROUNDING, axis=0), 0, len(self.values) - 1)
        if self.line is None or self.mode is None or self.width is None:
            return np.take_along_axis(self.values, high[None], axis=0)[0]
        low = np.maximum(high - 1, 0)
        u = np.linspace(-REACH, REACH, POINTS)
        a, b = u[low], u[high]
        for _ in range(60):
            middle = 0.5 * (a + b)
            short = self.cdf(self.line.forward(self.mode + self.width * np.sinh(middle))) < p
            a, b = np.where(short, middle, a), np.where(short, b, middle)
        return self.line.forward(self.mode + self.width * np.sinh(0.5 * (a + b)))


def curve(log_density: LogDensity, size: int, kind: str) -> Curve:
    """The distributions with unnormalised log densities `log_density(y)` at y [points, n], for outputs of a kind."""
    return _continuous(log_density, size, LINES[kind]) if kind in LINES else _discrete(log_density, size, kind)


def _finite(values: Array) -> Array:
    return np.where(np.isnan(values), -np.inf, values)


def _continuous(log_density: LogDensity, size: int, line: Line) -> Curve:
    def along(v: Array) -> Array:
        return _finite(log_density(line.forward(v)) + line.log_slope(v))

    mode = _mode(along, size)
    peak = along(mode[None])[0]
    widths = 2.0 ** np.arange(-45, 40)[:, None] * np.ones(size)
    fallen = np.maximum(peak - along(mode + widths), peak - along(mode - widths)) > DROP
    width = np.where(fallen.any(axis=0), widths[np.argmax(fallen, axis=0), np.arange(size)], widths[-1])
    u = np.linspace(-REACH, REACH, POINTS)[:, None]
    v = mode + width * np.sinh(u)
    with np.errstate(over="ignore", invalid="ignore"):
        density = np.exp(along(v) - peak) * np.cosh(u)
    density = np.where(np.isfinite(density), density, 0.0)
    total = density.sum(axis=0)
    mass = density / total
    log_mass = peak + np.log(total * width * 2 * REACH / (POINTS - 1))
    return Curve(line.forward(v), mass, _cumulative(mass), log_mass, line, mode, width, _tail(along, size, line))


def _tail(along: LogDensity, size: int, line: Line) -> Array:
    """The power by which both tails fall, less one: infinite where they fall faster than any."""
    if line is LINES["unit"]:
        return np.full(size, np.inf)
    ends = np.asarray(FAR)[:, None] * np.ones(size)
    sides = [ends] if line is LINES["positive"] else [np.exp(ends), -np.exp(ends)]
    with np.errstate(all="ignore"):
        heights = np.stack([along(each) for each in sides])
        falls = (heights[:, 0] - heights[:, 1]) / (FAR[1] - FAR[0])
    falls = np.where(np.isfinite(falls), falls, np.inf) - (0.0 if line is LINES["positive"] else 1.0)
    return falls.min(axis=0)


def _mode(along: LogDensity, size: int) -> Array:
    """The highest point, found on a wide grid and then on ever finer ones around it."""
    grid = np.sinh(np.linspace(-SEARCH, SEARCH, COARSE))[:, None] * np.ones(size)
    columns = np.arange(size)
    for _ in range(ZOOMS):
        best = np.argmax(along(grid), axis=0)
        low, high = grid[np.maximum(best - 1, 0), columns], grid[np.minimum(best + 1, len(grid) - 1), columns]
        found = grid[best, columns]
        grid = np.linspace(low, high, ZOOMED)
    return found


def _cumulative(mass: Array) -> Array:
    """The distribution function at the grid, the density between points being cubic."""
    padded = np.pad(mass, ((1, 2), (0, 0)))
    pieces = (-padded[:-3] + 13 * padded[1:-2] + 13 * padded[2:-1] - padded[3:]) / 24
    below = np.concatenate([np.zeros((1, mass.shape[1])), np.cumsum(pieces[:-1], axis=0)])
    return np.clip(np.maximum.accumulate(below, axis=0), 0.0, 1.0)


def _discrete(log_density: LogDensity, size: int, kind: str) -> Curve:
    count = 2 if kind == "binary" else 64
    while True:
        values = np.arange(float(count))[:, None] * np.ones(size)
        heights = _finite(log_density(values))
        peak = heights.max(axis=0)
        if kind == "binary" or count >= MOST or (heights[-1] < peak - NEGLIGIBLE).all():
            break
        count *= 2
    mass = np.exp(heights - peak)
    total = mass.sum(axis=0)
    mass = mass / total
    return Curve(values, mass, np.minimum(np.cumsum(mass, axis=0), 1.0), peak + np.log(total))
