"""Natural-gradient inference for a full Gaussian posterior by one Gaussian site per row and latent.

The optimal covariance of a full Gaussian has O(N) parameters (SAVIGP Theorem 2, eq. 34): in whitened coordinates
S^-1 = I + sum_n Lambda_n phi_n phi_n'. A natural-gradient step of length rho is a convex combination of the sites with

    Lambda*_n = -2 dL_ell/dv_n,      lambda*_n = dL_ell/dm_n + Lambda*_n m_n,

exact in one step for a Gaussian likelihood. Every step is accepted only if the bound does not fall. For one Gaussian
across all latents the sites have a matrix per row, see `inference.coupled`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.inference.blocks import block_rows, part_of_block
from gpdsl.inference.bound import GroupView, Views, assemble, by_latent, views
from gpdsl.inference.opaque.surrogate import Surrogate
from gpdsl.inference.posteriors.coupled import joint_marginals, joint_posterior
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import RowFeatures, RowSites, row_sites
from gpdsl.kernels.functionals import Functionals
from gpdsl.kernels.numerics import log_det_factor
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

# What the sites of all rows are computed with: a program at some parameters, its inducing values, and the rows.

Place = tuple[Mapping[str, Array], Sequence[Functionals]]
"""Constrained parameters, and inducing values."""


@dataclass(frozen=True)
class Setting:
    """One place of the search for hyperparameters. `parameters` are constrained; `dense`: the rows are inducing."""

    program: Program
    parameters: Mapping[str, Array]
    inducing: Sequence[Functionals]
    rows: Rows
    dense: bool
    jitter: Array | float

    @classmethod
    def at(
        cls,
        program: Program,
        learnt: Mapping[str, Array],
        inducing: Sequence[Functionals],
        rows: Rows,
        dense: bool,
        jitter: Array | float,
    ) -> Setting:
        """The setting at unconstrained parameters."""
        return cls(program, program.parameters.constrain(learnt), inducing, rows, dense, jitter)

    @property
    def place(self) -> Place:
        """What of it a gradient may be taken in."""
        return self.parameters, self.inducing

    def there(self, place: Place) -> Setting:
        """The same at another place."""
        parameters, inducing = place
        return replace(self, parameters=parameters, inducing=inducing)

    @property
    def count(self) -> int:
        """Number of rows."""
        return next(iter(self.rows.observed.values())).shape[0]

    @property
    def log_prior(self) -> Array | float:
        """Log density of the parameters that have priors."""
        return self.program.log_prior(self.parameters)

    def views(self, rows: Rows | None = None) -> Views:
        """Every group's kernel and the features of all rows, or of some."""
        some = self.rows if rows is None else rows
        return views(self.program, self.parameters, self.inducing, some, self.dense, self.jitter)

    def block(self, coupled: bool) -> int:
        """How many rows of each device to take at a time; 0 for all, where they are few or belong together."""
        program = self.program
        if self.dense or coupled or program.opaque or any(group.per_row for group in program.groups):
            return 0
        size = block_rows(program, self.inducing, self.count)
        return size and part_of_block(self.rows, size)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sites:
    """log t_n(f) = linear f - precision f^2 / 2, for every row and latent; a matrix per row where they are coupled."""

    linear: Float[Array, "rows latents"]
    precision: Float[Array, "rows latents"] | Float[Array, "rows latents latents"]

    @property
    def coupled(self) -> bool:
        """Whether there is a site for all latents of a row together."""
        return self.precision.ndim == 3


def coupled_sites(sites: Sites) -> Sites:
    """The same sites, as one for all latents of a row together."""
    return Sites(sites.linear, sites.precision[..., None] * np.eye(sites.precision.shape[-1], dtype=sites.linear.dtype))


def never_widening(sites: Sites) -> Sites:
    """The same without negative precisions: with these q is no distribution at other parameters than those of a fit."""
    if not sites.coupled:
        narrow = sites.precision > 0
        return Sites(jnp.where(narrow, sites.linear, 0.0), jnp.where(narrow, sites.precision, 0.0))
    values, vectors = jnp.linalg.eigh(sites.precision)
    narrowing = vectors * (values > 0)[..., None, :]
    along = jnp.swapaxes(narrowing, -1, -2)
    return Sites((narrowing @ (along @ sites.linear[..., None]))[..., 0], (narrowing * values[..., None, :]) @ along)


