"""Centres of clusters by Lloyd's iteration, with distances through one matrix product for all rows at once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

ITERATIONS = 10
"""Enough for centres that spread like the rows; inducing points need no more."""

ROWS_AT_ONCE = 4096


def lloyd(rows: Float[np.ndarray, "n D"], count: int, rng: np.random.Generator) -> Float[np.ndarray, "count D"]:
    """Centres of `rows`, in single precision: around zero and of unit scale, so that it tells which centre is nearest.

    They start at distinct rows at random; a centre that loses all its rows starts at another.
    """
    rows = rows.astype(np.float32)
    ones = np.ones(len(rows), np.float32)
    centres = rows[rng.choice(len(rows), count, replace=False)]
    for _ in range(ITERATIONS):
        nearest = _nearest(rows, centres)
        members = np.bincount(nearest, minlength=count)
        sums = csr_matrix((ones, (nearest, np.arange(len(rows)))), (count, len(rows))) @ rows
        centres = sums / np.maximum(members, 1, dtype=np.float32)[:, None]
        empty = np.flatnonzero(members == 0)
        centres[empty] = rows[rng.choice(len(rows), len(empty), replace=False)]
    return centres


def _nearest(rows: Float[np.ndarray, "n D"], centres: Float[np.ndarray, "count D"]) -> Int[np.ndarray, "n"]:
    squares = 0.5 * np.sum(centres**2, axis=1)
    parts = [rows[i : i + ROWS_AT_ONCE] for i in range(0, len(rows), ROWS_AT_ONCE)]
    return np.concatenate([np.argmin(squares - part @ centres.T, axis=1) for part in parts])
