"""Sites, cavities and the evidence of power expectation propagation on inducing values: SEP, appendix A.

Row n has a site t_n(h) = exp(lambda_n h - Lambda_n h^2 / 2) in what the inducing values say of its latents, h = phi_n'w
(plus the prior mean): rank one, and two numbers to store (a vector and a block, where a row has one for all latents).
The posterior is q = prior * prod t_n, the cavity takes a share alpha of the site out of it, and a step leads to the
site whose share alpha gives q the moments of the tilted distribution:

    V = B / (1 - alpha Lambda B),      a = m + V (alpha Lambda m - alpha lambda)            (eqs. 14, 15)
    alpha Lambda* = -z'' / (1 + z'' V),   alpha lambda* = (z' - z'' a) / (1 + z'' V),        (eqs. 22, 23)

z = log Z_n(a, V + s), s the variance that the inducing values leave open, so that p(f_n | u) enters as in FITC. The
evidence is

    log Z_q = sum_n { E_q[log t_n] + (log Z_n + log E_q[t_n^-alpha]) / alpha } - KL[q(u) || p(u)],

which is the bound of variational inference as alpha goes to 0, when the last two terms of the sum become
E_q[log p(y_n | f_n)] - E_q[log t_n].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gpdsl.inference.blocks import Block, over_blocks
from gpdsl.inference.bound import Views, assemble, whitened_marginals
from gpdsl.inference.expectation_propagation.lattices import Derivatives, Normaliser
from gpdsl.inference.expectation_propagation.tilted import Tilted, normaliser
from gpdsl.inference.natural.site_blocks import posterior_in_blocks
from gpdsl.inference.natural.sites import Setting, Sites, blend, row_times, site_marginals, site_units
from gpdsl.inference.posteriors.coupled import unexplained
from gpdsl.inference.posteriors.features import RowFeatures
from gpdsl.kernels.numerics import chosen
from gpdsl.program.joint import Marginals

SMALLEST = 1e-6
"""Share of its precision that a cavity keeps at least; one that would keep less is improper, or nearly so."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cavity:
    """The posterior without a share alpha of the row's own site.

    `full` are the cavities of the latents, with what the inducing values leave open; `spread` is V, without it.
    `removed` is E_q[log t_n] + log E_q[t_n^-alpha] / alpha, `proper` tells whether the cavity is a distribution.
    """

    full: Marginals
    spread: Float[Array, "rows latents"] | Float[Array, "rows latents latents"]
    removed: Float[Array, "rows"]
    proper: Bool[Array, "rows"]


def residuals(seen: Views, like: Marginals) -> Float[Array, "rows latents"] | Float[Array, "rows latents latents"]:
    """What the inducing values leave open of each row's latents."""
    if like.covariance is not None:
        return unexplained(seen, like.mean[0])
    moments = []
    for view in seen:
        shape = (1, view.group.size, like.mean.shape[1] * len(view.group.readings.all))
        left = 0.0 if isinstance(view.features, RowFeatures) else view.features.residual
        moments.append((jnp.zeros(shape, like.mean.dtype), jnp.broadcast_to(left, shape)))
    return assemble(seen, moments).variance[0]


def cavities(
    q: Marginals,
    residual: Float[Array, "rows latents"] | Float[Array, "rows latents latents"],
    sites: Sites,
    prior: Float[Array, "rows latents"],
    power: float,
) -> Cavity:
    """The cavities of some rows, from their marginals and sites, and their prior means."""
    if q.covariance is None:
        return _apart(q.mean[0], q.variance[0] - residual, residual, sites, prior, power)
    return _together(q.mean[0], q.covariance[0] - residual, residual, sites, prior, power)


def _apart(mean: Array, explained: Array, residual: Array, sites: Sites, prior: Array, power: float) -> Cavity:
    h, precision = mean - prior, sites.precision
    linear = sites.linear - precision * prior
    kept = 1.0 - power * precision * explained
    proper = kept > SMALLEST
    kept = jnp.where(proper, kept, 1.0)
    pull = jnp.where(proper, power * (precision * h - linear), 0.0)
    spread = explained / kept
    left_out = 0.5 * power * precision * h**2 - power * linear * h + 0.5 * spread * pull**2 - 0.5 * jnp.log(kept)
    own = linear * h - 0.5 * precision * (explained + h**2)
    removed = jnp.sum(own + jnp.where(proper, left_out, 0.0) / power, axis=1)
    full = Marginals((mean + spread * pull)[None], (spread + residual)[None])
    return Cavity(full, spread, removed, jnp.all(proper, axis=1))


