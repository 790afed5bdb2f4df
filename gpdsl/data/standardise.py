"""The mean and standard deviation of the columns of bound data."""

from __future__ import annotations

import numpy as np

from gpdsl.data.bound import Data
from gpdsl.data.errors import CannotStandardise, DataError, shown
from gpdsl.data.table import pieces


def spreads(data: Data) -> dict[str, tuple[float, ...]]:
    """The standard deviation of each column of each input."""
    return {name: tuple(map(float, moments(values)[1].ravel())) for name, values in data.inputs.items()}


def moments(values: np.ndarray, observed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the observed values of each column, [*axes]; NaN and 0 without any.

    Piece by piece: the spread within each about its own mean, and that of their means. It is 0 of equal values only.
    """
    counts, means, variances, least, most = [], [], [], [], []
    for start, piece in pieces(values):
        known = np.ones(piece.shape, bool) if observed is None else observed[start : start + len(piece)]
        numbers, count = np.asarray(piece, np.float64), known.sum(axis=0)
        mean = np.sum(numbers, axis=0, where=known) / np.maximum(count, 1)
        counts.append(count)
        means.append(mean)
        variances.append(np.sum((numbers - mean) ** 2, axis=0, where=known) / np.maximum(count, 1))
        least.append(np.min(numbers, axis=0, where=known, initial=np.inf))
        most.append(np.max(numbers, axis=0, where=known, initial=-np.inf))
    total = np.sum(counts, axis=0)
    share = np.asarray(counts) / np.maximum(total, 1)
    centre = np.where(total > 0, np.sum(share * means, axis=0), np.nan)
    spread = np.sqrt(np.sum(share * (np.asarray(variances) + (np.asarray(means) - centre) ** 2), axis=0))
    return centre, np.where(np.min(least, axis=0) < np.max(most, axis=0), spread, 0.0)


def learn(data: Data, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of an input or output. Raises DataError for a column that has no spread, of which nothing is left."""
    of_output = name in data.outputs
    mean, sd = moments(data.outputs[name], data.observed[name]) if of_output else moments(data.inputs[name])
    wrong = np.flatnonzero(~((sd > 0) & np.isfinite(sd)).ravel())
    if wrong.size:
        value, names = float(mean.ravel()[wrong[0]]), data.column_names[name]
        constant = "missing" if np.isnan(value) else shown(value)
        raise DataError(CannotStandardise(names[min(wrong[0], len(names) - 1)], constant), source=data.source)
    return mean, sd
