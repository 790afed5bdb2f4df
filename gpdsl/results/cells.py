"""Logarithms of integrals over one or two standard normals, in cells that are halved until the halves say the same.

Unlike a rule around a mode this finds several narrow peaks, and takes jumps and bends at the ends of cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

REACH, PANELS, NODES = 12.0, 8, 12
"""Standard deviations on both sides, cells at first, and Gauss–Legendre nodes in each."""

HALVINGS, ENOUGH, UNSEEN = 45, 1e-11, 1e-2
"""How often a cell is halved; the change, of the integral, that ends it; in logarithms, that of a peak inside."""

NEGLIGIBLE = -40.0
"""Logarithm of what of an integral is left alone."""

LogFunction = Callable[[Int[np.ndarray, "n"], Float[np.ndarray, "n nodes J"]], Float[np.ndarray, "n nodes"]]
"""Of the numbers of rows, and of normals there."""

Line = tuple[np.ndarray, np.ndarray]
"""Level [rows] and slopes [rows, J] in the normals of what is zero where the function jumps or bends."""


def log_mean(
    function: LogFunction, lines: Sequence[Line], rows: int, count: int, enough: float = ENOUGH
) -> Float[np.ndarray, "rows"]:
    """log E[exp(function)] over `count` normals, one or two, of a function that is known to `enough` digits."""
    if count == 1:
        return _integrated(function, _stacked([_crossing(a, b[:, 0]) for a, b in lines], rows), enough)

    def given_first(chosen: np.ndarray, first: np.ndarray) -> np.ndarray:
        row, at = np.repeat(chosen, first.shape[1]), first.reshape(-1)

        def inner(places: np.ndarray, second: np.ndarray) -> np.ndarray:
            known = np.broadcast_to(at[places, None, None], second.shape)
            return function(row[places], np.concatenate([known, second], axis=-1))

        cuts = [_crossing(a[row] + b[row, 0] * at, b[row, 1]) for a, b in lines]
        return _integrated(inner, _stacked(cuts, len(row)), enough).reshape(first.shape[:2])

    cuts = [_crossing(a, b[:, 0]) for a, b in lines]
    for i, (a, b) in enumerate(lines):
        for c, d in lines[:i]:
            cuts.append(_crossing(a * d[:, 1] - c * b[:, 1], b[:, 0] * d[:, 1] - d[:, 0] * b[:, 1]))
    return _integrated(given_first, _stacked(cuts, rows), enough)


def _crossing(level: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Where a line is zero, at the end where it is nowhere near."""
    near = np.abs(slope) * REACH > np.abs(level)
    return np.where(near, -level / np.where(near, slope, 1.0), REACH)


def _stacked(cuts: Sequence[np.ndarray], rows: int) -> Float[np.ndarray, "rows edges"]:
    even = np.broadcast_to(np.linspace(-REACH, REACH, PANELS + 1), (rows, PANELS + 1))
    return np.sort(np.concatenate([even, *[each[:, None] for each in cuts]], axis=1), axis=1)


def _integrated(
    function: LogFunction, edges: Float[np.ndarray, "rows edges"], enough: float
) -> Float[np.ndarray, "rows"]:
    """log of the integral of exp(function) under a standard normal, from the first edge to the last."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)

    def of(row: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of cells, and whether the highest node lies inside."""
        half = 0.5 * (high - low)[:, None]
        z = (low + high)[:, None] / 2 + half * nodes
        values = function(row, z[..., None]) - 0.5 * z**2
        values = np.where(np.isnan(values), -np.inf, values)
        highest = np.argmax(values, axis=1)
        inside = (highest > 0) & (highest < NODES - 1) & np.isfinite(values.max(axis=1))
        return logsumexp(values + np.log(half * weights), axis=1), inside

    row, column = np.nonzero(np.diff(edges, axis=1) > 0)
    low, high = edges[row, column], edges[row, column + 1]
    whole, inside = of(row, low, high)
    total = np.full(len(edges), -np.inf)
    reference = total.copy()
    np.logaddexp.at(reference, row, whole)
    few = ~inside & (whole - reference[row] < NEGLIGIBLE)
    row, low, high, whole, inside = (each[~few] for each in (row, low, high, whole, inside))
    for turn in range(HALVINGS):
        middle = 0.5 * (low + high)
        left, in_left = of(row, low, middle)
        right, in_right = of(row, middle, high)
        parts = np.logaddexp(left, right)
        reference = total.copy()
        np.logaddexp.at(reference, row, parts)
        open_ = _open(whole - reference[row], parts - reference[row], inside, enough) & (turn < HALVINGS - 1)
        np.logaddexp.at(total, row[~open_], parts[~open_])
        row = np.concatenate([row[open_], row[open_]])
        low, high = np.concatenate([low[open_], middle[open_]]), np.concatenate([middle[open_], high[open_]])
        whole = np.concatenate([left[open_], right[open_]])
        inside = np.concatenate([in_left[open_], in_right[open_]])
        if not len(row):
            break
    return total - 0.5 * math.log(2 * math.pi)


