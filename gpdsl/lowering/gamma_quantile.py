"""The quantile function of a gamma distribution, differentiable in its shape."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammainc, gammaln
from jaxtyping import Array, Float

ROUNDS = 4
"""Halley's steps from the Wilson-Hilferty start: two would do in the middle of the distribution."""


@jax.custom_jvp
def gamma_quantile(shape: Float[Array, "..."], normal: Float[Array, "..."]) -> Float[Array, "..."]:
    """The gamma variate, of rate 1 and shape 1 at least, with the same probability below it as a standard normal.

    The derivative is that of a draw with its probability held (an implicit reparameterisation); in `normal` there is
    none. For a shape `a` below 1, the quantile of a + 1 times u^(1/a), u uniform, is a draw.
    """
    probability = jax.scipy.special.ndtr(normal)
    start = shape * (1.0 - 1.0 / (9.0 * shape) + normal / (3.0 * jnp.sqrt(shape))) ** 3

    def step(_: Any, x: Array) -> Array:
        density = jnp.exp((shape - 1.0) * jnp.log(x) - x - gammaln(shape))
        newton = (gammainc(shape, x) - probability) / jnp.maximum(density, jnp.finfo(x.dtype).tiny)
        curved = jnp.clip(0.5 * newton * ((shape - 1.0) / x - 1.0), -0.5, 0.5)
        return jnp.clip(x - newton / (1.0 - curved), 0.2 * x, 5.0 * x)

    return jax.lax.fori_loop(0, ROUNDS, step, jnp.maximum(start, 1e-3 * shape))


@gamma_quantile.defjvp
def _gamma_quantile_jvp(at: Any, along: Any) -> tuple[Array, Array]:
    x = gamma_quantile(*at)
    slope = jax.lax.random_gamma_grad(jnp.broadcast_to(at[0], x.shape), x)
    return x, slope * along[0]
