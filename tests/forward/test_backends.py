"""Where functions run: the same values everywhere, and faults that end in an error or a mark, never in a hang."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpdsl.forward import ForwardModel, ForwardModelError, evaluate, opaque, retry
from gpdsl.forward.processes import Processes, hire
from gpdsl.forward.work import READY, packed_function
from tests.forward import simulators
from tests.goldens import assert_golden

ROOT = Path(__file__).resolve().parents[2]
ROWS = 40
RANDOM = np.random.default_rng(3)
DEPTH = RANDOM.normal(size=(ROWS, 4))
SPEED = RANDOM.uniform(1, 2, ROWS)
BAD = 17


class Mapper:
    """Only `map`, as many libraries have it."""

    def map(self, function: Any, pieces: Iterable[Any]) -> Iterator[Any]:
        return map(function, pieces)


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[str, Processes]]:
    """One pool for each function: workers take most of a second to start."""
    found: dict[str, Processes] = {}
    yield found
    for pool in found.values():
        pool.close()


def model(function: Any, executor: object = None, **how: Any) -> ForwardModel:
    how = {"vectorized": False, "workers": 2, **how}
    return opaque(function, executor=executor, **how)


def pooled(pools: dict[str, Processes], function: Any, **how: Any) -> ForwardModel:
    pool = pools.setdefault(function.__name__, Processes(2))
    return model(function, pool, **how)


def with_bad_row(speed: np.ndarray = SPEED) -> list[np.ndarray]:
    return [DEPTH, np.where(np.arange(ROWS) == BAD, -1.0, speed)]


@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("executor", ["here", "threads", "processes", "futures", "mapper"])
def test_the_same_values_everywhere(executor: str, vectorized: bool, pools: dict[str, Processes]) -> None:
    where: dict[str, Any] = {"here": None, "mapper": Mapper(), "threads": "threads"}
    workers = 1 if executor == "here" else 2
    with concurrent.futures.ThreadPoolExecutor(2) as own:
        if executor == "processes":
            where["processes"] = pools.setdefault(f"product {vectorized}", Processes(2))
        where["futures"] = own
        one = model(simulators.product, where[executor], vectorized=vectorized, workers=workers)
        for rows in (1, ROWS):
            found = evaluate(one, [DEPTH[:rows], SPEED[:rows]], (4,))
            np.testing.assert_array_equal(found.values, (DEPTH * SPEED[:, None])[:rows])
            assert not found.failed.any()
    assert one.account.evaluations == ROWS + 1
    assert one.account.seconds > 0


def test_workers_start_late_work_together_and_stay(pools: dict[str, Processes]) -> None:
    one = pooled(pools, simulators.whoami)
    assert pools["whoami"].team == []
    first = evaluate(one, [DEPTH, SPEED], ()).values
    again = evaluate(one, [DEPTH, SPEED], ()).values
    assert len({*first, *again}) <= 2
    assert float(threading.get_native_id()) not in first


def test_workers_learn_several_functions(pools: dict[str, Processes]) -> None:
    pool = pools.setdefault("product", Processes(2))
    before: set[float] = set()
    for _ in range(2):
        here = evaluate(model(simulators.whoami, pool), [DEPTH, SPEED], ()).values
        before = before or set(here)
        assert set(here) <= {float(member.process.pid) for member in pool.team}
        found = evaluate(model(simulators.product, pool), [DEPTH, SPEED], (4,)).values
        np.testing.assert_array_equal(found, DEPTH * SPEED[:, None])
    assert before <= {float(member.process.pid) for member in pool.team}


def test_an_exception_names_its_row_and_keeps_the_traceback_of_the_worker(pools: dict[str, Processes]) -> None:
    with pytest.raises(
        ForwardModelError, match=f"row {BAD + 1} of the batch: ValueError: speeds are positive"
    ) as caught:
        evaluate(pooled(pools, simulators.failing), with_bad_row(), (4,))
    assert "in failing" in str(caught.value.__cause__)


def test_an_exception_that_cannot_be_sent_is_told(pools: dict[str, Processes]) -> None:
    with pytest.raises(ForwardModelError, match=r"row \d of the batch: Local"):
        evaluate(pooled(pools, simulators.unsendable), [DEPTH, SPEED], (4,))


@pytest.mark.parametrize("function", [simulators.failing, simulators.dying, simulators.hanging])
def test_only_the_bad_row_is_penalised(function: Any, pools: dict[str, Processes]) -> None:
    one = pooled(pools, function, policy="penalise", timeout=2.0)
    found = evaluate(one, with_bad_row(), (4,))
    assert np.flatnonzero(found.failed).tolist() == [BAD]
    np.testing.assert_array_equal(found.values[~found.failed], (DEPTH * SPEED[:, None])[~found.failed])
    assert one.account.penalised == 1


@pytest.mark.parametrize(
    ("function", "text"),
    [(simulators.dying, "died in row 18 of the batch.*signal 9"), (simulators.hanging, "row 18 .* more than 2 s")],
)
def test_workers_that_die_or_hang_are_reported(function: Any, text: str, pools: dict[str, Processes]) -> None:
    with pytest.raises(ForwardModelError, match=text):
        evaluate(pooled(pools, function, timeout=2.0), with_bad_row(), (4,))


def test_a_death_that_does_not_happen_again_costs_nothing(
    pools: dict[str, Processes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPDSL_TEST_MARK", str(tmp_path / "died"))
    depth, speed = with_bad_row()
    found = evaluate(pooled(pools, simulators.dying_once), [depth, speed], (4,))
    np.testing.assert_array_equal(found.values, depth * speed[:, None])
    assert (tmp_path / "died").exists()


def test_workers_killed_from_outside_are_replaced(pools: dict[str, Processes]) -> None:
    one = pooled(pools, simulators.product)
    for moment in ("idle", "again"):
        found = evaluate(one, [DEPTH, SPEED], (4,))
        assert not found.failed.any(), moment
        for worker in pools["product"].team:
            worker.process.kill()
            worker.process.join(10)


@pytest.mark.slow
def test_a_vectorised_function_that_dies_is_searched_for_the_row() -> None:
    pool = Processes(1)
    one = model(simulators.dying, pool, vectorized=True, workers=1)
    with pytest.raises(ForwardModelError, match="died in row 2 of the batch"):
        evaluate(one, [DEPTH[:3], np.array([1.0, -1.0, 1.0])], (4,))
    pool.close()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts arrive, also where the tests were started in the background, in which case a shell turns them off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_workers_that_are_busy_and_the_pool_goes_on(pools: dict[str, Processes]) -> None:
    one = pooled(pools, simulators.hanging)
    evaluate(one, [DEPTH, SPEED], (4,))
    alarm = threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT))
    alarm.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        evaluate(one, with_bad_row(), (4,))
    assert time.monotonic() - start < 50
    assert not evaluate(one, [DEPTH, SPEED], (4,)).failed.any()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_of_the_whole_terminal_passes_workers_by_that_have_just_begun() -> None:
    worker = hire("product", packed_function(simulators.product), 2)
    while not worker.pipe.poll(0.01):
        os.kill(worker.process.pid, signal.SIGINT)
    assert worker.pipe.recv() == (READY, "")
    worker.end()


ORPHAN = """
import os, signal, threading, time
from gpdsl.forward import evaluate, opaque
from gpdsl.forward.processes import Processes
from tests.forward import simulators, test_backends
pool = Processes(1)
one = opaque(simulators.hanging, executor=pool, vectorized=False, workers=1)
threading.Thread(target=evaluate, args=(one, test_backends.with_bad_row(), (4,)), daemon=True).start()
while not (pool.team and pool.team[0].row == test_backends.BAD):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_workers_end_without_a_word_when_their_parent_is_killed() -> None:
    """A worker holds standard error open as long as it lives."""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "", "")
    assert time.monotonic() - start < simulators.FOR_EVER


