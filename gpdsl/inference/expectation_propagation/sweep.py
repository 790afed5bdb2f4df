"""One parallel update of all sites, and the fixed point of such updates, at fixed parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.blocks import Block, over_blocks
from gpdsl.inference.bound import GroupView
from gpdsl.inference.expectation_propagation.normalisers import Normaliser
from gpdsl.inference.expectation_propagation.sites import Cavity, cavities, residuals, targets
from gpdsl.inference.expectation_propagation.tilted import Tilted, normaliser
from gpdsl.inference.natural.setting import Setting
from gpdsl.inference.natural.site_blocks import block_marginals, posterior_in_blocks
from gpdsl.inference.natural.sites import Sites, blend, site_marginals, site_units
from gpdsl.program.joint import Marginals
from gpdsl.program.rows import Rows

LONGEST, SHORTEST = 1.0, 0.02
"""Damping: the share of the way to its target that a site goes."""

GROWTH = 1.2
"""How fast steps become longer while the sites settle."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Swept:
    """The evidence under some sites, where a full step from them leads, and how many rows could not take one.

    Among those are the rows with `improper` cavities, for which the evidence stands for nothing.
    """

    evidence: Float[Array, ""]
    target: Sites
    stuck: Float[Array, ""]
    improper: Float[Array, ""]


Look = Callable[[Cavity, Normaliser, Sites, Array | float], tuple[Any, Any]]
"""What is made of some rows: of their cavities, log Z_n, sites and weights. A sum over rows, and what is row by row."""

Visit = Callable[[Sites, Look], tuple[Any, Any, Array]]
"""Both of all rows under some sites, and the KL divergence of their posterior from the prior."""


def visit_all(tilted: Tilted, setting: Setting, like: Sites) -> Visit:
    """All rows at once, or block by block where there are many: then nothing but the sites grows with the rows."""
    program, rows = setting.program, setting.rows
    size = setting.block(like.coupled)
    seen = [] if size else setting.views()

    def look(
        parameters: Mapping[str, Array], some: Rows, here: Sequence[GroupView], q: Marginals, sites: Sites
    ) -> tuple[Cavity, Normaliser]:
        residual = residuals(program, parameters, some, here, q)
        cavity = cavities(program, parameters, some, q, residual, sites, tilted.power)
        return cavity, normaliser(tilted, program, parameters, some, q, cavity.full)

    def together(sites: Sites, function: Look) -> tuple[Any, Any, Array]:
        q, divergence, _ = site_marginals(program, setting.parameters, rows, seen, sites)
        return *function(*look(setting.parameters, rows, seen, q, sites), sites, 1.0), divergence

    def in_blocks(sites: Sites, function: Look) -> tuple[Any, Any, Array]:
        posterior, divergence = posterior_in_blocks(setting, sites, size)

        def one(block: Block, given: Any) -> tuple[Any, Any]:
            here, posterior = setting.there(given[0]), given[1]
            views = here.views(block.rows)
            q = block_marginals(here, posterior, block, views)
            return function(*look(here.parameters, block.rows, views, q, block.beside), block.beside, block.weight)

        return *over_blocks(rows, size, one, sites, (setting.place, posterior)), divergence

    return in_blocks if size else together


def evidence(tilted: Tilted, setting: Setting, sites: Sites) -> Float[Array, ""]:
    """log Z_q at fixed sites, with log priors.

    At the fixed point its gradient is that with sites that follow: log Z_q is stationary in them (SEP, eq. 4).
    """

    def look(cavity: Cavity, log_z: Normaliser, own: Sites, weight: Array | float) -> tuple[Array, None]:
        return jnp.sum(weight * (cavity.removed + log_z(cavity.full) / tilted.power)), None

    total, _, divergence = visit_all(tilted, setting, sites)(sites, look)
    return total - divergence + setting.log_prior


def sweep(tilted: Tilted, visit: Visit, sites: Sites) -> Swept:
    """One parallel update of all rows, O(rows M^2). All NaN where the posterior is not a distribution."""

    (value, stuck, improper), target, divergence = visit(sites, partial(updated, tilted.power))
    return Swept(value - divergence, target, stuck, improper)


