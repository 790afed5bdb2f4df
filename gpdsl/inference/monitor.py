"""Progress of a fit: history, time left, the caller's callback, and the best state so far when interrupted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpdsl.forward import Usage
from gpdsl.inference.watch import honour_interrupts

if TYPE_CHECKING:
    from gpdsl.inference.problem import Result


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
    keep: Callable[[Callable[[], Result], bool], None] | None = None
    """What is told how to get at the best state so far, and whether a search has ended there (`results.checkpoint`)."""
    state: Callable[[], Result] | None = None
    """The best state of the search under way, as its engine sees it."""
    _start: float = field(default_factory=time.perf_counter)
    _first: float | None = None
    _since: float = 0.0

    def report(self, step: int, elbo: float) -> None:
        """Record a finished step, whose state the engine holds. Raises KeyboardInterrupt where the user has asked."""
        elapsed = time.perf_counter() - self._start
        if self._first is None:
            self._first = elapsed
        self.history.append((step, elbo, elapsed))
        if self.callback is not None:
            rate = (elapsed - self._first) / max(step - self.history[0][0], 1)
            remaining = rate * (self.steps - step) if len(self.history) > 1 else None
            self.callback(Report(step, self.steps, elbo, elapsed, remaining, self.stage))
        if self.keep is not None and self.state is not None:
            self.keep(self.state, False)
        honour_interrupts()

    def explored(self, number: int, most: int, stage: str = "integrating") -> None:
        """So many steps of at most so many after the search. Raises KeyboardInterrupt where the user has asked."""
        if self.callback is not None:
            left = None if not number else (self.elapsed - self._since) / number * (most - number)
            self.callback(Report(number, most, self.last, self.elapsed, left, stage))
        if not number:
            self._since = self.elapsed
        honour_interrupts()

    def ended(self, result: Result) -> None:
        """A search has ended."""
        self.state = None
        if self.keep is not None:
            self.keep(lambda: result, True)

    def after(self, first: Monitor) -> Monitor:
        """The history of two fits, one after the other, by the clock of the first: what lies between them counts."""
        steps, seconds = first.history[-1][0], self._start - first._start
        later = [(steps + step, elbo, seconds + elapsed) for step, elbo, elapsed in self.history]
        compiling = first.compile_seconds + self.compile_seconds
        return replace(self, history=[*first.history, *later], compile_seconds=compiling, _start=first._start)

    @property
    def last(self) -> float:
        """The bound of the last step."""
        return self.history[-1][1] if self.history else -math.inf

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start