@pytest.mark.parametrize("executor", ["dask", "tcp://somewhere:8786"])
def test_without_dask_its_executors_say_what_to_install(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ForwardModelError) as caught:
        model(simulators.product, executor)
    assert_golden("forward/missing_extra.txt", str(caught.value))


def test_a_function_that_cannot_be_sent_is_refused_before_anything_starts() -> None:
    with pytest.raises(ForwardModelError, match="cannot be sent to worker processes.*lambda") as caught:
        evaluate(model(lambda depth, speed: depth, "processes"), [DEPTH, SPEED], (4,))
    assert "top level of a module" in str(caught.value)


@pytest.mark.parametrize("executor", [None, "threads", "mapper", "futures"])
def test_a_call_that_hangs_in_this_process_is_given_up(executor: Any) -> None:
    free = threading.Event()

    def hang(depth: np.ndarray, speed: float) -> np.ndarray:
        if speed < 0:
            free.wait(30)
        return depth * speed

    own = concurrent.futures.ThreadPoolExecutor(2)
    where = {"mapper": Mapper(), "futures": own}.get(executor, executor)
    start = time.monotonic()
    with pytest.raises(ForwardModelError, match=r"took more than 0\.01 s"):
        evaluate(model(hang, where, timeout=0.01), with_bad_row(), (4,))
    assert time.monotonic() - start < 15
    free.set()
    own.shutdown()


