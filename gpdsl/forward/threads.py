"""Threads of this process: for functions that wait, or that release Python's lock, such as compiled code.

A thread that exceeds its time cannot be ended; it is given up, and another one takes its place.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpdsl.errors import plural, quoted
from gpdsl.forward import work as jobs

MOST_GIVEN_UP = 32
"""Threads that may hang at the same time in one batch."""


@dataclass(eq=False)
class _Piece:
    """Some rows that one thread works on, and how far it is. `since` is 0 while nothing runs."""

    rows: slice
    answer: jobs.Answer | None = None
    problem: BaseException | None = None
    since: float = 0.0
    given_up: bool = False
    done: list[np.ndarray | jobs.Fault] = field(default_factory=list)


class _GivenUp(Exception):
    """Ends a thread whose rows another one has taken over."""


class Threads(jobs.Backend):
    """`workers` daemon threads for each batch; a thread costs some 50 microseconds to start."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.place = f"in {plural(workers, 'thread')}"

    def run(self, job: jobs.Job, arguments: Sequence[np.ndarray]) -> jobs.Pieces:
        batch = _Batch(job, arguments, self.workers)
        try:
            return batch.finished()
        finally:
            batch.waiting.clear()


class _Batch:
    """One batch: pieces that wait, pieces that run, and pieces that are done."""

    def __init__(self, job: jobs.Job, arguments: Sequence[np.ndarray], workers: int) -> None:
        self.job = job
        self.arguments = arguments
        rows = len(arguments[0])
        self.waiting = deque(
            _Piece(rows) for rows in (job.pieces(rows, workers) if workers > 1 else jobs.even(rows, 1))
        )
        self.running: list[_Piece] = []
        self.results: jobs.Pieces = []
        self.change = threading.Condition()
        self.given_up = 0
        self.threads = min(workers, len(self.waiting))

    def finished(self) -> jobs.Pieces:
        for _ in range(self.threads):
            self._start()
        with self.change:
            while True:
                for piece in list(self.running):
                    if piece.problem is not None:
                        raise piece.problem
                    if piece.answer is not None:
                        self.running.remove(piece)
                        self.results.append((piece.rows, piece.answer))
                    elif self._late(piece):
                        self.running.remove(piece)
                        self._give_up(piece)

                if not (self.waiting or self.running) or self._failed():
                    break
                self.change.wait(self._wait())
        return self.results

    def _start(self) -> None:
        threading.Thread(target=self._work, daemon=True, name=f"gpdsl {self.job.name}").start()

    def _failed(self) -> bool:
        """Whether there is no need to go on."""
        return any(jobs.stops(answer, self.job.stop) for _, answer in self.results)

    def _work(self) -> None:
        while True:
            with self.change:
                if not self.waiting:
                    return
                piece = self.waiting.popleft()
                self.running.append(piece)
            self._do(piece)
            with self.change:
                self.change.notify()
                if piece not in self.running:  # given up: another thread has taken over
                    return

    def _do(self, piece: _Piece) -> None:
        def started(number: int) -> None:
            del number
            if piece.given_up:
                raise _GivenUp
            piece.since = time.monotonic()

        job, values = self.job, jobs.take(self.arguments, piece.rows)
        try:
            piece.answer = jobs.evaluate(
                job.function, job.vectorized, values, stop=job.stop, started=started, into=piece.done
            )
        except BaseException as problem:  # noqa: BLE001 - an interrupt is raised again where the batch was asked for
            piece.problem = problem

    def _wait(self) -> float:
        """Seconds until the first piece that runs exceeds its time."""
        if self.job.timeout is None:
            return 1.0
        now = time.monotonic()
        left = [self.job.timeout - (now - piece.since) for piece in self.running if piece.since]
        return min(max(min(left, default=0.05), 0.001), 1.0)

    def _late(self, piece: _Piece) -> bool:
        limit = self.job.timeout
        return limit is not None and piece.since > 0 and time.monotonic() - piece.since > limit

    def _give_up(self, piece: _Piece) -> None:
        """Keep the rows that are done, blame the one that hangs, and let another thread do the rest."""
        self.given_up += 1
        piece.given_up = True
        if self.job.vectorized:
            self.results.append((piece.rows, jobs.Fault("timeout", "no answer")))
        else:
            done = list(piece.done)
            here = piece.rows.start + len(done)
            self.results.append((slice(piece.rows.start, here + 1), [*done, jobs.Fault("timeout", "no answer")]))
            if here + 1 < piece.rows.stop:
                self.waiting.appendleft(_Piece(slice(here + 1, piece.rows.stop)))
        if self.given_up > MOST_GIVEN_UP:
            text = f"{self.given_up} threads hang, which cannot be ended: executor='processes' can end its workers"
            self.results.append((piece.rows, jobs.Fault("unreachable", text)))
            self.waiting.clear()
            self.running.clear()
            return
        self._start()


