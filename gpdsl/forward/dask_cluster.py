"""Dask distributed: a cluster of this machine, started at the first call, or a scheduler that has many.

Dask itself moves work away from workers that die. What it does not do is added here: time-outs, and an end to calls
that exceed theirs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from gpdsl.forward.backends import Job, Pieces
from gpdsl.forward.errors import ForwardModelError
from gpdsl.forward.faults import MissingExtra
from gpdsl.forward.work import Answer, Fault, evaluate_packed, fault_of, take

CONNECT_SECONDS = 30.0


class DaskCluster:
    """`client` is None for a cluster of this machine, the address of a scheduler, or a `distributed.Client`."""

    def __init__(self, name: str, client: Any, workers: int | None) -> None:
        try:
            import distributed
        except ImportError as problem:
            raise ForwardModelError(MissingExtra(name, "'dask'", "distributed", "dask")) from problem
        self._dask = distributed
        self._given = client
        self._workers = workers
        self._client: Any = None if client is None or isinstance(client, str) else client
        self._lock = threading.Lock()

    def run(self, job: Job, arguments: Sequence[np.ndarray]) -> Pieces:
        rows = len(arguments[0])
        try:
            client = self._connected()
            workers = self._workers or max(sum(client.nthreads().values()), 1)
            pieces = job.pieces(rows, workers)
            work = partial(evaluate_packed, job.function, job.vectorized, job.stop)
            futures = [client.submit(work, take(arguments, piece), pure=False) for piece in pieces]
        except (OSError, TimeoutError, ValueError, self._dask.comm.CommClosedError) as problem:
            return [(slice(0, rows), Fault("unreachable", f"Dask: {_words(problem)}", problem))]
        end = time.monotonic() + job.allowed_for(pieces, workers)
        try:
            return [(piece, self._answer(future, end)) for piece, future in zip(pieces, futures, strict=True)]
        finally:
            self._give_up([future for future in futures if not future.done()])

    def close(self) -> None:
        """End the cluster of this machine, if one was started; the next call starts another."""
        if self._client is not None and not hasattr(self._given, "submit"):
            self._client.close()
            self._client = None

    def _connected(self) -> Any:
        with self._lock:
            if self._client is not None and self._client.status == "running":
                return self._client
            if self._given is None:
                cluster = self._dask.LocalCluster(
                    n_workers=self._workers or os.cpu_count() or 1,
                    threads_per_worker=1,
                    dashboard_address=None,
                    silence_logs=50,
                )
                self._client = self._dask.Client(cluster, timeout=CONNECT_SECONDS, set_as_default=False)
                weakref.finalize(self, _end, self._client, cluster)
            else:
                address = self._given if isinstance(self._given, str) else self._given.scheduler.address
                self._client = self._dask.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
                weakref.finalize(self, _end, self._client)
            return self._client

    def _answer(self, future: Any, end: float) -> Answer:
        try:
            found: Answer = future.result(timeout=max(end - time.monotonic(), 0.001))
            return found
        except (TimeoutError, self._dask.TimeoutError) as problem:
            return Fault("timeout", "no answer", problem)
        except self._dask.scheduler.KilledWorker as problem:
            return Fault("died", f"Dask gave up after {problem.allowed_failures + 1} workers", problem)
        except (OSError, self._dask.comm.CommClosedError, self._dask.client.FutureCancelledError) as problem:
            return Fault("unreachable", f"Dask: {_words(problem)}", problem)
        except Exception as problem:  # noqa: BLE001 - a function that cannot be sent, or its result
            return fault_of(problem)

    def _give_up(self, futures: list[Any]) -> None:
        """Cancel what is not done, and end the workers that are at it: Dask lets a call that has begun go on."""
        if not futures:
            return
        with contextlib.suppress(Exception):
            keys = [future.key for future in futures]
            busy = {w for w, found in self._client.processing().items() if any(key in keys for key in found)}
            self._client.cancel(futures, force=True)
            if self._given is None:
                self._client.restart_workers(list(busy), timeout=CONNECT_SECONDS, raise_for_error=False)


def _end(*closable: Any) -> None:
    for each in closable:
        with contextlib.suppress(Exception):
            each.close()


def _words(problem: BaseException) -> str:
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
