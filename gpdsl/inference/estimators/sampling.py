"""Standard normals for expectations over univariate Gaussians (SAVIGP Theorem 1): quasi-Monte-Carlo, mirrored, iid."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from gpdsl.kernels.counters import quick_normals
from gpdsl.program.compilation import jit

Shape = tuple[int, int, int, int]


def base_normals(
    key: Array,
    samples: int,
    components: int,
    rows: int,
    latents: int,
    halves: bool = False,
    sampling: str = "qmc",
) -> Float[Array, "samples components rows latents"]:
    """Standard normals by the scheme of that name: `qmc`, `antithetic` or `iid`.

    Each of them is marginally standard normal under every scheme, so estimates are unbiased; the rows' errors are
    independent, so they average out in the sum over the data. With `halves` the two halves of the samples are drawn
    independently of each other: estimators that fit on one half and apply to the other need that.
    """
    drawn = _drawing((samples, components, rows, latents), halves, sampling)
    # outside compiled functions one program instead of one for every operation
    return drawn(key) if isinstance(key, jax.core.Tracer) else _compiled(drawn)(key)


@lru_cache
def _drawing(shape: Shape, halves: bool, sampling: str) -> Callable[[Array], Array]:
    """Draws of a shape, as a function of the key."""
    draw = SCHEMES[sampling]
    return (lambda key: _halves(draw, key, shape)) if halves else (lambda key: draw(key, shape))


_compiled = lru_cache(jit)


def _halves(draw: Callable[[Array, Shape], Array], key: Array, shape: Shape) -> Array:
    """Two halves of the samples that do not know of each other."""
    first, second = jax.random.split(key)
    half, rest = shape[0] // 2, shape[1:]
    return jnp.concatenate([draw(first, (half, *rest)), draw(second, (shape[0] - half, *rest))])


def _kronecker(key: Array, shape: Shape) -> Float[Array, "samples components rows latents"]:
    """Randomised quasi-Monte-Carlo: a Kronecker sequence over the samples, shifted anew for every component and row."""
    slopes = jnp.asarray(_kronecker_slopes(shape[-1]))
    lattice = (jnp.arange(1, shape[0] + 1)[:, None] * slopes) % 1.0
    shift = jax.random.uniform(key, shape[1:], dtype=slopes.dtype)
    uniform = (lattice[:, None, None, :] + shift) % 1.0
    tiny = jnp.finfo(uniform.dtype).eps
    return ndtri(jnp.clip(uniform, tiny, 1.0 - tiny))


def _kronecker_slopes(dimension: int) -> np.ndarray:
    """Powers of the inverse root of x^(d+1) = x + 1, the generalised golden ratio: a low-discrepancy sequence."""
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimension + 1))
    return (1.0 / root) ** np.arange(1, dimension + 1)


def _antithetic(key: Array, shape: Shape) -> Float[Array, "samples components rows latents"]:
    """Pairs z, -z: odd functions of a sample cancel exactly. An odd number of samples leaves one without its mirror."""
    drawn = _independent(key, ((shape[0] + 1) // 2, *shape[1:]))
    return jnp.concatenate([drawn, -drawn])[: shape[0]]


def _independent(key: Array, shape: Shape) -> Float[Array, "samples components rows latents"]:
    return quick_normals(key, shape) if jnp.result_type(float) == jnp.float32 else jax.random.normal(key, shape)


SCHEMES: dict[str, Callable[[Array, Shape], Array]] = {
    "qmc": _kronecker,
    "antithetic": _antithetic,
    "iid": _independent,
}