@dataclass(frozen=True)
class SitePosterior:
    """q of one group given its sites: whitened mean, factor of the whitened precision, moments at the rows, KL."""

    mean: Float[Array, "latents M"]
    factor: Float[Array, "latents M M"]
    row_mean: Float[Array, "latents rows"]
    row_variance: Float[Array, "latents rows"]
    divergence: Float[Array, ""]


def initial_sites(program: Program, parameters: Mapping[str, Array], rows: Rows, scale: Sequence[Array]) -> Sites:
    """Start at the prior mean, with each row as informative as one observation with the prior's variance as noise."""
    count = next(iter(rows.observed.values())).shape[0]
    mean = prior_means(program.evaluator, program.groups, parameters, rows, count)
    precision = jnp.broadcast_to(1.0 / jnp.concatenate(list(scale)), mean.shape)
    return Sites(precision * mean, precision)


def of_latents(view: GroupView, linear: Array, precision: Array) -> tuple[Array, Array]:
    """Those of a group's latents at unit scale: [latents, rows]."""
    columns, scale = slice(view.group.start, view.group.stop), view.kernel.scale[:, None]
    linear = by_latent(view.group, linear[:, columns]) * jnp.sqrt(scale)
    return linear, by_latent(view.group, precision[:, columns]) * scale


def site_posterior(view: GroupView, sites: Sites, prior: Float[Array, "rows columns"]) -> SitePosterior | RowSites:
    """q(w) of a group: O(latents rows M^2). All NaN where the precision is not positive definite."""
    linear, precision = of_latents(view, sites.linear - sites.precision * prior, sites.precision)
    if isinstance(view.features, RowFeatures):
        return row_sites(linear, precision)
    phi = view.features.phi
    shared = phi.shape[0] == 1

    def one(phi: Array, weight: Array, linear: Array) -> tuple[Array, Array, Array, Array]:
        identity = jnp.eye(phi.shape[1], dtype=phi.dtype)
        factor = jnp.linalg.cholesky(identity + (phi.T * weight) @ phi)
        root = solve_triangular(factor, identity, lower=True, trans=1)
        mean = root @ (root.T @ (phi.T @ linear))
        explained = jnp.sum((phi @ root) ** 2, axis=1)
        return mean, factor, phi @ mean, explained

    parts = (phi[0] if shared else phi, precision, linear)
    if view.group.size == 1:
        parts = (parts[0] if shared else phi[0], precision[0], linear[0])
        mean, factor, row_mean, explained = (x[None] for x in one(*parts))
    else:
        mean, factor, row_mean, explained = jax.vmap(one, in_axes=(None if shared else 0, 0, 0))(*parts)
    trace = mean.shape[-1] - jnp.sum(precision * explained, axis=1)  # tr S, since S^-1 = I + phi' W phi
    squares = jnp.sum(mean**2, axis=1)
    divergence = 0.5 * jnp.sum(trace + squares - mean.shape[-1] + log_det_factor(factor))
    return SitePosterior(mean, factor, row_mean, explained + view.features.residual, divergence)


def site_marginals(seen: Views, sites: Sites) -> tuple[Marginals, Array, Sequence[SitePosterior | RowSites | Whitened]]:
    """Marginals at the rows and the KL divergence under the sites' posterior, and that posterior."""
    prior = seen.prior(sites.linear.shape[0])
    if sites.coupled:
        joint, divergence = joint_posterior(seen, sites.linear, sites.precision, prior)
        return joint_marginals(seen, joint), divergence, joint
    posteriors = [site_posterior(v, sites, prior) for v in seen]
    q = assemble(seen, [(p.row_mean[None], p.row_variance[None]) for p in posteriors])
    return q, sum(p.divergence for p in posteriors), posteriors  # type: ignore[return-value]


def site_elbo(
    setting: Setting,
    sites: Sites,
    normals: Array | None,
    externals: Mapping[str, Array] | Surrogate | None,
) -> Float[Array, ""]:
    """The bound as a function of the hyperparameters at fixed sites.

    At the sites' optimum its gradient is the gradient of the profiled bound max_q ELBO (envelope theorem).
    """
    seen = setting.views()
    q, divergence, _ = site_marginals(seen, sites)
    return jnp.sum(seen.expected(q, normals, externals)) - divergence + setting.log_prior


