"""The posterior of row variables: one Gaussian per row and element, in units of the prior's standard deviation.

They are independent a priori, so nothing is projected from inducing values: a row's marginal is its own factor of q,
and at new rows it is the prior. The KL term runs over all rows of the data, whatever rows a minibatch holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.program.rows import Rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RowFeatures:
    """Which rows of the training data are looked at; `numbers` is None for `new` rows that were not among them."""

    numbers: Float[Array, "rows"] | None
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
