"""The watch over numbers that all core tests run under notices what it is there for, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gpdsl.results.score import rmse
from tests import numbers
from tests.numbers import MANY, TOLERANCE, Watch, folded, numbers_of, read, watched


def _named(value: object) -> dict[str, numbers.Number]:
    return dict(numbers_of(value))


def test_numbers_have_the_places_that_they_stand_at() -> None:
    found = _named({"mean": np.ones(3), "parts": [2.0, jnp.zeros(2)], "name": "f", "none": None})
    assert found.keys() == {".mean", ".parts.0", ".parts.1"}
    assert _named(np.array([])) == {} and _named(np.array(["a"])) == {}


def test_records_of_others_have_none() -> None:
    @dataclass
    class Record:
        value: float = 1.0

    assert _named(Record()) == {}
    Record.__module__ = "gpdsl.results.fit"
    assert _named(Record()).keys() == {".value"}


def test_traced_arrays_have_none() -> None:
    seen = []
    jax.jit(lambda x: seen.append(_named(x)) or x)(jnp.ones(2))  # type: ignore[func-returns-value]
    assert seen == [{}]


@pytest.mark.parametrize(
    "change", [lambda x: x[::-1], lambda x: -x, lambda x: x * (1 + 5 * TOLERANCE), lambda x: x[:-1]]
)
def test_other_numbers_are_noticed_and_rounding_is_not(change: Callable[[np.ndarray], np.ndarray]) -> None:
    array = np.random.default_rng().standard_normal(7)
    before, after, same = (_named(each)[""] for each in (array, change(array), array * (1 + 1e-9)))
    assert not numbers.alike(before, after, TOLERANCE)
    assert numbers.alike(before, same, TOLERANCE)


def test_values_without_a_number_count() -> None:
    with_nan = _named(np.array([1.0, np.nan, np.inf]))[""]
    assert with_nan[2] == 1 and not numbers.alike(with_nan, _named(np.array([1.0, 1.0, 1.0]))[""], TOLERANCE)


def test_what_users_have_in_hand_is_watched_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def inner() -> float:
        return 1.0

    monkeypatch.setitem(numbers.WATCHED, __name__, ("Fit", "fit"))
    assert watched(inner, inner) is inner
    for name, seen in (("fit", True), ("Fit.mean", True), ("Fit._mean", False), ("Fit.mean.<locals>.part", False)):
        inner.__qualname__ = name
        assert (watched(inner, inner) is not inner) is seen
    assert hasattr(rmse, "__wrapped__")


def test_a_new_number_is_said_and_one_of_before_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(numbers.RECORD, raising=False)
    monkeypatch.setattr(numbers, "KEPT", tmp_path / "numbers.jsonl")
    number = _named(np.arange(3.0))[""]
    numbers.write({"tests/test_it.py": {"fit.mean": [number], "test_old": []}})
    numbers.kept.cache_clear()
    watch = Watch()
    try:
        watch.turn("tests/test_it.py", "test_old")
        watch.look("fit", {"mean": np.arange(3.0), "sd": np.ones(2)})
        assert not watch.said()
        watch.look("fit", {"mean": np.arange(3.0) + 0.1})
        assert "fit.mean" in watch.said() and not watch.said()
        for unknown in (("tests/test_another.py", "test_old"), ("tests/test_it.py", "test_new")):
            watch.turn(*unknown)
            watch.look("fit", {"mean": np.arange(3.0) + 0.1})
            assert not watch.said()
    finally:
        numbers.kept.cache_clear()


def test_runs_agree_on_what_is_kept(tmp_path: Path) -> None:
    one, two, three = ((x, abs(x), 1) for x in (1.0, 2.0, 3.0))
    many = [(float(k), 1.0, 1) for k in range(99)]
    first = {
        "a.py": {"same": [one, two], "other": [one], "gone": [three], "many": many, "test_it": []},
        "b.py": {"test_that_gives_none": []},
    }
    second = {"a.py": {"same": [two, one], "other": [two], "many": many, "test_it": []}, "b.py": first["b.py"]}
    assert len(many) > MANY
    assert folded([first, second]) == {"a.py": {"same": [one, two], "test_it": []}}
    (tmp_path / "gw0.json").write_text(json.dumps(first))
    assert read(tmp_path)["a.py"]["same"] == [list(one), list(two)]
