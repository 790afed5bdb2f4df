"""The search over layers of few rows: from the last layer alone, in cycles that end when they gain little.

Layers that start near their arguments are almost no layers. What is left is a model of one layer, whose parameters and
posterior are found soon and without noise; from there all layers climb together, where they would otherwise still be
after these when the steps run out.

All rows are there in every step, so that the best q of the last layer is one natural step away where the likelihood is
Gaussian, and half of one leads near it elsewhere; Adam climbs what is left (Salimbeni and Deisenroth, 2017, has it wait
for a last layer that follows slowly). A bound that still falls and rises with long steps is not told from one that has
come to rest: so steps fall to almost nothing at the end of each cycle, and what the next one has gained is measured by
the same samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from gpdsl.data import Data, some_rows
from gpdsl.errors import GpdslError, plural
from gpdsl.inference.driver import ALL_DONE, INTERRUPTED, Task
from gpdsl.inference.inducing.loss import Loss
from gpdsl.inference.layered.engine import SHARE, LayeredSearch, Place, State, rises
from gpdsl.inference.layered.propagation import inner_width
from gpdsl.inference.layered.start import TINIEST, Groups, may_be_none, passing_on, start_layers
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Found, Problem, Report, Result, as_arrays
from gpdsl.inference.warm import Start
from gpdsl.kernels.numerics import jitter_for
from gpdsl.language import model as m
from gpdsl.language.inducing import PerLatent, asked_of, per_latent
from gpdsl.program.program import Program, at_values, make_program, make_rows
from gpdsl.program.rows import Rows
from gpdsl.program.white import training

ROWS = 1_000
"""Rows that tell enough of the parameters."""

WIDEST = 1_000
"""Points of the last layer where natural gradients on all rows go on from a fit of it alone: what it loses by too few
points, layers below do not make up for."""


class Callers(Exception):
    """A GpdslError that the caller's own function has raised: it passes where those of a fit are that fit's end."""

    def __init__(self, problem: GpdslError) -> None:
        super().__init__(problem)
        self.problem = problem


def passing(callback: Callable[[Report], None]) -> Callable[[Report], None]:
    """A callback whose GpdslErrors are `Callers`."""

    def told(report: Report) -> None:
        try:
            callback(report)
        except GpdslError as problem:
            raise Callers(problem) from problem

    return told


def begins_below(program: Program) -> bool:
    """Whether the last layer can be fitted alone first: no layer starts without row variables, nor opaque functions."""
    return not program.inner & program.declarations.rows.keys() and not program.opaque


def from_the_last_layer(
    task: Task, inducing: Mapping[str, int], fit: Callable[[Task], Found]
) -> tuple[Program, Start | None]:
    """The program with parameters of a fit of its last layer alone, and that fit to start from.

    `fit` is `infer`. The program as it is where that cannot be; without the fit where that has fewer inducing points
    than `inducing` has by the names of latents, or variables of the rows that it was made of.

    Raises KeyboardInterrupt when the user stops it.
    """
    program, data, options = task.program, task.data, task.options
    if not begins_below(program):
        return program, None
    some = data.take(some_rows(data.rows, ROWS, options.seed))
    asked = {name: asked_of(options.inducing, name) for name in inducing}
    features = {name: each for name, each in asked.items() if isinstance(each, str)}
    own = {name: min(count, some.rows) for name, count in inducing.items()} | features
    try:
        alone = _alone(program, some, options, own)
        best = fit(alone)
    except GpdslError:  # whatever ails one layer is told of all
        return program, None
    if best.result.interrupted:
        raise KeyboardInterrupt  # before the first state of all layers
    one = alone.program
    program, start = _from(program, one, best)
    if start is None or program.declarations.rows or features.keys() & start.program.declarations.latents.keys():
        return program, None  # bounds of features are those of some rows
    wanted = [inducing.get(group.names[0]) for group in one.groups]
    fewer = any(len(points) != count for points, count in zip(best.result.inducing, wanted, strict=True))
    return program, None if fewer else start


def no_worse_than_one(
    task: Task,
    found: Found,
    fit_one: Callable[[Task, float], Found],
    fit_all: Callable[[Program, Start], Found],
) -> Found:
    """What was found; or what all layers make of a fit of the last one alone, where that has a higher bound.

    The last layer of many rows has fewer inducing points below others than it has alone, since every step of its search
    visits them: what these lose may be more than depth gains. Of few rows steps may lead astray. What goes on begins as
    one layer, with next to no variance of those below where their means pass arguments on. `fit_one` is given the bound
    that it has to beat, and may end when it sees that it will not; `fit_all` goes on from a program and a `Start`.
    """
    sound = np.isfinite(found.result.elbo) and not found.result.interrupted
    if not (sound and may_go_on(task.program, task.options)):
        return found
    rows = task.data.rows
    bound = found.result.elbo + Loss(0.0, rows).slight
    try:
        one, best = _fit_of_one(task, fit_one, bound)
        program, start = _from(task.program, one, best)
        if best.result.interrupted:
            raise KeyboardInterrupt
        if not best.result.elbo > bound or start is None:
            return found
        whole = fit_all(passing_on(program), start)
        if _lost(whole, best.result.elbo, rows) and may_be_none(program):
            whole = max(whole, fit_all(passing_on(program, TINIEST), start), key=lambda each: each.result.elbo)
    except Callers as theirs:
        raise theirs.problem from theirs.problem.__cause__
    except GpdslError:
        return found
    except KeyboardInterrupt:
        return found.but(interrupted=True, message=INTERRUPTED)
    return _told_of_one(whole, best.result.elbo, rows, may_be_none(program))


def _told_of_one(found: Found, one: float, rows: int, none: bool) -> Found:
    """With a note, where one layer has the higher bound all the same: nothing else of the fit shows that it has.

    Layers that may be none (`none`) have lost what one has. Of others it is no fault of the search that they cost more
    than they gain, and the message says that they do.
    """
    if not _lost(found, one, rows):
        return found
    above = one - found.result.elbo
    said = f"the last layer alone, with those below as they start, has a bound that is {above:.3g} nats higher"
    if not none:
        return found.but(
            message=f"{found.result.message}; {said}, as narrow as these cannot be: a model of one layer may be enough"
        )
    kept = "layers that went on from there did not keep it: give more `steps`, or compare a model of one layer"
    return found.but(notes=(*found.result.notes, f"{said}, and {kept}"))


def _lost(found: Found, one: float, rows: int) -> bool:
    """Whether a search that nobody has stopped ends below one layer."""
    return not (found.result.interrupted or Loss(one - found.result.elbo, rows).small)


def _fit_of_one(task: Task, fit: Callable[[Task, float], Found], bound: float) -> tuple[Program, Found]:
    """The last layer alone, with inducing points where exact inference would be above the bound without any."""
    alone = _alone(task.program, task.data, task.options, None)
    best, one = fit(alone, bound), alone.program
    if not (best.choice.dense or best.choice.exact) or best.result.interrupted or not best.result.elbo > bound:
        return one, best
    there = at_values(one, one.parameters.constrain(as_arrays(best.result.parameters, task.options.dtype)))
    chosen = replace(alone.options, inducing=min(WIDEST, task.data.rows))
    return one, fit(replace(alone, program=there, options=chosen), bound)


def may_go_on(program: Program, options: Options) -> bool:
    """Whether layers may go on from one, where nobody has said how many inducing points, nor how long to search."""
    asked = options.inducing is not None or options.steps is not None or options.learning_rate is not None
    return begins_below(program) and not program.declarations.rows and not asked


def _alone(program: Program, data: Data, options: Options, inducing: PerLatent | None) -> Task:
    """A fit of the last layer over the values at which those below start, as inputs.

    Raises GpdslError for what a model of one layer may not be.
    """
    values, declared = _values(program, data, options), program.declarations
    known = {name: m.Input(name, each.span, each.axes) for name, each in declared.latents.items() if name in values}
    left = {name: each for name, each in declared.latents.items() if name not in values}
    below = [each for name, each in declared.latents.items() if name in values]
    priors = [each.prior for each in declared.params.values()]
    others = left, declared.lets, declared.rows, declared.observations, priors
    idle = set(_names(below)) - set(_names(others))  # they would count among what is learnt, and what tells neighbours
    inputs = {name: each for name, each in declared.inputs.items() if name not in idle}
    shallow = replace(declared, inputs=MappingProxyType(inputs | known), latents=MappingProxyType(left))
    asked = None if inducing is None else per_latent(inducing, shallow.latents)
    one = make_program(
        shallow,
        program.sizes,
        program.levels,
        {},
        expectations=options.expectations,
        fixed={*options.fixed, *(idle & declared.params.keys())},
        initial={**program.parameters.initial, **program.parameters.held},
        inducing=asked,
    )
    chosen = Options(inducing=asked, seed=options.seed, dtype=options.dtype)
    read = {name: each for name, each in data.inputs.items() if name not in idle}
    return Task(one, replace(data, inputs={**read, **values}), chosen)


def _names(part: object) -> Iterator[str]:
    """What is read anywhere inside a declaration, and what latents are functions of."""
    if isinstance(part, m.Read):
        yield part.name
    elif isinstance(part, m.Latent):
        yield from part.arguments
    inside: Iterable[object] = ()
    if is_dataclass(part):
        inside = (getattr(part, each.name) for each in fields(part))
    elif isinstance(part, Mapping):
        inside = part.values()
    elif isinstance(part, tuple | list):
        inside = part
    for each in inside:
        yield from _names(each)


def _from(program: Program, one: Program, found: Found) -> tuple[Program, Start | None]:
    """The program at the parameters of a fit of its last layer alone; and that to start from, if it has such a q."""
    result, _, choice, jitter = found
    values = {
        name: np.asarray(value) for name, value in one.parameters.constrain(as_arrays(result.parameters, float)).items()
    }
    program = at_values(program, values)
    if choice.dense or choice.exact or len(result.weights) > 1:
        return program, None
    posterior = result.inducing, result.posterior, result.weights
    return program, Start(training(one, dense=False), values, *posterior, jitter, False)


def _values(program: Program, data: Data, options: Options) -> Mapping[str, np.ndarray]:
    """The values at which the inner layers start."""
    rows, jitter = make_rows(program, data), jitter_for(np.dtype(options.dtype))
    return start_layers(program, rows, [1] * len(program.groups), jitter, options.seed, data)[2]


CYCLES = 3
"""Cycles at most: one is to find where to go, the second to see whether there is more, the third to take it."""

TRIED = 2
"""Cycles of each beginning, where there are two, before it is seen which leads on."""

FEWEST = 3
"""Bounds that tell whether it has settled: of the start, and of two cycles at least."""

UNTRIED = (
    "the search was to begin twice, as row variables find other places the second time, and had not done so: what goes "
    "on from here goes to the place next to it, a fit from the start looks for both"
)

LATE = 5.0
"""The last layer follows each pass wholly while Adam's steps are longer than one such part of what they were."""

