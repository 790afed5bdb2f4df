"""Gradient ascent on the bound itself, all unknowns together: its state, and L-BFGS on whole batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gpdsl.inference.ascent.lbfgs import Outcome, Remembered, maximise
from gpdsl.inference.assessment import complete, whole_bound
from gpdsl.inference.bound import prepared_for, views, weights
from gpdsl.inference.problem import Problem, Result, as_arrays, as_numpy, tidy
from gpdsl.inference.starts import start_groups, start_logits
from gpdsl.program.compilation import jit
from gpdsl.program.rows import Rows

Objective = Callable[[Any], tuple[float, Any]]

SETTLED = 1e-7
"""Relative gain of the bound below which the components of a mixture have found their places."""


def initial_state(problem: Problem) -> dict[str, Any]:
    """Start of the search: declared parameter values and `starts`' posterior, or those of the fit it starts from."""
    dtype = problem.options.dtype
    posterior = {"groups": start_groups(problem), "logits": start_logits(problem)}
    state = {"parameters": problem.parameters, "posterior": posterior}
    if problem.options.learn_inducing:
        state["inducing"] = problem.inducing
    return as_arrays(state, dtype)


def fit_lbfgs(problem: Problem) -> Result:
    """Maximise the bound over everything at once. Sampled terms use common random numbers throughout."""
    rows, jitter = problem.rows, problem.jitter
    normals = problem.batch_normals(jax.random.key(problem.options.seed))
    held, state = problem.inducing, initial_state(problem)

    bound = partial(whole_bound, problem)
    compiled = problem.compiled(jax.value_and_grad(bound), state, rows, held, normals, jitter, brief=problem.brief)

    def objective(at: Any) -> tuple[float, Any]:
        value, gradient = compiled(at, rows, held, normals, jitter)
        return float(value), gradient

    seen = Remembered(objective, state)
    problem.monitor.state = lambda: finish(problem, seen.best.point, seen.best.value, 0.0, "", True)
    outcome = _search(problem, seen, state)
    value, error = problem.reassessed(lambda n: compiled(outcome.point, rows, held, n, jitter)[0], outcome.value)
    return finish(problem, outcome.point, value, error, outcome.message, outcome.interrupted)


def _search(problem: Problem, objective: Objective, state: Any) -> Outcome:
    """L-BFGS; a mixture's weights stay equal until its components have found their places.

    A component that is still on its way explains less than the others, and would be given up.
    """
    steps, tolerance, report = problem.choice.steps, problem.options.tolerance, problem.monitor.report
    size = problem.observed
    if problem.layout.family.components == 1:
        return maximise(objective, state, steps=steps, tolerance=tolerance, report=report, size=size)

    def equal_weights(at: Any) -> tuple[float, Any]:
        value, gradient = objective(at)
        posterior = gradient["posterior"]
        return value, {**gradient, "posterior": {**posterior, "logits": jnp.zeros_like(posterior["logits"])}}

    first = maximise(equal_weights, state, steps=steps, tolerance=max(tolerance, SETTLED), report=report, size=size)
    if first.interrupted:
        return first
    done = len(problem.monitor.history)
    rest = max(steps - done, 1)
    on = lambda n, v: report(done + n, v)  # noqa: E731
    return maximise(objective, first.point, steps=rest, tolerance=tolerance, report=on, size=size)


def finish(problem: Problem, state: Any, value: float, error: float, message: str, interrupted: bool) -> Result:
    """Whiten the posterior of a state and bring everything to the host."""

    def whiten(state: Any, rows: Rows, held: Any) -> Any:
        full = complete(state, held)
        parameters = problem.program.parameters.constrain(full["parameters"])
        # one row is enough, where the posterior needs the factors alone and not the rows' features
        some = rows if problem.layout.dense else jax.tree.map(lambda a: a[:1], rows)
        seen = views(problem.program, parameters, full["inducing"], some, problem.layout.dense, problem.jitter)
        parts = prepared_for(problem.program, problem.layout, full, rows, seen, problem.jitter)
        return [family.whitened(q, view.features) for (family, q), view in zip(parts, seen, strict=True)], weights(full)

    posterior, pi = jit(whiten, brief=True)(state, problem.rows, problem.inducing)
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
