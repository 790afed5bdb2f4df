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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gpdsl.inference.bound import GroupView, assemble
from gpdsl.inference.expectation_propagation.normalisers import Derivatives
from gpdsl.inference.natural.sites import Sites, row_times
from gpdsl.inference.posteriors.coupled import unexplained
from gpdsl.inference.posteriors.features import RowFeatures
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

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


def residuals(
    program: Program, parameters: Mapping[str, Array], rows: Rows, seen: Sequence[GroupView], like: Marginals
) -> Float[Array, "rows latents"] | Float[Array, "rows latents latents"]:
    """What the inducing values leave open of each row's latents."""
    if like.covariance is not None:
        return unexplained(seen, like.mean[0])
    moments = []
    for view in seen:
        shape = (1, view.group.size, like.mean.shape[1] * len(view.group.readings.all))
        left = 0.0 if isinstance(view.features, RowFeatures) else view.features.residual
        moments.append((jnp.zeros(shape, like.mean.dtype), jnp.broadcast_to(left, shape)))
    return assemble(program, parameters, rows, seen, moments).variance[0]


def cavities(
    program: Program,
    parameters: Mapping[str, Array],
    rows: Rows,
    q: Marginals,
    residual: Float[Array, "rows latents"] | Float[Array, "rows latents latents"],
    sites: Sites,
    power: float,
) -> Cavity:
    """The cavities of some rows, from their marginals and sites."""
    prior = prior_means(program.evaluator, program.groups, parameters, rows, q.mean.shape[1])
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
