"""Linear algebra that says when it fails: jitter, and Cholesky factors of covariance matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

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
