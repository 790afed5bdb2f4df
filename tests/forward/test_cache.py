"""Evaluations kept in a file: found again by their inputs, never for another function, and never half-trusted."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from gpdsl.errors import GpdslError
from gpdsl.forward import ForwardModelError, evaluate, opaque
from gpdsl.forward.call import Cache, keys_of
from gpdsl.forward.fingerprint import fingerprint
from gpdsl.forward.registry import ForwardModel, per_field

DEPTH = np.arange(8.0).reshape(4, 2)
SPEED = np.array([1.0, 2.0, -1.0, 4.0])


class Counting:
    def __init__(self) -> None:
        self.rows: list[float] = []

    def __call__(self, depth: np.ndarray, speed: np.ndarray) -> np.ndarray:
        self.rows += speed.tolist()
        return np.where(speed[:, None] < 0, np.nan, depth / speed[:, None])


def test_known_rows_are_not_evaluated_again_and_failures_are_not_kept(tmp_path: Path) -> None:
    function = Counting()
    one = opaque(function, cache=str(tmp_path / "c.sqlite"), policy="penalise")
    for _ in range(2):
        found = evaluate(one, [DEPTH, SPEED], (2,))
        assert found.failed.tolist() == [False, False, True, False]
        np.testing.assert_array_equal(found.values[[0, 1, 3]], (DEPTH / SPEED[:, None])[[0, 1, 3]])
    assert function.rows == [*SPEED.tolist(), -1.0]
    assert (one.account.evaluations, one.account.hits) == (5, 3)
    more = evaluate(one, [DEPTH[::-1], SPEED[::-1] + [0, 0, 0, 1]], (2,))
    assert function.rows[5:] == [-1.0, 2.0]
    np.testing.assert_array_equal(more.values[0], DEPTH[3] / 4)


def test_many_rows_at_once(tmp_path: Path) -> None:
    function = Counting()
    one = opaque(function, cache=tmp_path / "many.sqlite")
    depth, speed = np.ones((1500, 2)), np.arange(1.0, 1501.0)
    for _ in range(2):
        np.testing.assert_array_equal(evaluate(one, [depth, speed], (2,)).values, depth / speed[:, None])
    assert len(function.rows) == 1500


def make(text: str) -> Any:
    space: dict[str, Any] = {"__name__": "a_module_of_the_users"}
    exec(text, space)  # noqa: S102 - functions with the same name and different code
    return space["f"]


def kept(function: Any) -> ForwardModel:
    return opaque(function, cache="c.sqlite")


def test_keys_tell_functions_codes_shapes_and_inputs_apart() -> None:
    same = make("def f(a, b):\n    return a + b")
    keys = {
        keys_of(kept(same), [DEPTH[:1], SPEED[:1]])[0],
        keys_of(kept(make("def f(a, b):\n    # a comment\n    return a + b")), [DEPTH[:1], SPEED[:1]])[0],
        keys_of(kept(same), [DEPTH[:1], SPEED[:1].astype("float32")])[0],
        keys_of(kept(same), [-0.0 * DEPTH[:1] + DEPTH[:1], SPEED[:1]])[0],
    }
    assert len(keys) == 1
    others = [
        keys_of(kept(make("def f(a, b):\n    return a + 2 * b")), [DEPTH[:1], SPEED[:1]]),
        keys_of(kept(same), [DEPTH[:1].reshape(1, 2, 1), SPEED[:1]]),
        keys_of(kept(same), [DEPTH[:1] + 1e-15, SPEED[:1]]),
    ]
    assert len(keys | {key for (key,) in others}) == 4


class Scaled:
    __slots__ = ("by",)

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, a: float) -> float:
        return self.by * a


def scaled(a: float, by: float = 1.0) -> float:
    return by * a


DIFFERENT = {
    "a helper of its module": [make(f"def g(a):\n    return {k} * a\ndef f(a):\n    return g(a)") for k in (1, 2)],
    "a value of its module": [make(f"table = {{'k': [{k}]}}\ndef f(a):\n    return table['k'][0] * a") for k in (1, 2)],
    "an array of its module": [make(f"import numpy\nt = numpy.ones(2) * {k}\ndef f(a): return t * a") for k in (1, 2)],
    "a default": [make(f"def f(a, k={k}):\n    return k * a") for k in (1, 2)],
    "a value of its class": [
        make(f"class C:\n    k = {k}\n    def __call__(self, a):\n        return self.k * a\nf = C()") for k in (1, 2)
    ],
    "a static method": [
        make(f"class C:\n    @staticmethod\n    def g(a):\n        return {k} * a\n    __call__ = g\nf = C()")
        for k in (1, 2)
    ],
    "a closure": [make(f"def o(k):\n    return lambda a: k * a\nf = o({k})") for k in (1, 2)],
    "a bound argument": [partial(scaled, by=1.0), partial(scaled, by=2.0)],
    "a field": [Scaled(1.0), Scaled(2.0)],
    "the object of a method": [Scaled(1.0).__call__, Scaled(2.0).__call__],
    "compiled": [np.tanh, np.exp],
    "wrapped": [np.vectorize(scaled), np.vectorize(make("def f(a):\n    return a"))],
    "traced": [jax.jit(scaled), jax.jit(make("def f(a):\n    return a"))],
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_functions_that_depend_on_other_values_have_other_marks(one: Any, other: Any) -> None:
    """A cache answered for `np.exp` with what `np.tanh` had given: what has no code of its own was all alike."""
    assert fingerprint(one) == fingerprint(one) != fingerprint(other)
    fields = [per_field(kept(each), [True]).mark for each in (one, other)]
    assert fields[0] != fields[1]


def test_what_cannot_be_looked_through_asks_for_a_mark_of_its_own() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    function = partial(scaled, by=deep)
    with pytest.raises(GpdslError, match="partial.* cannot be told from others .*attribute `fingerprint`"):
        fingerprint(function)
    function.fingerprint = "deep"  # type: ignore[attr-defined]
    assert fingerprint(function) == "deep"


def test_what_a_function_writes_to_and_circles_leave_its_mark() -> None:
    text = (
        "import logging\nlog = logging.getLogger('x')\ndef f(a):\n    log.info(a)\n    return g(a)\ndef g(a):\n    f(a)"
    )
    function = make(text)
    before = fingerprint(function)
    logging.getLogger("x").setLevel(10)
    assert fingerprint(function) == before


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to look like one" * 30, None])
def test_a_file_that_is_no_cache_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "cache" if content is None else tmp_path / "text.txt"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(ForwardModelError, match="cannot be used"):
        evaluate(opaque(Counting(), cache=path), [DEPTH, np.abs(SPEED)], (2,))


def test_values_of_another_length_are_not_believed(tmp_path: Path) -> None:
    one = opaque(Counting(), cache=tmp_path / "c.sqlite")
    evaluate(one, [DEPTH, np.abs(SPEED)], (2,))
    with closing(sqlite3.connect(tmp_path / "c.sqlite")) as file, file:
        file.execute("UPDATE gpdsl_evaluations SET value = x'0011'")
    found = evaluate(one, [DEPTH, np.abs(SPEED)], (2,))
    np.testing.assert_array_equal(found.values, DEPTH / np.abs(SPEED)[:, None])


def test_a_cache_that_nobody_has_any_more_has_closed_its_file(tmp_path: Path) -> None:
    cache = Cache("f", tmp_path / "c.sqlite")
    file = cache._file
    file.execute("SELECT 1")
    del cache
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        file.execute("SELECT 1")
