"""Squared distances between the rows of two arrays."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

Points = Float[Array, "n D"]
DIRECT_COLUMNS = 4
"""Up to this many columns squared distances are summed difference by difference: exact, and no slower."""


def squared_distance(a: Points, b: Points, ell: Float[Array, "D"] | None = None) -> Float[Array, "n m"]:
    """Squared Euclidean distances between rows, in units of a length-scale for each column where these are given.

    Through one matrix product when there are many columns. When `b` is `a` itself, distances from a point to itself are
    exactly zero; otherwise length-scales divide the product's `a` alone: their gradient needs none in `b`.
    """
    few = a.shape[-1] <= DIRECT_COLUMNS or a.shape[0] == b.shape[0] == 1
    if ell is not None and (few or b is a):
        scaled = a / ell
        return squared_distance(scaled, scaled if b is a else b / ell)
    if few:
        return sum(jnp.square(a[:, None, d] - b[None, :, d]) for d in range(a.shape[-1]))  # type: ignore[return-value]
    weights = 1.0 if ell is None else 1.0 / (ell * ell)
    centre = jnp.mean(b, axis=0)  # distances are translation invariant; centring keeps the cancellation small
    from_a, from_b = a - centre, b - centre
    weighted = from_a * weights
    squares = jnp.sum(weighted * from_a, axis=1)[:, None] + jnp.sum(from_b * from_b * weights, axis=1)[None, :]
    distances = jnp.maximum(squares - 2.0 * weighted @ from_b.T, 0.0)
    return jnp.where(jnp.eye(a.shape[0], dtype=bool), 0.0, distances) if b is a else distances
