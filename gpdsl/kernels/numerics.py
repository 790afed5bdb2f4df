"""Linear algebra that says when it fails: jitter, and Cholesky factors of covariance matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

Tree = TypeVar("Tree")

JITTER = {"float64": 1e-8, "float32": 1e-5}
"""Relative jitter by dtype: far above the rounding of a Cholesky factor, far below any noise a model can see."""

ESCALATION = {"float64": (1.0, 100.0, 10_000.0), "float32": (1.0, 10.0, 100.0)}
"""Multiples of the first jitter that are tried in turn when no factorisation succeeds."""


def jitter_for(dtype: jnp.dtype) -> float:
    """First jitter to try, relative to the mean variance of the matrix."""
    return JITTER[jnp.dtype(dtype).name]


def jitters_for(dtype: str) -> tuple[float, ...]:
    """All jitters to try, one after the other."""
    return tuple(multiple * JITTER[dtype] for multiple in ESCALATION[dtype])


def cholesky(matrix: Float[Array, "... n n"], jitter: Float[Array, ""] | float) -> Float[Array, "... n n"]:
    """Lower factor of `with_jitter(matrix, jitter)`; NaN when that is not positive definite."""
    return jnp.linalg.cholesky(with_jitter(matrix, jitter))


def with_jitter(matrix: Float[Array, "... n n"], jitter: Float[Array, ""] | float) -> Float[Array, "... n n"]:
    """`matrix + jitter * mean(diag) * I`."""
    n = matrix.shape[-1]
    scale = jnp.mean(jnp.diagonal(matrix, axis1=-2, axis2=-1), axis=-1)[..., None, None]
    return matrix + jitter * scale * jnp.eye(n, dtype=matrix.dtype)


def chosen(condition: Array, new: Tree, old: Tree) -> Tree:
    """What is new where a condition holds, and what was before elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def solve_lower(factor: Float[Array, "*b n n"], right: Float[Array, "*b n m"]) -> Float[Array, "*b n m"]:
    """`factor`^-1 `right` for lower triangular factors, batched over leading axes."""
    if factor.ndim == 2:
        return solve_triangular(factor, right, lower=True)
    if factor.shape[0] == 1:  # one shared factor: no batching rule, one large solve
        return solve_triangular(factor[0], right[0], lower=True)[None]
    return jax.vmap(lambda f, r: solve_triangular(f, r, lower=True))(factor, right)


