"""Distributions known by a log density alone: normalised numerically, one set of panels for each, where its mass is.

A continuous output is mapped to the real line (log for positive, log odds for proportions), and cut where its density
jumps or bends. Between cuts, panels are even in u where v = mode + width * sinh(u), and longer and longer far out:
Gauss–Legendre rules in them tell thin and heavy tails, and the distribution function inside of a panel as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial.legendre import leg2poly, leggauss, legint, legvander
from numpy.polynomial.polynomial import polyval

from gpdsl.symbolic.counts import (
    IMPOSSIBLE,
    NEGLIGIBLE,
    ROUNDING,
    ZOOMED,
    ZOOMS,
    Array,
    Curve,
    LogDensity,
    discrete,
    existing,
    finite,
)

COARSE = 161
SEARCH, FURTHEST, NEAREST = 18.0, 42.0, -36.0
"""Range of asinh v in which modes are looked for, closely and at all, and the logarithm of how near to a cut."""
CLOSE, NEAR_PANELS, FAR_PANELS, NODES = 12.0, 24, 8, 14
"""Of u, on either side: up to where panels are even, how many these are, and those beyond; nodes in each."""
ENDS = {"real": (float(-np.exp(340.0)), float(np.exp(340.0))), "positive": (-690.0, 350.0), "unit": (-690.0, 690.0)}
"""Where numbers end, whose squares are numbers too."""
RESOLVED = (20.0, 27.0)
"""Log odds of proportions near 1: at the second, 1 - y still has four digits."""
DROP = 0.5
"""By how much the log density falls from the mode to the width."""
FAR = (300.0, 330.0)
"""Logarithms of two values far out, between which the fall of a tail is measured."""
SLIGHT = 1e-6
POINTS, WEIGHTS = leggauss(NODES)
LEGENDRE = legvander(POINTS, NODES - 1).T
UP_TO = np.stack([leg2poly(legint(each, lbnd=-1)) for each in ((np.arange(NODES) + 0.5)[:, None] * LEGENDRE).T], axis=1)
"""The mass at a node in a panel's polynomials, of which the integral from -1 to t has these coefficients."""
LAST = ((np.arange(NODES) + 0.5)[:, None] * LEGENDRE)[-2:]
PANELS = 2 * (NEAR_PANELS + FAR_PANELS)
"""As many are computed at once."""
APART = 12.0
"""Of its width, how far from another top one has to lie for panels of its own."""
ROUNDS, MOST_NODES, FINE, NARROWEST = 40, 2**25, 1e-6, 1e-9
"""How often panels are halved, and how many nodes there are at most; what is left of all the mass, and of u."""
RISE, LEAST = 1.0, -1e15
"""By how much a log density may rise beside a node, and below which height it is none."""


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
class Panels(Curve):
    """Continuous ones: `below` is the distribution function where panels end, [panels, m] as all of the below.

    Panels go from `low` to `high` in u, where v = `mode` + `width` * sinh(u). The n distributions are those of m,
    moved: `location` + `scale` * z [n], where z is by the one that `columns` says.
    """

    line: Line
    mode: Array
    width: Array
    low: Array
    high: Array
    tail: Array
    """The density falls as |y|^(-tail - 1) [m]: moments of this order and above do not exist."""
    untold: Array
    """What part of all the mass [m] was not found for certain."""
    columns: Array
    location: Array
    scale: Array

    def moved(self, columns: Array, location: Array, scale: Array, log_factor: Array) -> Panels:
        """Some of these on other scales, where densities are larger by a factor."""
        log_mass = self.log_mass[columns] + log_factor
        return replace(self, columns=columns, location=location, scale=scale, log_mass=log_mass)

    @property
    def discrete(self) -> bool:
        """They are not."""
        return False

    @property
    def doubt(self) -> Array:
        """By how much mass differs from one, or may."""
        return np.maximum(super().doubt, self.untold[self.columns])

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance [n] after normalisation; NaN where there is no mean, and infinite variances."""
        mean, variance = existing(self.tail, SLIGHT, *super().moments())
        return self.location + self.scale * mean[self.columns], self.scale**2 * variance[self.columns]

    def cdf(self, y: Array) -> Array:
        """P(Y <= y) for y [n]: of the whole panels below, and of part of one, where the density is a polynomial."""
        v = self.line.inverse((y - self.location) / self.scale)
        at = self._places(self._end, v, self.columns)
        low, high, mode, width = (each.ravel()[at] for each in (self.low, self.high, self.mode, self.width))
        t = 2 * (np.arcsinh((v - mode) / width) - low) / np.where(high > low, high - low, 1.0) - 1
        t, part = np.clip(t, -1.0, 1.0), np.zeros(t.shape)
        for each in self._parts[::-1]:
            part = part * t + each.ravel()[at]
        value = self._start.ravel()[at] + np.clip(part, 0.0, self._mass.ravel()[at])
        return np.where(y <= 0, 0.0, value) if self.line is LINES["positive"] else value

    def quantile(self, p: Array) -> Array:
        """The smallest value whose distribution function reaches p [n], or one for all."""
        if p.ndim == 0:
            all_of = np.arange(self.below.shape[1])
            return self.location + self.scale * self._reached(np.full(all_of.shape, p), all_of)[self.columns]
        return self.location + self.scale * self._reached(p, self.columns)

    def _reached(self, p: Array, columns: Array) -> Array:
        """z where the distribution functions of columns [n] reach p [n], by Newton's steps inside of a panel."""
        at = self._places(self.below, p - ROUNDING, columns)
        parts = self._parts.reshape(len(self._parts), -1)[:, at]
        slopes, wanted = parts[1:] * np.arange(1, len(parts))[:, None], p - self._start.ravel()[at]
        a, b, t = np.full(p.shape, -1.0), np.ones(p.shape), np.zeros(p.shape)
        for _ in range(60):
            lacking = wanted - polyval(t, parts, tensor=False)
            a, b = np.where(lacking > 0, t, a), np.where(lacking > 0, b, t)
            with np.errstate(all="ignore"):
                step = t + lacking / polyval(t, slopes, tensor=False)
            step = np.where((step >= a) & (step <= b), step, 0.5 * (a + b))
            t, moved = step, np.abs(step - t)
            if not np.any(moved > 1e-14):
                break
        low, high, mode, width = (each.ravel()[at] for each in (self.low, self.high, self.mode, self.width))
        return self.line.forward(mode + width * np.sinh(low + 0.5 * (high - low) * (1 + t)))

    def _places(self, ends: Array, wanted: Array, columns: Array) -> Array:
        """Where in a raveled array [panels, m] the first of ends [panels, m] is that is no less than wanted [n]."""
        last, m = len(ends) - 1, ends.shape[1]
        if m == 1:
            return np.minimum(np.searchsorted(ends[:, 0], wanted), last)
        found, flat = np.zeros(wanted.shape, int), ends.ravel()
        for step in 2 ** np.arange(int(last).bit_length())[::-1]:
            after = found + step
            less = (after <= last) & (flat[(np.minimum(after, last) - 1) * m + columns] < wanted)
            found = np.where(less, after, found)
        return found * m + columns

    @functools.cached_property
    def _start(self) -> Array:
        return np.concatenate([np.zeros((1, self.below.shape[1])), self.below[:-1]])

    @functools.cached_property
    def _end(self) -> Array:
        return self.mode + self.width * np.sinh(self.high)

    @functools.cached_property
    def _mass(self) -> Array:
        return np.maximum(self.mass.reshape(len(self.low), NODES, -1).sum(axis=1), 0.0)

    @functools.cached_property
    def _parts(self) -> Array:
        """Polynomials in t [powers, panels, m]: probabilities of panels up to t, which goes from -1 to 1."""
        return np.einsum("kj,pjm->kpm", UP_TO, self.mass.reshape(len(self.low), NODES, -1))


