"""Anything column-like to an array: float64 where it holds numbers, otherwise object with text and None."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import NotAColumn
from gpdsl.data.memory_maps import stays_on_disk

MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none"})
NUMBER_KINDS = "biuf"


def number_of(text: str) -> float | None:
    """The number a text stands for, NaN for the usual words for missing; None when it is other text."""
    if text.strip().lower() in MISSING_WORDS:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        return None


def from_texts(values: Sequence[str]) -> np.ndarray:
    """A column of a text file: float64 when every entry is a number or missing, otherwise object (None: missing)."""
    try:
        return np.array([float(value) for value in values])
    except ValueError:
        numbers = [number_of(value) for value in values]
    if None not in numbers:
        return np.array(numbers, dtype=np.float64)
    kept = [None if value.strip().lower() in MISSING_WORDS else value.strip() for value in values]
    return np.array(kept, dtype=object)


def from_object(name: str, values: object, source: str) -> np.ndarray:
    """An entry of a dictionary: a sequence or an array with rows first. Raises DataError for anything else.

    A memory map of numbers is left where it is.
    """
    if stays_on_disk(values):
        return values  # type: ignore[return-value]
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as problem:
        raise _not_a_column(name, "its rows have different lengths", source) from problem
    if array.ndim == 0:
        raise _not_a_column(name, f"it is a single {type(values).__name__}", source)
    if array.dtype.kind in NUMBER_KINDS:
        return array.astype(np.float64)
    if array.dtype.kind in "USO":
        return _from_mixed(name, array, source)
    raise _not_a_column(name, f"its type is {array.dtype}", source)


def _from_mixed(name: str, array: np.ndarray, source: str) -> np.ndarray:
    """Text, numbers and None together: numbers if all are, else text. Digits given as text stay text."""
    flat = array.ravel().tolist()
    wrong = next((value for value in flat if not _is_scalar(value)), None)
    if wrong is not None:
        raise _not_a_column(name, f"one of its entries is a {type(wrong).__name__}", source)
    if all(not isinstance(value, str | bytes) for value in flat):
        return np.array([np.nan if value is None else float(value) for value in flat]).reshape(array.shape)
    kept = [None if _is_missing(value) else _text_of(value) for value in flat]
    return np.array(kept, dtype=object).reshape(array.shape)


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | bytes | bool | int | float | np.number | np.bool_)


def _is_missing(value: object) -> bool:
    return value is None or value != value  # NaN is the one value that differs from itself


def _text_of(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _not_a_column(name: str, reason: str, source: str) -> DataError:
    return DataError(NotAColumn(name, reason), source=source)
