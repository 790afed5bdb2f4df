"""What is learnt by expectation propagation climbs: log Z_q at settled sites, or after a sweep or two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax
from jaxtyping import Array

from gpdsl.inference.expectation_propagation.sweep import Fixed, evidence, fixed_point
from gpdsl.inference.expectation_propagation.tilted import Tilted
from gpdsl.inference.natural.profiled import setting_of
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.opaque.surrogate import Surrogate
from gpdsl.inference.problem import Problem

SWEEPS = 500
"""Most sweeps at one set of hyperparameters."""


def converged(problem: Problem, tilted: Tilted) -> Callable[..., tuple[Array, Any, Fixed]]:
    """Evidence, its gradient and the fixed point, from a warm start, after `SWEEPS` sweeps at most by default."""
    tolerance = max(problem.options.tolerance, 1e-12) * problem.count

    def objective(
        point: Any,
        sites: Sites,
        rows: Any,
        held: Any,
        normals: Any,
        jitter: Any,
        surrogate: Surrogate | None = None,
        most: Any = None,
    ) -> tuple[Array, Any, Fixed]:
        here, setting = tilted.using(normals, surrogate), setting_of(problem, point, held, rows, jitter)
        found = fixed_point(here, setting, sites, tolerance, SWEEPS if most is None else most)
        at = jax.lax.stop_gradient(found.sites)

        def value(point: Any) -> Array:
            return evidence(here, setting_of(problem, point, held, rows, jitter), at)

        known, gradient = jax.value_and_grad(value)(point) if jax.tree.leaves(point) else (value(point), point)
        return known, gradient, found

    return objective


def inner_step(problem: Problem, tilted: Tilted, optimiser: optax.GradientTransformation) -> Callable[..., Any]:
    """One sweep, damped, and one step of the optimiser along the gradient at fixed sites."""

    def step(
        point: Any, memory: Any, sites: Sites, length: Array, rows: Any, held: Any, normals: Any, jitter: Any
    ) -> Any:
        here = tilted.using(normals)
        found = fixed_point(here, setting_of(problem, point, held, rows, jitter), sites, 0.0, 2, length)
        at = jax.lax.stop_gradient(found.sites)

        def value(point: Any) -> Array:
            return evidence(here, setting_of(problem, point, held, rows, jitter), at)

        known, gradient = jax.value_and_grad(value)(point)
        updates, memory = optimiser.update(gradient, memory, point)
        return optax.apply_updates(point, updates), memory, found.sites, found.step, known

    return step


def doubts(settled: bool, stuck: float, count: int) -> str:
    """What a user must know of a fixed point that was not reached."""
    found = []
    if not settled:
        found.append(f"the sites did not settle within {SWEEPS} sweeps, so the answer is approximate: try power = 0.5")
    if stuck:
        found.append(f"{stuck:.0f} of {count} rows have improper cavities and kept their last sites")
    return "".join(f"; {each}" for each in found)
