"""Elliptical slice sampling: one move of z under a log density times N(z; 0, I), without a step size or a gradient.

Murray, Adams and MacKay (2010), figure 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def moved(density: Callable[[Array], Array], z: Float[Array, " D"], key: Array) -> Float[Array, " D"]:
    """The next place of a chain that keeps the distribution."""
    aside, level, angle, rest = jax.random.split(key, 4)
    other = jax.random.normal(aside, z.shape, z.dtype)
    least = density(z) + jnp.log(jax.random.uniform(level, dtype=z.dtype))
    first = 2 * jnp.pi * jax.random.uniform(angle, dtype=z.dtype)

    def at(angle: Array) -> Array:
        return z * jnp.cos(angle) + other * jnp.sin(angle)

    def below(state: Any) -> Array:
        return ~(density(at(state[0])) > least)

    def shrunk(state: Any) -> Any:
        angle, low, high, key = state
        low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
        key, own = jax.random.split(key)
        return low + (high - low) * jax.random.uniform(own, dtype=z.dtype), low, high, key

    found, *_ = jax.lax.while_loop(below, shrunk, (first, first - 2 * jnp.pi, first, rest))
    return at(found)
