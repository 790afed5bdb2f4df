"""Inducing functionals of each group of latents and what follows from them: whitened features of the rows.

With Kuu = L L', a latent is f(x) = mean(x) + sqrt(scale) (phi(x)'w + r), phi = L^-1 Kuf, w ~ N(0, I) a priori, r the
part of the prior the inducing values do not explain (SAVIGP eqs. 4-6, whitened). When the rows are the inducing points
themselves (dense, section 6.1), phi is L and nothing is left unexplained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.functionals import Functionals
from gpdsl.kernels.numerics import cholesky, solve_lower_apart, with_jitter
from gpdsl.program.groups import Group, KernelValues
from gpdsl.program.rows import Rows

Tree = TypeVar("Tree")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Features:
    """Whitened features of some rows for one group; the leading axis is 1 when the group shares its factor.

    `phi` [g, rows, M], unexplained prior variance `residual` [g, rows], both for unit scale; `factor` [g, M, M].
    """

    phi: Float[Array, "g rows M"]
    residual: Float[Array, "g rows"]
    factor: Float[Array, "g M M"]


def factorise(
    group: Group, values: KernelValues, inducing: Functionals, jitter: Array | float
) -> Float[Array, "g M M"]:
    """Cholesky factors of Kuu, one per different kernel of the group."""

    def one(arguments: tuple[Array, ...]) -> Array:
        return cholesky(_among(group, arguments, inducing), jitter)

    return of_each_kernel(group, one, values)


def inducing_covariances(
    group: Group, values: KernelValues, inducing: Functionals, jitter: Array | float
) -> Float[Array, "g M M"]:
    """Kuu with jitter, for unit scale."""
    return of_each_kernel(group, lambda a: with_jitter(_among(group, a, inducing), jitter), values)


def _among(group: Group, arguments: tuple[Array, ...], inducing: Functionals) -> Float[Array, "M M"]:
    """Covariances among inducing functionals; as between two sets of them, white noise apart has no part in these."""
    return covariance(group.form, arguments, inducing, inducing if group.apart else None)


def dense_features(factor: Float[Array, "g M M"]) -> Features:
    """Features of the inducing points themselves."""
    return Features(factor, jnp.zeros(factor.shape[:2], factor.dtype), factor)


def sparse_features(
    group: Group,
    values: KernelValues,
    inducing: Functionals,
    at: Functionals,
    factor: Float[Array, "g M M"],
    shards: int = 1,
) -> Features:
    """Features of other functionals, such as the values at the rows' inputs, which lie on so many devices."""
    cross = of_each_kernel(group, lambda a: covariance(group.form, a, inducing, at), values)
    prior = prior_variances(group, values, at)
    phi = jnp.swapaxes(solve_lower_apart(factor, cross, shards), -1, -2)
    return Features(phi, jnp.maximum(prior - jnp.sum(phi**2, axis=-1), 0.0), factor)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Covariances:
    """What features are made of, for unit scale: Kuu with jitter, Kuf, and the prior variances of the rows."""

    inducing: Float[Array, "g M M"]
    cross: Float[Array, "g M rows"]
    prior: Float[Array, "g rows"]


def covariances(
    group: Group, values: KernelValues, inducing: Functionals, at: Functionals, jitter: Array | float
) -> Covariances:
    """Covariances among inducing functionals and those of some rows, one set per different kernel of the group."""
    return Covariances(
        inducing_covariances(group, values, inducing, jitter),
        of_each_kernel(group, lambda a: covariance(group.form, a, inducing, at), values),
        prior_variances(group, values, at),
    )


def prior_variances(group: Group, values: KernelValues, at: Functionals) -> Float[Array, "g rows"]:
    """Prior variances of some functionals, for unit scale."""
    return of_each_kernel(group, lambda a: variance(group.form, a, at), values)


def prior_covariances(group: Group, values: KernelValues, at: Functionals) -> Float[Array, "g n n"]:
    """Prior covariances among some functionals, for unit scale; each has white noise of its own."""
    return of_each_kernel(group, lambda a: covariance(group.form, a, at), values)


def of_each_kernel(group: Group, function: Callable[[tuple[Array, ...]], Tree], values: KernelValues) -> Tree:
    """`function` of the arguments of each different kernel of the group: its arrays have an axis of these in front."""
    if group.factors == 1:
        return jax.tree.map(lambda a: a[None], function(tuple(a[0] for a in values.arguments)))
    return jax.vmap(lambda *a: function(a))(*values.arguments)


# The posterior of row variables: one Gaussian per row and element, in units of the prior's standard deviation.
#
# They are independent a priori, so nothing is projected from inducing values: a row's marginal is its own factor of q,
# and at new rows it is the prior. The KL term runs over all rows of the data, whatever rows a minibatch holds.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RowFeatures:
    """Which rows of the training data are looked at; `numbers` is None for `new` rows that were not among them."""

    numbers: Float[Array | np.ndarray, "rows"] | None
    new: Float[Array, "rows"]


def row_features(rows: Rows, dtype: jnp.dtype) -> RowFeatures:
    """The numbers of some rows."""
    tables = (rows.inputs, rows.outputs)
    count = next(values.shape[0] for table in tables for values in table.values())
    return RowFeatures(rows.numbers, jnp.zeros(count, dtype))


def row_moments(
    mean: Float[Array, "K latents N"], variance: Float[Array, "K latents N"], features: RowFeatures
) -> tuple[Float[Array, "K latents rows"], Float[Array, "K latents rows"]]:
    """Moments of the rows' own factors; of the prior at new rows."""
    if features.numbers is None:
        shape = (*mean.shape[:-1], features.new.shape[0])
        return jnp.zeros(shape, mean.dtype), jnp.ones(shape, mean.dtype)
    index = features.numbers.astype(int)
    return mean[..., index], variance[..., index]


@dataclass(frozen=True)
class RowSites:
    """q of row variables given their sites: mean and root of the precision of each row's factor, and the KL."""

    mean: Float[Array, "latents N"]
    factor: Float[Array, "latents N"]
    row_mean: Float[Array, "latents N"]
    row_variance: Float[Array, "latents N"]
    divergence: Float[Array, ""]


def row_sites(linear: Float[Array, "latents N"], precision: Float[Array, "latents N"]) -> RowSites:
    """A standard normal prior times one site per row. All NaN where the product is no Gaussian."""
    total = 1.0 + precision
    factor = jnp.sqrt(total)
    mean, variance = linear / total, 1.0 / factor**2
    divergence = 0.5 * jnp.sum(variance + mean**2 - 1.0 + 2.0 * jnp.log(factor))
    return RowSites(mean, factor, mean, variance, divergence)
