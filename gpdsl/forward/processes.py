"""A pool of processes that outlives what happens to its members: crashes, kill -9, and rows that never end.

Workers are spawned, never forked: JAX runs threads, and a fork of a process with threads can stop for ever. They start
at the first call. A worker that dies is replaced and its rows are done again; a row that was in work when two workers
died has killed them, and is reported. A worker that exceeds its time is ended.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from gpdsl.forward.backends import Backend, Job, Pieces
from gpdsl.forward.errors import ForwardModelError
from gpdsl.forward.mistakes import CannotTravel, NoWorkers
from gpdsl.forward.pipes import limit_waits
from gpdsl.forward.work import Answer, Fault, even, stops, take
from gpdsl.forward.worker import BROKEN, NotPortable, packed_function, serve

START_SECONDS = 120.0
"""For a worker to import what the function needs."""

PIECE_SECONDS, LEAST_SECONDS = 0.05, 0.001
"""Work sent at once, where functions take rows one by one: what a death loses, and what a message is worth."""

FIRST_GUESS = 1e-3
"""Seconds that a row may take, until one has."""

PIPE_SECONDS = 60.0
"""For a message that has begun to pass through the pipe."""

NAME = "gpdsl worker"

MOST_DEATHS = 2
"""Workers that may die in the same row, or before any has answered."""


@dataclass(eq=False)
class _Worker:
    """A process, the pipe to it, and what it works on."""

    process: Any
    pipe: Connection
    clock: Any
    born: float
    ready: bool = False
    piece: slice | None = None
    given: float = 0.0

    def row(self) -> int:
        """The row in work, counted within the piece."""
        return int(self.clock[0])

    def end(self) -> None:
        self.process.kill()
        self.process.join(5.0)
        self.pipe.close()


def _end_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.end()
    workers.clear()


class Processes(Backend):
    """A pool for one function. It ends with the process, or when nothing refers to it any more."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.seconds: float | None = None
        """What a row took so far."""
        self._team: list[_Worker] = []
        self._packed: tuple[object, bytes | tuple[str, str]] | None = None
        self._lock = threading.Lock()
        weakref.finalize(self, _end_all, self._team)

    def close(self) -> None:
        """End the workers; the next call starts others."""
        _end_all(self._team)

    def run(self, job: Job, arguments: Sequence[np.ndarray]) -> Pieces:
        with self._lock:
            if self._packed is None or self._packed[0] is not job.function:
                _end_all(self._team)
                self._packed = job.function, self._pack(job)
            batch = _Batch(self, job, arguments)
            try:
                return batch.finished()
            finally:
                for worker in [each for each in self._team if each.piece is not None]:
                    self.dismiss(worker)

    def _pack(self, job: Job) -> bytes | tuple[str, str]:
        try:
            return packed_function(job.function)
        except NotPortable as problem:
            raise ForwardModelError(CannotTravel(job.name, str(problem))) from problem

    def note(self, seconds: float) -> None:
        """Remember what a row takes, as an average that forgets."""
        self.seconds = seconds if self.seconds is None else 0.8 * self.seconds + 0.2 * seconds

    @property
    def team(self) -> list[_Worker]:
        """The workers there are."""
        return self._team

    def hire(self, job: Job) -> None:
        """Start one more worker, without waiting for it."""
        if multiprocessing.current_process().name.startswith(NAME):
            raise ForwardModelError(NoWorkers(job.name, "a worker has begun to run the script that started it"))
        assert self._packed is not None
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        clock = context.RawArray("d", 2)
        threads = (os.cpu_count() or 1) // self.workers
        details = (theirs, clock, self._packed[1], job.vectorized, threads)
        process = context.Process(target=serve, args=details, daemon=True, name=f"{NAME} {job.name}")
        process.start()
        theirs.close()
        limit_waits(ours, PIPE_SECONDS)
        self._team.append(_Worker(process, ours, clock, time.monotonic()))

    def dismiss(self, worker: _Worker) -> None:
        """End a worker and forget it."""
        worker.end()
        self._team.remove(worker)