def solve_lower_apart(factor: Float[Array, "g n n"], right: Float[Array, "g n m"], parts: int) -> Float[Array, "g n m"]:
    """`solve_lower` of right-hand sides that lie on several devices, in equal parts, each on its own device.

    XLA divides a solve along leading axes only: as it stands, every device would gather all right-hand sides and solve
    for all of them.
    """
    groups, n, m = right.shape
    if parts == 1 or m % parts:
        return solve_lower(factor, right)
    apart = jnp.moveaxis(right.reshape(groups, n, parts, m // parts), 2, 0).reshape(parts * groups, n, m // parts)
    solved = solve_lower(jnp.tile(factor, (parts, 1, 1)), apart)
    return jnp.moveaxis(solved.reshape(parts, groups, n, m // parts), 0, 2).reshape(groups, n, m)


def log_det_factor(factor: Float[Array, "... n n"]) -> Float[Array, "..."]:
    """log |L L'| from the lower factor L."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


def trace(matrix: Float[Array, "n n"]) -> Float[Array, ""]:
    """Sum of the diagonal. `jax.numpy.trace` goes through the whole matrix."""
    return jnp.sum(jnp.diagonal(matrix))


# Products with triangular and symmetric matrices, made of ordinary matrix products of their blocks.
#
# A matrix product runs on all cores near the machine's peak, a triangular solve at a quarter of that (measured with
# LAPACK on two cores, sizes 200 to 1000). In bands that end where the zeros begin, a product leaves out most of them;
# of a symmetric result only the lower half is worked out. A product whose left factor is transposed runs at half the
# rate of others on CPUs, so that a transposed copy is made first.


LEAF = 128
"""Size up to which a matrix is multiplied as if it were full: bands of it lose more speed than they leave out."""

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
    upper, cuts = _turned(lower), _cuts(lower.shape[-1])
    return jnp.concatenate([upper[..., a:b, a:] @ right[..., a:, :] for a, b in cuts], axis=-2)


def times_lower(left: Float[Array, "*b m n"], lower: Float[Array, "*b n n"]) -> Float[Array, "*b m n"]:
    """`left @ lower`."""
    cuts = _cuts(lower.shape[-1])
    return jnp.concatenate([left[..., a:] @ lower[..., a:, a:b] for a, b in cuts], axis=-1)


def symmetric_product(left: Float[Array, "*b n m"], right: Float[Array, "*b n m"]) -> Float[Array, "*b n n"]:
    """`left @ right'` where that is known to be symmetric: `left` is `right` times a symmetric matrix."""
    cuts = _cuts(left.shape[-2])
    return _mirrored([left[..., a:b, :] @ _swapped(right[..., :b, :]) for a, b in cuts], cuts)


def congruence(lower: Float[Array, "*b n n"], symmetric: Float[Array, "*b n n"]) -> Float[Array, "*b n n"]:
    """`lower' @ symmetric @ lower`, symmetric again."""
    left, cuts = lower_transposed_times(lower, symmetric), _cuts(lower.shape[-1])
    columns = [left[..., a:, a:] @ lower[..., a:, a:b] for a, b in cuts]
    rows = []
    for i, (a, b) in enumerate(cuts):
        parts = [columns[j][..., a - cuts[j][0] : b - cuts[j][0], :] for j in range(i + 1)]
        rows.append(jnp.concatenate(parts, axis=-1))
    return _mirrored(rows, cuts)


def gram_of_lower(lower: Float[Array, "*b n n"]) -> Float[Array, "*b n n"]:
    """`lower' @ lower`: a symmetric matrix from the factor that its inverse's Cholesky factor inverts to."""
    upper, cuts = _turned(lower), _cuts(lower.shape[-1])
    return _mirrored([upper[..., a:b, a:] @ _swapped(upper[..., :b, a:]) for a, b in cuts], cuts)


def _cuts(n: int) -> list[tuple[int, int]]:
    """Where the bands of a matrix begin and end."""
    bands = BLOCKS if n > LEAF else 1
    places = [round(i * n / bands) for i in range(bands + 1)]
    return list(zip(places, places[1:], strict=False))


def _mirrored(rows: Sequence[Float[Array, "*b k m"]], cuts: Sequence[tuple[int, int]]) -> Float[Array, "*b n n"]:
    """A symmetric matrix from its bands of rows, each as far as the diagonal.

    The bands are finished first: taken into the loop that puts them together, they would be worked out twice.
    """
    if len(cuts) == 1:
        return rows[0]
    rows = jax.lax.optimization_barrier(tuple(rows))
    bands = []
    for i, (a, b) in enumerate(cuts):
        beyond = [_swapped(row[..., a:b]) for row in rows[i + 1 :]]
        bands.append(jnp.concatenate([rows[i], *beyond], axis=-1))
    return jnp.concatenate(bands, axis=-2)


def _turned(matrix: Float[Array, "*b n m"]) -> Float[Array, "*b m n"]:
    """The transposed matrix as a copy in memory, which a product cannot undo."""
    return jax.lax.optimization_barrier(_swapped(matrix))


def _swapped(matrix: Float[Array, "*b n m"]) -> Float[Array, "*b m n"]:
    return jnp.swapaxes(matrix, -1, -2)


def _beside(left: Array, right: Array) -> Array:
    return jnp.concatenate([left, right], axis=-1)
