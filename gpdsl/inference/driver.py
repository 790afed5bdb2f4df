"""What every engine shares: a search that reports its steps, is interrupted between them, and ends with a result.

An engine owns mathematics, in a `Search`; `drive` owns the rest: who keeps the best state so far while it goes on,
what an interrupt ends, and what is said of the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from gpdsl.data import Data
from gpdsl.inference.bound import Layout
from gpdsl.inference.integrated.profile import Profiled
from gpdsl.inference.monitor import Monitor
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.problem import Problem, Result
from gpdsl.inference.warm import Start
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.program import Program

if TYPE_CHECKING:
    from gpdsl.inference.mcmc.targets import Target

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


@dataclass(frozen=True)
class Engine:
    """A way to fit."""

    name: str
    fit: Callable[[Problem], Result]
    refined: bool = True
    """Whether the quadratures of its bound are looked at again in the end (`fineness`)."""
    profiled: Profiled | None = None
    """Its evidence as a function of the learnt parameters, for `hyperparameters = integrated`."""
    target: Callable[[Problem, Result], Target] | None = None
    """What chains draw from, for `engine = mcmc`."""


@dataclass(frozen=True)
class Plan:
    """The decisions for some data: choices, the layout of the posterior, where inducing points start, and who fits."""

    choice: Choice
    layout: Layout
    inducing: list[Functionals]
    engine: Engine


Planner = Callable[[Program, Data, Options, Start | None], Plan | None]
"""The plan of an engine for a fit, from another fit if there is one; None where something else is asked for or due.

Raises GpdslError where it is what was asked for, and does not cover the model, the data or the options.
"""


def searching(name: str, begin: Callable[[Problem], Search], **more: Any) -> Engine:
    """An engine that fits by one search."""
    return Engine(name, lambda problem: drive(problem.monitor, begin(problem)), **more)


# --- What an inference hands to whoever keeps its best state while it goes on ----------------------------------------


Keep = Callable[[Choice, float, Monitor, Callable[[], Result], bool], None]
"""Takes the decisions, the jitter, the history, how to get at the best state, and whether a search has ended there."""
