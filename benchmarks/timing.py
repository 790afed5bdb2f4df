"""Seconds of a call that JAX spends tracing, lowering and compiling, so that they can be left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

_intervals: list[tuple[float, float]] = []


def _listen(event: str, duration: float, **_: Any) -> None:
    if event.startswith("/jax/core/compile/"):
        end = time.perf_counter()
        _intervals.append((end - duration, end))


jax.monitoring.register_event_duration_secs_listener(_listen)


@dataclass(frozen=True)
class Timed:
    """What a call returned, its seconds, and those of them that were compilation."""

    result: Any
    seconds: float
    compiling: float

    @property
    def running(self) -> float:
        """Seconds without compilation."""
        return self.seconds - self.compiling


def timed(work: Callable[[], Any]) -> Timed:
    """Run `work` and wait for its arrays. Nested traces are counted once: the union of what JAX reports."""
    _intervals.clear()
    start = time.perf_counter()
    result = jax.block_until_ready(work())
    seconds, compiling, reached = time.perf_counter() - start, 0.0, start
    for begin, end in sorted(_intervals):
        compiling += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return Timed(result, seconds, compiling)
