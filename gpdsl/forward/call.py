"""Calling an opaque function on a batch: from the cache or where it runs, checked row by row, under its policy.

What comes back is finite, or an error that names the function, the row and its inputs, or, under `penalise`, marked.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpdsl.forward import errors
from gpdsl.forward.errors import AllFailed, BadCache, Gone, TimedOut, WorkerDied
from gpdsl.forward.registry import ForwardModel
from gpdsl.forward.work import Answer, Fault, Job, take

# Evaluations kept in a file between runs: one SQLite table, keyed by the function and the inputs of a row.
#
# Values are stored as bytes of float64 and read back as such; nothing in the file is ever executed.

WAIT_SECONDS = 30.0
"""For another process that writes to the same file."""

AT_ONCE = 500
"""Keys in one question to the file: SQLite allows 999."""

SCHEMA = "CREATE TABLE IF NOT EXISTS gpdsl_evaluations (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"


class Cache:
    """One open file. It may be shared by threads, processes and functions."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self._lock = threading.Lock()
        try:
            self._file = sqlite3.connect(path, timeout=WAIT_SECONDS, check_same_thread=False)
            weakref.finalize(self, self._file.close)  # Python 3.13 warns of one that the collector has to close
            with self._file:
                self._file.execute(SCHEMA)
        except sqlite3.Error as problem:
            raise self._trouble(problem) from problem

    def find(
        self, model: ForwardModel, arguments: Sequence[np.ndarray], shape: tuple[int, ...]
    ) -> dict[int, np.ndarray]:
        """The rows whose values are known."""
        keys = keys_of(model, arguments)
        found: dict[bytes, bytes] = {}
        with self._lock:
            try:
                for start in range(0, len(keys), AT_ONCE):
                    some = keys[start : start + AT_ONCE]
                    marks = ",".join("?" * len(some))
                    question = f"SELECT key, value FROM gpdsl_evaluations WHERE key IN ({marks})"
                    found |= dict(self._file.execute(question, some).fetchall())
            except sqlite3.Error as problem:
                raise self._trouble(problem) from problem
        size = 8 * int(np.prod(shape, dtype=int))
        return {
            row: np.frombuffer(found[key]).reshape(shape)
            for row, key in enumerate(keys)
            if key in found and len(found[key]) == size
        }

    def keep(self, model: ForwardModel, arguments: Sequence[np.ndarray], values: np.ndarray, rows: np.ndarray) -> None:
        """Remember the values of these rows."""
        if not rows.size:
            return
        keys = keys_of(model, [each[rows] for each in arguments])
        pairs = [(key, values[row].tobytes()) for key, row in zip(keys, rows, strict=True)]
        with self._lock:
            try:
                with self._file:
                    self._file.executemany("INSERT OR REPLACE INTO gpdsl_evaluations VALUES (?, ?)", pairs)
            except sqlite3.Error as problem:
                raise self._trouble(problem) from problem

    def _trouble(self, problem: sqlite3.Error) -> errors.ForwardModelError:
        return errors.ForwardModelError(BadCache(self.name, str(self.path), str(problem)))


def keys_of(model: ForwardModel, arguments: Sequence[np.ndarray]) -> list[bytes]:
    """SHA-256 of the function and of the inputs of each row; equal inputs have equal keys, on every machine."""
    rows = [np.ascontiguousarray(each, "<f8").reshape(len(each), -1) + 0.0 for each in arguments]
    shapes = [list(each.shape[1:]) for each in arguments]
    start = hashlib.sha256(f"{model.name} {model.sort} {shapes} {model.mark}".encode())
    table = np.concatenate(rows, axis=1) if rows else np.zeros((0, 0))
    keys = []
    for row in table:
        digest = start.copy()
        digest.update(row.tobytes())
        keys.append(digest.digest())
    return keys


_OPEN: dict[Path, Cache] = {}
_OPENING = threading.Lock()


def cache_of(model: ForwardModel) -> Cache | None:
    """The file a model keeps its evaluations in, opened once. Raises ForwardModelError for one that cannot be used."""
    if model.cache is None:
        return None
    path = Path(model.cache).resolve()
    with _OPENING:
        if path not in _OPEN or not path.exists():
            _OPEN[path] = Cache(model.name, path)
        return _OPEN[path]


