"""Where an opaque function runs: here, or wherever `executor=` says. One method, `run`, and one table of names."""

from __future__ import annotations

import concurrent.futures
import math
import os
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from gpdsl.errors import quoted
from gpdsl.forward.backend import LONGEST_WAIT, Backend, Job, Pieces, plural
from gpdsl.forward.dask_cluster import DaskCluster
from gpdsl.forward.errors import ForwardModelError
from gpdsl.forward.futures import Futures
from gpdsl.forward.mistakes import UnknownExecutor
from gpdsl.forward.processes import Processes
from gpdsl.forward.threads import Threads
from gpdsl.forward.work import Fault, evaluate, evaluate_packed, take


class Here(Backend):
    """In this process, one call after the other; with a time-out, in a thread that can be given up."""

    place = "in this process"

    def run(self, job: Job, arguments: Sequence[np.ndarray]) -> Pieces:
        if job.timeout is not None and math.isfinite(job.timeout):
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
                answers[:] = [Fault("unreachable", f"{type(self.mapper).__name__}: {quoted(problem)}", problem)]

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
        return Futures(executor, count)
    if callable(getattr(executor, "map", None)):
        return Mapped(executor, count)
    raise ForwardModelError(UnknownExecutor(name, f"a value of type {type(executor).__name__}"))


def _threads(workers: int) -> Backend:
    return Threads(workers)


def _dask(name: str, client: object, workers: int | None) -> Backend:
    return DaskCluster(name, client, workers)
