"""Standard normals for expectations over univariate Gaussians (SAVIGP Theorem 1), by randomised quasi-Monte-Carlo."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float


def _kronecker_slopes(dimension: int) -> np.ndarray:
    """Powers of the inverse root of x^(d+1) = x + 1, the generalised golden ratio: a low-discrepancy sequence."""
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimension + 1))
    return (1.0 / root) ** np.arange(1, dimension + 1)


def base_normals(
    key: Array, samples: int, components: int, rows: int, latents: int, halves: bool = False
) -> Float[Array, "samples components rows latents"]:
    """Standard normals: one Kronecker sequence over the samples, shifted independently for every component and row.

    Each marginal is exactly uniform before the normal quantile, so estimates are unbiased; the rows' errors are
    independent, so they average out in the sum over the data. With `halves` the two halves of the samples are shifted
    independently of each other: estimators that fit on one half and apply to the other need that.
    """
    slopes = jnp.asarray(_kronecker_slopes(latents))
    lattice = (jnp.arange(1, samples + 1)[:, None] * slopes) % 1.0
    shift = jax.random.uniform(key, (1 + halves, components, rows, latents), dtype=slopes.dtype)
    shift = shift[(jnp.arange(samples) >= samples // 2).astype(int)] if halves else shift
    uniform = (lattice[:, None, None, :] + shift) % 1.0
    tiny = jnp.finfo(uniform.dtype).eps
    return ndtri(jnp.clip(uniform, tiny, 1.0 - tiny))
