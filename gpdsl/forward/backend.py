"""What it takes to run an opaque function somewhere: the job, its time-outs, and the one method of a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpdsl.forward.work import Answer, even

DEFAULT_TIMEOUT = 600.0
"""Seconds that one call may take where it runs elsewhere, unless the registration says otherwise."""

LONGEST_WAIT = 1e6
"""Seconds: time-outs beyond this are more than the system takes."""

PIECES = 4
"""Pieces for each worker, where the rows of a batch are shared out once and for all: some take longer than others."""


@dataclass(frozen=True)
class Job:
    """A function and how it is called. `stop`: rows after one that failed need not be tried."""

    name: str
    function: Callable[..., Any]
    vectorized: bool
    timeout: float | None = None
    stop: bool = False

    @property
    def patience(self) -> float:
        """Seconds that one call may take elsewhere."""
        return DEFAULT_TIMEOUT if self.timeout is None else self.timeout

    def pieces(self, rows: int, workers: int) -> list[slice]:
        """Rows shared out: a vectorised function gets one piece a worker, one that takes rows gets several."""
        return even(rows, workers if self.vectorized else PIECES * workers)

    def allowed(self, rows: int) -> float:
        """Seconds that a piece of so many rows may take."""
        return min(self.patience * (1 if self.vectorized else rows), LONGEST_WAIT)


Pieces = list[tuple[slice, Answer]]
"""Answers for pieces of a batch. Rows may be left out only where a row failed and `Job.stop` is set."""


class Backend(ABC):
    """What runs functions: on all rows of the arguments, with time-outs on every wait."""

    place: str
    """Where that is, in words, for `explain`."""

    @abstractmethod
    def run(self, job: Job, arguments: Sequence[np.ndarray]) -> Pieces:
        """Answers for all rows."""
