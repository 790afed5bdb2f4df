"""What is learnt by expectation propagation climbs: log Z_q at settled sites, or after a sweep or two."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from gpdsl.data import minibatches
from gpdsl.inference.driver import ALL_DONE, STAYED
from gpdsl.inference.expectation_propagation import sites as ep
from gpdsl.inference.expectation_propagation.tilted import Tilted
from gpdsl.inference.expectation_propagation.visits import State, Visits, added_up, groups_at, several_visits
from gpdsl.inference.natural.minibatch import settled
from gpdsl.inference.natural.profiled import outer_point, setting_of, split_point
from gpdsl.inference.natural.site_starts import start_sites
from gpdsl.inference.natural.sites import Sites, blend
from gpdsl.inference.natural.tied import no_sites, posterior_of, whitened
from gpdsl.inference.opaque.surrogate import Surrogate
from gpdsl.inference.problem import Problem, Rest, Result, as_numpy, tidy
from gpdsl.kernels.numerics import chosen
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import prior_means
from gpdsl.program.program import take_rows

SWEEPS = 500
"""Most sweeps at one set of hyperparameters."""


def converged(problem: Problem, tilted: Tilted) -> Callable[..., tuple[Array, Any, ep.Fixed]]:
    """Evidence, its gradient and the fixed point, from a warm start, after `SWEEPS` sweeps at most by default."""
    tolerance = max(problem.options.tolerance, 1e-12) * problem.count

    def objective(
        point: Any, sites: Sites, rest: Rest, surrogate: Surrogate | None = None, most: Any = None
    ) -> tuple[Array, Any, ep.Fixed]:
        rows, held, normals, jitter = rest
        here, setting = tilted.using(normals, surrogate), setting_of(problem, point, held, rows, jitter)
        found = ep.fixed_point(here, setting, sites, tolerance, SWEEPS if most is None else most)
        at = jax.lax.stop_gradient(found.sites)

        def value(point: Any) -> Array:
            return ep.evidence(here, setting_of(problem, point, held, rows, jitter), at)

        known, gradient = jax.value_and_grad(value)(point) if jax.tree.leaves(point) else (value(point), point)
        return known, gradient, found

    return objective


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Turn:
    """Where a search stands that moves sites and what is learnt in turn.

    `point` and `sites` come next, the sites with steps of this `length`; `change` is how far the last sites were from
    their targets. `sound` are the last point and sites at which the evidence was a finite number.
    """

    point: Any
    sites: Sites
    sound: tuple[Any, Sites]
    memory: Any
    length: Float[Array, ""]
    change: Float[Array, ""]


def first_turn(problem: Problem, point: Any, sites: Sites, optimiser: optax.GradientTransformation) -> Turn:
    """The start of a search, with steps of half the way to the targets."""
    half, far = jnp.asarray([0.5, jnp.inf], problem.options.dtype)
    return Turn(point, sites, (point, sites), optimiser.init(point), half, far)


def inner_step(problem: Problem, tilted: Tilted, optimiser: optax.GradientTransformation) -> Callable[..., Any]:
    """One look at all rows: it moves the sites, damped, and what is learnt along the gradient at fixed sites.

    From where the evidence is not a finite number, or a cavity not a distribution, half of the way back is taken.
    """

    def step(turn: Turn, rest: Rest) -> tuple[Turn, Array]:
        here = tilted.using(rest.normals)

        def value(point: Any) -> tuple[Array, tuple[ep.Swept, Array]]:
            setting = setting_of(problem, point, rest.held, rest.rows, rest.jitter)
            swept = ep.sweep(here, ep.visit_all(here, setting, turn.sites), turn.sites)
            return swept.evidence + setting.log_prior, (
                swept,
                ep.relative_change(swept, turn.sites, ep.units_of(setting, turn.sites)),
            )

        (known, (swept, change)), gradient = jax.value_and_grad(value, has_aux=True)(turn.point)
        sound = jnp.isfinite(known) & jnp.isfinite(change) & (swept.improper == 0)
        updates, memory = optimiser.update(gradient, turn.memory, turn.point)
        on = Turn(
            optax.apply_updates(turn.point, updates),
            blend(turn.sites, swept.target, turn.length),
            (turn.point, turn.sites),
            memory,
            ep.next_length(turn.length, change < turn.change),
            change,
        )
        point, sites = jax.tree.map(lambda a, b: 0.5 * (a + b), (turn.point, turn.sites), turn.sound)
        back = replace(turn, point=point, sites=sites, length=0.5 * turn.length)
        return chosen(sound, on, back), known

    return step


def doubts(settled: bool, stuck: float, count: int, within: str = "") -> str:
    """What a user must know of a fixed point that was not reached."""
    found = []
    if not settled:
        found.append(f"the sites did not settle within {within or f'{SWEEPS} sweeps'}, so the answer is approximate")
    if stuck:
        found.append(f"{stuck:.0f} of {count} rows have improper cavities and kept their last sites")
    return "".join(f"; {each}" for each in found)


# SEP on minibatches: the sites of some rows and a step of the hyperparameters at a time (SEP, section 2.4, eq. 6).
#
# A row keeps two numbers for each of its latents, and the posterior their sum over the rows, in the coordinates of the
# inducing values (`inference.tied`). A visit replaces what a row has put into that sum. Directions are computed anew on
# every visit, so what lies in the sum is of older hyperparameters; after every pass over the data it is added up again.
#
# The gradient is eq. 4, with the posterior and the cavities of the rows held fixed:
#
#     d log Z_q = d E_q[log p(u)] + (N / |B|) sum_n d log Z_n / alpha.

RETRIES = 6
"""Times a chunk that ends in numbers that are not finite is made again, from sums made anew and with smaller steps."""

LOST = "stopped: the evidence is not a finite number, however small the steps"

COOLING = 0.5
"""The share of the steps in which the hyperparameters' steps fall to nothing."""


