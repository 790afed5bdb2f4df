"""Where an opaque function runs: here, or wherever `executor=` says. One method, `run`, and one table of names."""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import os
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from gpdsl.errors import plural, quoted
from gpdsl.forward import work as jobs
from gpdsl.forward.errors import ForwardModelError, MissingExtra, UnknownExecutor
from gpdsl.forward.processes import Processes
from gpdsl.forward.threads import Futures, Threads, Window, gone

# Dask distributed: a cluster of this machine, started at the first call, or a scheduler that has many.
#
# Dask itself moves work away from workers that die. What it does not do is added here: time-outs, and an end to calls
# that exceed theirs.

CONNECT_SECONDS = 30.0


class DaskCluster(Window):
    """`client` is None for a cluster of this machine, the address of a scheduler, or a `distributed.Client`."""

    name = "Dask"

    def __init__(self, function: str, client: Any, workers: int | None) -> None:
        try:
            import distributed
        except ImportError as problem:
            raise ForwardModelError(MissingExtra(function, "'dask'", "distributed", "dask")) from problem
        self._dask = distributed
        self._given = client
        self._workers = workers
        self._client: Any = None if client is None or isinstance(client, str) else client
        self.place = "on Dask" if workers is None else f"on Dask, {plural(workers, 'worker')}"
        self._lock = threading.Lock()
        self._done = threading.Event()

    def close(self) -> None:
        """End the cluster of this machine, if one was started; the next call starts another."""
        if self._client is not None and not hasattr(self._given, "submit"):
            _end(self._client, self._client.cluster if self._given is None else None)
            self._client = None

    def opened(self) -> int:
        with self._lock:
            if self._client is None or self._client.status != "running":
                self._connect()
            return self._workers or max(sum(self._client.nthreads().values()), 1)

    def submit(self, *work: Any) -> Any:
        future = self._client.submit(jobs.evaluate_packed, *work, pure=False)
        future.add_done_callback(lambda _: self._done.set())
        return future

    def wait(self, futures: Sequence[Any], seconds: float) -> Sequence[Any]:
        self._done.wait(seconds)
        self._done.clear()
        return [future for future in futures if future.done()]

    def answer(self, future: Any) -> jobs.Answer:
        try:
            found: jobs.Answer = future.result(timeout=CONNECT_SECONDS)
            return found
        except self._dask.scheduler.KilledWorker as problem:
            return jobs.Fault("died", f"Dask gave up after {problem.allowed_failures + 1} workers", problem)
        except (OSError, self._dask.comm.CommClosedError, self._dask.client.FutureCancelledError) as problem:
            return gone(self, problem)
        except Exception as problem:  # noqa: BLE001 - a function that cannot be sent, or its result
            return jobs.fault_of(problem)

    def cancel(self, futures: Sequence[Any]) -> int:
        """Dask lets a call that has begun go on: workers of a cluster of our own are started again."""
        with contextlib.suppress(Exception):
            keys = {future.key for future in futures}
            busy = [worker for worker, found in self._client.processing().items() if keys & set(found)]
            self._client.cancel(futures, force=True)
            if self._given is None:
                self._client.restart_workers(busy, timeout=CONNECT_SECONDS, raise_for_error=False)
                return len(futures)
        return 0

    def _connect(self) -> None:
        cluster = None
        if self._given is None:
            cluster = self._dask.LocalCluster(
                n_workers=self._workers or os.cpu_count() or 1,
                threads_per_worker=1,
                dashboard_address=":0",
                silence_logs=50,
            )
        address = self._given if isinstance(self._given, str) else cluster or self._given.scheduler.address
        self._client = self._dask.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        weakref.finalize(self, _end, self._client, cluster)


def _end(*closable: Any) -> None:
    for each in closable:
        with contextlib.suppress(Exception):
            each.close()


class Here(jobs.Backend):
    """In this process, one call after the other; with a time-out, in a thread that can be given up."""

    place = "in this process"

    def run(self, job: jobs.Job, arguments: Sequence[np.ndarray]) -> jobs.Pieces:
        if job.timeout is not None and math.isfinite(job.timeout):
            return Threads(1).run(job, arguments)
        answer = jobs.evaluate(job.function, job.vectorized, arguments, stop=job.stop)
        return [(slice(0, len(arguments[0])), answer)]


class Mapped(jobs.Backend):
    """Any object with `map(function, iterable)`: a pool of `multiprocess`, `mpi4py`, `lithops` and their like."""

    def __init__(self, mapper: Any, workers: int) -> None:
        self.mapper = mapper
        self.workers = workers
        self.place = f"by {type(mapper).__name__}.map, {plural(workers, 'worker')}"

    def run(self, job: jobs.Job, arguments: Sequence[np.ndarray]) -> jobs.Pieces:
        pieces = job.pieces(len(arguments[0]), self.workers)
        work = partial(jobs.evaluate_packed, job.function, job.vectorized, job.stop)
        answers: list[Any] = []

        def ask() -> None:
            try:
                answers.extend(self.mapper.map(work, [jobs.take(arguments, piece) for piece in pieces]))
            except Exception as problem:  # noqa: BLE001 - whatever the object raises is reported
                answers[:] = [jobs.Fault("unreachable", f"{type(self.mapper).__name__}: {quoted(problem)}", problem)]

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(min(sum(job.allowed(piece.stop - piece.start) for piece in pieces), jobs.LONGEST_WAIT))
        everything = slice(0, len(arguments[0]))
        if asking.is_alive():
            return [(everything, jobs.Fault("timeout", "no answer"))]
        if len(answers) != len(pieces):
            found = answers[0] if answers and isinstance(answers[0], jobs.Fault) else None
            text = f"{type(self.mapper).__name__}.map gave {len(answers)} results for {len(pieces)} pieces"
            return [(everything, found or jobs.Fault("unreachable", text))]
        return list(zip(pieces, answers, strict=True))


def backend_of(name: str, executor: object, workers: int | None) -> jobs.Backend:
    """What `executor=` and `workers=` of a registration ask for. Nothing is started before the first call.

    Raises ForwardModelError for what is no executor.
    """
    count = workers or os.cpu_count() or 1
    match executor:
        case None:
            return Threads(workers) if workers and workers > 1 else Here()
        case str("threads"):
            return Threads(count)
        case str("processes"):
            return Processes(count)
        case str("dask"):
            return DaskCluster(name, None, count)
        case str() if "://" in executor:
            return DaskCluster(name, executor, workers)
        case str() | bytes() | dict():
            raise ForwardModelError(UnknownExecutor(name, repr(executor)))
    if isinstance(executor, jobs.Backend):
        return executor
    if hasattr(executor, "scheduler_info") and hasattr(executor, "submit"):
        return DaskCluster(name, executor, workers)
    if isinstance(executor, concurrent.futures.Executor):
        return Futures(executor, count)
    if callable(getattr(executor, "map", None)):
        return Mapped(executor, count)
    raise ForwardModelError(UnknownExecutor(name, f"a value of type {type(executor).__name__}"))
