"""Anything column-like to an array: float64 where it holds numbers, otherwise object with text, dates and None."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np

from gpdsl.data.errors import DataError, shown
from gpdsl.data.file_mistakes import NotAColumn, TooManyDigits
from gpdsl.data.memory import refuse_beyond_memory
from gpdsl.data.memory_maps import stays_on_disk
from gpdsl.data.moments import as_datetimes, moment_of
from gpdsl.errors import described

MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none"})
NUMBER_KINDS = "biuf"


def number_of(text: str) -> float | None:
    """The number a text stands for, NaN for the usual words for missing; None when it is other text."""
    if text.strip().lower() in MISSING_WORDS:
        return float("nan")
    try:
        return _number(text)
    except ValueError:
        return None


def _number(text: str) -> float:
    """A number as people write it: Python also takes `1_000`, and the digits of every script."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def from_texts(values: Sequence[str]) -> np.ndarray:
    """A column of a text file: float64 when every entry is a number or missing, otherwise object (None: missing)."""
    try:
        return np.array([_number(value) for value in values])
    except ValueError:
        numbers = [number_of(value) for value in values]
    if None not in numbers:
        return np.array(numbers, dtype=np.float64)
    kept = [None if value.strip().lower() in MISSING_WORDS else value.strip() for value in values]
    return np.array(kept, dtype=object)


def from_object(name: str, values: object, source: str) -> np.ndarray:
    """A column: a sequence, an array with rows first, or a series of a data frame. Raises DataError for anything else.

    A memory map of numbers is left where it is; masked entries are missing.
    """
    if stays_on_disk(values):
        return values  # type: ignore[return-value]
    if not isinstance(values, np.ndarray | list | tuple):
        values = _from_series(values)
    try:
        array = np.asarray(values.data if isinstance(values, np.ma.MaskedArray) else values)
        if array.dtype.kind in "US" and not isinstance(values, np.ndarray):  # in which NumPy writes "nan" for NaN
            array = np.asarray(values, dtype=object)
    except Exception as problem:  # objects may make arrays of themselves in their own way
        reason = described(problem)
        raise _not_a_column(
            name, "its rows have different lengths" if "inhomogeneous" in reason else reason, source
        ) from problem
    if array.ndim == 0:
        raise _not_a_column(name, f"it is a single {type(values).__name__}", source)
    refuse_beyond_memory(8 * array.size, source)
    if array.dtype.kind in NUMBER_KINDS:
        with np.errstate(over="ignore"):  # of longer floats: what is infinite is found later
            array = array.astype(np.float64)
    elif array.dtype.kind in "USO":
        array = array.astype(object)
    elif array.dtype.kind == "M":
        return as_datetimes(array)
    else:
        raise _not_a_column(name, f"its type is {array.dtype}", source)
    if isinstance(values, np.ma.MaskedArray):
        array[np.ma.getmaskarray(values)] = np.nan
    return array if array.dtype != object else _from_mixed(name, array, source)


def _from_series(values: object) -> object:
    """A series of any data frame as an array of numbers or a list; anything else as it is."""
    import narwhals.stable.v2 as nw

    series = nw.from_native(values, series_only=True, pass_through=True)  # type: ignore[call-overload]
    if not isinstance(series, nw.Series):
        return values.to_pylist() if hasattr(values, "to_pylist") else values  # an array of pyarrow is no series
    if series.dtype.is_float():
        return series.cast(nw.Float64).to_numpy()
    numbers = series.dtype.is_integer() or series.dtype == nw.Boolean
    return series.to_numpy() if numbers and not series.null_count() else series.to_list()


def _from_mixed(name: str, array: np.ndarray, source: str) -> np.ndarray:
    """Text, numbers and None together: numbers if all are, else text. Digits given as text stay text; dates dates."""
    flat = [_entry(value) for value in array.ravel().tolist()]
    wrong = next((value for value in flat if not _is_scalar(value)), None)
    if wrong is not None:
        raise _not_a_column(name, f"one of its entries is a {type(wrong).__name__}", source)
    if any(isinstance(value, datetime) for value in flat):
        other = next((value for value in flat if not isinstance(value, datetime | None)), None)
        if other is not None:
            raise _not_a_column(name, f"some entries are dates, and one is a {type(other).__name__}", source)
        dates = np.empty(len(flat), dtype=object)
        dates[:] = flat
        return dates.reshape(array.shape)
    words = any(isinstance(value, str | bytes) for value in flat)
    kept: list[Any] = []
    for value in flat:
        try:
            kept.append(_text_of(value) if words else np.nan if value is None else float(value))
        except (OverflowError, ValueError) as problem:
            row = len(kept) // (array.size // len(array)) + 1
            raise DataError(TooManyDigits(name, row, shown(value)), source=source) from problem
    return np.array(kept, dtype=object if words else np.float64).reshape(array.shape)


def _entry(value: Any) -> Any:
    """An entry in plain Python: None for what pandas calls missing, the moments at which dates and periods begin."""
    if isinstance(value, float):
        return None if np.isnan(value) else value
    if isinstance(value, str | int | None):
        return value
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, Decimal):
        return float(value)
    moment = moment_of(value)
    return value if moment is None else moment


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | bytes | bool | int | float | datetime | np.integer | np.floating | np.bool_ | None)


def _text_of(value: object) -> str | None:
    """Text without the blanks around it, as in a file; None where nothing is left.

    The words for missing are those of files: Python has None and NaN, so that "none" can be a label.
    """
    if value is None or value != value:  # NaN is the one value that differs from itself
        return None
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip() or None


def _not_a_column(name: str, reason: str, source: str) -> DataError:
    return DataError(NotAColumn(name, reason), source=source)