def _open(whole: np.ndarray, parts: np.ndarray, inside: np.ndarray, enough: float) -> np.ndarray:
    """Whether cells need halving, by what they are of the integral, and by what they may be: a narrow peak."""
    with np.errstate(invalid="ignore", over="ignore"):
        changed = np.abs(np.exp(np.minimum(whole, 50.0)) - np.exp(np.minimum(parts, 50.0))) > enough
        peak = inside & (np.abs(whole - parts) > UNSEEN)
    return np.nan_to_num(changed) | peak


# Inverses of strictly monotone functions, for many values at once: Newton's method inside a shrinking bracket.

Array = np.ndarray
Function = Callable[[Array], tuple[Array, Array]]
"""Values and slopes at y, elementwise."""

DOUBLINGS = 60
ITERATIONS = 120


def inverse(function: Function, target: Array, *, increasing: bool = True) -> Array:
    """y with function(y) = target, elementwise.

    The bracket starts at -1 and 1 and doubles until it holds the target. A target beyond every value of the function,
    or one that needs |y| above 2^60, gives the end of the bracket. Newton steps that leave the bracket are
    replaced by bisection, and so is each third one while Newton's method is not closing in.
    """
    sign = 1.0 if increasing else -1.0
    target = np.asarray(target, float)

    def excess(y: Array) -> tuple[Array, Array]:
        value, slope = function(y)
        return sign * (np.asarray(value, float) - target), sign * np.asarray(slope, float)

    low, high = _bracket(lambda y: excess(y)[0], target.shape)
    at = 0.5 * (low + high)
    for turn in range(ITERATIONS):
        with np.errstate(all="ignore"):
            value, slope = excess(at)
            low, high = np.where(value < 0, at, low), np.where(value >= 0, at, high)
            step = at - value / slope
            middle = 0.5 * (low + high)
            good = np.isfinite(step) & (step >= low) & (step <= high)  # at the root the step is none
            following = np.where(good, step, middle)
            done = np.abs(following - at) <= 4 * np.finfo(float).eps * np.maximum(np.abs(at), 1e-300)
        if np.all(done | (high - low <= 4 * np.finfo(float).eps * np.abs(at))):
            return following
        slow = turn % 3 == 2
        at = np.where(done, following, np.where(slow & ~_near(following, at, low, high), middle, following))
    return at


def _near(following: Array, at: Array, low: Array, high: Array) -> Array:
    """Whether Newton's method is closing in: its step is far smaller than the bracket."""
    return np.abs(following - at) < 1e-3 * (high - low)


def _bracket(excess: Callable[[Array], Array], shape: tuple[int, ...]) -> tuple[Array, Array]:
    low, high = np.full(shape, -1.0), np.full(shape, 1.0)
    with np.errstate(all="ignore"):
        for _ in range(DOUBLINGS):
            above, below = excess(low) > 0, excess(high) < 0
            if not (above.any() or below.any()):
                break
            low, high = np.where(above, 2 * low, low), np.where(below, 2 * high, high)
    return low, high