def site_target(q: Marginals, gradient: Marginals, kept: Float[Array, "columns columns"] | float = 1.0) -> Sites:
    """Where a full natural-gradient step leads, from the gradients of L_ell in the marginal moments.

    Of the precisions between latents, the shares in `kept` remain.
    """
    if q.covariance is None or gradient.covariance is None:
        precision = -2.0 * gradient.variance[0]
        return Sites(gradient.mean[0] + precision * q.mean[0], precision)
    slope = gradient.covariance[0]
    own = gradient.variance[0][..., None] * jnp.eye(slope.shape[-1], dtype=slope.dtype)
    block = -kept * (slope + jnp.swapaxes(slope, 1, 2) + 2.0 * own)
    return Sites(gradient.mean[0] + jnp.einsum("nij,nj->ni", block, q.mean[0]), block)


def step_lengths(q: Marginals, sites: Sites, target: Sites) -> Float[Array, "rows"]:
    """What each row adds to the squared length of the step to a target, in the Fisher metric of each marginal alone.

    Near the best sites it falls as the square of what is left of the way. Sites for all latents of a row together have
    none: it is not a number.
    """
    if sites.coupled:
        return jnp.full(sites.linear.shape[0], jnp.nan, sites.linear.dtype)
    variance, turned = q.variance[0], target.precision - sites.precision
    moved = target.linear - sites.linear - turned * q.mean[0]
    return jnp.sum(variance * moved**2 + 0.5 * (variance * turned) ** 2, axis=1)


def row_times(
    block: Float[Array, "rows latents"] | Float[Array, "rows latents latents"], values: Float[Array, "rows latents"]
) -> Float[Array, "rows latents"]:
    """Every row's values times what the row has for them: a number per latent, or a matrix."""
    return block * values if block.ndim == 2 else jnp.einsum("nij,nj->ni", block, values)


def blend(sites: Sites, target: Sites, step: Array | float) -> Sites:
    """(1 - step) sites + step target."""
    return jax.tree.map(lambda a, b: a + step * (b - a), sites, target)


def site_units(seen: Sequence[GroupView], sites: Sites) -> Sites:
    """Factors that make the sites of all latents dimensionless, by the latents' prior variances."""
    scale = jnp.concatenate(scales(seen))
    root = jnp.sqrt(scale)
    return Sites(root, root[:, None] * root if sites.coupled else scale)


def scales(seen: Sequence[GroupView]) -> list[Float[Array, "columns"]]:
    """Overall variances of the kernels, for each column of a group."""
    return [jnp.tile(view.kernel.scale, len(view.group.readings.all)) for view in seen]


def flatten_sites(sites: Sites, units: Sites) -> Float[Array, "n"]:
    """Dimensionless sites as one vector, row after row: what is on one device stays there."""
    linear, precision = sites.linear * units.linear, sites.precision * units.precision
    return jnp.concatenate([linear, precision.reshape(len(linear), -1)], axis=1).ravel()


def unflatten_sites(flat: Float[Array, "n"], units: Sites, like: Sites) -> Sites:
    """Inverse of `flatten_sites`."""
    rows, columns = like.linear.shape
    linear, precision = jnp.split(flat.reshape(rows, -1), [columns], axis=1)
    return Sites(linear / units.linear, precision.reshape(like.precision.shape) / units.precision)


def whitened_posterior(setting: Setting, sites: Sites) -> list[Whitened]:
    """The sites' posterior as means and roots of whitened inducing values, group by group."""
    _, _, posteriors = site_marginals(setting.views(), sites)
    return [p if isinstance(p, Whitened) else Whitened(p.mean[None], _root(p)[None]) for p in posteriors]


def _root(posterior: SitePosterior | RowSites) -> Array:
    """Root of the covariance, from that of the precision."""
    if isinstance(posterior, RowSites):
        return 1.0 / posterior.factor[..., None]
    return jax.vmap(lambda f: solve_triangular(f, jnp.eye(f.shape[0], dtype=f.dtype), lower=True, trans=1))(
        posterior.factor
    )
