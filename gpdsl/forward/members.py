"""One worker process as its parent sees it: how it starts, what it has been given, and how it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from gpdsl.forward.errors import ForwardModelError
from gpdsl.forward.mistakes import NoWorkers
from gpdsl.forward.pipes import limit_waits
from gpdsl.forward.worker import Packed, serve

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
    loaded: set[Packed] = field(default_factory=set)

    @property
    def row(self) -> int | None:
        """The row in work, of the first of its pieces; None when none of them has begun."""
        row = int(self.clock[0])
        return row if self.pieces and self.pieces[0].start <= row < self.pieces[0].stop else None

    def load(self, function: Packed) -> None:
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


def hire(name: str, function: Packed, workers: int) -> Member:
    """Start a worker process, one of so many, without waiting for it.

    Raises ForwardModelError in a worker, which has begun to run the script that started it.
    """
    if multiprocessing.current_process().name.startswith(NAME):
        raise ForwardModelError(NoWorkers(name, "a worker has begun to run the script that started it"))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    clock = context.RawArray("d", 2)
    details = (theirs, clock, function, (os.cpu_count() or 1) // workers)
    process = context.Process(target=serve, args=details, daemon=True, name=f"{NAME} {name}")
    with _born_deaf():
        process.start()
    theirs.close()
    limit_waits(ours, PIPE_SECONDS)
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
