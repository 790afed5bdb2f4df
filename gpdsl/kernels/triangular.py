"""Products with triangular and symmetric matrices, made of ordinary matrix products of their blocks.

A matrix product runs on all cores near the machine's peak, a triangular solve at a quarter of that (measured with
LAPACK on two cores, sizes 200 to 1000). In bands that end where the zeros begin, a product leaves out most of them.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.kernels.numerics import solve_lower

LEAF = 256
"""Size up to which a matrix is multiplied as if it were full: blocks of it lose more speed than they leave out."""

BLOCKS = 4
"""Bands of rows or columns that a larger matrix is cut into, each of which ends where the zeros begin."""


SMALL = 64
"""Size up to which an inverse is found by substitution: what it loses in speed is little."""


def inverse_lower(factor: Float[Array, "*b n n"], halvings: int = 2) -> Float[Array, "*b n n"]:
    """Inverse of lower triangular matrices, which are halved so often at most: each time makes compilation longer."""
    n = factor.shape[-1]
    if n <= SMALL or halvings == 0:
        return solve_lower(factor, jnp.broadcast_to(jnp.eye(n, dtype=factor.dtype), factor.shape))
    half = n // 2
    first = inverse_lower(factor[..., :half, :half], halvings - 1)
    last = inverse_lower(factor[..., half:, half:], halvings - 1)
    below = -lower_times(last, times_lower(factor[..., half:, :half], first))
    zeros = jnp.zeros((*factor.shape[:-2], half, n - half), factor.dtype)
    return jnp.concatenate([_beside(first, zeros), _beside(below, last)], axis=-2)


def lower_times(lower: Float[Array, "*b n n"], right: Float[Array, "*b n m"]) -> Float[Array, "*b n m"]:
    """`lower @ right`."""
    cuts = _cuts(lower.shape[-1])
    return jnp.concatenate([lower[..., a:b, :b] @ right[..., :b, :] for a, b in cuts], axis=-2)


def lower_transposed_times(lower: Float[Array, "*b n n"], right: Float[Array, "*b n m"]) -> Float[Array, "*b n m"]:
    """`lower' @ right`."""
    cuts = _cuts(lower.shape[-1])
    rows = [jnp.swapaxes(lower[..., a:, a:b], -1, -2) @ right[..., a:, :] for a, b in cuts]
    return jnp.concatenate(rows, axis=-2)


def times_lower(left: Float[Array, "*b m n"], lower: Float[Array, "*b n n"]) -> Float[Array, "*b m n"]:
    """`left @ lower`."""
    cuts = _cuts(lower.shape[-1])
    return jnp.concatenate([left[..., a:] @ lower[..., a:, a:b] for a, b in cuts], axis=-1)


def symmetric_product(left: Float[Array, "*b n m"], right: Float[Array, "*b n m"]) -> Float[Array, "*b n n"]:
    """`left @ right'` where that is known to be symmetric: `left` is `right` times a symmetric matrix."""
    n, other = left.shape[-2], jnp.swapaxes(right, -1, -2)
    cuts = _cuts(n)
    if len(cuts) == 1:
        return left @ other
    rows = [_widened(left[..., a:b, :] @ other[..., :b], n) for a, b in cuts]
    found = jnp.concatenate(rows, axis=-2)
    below = jnp.arange(n)[:, None] >= jnp.arange(n)
    return jnp.where(below, found, jnp.swapaxes(found, -1, -2))


def congruence(lower: Float[Array, "*b n n"], symmetric: Float[Array, "*b n n"]) -> Float[Array, "*b n n"]:
    """`lower' @ symmetric @ lower`, symmetric again."""
    half_way = lower_transposed_times(lower, symmetric)
    return 0.5 * _both(times_lower(half_way, lower))


def gram_of_lower(lower: Float[Array, "*b n n"]) -> Float[Array, "*b n n"]:
    """`lower' @ lower`: a symmetric matrix from the factor that its inverse's Cholesky factor inverts to."""
    n = lower.shape[-1]
    if n <= LEAF:
        return jnp.swapaxes(lower, -1, -2) @ lower
    half = n // 2
    below, last = lower[..., half:, :half], lower[..., half:, half:]
    corner = jnp.swapaxes(below, -1, -2)
    first = gram_of_lower(lower[..., :half, :half]) + symmetric_product(corner, corner)
    crossed = times_lower(corner, last)
    return jnp.concatenate(
        [_beside(first, crossed), _beside(jnp.swapaxes(crossed, -1, -2), gram_of_lower(last))], axis=-2
    )


def _cuts(n: int) -> list[tuple[int, int]]:
    """Where the bands of a matrix begin and end."""
    bands = BLOCKS if n > LEAF else 1
    places = [round(i * n / bands) for i in range(bands + 1)]
    return list(zip(places, places[1:], strict=False))


def _widened(rows: Float[Array, "*b m k"], n: int) -> Float[Array, "*b m n"]:
    """With zeros on the right, up to `n` columns."""
    return jnp.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, n - rows.shape[-1])])


def _both(matrix: Array) -> Array:
    """A matrix plus its transpose."""
    return matrix + jnp.swapaxes(matrix, -1, -2)


def _beside(left: Array, right: Array) -> Array:
    return jnp.concatenate([left, right], axis=-1)
