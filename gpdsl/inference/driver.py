"""What every engine shares: a search that reports its steps, is interrupted between them, and ends with a result.

An engine owns mathematics, in a `Search`; `drive` owns the rest: who keeps the best state so far while it goes on,
what an interrupt ends, and what is said of the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from jaxtyping import Array

from gpdsl.data import Data
from gpdsl.errors import GpdslError, described, quoted
from gpdsl.inference.ascent.lbfgs import ENDINGS, Remembered, looked_at, maximise
from gpdsl.inference.bound import Bound, Layout
from gpdsl.inference.integrated import Profile, Profiled
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.problem import Monitor, Problem, Report, Rest, Result
from gpdsl.inference.warm import Start
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.program import Program

if TYPE_CHECKING:
    from gpdsl.inference.mcmc.chains import Target


INTERRUPTED = "interrupted"

ALL_DONE = "all steps done"

OUT_OF_STEPS = (ALL_DONE, ENDINGS[1])
"""How messages of searches begin that have taken all steps they were given."""


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


class ProfileSearch:
    """The learnt parameters of the greatest evidence, or bound at the best q, by L-BFGS; and the posterior there.

    Its programs serve whoever asks for the evidence elsewhere.
    """

    def __init__(self, problem: Problem, profile: Profile) -> None:
        self.problem, self.profile = problem, profile
        self.bound = Remembered(profile, problem.parameters)

    def run(self) -> str:
        """From the start."""
        problem, start = self.problem, self.problem.parameters
        if not start:  # nothing to learn
            return looked_at(self.bound, start, problem.monitor.report).message
        return maximise(self.bound, start, **problem.asked).message

    def state(self) -> Result:
        """At the best parameters so far."""
        best = self.bound.best
        found = replace(self.profile.at(best.point), profile=lambda: self.profile)
        return found if np.isfinite(found.elbo) else replace(found, elbo=best.value)

    finish = state


@dataclass(frozen=True)
class Engine:
    """A way to fit."""

    name: str
    fit: Callable[[Problem], Result]
    refined: bool = True
    """Whether the quadratures of its bound are looked at again in the end (`resolution.finely`)."""
    profiled: Profiled | None = None
    """Its evidence as a function of the learnt parameters, for `hyperparameters = integrated`."""
    target: Callable[[Problem, Result], Target] | None = None
    """What chains draw from, for `engine = mcmc`."""
    explain: Callable[[Program, Options, Plan, int], str] | None = None
    """Its plan for so many rows in words, where that is another one than `plan.explain` tells."""


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


@dataclass(frozen=True, eq=False)
class Task:
    """A fit that is asked for: of what and how, who hears of every step, where it begins, and who keeps its state."""

    program: Program
    data: Data
    options: Options
    callback: Callable[[Report], None] | None = None
    start: Start | None = None
    keep: Keep | None = None

    def after(self, before: Monitor, stage: str = "") -> Task:
        """The same after another fit: the callback is told of steps and seconds besides, and of what they are steps."""
        if (callback := self.callback) is None:
            return self
        steps, seconds = before.history[-1][0], before.elapsed

        def told(report: Report) -> None:
            elbo = report.elbo if report.elbo > -np.inf else before.last  # before the first step
            total = replace(report, step=report.step + steps, steps=report.steps + steps, elbo=elbo)
            callback(replace(total, elapsed=report.elapsed + seconds, stage=stage + report.stage))

        return replace(self, callback=told)


# The bound of all rows at the end of a search that saw some of them at a time, exact but for the samples it needs.

STAYED = "stopped where it started: these steps found nothing better"
"""Message of a fit that goes on from another and ends below it."""


def complete(state: Mapping[str, Any], held: list[Functionals]) -> dict[str, Any]:
    """The state with the inducing inputs that do not move."""
    return {"inducing": held, **state}


def whole_bound(problem: Problem, state: Mapping[str, Any], rest: Rest) -> Array:
    """The bound from all rows, block by block where they are many; the samples, if any, are of all of them."""
    bound = Bound(problem.program, problem.layout, rest.rows, rest.jitter)
    return bound.value(complete(state, rest.held), problem.count, rest.normals)


Told = TypeVar("Told", bound=tuple[float, ...])
"""What is said of a state, its bound first."""


def assessor(problem: Problem) -> Callable[[Mapping[str, Any]], tuple[float, float]]:
    """Gives the bound of all rows at a state, and its standard error: 0 where nothing is sampled."""
    bound = problem.compiling(partial(whole_bound, problem))

    def assess(state: Mapping[str, Any]) -> tuple[float, float]:
        if problem.program.sampled:
            return problem.reassessed(lambda normals: bound(state, problem.rest(normals)), 0.0)
        return float(bound(state, problem.rest())), 0.0

    return assess


def better(assess: Callable[[Any], Told], first: Any, last: Any) -> tuple[Any, Told, bool]:
    """The end of a search, or its start from another fit (if it is one) where that has the higher bound of all rows.

    With what `assess` says of it, the bound first, and whether it is the start. Samples are the same for both.
    """
    at_last = assess(last)
    if first is None:
        return last, at_last, False
    at_first = assess(first)
    return (last, at_last, False) if at_last[0] >= at_first[0] else (first, at_first, True)


# A user's search as gpdsl drives it: what it raises, and what it returns that no engine may, names the engine.


class CheckedSearch:
    """A search that a user's function begins, each step of which is checked. Raises GpdslError."""

    def __init__(self, name: str, begin: Callable[[Problem], Search], problem: Problem) -> None:
        self.name, self.problem = name, problem
        with _blamed(name):
            self.search = begin(problem)
        missing = [each for each in ("run", "state", "finish") if not callable(getattr(self.search, each, None))]
        self._need(not missing, f"a search with {', '.join(missing)}", self.search)

    def run(self) -> str:
        """The user's."""
        with _blamed(self.name):
            said: object = self.search.run()
        self._need(isinstance(said, str), "a text from `run` that says how the search ended", said)
        return str(said)

    def state(self) -> Result:
        """The user's, checked."""
        with _blamed(self.name):
            return self._checked(self.search.state(), "state")

    def finish(self) -> Result:
        """The user's, checked."""
        with _blamed(self.name):
            return self._checked(self.search.finish(), "finish")

    def _need(self, true: object, expected: str, found: object) -> None:
        if not true:
            shown = "nothing" if found is None else f"{type(found).__name__} {quoted(repr(found)[:100])}"
            raise GpdslError(f"engine = {self.name}: expected {expected}, not {shown}")

    def _checked(self, found: Result, method: str) -> Result:
        """A result with as many numbers as the problem has; finite ones, where its value is finite."""
        self._need(isinstance(found, Result), f"a gpdsl.engines.Result from `{method}`", found)
        value, error = (self._number(each, f"{what} from `{method}`") for each, what in _values(found))
        shapes = {name: np.shape(start) for name, start in self.problem.parameters.items()}
        given = {name: np.shape(each) for name, each in found.parameters.items()}
        self._need(given == shapes, f"parameters of shapes {shapes} from `{method}`", given)
        groups = zip(self.problem.program.groups, self.problem.inducing, strict=True)
        means = [(1, group.size, len(points)) for group, points in groups]
        posterior = [np.shape(q.mean) for q in found.posterior]
        self._need(posterior == means, f"means of shapes {means} from `{method}`", posterior)
        roots = [np.shape(q.root)[:-1] for q in found.posterior]
        self._need(roots == means, f"roots of shapes {means}, and columns, from `{method}`", roots)
        numbers = [*found.parameters.values(), *(each for q in found.posterior for each in (q.mean, q.root))]
        finite = not np.isfinite(value) or all(np.all(np.isfinite(each)) for each in numbers)
        self._need(finite, f"finite parameters, means and roots from `{method}`, as the value is", value)
        return replace(found, elbo=value, elbo_se=error)

    def _number(self, value: Any, what: str) -> float:
        single = not isinstance(value, (str, bool)) and np.shape(value) == ()
        try:
            return float(value) if single else float("none")
        except (TypeError, ValueError):
            self._need(False, f"a number as {what}", value)
            raise


def _values(found: Result) -> tuple[tuple[object, str], tuple[object, str]]:
    return (found.elbo, "the value"), (found.elbo_se, "its error")


@contextmanager
def _blamed(name: str) -> Iterator[None]:
    """What a user's engine raises is a GpdslError that names it; an interrupt and errors of gpdsl pass."""
    try:
        yield
    except GpdslError:
        raise
    except Exception as problem:
        raise GpdslError(f"engine = {name}: {described(problem)}") from problem
