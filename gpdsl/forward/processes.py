"""A pool of processes that outlives what happens to its members: crashes, kill -9, and rows that never end.

Workers are spawned, never forked: JAX runs threads, and a fork of a process with threads can stop for ever. They start
at the first call. A worker that dies is replaced and its rows are done again; a row that was in work when two workers
died has killed them, and is reported. A worker that exceeds its time is ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from gpdsl.errors import plural
from gpdsl.forward import work as jobs
from gpdsl.forward.errors import CannotTravel, ForwardModelError, NoWorkers

# One worker process as its parent sees it: how it starts, what it has been given, and how it ends.

START_SECONDS = 120.0
"""For a worker to start, and to import what a function needs."""

PIPE_SECONDS = 60.0
"""For a message that has begun to pass through the pipe."""

NAME = "gpdsl worker"


@dataclass(eq=False)
class Member:
    """A process, the pipe to it, what it has loaded, and the rows it works on."""

    process: Any
    pipe: Connection
    clock: Any
    born: float
    ready: bool = False
    pieces: deque[slice] = field(default_factory=deque)
    given: float = 0.0
    loaded: set[jobs.Packed] = field(default_factory=set)

    @property
    def row(self) -> int | None:
        """The row in work, of the first of its pieces; None when none of them has begun."""
        row = int(self.clock[0])
        return row if self.pieces and self.pieces[0].start <= row < self.pieces[0].stop else None

    def load(self, function: jobs.Packed) -> None:
        """Have it import another function; it says when it is ready. Raises OSError when it is dead."""
        self.ready, self.born = False, time.monotonic()
        self.loaded.add(function)
        self.pipe.send(function)

    def give(self, piece: slice, work: tuple[Any, ...]) -> None:
        """Have it work on some rows, after those it has. Raises OSError when it is dead."""
        if not self.pieces:
            self.clock[0], self.clock[1], self.given = -1.0, 0.0, time.monotonic()
        self.pieces.append(piece)
        self.pipe.send(work)

    def answered(self) -> slice:
        """The rows it has an answer for; the next ones are in work from now on."""
        self.given = time.monotonic()
        return self.pieces.popleft()

    def limit(self, patience: float) -> float:
        """When its time is over, on the monotonic clock."""
        if not self.ready:
            return self.born + START_SECONDS
        return max(self.clock[1], self.given) + patience if self.pieces else float("inf")

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.join(5.0)
        self.pipe.close()

    def ending(self) -> str:
        """How it ended, in words."""
        self.process.join(1.0)
        code = self.process.exitcode
        if code is None:
            return "its pipe is closed"
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def hire(name: str, function: jobs.Packed, workers: int) -> Member:
    """Start a worker process, one of so many, without waiting for it.

    Raises ForwardModelError in a worker, which has begun to run the script that started it.
    """
    if multiprocessing.current_process().name.startswith(NAME):
        raise ForwardModelError(NoWorkers(name, "a worker has begun to run the script that started it"))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    clock = context.RawArray("d", 2)
    details = (theirs, clock, function, (os.cpu_count() or 1) // workers)
    process = context.Process(target=jobs.serve, args=details, daemon=True, name=f"{NAME} {name}")
    with _born_deaf():
        process.start()
    theirs.close()
    jobs.limit_waits(ours, PIPE_SECONDS)
    return Member(process, ours, clock, time.monotonic(), loaded={function})


@contextmanager
def _born_deaf() -> Iterator[None]:
    """Ctrl-C goes to all processes of a terminal: one that starts meanwhile does not get it, from its first moment on.

    What comes to this process waits until the process has started.
    """
    if os.name != "posix":
        yield
        return
    from multiprocessing.resource_tracker import ensure_running

    ensure_running()  # this unblocks the signal, so that it comes first
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


PIECE_SECONDS, LEAST_SECONDS = 0.05, 0.001
"""Work sent at once, where functions take rows one by one: what a death loses, and what a message is worth."""

FIRST_GUESS = 1e-3
"""Seconds that a row may take, until one has."""

SMALL_BYTES = 4096

REMEMBERED = 1000.0

FUNCTIONS = 8
"""Functions that a pool remembers as they are sent."""

MOST_DEATHS = 2
"""Workers that may die in the same row, or before any has answered."""


def _end_all(team: list[Member]) -> None:
    for member in team:
        member.end()
    team.clear()


class Processes(jobs.Backend):
    """A pool of so many workers. It ends with this process, or when nothing refers to it any more."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.place = f"in {plural(workers, 'process')}"
        self.team: list[Member] = []
        self.seconds: dict[jobs.Packed, tuple[float, float]] = {}
        """How many rows are remembered of a function, and what each took."""
        self._packed: deque[tuple[object, jobs.Packed]] = deque(maxlen=FUNCTIONS)
        self._lock = threading.Lock()
        weakref.finalize(self, _end_all, self.team)

    def close(self) -> None:
        """End the workers; the next call starts others."""
        _end_all(self.team)

    def run(self, job: jobs.Job, arguments: Sequence[np.ndarray]) -> jobs.Pieces:
        with self._lock:
            batch = _Batch(self, job, self._pack(job), arguments)
            try:
                return batch.finished()
            finally:
                for member in [each for each in self.team if each.pieces]:
                    self.dismiss(member)

    def _pack(self, job: jobs.Job) -> jobs.Packed:
        """The function as workers get it: packed once, as long as it is among the last that were called."""
        for function, packed in self._packed:
            if function is job.function:
                return packed
        try:
            packed = jobs.packed_function(job.function)
        except jobs.NotPortable as problem:
            raise ForwardModelError(CannotTravel(job.name, str(problem))) from problem
        self._packed.append((job.function, packed))
        return packed

    def note(self, function: jobs.Packed, rows: int, seconds: float) -> None:
        """Remember what so many rows took, as an average over about the last thousand."""
        known, each = self.seconds.get(function, (0.0, 0.0))
        known *= max(1.0 - rows / REMEMBERED, 0.0)
        self.seconds[function] = known + rows, (known * each + seconds) / (known + rows)

    def dismiss(self, member: Member) -> None:
        """End a worker and forget it."""
        member.end()
        self.team.remove(member)


