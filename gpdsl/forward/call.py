"""Calling an opaque function on a batch and checking what comes back: shape, type and finiteness, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import numpy as np

from gpdsl.forward.errors import (
    Failed,
    FailedTogether,
    ForwardModelError,
    NotFiniteResult,
    NotNumeric,
    WrongResultShape,
    WrongRowShape,
    describe_row,
)
from gpdsl.forward.registry import ForwardModel

Arrays = Sequence[np.ndarray]


def call(model: ForwardModel, arguments: Arrays, expected_shape: tuple[int, ...]) -> np.ndarray:
    """The function's values at `arguments`, each [rows, *dims]: float64 [rows, *expected_shape], all finite.

    The function gets copies. Raises ForwardModelError naming the function, the row and its inputs when it raises an
    exception or returns a wrong shape, NaN or infinity; an interrupt from the keyboard passes through.
    """
    result = _vectorized(model, arguments) if model.vectorized else _row_by_row(model, arguments, expected_shape)
    return _checked(model, arguments, result, expected_shape)


def _vectorized(model: ForwardModel, arguments: Arrays) -> object:
    try:
        return model.function(*_copies(arguments))
    except Exception as problem:  # noqa: BLE001 - whatever a user's function raises is reported with its row
        _blame(model, arguments, problem)


def _copies(arguments: Arrays) -> list[np.ndarray]:
    return [np.array(values) for values in arguments]


def _row_by_row(model: ForwardModel, arguments: Arrays, shape: tuple[int, ...]) -> np.ndarray:
    def one(row: int) -> np.ndarray:
        try:
            result = model.function(*[_value(values[row]) for values in arguments])
        except Exception as problem:
            raise _failure(model, arguments, row, problem) from problem
        values = _as_numbers(model, result)
        if values.shape != shape:
            inputs = describe_row(_names(model, arguments), arguments, row)
            found = WrongRowShape(model.name, row + 1, inputs, str(list(values.shape)), str(list(shape)))
            raise ForwardModelError(found)
        return values

    rows = range(arguments[0].shape[0])
    if model.workers == 1:
        results = [one(row) for row in rows]
    else:
        with ThreadPoolExecutor(model.workers) as pool:
            results = list(pool.map(one, rows))
    return np.stack(results) if results else np.empty((0, *shape))


def _value(value: np.ndarray) -> np.ndarray | float:
    return np.array(value) if np.ndim(value) else float(value)


def _failure(model: ForwardModel, arguments: Arrays, row: int, problem: Exception) -> ForwardModelError:
    inputs = describe_row(_names(model, arguments), arguments, row)
    return ForwardModelError(Failed(model.name, row + 1, inputs, _described(problem)))


def _blame(model: ForwardModel, arguments: Arrays, problem: Exception) -> NoReturn:
    """Find a row that makes a failing batch fail, by halving: about log2(rows) further calls. Raises in any case."""
    first, last, cause = 0, arguments[0].shape[0], problem
    while last - first > 1:
        middle = (first + last) // 2
        for start, stop in ((first, middle), (middle, last)):
            found = _problem(model, [values[start:stop] for values in arguments])
            if found is not None:
                first, last, cause = start, stop, found
                break
        else:
            mistake = FailedTogether(model.name, arguments[0].shape[0], _described(problem))
            raise ForwardModelError(mistake) from problem
    raise _failure(model, arguments, first, cause) from cause


def _problem(model: ForwardModel, arguments: Arrays) -> Exception | None:
    try:
        model.function(*_copies(arguments))
    except Exception as problem:  # noqa: BLE001 - the exception is the answer
        return problem
    return None


def _described(problem: Exception) -> str:
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _names(model: ForwardModel, arguments: Arrays) -> Sequence[str]:
    return model.arguments or [f"argument {place}" for place in range(1, len(arguments) + 1)]


def _checked(model: ForwardModel, arguments: Arrays, result: object, shape: tuple[int, ...]) -> np.ndarray:
    values = _as_numbers(model, result)
    rows = arguments[0].shape[0]
    if values.shape != (rows, *shape):
        found = WrongResultShape(model.name, str(list(values.shape)), str([rows, *shape]))
        raise ForwardModelError(found)
    finite = np.isfinite(values.reshape(rows, -1)).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        worst = np.ravel(values[row])[~np.isfinite(np.ravel(values[row]))]
        inputs = describe_row(_names(model, arguments), arguments, row)
        value = "NaN" if np.isnan(worst[0]) else f"{worst[0]:g}"
        raise ForwardModelError(NotFiniteResult(model.name, row + 1, inputs, value))
    return values


def _as_numbers(model: ForwardModel, result: object) -> np.ndarray:
    try:
        values = np.asarray(result)
    except (ValueError, TypeError) as problem:
        raise ForwardModelError(NotNumeric(model.name, f"a {type(result).__name__}")) from problem
    if values.dtype.kind not in "biuf":
        kind = f"a {type(result).__name__}" if values.dtype.kind == "O" else f"of type {values.dtype}"
        raise ForwardModelError(NotNumeric(model.name, kind))
    return values.astype(np.float64)
