"""Spherical harmonics in any number of dimensions, and what a function of the angle is in terms of them.

Means are over the unit sphere of R^d. With t = x_1 and y = (x_2, ..., x_d), the harmonics of degree l are

    H_lm(x) = p_(l - m)(t; |x|) H_m(y),  m = 0, ..., l,

where H_m are those of R^(d - 1), and p_k are polynomials in t and |x|^2, of degree k, orthonormal on the sphere under
the weight |y|^(2 m): Gegenbauer's of index a = d / 2 - 1 + m. They obey t p_k = b_(k + 1) p_(k + 1) + |x|^2 b_k p_(k -
1) with b_k^2 = k (k + 2 a - 1) / (4 (k + a) (k + a - 1)). In the plane H_m are the real and the imaginary part of
sqrt(2) (x_1 + i x_2)^m. All of it is polynomials: there are derivatives everywhere, at the poles too.

A function of the angle between two points is sum_l lambda_l sum_j H_lj(x) H_lj(x'), where by the theorem of Funk and
Hecke lambda_l is the mean of its product with the Legendre polynomial of degree l in d dimensions, which is 1 at t = 1.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import gammaln, roots_legendre

EXTRA = 96
"""Nodes of the quadrature beside three for each degree: a kernel may be as narrow as a millionth of the sphere."""


def number_of(degree: int, dimension: int) -> int:
    """How many harmonics of a degree there are in so many dimensions."""
    below = math.comb(degree + dimension - 3, dimension - 1) if degree > 1 else 0
    return math.comb(degree + dimension - 1, dimension - 1) - below


def harmonics(points: Float[Array, "n d"], degrees: tuple[int, ...]) -> Float[Array, "n M"]:
    """All harmonics of these degrees, in their order, at points of the unit sphere; d is at least 2.

    Their products have the mean 1 with themselves, and 0 with others, over the sphere.
    """
    dimension, most = points.shape[1], max(degrees)
    x = points.T
    orders, (every, *levels) = np.arange(most + 1), _levels(dimension, degrees)
    found = _powers(x[-2], x[-1], most)[every]
    for size, (k, m, below) in zip(range(3, dimension + 1), levels, strict=True):
        own = x[dimension - size :]
        table = _gegenbauer(own[0], jnp.sum(own * own, axis=0), 0.5 * size - 1.0 + orders, size, most)
        found = table[k, m] * found[below]
    return found.T


@functools.lru_cache(maxsize=64)
def _levels(dimension: int, degrees: tuple[int, ...]) -> list:
    """Which functions of the circle there are, then for each further dimension k, m and the number of H_m.

    As numbers of 32 bits, which stay what they are in single precision too.
    """
    every = tuple(range(max(degrees) + 1))
    kept = degrees if dimension == 2 else every
    found: list = [np.asarray([i for m in kept for i in ([2 * m, 2 * m + 1] if m else [0])])]
    known = np.asarray([m for m in kept for _ in range(2 if m else 1)])
    for size in range(3, dimension + 1):
        parts = [(degree, np.flatnonzero(known <= degree)) for degree in (degrees if size == dimension else every)]
        below = np.concatenate([part for _, part in parts])
        own = np.concatenate([np.full(len(part), degree) for degree, part in parts])
        found.append((own - known[below], known[below], below))
        known = own
    return jax.tree.map(lambda each: each.astype(np.int32), found)


def _powers(x: Float[Array, "n"], y: Float[Array, "n"], most: int) -> Float[Array, "functions n"]:
    """1, 0, then the real and the imaginary part of sqrt(2) (x + i y)^m, m up to the most."""
    one, none = jnp.ones_like(x), jnp.zeros_like(x)

    def turned(last: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        new = x * last[0] - y * last[1], x * last[1] + y * last[0]
        return new, new

    rest = jax.lax.scan(turned, (one, none), None, length=most)[1]
    both = math.sqrt(2.0) * jnp.stack(rest, axis=1).reshape(2 * most, len(x))
    return jnp.concatenate([jnp.stack([one, none]), both])


def _gegenbauer(
    t: Float[Array, "n"], squares: Float[Array, "n"], a: Float[np.ndarray, "orders"], size: int, most: int
) -> Float[Array, "degrees orders n"]:
    """p_k of each index a, k up to the most, and at least to 1."""
    orders = np.arange(most + 1)
    mean = gammaln(0.5 * (size - 1) + orders) - gammaln(0.5 * size + orders)  # of |y|^(2 m), but for a factor
    begun = np.exp(-0.5 * (mean - mean[0]))
    k = np.arange(1, max(most, 1) + 1)[:, None]
    steps = jnp.asarray(np.sqrt(k * (k + 2 * a - 1) / (4 * (k + a) * (k + a - 1))), t.dtype)[:, :, None]
    first = jnp.broadcast_to(jnp.asarray(begun, t.dtype)[:, None], (most + 1, len(t)))
    second = t[None, :] * first / steps[0]

    def following(known: tuple[Array, Array], step: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        (before, last), (own, after) = known, step
        new = (t[None, :] * last - own * squares[None, :] * before) / after
        return (last, new), new

    rest = jax.lax.scan(following, (first, second), (steps[:-1], steps[1:]))[1]
    return jnp.concatenate([first[None], second[None], rest])


@functools.lru_cache(maxsize=64)
def funk_hecke(dimension: int, degrees: tuple[int, ...]) -> tuple[Float[np.ndarray, "Q"], Float[np.ndarray, "L Q"]]:
    """Angles, and weights with which values of a function at these add up to its lambda_l.

    In the angle, kernels with a kink where two points meet have derivatives of all orders between 0 and pi.
    """
    most = max(degrees)
    nodes, each = roots_legendre(3 * most + EXTRA)
    halves = 0.5 * (nodes + 1.0)
    angles = np.pi * halves**3  # denser where points meet
    log_size = gammaln(0.5 * dimension) - gammaln(0.5 * (dimension - 1)) - 0.5 * math.log(math.pi)
    density = 1.5 * np.pi * halves**2 * each * math.exp(log_size) * np.sin(angles) ** (dimension - 2)
    legendre = [np.ones_like(angles), np.cos(angles)]
    for k in range(1, most):
        step = (2 * k + dimension - 2) * np.cos(angles) * legendre[k] - k * legendre[k - 1]
        legendre.append(step / (k + dimension - 2))
    return angles, np.stack([density * legendre[k] for k in degrees])


def first_of_each(degrees: tuple[int, ...], dimension: int) -> Int[np.ndarray, "M"]:
    """For each harmonic, which of the degrees it has, from 0."""
    return np.repeat(np.arange(len(degrees)), [number_of(degree, dimension) for degree in degrees])