def curve(
    log_density: LogDensity, size: int, kind: str, cuts: Array | None = None, terms: Sequence[LogDensity] = ()
) -> Curve:
    """The distributions with unnormalised log densities `log_density(y)` at y [points, n], for outputs of a kind.

    They jump or bend nowhere but at the `cuts` [cuts, n], which may lie anywhere; each of the `terms`, log densities
    too, may have a narrow top of its own.
    """
    if kind not in LINES:
        return discrete(log_density, size, kind)
    return _continuous(log_density, LINES[kind], ENDS[kind], np.zeros((0, size)) if cuts is None else cuts, terms)


def _continuous(
    log_density: LogDensity, line: Line, ends: tuple[float, float], cuts: Array, terms: Sequence[LogDensity]
) -> Curve:
    size = cuts.shape[1]
    low, high = (np.full((1, size), each) for each in ends)

    def on_line(log_density: LogDensity) -> LogDensity:
        return lambda v: finite(log_density(line.forward(v)) + line.log_slope(v))

    along = _to_the_end(on_line(log_density), size) if line is LINES["unit"] else on_line(log_density)
    with np.errstate(all="ignore"):
        tops, between = _tops(along, [on_line(each) for each in terms], low[0], high[0])
        inner = np.concatenate([np.clip(np.nan_to_num(line.inverse(cuts)), *ends), between])
        edges = np.concatenate([low, np.sort(inner, axis=0), high])
        pieces = [_piece(along, *each, tops) for each in zip(edges[:-1], edges[1:], strict=True)]
        places, nodes, logs, left = _settled(along, np.concatenate(pieces, axis=1))
        values = line.forward(nodes).reshape(-1, size)
    peak = logs.max(axis=(0, 1))
    mass = np.exp(logs - peak)
    total = mass.sum(axis=(0, 1))
    mass = mass / total
    below = np.clip(np.cumsum(mass.sum(axis=1), axis=0), 0.0, 1.0)
    tail = _tail(along, size, line)
    mode, width, first, last = places
    log_mass, mass = peak + np.log(total), mass.reshape(-1, size)
    moved = np.arange(size), np.zeros(size), np.ones(size)
    return Panels(values, mass, below, log_mass, line, mode, width, first, last, tail, left, *moved)


