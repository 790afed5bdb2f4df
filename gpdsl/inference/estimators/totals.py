"""A sum of sampled expectations and its standard error, from replicates: behind every `elbo_se`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

FEWEST = 2.5
"""Degrees of freedom that are assumed at least: of two or fewer no variance exists."""

Variances = tuple[Float[np.ndarray, "strata"], int]
"""Variances of means, and the degrees of freedom of each."""


def sum_and_error(*parts: Float[np.ndarray, "_ ..."]) -> tuple[float, float]:
    """Sum over parts and strata of the means over R replicates, and its standard error.

    Replicates are estimates of the same numbers, independent of each other: sets of samples, not the samples of a set,
    which quasi-Monte-Carlo and mirroring make dependent. Strata are independent of each other too: rows, where each has
    samples of its own. The error is NaN of one replicate.
    """
    rows = [np.asarray(part, float).reshape(len(part), -1) for part in parts]
    return float(sum(np.sum(np.mean(each, axis=0)) for each in rows)), _error([_variances(each) for each in rows])


def some_rows_sum_and_error(replicates: Float[np.ndarray, "R n"], count: int) -> tuple[float, float]:
    """The sum over `count` rows and its standard error, from n of them, drawn without replacement.

    `replicates` are estimates of each, or one that is exact. The variance is that of two-stage sampling: that of the
    rows' means, which has a part of the samples' in it, and the rest of that.
    """
    drawn = replicates.shape[1]
    within, freedom = _variances(replicates) if len(replicates) > 1 else (np.zeros(1), 1)
    between, rows = _variances(count * np.mean(replicates, axis=0)[:, None])
    parts = [(within * count / drawn, freedom), (np.maximum(1.0 - drawn / count, 0.0) * between, rows)]
    return float(count * np.mean(replicates)), _error(parts)


def _variances(replicates: Float[np.ndarray, "R strata"]) -> Variances:
    count = len(replicates)
    return np.var(replicates, axis=0, ddof=1) / count if count > 1 else np.full(1, np.nan), count - 1


def _error(parts: list[Variances]) -> float:
    """The root of the sum of variances, and more where these are known from few replicates.

    Scores are then of Student's t, whose variance nu / (nu - 2) is put into the error, so that theirs is 1. The degrees
    of freedom nu are Satterthwaite's, without what the scatter of variances adds to their squares.
    """
    total = float(sum(np.sum(variances) for variances, _ in parts))
    if not total > 0.0:
        return total
    squares = sum(float(np.sum((variances / total) ** 2)) / (freedom + 2) for variances, freedom in parts)
    nu = max(1.0 / squares - 2.0, FEWEST)
    return float(np.sqrt(total * nu / (nu - 2.0)))
