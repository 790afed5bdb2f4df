"""Covariance of linear functionals from the covariance of values: weights pass through, and so do derivatives.

cov(D_i f(x), D_j f(y)) is the kernel differentiated along column i of x and column j of y, by automatic differentiation
of the covariance of one pair of points. Kernels must be written so that this is right at distance zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.kernels.functionals import (
    Block,
    Coefficients,
    Derivatives,
    Elementary,
    Functionals,
    Integrals,
    Values,
    blocks,
)

Point = Float[Array, "D"]
Known = Values | Integrals | Coefficients
Kernel = Callable[[Known, Known | None], Float[Array, "n m"]]
"""Covariance of values, integrals and coefficients; of the first with itself when the second is absent."""
Pair = Callable[[Point, Point], Float[Array, ""]]


def combined_covariance(kernel: Kernel, a: Functionals, b: Functionals | None) -> Float[Array, "n m"]:
    """Covariance matrix of any functionals; of `a` with itself when `b` is absent."""
    left, right = blocks(a), blocks(a if b is None else b)
    many = len(left) > FEW or len(right) > FEW
    known = _of_many_values(kernel, left, None if b is None else right) if many else {}

    def matrix(p: Elementary, q: Elementary) -> Array:
        """Computed once for each pair, however many combinations they stand in."""
        if (id(p), id(q)) not in known:
            known[id(p), id(q)] = _matrix(kernel, p, None if b is None and p is q else q)
        return known[id(p), id(q)]

    return jnp.block([[_weighted(first, second, matrix) for second in right] for first in left])


FEW = 3
"""Arrays of functionals up to which each pair of them is computed by itself: more are cut out of one matrix."""


def _of_many_values(
    kernel: Kernel, left: tuple[Block, ...], right: tuple[Block, ...] | None
) -> dict[tuple[int, int], Array]:
    """Covariances of all arrays of values, cut out of one matrix."""
    rows, columns = _values_in(left), _values_in(left if right is None else right)
    if not rows or not columns:
        return {}
    one = Values(jnp.concatenate([each.points for each in rows]))
    other = None if right is None else Values(jnp.concatenate([each.points for each in columns]))
    whole = kernel(one, other)
    tall, wide = (np.cumsum([0, *map(len, many)]) for many in (rows, columns))
    return {
        (id(p), id(q)): whole[tall[i] : tall[i + 1], wide[j] : wide[j + 1]]
        for i, p in enumerate(rows)
        for j, q in enumerate(columns)
    }


def _values_in(found: tuple[Block, ...]) -> list[Values]:
    """The different arrays of values among weighted sums."""
    every = {id(part): part for block in found for _, part in block}
    return [each for each in every.values() if isinstance(each, Values)]


def combined_variance(
    kernel: Kernel, diagonal: Callable[[Values], Float[Array, "n"]], a: Functionals
) -> Float[Array, "n"]:
    """Prior variance of each functional."""
    known = _pairs_of_values(kernel, found) if len(found := blocks(a)) > FEW else {}

    def rowwise(p: Elementary, q: Elementary) -> Array:
        if (id(p), id(q)) not in known:
            if isinstance(p, Coefficients) or isinstance(q, Coefficients):
                value = jnp.diagonal(_matrix(kernel, p, None if p is q else q))
            else:
                value = diagonal(p) if p is q and isinstance(p, Values) else _rowwise(kernel, p, q)
            known[id(p), id(q)] = known[id(q), id(p)] = value
        return known[id(p), id(q)]

    return jnp.concatenate([_weighted(block, block, rowwise) for block in found])


def _pairs_of_values(kernel: Kernel, found: tuple[Block, ...]) -> dict[tuple[int, int], Array]:
    """Covariances, row by row, of all pairs of values that some sum has both of, at once."""
    pairs = {
        (id(p), id(q)): (p, q)
        for block in found
        for (_, p), (_, q) in itertools.combinations(block, 2)
        if isinstance(p, Values) and isinstance(q, Values)
    }
    if not pairs:
        return {}
    first, second = (jnp.concatenate([pair[side].points for pair in pairs.values()]) for side in (0, 1))
    ends = np.cumsum([len(p) for p, _ in pairs.values()])[:-1]
    values = jnp.split(_rowwise(kernel, Values(first), Values(second)), ends)
    told = dict(zip(pairs, values, strict=True))
    return told | {(q, p): value for (p, q), value in told.items()}


def _weighted(first: Block, second: Block, value: Callable[[Elementary, Elementary], Array]) -> Array:
    """The covariance of two weighted sums."""
    parts = [u * v * value(p, q) for u, p in first for v, q in second]
    return sum(parts[1:], start=parts[0])


def _matrix(kernel: Kernel, a: Elementary, b: Elementary | None) -> Float[Array, "n m"]:
    if isinstance(a, Known) and (b is None or isinstance(b, Known)):
        return kernel(a, b)
    other = a if b is None else b
    if isinstance(a, (Integrals, Coefficients)):
        return _with_slopes(kernel, a, other)
    if isinstance(other, (Integrals, Coefficients)):
        return _with_slopes(kernel, other, a).T
    pair = _differentiated(_scalar(kernel), a, other)
    return jax.vmap(lambda x: jax.vmap(lambda y: pair(x, y))(other.points))(a.points)


def _with_slopes(kernel: Kernel, a: Integrals | Coefficients, b: Elementary) -> Float[Array, "M n"]:
    """Covariance of integrals or coefficients with derivatives, of all points at once."""

    def along(function: Callable[[Array], Array], column: int) -> Callable[[Array], Array]:
        return lambda points: jax.jvp(function, (points,), (jnp.zeros_like(points).at[:, column].set(1.0),))[1]

    found: Callable[[Array], Array] = lambda points: kernel(a, Values(points))  # noqa: E731
    for column in b.columns if isinstance(b, Derivatives) else ():
        found = along(found, column)
    return found(b.points)


def _rowwise(kernel: Kernel, a: Elementary, b: Elementary) -> Float[Array, "n"]:
    """Covariance of each functional of `a` with the one of `b` in the same place."""
    if isinstance(a, Integrals) or isinstance(b, Integrals):
        alone = partial(jax.tree.map, lambda each: each[None])
        return jax.vmap(lambda p, q: _matrix(kernel, alone(p), alone(q))[0, 0])(a, b)
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
