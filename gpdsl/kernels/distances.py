"""Squared distances between the rows of two arrays."""

from __future__ import annotations

import jax
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
    if b is a:
        return _among(a)
    weights = 1.0 if ell is None else 1.0 / (ell * ell)
    centre = jnp.mean(b, axis=0)  # distances are translation invariant; centring keeps the cancellation small
    from_a, from_b = a - centre, b - centre
    weighted = from_a * weights
    squares = jnp.sum(weighted * from_a, axis=1)[:, None] + jnp.sum(from_b * from_b * weights, axis=1)[None, :]
    return jnp.maximum(squares - 2.0 * weighted @ from_b.T, 0.0)


@jax.custom_jvp
def _among(points: Points) -> Float[Array, "n n"]:
    """Squared distances between points; their gradient by one product, since they do not ask which point is first."""
    centred = points - jnp.mean(points, axis=0)
    squares = jnp.sum(jnp.square(centred), axis=1)
    distances = jnp.maximum(squares[:, None] + squares[None, :] - 2.0 * centred @ centred.T, 0.0)
    return jnp.where(jnp.eye(len(points), dtype=bool), 0.0, distances)


@_among.defjvp
def _among_jvp(primals: tuple[Points], tangents: tuple[Points]) -> tuple[Array, Array]:
    (points,), (moves,) = primals, tangents
    centred = points - jnp.mean(points, axis=0)
    product, each = moves @ centred.T, jnp.sum(moves * centred, axis=1)
    return _among(points), 2.0 * (each[:, None] + each[None, :] - product - product.T)
