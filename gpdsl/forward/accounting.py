"""What the opaque functions of one fit have cost: evaluations, time inside, failures, and what the cache spared."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(eq=False)
class Accounting:
    """Counts of one fit, kept by `forward.call` and read by the engine and the progress bar.

    evaluations: rows on which a function was called, further attempts included; answers from the cache are no
    evaluations. failures: evaluations without a usable value. penalised: rows that failed for good and went on without
    a value. hits: rows answered by the cache. seconds: wall time inside the functions, waiting for workers included.
    budget: most evaluations wanted; the engine stops before it passes it, and attempts are not repeated beyond it.
    """

    evaluations: int = 0
    failures: int = 0
    penalised: int = 0
    hits: int = 0
    seconds: float = 0.0
    budget: float = math.inf

    @property
    def remaining(self) -> float:
        """Evaluations left in the budget."""
        return self.budget - self.evaluations

    @property
    def rate(self) -> float:
        """Evaluations per second inside the functions."""
        return self.evaluations / self.seconds if self.seconds else 0.0

    @property
    def failed(self) -> float:
        """The share of evaluations that failed."""
        return self.failures / self.evaluations if self.evaluations else 0.0

    def usage(self) -> Usage:
        """The counts so far."""
        return Usage(self.evaluations, self.failures, self.penalised, self.hits, self.seconds)


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
        share = min(self.seconds / elapsed, 1.0) if elapsed else 0.0
        rate = f", {self.evaluations / self.seconds:,.0f} a second" if self.seconds and self.evaluations else ""
        found = [f"{self.evaluations:,} evaluations{rate}; {share:.0%} of the time inside"]
        if self.hits:
            found.append(f"{self.hits:,} more answered by the cache")
        if self.failures:
            found.append(f"{self.failures:,} evaluations failed ({self.failures / max(self.evaluations, 1):.2%})")
        if self.penalised:
            found += self._penalty()
        return found

    def _penalty(self) -> list[str]:
        share = self.penalised / max(self.evaluations + self.hits, 1)
        return [
            f"{self.penalised:,} failures were penalised ({share:.2%}): each counts as the worst value of its row;",
            f"if failures do not depend on the inputs, precisions are about {share:.1%} too low: use retry(n) instead",
        ]
