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
    exactly zero; otherwise length-scales divide `a` alone, so that their gradient needs no gradient in `b`.
    """
    if a.shape[-1] <= DIRECT_COLUMNS or a.shape[0] == b.shape[0] == 1:
        unit = (1.0,) * a.shape[-1] if ell is None else jnp.broadcast_to(ell, a.shape[-1:])
        return sum(jnp.square((a[:, None, d] - b[None, :, d]) / unit[d]) for d in range(a.shape[-1]))  # type: ignore[return-value]
    centre = jnp.mean(b, axis=0)  # distances are translation invariant; centring keeps the cancellation small
    from_a, from_b = a - centre, b - centre
    if b is a:
        scaled = from_a if ell is None else from_a / ell
        norms = jnp.sum(scaled * scaled, axis=1)
        distances = _apart(norms, norms, scaled, scaled)
        return jnp.where(jnp.eye(a.shape[0], dtype=bool), 0.0, distances)
    if ell is None:
        return _apart(jnp.sum(from_a * from_a, axis=1), jnp.sum(from_b * from_b, axis=1), from_a, from_b)
    weights = jnp.broadcast_to(1.0 / (ell * ell), a.shape[-1:])
    weighted = from_a * weights
    return _apart(jnp.sum(weighted * from_a, axis=1), jnp.square(from_b) @ weights, weighted, from_b)


def _apart(norms_a: Float[Array, "n"], norms_b: Float[Array, "m"], a: Points, b: Points) -> Float[Array, "n m"]:
    """|a|^2 + |b|^2 - 2 a'b of all pairs, which is never negative."""
    return jnp.maximum(norms_a[:, None] + norms_b[None, :] - 2.0 * a @ b.T, 0.0)
