"""Pieces of a batch as futures: as many at a time as there are workers, so that time-outs count from the start."""

from __future__ import annotations

import concurrent.futures
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpdsl.errors import quoted
from gpdsl.forward.backend import Backend, Job, Pieces, plural
from gpdsl.forward.work import Answer, Fault, evaluate_packed, fault_of, stops, take


class Window(Backend):
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
    def answer(self, future: Any) -> Answer:
        """The answer of one that is done; errors as faults."""

    @abstractmethod
    def cancel(self, futures: Sequence[Any]) -> int:
        """Give up futures; how many workers are free again by that."""

    def run(self, job: Job, arguments: Sequence[np.ndarray]) -> Pieces:
        try:
            workers = self.opened()
        except Exception as problem:  # noqa: BLE001 - whatever keeps workers away is reported
            return [(slice(0, len(arguments[0])), gone(self, problem))]
        waiting, running = deque(job.pieces(len(arguments[0]), workers)), dict[Any, tuple[slice, float]]()
        found: Pieces = []
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    piece = waiting.popleft()
                    work = job.function, job.vectorized, job.stop, take(arguments, piece)
                    running[self.submit(*work)] = piece, time.monotonic() + job.allowed(piece.stop - piece.start)
                if not running:
                    found.append((waiting[0], Fault("unreachable", "all workers hang in calls that take too long")))
                    break
                first = min(limit for _, limit in running.values()) - time.monotonic()
                for future in self.wait(list(running), min(max(first, 0.001), 1.0)):
                    found.append((running.pop(future)[0], self.answer(future)))
                late = [future for future, (_, limit) in running.items() if time.monotonic() > limit]
                found += [(running.pop(future)[0], Fault("timeout", "no answer")) for future in late]
                workers -= len(late) - (self.cancel(late) if late else 0)
                if any(stops(answer, job.stop) for _, answer in found):
                    break
        except RuntimeError as problem:  # what is shut down or broken takes no more work
            found.append((slice(0, len(arguments[0])), gone(self, problem)))
        finally:
            if running:
                self.cancel(list(running))
        return found


def gone(backend: object, problem: BaseException) -> Fault:
    """The fault of a backend that does not work any more."""
    name = getattr(backend, "name", type(backend).__name__)
    return Fault("unreachable", f"{name}: {quoted(problem) or type(problem).__name__}", problem)


class Futures(Window):
    """An executor of `concurrent.futures`, which belongs to the user: nothing is started or ended here."""

    def __init__(self, executor: concurrent.futures.Executor, workers: int) -> None:
        self.executor = executor
        self.workers = workers
        self.name = type(executor).__name__
        self.place = f"by {self.name}, {plural(workers, 'worker')}"

    def opened(self) -> int:
        return self.workers

    def submit(self, *work: Any) -> concurrent.futures.Future[Answer]:
        return self.executor.submit(evaluate_packed, *work)

    def wait(self, futures: Sequence[Any], seconds: float) -> Sequence[Any]:
        return list(concurrent.futures.wait(futures, seconds, concurrent.futures.FIRST_COMPLETED).done)

    def answer(self, future: concurrent.futures.Future[Answer]) -> Answer:
        try:
            return future.result(timeout=0)
        except (concurrent.futures.BrokenExecutor, concurrent.futures.CancelledError) as problem:
            return gone(self, problem)
        except Exception as problem:  # noqa: BLE001 - a function or result that cannot be sent, as the executor says it
            return fault_of(problem)

    def cancel(self, futures: Sequence[concurrent.futures.Future[Answer]]) -> int:
        return sum(future.cancel() for future in futures)