def test_threads_keep_what_a_row_that_hangs_leaves() -> None:
    free, calls = threading.Event(), []

    def hang(depth: np.ndarray, speed: float) -> np.ndarray:
        calls.append(speed)
        if speed < 0:
            free.wait(30)
        return depth * speed

    found = evaluate(model(hang, "threads", timeout=0.4, policy="penalise"), with_bad_row(), (4,))
    free.set()
    assert np.flatnonzero(found.failed).tolist() == [BAD]
    assert len(calls) == ROWS


def test_an_executor_that_is_shut_down_is_said_to_be() -> None:
    own = concurrent.futures.ThreadPoolExecutor(2)
    own.shutdown()
    with pytest.raises(ForwardModelError, match="cannot be reached any more"):
        evaluate(model(simulators.product, own, policy="penalise"), [DEPTH, SPEED], (4,))


def test_a_map_that_loses_results_is_noticed() -> None:
    class Lossy:
        def map(self, function: Any, pieces: Iterable[Any]) -> list[Any]:
            return [function(piece) for piece in pieces][1:]

    with pytest.raises(ForwardModelError, match="gave 7 results for 8 pieces"):
        evaluate(model(simulators.product, Lossy()), [DEPTH, SPEED], (4,))


@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("executor", [None, "threads"])
def test_retries_find_values_where_failures_are_chance(executor: str | None, vectorized: bool) -> None:
    random = np.random.default_rng(5)

    def moody(depth: np.ndarray, speed: np.ndarray) -> np.ndarray:
        values = np.array(simulators.product(depth, speed), float)  # type: ignore[arg-type]
        if vectorized:
            values[random.random(len(values)) < 0.3] = np.nan
        elif random.random() < 0.3:
            raise RuntimeError("not today")
        return values

    one = model(moody, executor, vectorized=vectorized, policy=retry(30), workers=1 if executor is None else 2)
    found = evaluate(one, [DEPTH, SPEED], (4,))
    np.testing.assert_array_equal(found.values, DEPTH * SPEED[:, None])
    assert one.account.failures > 0
    assert one.account.evaluations == ROWS + one.account.failures
    assert one.account.penalised == 0


def test_retries_end() -> None:
    one = model(simulators.failing, policy=retry(2), workers=1)
    with pytest.raises(ForwardModelError, match="speeds are positive"):
        evaluate(one, with_bad_row(), (4,))
    assert (one.account.evaluations, one.account.failures) == (ROWS + 2, 3)


def test_retries_do_not_exceed_the_budget() -> None:
    one = model(simulators.failing, policy=retry(50, "penalise"), workers=1)
    one.account.budget = ROWS + 3
    found = evaluate(one, with_bad_row(), (4,))
    assert one.account.evaluations == ROWS + 3
    assert found.failed.sum() == 1


def test_a_vectorised_exception_is_divided_until_only_the_bad_rows_are_left() -> None:
    one = model(simulators.failing, vectorized=True, policy="penalise", workers=1)
    speed = np.where(np.isin(np.arange(ROWS), [3, 29]), -1.0, SPEED)
    found = evaluate(one, [DEPTH, speed], (4,))
    assert np.flatnonzero(found.failed).tolist() == [3, 29]
    np.testing.assert_array_equal(found.values[~found.failed], (DEPTH * SPEED[:, None])[~found.failed])
