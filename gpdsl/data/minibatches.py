"""Minibatches: row numbers in shuffled order, every row once per epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int


def some_rows(rows: int, count: int, seed: int | Sequence[int] = 0) -> Int[np.ndarray, " some"]:
    """So many row numbers (from 0) at random, all where there are no more, in ascending order."""
    return np.sort(np.random.default_rng(seed).permutation(rows)[:count])


def minibatches(rows: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """An endless stream of batches of exactly `size` row numbers (from 0); the same seed gives the same stream.

    One shape means one compilation, so the rows left over at the end of an epoch are dropped; shuffling makes them
    others each time. `size` larger than `rows` gives all rows.
    """
    rng = np.random.default_rng(seed)
    width = min(size, rows)
    while True:
        order = rng.permutation(rows)
        for start in range(0, rows - width + 1, width):
            yield order[start : start + width]
