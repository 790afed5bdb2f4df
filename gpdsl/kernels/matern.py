"""Matérn profiles as functions of the scaled square s = 2 nu r^2, with derivatives that are right at s = 0.

With u = sqrt(s): h0 = e^-u, h1 = (1 + u) e^-u, h2 = (1 + u + u^2/3) e^-u, and h1' = -h0/2, h2' = -h1/6 in s. Written
through u alone, automatic differentiation would divide zero by zero where two points meet.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

SMALLEST = 1e-30
"""Below it the square root is kept constant: it has no derivative at zero, and what multiplies it is zero there."""


def exponential(s: Array) -> Array:
    """h0: the profile of Matern12."""
    return jnp.exp(-_root(s))


@jax.custom_jvp
def once_smooth(s: Array) -> Array:
    """h1: the profile of Matern32."""
    u = _root(s)
    return (1.0 + u) * jnp.exp(-u)


@jax.custom_jvp
def twice_smooth(s: Array) -> Array:
    """h2: the profile of Matern52."""
    u = _root(s)
    return (1.0 + u + u**2 / 3.0) * jnp.exp(-u)


@once_smooth.defjvp
def _once_smooth_jvp(at: Any, along: Any) -> tuple[Array, Array]:
    return once_smooth(at[0]), -exponential(at[0]) / 2.0 * along[0]


@twice_smooth.defjvp
def _twice_smooth_jvp(at: Any, along: Any) -> tuple[Array, Array]:
    return twice_smooth(at[0]), -once_smooth(at[0]) / 6.0 * along[0]


def _root(s: Array) -> Array:
    return jnp.sqrt(jnp.maximum(s, SMALLEST))
