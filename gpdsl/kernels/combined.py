"""Covariance of linear functionals from the covariance of values: weights pass through, and so do derivatives.

cov(D_i f(x), D_j f(y)) is the kernel differentiated along column i of x and column j of y, by automatic
differentiation of the covariance of one pair of points. Kernels must be written so that this is right at distance zero.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.kernels.functionals import Block, Coefficients, Derivatives, Elementary, Functionals, Values, blocks

Point = Float[Array, "D"]
Known = Values | Coefficients
Kernel = Callable[[Known, Known | None], Float[Array, "n m"]]
"""Covariance of values and coefficients; of the first with itself when the second is absent."""
Pair = Callable[[Point, Point], Float[Array, ""]]


def combined_covariance(kernel: Kernel, a: Functionals, b: Functionals | None) -> Float[Array, "n m"]:
    """Covariance matrix of any functionals; of `a` with itself when `b` is absent."""
    known: dict[tuple[int, int], Array] = {}

    def matrix(p: Elementary, q: Elementary) -> Array:
        """Computed once for each pair, however many combinations they stand in."""
        if (id(p), id(q)) not in known:
            known[id(p), id(q)] = _matrix(kernel, p, None if b is None and p is q else q)
        return known[id(p), id(q)]

    right = blocks(a if b is None else b)
    return jnp.block([[_weighted(first, second, matrix) for second in right] for first in blocks(a)])


def combined_variance(
    kernel: Kernel, diagonal: Callable[[Values], Float[Array, "n"]], a: Functionals
) -> Float[Array, "n"]:
    """Prior variance of each functional."""
    known: dict[tuple[int, int], Array] = {}

    def rowwise(p: Elementary, q: Elementary) -> Array:
        if (id(p), id(q)) not in known:
            if isinstance(p, Coefficients) or isinstance(q, Coefficients):
                value = jnp.diagonal(_matrix(kernel, p, None if p is q else q))
            else:
                value = diagonal(p) if p is q and isinstance(p, Values) else _rowwise(kernel, p, q)
            known[id(p), id(q)] = known[id(q), id(p)] = value
        return known[id(p), id(q)]

    return jnp.concatenate([_weighted(block, block, rowwise) for block in blocks(a)])


def _weighted(first: Block, second: Block, value: Callable[[Elementary, Elementary], Array]) -> Array:
    """The covariance of two weighted sums."""
    parts = [u * v * value(p, q) for u, p in first for v, q in second]
    return sum(parts[1:], start=parts[0])


def _matrix(kernel: Kernel, a: Elementary, b: Elementary | None) -> Float[Array, "n m"]:
    if isinstance(a, Known) and (b is None or isinstance(b, Known)):
        return kernel(a, b)
    other = a if b is None else b
    if isinstance(a, Coefficients):
        return _with_slopes(kernel, a, other)
    if isinstance(other, Coefficients):
        return _with_slopes(kernel, other, a).T
    pair = _differentiated(_scalar(kernel), a, other)
    return jax.vmap(lambda x: jax.vmap(lambda y: pair(x, y))(other.points))(a.points)


def _with_slopes(kernel: Kernel, a: Coefficients, b: Elementary) -> Float[Array, "M n"]:
    """Covariance of coefficients with derivatives, of all points at once."""

    def along(function: Callable[[Array], Array], column: int) -> Callable[[Array], Array]:
        return lambda points: jax.jvp(function, (points,), (jnp.zeros_like(points).at[:, column].set(1.0),))[1]

    found: Callable[[Array], Array] = lambda points: kernel(a, Values(points))  # noqa: E731
    for column in b.columns if isinstance(b, Derivatives) else ():
        found = along(found, column)
    return found(b.points)


def _rowwise(kernel: Kernel, a: Elementary, b: Elementary) -> Float[Array, "n"]:
    """Covariance of each functional of `a` with the one of `b` in the same place."""
    return jax.vmap(_differentiated(_scalar(kernel), a, b))(a.points, b.points)


def _scalar(kernel: Kernel) -> Pair:
    return lambda x, y: kernel(Values(x[None]), Values(y[None]))[0, 0]


def _differentiated(pair: Pair, a: Elementary, b: Elementary) -> Pair:
    for column in a.columns if isinstance(a, Derivatives) else ():
        pair = _along_first(pair, column)
    for column in b.columns if isinstance(b, Derivatives) else ():
        pair = _along_second(pair, column)
    return pair


def _along_first(pair: Pair, column: int) -> Pair:
    def slope(x: Point, y: Point) -> Array:
        return jax.jvp(lambda x: pair(x, y), (x,), (_unit(x, column),))[1]

    return slope


def _along_second(pair: Pair, column: int) -> Pair:
    def slope(x: Point, y: Point) -> Array:
        return jax.jvp(lambda y: pair(x, y), (y,), (_unit(y, column),))[1]

    return slope


def _unit(point: Point, column: int) -> Point:
    return jnp.zeros_like(point).at[column].set(1.0)