@dataclass(frozen=True, eq=False)
class Evaluated:
    """`values` float64 [rows, *shape], NaN in the rows that `failed` [rows] says have none: none, but to penalise."""

    values: np.ndarray
    failed: np.ndarray


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
    or returns a wrong shape, NaN or infinity; an interrupt from the keyboard passes through. Under `penalise` a row
    that failed gets the value of another sample of its row of the data; an error when there is none.
    """
    found = evaluate(model, arguments, expected_shape, data_rows=data_rows)
    if not found.failed.any():
        return found.values
    batch = _Batch(model, arguments, expected_shape, data_rows)
    source = stand_ins(found.failed, data_rows or len(found.failed))
    if (source < 0).any():
        row = int(np.argmax(source < 0))
        reason = "those that failed are penalised, but none is left"
        raise errors.ForwardModelError(AllFailed(model.name, batch.where(row), batch.inputs(row), reason))
    return found.values[source]


def stand_ins(failed: np.ndarray, data_rows: int) -> np.ndarray:
    """For each row of the batch the one whose value it gets: itself, or the next sample that succeeded; -1: none.

    The batch is the rows of the data, repeated.
    """
    rows = np.arange(failed.size).reshape(-1, data_rows)
    table = np.where(failed.reshape(-1, data_rows), -1, rows)
    source = table.copy()
    for column in np.flatnonzero((table < 0).any(axis=0)):
        good = np.flatnonzero(table[:, column] >= 0)
        if good.size:
            places = np.searchsorted(good, np.arange(len(table))) % good.size
            source[:, column] = rows[good[places], column]
    return source.reshape(-1)


def evaluate(
    model: ForwardModel,
    arguments: Sequence[np.ndarray],
    expected_shape: tuple[int, ...],
    *,
    data_rows: int | None = None,
) -> Evaluated:
    """`call`, but under `penalise` rows without a value are told apart: NaN, and marked."""
    batch = _Batch(model, arguments, expected_shape, data_rows)
    values = np.full((batch.rows, *expected_shape), np.nan)
    cache = cache_of(model)
    left = np.arange(batch.rows)
    if cache is not None:
        known = cache.find(model, arguments, expected_shape)
        for row, value in known.items():
            values[row] = value
        left = np.asarray([row for row in left if row not in known], int)
        model.account.hits += len(known)
    # Fill in values as often as the policy has it, and the budget; the rows that still fail, and why.
    account, faults = batch.model.account, dict[int, Fault]()
    for attempt in range(batch.model.failures.attempts + 1):
        if not left.size or (attempt and account.remaining < left.size):
            break
        faults = batch.evaluated(left, values)
        account.failures += len(faults)
        left = np.asarray(sorted(faults), int)

    if cache is not None:
        cache.keep(model, arguments, values, np.asarray(sorted({*range(batch.rows)} - {*known, *faults}), int))
    failed = np.zeros(batch.rows, bool)
    failed[left] = True
    if faults and not model.failures.penalises:
        raise batch.error(faults)
    model.account.penalised += int(failed.sum())
    return Evaluated(values, failed)


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

    @property
    def strict(self) -> bool:
        """Whether the first failure ends everything."""
        policy = self.model.failures
        return not policy.attempts and not policy.penalises

    def evaluated(self, rows: np.ndarray, values: np.ndarray) -> dict[int, Fault]:
        """Fill in the values of these rows; the rows that failed, with the reason."""
        faults: dict[int, Fault] = {}
        for some, answer in self.run(rows):
            faults |= self.sorted(some, answer, values)
        gone = [row for row, fault in faults.items() if fault.kind == "unreachable"]
        if gone:
            raise self.failure(gone[0], faults[gone[0]])
        return faults

    def run(self, rows: np.ndarray) -> list[tuple[np.ndarray, Answer]]:
        """Call the function on these rows, wherever it runs; answers with the rows they are for."""
        model, account = self.model, self.model.account
        whole = len(rows) == self.rows
        arguments = self.arguments if whole else take(self.arguments, rows)
        job = Job(model.name, model.function, model.vectorized, model.timeout, self.strict)
        start = time.perf_counter()
        try:
            pieces = model.backend.run(job, arguments)
        finally:
            account.seconds += time.perf_counter() - start
        account.evaluations += sum(len(a) if isinstance(a, list) else p.stop - p.start for p, a in pieces)
        return [(rows[piece], answer) for piece, answer in pieces]

    def sorted(self, rows: np.ndarray, answer: Answer, values: np.ndarray) -> dict[int, Fault]:
        """Put the values of an answer in their places; the rows that failed, with the reason."""
        if isinstance(answer, Fault):
            return self.divided(rows, answer, values)
        if isinstance(answer, list):
            faults: dict[int, Fault] = {}
            for row, one in zip(rows.tolist(), answer, strict=False):
                place = np.asarray([row])
                faults |= {row: one} if isinstance(one, Fault) else self.sorted(place, one[None], values)
            return faults
        expected = (len(rows), *self.shape)
        if self.model.flat and answer.size == np.prod(expected, dtype=int):
            answer = answer.reshape(expected)
        if answer.shape != expected:
            if self.model.vectorized:
                shapes = str(list(answer.shape)), str(list(expected))
                raise errors.ForwardModelError(errors.WrongResultShape(self.model.name, *shapes))
            return {row: Fault("shape", str(list(answer.shape[1:]))) for row in rows.tolist()}
        values[rows] = answer
        wrong = ~np.isfinite(answer).reshape(len(rows), -1).all(axis=1)
        return {int(row): Fault("value", _first_odd(values[row])) for row in rows[wrong]}

    def divided(self, rows: np.ndarray, fault: Fault, values: np.ndarray) -> dict[int, Fault]:
        """A call gave nothing as a whole: find the rows that are to blame by halving."""
        if fault.kind == "unreachable":
            raise self.failure(int(rows[0]), fault)
        if fault.kind == "type" and self.model.vectorized:
            raise errors.ForwardModelError(errors.NotNumeric(self.model.name, fault.text)) from fault.origin
        if len(rows) == 1:
            return {int(rows[0]): fault}
        if self.strict:
            return self.blamed(rows, fault)
        faults: dict[int, Fault] = {}
        for half in np.array_split(rows, 2):
            for some, answer in self.run(half):
                faults |= self.sorted(some, answer, values)
        return faults

    def blamed(self, rows: np.ndarray, fault: Fault) -> dict[int, Fault]:
        """One row that makes a failing call fail, by about 2 log2(rows) further calls. Raises where there is none."""
        if fault.kind == "timeout":
            return {int(rows[0]): replace(fault, text=f"{len(rows)} rows")}
        some, cause = rows, fault
        while len(some) > 1:
            for half in np.array_split(some, 2):
                found = next((a for _, a in self.run(half) if isinstance(a, Fault)), None)
                if found is not None:
                    some, cause = half, found
                    break
            else:
                raise errors.ForwardModelError(
                    errors.FailedTogether(self.model.name, len(rows), fault.text)
                ) from fault.origin
        return {int(some[0]): cause}

    def error(self, faults: dict[int, Fault]) -> errors.ForwardModelError:
        """The error for the first of several rows."""
        row = min(faults)
        return self.failure(row, faults[row])

    def failure(self, row: int, fault: Fault) -> errors.ForwardModelError:
        error = errors.ForwardModelError(self.mistake(row, fault))
        error.__cause__ = fault.origin
        return error

    def mistake(self, row: int, fault: Fault) -> errors.ForwardMistake:
        name, where, inputs = self.model.name, self.where(row), self.inputs(row)
        match fault.kind:
            case "unreachable":
                return Gone(name, fault.text)
            case "timeout":
                limit = Job(name, self.model.function, self.model.vectorized, self.model.timeout).patience
                several = fault.text.endswith("rows")
                return TimedOut(
                    name, f"{fault.text} that begin with {where}" if several else where, inputs, f"{limit:g}"
                )
            case "died":
                return WorkerDied(name, where, inputs, fault.text)
            case "value":
                return errors.NotFiniteResult(name, where, inputs, fault.text)
            case "shape":
                return errors.WrongRowShape(name, where, inputs, fault.text, str(list(self.shape)))
            case "type":
                return errors.NotNumeric(name, fault.text)
        return errors.Failed(name, where, inputs, fault.text)

    def where(self, row: int) -> str:
        """How a message names a row (from 0) of the batch."""
        return (
            f"row {row + 1} of the batch" if self.data_rows is None else f"row {row % self.data_rows + 1} of the data"
        )

    def inputs(self, row: int) -> str:
        names = self.model.arguments or [f"argument {place}" for place in range(1, len(self.arguments) + 1)]
        return errors.describe_row(names, self.arguments, row)


def _first_odd(values: np.ndarray) -> str:
    flat = np.ravel(values)
    wrong = float(flat[~np.isfinite(flat)][0])
    return "NaN" if np.isnan(wrong) else f"{wrong:g}"