class EpMinibatch:
    """SEP on minibatches; the evidence is that of all rows in the end.

    Ctrl-C ends it between two compiled calls, which hand the sites on; a second one ends it without a result.
    """

    def __init__(self, problem: Problem, tilted: Tilted) -> None:
        self.doubt = ""
        """What a user must know of the end."""
        self.problem, self.tilted = problem, tilted
        self.before = problem.monitor.history[-1][0] if problem.monitor.history else 0
        """Steps at another power."""
        self.every = -(-problem.data_rows // problem.choice.batch)
        """Steps in a pass over the data."""
        key = jax.random.key(problem.options.seed)
        normals = tilted.normals(key, problem.choice.samples, problem.choice.batch, problem.program.latents)
        point = outer_point(problem, problem.parameters, problem.inducing)
        self.optimiser = optimiser_of(problem)
        self.draws = minibatches(problem.data_rows, problem.choice.batch, problem.options.seed + 1)
        self.at = self._start(point)
        self.first = None if problem.begun is None else jax.tree.map(jnp.copy, self.at)
        """Where it starts, when that is another fit."""
        chunk = min(self.every, 50, problem.choice.steps)
        self.size = chunk
        self.trace: list[float] = []
        self.pace = 1.0
        self.fixed = problem.rows, problem.inducing, normals
        visits = several_visits(problem, tilted, self.optimiser)
        self.compiled = problem.compiled(visits, *self._arguments(0), given=(0,))
        self.evidence = jit(lambda s, r, z, n: Visits(problem, tilted.using(n), r, z).evidence(s))
        self.message: str | None = None
        """How the steps have ended."""
        self.add_up = jit(lambda state, rows, held: added_up(problem, state, rows, held))

    def _start(self, point: Any) -> State:
        problem = self.problem
        dtype, columns = problem.options.dtype, problem.program.latents
        sites = Sites(*(jnp.zeros((problem.count, columns), dtype) for _ in range(2)))
        first = take_rows(problem.rows, slice(0, 1))
        factors = jit(lambda p, z, r: [g.factor for g in groups_at(problem, p, z, r)])
        here = factors(point, problem.inducing, first)
        tied = [no_sites(g.size, factor) for g, factor in zip(problem.program.groups, here, strict=True)]
        state = State(point, self.optimiser.init(point), sites, tied, point["inducing"])
        if problem.begun is None:
            return state
        state = replace(state, sites=_without_mean(problem, start_sites(problem)))
        return replace(state, tied=jit(partial(added_up, problem))(state, problem.rows, problem.inducing))

    def state(self) -> Result:
        """The state so far, with the mean evidence of the last steps."""
        return self._result(self.refreshed(), self.problem.monitor.last)

    def finish(self) -> Result:
        """The end, or the start from another fit where that has the higher evidence of all rows."""
        if self.at.sites.linear.is_deleted():  # in the middle of a compiled call
            raise KeyboardInterrupt
        last = self._looked(self.refreshed())
        first = last if self.first is None else self._looked(self.first)
        stayed = not last[1] >= first[1]
        at, value, stuck, unsettled = first if stayed else last
        problem, steps = self.problem, self.problem.choice.steps
        cut = self.message is None or (self.message == ALL_DONE and problem.options.steps is not None)
        settled = cut or not (unsettled or self.message == LOST)
        self.doubt = doubts(settled, stuck, problem.data_rows, f"{steps} steps")
        return replace(self._result(at, value), message=STAYED if stayed else "")

    def _looked(self, state: State) -> tuple[State, float, float, float]:
        """With its evidence of all rows, and how many are stuck and unsettled."""
        value, stuck, unsettled = self.evidence(state, *self.fixed)
        return state, float(value), float(stuck), float(unsettled)

    def _result(self, state: State, value: float) -> Result:
        problem = self.problem
        parameters, inducing = as_numpy(split_point(state.point, problem.inducing))

        def whiten(state: State) -> Any:
            here = groups_at(problem, state.point, problem.inducing, take_rows(problem.rows, slice(0, 1)))
            return [whitened(posterior_of(t, g.scale)) for t, g in zip(state.tied, here, strict=True)]

        return Result(parameters, inducing, tidy(jit(whiten)(state)), np.ones(1), value, 0.0)

    def run(self) -> str:
        """Chunks of steps, the sums added up anew after every pass."""
        self.message = self._all_steps()
        return self.message

    def _all_steps(self) -> str:
        done, since, retries, steps = 0, 0, 0, self.problem.choice.steps
        while done < steps:
            state, values = self.compiled(*self._arguments(done))
            values = np.asarray(values, float)
            fine = values[np.isfinite(values)]
            if 2 * fine.size < values.size or not np.isfinite(values[-1]):
                retries, self.pace, since = retries + 1, 0.5 * self.pace, 0
                self.at = replace(self.at, sites=state.sites)  # those before are no more, these are sound
                if retries > RETRIES:
                    return LOST
                self.at = self.refreshed()
                continue
            self.at, done, since = state, done + self.size, since + self.size
            self.trace += fine.tolist()
            self.problem.monitor.report(self.before + min(done, steps), float(fine.mean()))
            if since >= self.every:
                self.at, since = self.refreshed(), 0
            if done > (1 - COOLING) * steps and settled(self.trace, self.problem.epoch):
                return "converged: the evidence no longer rises beyond its sampling error"
        return ALL_DONE

    def refreshed(self) -> State:
        """The state with sums of all rows at its own hyperparameters."""
        tied = self.add_up(self.at, *self.fixed[:2])
        return replace(self.at, tied=tied, anchors=self.at.point["inducing"])

    def _arguments(self, done: int) -> tuple[Any, ...]:
        """What the next visits take, after so many: the sites, which they use up, the rest of the state, and rows."""
        numbers = jnp.asarray(np.stack([*itertools.islice(self.draws, self.size)]))
        rest = replace(self.at, sites=None)
        return self.at.sites, rest, numbers, self._lengths(done), *self.fixed

    def _lengths(self, done: int) -> Array:
        """Of the optimiser's steps: nothing before every row has a site, then full pace, then ever less."""
        steps = self.problem.choice.steps
        number = np.arange(done, done + self.size)
        fall = np.clip((steps - number) / max(COOLING * steps, 1), 0.0, 1.0)
        begun = number >= min(self.every, steps // 4)
        return jnp.asarray(self.pace * begun * (0.5 - 0.5 * np.cos(np.pi * fall)), self.problem.options.dtype)


def _without_mean(problem: Problem, sites: Sites) -> Sites:
    """Sites of the latents without their prior means."""
    program = problem.program

    def moved(parameters: Any, rows: Any, sites: Sites) -> Sites:
        known = program.parameters.constrain(parameters)
        mean = prior_means(program.evaluator, program.groups, known, rows, problem.count)
        return replace(sites, linear=sites.linear - sites.precision * mean)

    return jit(moved)(problem.parameters, problem.rows, sites)


def optimiser_of(problem: Problem) -> optax.GradientTransformation:
    """Adam or Adadelta, uphill."""
    options = problem.options
    if problem.choice.optimizer == "adadelta":
        return optax.chain(optax.adadelta(1.0, options.decay, options.epsilon), optax.scale(-1.0))
    return optax.chain(optax.adam(problem.choice.learning_rate), optax.scale(-1.0))
