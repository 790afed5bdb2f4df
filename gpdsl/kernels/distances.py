"""Squared distances between the rows of two arrays."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

Points = Float[Array, "n D"]
DIRECT_COLUMNS = 4
"""Up to this many columns squared distances are summed difference by difference: exact, and no slower."""


def squared_distance(a: Points, b: Points) -> Float[Array, "n m"]:
    """Squared Euclidean distances between rows; through one matrix product when there are many columns.

    When `b` is `a` itself, distances from a point to itself are exactly zero.
    """
    if a.shape[-1] <= DIRECT_COLUMNS or a.shape[0] == b.shape[0] == 1:
        return sum(jnp.square(a[:, None, d] - b[None, :, d]) for d in range(a.shape[-1]))  # type: ignore[return-value]
    centre = jnp.mean(b, axis=0)  # distances are translation invariant; centring keeps the cancellation small
    from_a, from_b = a - centre, b - centre
    squares = jnp.sum(from_a * from_a, axis=1)[:, None] + jnp.sum(from_b * from_b, axis=1)[None, :]
    distances = jnp.maximum(squares - 2.0 * from_a @ from_b.T, 0.0)
    return jnp.where(jnp.eye(a.shape[0], dtype=bool), 0.0, distances) if b is a else distances
