"""Calling an opaque function on a batch and checking what comes back: shape, type and finiteness, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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


def call(
    model: ForwardModel,
    arguments: Sequence[np.ndarray],
    expected_shape: tuple[int, ...],
    *,
    data_rows: int | None = None,
) -> np.ndarray:
    """The function's values at `arguments`, each [rows, *dims]: float64 [rows, *expected_shape], all finite.

    The function gets copies. `data_rows` says that the batch is the rows of the data, repeated, so that errors can name
    the row of the data. Raises ForwardModelError with the function, the row and its inputs when it raises an exception
    or returns a wrong shape, NaN or infinity; an interrupt from the keyboard passes through.
    """
    batch = _Batch(model, arguments, expected_shape, data_rows)
    return batch.checked(batch.together() if model.vectorized else batch.row_by_row())


@dataclass(frozen=True, eq=False)
class _Batch:
    """One call: the function, its arguments, and what is expected back."""

    model: ForwardModel
    arguments: Sequence[np.ndarray]
    shape: tuple[int, ...]
    data_rows: int | None

    @property
    def rows(self) -> int:
        return self.arguments[0].shape[0]

    def together(self) -> object:
        """All rows in one call."""
        try:
            return self.model.function(*_copies(self.arguments))
        except Exception as problem:  # noqa: BLE001 - whatever a user's function raises is reported with its row
            self.blame(problem)

    def row_by_row(self) -> np.ndarray:
        """One call per row, spread over the workers."""
        if self.model.workers == 1:
            results = [self.one(row) for row in range(self.rows)]
        else:
            with ThreadPoolExecutor(self.model.workers) as pool:
                results = list(pool.map(self.one, range(self.rows)))
        return np.stack(results) if results else np.empty((0, *self.shape))

    def one(self, row: int) -> np.ndarray:
        try:
            result = self.model.function(*[_value(values[row]) for values in self.arguments])
        except Exception as problem:
            raise self.failure(row, problem) from problem
        values = self.as_numbers(result)
        if values.shape != self.shape:
            shapes = str(list(values.shape)), str(list(self.shape))
            raise ForwardModelError(WrongRowShape(self.model.name, self.where(row), self.inputs(row), *shapes))
        return values

    def checked(self, result: object) -> np.ndarray:
        """The result as finite float64 of the expected shape."""
        values = self.as_numbers(result)
        if values.shape != (self.rows, *self.shape):
            shapes = str(list(values.shape)), str([self.rows, *self.shape])
            raise ForwardModelError(WrongResultShape(self.model.name, *shapes))
        if not np.isfinite(values).all():
            first = np.argwhere(~np.isfinite(values))[0]
            row, wrong = int(first[0]), float(values[tuple(first)])
            value = "NaN" if np.isnan(wrong) else f"{wrong:g}"
            raise ForwardModelError(NotFiniteResult(self.model.name, self.where(row), self.inputs(row), value))
        return values

    def as_numbers(self, result: object) -> np.ndarray:
        try:
            values = np.asarray(result)
        except (ValueError, TypeError) as problem:
            raise ForwardModelError(NotNumeric(self.model.name, f"a {type(result).__name__}")) from problem
        if values.dtype.kind not in "biuf":
            kind = f"a {type(result).__name__}" if values.dtype.kind == "O" else f"of type {values.dtype}"
            words = "None: a `return` may be missing" if result is None else kind
            raise ForwardModelError(NotNumeric(self.model.name, words))
        return values.astype(np.float64)

    def blame(self, problem: Exception) -> NoReturn:
        """Find a row that makes a failing batch fail, by halving: about 2 log2(rows) further calls. Always raises."""
        first, last, cause = 0, self.rows, problem
        while last - first > 1:
            middle = (first + last) // 2
            for start, stop in ((first, middle), (middle, last)):
                found = _problem(self.model, [values[start:stop] for values in self.arguments])
                if found is not None:
                    first, last, cause = start, stop, found
                    break
            else:
                raise ForwardModelError(FailedTogether(self.model.name, self.rows, _described(problem))) from problem
        raise self.failure(first, cause) from cause

    def failure(self, row: int, problem: Exception) -> ForwardModelError:
        mistake = Failed(self.model.name, self.where(row), self.inputs(row), _described(problem))
        return ForwardModelError(mistake)

    def where(self, row: int) -> str:
        """How a message names a row (from 0) of the batch."""
        return (
            f"row {row + 1} of the batch" if self.data_rows is None else f"row {row % self.data_rows + 1} of the data"
        )

    def inputs(self, row: int) -> str:
        names = self.model.arguments or [f"argument {place}" for place in range(1, len(self.arguments) + 1)]
        return describe_row(names, self.arguments, row)


def _copies(arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.array(values) for values in arguments]


def _value(value: np.ndarray) -> np.ndarray | float:
    return np.array(value) if np.ndim(value) else float(value)


def _problem(model: ForwardModel, arguments: Sequence[np.ndarray]) -> Exception | None:
    try:
        model.function(*_copies(arguments))
    except Exception as problem:  # noqa: BLE001 - the exception is the answer
        return problem
    return None


def _described(problem: Exception) -> str:
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