def _together(mean: Array, explained: Array, residual: Array, sites: Sites, prior: Array, power: float) -> Cavity:
    h, precision = mean - prior, sites.precision
    linear = sites.linear - row_times(precision, prior)
    identity = jnp.eye(mean.shape[1], dtype=mean.dtype)
    kept = identity - power * explained @ precision
    sign, log_det = jnp.linalg.slogdet(kept)
    spread = jnp.linalg.solve(kept, explained)
    spread = 0.5 * (spread + jnp.swapaxes(spread, 1, 2))
    scale = jnp.sqrt(jnp.diagonal(explained, axis1=1, axis2=2)) + jnp.finfo(mean.dtype).tiny ** 0.5
    least = jnp.linalg.eigvalsh(spread / (scale[:, :, None] * scale[:, None, :]))[:, 0]
    proper = (sign > 0) & (log_det > jnp.log(SMALLEST)) & (least > -1e-9)
    spread = jnp.where(proper[:, None, None], spread, explained)
    pull = jnp.where(proper[:, None], power * (row_times(precision, h) - linear), 0.0)
    squares = jnp.sum(h * row_times(precision, h), axis=1)
    inner = jnp.sum(linear * h, axis=1)
    left_out = (
        0.5 * power * squares - power * inner + 0.5 * jnp.sum(pull * row_times(spread, pull), axis=1) - 0.5 * log_det
    )
    own = inner - 0.5 * (jnp.sum(precision * explained, axis=(1, 2)) + squares)
    full = spread + residual
    variance = jnp.diagonal(full, axis1=1, axis2=2)
    marginals = Marginals((mean + row_times(spread, pull))[None], variance[None], full[None])
    return Cavity(marginals, spread, own + jnp.where(proper, left_out, 0.0) / power, proper)


def targets(sites: Sites, cavity: Cavity, found: Derivatives, power: float) -> tuple[Sites, Bool[Array, "rows"]]:
    """Where a full step leads, and for which rows it could be taken.

    The site of an improper cavity is halved, with which the cavity becomes proper in the end; others stay as they are.
    """
    mean, curvature = cavity.full.mean[0], found.curvature
    if curvature.ndim == 2:
        wider = 1.0 + curvature * cavity.spread
        fine = jnp.all(wider > SMALLEST, axis=1)
        wider = jnp.where(wider > SMALLEST, wider, 1.0)
        precision = -curvature / wider / power
        linear = (found.slope - curvature * mean) / wider / power
    else:
        identity = jnp.eye(mean.shape[1], dtype=mean.dtype)
        wider = identity + curvature @ cavity.spread
        sign, log_det = jnp.linalg.slogdet(wider)
        fine = (sign > 0) & (log_det > jnp.log(SMALLEST))
        wider = jnp.where(fine[:, None, None], wider, identity)
        right = jnp.concatenate([curvature, (found.slope - row_times(curvature, mean))[..., None]], axis=2)
        solved = jnp.linalg.solve(wider, right) / power
        precision, linear = -solved[..., :-1], solved[..., -1]
        precision = 0.5 * (precision + jnp.swapaxes(precision, 1, 2))
    numbers = (found.value, jnp.sum(linear, axis=1), jnp.sum(precision, axis=tuple(range(1, precision.ndim))))
    fine = fine & cavity.proper & jnp.all(jnp.stack([jnp.isfinite(each) for each in numbers]), axis=0)

    def chosen(new: Array, old: Array) -> Array:
        kept = jnp.where(_along(cavity.proper, old), old, 0.5 * old)
        return jnp.where(_along(fine, new), new, kept)

    return jax.tree.map(chosen, Sites(linear, precision), sites), fine


def _along(condition: Bool[Array, "rows"], values: Array) -> Bool[Array, "rows ..."]:
    return condition.reshape(-1, *(1,) * (values.ndim - 1))


# One parallel update of all sites, and the fixed point of such updates, at fixed parameters.

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
    size = setting.block(like.coupled)
    seen = None if size else setting.views()

    def look(here: Views, q: Marginals, sites: Sites) -> tuple[Cavity, Normaliser]:
        cavity = cavities(q, residuals(here, q), sites, here.prior(q.mean.shape[1]), tilted.power)
        return cavity, normaliser(tilted, here.program, here.parameters, here.rows, q, cavity.full)

    def together(sites: Sites, function: Look) -> tuple[Any, Any, Array]:
        assert seen is not None
        q, divergence, _ = site_marginals(seen, sites)
        return *function(*look(seen, q, sites), sites, 1.0), divergence

    def in_blocks(sites: Sites, function: Look) -> tuple[Any, Any, Array]:
        posterior, divergence = posterior_in_blocks(setting, sites, size)

        def one(block: Block, given: Any) -> tuple[Any, Any]:
            here = setting.there(given[0]).views(block.rows)
            q = whitened_marginals(here, given[1])
            return function(*look(here, q, block.beside), block.beside, block.weight)

        return *over_blocks(setting.rows, size, one, sites, (setting.place, posterior)), divergence

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
        return chosen(sound, moved, kept)

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