def updated(
    power: float, cavity: Cavity, log_z: Normaliser, own: Sites, weight: Array | float
) -> tuple[tuple[Array, Array, Array], Sites]:
    """Of some rows: their part of the evidence, how many are stuck and improper, and where a full step leads."""
    found = log_z.derivatives(cavity.full)
    target, fine = targets(own, cavity, found, power)
    value = jnp.sum(weight * (cavity.removed + found.value / power))
    stuck, improper = (jnp.sum(weight * ~each).astype(value.dtype) for each in (fine, cavity.proper))
    return (value, stuck, improper), target


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
    tilted: Tilted,
    setting: Setting,
    sites: Sites,
    tolerance: float,
    most: int,
) -> Fixed:
    """Sweep until the sites no longer move, with steps that become shorter where they oscillate.

    A step after which the posterior, or a cavity that was one, is not a distribution is taken back and halved: sites
    under which all are form a convex set, so a short enough step stays in it. Ends with `steady` < 2 when `most` sweeps
    were not enough.
    """
    visit, units = visit_all(tilted, setting, sites), units_of(setting, sites)

    def advance(at: Fixed) -> Fixed:
        trial = blend(at.sites, at.swept.target, at.step)
        swept = sweep(tilted, visit, trial)
        change = relative_change(swept, trial, units)
        proper = (at.sweeps == 0) | (swept.improper <= at.swept.improper)
        sound = jnp.isfinite(swept.evidence) & jnp.isfinite(change) & proper
        gained = jnp.abs(swept.evidence - at.swept.evidence)  # not a number at first
        still = sound & ((change < 1e-9) | ((gained < tolerance) & (change < 1e-4) & (at.step >= SHORTEST)))
        step = jnp.where(sound, next_length(at.step, change < at.change), 0.5 * at.step)
        moved = Fixed(trial, swept, change, step, jnp.where(still, at.steady + 1, 0), at.sweeps + 1)
        kept = replace(at, step=step, sweeps=at.sweeps + 1)
        return jax.tree.map(lambda a, b: jnp.where(sound, a, b), moved, kept)

    def going(at: Fixed) -> Array:
        lost = (at.sweeps > 0) & ~jnp.isfinite(at.swept.evidence)
        return (at.steady < 2) & (at.sweeps < most) & (at.step > 1e-6) & ~lost

    none, far, full = jnp.asarray([jnp.nan, jnp.inf, LONGEST], sites.linear.dtype)
    unknown = Swept(none, sites, jnp.zeros_like(none), jnp.zeros_like(none))
    start = Fixed(sites, unknown, far, full, jnp.asarray(0), jnp.asarray(0))
    return jax.lax.while_loop(going, advance, start)


def next_length(length: Float[Array, ""], calmer: Array) -> Float[Array, ""]:
    """Of the steps of sites: longer while they come closer to their targets, shorter where they oscillate."""
    return jnp.where(calmer, jnp.minimum(GROWTH * length, LONGEST), jnp.maximum(0.6 * length, SHORTEST))


def units_of(setting: Setting, sites: Sites) -> Sites:
    """Factors that make the sites dimensionless."""
    return site_units(setting.views(jax.tree.map(lambda a: a[:1], setting.rows)), sites)


def relative_change(swept: Swept, sites: Sites, units: Sites) -> Float[Array, ""]:
    """The distance from sites to their targets, relative to their own size."""
    apart = jax.tree.map(jnp.subtract, swept.target, sites)
    size = float(sites.linear.size + sites.precision.size) ** 0.5
    return _length(apart, units) / (_length(sites, units) + size * 1e-3)


def _length(sites: Sites, units: Sites) -> Float[Array, ""]:
    """Euclidean, of sites without dimension."""
    squares = [jnp.sum((a * u) ** 2) for a, u in ((sites.linear, units.linear), (sites.precision, units.precision))]
    return jnp.sqrt(sum(squares))
