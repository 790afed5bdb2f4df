"""Calling opaque functions: results pass, whatever else comes back is named with its row and inputs."""

from __future__ import annotations

import threading
import time
from copy import copy
from types import SimpleNamespace

import numpy as np
import pytest

from gpdsl.errors import GpdslError, GpdslWarning
from gpdsl.forward import ForwardModel, ForwardModelError, call, errors, evaluate, registry
from gpdsl.forward.accounting import Usage
from gpdsl.forward.processes import Processes
from gpdsl.forward.work import Unreachable
from tests.goldens import assert_golden

DEPTH = np.arange(24.0).reshape(6, 4)
SPEED = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def times(depth: np.ndarray, speed: np.ndarray) -> np.ndarray:
    return depth / np.reshape(speed, (-1, 1)) if np.ndim(speed) else depth / speed


def model(function: object = times, **options: object) -> ForwardModel:
    return ForwardModel("travel_time", function, arguments=("depth", "speed"), **options)  # type: ignore[arg-type]


def test_a_batch_goes_through() -> None:
    np.testing.assert_allclose(call(model(), [DEPTH, SPEED], (4,)), DEPTH / SPEED[:, None])


@pytest.mark.parametrize("workers", [1, 3])
def test_row_by_row_gives_the_same(workers: int) -> None:
    result = call(model(vectorized=False, workers=workers), [DEPTH, SPEED], (4,))
    np.testing.assert_allclose(result, DEPTH / SPEED[:, None])


def test_rows_are_spread_over_threads() -> None:
    meeting = threading.Barrier(3, timeout=10)

    def wait(depth: np.ndarray, speed: float) -> float:
        meeting.wait()
        return speed

    assert call(model(wait, vectorized=False, workers=3), [DEPTH, SPEED], ()).shape == (6,)


def test_one_row_is_passed_without_the_row_axis() -> None:
    seen: list[tuple[object, ...]] = []

    def look(depth: np.ndarray, speed: float) -> float:
        seen.append((depth.shape, type(speed)))
        return 0.0

    call(model(look, vectorized=False), [DEPTH, SPEED], ())
    assert set(seen) == {((4,), float)}


def test_a_function_cannot_change_its_arguments() -> None:
    depth = DEPTH.copy()

    def spoil(values: np.ndarray, speed: np.ndarray) -> np.ndarray:
        values[:] = -1
        return values

    call(model(spoil), [depth, SPEED], (4,))
    np.testing.assert_array_equal(depth, DEPTH)


def test_whole_numbers_become_floats() -> None:
    assert call(model(lambda d, s: np.ones(6, dtype=int)), [DEPTH, SPEED], ()).dtype == np.float64


def test_no_rows() -> None:
    empty = [DEPTH[:0], SPEED[:0]]
    assert call(model(), empty, (4,)).shape == (0, 4)
    assert call(model(vectorized=False), empty, (4,)).shape == (0, 4)


def fails_at(bad: float) -> object:
    def function(depth: np.ndarray, speed: np.ndarray) -> np.ndarray:
        if np.any(speed == bad):
            raise ValueError(f"ray tracing failed:\n  speed {bad} in layer 2")
        return times(depth, speed)

    return function


def only_alone(depth: np.ndarray, speed: np.ndarray) -> np.ndarray:
    if len(depth) > 1:
        raise RuntimeError("one at a time, please")
    return depth


def spoilt(row: int, value: float) -> object:
    def function(depth: np.ndarray, speed: np.ndarray) -> np.ndarray:
        result = times(depth, speed)
        result[row, 2] = value
        return result

    return function


def vanish(depth: np.ndarray, speed: np.ndarray) -> np.ndarray:
    raise Unreachable("http://localhost:4242: Connection refused")


