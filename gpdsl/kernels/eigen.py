"""Eigenfunctions of RBF under a normal density of the inputs: Rasmussen and Williams (2006), section 4.3.1.

With p the density of N(m, s^2) and int k(x, x') v_i(x) p(x) dx = lambda_i v_i(x'), the features are
u_i = int f v_i p dx / sqrt(lambda_i): they are independent with unit variance, and cov(u_i, f(x)) = sqrt(lambda_i)
v_i(x). In one column, with a = 1 / (4 s^2), b = 1 / (2 ell^2), c = sqrt(a^2 + 2 a b) and A = a + b + c,

    lambda_k = sqrt(2 a / A) (b / A)^k,   v_k(x) = (c / a)^(1/4) exp(-(c - a) x^2) H_k(sqrt(2 c) x) / sqrt(2^k k!),

x from m; in several, products of these. The density has the middle of the box as its mean, and a quarter of its width
as its standard deviation.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.kernels.basis import Basis, Unsuited


def eigen(kernel: str, arguments: Mapping[str, Array], corners: Float[Array, "2 D"], count: int) -> Basis:
    """`count` eigenfunctions, by the sum of their degrees."""
    if kernel != "RBF":
        raise Unsuited(f"eigenfunctions are known of RBF, not of {kernel}")
    width, dtype = corners.shape[1], corners.dtype
    degrees = lowest_degrees(count, width)
    most = int(degrees.max())
    ell = jnp.broadcast_to(arguments["ell"], (width,))
    middle, spread = 0.5 * (corners[0] + corners[1]), 0.25 * (corners[1] - corners[0])
    a, b = 0.25 / spread**2, 0.5 / ell**2
    c = jnp.sqrt(a**2 + 2.0 * a * b)
    total = a + b + c
    logs = 0.5 * jnp.log(2.0 * a / total)[None, :] + jnp.asarray(degrees, dtype) * jnp.log(b / total)[None, :]

    def functions(points: Float[Array, "n D"]) -> Float[Array, "n M"]:
        moved = points - middle[None, :]
        first = (c / a)[None, :] ** 0.25 * jnp.exp(-(c - a)[None, :] * moved**2)
        each = _hermite(jnp.sqrt(2.0 * c)[None, :] * moved, first, most)
        return functools.reduce(jnp.multiply, [each[degrees[:, d], :, d] for d in range(width)]).T

    return Basis(jnp.exp(0.5 * jnp.sum(logs, axis=1)), jnp.eye(count, dtype=dtype), functions)


def _hermite(z: Float[Array, "n D"], first: Float[Array, "n D"], most: int) -> Float[Array, "degrees n D"]:
    """`first` times H_k(z) / sqrt(2^k k!), k up to the most."""
    found = [first, jnp.sqrt(2.0) * z * first]
    for k in range(1, most):
        found.append(jnp.sqrt(2.0 / (k + 1.0)) * z * found[k] - jnp.sqrt(k / (k + 1.0)) * found[k - 1])
    return jnp.stack(found[: most + 1])


@functools.lru_cache(maxsize=64)
def lowest_degrees(count: int, width: int) -> np.ndarray:
    """`count` different degrees in so many columns, those with the smallest sums first: [count, width]."""
    found: list[tuple[int, ...]] = []
    for total in itertools.count():
        for bars in itertools.combinations(range(total + width - 1), width - 1):
            ends = (-1, *bars, total + width - 1)
            found.append(tuple(ends[i + 1] - ends[i] - 1 for i in range(width)))
            if len(found) == count:
                return np.asarray(found)
    raise AssertionError  # the numbers do not end
