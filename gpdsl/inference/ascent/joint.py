"""Gradient ascent on the bound itself, all unknowns together: its state, and L-BFGS on whole batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gpdsl.inference.ascent.lbfgs import Remembered, maximise
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


class LbfgsSearch:
    """L-BFGS over everything at once. Sampled terms use common random numbers throughout."""

    def __init__(self, problem: Problem) -> None:
        self.problem, rows, held, jitter = problem, problem.rows, problem.inducing, problem.jitter
        normals, start = problem.batch_normals(jax.random.key(problem.options.seed)), initial_state(problem)
        gradient = jax.value_and_grad(partial(whole_bound, problem))
        compiled = problem.compiled(gradient, start, rows, held, normals, jitter, brief=problem.brief)
        self.bound = lambda at, normals: compiled(at, rows, held, normals, jitter)

        def objective(at: Any) -> tuple[float, Any]:
            value, gradient = self.bound(at, normals)
            return float(value), gradient

        self.objective = Remembered(objective, start)

    def run(self) -> str:
        """A mixture's weights stay equal until its components have found their places.

        A component that is still on its way explains less than the others, and would be given up.
        """
        problem, objective, start = self.problem, self.objective, self.objective.best.point
        asked: dict[str, Any] = {"steps": problem.choice.steps, "size": problem.observed}
        tolerance, report = problem.options.tolerance, problem.monitor.report
        if problem.layout.family.components == 1:
            return maximise(objective, start, tolerance=tolerance, report=report, **asked).message

        def equal_weights(at: Any) -> tuple[float, Any]:
            value, gradient = objective(at)
            posterior = gradient["posterior"]
            return value, {**gradient, "posterior": {**posterior, "logits": jnp.zeros_like(posterior["logits"])}}

        first = maximise(equal_weights, start, tolerance=max(tolerance, SETTLED), report=report, **asked)
        done = len(problem.monitor.history)
        asked["steps"] = max(problem.choice.steps - done, 1)

        def on(step: int, value: float) -> None:
            report(done + step, value)

        return maximise(objective, first.point, tolerance=tolerance, report=on, **asked).message

    def state(self) -> Result:
        """The best point so far, with its bound on the samples of the search."""
        return finish(self.problem, self.objective.best.point, self.objective.best.value, 0.0)

    def finish(self) -> Result:
        """The best point, with its bound on fresh samples."""
        best = self.objective.best
        bound = self.problem.reassessed(lambda normals: self.bound(best.point, normals)[0], best.value)
        return finish(self.problem, best.point, *bound)


def finish(problem: Problem, state: Any, value: float, error: float) -> Result:
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
    )
