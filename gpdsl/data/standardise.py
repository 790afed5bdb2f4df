"""Standardising: values with mean 0 and standard deviation 1, and the two numbers that undo it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpdsl.data.bound import Data
from gpdsl.data.errors import DataError, shown
from gpdsl.data.memory_maps import pieces
from gpdsl.data.mistakes import CannotStandardise
from gpdsl.errors import GpdslError


class Standardised(NamedTuple):
    """`values = (original - mean) / sd`; mean and sd have the shape of one row."""

    values: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


def standardise(values: object, mean: object = None, sd: object = None, *, name: str = "x") -> Standardised:
    """Standardise an array [rows] or [rows, D], column by column; missing values (NaN) stay missing.

    With `mean` and `sd` those are used: the new rows of an old fit take the old numbers. Raises DataError for a column
    that is constant, since nothing is left of it, and GpdslError for what are no numbers.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise GpdslError(f"standardise: `{name}` holds values that are not numbers ({problem})") from problem
    centre = np.nanmean(array, axis=0) if mean is None else np.asarray(mean, dtype=np.float64)
    spread = np.nanstd(array, axis=0) if sd is None else np.asarray(sd, dtype=np.float64)
    flat = np.flatnonzero(np.atleast_1d(spread) == 0)
    if flat.size:
        column = name if spread.ndim == 0 else f"{name}{flat[0] + 1}"
        value = shown(float(np.atleast_1d(centre)[flat[0]]))
        raise DataError(CannotStandardise(column, value))
    return Standardised((array - centre) / spread, centre, spread)


# --- How far the inputs of bound data spread, column by column -------------------------------------------------------


def spreads(data: Data) -> dict[str, tuple[float, ...]]:
    """The standard deviation of each column of each input."""
    return {name: tuple(map(float, _deviations(values))) for name, values in data.inputs.items()}


def _deviations(values: np.ndarray) -> np.ndarray:
    """Piece by piece: the spread within each about its own mean, and that of their means."""
    counts, means, variances = [], [], []
    for _, piece in pieces(values):
        columns = np.reshape(piece, (len(piece), -1)).astype(np.float64)
        counts.append(len(columns))
        means.append(columns.mean(axis=0))
        variances.append(columns.var(axis=0))
    centre = np.average(means, axis=0, weights=counts)
    return np.sqrt(np.average(np.asarray(variances) + (np.asarray(means) - centre) ** 2, axis=0, weights=counts))
