"""Products with triangular and symmetric matrices, made of ordinary matrix products of their blocks.

A matrix product runs on all cores near the machine's peak, a triangular solve at a quarter of that (measured with
LAPACK on two cores, sizes 200 to 1000). Halving the matrix until its blocks are small leaves out the half that is zero.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.kernels.numerics import solve_lower

LEAF = 256
"""Size of a block that is multiplied as if it were full: smaller ones lose more speed than they leave out."""


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
    n = lower.shape[-1]
    if n <= LEAF:
        return lower @ right
    half = n // 2
    top, bottom = right[..., :half, :], right[..., half:, :]
    rest = lower[..., half:, :half] @ top + lower_times(lower[..., half:, half:], bottom)
    return jnp.concatenate([lower_times(lower[..., :half, :half], top), rest], axis=-2)


def lower_transposed_times(lower: Float[Array, "*b n n"], right: Float[Array, "*b n m"]) -> Float[Array, "*b n m"]:
    """`lower' @ right`."""
    n = lower.shape[-1]
    if n <= LEAF:
        return jnp.swapaxes(lower, -1, -2) @ right
    half = n // 2
    top, bottom = right[..., :half, :], right[..., half:, :]
    first = lower_transposed_times(lower[..., :half, :half], top)
    first = first + jnp.swapaxes(lower[..., half:, :half], -1, -2) @ bottom
    return jnp.concatenate([first, lower_transposed_times(lower[..., half:, half:], bottom)], axis=-2)


def times_lower(left: Float[Array, "*b m n"], lower: Float[Array, "*b n n"]) -> Float[Array, "*b m n"]:
    """`left @ lower`."""
    n = lower.shape[-1]
    if n <= LEAF:
        return left @ lower
    half = n // 2
    front, back = left[..., :half], left[..., half:]
    first = times_lower(front, lower[..., :half, :half]) + back @ lower[..., half:, :half]
    return _beside(first, times_lower(back, lower[..., half:, half:]))


def symmetric_product(left: Float[Array, "*b n m"], right: Float[Array, "*b n m"]) -> Float[Array, "*b n n"]:
    """`left @ right'` where that is known to be symmetric: `left` is `right` times a symmetric matrix."""
    n = left.shape[-2]
    if n <= LEAF:
        return left @ jnp.swapaxes(right, -1, -2)
    half = n // 2
    first = symmetric_product(left[..., :half, :], right[..., :half, :])
    last = symmetric_product(left[..., half:, :], right[..., half:, :])
    below = left[..., half:, :] @ jnp.swapaxes(right[..., :half, :], -1, -2)
    return jnp.concatenate([_beside(first, jnp.swapaxes(below, -1, -2)), _beside(below, last)], axis=-2)


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


def _both(matrix: Array) -> Array:
    """A matrix plus its transpose."""
    return matrix + jnp.swapaxes(matrix, -1, -2)


def _beside(left: Array, right: Array) -> Array:
    return jnp.concatenate([left, right], axis=-1)