NEAR = 0.5
"""How far a natural step of the last layer goes where the likelihood is not Gaussian."""


def settles(program: Program, batch: int, optimizer: str, samples: int = 1) -> bool:
    """Whether all rows are seen in every step, and natural gradients find the last layer.

    Of passes in which layers alone are sampled: the variables of rows follow slowly. Of no samples in any case.
    """
    return not batch and optimizer == "natural" and not (samples and program.declarations.rows)


def most_steps(steps: int) -> int:
    """Of a search that begins twice, by those of one beginning."""
    return (2 * TRIED + CYCLES) * -(-steps // CYCLES)


class SettledSearch(LayeredSearch):
    """Ascent in cycles, from where the layers start; one cycle where a number of steps is asked for."""

    even = True
    slow = False
    """Whether the last layer follows slowly."""
    untried = False
    """Whether the second of two beginnings has not ended."""

    def __init__(self, problem: Problem, start: Groups) -> None:
        super().__init__(problem, start)
        self.limit = problem.choice.steps
        self.ends: list[tuple[float, Place]] = []
        """The bound where it starts and at the end of every cycle, by the same samples, and the place."""

    def run(self) -> str:
        """Cycle after cycle, until one gains next to nothing, or all steps are done.

        Without samples two cycles, as many steps from the start once more, and on from the better end: variables of
        rows that a last layer at its best holds where they began find other places beside one that follows slowly at
        first, by tens of nats better or worse.
        """
        choice, options = self.problem.choice, self.problem.options
        self.ends, length = [self._end()], choice.steps if options.steps else -(-choice.steps // CYCLES)
        if choice.samples or options.steps:
            return self._cycles(choice.steps, length)
        self.problem.monitor.steps = self.limit = most_steps(choice.steps)
        self.untried = True
        message = self._cycles(TRIED * length, length)
        first, (self.point, self.last, self.memory) = self._best(), self.ends[0][1]
        for self.slow in (True, False):
            ended = self._part(length)
            if ended != ALL_DONE:
                return ended
        self.untried = False
        self._arrive()
        if self._best() is not first or message == ALL_DONE:
            return self._cycles(self.limit, length)
        self.problem.monitor.report(self.done, max(value for value, _ in self.ends))  # back where the others ended
        return message

    def _cycles(self, end: int, length: int) -> str:
        """Cycles from the best place, up to so many steps in all, until one gains next to nothing."""
        while self.done < end:
            message = self._part(min(length, end - self.done))
            if message != ALL_DONE:
                return message
            self._arrive()
            if self.gain <= self.slight and len(self.ends) >= FEWEST:
                few = plural(self.slight, "nat", ".2g")
                return f"converged: {self.length} more steps have raised the bound by less than {few}"
        return ALL_DONE

    def _part(self, length: int) -> str:
        """So many steps, whose lengths fall to almost nothing."""
        self.begun, self.length = self.done, length
        return self._until(self.done + length)

    def _arrive(self) -> None:
        """Note the bound and the place at the end of some steps, and go to the best of all."""
        before = max(value for value, _ in self.ends)
        self.ends.append(self._end())
        self.gain = self.ends[-1][0] - before
        self.point, self.last, self.memory = self._best()

    def finish(self) -> Result:
        """The best end of a cycle, or where it is, whichever has the higher bound."""
        self.ends.append(self._end())
        self.point, self.last, self.memory = self._best()
        found = self._result(*self._assessed())
        return self._told(found) if self.problem.options.steps else replace(found, notes=self._notes())

    def state(self) -> Result:
        """Where it is, or where a cycle has ended higher."""
        best, place = max(self.ends[1:], key=lambda end: end[0], default=(-np.inf, None))
        return self._result(best, 0.0, place) if best > self.problem.monitor.last else super().state()

    def _end(self) -> tuple[float, Place]:
        value = self._assessed()[0]
        return value if np.isfinite(value) else -np.inf, (self.point, self.last, self.memory)

    def _best(self) -> Place:
        return max(self.ends, key=lambda end: end[0])[1]

    def _notes(self) -> tuple[str, ...]:
        """A note where the second beginning is missing, or the last cycle of all has gained more than a little."""
        if self.untried:
            return (UNTRIED,)
        if self.done < self.limit or len(self.ends) < FEWEST or self.gain <= self.slight:
            return ()
        gain = plural(self.gain, "nat", ".2g")
        return (rises(f"the last {self.length} of {self.done} steps have raised it by {gain}", self.done),)

    def _lengths(self, steps: np.ndarray) -> Float[np.ndarray, "steps 2"]:
        """How far Adam goes, and the last layer: less in the end, where it would follow the noise of single passes."""
        program, lengths = self.problem.program, super()._lengths(steps)
        if self.slow:
            return lengths
        noisy = self.problem.choice.samples and inner_width(program) > 1
        fall = np.minimum(LATE * lengths[:, 1] / SHARE, 1.0) if noisy else np.ones(len(steps))
        return np.stack([lengths[:, 0], fall * (1.0 if program.conjugate else NEAR)], axis=1)

    def _seen(self, point: State, last: Any, rows: Rows, key: Array, share: Array) -> tuple[Array, State, Any]:
        """The bound and its slope where the last layer is at its best, or nearer to it; and that last layer."""
        expected = self._expected()
        known = jax.lax.stop_gradient(point)

        def value(given: Any) -> Array:
            return self._value(known, given, rows, key, expected)

        slope = jax.grad(value)({place: each.gaussians() for place, each in last.items()})
        last = {place: each.moved(slope[place], share) for place, each in last.items()}
        given = {place: each.gaussians() for place, each in last.items()}
        found, gradient = jax.value_and_grad(self._value)(point, given, rows, key, expected)
        return found - sum(each.divergence(given[place]) for place, each in last.items()), gradient, last
