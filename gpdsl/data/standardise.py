"""Standardising: values with mean 0 and standard deviation 1, and the two numbers that undo it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpdsl.data.errors import DataError, shown
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
