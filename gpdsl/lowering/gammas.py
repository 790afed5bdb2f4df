"""Logarithms that counts need, in JAX: differences of log gamma functions that nearly cancel, multiples of log(0)."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammainc, gammaln
from jaxtyping import Array, Float

LARGE = 16.0
"""From here on Stirling's series with its terms below is exact to the last digit."""

STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


def _correction(x: Array) -> Array:
    """log Gamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2 for large x."""
    step = 1.0 / (x * x)
    total = jnp.zeros_like(x)
    for coefficient in reversed(STIRLING):
        total = total * step + coefficient
    return total / x


def times_log(y: Array | float, x: Array | float) -> Array:
    """y log(x), elementwise; 0 where y is 0, with no slope there."""
    return y * jnp.log(jnp.where(jnp.asarray(y) == 0, 1.0, x))


def log_rising(x: Array | float, n: Array | float) -> Array:
    """log Gamma(x + n) - log Gamma(x) for positive x and n from 0, elementwise: the log of x (x+1) ... (x+n-1).

    A negative binomial of large dispersion and a Student's t of many degrees of freedom need it: there the two log
    gammas agree to more digits than there are.
    """
    dtype = jnp.result_type(x, n, 0.0)
    x, n = jnp.asarray(x, dtype), jnp.asarray(n, dtype)
    near = x < LARGE
    small, large = jnp.where(near, x, 1.0), jnp.where(near, LARGE, x)
    far = (large - 0.5) * jnp.log1p(n / large) + n * (jnp.log(large + n) - 1) + _correction(large + n)
    return jnp.where(near, gammaln(small + n) - gammaln(small), far - _correction(large))


def log_beta(a: Array | float, b: Array | float) -> Array:
    """log of the beta function of positive numbers, elementwise."""
    dtype = jnp.result_type(a, b, 0.0)
    a, b = jnp.asarray(a, dtype), jnp.asarray(b, dtype)
    less, more = jnp.where(a < b, a, b), jnp.where(a < b, b, a)
    near = less < LARGE
    small, large, beside = jnp.where(near, less, 1.0), jnp.where(near, LARGE, less), jnp.where(near, LARGE, more)
    both = HALF_LOG_2_PI - 0.5 * jnp.log(beside) + _correction(large) + _correction(beside)
    both -= _correction(large + beside) + (large - 0.5) * jnp.log1p(beside / large) + beside * jnp.log1p(large / beside)
    return jnp.where(near, gammaln(small) - log_rising(more, small), both)


# --- The quantile function of a gamma distribution, differentiable in its shape --------------------------------------


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
