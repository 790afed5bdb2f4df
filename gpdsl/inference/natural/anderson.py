"""Anderson acceleration of a fixed-point iteration: the next point from a least-squares fit to the last few steps.

Natural-gradient steps move along a ridge of the bound (a depth and a velocity whose ratio alone is observed) at a
linear rate; a few remembered steps are enough to see where they lead. Walker and Ni (2011), SIAM J. Numer. Anal. 49.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

MEMORY = 10
RIDGE = 1e-10


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Memory:
    """Differences of the last points and of their residuals; `filled` counts those that are meant."""

    points: Float[Array, "memory n"]
    residuals: Float[Array, "memory n"]
    filled: Array


def empty(length: int, dtype: jnp.dtype) -> Memory:
    """Nothing remembered."""
    zeros = jnp.zeros((MEMORY, length), dtype)
    return Memory(zeros, zeros, jnp.asarray(0))


def remember(memory: Memory, point: Array, residual: Array) -> Memory:
    """Add one difference, dropping the oldest."""
    return Memory(
        jnp.roll(memory.points, 1, axis=0).at[0].set(point),
        jnp.roll(memory.residuals, 1, axis=0).at[0].set(residual),
        jnp.minimum(memory.filled + 1, MEMORY),
    )


def propose(memory: Memory, point: Float[Array, "n"], residual: Float[Array, "n"]) -> Float[Array, "n"]:
    """The accelerated next point; the plain step `point + residual` while nothing is remembered."""
    used = (jnp.arange(MEMORY) < memory.filled).astype(point.dtype)
    columns = memory.residuals * used[:, None]
    gram = columns @ columns.T
    size = jnp.trace(gram) * RIDGE + jnp.finfo(point.dtype).tiny
    weights = jnp.linalg.solve(gram + size * jnp.eye(MEMORY, dtype=point.dtype), columns @ residual) * used
    return point + residual - weights @ (memory.points + memory.residuals)
