"""What the opaque functions of one fit have cost: evaluations, time inside, failures, and what the cache spared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gpdsl.forward.errors import ForwardModelError


class Stopped(KeyboardInterrupt):
    """A fault of an opaque function in the middle of a fit, which engines treat as they treat Ctrl-C."""


@dataclass(eq=False)
class Accounting:
    """Counts of one fit, kept by `forward.call` and read by the engine and the progress bar.

    evaluations: rows on which a function was called, further attempts included; answers from the cache are no
    evaluations. failures: evaluations without a usable value. penalised: rows that failed for good and went on without
    a value. hits: rows answered by the cache. seconds: wall time inside the functions, waiting for workers included.
    budget: most evaluations wanted; the engine stops before it passes it, and attempts are not repeated beyond it.
    fitting: a fault ends a fit as Ctrl-C does, with the best state so far; fault: the one that did.
    """

    evaluations: int = 0
    failures: int = 0
    penalised: int = 0
    hits: int = 0
    seconds: float = 0.0
    budget: float = math.inf
    fitting: bool = False
    fault: ForwardModelError | None = None

    @property
    def remaining(self) -> float:
        """Evaluations left in the budget."""
        return self.budget - self.evaluations

    def usage(self) -> Usage:
        """The counts so far."""
        return Usage(self.evaluations, self.failures, self.penalised, self.hits, self.seconds)


@contextmanager
def fitting(account: Accounting) -> Iterator[None]:
    """A fit whose opaque functions count here. Raises the fault that stopped it, where the engine did not take it."""
    account.fitting, account.fault = True, None
    try:
        yield
    except Stopped:
        assert account.fault is not None
        raise account.fault from account.fault.__cause__
    finally:
        account.fitting = False


@contextmanager
def stopping_fit(account: Accounting) -> Iterator[None]:
    """Turn errors of opaque functions into `Stopped`, while a fit goes on."""
    try:
        yield
    except ForwardModelError as error:
        if not account.fitting:
            raise
        account.fault = error
        raise Stopped from error


@dataclass(frozen=True)
class Usage:
    """The counts of a fit, as its summary shows them; see `Accounting`."""

    evaluations: int = 0
    failures: int = 0
    penalised: int = 0
    hits: int = 0
    seconds: float = 0.0

    def lines(self, elapsed: float) -> list[str]:
        """What the counts say, for a fit that took `elapsed` seconds; nothing when no opaque function was called."""
        if not self.evaluations and not self.hits:
            return []
        found = [self.line(elapsed)]
        if self.hits:
            found.append(f"{self.hits:,} more answered by the cache")
        if self.failures:
            found.append(f"{self.failures:,} evaluations failed ({self.failures / max(self.evaluations, 1):.2%})")
        if self.penalised:
            found += self._penalty()
        return found

    def line(self, elapsed: float) -> str:
        """Evaluations, how fast they were, and the share of the time that they took."""
        share = min(self.seconds / elapsed, 1.0) if elapsed else 0.0
        rate = f", {self.evaluations / self.seconds:,.0f}/s" if self.seconds and self.evaluations else ""
        return f"{self.evaluations:,} evaluations{rate}, {share:.0%} of the time inside"

    def _penalty(self) -> list[str]:
        share = self.penalised / max(self.evaluations + self.hits, 1)
        return [
            f"{self.penalised:,} failures were penalised ({share:.2%}): each counts as the worst value of its row;",
            f"if failures do not depend on the inputs, precisions are up to {share:.1%} too low: use retry(n) instead",
        ]
