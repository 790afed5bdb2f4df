"""What every engine shares: a search that reports its steps, is interrupted between them, and ends with a result.

An engine owns mathematics, in a `Search`; `drive` owns the rest: who keeps the best state so far while it goes on,
what an interrupt ends, and what is said of the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gpdsl.inference.monitor import Monitor
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.problem import Problem, Result
from gpdsl.program.program import Program

INTERRUPTED = "interrupted"

ALL_DONE = "all steps done"


class Search(Protocol):
    """A search for the best q and learnt parameters of a problem."""

    def run(self) -> str:
        """Search to the end, and say how it ended.

        Every step is reported to the problem's monitor, which raises KeyboardInterrupt where the user has asked to
        stop: the state must be whole then.
        """

    def state(self) -> Result:
        """The best state so far, soon: it is asked for in the middle of a search, to be kept in a file."""

    def finish(self) -> Result:
        """The best state with its bound, after the end or an interrupt. A message of its own replaces that of `run`."""


def drive(monitor: Monitor, search: Search) -> Result:
    """The result of a search. An interrupt ends it with its best state, another one while that is made ends the fit."""
    monitor.state = search.state
    try:
        message, interrupted = search.run(), False
    except KeyboardInterrupt:
        message, interrupted = INTERRUPTED, True
    try:
        found = search.finish()
    except KeyboardInterrupt:
        if interrupted:
            raise
        found, message, interrupted = search.finish(), INTERRUPTED, True  # the first: what is left takes little time
    message = message if interrupted or not found.message else found.message
    return replace(found, message=message, interrupted=interrupted)


Asked = Callable[[Program, Choice, Options], bool]


def nothing_against(program: Program) -> None:
    """No reason why an engine should not fit a program."""


@dataclass(frozen=True)
class Engine:
    """A way to fit, for what was decided about a program."""

    name: str
    asked: Asked
    """Whether the decisions ask for it."""
    fit: Callable[[Problem], Result]
    refined: bool = True
    """Whether the quadratures of its bound are looked at again in the end (`fineness`)."""
    against: Callable[[Program], str | None] = nothing_against
    """Why it cannot fit a program, if so."""


def searching(name: str, asked: Asked, begin: Callable[[Problem], Search], **more: Any) -> Engine:
    """An engine that fits by one search."""
    return Engine(name, asked, lambda problem: drive(problem.monitor, begin(problem)), **more)


# --- What an inference hands to whoever keeps its best state while it goes on ----------------------------------------


Keep = Callable[[Choice, float, Monitor, Callable[[], Result], bool], None]
"""Takes the decisions, the jitter, the history, how to get at the best state, and whether a search has ended there."""
