"""Gradient ascent on the bound itself, all unknowns together: its state, and L-BFGS on whole batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.inference.bound import elbo, views, weights
from gpdsl.inference.lbfgs import maximise
from gpdsl.inference.problem import Problem, Result, as_numpy, tidy
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.compilation import jit
from gpdsl.program.rows import Rows


def initial_state(problem: Problem) -> dict[str, Any]:
    """Start of the search: declared parameter values, a narrow posterior around the prior mean, uniform weights."""
    rng = np.random.default_rng(problem.options.seed)
    family, dtype = problem.layout.family, problem.options.dtype
    pairs = zip(problem.program.groups, problem.inducing, strict=True)
    groups = [problem.layout.family_of(g).init(g.size, len(z), rng) for g, z in pairs]
    posterior = {"groups": groups, "logits": np.zeros(family.components)}
    state = {"parameters": problem.parameters, "posterior": posterior}
    if problem.options.learn_inducing:
        state["inducing"] = problem.inducing
    return jax.tree.map(lambda a: jnp.asarray(a, dtype), state)


def complete(state: Mapping[str, Any], held: list[Functionals]) -> dict[str, Any]:
    """The state with the inducing inputs that do not move."""
    return {"inducing": held, **state}


def fit_lbfgs(problem: Problem) -> Result:
    """Maximise the bound over everything at once. Sampled terms use common random numbers throughout."""
    program, layout, rows, jitter = problem.program, problem.layout, problem.rows, problem.jitter
    normals = problem.normals(jax.random.key(problem.options.seed))
    held, state = problem.inducing, initial_state(problem)

    def bound(state: Any, rows: Rows, held: Any, normals: Any, jitter: Any) -> Array:
        return elbo(program, layout, complete(state, held), rows, problem.count, normals, None, jitter)

    compiled = problem.compiled(jax.value_and_grad(bound), state, rows, held, normals, jitter)

    def objective(at: Any) -> tuple[float, Any]:
        value, gradient = compiled(at, rows, held, normals, jitter)
        return float(value), gradient

    outcome = maximise(
        objective, state, steps=problem.choice.steps, tolerance=problem.options.tolerance, report=problem.monitor.report
    )
    value, error = problem.reassessed(
        lambda normals, state, rows, held: bound(state, rows, held, normals, jitter),
        outcome.value,
        outcome.point,
        rows,
        held,
    )
    return finish(problem, outcome.point, value, error, outcome.message, outcome.interrupted)


def finish(problem: Problem, state: Any, value: float, error: float, message: str, interrupted: bool) -> Result:
    """Whiten the posterior of a state and bring everything to the host."""

    def whiten(state: Any, rows: Rows, held: Any) -> Any:
        full = complete(state, held)
        parameters = problem.program.parameters.constrain(full["parameters"])
        # one row is enough: the whitened posterior needs the factors, not the rows' features
        some = rows if problem.layout.dense else jax.tree.map(lambda a: a[:1], rows)
        seen = views(problem.program, parameters, full["inducing"], some, problem.layout.dense, problem.jitter)
        pairs = zip(full["posterior"]["groups"], seen, strict=True)
        return [problem.layout.family_of(v.group).whitened(q, v.features) for q, v in pairs], weights(full)

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
