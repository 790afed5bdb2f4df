"""Leave a start from which no step leads anywhere: products of latents have no slope where all of their means are zero.

In a Gaussian process regression network, E[w g] has the gradient E[g] in the mean of w and E[w] in that of g: with both
priors at zero the symmetric q is a stationary point, and hyperparameters learnt there explain everything as noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from gpdsl.inference.bound import GroupView
from gpdsl.inference.estimators.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.natural.sites import Sites, site_marginals
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

FLAT = 1e-8
"""Largest slope in the means, relative to that in the variances, of a latent that nothing pulls away from its start."""


def leave_saddle(
    program: Program,
    parameters: Mapping[str, Array],
    rows: Rows,
    seen: Sequence[GroupView],
    sites: Sites,
    normals: Array | None,
    key: Array,
) -> Sites:
    """The sites, those of latents without any slope in their means replaced by a draw from what they say.

    The draws of neighbouring rows are smoothed by the prior, so that q starts at a random function of its size.
    """
    q, _, _ = site_marginals(program, parameters, rows, seen, sites)

    def expected(q: Marginals) -> Array:
        return jnp.sum(expected_log_likelihood(program, parameters, rows, q, normals, None))

    slope = jax.grad(expected)(q)
    flat = slopeless(q, slope)
    noise = jax.random.normal(key, sites.linear.shape, sites.linear.dtype) * jnp.sqrt(sites.precision)
    return Sites(jnp.where(flat, sites.linear + noise, sites.linear), sites.precision)


def slopeless(q: Marginals, slope: Marginals) -> Bool[Array, "columns"]:
    """Which columns have no slope in their means, by the gradients in all means and variances."""
    steepest = jnp.max(jnp.abs(slope.mean[0]) * jnp.sqrt(q.variance[0]), axis=0)
    curved = jnp.max(jnp.abs(slope.variance[0]) * q.variance[0], axis=0)
    return (steepest <= FLAT * curved) & (curved > 0)
