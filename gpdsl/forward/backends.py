"""Where an opaque function runs: here, or wherever `executor=` says. One method, `run`, and one table of names."""

from __future__ import annotations

import concurrent.futures
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpdsl.forward.errors import ForwardModelError
from gpdsl.forward.mistakes import UnknownExecutor
from gpdsl.forward.work import Answer, Fault, evaluate, evaluate_packed, even, take

DEFAULT_TIMEOUT = 600.0
"""Seconds that one call may take where it runs elsewhere, unless the registration says otherwise."""

LONGEST_WAIT = 1e6
"""Seconds: time-outs beyond this are more than the system takes."""

PIECES = 4
"""Pieces for each worker, where the rows of a batch are shared out once and for all: some take longer than others."""


@dataclass(frozen=True)
class Job:
    """A function and how it is called. `stop`: rows after one that failed need not be tried."""

    name: str
    function: Callable[..., Any]
    vectorized: bool
    timeout: float | None = None
    stop: bool = False

    @property
    def patience(self) -> float:
        """Seconds that one call may take elsewhere."""
        return DEFAULT_TIMEOUT if self.timeout is None else self.timeout

    def pieces(self, rows: int, workers: int) -> list[slice]:
        """Rows shared out: a vectorised function gets one piece a worker, one that takes rows gets several."""
        return even(rows, workers if self.vectorized else PIECES * workers)

    def allowed(self, rows: int) -> float:
        """Seconds that a piece of so many rows may take."""
        return min(self.patience * (1 if self.vectorized else rows), LONGEST_WAIT)


Pieces = list[tuple[slice, Answer]]
"""Answers for pieces of a batch. Rows may be left out only where a row failed and `Job.stop` is set."""


class Backend(ABC):
    """What runs functions: on all rows of the arguments, with time-outs on every wait."""

    place: str
    """Where that is, in words, for `explain`."""

    @abstractmethod
    def run(self, job: Job, arguments: Sequence[np.ndarray]) -> Pieces:
        """Answers for all rows."""


class Here(Backend):
    """In this process, one call after the other; with a time-out, in a thread that can be given up."""

    place = "in this process"

    def run(self, job: Job, arguments: Sequence[np.ndarray]) -> Pieces:
        if job.timeout is not None and math.isfinite(job.timeout):
            from gpdsl.forward.threads import Threads

            return Threads(1).run(job, arguments)
        answer = evaluate(job.function, job.vectorized, arguments, stop=job.stop)
        return [(slice(0, len(arguments[0])), answer)]


class Mapped(Backend):
    """Any object with `map(function, iterable)`: a pool of `multiprocess`, `mpi4py`, `lithops` and their like."""

    def __init__(self, mapper: Any, workers: int) -> None:
        self.mapper = mapper
        self.workers = workers
        self.place = f"by {type(mapper).__name__}.map, {plural(workers, 'worker')}"

    def run(self, job: Job, arguments: Sequence[np.ndarray]) -> Pieces:
        pieces = job.pieces(len(arguments[0]), self.workers)
        work = partial(evaluate_packed, job.function, job.vectorized, job.stop)
        answers: list[Any] = []

        def ask() -> None:
            try:
                answers.extend(self.mapper.map(work, [take(arguments, piece) for piece in pieces]))
            except Exception as problem:  # noqa: BLE001 - whatever the object raises is reported
                answers[:] = [Fault("unreachable", f"{type(self.mapper).__name__}: {problem}", problem)]

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(min(sum(job.allowed(piece.stop - piece.start) for piece in pieces), LONGEST_WAIT))
        everything = slice(0, len(arguments[0]))
        if asking.is_alive():
            return [(everything, Fault("timeout", "no answer"))]
        if len(answers) != len(pieces):
            found = answers[0] if answers and isinstance(answers[0], Fault) else None
            text = f"{type(self.mapper).__name__}.map gave {len(answers)} results for {len(pieces)} pieces"
            return [(everything, found or Fault("unreachable", text))]
        return list(zip(pieces, answers, strict=True))


def plural(count: int, noun: str) -> str:
    """A number with its noun."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def backend_of(name: str, executor: object, workers: int | None) -> Backend:
    """What `executor=` and `workers=` of a registration ask for. Nothing is started before the first call.

    Raises ForwardModelError for what is no executor.
    """
    count = workers or os.cpu_count() or 1
    match executor:
        case None:
            return _threads(workers) if workers and workers > 1 else Here()
        case "threads":
            return _threads(count)
        case "processes":
            from gpdsl.forward.processes import Processes

            return Processes(count)
        case "dask":
            return _dask(name, None, count)
        case str() if "://" in executor:
            return _dask(name, executor, workers)
        case str() | bytes() | dict():
            raise ForwardModelError(UnknownExecutor(name, repr(executor)))
    if isinstance(executor, Backend):
        return executor
    if hasattr(executor, "scheduler_info") and hasattr(executor, "submit"):
        return _dask(name, executor, workers)
    if isinstance(executor, concurrent.futures.Executor):
        from gpdsl.forward.futures import Futures

        return Futures(executor, count)
    if callable(getattr(executor, "map", None)):
        return Mapped(executor, count)
    raise ForwardModelError(UnknownExecutor(name, f"a value of type {type(executor).__name__}"))


def _threads(workers: int) -> Backend:
    from gpdsl.forward.threads import Threads

    return Threads(workers)


def _dask(name: str, client: object, workers: int | None) -> Backend:
    from gpdsl.forward.dask_cluster import DaskCluster

    return DaskCluster(name, client, workers)
