"""Gradient ascent on the bound itself, all unknowns together: L-BFGS for whole batches, Adam for noisy gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from gpdsl.inference.bound import elbo, marginals, views, weights
from gpdsl.inference.lbfgs import maximise
from gpdsl.inference.opaque import compiled_arguments, evaluate_externals
from gpdsl.inference.problem import Problem, Result, as_numpy, tidy
from gpdsl.program.compilation import jit
from gpdsl.program.program import take_rows
from gpdsl.program.rows import Rows

CHUNK = 50
"""Adam steps per compiled call: progress, interruption and checks happen between chunks."""


def initial_state(problem: Problem) -> dict[str, Any]:
    """Start of the search: declared parameter values, a narrow posterior around the prior mean, uniform weights."""
    rng = np.random.default_rng(problem.options.seed)
    family, dtype = problem.layout.family, problem.options.dtype
    groups = [
        family.init(g.size, z.shape[0], rng) for g, z in zip(problem.program.groups, problem.inducing, strict=True)
    ]
    posterior = {"groups": groups, "logits": np.zeros(family.components)}
    state = {"parameters": problem.parameters, "posterior": posterior}
    if problem.options.learn_inducing:
        state["inducing"] = problem.inducing
    return jax.tree.map(lambda a: jnp.asarray(a, dtype), state)


def complete(state: Mapping[str, Any], held: list[Array]) -> dict[str, Any]:
    """The state with the inducing inputs that do not move."""
    return {"inducing": held, **state}


def fit_lbfgs(problem: Problem) -> Result:
    """Maximise the bound over everything at once. Sampled terms use common random numbers throughout."""
    program, layout, rows, jitter = problem.program, problem.layout, problem.rows, problem.jitter
    normals, held, state = (
        problem.normals(jax.random.key(problem.options.seed)),
        problem.inducing,
        initial_state(problem),
    )

    def bound(state: Any, rows: Rows, held: Any, normals: Any, jitter: Any) -> Array:
        return elbo(program, layout, complete(state, held), rows, problem.count, normals, None, jitter)

    compiled = problem.compiled(jax.value_and_grad(bound), state, rows, held, normals, jitter)

    def objective(at: Any) -> tuple[float, Any]:
        value, gradient = compiled(at, rows, held, normals, jitter)
        return float(value), gradient

    outcome = maximise(
        objective, state, steps=problem.choice.steps, tolerance=problem.options.tolerance, report=problem.monitor.report
    )
    return finish(problem, outcome.point, outcome.value, 0.0, outcome.message, outcome.interrupted)


def finish(problem: Problem, state: Any, value: float, error: float, message: str, interrupted: bool) -> Result:
    """Whiten the posterior of a state and bring everything to the host."""

    def whiten(state: Any, rows: Rows, held: Any) -> Any:
        full = complete(state, held)
        parameters = problem.program.parameters.constrain(full["parameters"])
        # one row is enough: the whitened posterior needs the factors, not the rows' features
        some = rows if problem.layout.dense else jax.tree.map(lambda a: a[:1], rows)
        seen = views(problem.program, parameters, full["inducing"], some, problem.layout.dense, problem.jitter)
        pairs = zip(full["posterior"]["groups"], seen, strict=True)
        return [problem.layout.family.whitened(q, v.features) for q, v in pairs], weights(full)

    posterior, pi = jit(whiten)(state, problem.rows, problem.inducing)
    full = complete(state, problem.inducing)
    return Result(
        as_numpy(full["parameters"]),
        as_numpy(full["inducing"]),
        tidy(posterior),
        np.asarray(pi),
        value,
        error,
        message,
        interrupted,
    )


def fit_adam(problem: Problem) -> Result:
    """Stochastic ascent with fresh samples, and fresh rows when there are minibatches, at every step."""
    run = _opaque_steps if problem.program.opaque else _scanned_steps
    return run(problem)


def _optimiser(problem: Problem) -> optax.GradientTransformation:
    total = problem.choice.steps
    schedule = optax.cosine_decay_schedule(problem.options.learning_rate, total, alpha=0.05)
    return optax.adam(schedule)


def _batches(problem: Problem) -> Callable[[], np.ndarray]:
    """Row numbers of one step at a time: epochs without replacement, or all rows."""
    rng, size = np.random.default_rng(problem.options.seed + 1), problem.choice.batch
    pending: list[np.ndarray] = []

    def draw() -> np.ndarray:
        if not size or size >= problem.count:
            return np.arange(problem.count)
        if not pending:
            order = rng.permutation(problem.count)
            pending.extend(order[i : i + size] for i in range(0, problem.count - size + 1, size))
        return pending.pop()

    return draw


def _scanned_steps(problem: Problem) -> Result:
    program, layout, optimiser = problem.program, problem.layout, _optimiser(problem)
    draw, jitter, held = _batches(problem), problem.jitter, problem.inducing
    whole = not problem.choice.batch or problem.choice.batch >= problem.count

    def bound(state: Any, rows: Rows, held: Any, key: Array, jitter: Any) -> Array:
        count = next(iter(rows.observed.values())).shape[0]
        normals = problem.normals(key, count)
        return elbo(program, layout, complete(state, held), rows, problem.count, normals, None, jitter)

    def chunk(state: Any, memory: Any, index: Array, keys: Array, rows: Rows, held: Any, jitter: Any) -> Any:
        def step(carry: Any, at: Any) -> Any:
            state, memory = carry
            number, key = at
            batch = rows if whole else take_rows(rows, number)
            value, gradient = jax.value_and_grad(bound)(state, batch, held, key, jitter)
            updates, moved = optimiser.update(jax.tree.map(jnp.negative, gradient), memory)
            sound = jnp.isfinite(value)
            keep = lambda new, old: jax.tree.map(lambda a, b: jnp.where(sound, a, b), new, old)  # noqa: E731
            return (keep(optax.apply_updates(state, updates), state), keep(moved, memory)), value

        (state, memory), values = jax.lax.scan(step, (state, memory), (index, keys))
        return state, memory, values

    state, key = initial_state(problem), jax.random.key(problem.options.seed)
    memory, steps = optimiser.init(state), problem.choice.steps
    size = min(CHUNK, steps)
    indices = lambda: np.stack([draw() for _ in range(size)]) if not whole else np.zeros((size, 1), int)  # noqa: E731
    arguments = (jnp.asarray(indices()), jax.random.split(key, size), problem.rows, held, jitter)
    compiled = problem.compiled(chunk, state, memory, *arguments)
    trace: list[float] = []
    interrupted = False
    try:
        for done in range(size, steps + size, size):
            keys = jax.random.split(jax.random.fold_in(key, done), size)
            state, memory, values = compiled(state, memory, jnp.asarray(indices()), keys, problem.rows, held, jitter)
            trace += [float(v) for v in values]
            problem.monitor.report(min(done, steps), float(np.nanmean(np.asarray(values))))
    except KeyboardInterrupt:
        interrupted = True
    return _finish_stochastic(problem, state, trace, interrupted)


def _finish_stochastic(problem: Problem, state: Any, trace: list[float], interrupted: bool) -> Result:
    """The reported bound is the mean over the last tenth of the steps, with its standard error."""
    last = np.asarray(trace[-max(len(trace) // 10, 2) :] or [-np.inf])
    last = last[np.isfinite(last)]
    value = float(last.mean()) if last.size else -np.inf
    error = float(last.std() / np.sqrt(max(last.size, 1))) if last.size else 0.0
    return finish(problem, state, value, error, "interrupted" if interrupted else "all steps done", interrupted)


def _opaque_steps(problem: Problem) -> Result:
    """Propose (compiled) → evaluate (Python) → update (compiled), once per step."""
    program, layout, optimiser, held = problem.program, problem.layout, _optimiser(problem), problem.inducing
    draw, state = _batches(problem), initial_state(problem)

    def propose(state: Any, rows: Rows, held: Any, key: Array) -> Any:
        full = complete(state, held)
        q, _ = marginals(program, layout, full, rows, problem.jitter)
        count = q.mean.shape[1]
        return program.parameters.constrain(full["parameters"]), rows, q.at(problem.normals(key, count))

    def update(state: Any, memory: Any, rows: Rows, held: Any, key: Array, values: Any) -> Any:
        count = next(iter(rows.observed.values())).shape[0]

        def bound(state: Any) -> Array:
            normals = problem.normals(key, count)
            return elbo(program, layout, complete(state, held), rows, problem.count, normals, values, problem.jitter)

        value, gradient = jax.value_and_grad(bound)(state)
        updates, moved = optimiser.update(jax.tree.map(jnp.negative, gradient), memory)
        sound = jnp.isfinite(value)
        keep = lambda new, old: jax.tree.map(lambda a, b: jnp.where(sound, a, b), new, old)  # noqa: E731
        return keep(optax.apply_updates(state, updates), state), keep(moved, memory), value

    arguments, step = compiled_arguments(program, propose), jit(update)
    memory, key, trace, interrupted = optimiser.init(state), jax.random.key(problem.options.seed), [], False
    try:
        for number in range(1, problem.choice.steps + 1):
            here, rows = jax.random.fold_in(key, number), take_rows(problem.rows, draw())
            give = lambda use, known: arguments[use.key](known, state, rows, held, here)  # noqa: B023, E731
            values = evaluate_externals(program, program.uses(), give)
            state, memory, value = step(state, memory, rows, held, here, values)
            trace.append(float(value))
            problem.monitor.report(number, trace[-1])
    except KeyboardInterrupt:
        interrupted = True
    return _finish_stochastic(problem, state, trace, interrupted)
