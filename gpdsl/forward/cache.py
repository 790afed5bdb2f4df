"""Evaluations kept in a file between runs: one SQLite table, keyed by the function and the inputs of a row.

Values are stored as bytes of float64 and read back as such; nothing in the file is ever executed.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from gpdsl.forward.errors import ForwardModelError
from gpdsl.forward.mistakes import BadCache
from gpdsl.forward.registry import ForwardModel

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

    def _trouble(self, problem: sqlite3.Error) -> ForwardModelError:
        return ForwardModelError(BadCache(self.name, str(self.path), str(problem)))


def keys_of(model: ForwardModel, arguments: Sequence[np.ndarray]) -> list[bytes]:
    """SHA-256 of the function and of the inputs of each row; equal inputs have equal keys, on every machine."""
    rows = [np.ascontiguousarray(each, "<f8").reshape(len(each), -1) + 0.0 for each in arguments]
    shapes = [list(each.shape[1:]) for each in arguments]
    start = hashlib.sha256(f"{model.name} {model.sort} {shapes} {fingerprint(model.function)}".encode())
    table = np.concatenate(rows, axis=1) if rows else np.zeros((0, 0))
    keys = []
    for row in table:
        digest = start.copy()
        digest.update(row.tobytes())
        keys.append(digest.digest())
    return keys


def fingerprint(function: Any) -> str:
    """What tells a function from another of the same name: its own `fingerprint`, or its compiled code, if it has any.

    A function whose code has changed is another one. What it reads elsewhere, such as files, is not looked at.
    """
    own = getattr(function, "fingerprint", None)
    if isinstance(own, str):
        return own
    code = getattr(function, "__code__", None)
    return "" if code is None else _code_digest(code)


@lru_cache(maxsize=256)
def _code_digest(code: CodeType) -> str:
    constants = [_code_digest(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return hashlib.sha256(repr((code.co_code, code.co_names, constants)).encode()).hexdigest()


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