FAILURES: dict[str, ForwardModel] = {
    "exception": model(fails_at(5.0)),
    "exception_one_row": model(fails_at(5.0), vectorized=False),
    "exception_in_threads": model(fails_at(5.0), vectorized=False, workers=2),
    "exception_without_text": model(lambda d, s: 1 // 0 if len(d) < 2 else [][0]),
    "exception_only_together": model(only_alone),
    "wrong_shape": model(lambda d, s: s),
    "wrong_shape_transposed": model(lambda d, s: times(d, s).T),
    "wrong_shape_one_row": model(lambda d, s: d[:3], vectorized=False),
    "no_result": model(lambda d, s: None),
    "text_result": model(lambda d, s: np.full((6, 4), "fast")),
    "complex_result": model(lambda d, s: d + 1j),
    "ragged_result": model(lambda d, s: [[1, 2], [3]]),
    "nan": model(spoilt(3, np.nan)),
    "timeout": model(lambda d, s: time.sleep(5 * (s > 3.5)) or d, vectorized=False, timeout=0.5),
    "timeout_together": model(lambda d, s: time.sleep(5) or s, timeout=0.5),
    "unreachable": model(vanish),
    "infinite": model(spoilt(1, -np.inf)),
}


@pytest.mark.parametrize("name", FAILURES)
def test_error_text(name: str) -> None:
    with pytest.raises(ForwardModelError) as caught:
        call(FAILURES[name], [DEPTH, SPEED], (4,))
    assert_golden(f"forward/{name}.txt", str(caught.value))


def test_the_exception_of_the_function_is_the_cause() -> None:
    with pytest.raises(ForwardModelError) as caught:
        call(model(fails_at(5.0)), [DEPTH, SPEED], (4,))
    assert isinstance(caught.value.__cause__, ValueError)
    assert isinstance(caught.value.mistake, errors.Failed)
    assert caught.value.mistake.where == "row 5 of the batch"


def test_finding_the_row_takes_few_calls() -> None:
    calls: list[int] = []

    def count(depth: np.ndarray, speed: np.ndarray) -> np.ndarray:
        calls.append(len(depth))
        if np.any(speed == 700.0):
            raise ValueError("bad")
        return depth

    with pytest.raises(ForwardModelError, match="row 701"):
        call(model(count), [np.zeros((1024, 4)), np.arange(1024.0)], (4,))
    assert len(calls) <= 1 + 2 * 10
    assert sum(calls) <= 3 * 1024


def test_the_row_of_the_data_is_named_when_the_batch_repeats_it() -> None:
    with pytest.raises(ForwardModelError, match="failed in row 2 of the data"):
        call(model(fails_at(5.0)), [DEPTH, SPEED], (4,), data_rows=3)


def test_an_interrupt_passes_through() -> None:
    def interrupted(depth: np.ndarray, speed: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(model(interrupted), [DEPTH, SPEED], (4,))
    with pytest.raises(KeyboardInterrupt):
        call(model(interrupted, vectorized=False), [DEPTH, SPEED], (4,))


def test_an_unresolved_model_numbers_its_arguments() -> None:
    bare = ForwardModel("g", spoilt(0, np.nan))
    with pytest.raises(ForwardModelError, match=r"argument 1 = \[0, 1, 2, 3\], argument 2 = 1"):
        call(bare, [DEPTH, SPEED], (4,))


def test_every_mistake_has_a_code_of_its_own() -> None:
    kinds = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.ForwardMistake) and each is not errors.ForwardMistake
    ]
    assert len({each.code for each in kinds}) == len(kinds) >= 12
    assert registry.REGISTER.keys() == {registry.FORWARD, registry.LIKELIHOOD}


class Mute(Exception):
    """An exception that fails to describe itself."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


HOSTILE: dict[str, tuple[BaseException, str]] = {
    "colours": (ValueError("\x1b[2J\x9b31m red \u202e\ud800"), "ValueError: �[2J�31m red ��"),
    "long": (ValueError("x " * 1_000_000), "ValueError: " + "x " * 993 + "x…"),
    "no words": (Mute(), "Mute: (a Mute without words)"),
    "an end": (SystemExit(3), "SystemExit: 3"),
    "odd type": (type("\x1b[31mError", (Exception,), {})(), "�[31mError"),
}


@pytest.mark.parametrize("executor", [None, "threads", "map"])
@pytest.mark.parametrize("which", HOSTILE)
def test_what_a_function_says_steers_no_terminal_and_ends(which: str, executor: object) -> None:
    problem, text = HOSTILE[which]

    def fail(depth: np.ndarray, speed: float) -> float:
        raise problem

    mapper = SimpleNamespace(map=lambda function, pieces: [function(piece) for piece in pieces])
    with pytest.raises(ForwardModelError) as caught:
        call(model(fail, vectorized=False, executor=mapper if executor == "map" else executor), [DEPTH, SPEED], ())
    said = str(caught.value)
    assert text in said
    assert len(said) < 2400
    assert said.replace("\n", "").isprintable()
    cause = str(caught.value.__cause__) if executor == "map" else ""
    assert cause.replace("\n", "").isprintable()
    assert len(cause) <= 2001


def test_errors_and_warnings_quote_no_control_characters() -> None:
    for kind in (GpdslError, GpdslWarning):
        assert str(kind("line\x1b[1m\nline\r\t")) == "line�[1m\nline��"
        assert str(copy(kind("\a"))) == "�"


def test_rows_that_are_to_blame_are_found_by_halving() -> None:
    """Of a function of many rows that fails as a whole: values of the others are kept, of both bad rows it is told."""
    calls = []

    def failing(a: np.ndarray) -> np.ndarray:
        calls.append(len(a))
        if np.any(a < 0):
            raise ValueError("below 0")
        return 2 * a

    at = np.arange(16.0)
    at[[3, 9]] = -1.0
    found = evaluate(ForwardModel("double", failing, vectorized=True, policy="penalise", workers=1), [at], ())
    assert np.flatnonzero(found.failed).tolist() == [3, 9]
    np.testing.assert_array_equal(found.values[~found.failed], 2 * at[~found.failed])
    assert calls[0] == 16 and len(calls) <= 1 + 2 * 2 * 4


def test_what_the_cache_has_answered_is_counted_apart() -> None:
    said = Usage(evaluations=3, hits=1200).lines(1.0)
    assert said[1:] == ["1,200 more answered by the cache"] and len(Usage(evaluations=3).lines(1.0)) == 1


def test_a_pool_that_is_closed_ends_its_workers() -> None:
    ended: list[str] = []
    pool = Processes(2)
    pool.team += [SimpleNamespace(end=lambda name=name: ended.append(name), pieces=[]) for name in "ab"]  # type: ignore[misc]
    pool.close()
    assert ended == ["a", "b"] and pool.team == []


def test_long_arguments_are_shown_with_their_shapes() -> None:
    arguments = [np.zeros((2, 12)), np.ones((2, 2, 2)), np.ones((2, 3)), np.ones(2)]
    said = errors.describe_row(["map", "matrix", "path", "speed"], arguments, 1)
    zeros = ", ".join(["0"] * 8)
    assert said == (
        f"map = [{zeros}, ...] of shape [12], matrix = [1, 1, 1, 1] of shape [2, 2], path = [1, 1, 1], speed = 1"
    )