# Pieces of a batch as futures: as many at a time as there are workers, so that time-outs count from the start.


class Window(jobs.Backend):
    """What executors and Dask have in common. Subclasses submit, wait, read and cancel futures of their kind."""

    @abstractmethod
    def opened(self) -> int:
        """How many workers there are; what raises is a fault of kind unreachable."""

    @abstractmethod
    def submit(self, *work: Any) -> Any:
        """A future of `evaluate_packed` with these arguments."""

    @abstractmethod
    def wait(self, futures: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Those that are done after so many seconds, or as soon as there are any."""

    @abstractmethod
    def answer(self, future: Any) -> jobs.Answer:
        """The answer of one that is done; errors as faults."""

    @abstractmethod
    def cancel(self, futures: Sequence[Any]) -> int:
        """Give up futures; how many workers are free again by that."""

    def run(self, job: jobs.Job, arguments: Sequence[np.ndarray]) -> jobs.Pieces:
        try:
            workers = self.opened()
        except Exception as problem:  # noqa: BLE001 - whatever keeps workers away is reported
            return [(slice(0, len(arguments[0])), gone(self, problem))]
        waiting, running = deque(job.pieces(len(arguments[0]), workers)), dict[Any, tuple[slice, float]]()
        found: jobs.Pieces = []
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    piece = waiting.popleft()
                    work = job.function, job.vectorized, job.stop, jobs.take(arguments, piece)
                    running[self.submit(*work)] = piece, time.monotonic() + job.allowed(piece.stop - piece.start)
                if not running:
                    found.append(
                        (waiting[0], jobs.Fault("unreachable", "all workers hang in calls that take too long"))
                    )
                    break
                first = min(limit for _, limit in running.values()) - time.monotonic()
                for future in self.wait(list(running), min(max(first, 0.001), 1.0)):
                    found.append((running.pop(future)[0], self.answer(future)))
                late = [future for future, (_, limit) in running.items() if time.monotonic() > limit]
                found += [(running.pop(future)[0], jobs.Fault("timeout", "no answer")) for future in late]
                workers -= len(late) - (self.cancel(late) if late else 0)
                if any(jobs.stops(answer, job.stop) for _, answer in found):
                    break
        except RuntimeError as problem:  # what is shut down or broken takes no more work
            found.append((slice(0, len(arguments[0])), gone(self, problem)))
        finally:
            if running:
                self.cancel(list(running))
        return found


def gone(backend: object, problem: BaseException) -> jobs.Fault:
    """The fault of a backend that does not work any more."""
    name = getattr(backend, "name", type(backend).__name__)
    return jobs.Fault("unreachable", f"{name}: {quoted(problem) or type(problem).__name__}", problem)


class Futures(Window):
    """An executor of `concurrent.futures`, which belongs to the user: nothing is started or ended here."""

    def __init__(self, executor: concurrent.futures.Executor, workers: int) -> None:
        self.executor = executor
        self.workers = workers
        self.name = type(executor).__name__
        self.place = f"by {self.name}, {plural(workers, 'worker')}"

    def opened(self) -> int:
        return self.workers

    def submit(self, *work: Any) -> concurrent.futures.Future[jobs.Answer]:
        return self.executor.submit(jobs.evaluate_packed, *work)

    def wait(self, futures: Sequence[Any], seconds: float) -> Sequence[Any]:
        return list(concurrent.futures.wait(futures, seconds, concurrent.futures.FIRST_COMPLETED).done)

    def answer(self, future: concurrent.futures.Future[jobs.Answer]) -> jobs.Answer:
        try:
            return future.result(timeout=0)
        except (concurrent.futures.BrokenExecutor, concurrent.futures.CancelledError) as problem:
            return gone(self, problem)
        except Exception as problem:  # noqa: BLE001 - a function or result that cannot be sent, as the executor says it
            return jobs.fault_of(problem)

    def cancel(self, futures: Sequence[concurrent.futures.Future[jobs.Answer]]) -> int:
        return sum(future.cancel() for future in futures)
