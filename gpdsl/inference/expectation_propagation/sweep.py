"""One parallel update of all sites, and the fixed point of such updates, at fixed parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.bound import GroupView, views
from gpdsl.inference.expectation_propagation.sites import Cavity, cavities, residuals, targets
from gpdsl.inference.expectation_propagation.tilted import Normaliser, Tilted, derivatives, normaliser
from gpdsl.inference.natural.sites import (
    Sites,
    blend,
    flatten_sites,
    site_marginals,
    site_units,
)
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

LONGEST, SHORTEST = 1.0, 0.02
"""Damping: the share of the way to its target that a site goes."""

GROWTH = 1.2
"""How fast steps become longer while the sites settle."""


@dataclass(frozen=True)
class Task:
    """What is fixed during a search: the program, how tilted distributions are integrated, and the numerics."""

    program: Program
    tilted: Tilted
    dense: bool

    @property
    def power(self) -> float:
        """alpha."""
        return self.tilted.power


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Swept:
    """The evidence under some sites, where a full step from them leads, and how many rows could not take one."""

    evidence: Float[Array, ""]
    target: Sites
    stuck: Float[Array, ""]


def evidence(
    task: Task,
    learnt: Mapping[str, Array],
    inducing: Sequence[Functionals],
    sites: Sites,
    rows: Rows,
    normals: Array | None,
    jitter: Array | float,
) -> Float[Array, ""]:
    """log Z_q at fixed sites, with log priors.

    At the fixed point its gradient is that with sites that follow: log Z_q is stationary in them (SEP, eq. 4).
    """
    program = task.program
    parameters = program.parameters.constrain(learnt)
    seen = views(program, parameters, inducing, rows, task.dense, jitter)
    cavity, log_z, divergence = _cavity(task, parameters, rows, seen, sites, normals)
    per_row = cavity.removed + log_z(cavity.full) / task.power
    return jnp.sum(per_row) - divergence + program.log_prior(parameters)


def _cavity(
    task: Task, parameters: Mapping[str, Array], rows: Rows, seen: Sequence[GroupView], sites: Sites, normals: Any
) -> tuple[Cavity, Normaliser, Array]:
    program = task.program
    q, divergence, _ = site_marginals(program, parameters, rows, seen, sites)
    residual = residuals(program, parameters, rows, seen, q)
    cavity = cavities(program, parameters, rows, q, residual, sites, task.power)
    return cavity, normaliser(task.tilted, program, parameters, rows, q, cavity.full, normals), divergence


def sweep(
    task: Task, parameters: Mapping[str, Array], rows: Rows, seen: Sequence[GroupView], sites: Sites, normals: Any
) -> Swept:
    """One parallel update of all rows, O(rows M^2). All NaN where the posterior is not a distribution."""
    cavity, log_z, divergence = _cavity(task, parameters, rows, seen, sites, normals)
    found = derivatives(log_z, cavity.full, task.tilted.separate)
    target, fine = targets(sites, cavity, found, task.power)
    value = jnp.sum(cavity.removed + found.value / task.power) - divergence
    return Swept(value, target, jnp.sum(~fine).astype(value.dtype))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Fixed:
    """Where the updates of the sites have come to.

    `change` is the distance from the sites to their targets, relative to the size of the sites; `steady` counts sweeps
    in a row in which neither it nor the evidence matters any more. Before the first sweep the sites are their own
    targets: the first trial is the start itself, and a sweep is compiled only once.
    """

    sites: Sites
    swept: Swept
    change: Float[Array, ""]
    step: Float[Array, ""]
    steady: Array
    sweeps: Array


def fixed_point(
    task: Task,
    learnt: Mapping[str, Array],
    inducing: Sequence[Functionals],
    sites: Sites,
    rows: Rows,
    normals: Array | None,
    jitter: Array | float,
    tolerance: float,
    most: int,
    first_step: Array | float = LONGEST,
) -> Fixed:
    """Sweep until the sites no longer move, with steps that become shorter where they oscillate.

    A step after which the posterior is not a distribution is taken back and halved. Ends with `steady` < 2 when `most`
    sweeps were not enough.
    """
    parameters = task.program.parameters.constrain(learnt)
    seen = views(task.program, parameters, inducing, rows, task.dense, jitter)
    units = site_units(seen, sites)
    size = jnp.sqrt(jnp.asarray(float(sites.linear.size + sites.precision.size), sites.linear.dtype))

    def look(sites: Sites) -> tuple[Swept, Array]:
        swept = sweep(task, parameters, rows, seen, sites, normals)
        here, there = flatten_sites(sites, units), flatten_sites(swept.target, units)
        change = jnp.linalg.norm(there - here) / (jnp.linalg.norm(here) + size * 1e-3)
        return swept, change

    def advance(at: Fixed) -> Fixed:
        trial = blend(at.sites, at.swept.target, at.step)
        swept, change = look(trial)
        sound = jnp.isfinite(swept.evidence) & jnp.isfinite(change)
        calmer = change < at.change
        gained = jnp.abs(swept.evidence - at.swept.evidence)  # not a number at first
        still = sound & ((change < 1e-9) | ((gained < tolerance) & (change < 1e-4) & (at.step >= SHORTEST)))
        step = jnp.where(calmer, jnp.minimum(GROWTH * at.step, LONGEST), 0.6 * at.step)
        step = jnp.maximum(jnp.where(sound, step, 0.5 * at.step), jnp.where(sound, SHORTEST, 0.0))
        moved = Fixed(trial, swept, change, step, jnp.where(still, at.steady + 1, 0), at.sweeps + 1)
        kept = replace(at, step=step, sweeps=at.sweeps + 1)
        return jax.tree.map(lambda a, b: jnp.where(sound, a, b), moved, kept)

    def going(at: Fixed) -> Array:
        lost = (at.sweeps > 0) & ~jnp.isfinite(at.swept.evidence)
        return (at.steady < 2) & (at.sweeps < most) & (at.step > 1e-6) & ~lost

    unknown = Swept(jnp.asarray(jnp.nan, size.dtype), sites, jnp.zeros((), size.dtype))
    infinite, length = jnp.asarray(jnp.inf, size.dtype), jnp.asarray(first_step, size.dtype)
    start = Fixed(sites, unknown, infinite, length, jnp.asarray(0), jnp.asarray(0))
    return jax.lax.while_loop(going, advance, start)