def _to_the_end(plain: LogDensity, size: int) -> LogDensity:
    """A log density along log odds: straight beyond where proportions are too near 1 to be told apart."""
    before, last = (plain(np.full((1, size), v)) for v in RESOLVED)
    slope = np.nan_to_num((last - before) / (RESOLVED[1] - RESOLVED[0]))

    def along(v: Array) -> Array:
        near = np.minimum(v, RESOLVED[1])
        return finite(plain(near) + slope * (v - near))

    return along


def _tops(along: LogDensity, terms: Sequence[LogDensity], low: Array, high: Array) -> tuple[Array, Array]:
    """Where terms are highest [terms, n], and the middles between those that panels about another would not tell."""
    if not terms:
        return np.zeros((0, len(low))), np.zeros((0, len(low)))
    modes = np.stack([_mode(each, low, high) for each in terms])
    widths = np.stack([_width(*each, low, high) for each in zip(terms, modes, strict=True)])
    shares = np.nan_to_num(np.concatenate([along(each[None]) for each in modes]) + np.log(widths), nan=-np.inf)
    order = np.argsort(-shares, axis=0, kind="stable")
    apart, widths, shares = (np.take_along_axis(each, order, axis=0) for each in (modes, widths, shares))
    for k in range(1, len(apart)):
        near = (np.abs(apart[:k] - apart[k]) < APART * widths[k]).any(axis=0)
        apart[k] = np.where(near | (shares[k] < shares[0] - NEGLIGIBLE), apart[0], apart[k])
    apart = np.sort(apart, axis=0)
    return modes, 0.5 * (apart[1:] + apart[:-1]) if np.any(apart[0] < apart[-1]) else apart[:0]


def _piece(along: LogDensity, low: Array, high: Array, tops: Array) -> Array:
    """Between two cuts: mode, width and ends in u of panels [4, panels, n]."""
    inside = [np.minimum(1e-14 * (1.0 + np.abs(each)), 0.25 * (high - low)) for each in (low, high)]
    mode = _mode(along, low + inside[0], high - inside[1], tops)
    width = _width(along, mode, low, high)
    ends = [_panels(np.arcsinh(np.abs(each - mode) / width)) for each in (low, high)]
    u = np.concatenate([-ends[0][::-1], ends[1][1:]])
    return np.stack([np.broadcast_to(mode, u[1:].shape), np.broadcast_to(width, u[1:].shape), u[:-1], u[1:]])


def _width(along: LogDensity, mode: Array, low: Array, high: Array) -> Array:
    """How far from a mode [n] a log density has fallen, on the nearer side."""
    peak = along(mode[None])[0]
    widths = 2.0 ** np.arange(-45, 40)[:, None] * np.ones(len(mode))
    fallen = (peak - along(mode + widths) > DROP) & (mode + widths < high)
    fallen |= (peak - along(mode - widths) > DROP) & (mode - widths > low)
    width = np.where(fallen.any(axis=0), widths[np.argmax(fallen, axis=0), np.arange(len(mode))], widths[-1])
    return np.asarray(np.maximum(np.minimum(width, high - low), widths[0]))


def _nodes(places: Array) -> tuple[Array, Array]:
    """Nodes of panels [4, panels, n], and the logarithms of their weights, [panels, nodes, n]."""
    mode, width, low, high = places[:, :, None]
    half = 0.5 * (high - low)
    up = np.exp(low + half * (1.0 + POINTS[:, None]))
    down = 1.0 / up
    return mode + 0.5 * width * (up - down), np.log(up + down) + np.log(0.5 * half * width) + np.log(WEIGHTS[:, None])


