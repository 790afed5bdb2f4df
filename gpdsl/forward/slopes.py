"""Slopes of a function that is known by its values: differences over steps of many sizes, the best of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

LEVELS, SHRINK = 20, 4.0
"""Steps on either side of a number, each so much smaller than the one before."""

ROUNDED, WIDE = 4, 8.0
"""Smallest steps, whose estimates differ by rounding, and how many times that an estimate may be off."""

SMOOTH = ("real", "positive", "time")
"""Kinds of inputs along which there are slopes; none along counts and labels."""


def slopes(
    evaluate: Callable[[np.ndarray], np.ndarray],
    row: Float[np.ndarray, " inputs"],
    columns: Sequence[int],
    positive: Sequence[bool],
) -> Float[np.ndarray, "outputs columns"]:
    """Derivatives of rows of outputs by some of the inputs, those that are `positive` staying so."""
    found = []
    for column in columns:
        size = 0.5 * row[column] if positive[column] else max(1.0, abs(float(row[column])))
        steps = size / SHRINK ** np.arange(LEVELS)
        moved = np.tile(row, (2 * LEVELS, 1))
        moved[:, column] += np.concatenate([steps, -steps])
        steps = 0.5 * (moved[:LEVELS, column] - moved[LEVELS:, column])  # as they are after rounding
        above, below = np.split(np.asarray(evaluate(moved), float), 2)
        size = float(np.max(np.abs([above, below])))
        found.append(_best((above - below) / (2.0 * steps[:, None]), steps, size))
    return np.stack(found, axis=1)


def _best(
    differences: Float[np.ndarray, "levels outputs"], steps: Float[np.ndarray, " levels"], size: float
) -> Float[np.ndarray, " outputs"]:
    """From central differences, largest step first, of values up to `size`.

    Of estimates without the error of second order, that of the largest step which agrees with those of all smaller ones
    within what these are off by rounding: Lepski's choice. Rounding shows where steps are smallest.
    """
    square = SHRINK**2
    better = ((square * differences[1:] - differences[:-1]) / (square - 1.0))[::-1]
    steps = steps[:0:-1]
    scatter = np.abs(np.diff(better[:ROUNDED], axis=0)) * steps[: ROUNDED - 1, None]
    off = WIDE * np.maximum(scatter.max(axis=0), np.finfo(float).eps * size) / steps[:, None]
    low, high = np.maximum.accumulate(better - off), np.minimum.accumulate(better + off)
    agree = np.logical_and.accumulate(np.isfinite(better) & (low <= high))
    last = np.maximum(np.sum(agree, axis=0) - 1, 0)
    return np.take_along_axis(better, last[None], axis=0)[0]
