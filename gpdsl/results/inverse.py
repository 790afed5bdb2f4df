"""Inverses of strictly monotone functions, for many values at once: Newton's method inside a shrinking bracket."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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
            good = np.isfinite(step) & (step > low) & (step < high)
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