def _settled(along: LogDensity, places: Array) -> tuple[Array, Array, Array, Array]:
    """Panels in order, of which those that nodes do not tell are halved, these nodes and logarithms of the mass there
    [panels, nodes, n], and what part of all the mass [n] is not told yet."""

    def of(places: Array) -> tuple[Array, Array]:
        nodes, weights = _nodes(places)
        parts = [along(each.reshape(-1, places.shape[-1])) for each in np.split(nodes, len(nodes) // PANELS)]
        return nodes, finite(np.concatenate(parts).reshape(nodes.shape) + weights)

    def ordered(by: Array) -> tuple[Array, Array, Array]:
        order = np.argsort(by, axis=0, kind="stable")
        at, own = np.take_along_axis(places, order[None], axis=1), order[:, None]
        return at, np.take_along_axis(nodes, own, axis=0), np.take_along_axis(logs, own, axis=0)

    nodes, logs = of(places)
    count = len(logs)
    for _ in range(ROUNDS):
        left = _untold(logs, places)
        if not left.any() or logs.size > MOST_NODES:
            break
        places, nodes, logs = ordered(-left)
        *centre, low, high = places[:, : PANELS // 2]
        middle = 0.5 * (low + high)
        halves = np.concatenate([[*centre, low, middle], [*centre, middle, high]], axis=1)
        places = np.concatenate([halves, places[:, PANELS // 2 :]], axis=1)
        nodes, logs = (
            np.concatenate([new, old[PANELS // 2 :]]) for new, old in zip(of(halves), (nodes, logs), strict=True)
        )
    mode, width, low, high = places
    found = (places, nodes, logs) if len(logs) == count else ordered(mode + width * np.sinh(0.5 * (low + high)))
    return *found, left.sum(axis=0)


def _untold(logs: Array, places: Array) -> Array:
    """What part of all the mass may be missing in panels [panels, n]; 0 where their nodes tell it.

    By the last coefficients of the polynomials through them, and by how high a top beside the highest may be.
    """
    peak = logs.max(axis=(0, 1))
    mass = np.exp(logs - peak)
    rest = np.abs(np.einsum("kj,pjn->kpn", LAST, mass)).max(axis=0) / mass.sum(axis=(0, 1))
    heights = np.maximum(logs - np.log(WEIGHTS[:, None]), LEAST)
    slopes = np.pad(np.diff(heights, axis=1) / np.diff(POINTS)[:, None], ((0, 0), (1, 1), (0, 0)))
    steps = np.diff(np.concatenate([[-1.0], POINTS, [1.0]]))
    best = np.argmax(heights, axis=1)
    before, after, top = (
        np.take_along_axis(a, k[:, None], axis=1)[:, 0] for a, k in ((slopes, best), (slopes, best + 1), (logs, best))
    )
    rise = np.maximum(before * steps[best + 1], -after * steps[best])
    hidden = (rise > RISE) & (top + rise > peak - NEGLIGIBLE) & (places[3] - places[2] > NARROWEST)
    return np.where(rest > FINE, rest, 0.0) + np.where(hidden, np.exp(np.minimum(top + rise - peak, 0.0)), 0.0)


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


def _mode(along: LogDensity, low: Array, high: Array, known: Array | None = None) -> Array:
    """The highest point between two, found on a wide grid and `known` places, then on ever finer grids around it."""
    near = np.exp(np.linspace(NEAREST, SEARCH, COARSE // 2))[:, None]
    far = np.exp(np.linspace(SEARCH, FURTHEST, COARSE // 4))[:, None]
    wide = np.concatenate([-far, np.sinh(np.linspace(-SEARCH, SEARCH, COARSE))[:, None], far]) * np.ones(len(low))
    some = [wide, low + near, high - near, *([] if known is None else [known])]
    grid = np.sort(np.clip(np.concatenate(some), low, high), axis=0)
    for _ in range(ZOOMS):
        found = np.take_along_axis(grid, np.argmax(along(grid), axis=0)[None], axis=0)[0]
        a = np.maximum(np.max(grid, axis=0, where=grid < found, initial=-np.inf), low)
        b = np.minimum(np.min(grid, axis=0, where=grid > found, initial=np.inf), high)
        grid = np.concatenate([np.linspace(a, found, ZOOMED // 2 + 1), np.linspace(found, b, ZOOMED // 2 + 1)[1:]])
    return found
