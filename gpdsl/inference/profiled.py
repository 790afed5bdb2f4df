"""Batch inference for a full Gaussian: L-BFGS over the hyperparameters of the bound maximised over q.

Inside, natural gradients find the best q for the current hyperparameters (a handful of iterations from a warm start);
outside, L-BFGS sees only the few hyperparameters. For a Gaussian likelihood the inner loop is exact after one step and
the outer objective is the exact log marginal likelihood (dense) or the collapsed bound (sparse).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from gpdsl.inference.bound import views
from gpdsl.inference.lbfgs import Outcome, maximise
from gpdsl.inference.natural import Sites, initial_sites, scales, site_elbo, whitened_posterior
from gpdsl.inference.problem import Problem, Result, as_numpy, tidy
from gpdsl.inference.refine import refine
from gpdsl.inference.saddle import leave_saddle
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.compilation import jit

INNER_ITERATIONS = 1000


def fit_profiled(problem: Problem) -> Result:
    """Maximise the bound. Sampled terms use one fixed set of samples, so the objective is deterministic."""
    normals = problem.normals(jax.random.key(problem.options.seed))
    rows, jitter = problem.rows, problem.jitter
    sites = start_sites(problem)
    point = outer_point(problem, problem.parameters, problem.inducing)
    held = problem.inducing
    compiled = problem.compiled(_objective(problem), point, sites, rows, held, normals, jitter)
    best: dict[str, Any] = {"elbo": -np.inf, "sites": sites, "point": point}

    def objective(at: Any) -> tuple[float, Any]:
        value, gradient, refined = compiled(at, best.get("warm", sites), rows, held, normals, jitter)
        value = float(value)
        if np.isfinite(value):
            best["warm"] = refined
            if value > best["elbo"]:
                best.update(elbo=value, sites=refined, point=at)
        return value, gradient

    outcome = _search(problem, objective, point)
    parameters, inducing = split_point(best["point"], held)
    whiten = jit(lambda p, z, s, r: whitened_posterior(problem.program, p, z, s, r, problem.layout.dense, jitter))
    posterior = whiten(parameters, inducing, best["sites"], rows)

    def bound(normals: Any, parameters: Any, inducing: Any, sites: Sites, rows: Any) -> Array:
        return site_elbo(
            problem.program, parameters, inducing, sites, rows, problem.layout.dense, normals, None, jitter
        )

    value, error = problem.reassessed(bound, best["elbo"], parameters, inducing, best["sites"], rows)
    return Result(
        as_numpy(parameters),
        as_numpy(inducing),
        tidy(posterior),
        np.ones(1),
        value,
        error,
        outcome.message,
        outcome.interrupted,
    )


def _search(problem: Problem, objective: Any, point: Any) -> Outcome:
    if not jax.tree.leaves(point):  # nothing but q to learn
        value, _ = objective(point)
        problem.monitor.report(1, value)
        return Outcome(point, value, "converged", 1)
    options = problem.options
    return maximise(
        objective, point, steps=problem.choice.steps, tolerance=options.tolerance, report=problem.monitor.report
    )


def outer_point(problem: Problem, parameters: dict[str, Array], inducing: list[Functionals]) -> dict[str, Any]:
    """What L-BFGS moves: learnt parameters, and the inducing inputs when they are learnt."""
    return {"parameters": parameters, "inducing": inducing if problem.options.learn_inducing else []}


def split_point(point: dict[str, Any], held: list[Functionals]) -> tuple[dict[str, Array], list[Functionals]]:
    """Parameters and inducing inputs of a point of the search; `held` are the inducing inputs that do not move."""
    return point["parameters"], point["inducing"] or held


def start_sites(problem: Problem) -> Sites:
    """Sites at the start of any site-based engine."""
    program, dense, jitter = problem.program, problem.layout.dense, problem.jitter

    def start(parameters: Any, inducing: Any, rows: Any) -> Sites:
        constrained = program.parameters.constrain(parameters)
        seen = views(program, constrained, inducing, rows, dense, jitter)
        sites = initial_sites(program, constrained, rows, scales(seen))
        if program.opaque:  # no slopes to look at before the first evaluations
            return sites
        return leave_saddle(program, constrained, rows, seen, sites, normals, key)

    key = jax.random.key(problem.options.seed)
    normals = problem.normals(key)
    return jit(start)(problem.parameters, problem.inducing, problem.rows)


def _objective(problem: Problem) -> Callable[..., tuple[Array, Any, Sites]]:
    """Value, gradient and refined sites at a point of the search, from a warm start."""
    program, dense = problem.program, problem.layout.dense
    tolerance = max(problem.options.tolerance, 1e-12)

    def objective(
        point: Any, sites: Sites, rows: Any, held: Any, normals: Any, jitter: Any
    ) -> tuple[Array, Any, Sites]:
        parameters, inducing = split_point(point, held)
        progress = refine(
            program,
            parameters,
            inducing,
            sites,
            rows,
            dense,
            normals,
            jitter,
            tolerance * problem.count,
            INNER_ITERATIONS,
        )
        refined = jax.lax.stop_gradient(progress.sites)

        def bound(at: Any) -> Array:
            p, z = split_point(at, held)
            return site_elbo(program, p, z, refined, rows, dense, normals, None, jitter)

        if not jax.tree.leaves(point):
            return progress.elbo, point, refined
        value, gradient = jax.value_and_grad(bound)(point)
        return value, gradient, refined

    return objective