class _Batch:
    """One batch: pieces that wait, answers, and deaths by row."""

    def __init__(self, pool: Processes, job: jobs.Job, function: jobs.Packed, arguments: Sequence[np.ndarray]) -> None:
        self.pool = pool
        self.job = job
        self.function = function
        self.arguments = arguments
        self.rows = len(arguments[0])
        self.waiting = deque(self._pieces())
        self.results: jobs.Pieces = []
        self.deaths: Counter[int] = Counter()
        self.idle_deaths = 0
        self.stopped = False

    def _pieces(self) -> list[slice]:
        """One piece a worker for a vectorised function; else some milliseconds of work, and one row at first.

        Pieces become smaller towards the end, so that the workers finish together.
        """
        workers = self.pool.workers
        if self.job.vectorized:
            return jobs.even(self.rows, workers)
        known = self.pool.seconds.get(self.function, (0.0, FIRST_GUESS))[1]
        first = min(workers, self.rows) if self.function not in self.pool.seconds else 0
        pieces, row = jobs.even(first, first) if first else [], first
        seconds = max(known, 1e-7)
        least, most = (max(int(limit / seconds), 1) for limit in (LEAST_SECONDS, PIECE_SECONDS))
        while row < self.rows:
            length = min(max((self.rows - row) // (2 * workers), least), most, self.rows - row)
            pieces.append(slice(row, row + length))
            row += length
        return pieces

    def finished(self) -> jobs.Pieces:
        team = self.pool.team
        while not self.stopped and (self.waiting or any(w.pieces for w in team)):
            busy = sum(bool(worker.pieces) for worker in team)
            while len(team) < min(self.pool.workers, busy + len(self.waiting)):
                team.append(hire(self.job.name, self.function, self.pool.workers))
            for worker in [w for w in team if w.ready and not w.pieces]:
                if self.waiting:
                    self._give(worker)
            for worker in [w for w in team if w.ready and len(w.pieces) == 1]:
                if self._ahead():
                    self._give(worker)
            for pipe in wait([w.pipe for w in team if w.pieces or not w.ready], self._patience()):
                self._hear(next(w for w in team if w.pipe is pipe))
            for worker in [w for w in team if time.monotonic() > w.limit(self.job.patience)]:
                row = worker.row
                self._left(worker)
                if not worker.pieces:
                    raise ForwardModelError(NoWorkers(self.job.name, f"one did not start within {START_SECONDS:.0f} s"))
                piece = self.waiting.popleft()
                self._blame(piece, piece.start if row is None else row, jobs.Fault("timeout", "no answer"))

        return self.results

    def _ahead(self) -> bool:
        """Whether workers get rows before they have finished others: short work, and more than enough of it.

        And so few bytes that no pipe is full: a worker that does not read yet must not stop this process.
        """
        if self.job.vectorized or self.function not in self.pool.seconds or len(self.waiting) <= self.pool.workers:
            return False
        share = (self.waiting[0].stop - self.waiting[0].start) / self.rows
        small = share * sum(values.nbytes for values in self.arguments) < SMALL_BYTES
        return small and all(worker.ready for worker in self.pool.team)

    def _give(self, worker: Member) -> None:
        try:
            if self.function not in worker.loaded:
                worker.load(self.function)
                return
            piece = self.waiting.popleft()
            work = self.function, piece.start, self.job.vectorized, self.job.stop, jobs.take(self.arguments, piece)
            worker.give(piece, work)
        except OSError:  # it is dead, or takes nothing any more
            self._died(worker)

    def _hear(self, worker: Member) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            self._died(worker)
            return
        if not worker.pieces:
            self._greeted(worker, *message)
            return
        piece = worker.answered()
        self.idle_deaths = 0
        answer, seconds = message
        self.pool.note(self.function, piece.stop - piece.start, seconds)
        self._take(piece, answer)

    def _greeted(self, worker: Member, word: str, text: str) -> None:
        if word == jobs.BROKEN:
            self.pool.dismiss(worker)
            raise ForwardModelError(CannotTravel(self.job.name, f"in the worker, {text}"))
        worker.ready = True

    def _take(self, piece: slice, answer: jobs.Answer) -> None:
        self.results.append((piece, answer))
        self.stopped = self.stopped or jobs.stops(answer, self.job.stop)

    def _died(self, worker: Member) -> None:
        """Blame the row in work when it has done this before; else put the rows back."""
        row, reason = worker.row, worker.ending()
        self._left(worker)
        self.idle_deaths += 1
        if self.idle_deaths > (MOST_DEATHS if not worker.pieces else 4 * MOST_DEATHS + self.pool.workers):
            text = f"{self.idle_deaths} died one after the other, {reason}"
            raise ForwardModelError(NoWorkers(self.job.name, text))
        if row is None:
            return
        self.deaths[row] += 1
        if self.deaths[row] == MOST_DEATHS:
            self._blame(self.waiting.popleft(), row, jobs.Fault("died", reason))

    def _left(self, worker: Member) -> None:
        """End a worker; what it had to do waits again, the first piece first."""
        self.pool.dismiss(worker)
        self.waiting.extendleft(reversed(worker.pieces))

    def _blame(self, piece: slice, row: int, fault: jobs.Fault) -> None:
        """A fault for a row, or for a whole piece of a vectorised function; the other rows of the piece wait again."""
        if self.job.vectorized:
            self._take(piece, fault)
            return
        self._take(slice(row, row + 1), [fault])
        for rest in (slice(row + 1, piece.stop), slice(piece.start, row)):
            if rest.start < rest.stop:
                self.waiting.appendleft(rest)

    def _patience(self) -> float:
        """Seconds to wait for the next message; the least, as a worker notes its time without a message."""
        first = min((w.limit(self.job.patience) for w in self.pool.team), default=0.0)
        return min(max(first - time.monotonic(), 0.001), 1.0, max(0.2 * self.job.patience, 0.001))
