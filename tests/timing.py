"""Bounds on time that a busy machine does not break: what is slow is slow every time, what was disturbed is not."""

from __future__ import annotations

import time
from collections.abc import Callable

ATTEMPTS = 5


def processor_seconds(work: Callable[[], object]) -> float:
    """Seconds of processor of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def holds_once(claim: Callable[[], bool], attempts: int = ATTEMPTS) -> bool:
    """Whether a claim about times holds in one of several attempts; the first that holds is the last made."""
    return any(claim() for _ in range(attempts))


def takes_less_than(work: Callable[[], object], seconds: float) -> bool:
    """Whether a call takes less time of the processor, in one of several attempts."""
    return holds_once(lambda: processor_seconds(work) < seconds)
