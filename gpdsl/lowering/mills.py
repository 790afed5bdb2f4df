"""Integrals of the normal density beyond a point, over the density there: Mills' ratio and higher moments in JAX."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import erfc
from jaxtyping import Array

NEAR = 2.0
"""Below this the moments come from the lowest by recurrence; above, where that cancels, from a continued fraction."""

LEVELS = 60
"""Of the continued fraction: at `NEAR` the last is nothing to double precision."""

LARGEST = 1e18
"""Whose square is finite in single precision."""

FAR = {"float32": 8.0, "float64": 16.0}
"""Beyond this Mills' ratio comes from its asymptotic series."""


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def mills(order: int, x: Array) -> Array:
    """R_k(x), the integral over y > 0 of y^k exp(-y^2 / 2 - x y), for x from 0 and a whole k.

    E[(z - x)^k where z > x] = phi(x) R_k(x) for a standard normal z; R_0 = (1 - Phi(x)) / phi(x).
    """
    lowest = _ratio(x)
    if order == 0:
        return lowest
    near = x < NEAR
    small, large = jnp.where(near, x, 0.0), jnp.where(near, NEAR, jnp.minimum(x, LARGEST))
    return jnp.where(near, _upwards(order, small, lowest), _downwards(order, large, lowest))


@mills.defjvp
def _mills_jvp(order: int, at: tuple[Any], along: tuple[Any]) -> tuple[Array, Array]:
    """dR_k/dx = -R_{k+1}."""
    return mills(order, at[0]), -mills(order + 1, at[0]) * along[0]


def _ratio(x: Array) -> Array:
    far = x > FAR[x.dtype.name]
    near, deep = jnp.where(far, 1.0, x), jnp.where(far, x, FAR[x.dtype.name])
    inverse, series = deep**-2, jnp.ones_like(deep)
    for odd in range(17, 0, -2):  # 1 - 1/x^2 + 3/x^4 - ... (Abramowitz and Stegun 26.2.12)
        series = 1.0 - odd * inverse * series
    inside = math.sqrt(0.5 * math.pi) * jnp.exp(0.5 * near**2) * erfc(near * math.sqrt(0.5))
    return jnp.where(far, series / deep, inside)


def _upwards(order: int, x: Array, lowest: Array) -> Array:
    """R_{k+1} = k R_{k-1} - x R_k, from R_1 = 1 - x R_0."""
    before, found = lowest, 1.0 - x * lowest
    for k in range(1, order):
        before, found = found, k * before - x * found
    return found


def _downwards(order: int, x: Array, lowest: Array) -> Array:
    """The same recurrence from far above, as ratios R_k / R_{k-1} = k / (x + R_{k+1} / R_k)."""
    ratio = 0.5 * (jnp.sqrt(x**2 + 4.0 * (order + LEVELS)) - x)

    def deeper(step: int, ratio: Array) -> Array:
        return (order + LEVELS - step) / (x + ratio)

    ratio = jax.lax.fori_loop(1, LEVELS, deeper, ratio)
    found = lowest
    for k in range(order, 0, -1):
        ratio = k / (x + ratio)
        found = found * ratio
    return found
