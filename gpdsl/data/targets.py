"""What estimators refuse in rows and targets: words, dates and lengths of time for numbers, words among numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

import numpy as np

from gpdsl.data.table import as_datetimes
from gpdsl.errors import GpdslError, quoted

WORDS_IN_Y = "Regressor: y holds words; expected numbers, or use Classifier for labels"


class NotNumbersError(GpdslError, ValueError):
    """Words or dates where numbers are expected; scikit-learn asks for a ValueError there."""


@contextmanager
def numbers_expected(estimator: object, X: Any, y: Any = None) -> Iterator[None]:
    """What scikit-learn says of columns [rows, columns] and targets [rows] that hold words, in words for users.

    Columns of dates alone are refused as well, which it takes for numbers in whatever unit these dates have.
    """
    if _all_dates(X):
        lengths = NotNumbersError(
            f"{type(estimator).__name__}: X holds lengths of time; divide them by a unit, as a day"
        )
        raise _refusal(estimator, X) or lengths
    try:
        yield
    except (TypeError, ValueError) as problem:
        if "feature names" in str(problem):  # other columns than those of the fit
            raise
        if (refusal := _refusal(estimator, X)) is not None:
            raise refusal from problem
        found = None if y is None else not_a_number(np.asarray(y, dtype=object).reshape(-1, 1))
        if found is not None and isinstance(found[2], str):
            raise NotNumbersError(WORDS_IN_Y) from problem
        raise


def _refusal(estimator: object, X: Any) -> NotNumbersError | None:
    """The error of the first word or date in X; None where there is none."""
    if (found := not_a_number(X)) is None:
        return None
    row, column, value = found
    names = [quoted(each) for each in getattr(X, "columns", ())]
    where = f"column `{names[column]}`" if names else f"column {column + 1}"
    holds = "words" if isinstance(value, str) else "dates"
    instead = "encode it, as sklearn.preprocessing.OneHotEncoder does, or declare it as a label in a model"
    if holds == "dates":
        instead = "pass numbers, as days since the first, or declare it as a time in a model"
    return NotNumbersError(
        f"{type(estimator).__name__}: {where} of X holds {holds}, {quoted(repr(value))[:60]} in row {row + 1}; "
        f"expected numbers: {instead} of your own, whose inputs a data frame gives by name"
    )


def _all_dates(X: Any) -> bool:
    """Whether all columns of a frame or an array are dates, or lengths of time."""
    if getattr(X, "ndim", 2) != 2:  # of which scikit-learn says what shape is expected
        return False
    kinds = [getattr(each, "kind", "") for each in getattr(X, "dtypes", [getattr(X, "dtype", None)])]
    return bool(kinds) and set(kinds) <= {"M", "m"}


def not_a_number(X: Any) -> tuple[int, int, str | date | np.datetime64] | None:
    """The first word or date among rows and columns, with its row and column from 0; None where there is none."""
    try:
        table = (
            as_datetimes(np.asarray(X))
            if getattr(getattr(X, "dtype", None), "kind", "") == "M"
            else np.asarray(X, dtype=object)
        )
    except (TypeError, ValueError):  # rows of several lengths
        return None
    if table.ndim != 2:
        return None
    for row, column in np.ndindex(*table.shape):
        value = table[row, column]
        if isinstance(value, date | np.datetime64) or (isinstance(value, str) and not _is_number(value)):
            return row, column, value
    return None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def refuse_odd_labels(estimator: object, y: Any) -> None:
    """Raise NotNumbersError for labels [rows] of which some are words and others numbers, or missing."""
    if getattr(getattr(y, "dtype", None), "kind", "O") != "O":
        return
    try:
        flat = np.asarray(y, dtype=object).ravel().tolist()
    except (TypeError, ValueError):  # rows of several lengths, of which scikit-learn tells
        return
    words = [isinstance(each, str) for each in flat]
    numbers = [isinstance(each, int | float | np.number) and each == each for each in flat]
    missing = [each is None or each != each for each in flat]
    if any(words) and any(missing):
        raise NotNumbersError(
            f"{type(estimator).__name__}: y is missing in row {missing.index(True) + 1}; leave rows without a label out"
        )
    if any(words) and any(numbers):
        word, number = words.index(True), numbers.index(True)
        raise NotNumbersError(
            f"{type(estimator).__name__}: y mixes words and numbers, {quoted(repr(flat[word]))[:60]} in row {word + 1} "
            f"and {flat[number]!r} in row {number + 1}; make all labels text: [str(each) for each in y]"
        )
