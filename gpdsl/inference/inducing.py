"""Where the inducing points start: k-means centres of the inputs (SAVIGP 9.2), of a subsample when rows are many."""

from __future__ import annotations

import numpy as np
from scipy.cluster.vq import kmeans2

from gpdsl.data import DataError, TooManyInducing

SUBSAMPLE = 20_000


def kmeans_centres(inputs: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` centres [count, D] of the rows [rows, D]. Raises DataError when there are fewer rows than centres."""
    if count > inputs.shape[0]:
        raise DataError(TooManyInducing(count, inputs.shape[0]))
    rows = inputs if inputs.shape[0] <= SUBSAMPLE else inputs[rng.choice(inputs.shape[0], SUBSAMPLE, replace=False)]
    distinct = np.unique(rows, axis=0)
    if distinct.shape[0] <= count:  # every distinct row is a centre; duplicates would make Kuu singular
        return distinct
    scale = distinct.std(axis=0)
    scale[scale == 0] = 1.0
    centres, _ = kmeans2(rows / scale, count, iter=20, minit="++", missing="warn", rng=rng)
    return _separate(centres * scale, distinct, rng)


def _separate(centres: np.ndarray, distinct: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Replace repeated centres by rows not among them: two equal inducing points make Kuu singular."""
    unique = np.unique(centres, axis=0)
    missing = centres.shape[0] - unique.shape[0]
    if missing:
        spare = distinct[rng.permutation(distinct.shape[0])]
        taken = {tuple(c) for c in unique}
        extra = [row for row in spare if tuple(row) not in taken][:missing]
        unique = np.concatenate([unique, np.asarray(extra)])
    return unique


def spanning_rows(covariance: np.ndarray, tolerance: float) -> np.ndarray:
    """Rows whose values determine all the others: pivoted Cholesky until no conditional variance exceeds `tolerance`.

    `covariance` [n, n] has unit scale; the result lists row numbers, each time the one with the largest variance left.
    A smooth kernel on many rows is spanned by few of them.
    """
    residual = np.array(np.diag(covariance))
    factor = np.zeros((0, covariance.shape[0]))
    chosen: list[int] = []
    while len(chosen) < covariance.shape[0]:
        pivot = int(np.argmax(residual))
        if residual[pivot] <= tolerance:
            break
        row = (covariance[pivot] - factor[:, pivot] @ factor) / np.sqrt(residual[pivot])
        factor = np.vstack([factor, row])
        residual = residual - row**2
        residual[pivot] = 0.0
        chosen.append(pivot)
    return np.asarray(chosen)
