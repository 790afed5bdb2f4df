"""What is learnt by expectation propagation climbs: log Z_q at settled sites, or after a sweep or two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from gpdsl.inference.expectation_propagation.sweep import (
    Fixed,
    Swept,
    evidence,
    fixed_point,
    next_length,
    relative_change,
    sweep,
    units_of,
    visit_all,
)
from gpdsl.inference.expectation_propagation.tilted import Tilted
from gpdsl.inference.natural.profiled import setting_of
from gpdsl.inference.natural.sites import Sites, blend
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

    def step(turn: Turn, rows: Any, held: Any, normals: Any, jitter: Any) -> tuple[Turn, Array]:
        here = tilted.using(normals)

        def value(point: Any) -> tuple[Array, tuple[Swept, Array]]:
            setting = setting_of(problem, point, held, rows, jitter)
            swept = sweep(here, visit_all(here, setting, turn.sites), turn.sites)
            return swept.evidence + setting.log_prior, (
                swept,
                relative_change(swept, turn.sites, units_of(setting, turn.sites)),
            )

        (known, (swept, change)), gradient = jax.value_and_grad(value, has_aux=True)(turn.point)
        sound = jnp.isfinite(known) & jnp.isfinite(change) & (swept.improper == 0)
        updates, memory = optimiser.update(gradient, turn.memory, turn.point)
        on = Turn(
            optax.apply_updates(turn.point, updates),
            blend(turn.sites, swept.target, turn.length),
            (turn.point, turn.sites),
            memory,
            next_length(turn.length, change < turn.change),
            change,
        )
        point, sites = jax.tree.map(lambda a, b: 0.5 * (a + b), (turn.point, turn.sites), turn.sound)
        back = replace(turn, point=point, sites=sites, length=0.5 * turn.length)
        return jax.tree.map(lambda a, b: jnp.where(sound, a, b), on, back), known

    return step


def doubts(settled: bool, stuck: float, count: int, within: str = "") -> str:
    """What a user must know of a fixed point that was not reached."""
    found = []
    if not settled:
        found.append(f"the sites did not settle within {within or f'{SWEEPS} sweeps'}, so the answer is approximate")
    if stuck:
        found.append(f"{stuck:.0f} of {count} rows have improper cavities and kept their last sites")
    return "".join(f"; {each}" for each in found)
