"""Progress of a fit: history, time left, the caller's callback, and the best state so far when interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gpdsl.forward import Usage


@dataclass(frozen=True)
class Report:
    """What a callback is told between steps. `remaining` is in seconds, None while unknown.

    `usage` counts the evaluations of opaque functions so far, and the seconds inside them.
    """

    step: int
    steps: int
    elbo: float
    elapsed: float
    remaining: float | None
    stage: str
    usage: Usage = field(default_factory=Usage)


@dataclass
class Monitor:
    """Collects (step, elbo, seconds) and passes them on; the clock starts when it is made."""

    steps: int
    callback: Callable[[Report], None] | None = None
    stage: str = "fit"
    history: list[tuple[int, float, float]] = field(default_factory=list)
    compile_seconds: float = 0.0
    _start: float = field(default_factory=time.perf_counter)
    _first: float | None = None

    def report(self, step: int, elbo: float) -> None:
        """Record a finished step."""
        elapsed = time.perf_counter() - self._start
        if self._first is None:
            self._first = elapsed
        self.history.append((step, elbo, elapsed))
        if self.callback is not None:
            rate = (elapsed - self._first) / max(step - self.history[0][0], 1)
            remaining = rate * (self.steps - step) if len(self.history) > 1 else None
            self.callback(Report(step, self.steps, elbo, elapsed, remaining, self.stage))

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start
