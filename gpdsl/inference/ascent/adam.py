"""Adam on the bound, for noisy gradients: fresh samples, and fresh rows when there are minibatches, at every step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from gpdsl.data import minibatches
from gpdsl.inference.ascent.joint import finish, initial_state
from gpdsl.inference.bound import Bound, divergence, weights
from gpdsl.inference.driver import ALL_DONE, STAYED, Search, assessor, better, complete
from gpdsl.inference.natural.minibatch import WARMING
from gpdsl.inference.opaque.budget import Spent, assessing, each_step, require
from gpdsl.inference.opaque.simulator import by_halves, fresh_bound
from gpdsl.inference.opaque.surrogate import Values, compiled_arguments, evaluate_externals
from gpdsl.inference.problem import Problem, Result
from gpdsl.inference.sampling import sum_and_error
from gpdsl.kernels.numerics import chosen
from gpdsl.program.cache import jit
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows, row_count
from gpdsl.symbolic.translate import ExternalUse

CHUNK = 50
"""Steps per compiled call: progress, interruption and checks happen between chunks."""


LARGEST_STEP = 0.1
"""Of Adadelta in any unknown, all of which are of the order of one."""


def adam_search(problem: Problem) -> Search:
    """Stochastic ascent over everything at once."""
    return OpaqueSteps(problem) if problem.program.opaque else ScannedSteps(problem)


def _optimiser(problem: Problem) -> optax.GradientTransformation:
    """Adam, or Adadelta with the constants of SAVIGP 9.2 by default, with steps that become shorter towards the end.

    Adadelta's steps feed on each other: from a steep slope they can run away, which a largest step prevents.
    """
    options, choice = problem.options, problem.choice
    if choice.optimizer == "adadelta":
        falling = optax.cosine_decay_schedule(1.0, choice.steps, alpha=0.02)
        moves = optax.adadelta(falling, rho=options.decay, eps=options.epsilon)
        steps = optax.chain(moves, optax.clip(LARGEST_STEP))
    else:
        steps = optax.adam(_lengths(problem))
    if problem.layout.family.components == 1:
        return steps
    return optax.chain(steps, optax.masked(optax.scale_by_schedule(_late(choice.steps)), _weights_alone))


def _lengths(problem: Problem) -> Callable[[Array], Array]:
    """Lengths of Adam's steps: they fall like a cosine, and rise first where the start is another fit.

    Adam's first steps are as long as they may be, in directions that one minibatch gives: away from any optimum.
    """
    choice = problem.choice
    falling = optax.cosine_decay_schedule(choice.learning_rate, choice.steps, alpha=0.05)
    if problem.begun is None:
        return falling
    warming = max(int(WARMING * choice.steps), 1)
    return lambda number: falling(number) * jnp.minimum((number + 1) / warming, 1.0)


def _late(steps: int) -> Callable[[Array], Array]:
    """A mixture's weights stay equal in the first third of the steps, until its components have found their places."""
    return lambda number: jnp.where(number < steps // 3, 0.0, 1.0)


def _weights_alone(state: Any) -> Any:
    """Where a mixture's weights stand in a state."""
    nothing = jax.tree.map(lambda _: False, state)
    return {**nothing, "posterior": {**nothing["posterior"], "logits": True}}


def _ascend(
    optimiser: optax.GradientTransformation, bound: Callable[[Any], Array], state: Any, memory: Any
) -> tuple[Any, Any, Array]:
    """One step up: the new state, the optimiser's memory and the bound before. Where that is not finite, none moves."""
    value, gradient = jax.value_and_grad(bound)(state)
    updates, moved = optimiser.update(jax.tree.map(jnp.negative, gradient), memory, state)
    sound = jnp.isfinite(value)
    keep = partial(chosen, sound)
    return keep(optax.apply_updates(state, updates), state), keep(moved, memory), value


def _whole(problem: Problem) -> bool:
    return not problem.choice.batch or problem.choice.batch >= problem.data_rows


def _batches(problem: Problem) -> Iterator[np.ndarray]:
    """Row numbers of one step at a time: epochs without replacement, or all rows in order."""
    if _whole(problem):
        return itertools.repeat(np.arange(problem.count))
    return minibatches(problem.data_rows, problem.choice.batch, problem.options.seed + 1)


class ScannedSteps:
    """A chunk of steps per compiled call."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.draws, self.size = problem, _batches(problem), min(CHUNK, problem.choice.steps)
        self.point, self.key = initial_state(problem), jax.random.key(problem.options.seed)
        self.optimiser = _optimiser(problem)
        self.first = None if problem.begun is None else self.point
        self.memory, self.held = self.optimiser.init(self.point), (problem.rows, problem.inducing, problem.jitter)
        given = self.point, self.memory, self._indices(), jax.random.split(self.key, self.size), *self.held
        self.compiled = problem.compiled(self._chunk, *given)

    def run(self) -> str:
        """All steps."""
        steps = self.problem.choice.steps
        for done in range(self.size, steps + self.size, self.size):
            keys = jax.random.split(jax.random.fold_in(self.key, done), self.size)
            self.point, self.memory, values = self.compiled(self.point, self.memory, self._indices(), keys, *self.held)
            self.problem.monitor.report(min(done, steps), float(np.nanmean(np.asarray(values))))
        return ALL_DONE

    def state(self) -> Result:
        """Where it is, with the mean bound of the last steps."""
        return finish(self.problem, self.point, self.problem.monitor.last, 0.0)

    def finish(self) -> Result:
        """Where it ends, with the bound of all rows; or where it started from another fit that has a higher one."""
        best, bound, stayed = better(assessor(self.problem), self.first, self.point)
        return replace(finish(self.problem, best, *bound), message=STAYED if stayed else "")

    def _indices(self) -> Array:
        if _whole(self.problem):
            return jnp.asarray(np.zeros((self.size, 1), int))
        return jnp.asarray(np.stack([*itertools.islice(self.draws, self.size)]))

    def _chunk(
        self, state: Any, memory: Any, index: Array, keys: Array, rows: Rows, held: Any, jitter: Any
    ) -> tuple[Any, Any, Array]:
        """Several steps as one program, for the row numbers and random keys of each."""
        problem, program, whole = self.problem, self.problem.program, _whole(self.problem)
        total = problem.count if whole else problem.data_rows

        def step(carry: Any, at: Any) -> Any:
            number, key = at
            batch = rows if whole else take_rows(rows, number)

            def bound(state: Any) -> Array:
                normals = problem.normals(key, row_count(batch))
                return Bound(program, problem.layout, batch, jitter).value(complete(state, held), total, normals)

            state, memory, value = _ascend(self.optimiser, bound, *carry)
            return (state, memory), value

        (state, memory), values = jax.lax.scan(step, (state, memory), (index, keys))
        return state, memory, values


class OpaqueSteps:
    """Propose (compiled) → evaluate (Python) → update (compiled), once per step."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.draws, self.key = problem, _batches(problem), jax.random.key(problem.options.seed)
        self.arguments = compiled_arguments(problem.program, self._proposed)
        self.update, self.looked = jit(self._updated), jit(self._looked)
        self.point, self.optimiser = initial_state(problem), _optimiser(problem)
        self.memory = self.optimiser.init(self.point)
        self.trace: list[float] = []
        self.bound: tuple[float, float] | None = None

    def run(self) -> str:
        """All steps that the budget has, which keeps what the last look at the bound takes."""
        problem, held = self.problem, self.problem.inducing
        each, kept = (of(problem.program, problem.choice, problem.count) for of in (each_step, assessing))
        try:
            for number in range(1, problem.choice.steps + 1):
                require(problem.program, each + kept)
                here, rows = jax.random.fold_in(self.key, number), take_rows(problem.rows, next(self.draws))
                values = self._evaluated(rows, here)
                self.point, self.memory, value = self.update(self.point, self.memory, rows, held, here, values)
                self.trace.append(float(value))
                problem.monitor.report(number, self.trace[-1])
        except Spent:  # steps were planned to fit, but calls were repeated
            pass
        self.bound = fresh_bound(problem, self._look, problem.options.seed)
        return ALL_DONE

    def state(self) -> Result:
        """Where it is, with what fresh samples say of the bound in the end, or the last tenth of the steps."""
        return finish(self.problem, self.point, *(self.bound or _last_tenth(self.trace)))

    finish = state

    def _evaluated(self, rows: Rows, key: Array) -> Values:
        def give(use: ExternalUse, known: Values) -> list[Array]:
            return self.arguments[use.key](known, self.point, rows, self.problem.inducing, key)

        return evaluate_externals(self.problem.program, self.problem.program.uses(), give)

    def _look(self, rows: Rows, key: Array) -> tuple[Any, Any]:
        return self.looked(self.point, rows, self.problem.inducing, key, self._evaluated(rows, key))

    # What is compiled.

    def _proposed(self, state: Any, rows: Rows, held: Any, key: Array) -> tuple[dict[str, Array], Rows, Array]:
        """Parameters, rows and samples of the latents that the opaque functions are called with."""
        problem, full = self.problem, complete(state, held)
        q, _ = Bound(problem.program, problem.layout, rows, problem.jitter).marginals(full)
        drawn = q.at(problem.program, problem.draws(key, q.mean.shape[1]))
        return problem.program.parameters.constrain(full["parameters"]), rows, drawn

    def _updated(self, state: Any, memory: Any, rows: Rows, held: Any, key: Array, values: Values) -> Any:
        """A step up, from the opaque functions' values at the samples of this key."""
        problem, normals = self.problem, self.problem.draws(key, row_count(rows))

        def bound(state: Any) -> Array:
            whole = Bound(problem.program, problem.layout, rows, problem.jitter)
            return whole.value(complete(state, held), problem.count, normals, values)

        return _ascend(self.optimiser, bound, state, memory)

    def _looked(self, state: Any, rows: Rows, held: Any, key: Array, values: Values) -> tuple[Array, Array]:
        """What `fresh_bound` asks for, from values at the samples of a key."""
        problem, program, full = self.problem, self.problem.program, complete(state, held)
        parameters = program.parameters.constrain(state["parameters"])
        q, seen = Bound(program, problem.layout, rows, problem.jitter).marginals(full)
        given = problem, parameters, rows, q, weights(full), problem.draws(key, row_count(rows)), values
        return by_halves(*given), program.log_prior(parameters) - divergence(problem.layout, full, seen)


def _last_tenth(trace: list[float]) -> tuple[float, float]:
    """Mean bound over the last tenth of the steps, and its standard error; -inf of no steps."""
    last = np.asarray(trace[-max(len(trace) // 10, 2) :])
    last = last[np.isfinite(last)]
    return sum_and_error(last) if last.size else (-np.inf, 0.0)