class _Batch:
    """One batch: pieces that wait, answers, and deaths by row."""

    def __init__(self, pool: Processes, job: Job, arguments: Sequence[np.ndarray]) -> None:
        self.pool = pool
        self.job = job
        self.arguments = arguments
        self.rows = len(arguments[0])
        self.waiting = deque(self._pieces())
        self.results: Pieces = []
        self.deaths: Counter[int] = Counter()
        self.idle_deaths = 0
        self.stopped = False

    def _pieces(self) -> list[slice]:
        """One piece a worker for a vectorised function; else some milliseconds of work, and one row at first.

        Pieces become smaller towards the end, so that the workers finish together.
        """
        workers = self.pool.workers
        if self.job.vectorized:
            return even(self.rows, workers)
        first = min(workers, self.rows) if self.pool.seconds is None else 0
        pieces, row = even(first, first) if first else [], first
        seconds = max(self.pool.seconds or FIRST_GUESS, 1e-7)
        least, most = (max(int(limit / seconds), 1) for limit in (LEAST_SECONDS, PIECE_SECONDS))
        while row < self.rows:
            length = min(max((self.rows - row) // (2 * workers), least), most, self.rows - row)
            pieces.append(slice(row, row + length))
            row += length
        return pieces

    def finished(self) -> Pieces:
        team = self.pool.team
        while not self.stopped and (self.waiting or any(w.piece is not None for w in team)):
            busy = sum(worker.piece is not None for worker in team)
            while len(team) < min(self.pool.workers, busy + len(self.waiting)):
                self.pool.hire(self.job)
            for worker in [w for w in team if w.ready and w.piece is None]:
                if self.waiting:
                    self._give(worker)
            for pipe in wait([w.pipe for w in team if w.piece is not None or not w.ready], self._patience()):
                self._hear(next(w for w in team if w.pipe is pipe))
            for worker in [w for w in team if self._overdue(w)]:
                self._end_overdue(worker)
        return self.results

    def _give(self, worker: _Worker) -> None:
        piece = self.waiting.popleft()
        worker.clock[0], worker.clock[1] = 0.0, 0.0
        worker.piece, worker.given = piece, time.monotonic()
        try:
            worker.pipe.send((self.job.stop, take(self.arguments, piece)))
        except OSError:  # it is dead, or takes nothing any more
            self._died(worker)

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            self._died(worker)
            return
        if worker.piece is None:
            self._greeted(worker, *message)
            return
        piece, worker.piece = worker.piece, None
        self.idle_deaths = 0
        answer, seconds = message
        self.pool.note(seconds)
        self._take(piece, answer)

    def _greeted(self, worker: _Worker, word: str, text: str) -> None:
        if word == BROKEN:
            self.pool.dismiss(worker)
            raise ForwardModelError(CannotTravel(self.job.name, f"in the worker, {text}"))
        worker.ready = True

    def _take(self, piece: slice, answer: Answer) -> None:
        self.results.append((piece, answer))
        self.stopped = self.stopped or stops(answer, self.job.stop)

    def _died(self, worker: _Worker) -> None:
        """Blame the row in work when it has done this before; else put the rows back."""
        piece, row, begun = worker.piece, worker.row(), worker.clock[1] > 0
        worker.process.join(1.0)
        reason = _ending(worker.process.exitcode)
        self.pool.dismiss(worker)
        self.idle_deaths += 1
        if piece is None or self.idle_deaths > 4 * MOST_DEATHS + self.pool.workers:
            if self.idle_deaths > MOST_DEATHS:
                raise ForwardModelError(
                    NoWorkers(self.job.name, f"{self.idle_deaths} died one after the other, {reason}")
                )
            return
        blamed = piece.start if self.job.vectorized else piece.start + row
        self.deaths[blamed] += begun
        if self.deaths[blamed] < MOST_DEATHS:
            self.waiting.appendleft(piece)
            return
        self._blame(piece, blamed, Fault("died", reason))

    def _blame(self, piece: slice, row: int, fault: Fault) -> None:
        """A fault for a row, or for a whole piece of a vectorised function; the other rows of the piece wait again."""
        if self.job.vectorized:
            self._take(piece, fault)
            return
        self._take(slice(row, row + 1), [fault])
        for rest in (slice(row + 1, piece.stop), slice(piece.start, row)):
            if rest.start < rest.stop:
                self.waiting.appendleft(rest)

    def _limit(self, worker: _Worker) -> float:
        """When a worker's time is over."""
        if not worker.ready:
            return worker.born + START_SECONDS
        return max(worker.clock[1], worker.given) + self.job.patience if worker.piece is not None else float("inf")

    def _patience(self) -> float:
        """Seconds to wait for the next message; the least, as a worker notes its time without a message."""
        first = min((self._limit(w) for w in self.pool.team), default=0.0)
        return min(max(first - time.monotonic(), 0.001), 1.0, max(0.2 * self.job.patience, 0.001))

    def _overdue(self, worker: _Worker) -> bool:
        return time.monotonic() > self._limit(worker)

    def _end_overdue(self, worker: _Worker) -> None:
        piece, row = worker.piece, worker.row()
        self.pool.dismiss(worker)
        if piece is None:
            raise ForwardModelError(NoWorkers(self.job.name, f"one did not start within {START_SECONDS:.0f} s"))
        self._blame(piece, piece.start + row, Fault("timeout", "no answer"))


def _ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return "its pipe is closed"
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
