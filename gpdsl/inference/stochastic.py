"""Natural gradients from noisy estimates: the engine for opaque likelihoods with a full Gaussian posterior.

Each step blends the sites with the target estimated from fresh samples. The blending weight falls like t^-0.7, so the
sites end as an average over many estimates; hyperparameters follow by Adam on the same samples.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from gpdsl.inference.bound import views
from gpdsl.inference.expected_log_likelihood import Marginals, expected_log_likelihood
from gpdsl.inference.natural import Sites, blend, site_elbo, site_marginals, site_target, whitened_posterior
from gpdsl.inference.opaque import compiled_arguments, evaluate_externals
from gpdsl.inference.problem import Problem, Result, as_numpy, tidy
from gpdsl.inference.profiled import outer_point, split_point, start_sites
from gpdsl.program.rows import Rows

FIRST_WEIGHT = 0.5
DECAY = 0.7
WINDOW = 30
HALVINGS = 20


def step_weight(step: int) -> float:
    """Blending weight of step 1, 2, ...: Robbins–Monro, sum diverges and sum of squares converges."""
    return FIRST_WEIGHT / (1.0 + 0.1 * (step - 1)) ** DECAY


def fit_stochastic_natural(problem: Problem) -> Result:
    """Maximise the bound of an opaque likelihood; the reported bound is the mean of the last window of estimates."""
    program, held = problem.program, problem.inducing
    point, sites = outer_point(problem, problem.parameters, problem.inducing), start_sites(problem)
    optimiser = optax.adam(problem.options.learning_rate)
    memory, key = optimiser.init(point), jax.random.key(problem.options.seed)
    arguments = compiled_arguments(program, _propose(problem))
    update = jax.jit(_update(problem, optimiser))
    trace: list[float] = []
    message, interrupted = "all steps done", False
    try:
        for step in range(1, problem.choice.steps + 1):
            here = jax.random.fold_in(key, step)
            give = lambda use, known: arguments[use.key](known, point, sites, problem.rows, held, here)  # noqa: B023, E731
            values = evaluate_externals(program, program.uses(), give)
            weight = jnp.asarray(step_weight(step), problem.options.dtype)
            point, sites, memory, value = update(point, sites, memory, problem.rows, held, here, values, weight)
            trace.append(float(value))
            problem.monitor.report(step, trace[-1])
            if _settled(trace):
                message = "converged: the bound no longer rises beyond its sampling error"
                break
    except KeyboardInterrupt:
        message, interrupted = "interrupted", True
    return _result(problem, point, sites, trace, message, interrupted)


def _settled(trace: list[float]) -> bool:
    """Whether the mean of the last window does not exceed the one before by more than its standard error."""
    if len(trace) < 4 * WINDOW or len(trace) % WINDOW:
        return False
    last, before = np.asarray(trace[-WINDOW:]), np.asarray(trace[-2 * WINDOW : -WINDOW])
    error = np.sqrt((last.var() + before.var()) / WINDOW)
    return bool(last.mean() - before.mean() < error)


def _propose(problem: Problem):  # type: ignore[no-untyped-def]
    program, dense, jitter = problem.program, problem.layout.dense, problem.jitter

    def propose(point: Any, sites: Sites, rows: Rows, held: Any, key: Array) -> Any:
        learnt, inducing = split_point(point, held)
        parameters = program.parameters.constrain(learnt)
        seen = views(program, parameters, inducing, rows, dense, jitter)
        q, _, _ = site_marginals(program, parameters, rows, seen, sites)
        return parameters, rows, q.at(problem.normals(key))

    return propose


def _update(problem: Problem, optimiser: optax.GradientTransformation):  # type: ignore[no-untyped-def]
    program, dense, jitter = problem.program, problem.layout.dense, problem.jitter

    def update(
        point: Any, sites: Sites, memory: Any, rows: Rows, held: Any, key: Array, values: Any, weight: Array
    ) -> Any:
        normals = problem.normals(key)

        def bound(at: Any) -> Array:
            learnt, inducing = split_point(at, held)
            return site_elbo(program, learnt, inducing, sites, rows, dense, normals, values, jitter)

        learnt, inducing = split_point(point, held)
        parameters = program.parameters.constrain(learnt)
        seen = views(program, parameters, inducing, rows, dense, jitter)
        q, _, _ = site_marginals(program, parameters, rows, seen, sites)

        def expected(q: Marginals) -> Array:
            return jnp.sum(expected_log_likelihood(program, parameters, rows, q, normals, values))

        gradient = jax.grad(expected)(q)
        target = site_target(q, gradient.mean[0], gradient.variance[0])
        moved = _largest_sound_step(program, parameters, rows, seen, sites, target, weight)
        value, slope = jax.value_and_grad(bound)(point)
        updates, memory = optimiser.update(jax.tree.map(jnp.negative, slope), memory)
        return optax.apply_updates(point, updates), moved, memory, value

    return update


def _largest_sound_step(
    program: Any, parameters: Any, rows: Rows, seen: Any, sites: Sites, target: Sites, weight: Array
) -> Sites:
    """Blend by `weight`, halved until the posterior precision is positive definite."""

    def unsound(carry: Any) -> Array:
        weight, tries = carry
        _, divergence, _ = site_marginals(program, parameters, rows, seen, blend(sites, target, weight))
        return ~jnp.isfinite(divergence) & (tries < HALVINGS)

    weight, _ = jax.lax.while_loop(unsound, lambda c: (0.5 * c[0], c[1] + 1), (weight, jnp.asarray(0)))
    return blend(sites, target, weight)


def _result(
    problem: Problem, point: Any, sites: Sites, trace: list[float], message: str, interrupted: bool
) -> Result:
    learnt, inducing = split_point(point, problem.inducing)

    def whiten(learnt: Any, inducing: Any, sites: Sites, rows: Rows) -> Any:
        return whitened_posterior(
            problem.program, learnt, inducing, sites, rows, problem.layout.dense, problem.jitter
        )

    last = np.asarray(trace[-WINDOW:] or [-np.inf])
    return Result(
        as_numpy(learnt),
        as_numpy(inducing),
        tidy(jax.jit(whiten)(learnt, inducing, sites, problem.rows)),
        np.ones(1),
        float(last.mean()),
        float(last.std() / np.sqrt(last.size)),
        message,
        interrupted,
    )
