"""Covariance of linear functionals from the covariance of values: weights pass through, and so do derivatives.

cov(D_i f(x), D_j f(y)) is the kernel differentiated along column i of x and column j of y, by automatic differentiation
of the covariance of one pair of points. Kernels must be written so that this is right at distance zero.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float

from gpdsl.kernels.form import Base, Form, On, Product, Scaled, Sum, count
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

# Integrals of a process over intervals of its one input: covariances in closed form.
#
# With K1(t) the integral of a stationary kernel from 0 to t and K2 that of K1, the integral from a to b has with the
# value at x the covariance K1(b - x) - K1(a - x), and with the integral from c to d it has K2(b - c) + K2(a - d) - K2(b
# - d) - K2(a - c). Kernels that are polynomials in each of their points are integrated by a Gauss rule, which is exact
# for them.

NODES, WEIGHTS = (0.5 * each for each in np.polynomial.legendre.leggauss(12))
"""On an interval of length one, around its middle: exact for polynomials of degree 23."""

FINE = (0.5 * np.polynomial.legendre.leggauss(64)[0], 0.5 * np.polynomial.legendre.leggauss(64)[1])
"""Shares of an interval, from its middle, and their weights: for mean functions, which no formula integrates."""

Profile = Callable[[Array], Array]
OfValues = Callable[[Form, Sequence[Array], Values, Values], Array]
"""The covariance of values under a kernel with these parameters."""


def _primitive(value: Profile, slope: Profile) -> Profile:
    """A function with a derivative that is right where its parts have none, at zero."""
    function = jax.custom_jvp(value)
    function.defjvp(lambda at, along: (function(at[0]), slope(at[0]) * along[0]))
    return function


def _rbf(t: Array) -> Array:
    return jnp.exp(-0.5 * t**2)


def _rbf1(t: Array) -> Array:
    return np.sqrt(np.pi / 2.0) * erf(t / np.sqrt(2.0))


def _rbf2(t: Array) -> Array:
    return t * _rbf1(t) + jnp.expm1(-0.5 * t**2)


def _half(t: Array) -> Array:
    return jnp.exp(-jnp.abs(t))


def _half1(t: Array) -> Array:
    return -jnp.sign(t) * jnp.expm1(-jnp.abs(t))


def _half2(t: Array) -> Array:
    return jnp.abs(t) + jnp.expm1(-jnp.abs(t))


def _once(t: Array) -> Array:
    u = np.sqrt(3.0) * jnp.abs(t)
    return (1.0 + u) * jnp.exp(-u)


def _once1(t: Array) -> Array:
    u = np.sqrt(3.0) * jnp.abs(t)
    return jnp.sign(t) / np.sqrt(3.0) * (2.0 - (2.0 + u) * jnp.exp(-u))


def _once2(t: Array) -> Array:
    u = np.sqrt(3.0) * jnp.abs(t)
    return (2.0 * u + u * jnp.exp(-u) + 3.0 * jnp.expm1(-u)) / 3.0


def _twice(t: Array) -> Array:
    u = np.sqrt(5.0) * jnp.abs(t)
    return (1.0 + u + u**2 / 3.0) * jnp.exp(-u)


def _twice1(t: Array) -> Array:
    u = np.sqrt(5.0) * jnp.abs(t)
    return jnp.sign(t) / np.sqrt(5.0) * (8.0 / 3.0 - (8.0 + 5.0 * u + u**2) / 3.0 * jnp.exp(-u))


def _twice2(t: Array) -> Array:
    u = np.sqrt(5.0) * jnp.abs(t)
    return (8.0 * u + (7.0 * u + u**2) * jnp.exp(-u) + 15.0 * jnp.expm1(-u)) / 15.0


def _wave1(t: Array) -> Array:
    return jnp.sin(t)


def _wave2(t: Array) -> Array:
    return 2.0 * jnp.sin(0.5 * t) ** 2


def _both(kernel: Profile, once: Profile, twice: Profile) -> tuple[Profile, Profile]:
    first = _primitive(once, kernel)
    return first, _primitive(twice, first)


PRIMITIVES: Mapping[str, tuple[Profile, Profile]] = {
    "RBF": _both(_rbf, _rbf1, _rbf2),
    "Matern12": _both(_half, _half1, _half2),
    "Matern32": _both(_once, _once1, _once2),
    "Matern52": _both(_twice, _twice1, _twice2),
    "Cosine": _both(jnp.cos, _wave1, _wave2),
}
"""K1 and K2 of kernels at unit length-scale; of `Cosine` where the period is 2 pi."""


def integrated(
    form: Form, parameters: Sequence[Array], a: Integrals, b: Integrals | Values | None, of_values: OfValues
) -> Float[Array, "n m"]:
    """Covariance of integrals with values, or with integrals; of `a` with itself when `b` is absent."""
    return _integrated(form, iter(parameters), a, a if b is None else b, of_values)


def _integrated(
    form: Form, parameters: Iterator[Array], a: Integrals, b: Integrals | Values, of_values: OfValues
) -> Array:
    match form:
        case Base(name=name) if name in PRIMITIVES:
            (length,) = (jnp.reshape(next(parameters), ()) for _ in form.parameters)
            return _stationary(*PRIMITIVES[name], length / (2.0 * np.pi) if name == "Cosine" else length, a, b)
        case On(columns=(column,), kernel=kernel) if column.is_Symbol:
            return _integrated(kernel, parameters, a, b, of_values)
        case Scaled(kernel=kernel):
            factor = next(parameters)
            return factor * _integrated(kernel, parameters, a, b, of_values)
        case Sum(terms=terms):
            return functools.reduce(operator.add, [_integrated(t, parameters, a, b, of_values) for t in terms])
        case Base() | Product():
            known = [next(parameters) for _ in range(count(form))]
            # Weighted sums of the covariances of values at the nodes.
            size, other = len(NODES), len(NODES) if isinstance(b, Integrals) else 1
            at = b.points if isinstance(b, Values) else nodes_of(b)
            values = of_values(form, known, Values(nodes_of(a)), Values(at)).reshape(len(a), size, len(b), other)
            found = jnp.einsum("nimj,ni->nmj", values, weights_of(a))
            return found[..., 0] if isinstance(b, Values) else jnp.einsum("nmj,mj->nm", found, weights_of(b))

    raise TypeError(f"{form} has no integrals")  # refused by the checker


def _stationary(once: Profile, twice: Profile, length: Array, a: Integrals, b: Integrals | Values) -> Array:
    lower, upper = a.lower / length, a.upper / length
    if isinstance(b, Values):
        x = b.points.T / length
        return length * (once(upper - x) - once(lower - x))
    c, d = b.lower.T / length, b.upper.T / length
    return length**2 * ((twice(upper - c) - twice(lower - c)) - (twice(upper - d) - twice(lower - d)))


def nodes_of(a: Integrals) -> Float[Array, "nodes 1"]:
    """Points of a Gauss rule on each interval, one interval after the other."""
    middle, length = 0.5 * (a.lower + a.upper), a.upper - a.lower
    return (middle + length * NODES).reshape(-1, 1)


def weights_of(a: Integrals) -> Float[Array, "n nodes"]:
    """The weights of its points."""
    return (a.upper - a.lower) * WEIGHTS


# Covariance of linear functionals from the covariance of values: weights pass through, and so do derivatives.

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
    found: Callable[[Array], Array] = lambda points: kernel(a, Values(points))  # noqa: E731
    for column in b.columns if isinstance(b, Derivatives) else ():
        found = along(found, column)
    return found(b.points)


def along(function: Callable[[Array], Array], column: int) -> Callable[[Array], Array]:
    """The derivative of a function of one point or of several in a column of these."""
    return lambda at: jax.jvp(function, (at,), (jnp.zeros_like(at).at[..., column].set(1.0),))[1]


def _rowwise(kernel: Kernel, a: Elementary, b: Elementary) -> Float[Array, "n"]:
    """Covariance of each functional of `a` with the one of `b` in the same place."""
    if isinstance(a, Integrals) or isinstance(b, Integrals):
        alone = partial(jax.tree.map, lambda each: each[None])
        return jax.vmap(lambda p, q: _matrix(kernel, alone(p), alone(q))[0, 0])(a, b)
    return jax.vmap(_differentiated(_scalar(kernel), a, b))(a.points, b.points)


def _scalar(kernel: Kernel) -> Pair:
    return lambda x, y: kernel(Values(x[None]), Values(y[None]))[0, 0]


def _differentiated(pair: Pair, a: Elementary, b: Elementary) -> Pair:
    for place, each in enumerate((a, b)):
        for column in each.columns if isinstance(each, Derivatives) else ():
            pair = _slope(pair, place, column)
    return pair


def _slope(pair: Pair, place: int, column: int) -> Pair:
    """The derivative in a column of one of the two points."""

    def slope(x: Point, y: Point) -> Array:
        return along(lambda at: pair(x, at) if place else pair(at, y), column)(y if place else x)

    return slope
