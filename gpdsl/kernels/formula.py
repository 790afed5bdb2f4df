"""Covariances by formula: the same arithmetic as a kernel of the table has, from the formula's SymPy expression.

A formula of the distance is evaluated on squared distances: even powers take no root, the others one that has the
right derivatives where two points meet. What it sums over columns goes through matrix products when it can.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.kernels.functionals import DIRECT_COLUMNS, squared_distance
from gpdsl.lowering.table import evaluate
from gpdsl.symbolic.functions import at_values, can_be_expanded, differentiated
from gpdsl.symbolic.kernel_formula import DISTANCE, MAX_SIMPLIFIED, Formula, Reduced, at_zero, element_of
from gpdsl.symbolic.kernel_values import elements_read, levels_at

# Profiles: a covariance as a function of the distance, with the derivatives it has where two points meet.

SQUARE = sp.Symbol("r^2", positive=True)
SMALLEST = 1e-30
Profile = Callable[..., Array]


def profile(expression: sp.Expr, numbers: Mapping[str, Array], squares: Array, signed: Array | None) -> Array:
    """The expression in `DISTANCE` at these squared distances; `signed` are their roots with a sign, where known."""
    smooth = in_squares(expression)
    if smooth is not None:
        return evaluate(smooth, lambda s: squares if s == SQUARE else numbers[s.name])
    if signed is not None and is_even(expression):
        return evaluate(expression, lambda s: signed if s == DISTANCE else numbers[s.name])
    names = tuple(numbers)
    return _with_root(expression, at_zero(expression), names)(squares, *numbers.values())


@functools.lru_cache(maxsize=512)
def in_squares(expression: sp.Expr) -> sp.Expr | None:
    """The expression in `SQUARE`, when it has even powers of the distance only."""
    rewritten = expression.subs(DISTANCE, sp.sqrt(SQUARE))
    roots = any(power.base == SQUARE and not power.exp.is_Integer for power in rewritten.atoms(sp.Pow))
    return None if roots else rewritten


@functools.lru_cache(maxsize=512)
def is_even(expression: sp.Expr) -> bool:
    """Whether the sign of the distance makes no difference, and its value at zero needs no limit."""
    signed = sp.Symbol("signed", real=True)
    inside = expression.subs(DISTANCE, signed)
    direct = at_values(expression, {DISTANCE: sp.Integer(0)})
    return bool(inside.subs(signed, -signed) == inside) and not direct.has(sp.nan, sp.zoo)


@functools.lru_cache(maxsize=512)
def _with_root(expression: sp.Expr, at_meeting: sp.Expr, names: tuple[str, ...]) -> Profile:
    """`expression` as a function of squared distances and numbers; where two points meet it is `at_meeting`."""
    direct = at_values(expression, {DISTANCE: sp.Integer(0)}) == at_meeting

    def value(squares: Array, numbers: tuple[Array, ...]) -> Array:
        known = dict(zip(names, numbers, strict=True))
        apart = squares > SMALLEST
        root = jnp.sqrt(squares if direct else jnp.where(apart, squares, 1.0))
        found = evaluate(expression, lambda s: root if s == DISTANCE else known[s.name])
        return found if direct else jnp.where(apart, found, evaluate(at_meeting, lambda s: known[s.name]))

    @jax.custom_jvp
    def kernel(squares: Array, *numbers: Array) -> Array:
        return jnp.broadcast_to(value(squares, numbers), squares.shape)

    @kernel.defjvp
    def _kernel_jvp(at: Any, along: Any) -> tuple[Array, Array]:
        squares, numbers = at[0], at[1:]
        through_numbers: Any = 0.0
        found = value(squares, numbers)
        if numbers:
            found, through_numbers = jax.jvp(lambda *n: value(squares, n), numbers, along[1:])
        known = derivative(expression)
        if known is None:  # JAX has the derivative of every function of the table, but not where two points meet
            apart = squares > SMALLEST
            _, change = jax.jvp(lambda s: value(s, numbers), (jnp.where(apart, squares, 1.0),), (along[0],))
            change = jnp.where(apart, change, 0.0)
        else:
            change = _with_root(*known, names)(squares, *numbers) * along[0]
        return jnp.broadcast_to(found, squares.shape), through_numbers + change

    return kernel


@functools.lru_cache(maxsize=512)
def derivative(expression: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
    """dk/ds, and what stands for it at zero: its limit, or 0 where there is none, since what multiplies it vanishes.

    None when a function in it has no derivative that is written down.
    """
    change = differentiated(expression, DISTANCE)
    if change is None:
        return None
    slope = change / (2 * DISTANCE)
    if sp.count_ops(slope) <= MAX_SIMPLIFIED:
        slope = sp.expand(slope)
    limit = at_zero(slope)
    return slope, sp.Integer(0) if limit is None else limit


Points = Float[Array, "n D"]
OtherPoints = Float[Array, "m D"]
Numbers = Mapping[str, Array]
MOST_UNROLLED = 16
"""Up to this many columns, what is no matrix product is summed column by column; beyond, in a loop."""

_FOLDS: Mapping[str, Callable[[Array, Array], Array]] = MappingProxyType(
    {"sum": operator.add, "prod": operator.mul, "max": jnp.maximum, "min": jnp.minimum, "logsumexp": jnp.logaddexp}
)
_WHOLE: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {"sum": jnp.sum, "prod": jnp.prod, "max": jnp.max, "min": jnp.min, "logsumexp": jax.nn.logsumexp}
)


def formula_covariance(formula: Formula, parameters: Sequence[Array], a: Points, b: OtherPoints) -> Float[Array, "n m"]:
    """The formula for every pair of points."""
    numbers: Numbers = dict(zip(formula.parameters, parameters, strict=True))
    if formula.arrays or formula.levels:
        numbers, a, b = _at_levels(formula, numbers, a, b)
    if formula.radial:
        squares, signed = _distances(formula, numbers, a, b)
        value = profile(formula.expression, numbers, squares, signed)
    else:
        value = _pairwise(formula, numbers, a, b)
    return jnp.broadcast_to(jnp.asarray(value, a.dtype), (a.shape[0], b.shape[0]))


def formula_variance(formula: Formula, parameters: Sequence[Array], a: Points) -> Float[Array, "n"]:
    """The formula where its two points are the same."""
    numbers: Numbers = dict(zip(formula.parameters, parameters, strict=True))
    inside: Numbers = numbers
    if formula.arrays or formula.levels:
        formula = _met(formula)
        numbers, inside, a = _at_one_level(formula, numbers, a)
    if formula.radial:
        value = evaluate(at_zero(formula.expression), lambda s: number_of(s, numbers))
    else:
        value = _meeting(formula, numbers, inside, a)
    return jnp.broadcast_to(jnp.asarray(value, a.dtype), a.shape[:1])


# --- levels -----------------------------------------------------------------------------------------------------


def _at_levels(formula: Formula, numbers: Numbers, a: Points, b: OtherPoints) -> tuple[Numbers, Array, Array]:
    """Numbers [n, m] or smaller for every pair of points, columns before these; and the points without their levels."""
    levels, a, b = levels_at(formula, a, b)
    columns = {each.symbol.name for each in formula.gathered if None in each.positions}
    found = elements_read(formula, numbers, levels)
    return {name: jnp.moveaxis(v, -1, 0) if name in columns else v for name, v in found.items()}, a, b


@functools.lru_cache(maxsize=256)
def _met(formula: Formula) -> Formula:
    """The formula of two points at one level, that of the first."""
    reductions = tuple(replace(each, body=formula.met(each.body)) for each in formula.reductions)
    return replace(formula, expression=formula.met(formula.expression), reductions=reductions)


def _at_one_level(formula: Formula, numbers: Numbers, a: Points) -> tuple[Numbers, Numbers, Array]:
    """Numbers [n] at each point, and [n, 1] or [n, columns] for what is summed over columns; and the points alone."""
    if not formula.levels:
        both = elements_read(formula, numbers, {})
        return both, both, a
    level = a[:, -1]
    at = elements_read(formula, numbers, {each.name: level for each in formula.levels})
    beside = elements_read(formula, numbers, {each.name: level[:, None] for each in formula.levels})
    return at, {name: v[:, 0] if v.ndim == 3 else v for name, v in beside.items()}, a[:, :-1]


def number_of(symbol: sp.Symbol, numbers: Mapping[str, Array]) -> Array:
    """The number that a symbol of a formula stands for: one of the arrays, or an element along its last axis."""
    name, position = element_of(symbol)
    return numbers[name] if position is None else numbers[name][..., position - 1]


# --- distances --------------------------------------------------------------------------------------------------


def _distances(formula: Formula, numbers: Numbers, a: Points, b: OtherPoints) -> tuple[Array, Array | None]:
    """Squared distances; or signed differences of one column, in which a formula without odd powers has no root."""
    if formula.weights != 1:
        root = evaluate(sp.sqrt(formula.weights), lambda s: number_of(s, numbers))
        origin = jax.lax.stop_gradient(b[0])  # far from zero, products would round away what points differ in
        scaled = (a - origin) * root
        b = scaled if b is a else (b - origin) * root
        a = scaled
    if a.shape[1] > 1:
        return squared_distance(a, b), None
    difference = a[:, 0][:, None] - b[:, 0][None, :]
    return jnp.square(difference), difference


# --- pairs of points --------------------------------------------------------------------------------------------


def _pairwise(formula: Formula, numbers: Numbers, a: Points, b: OtherPoints) -> Array:
    """The formula of two points; of one pair, as derivatives ask for, with those beside the place where they meet.

    There `min(a, b)` and its like have none, and half of that of the formula where JAX takes the mean of both sides.
    """
    if a.shape[0] > 1 or b.shape[0] > 1:
        return _of_pairs(formula, numbers, a, b)
    value = jax.custom_jvp(functools.partial(_of_pairs, formula))

    @value.defjvp
    def _beside(at: Any, along: Any) -> tuple[Array, Array]:
        numbers, a, b = at
        unit = jnp.finfo(a.dtype)
        apart = a + jnp.where(a == b, 4 * unit.eps * jnp.abs(a) + unit.tiny**0.25, 0.0)
        return value(*at), jax.jvp(functools.partial(_of_pairs, formula), (numbers, apart, b), along)[1]

    return value(numbers, a, b)


def _of_pairs(formula: Formula, numbers: Numbers, a: Points, b: OtherPoints) -> Array:
    formula = _with_factor_inside(formula)
    reduced = {each.symbol: each for each in formula.reductions}
    first, second = (point.name for point in formula.points)

    def load(symbol: sp.Symbol) -> Array:
        if symbol in reduced:
            return _reduce(reduced[symbol], formula, numbers, a, b)
        name, position = element_of(symbol)
        column = 0 if position is None else position - 1
        if name == first:
            return a[:, column][:, None]
        return b[:, column][None, :] if name == second else number_of(symbol, numbers)

    return evaluate(formula.expression, load)


@functools.lru_cache(maxsize=256)
def _with_factor_inside(formula: Formula) -> Formula:
    """A factor of a sum over columns in each of its terms, where it costs once per row and not per pair."""
    if len(formula.reductions) != 1 or formula.reductions[0].operator != "sum" or formula.levels:
        return formula
    only = formula.reductions[0]
    factor, rest = formula.expression.as_independent(only.symbol, as_Add=False)
    points = {point.name for point in formula.points}
    if rest != only.symbol or any(element_of(symbol)[0] in points for symbol in factor.free_symbols):
        return formula
    return replace(formula, expression=only.symbol, reductions=(replace(only, body=factor * only.body),))


def _reduce(reduced: Reduced, formula: Formula, numbers: Numbers, a: Points, b: OtherPoints) -> Array:
    """A reduction over the columns of every pair of points, [n, m] or smaller."""
    columns = a.shape[1]
    terms = _products(reduced, formula)
    # What only multiplies its points loses no digits in a matrix product; a squared difference may.
    if terms is not None and (columns > DIRECT_COLUMNS or all(i and j for i, j, _ in terms)):
        return sum(_matrix_product(term, numbers, a, b) for term in terms)  # type: ignore[return-value]
    vectors = {name: value for name, value in numbers.items() if value.ndim in (1, 3)}
    if columns <= MOST_UNROLLED:
        each = [
            _generic(reduced, formula, {**numbers, **{n: v[d] for n, v in vectors.items()}}, a[:, d], b[:, d])
            for d in range(columns)
        ]
        return functools.reduce(_FOLDS[reduced.operator], each)

    def step(total: Array, column: tuple[Array, Array, dict[str, Array]]) -> tuple[Array, None]:
        here = _generic(reduced, formula, {**numbers, **column[2]}, column[0], column[1])
        return _FOLDS[reduced.operator](total, here), None

    start = _generic(reduced, formula, {**numbers, **{n: v[0] for n, v in vectors.items()}}, a[:, 0], b[:, 0])
    start = jnp.broadcast_to(start, (a.shape[0], b.shape[0]))
    rest = (a.T[1:], b.T[1:], {n: v[1:] for n, v in vectors.items()})
    return jax.lax.scan(step, start, rest)[0]


def _generic(reduced: Reduced, formula: Formula, numbers: Numbers, a: Array, b: Array) -> Array:
    """The body of a reduction in one column."""
    first, second = formula.points
    places = {first: a[:, None], second: b[None, :]}
    value = evaluate(reduced.body, lambda s: places[s] if s in places else number_of(s, numbers))
    return jnp.asarray(value, a.dtype)


Term = tuple[int, int, sp.Expr]


def _products(reduced: Reduced, formula: Formula) -> tuple[Term, ...] | None:
    if reduced.operator != "sum" or reduced.body.free_symbols & formula.by_level():
        return None
    return _polynomial_terms(reduced, formula.points)


@functools.lru_cache(maxsize=256)
def _polynomial_terms(reduced: Reduced, points: tuple[sp.Symbol, ...]) -> tuple[Term, ...] | None:
    """The body as sums of coefficient a^i b^j, or None when it is no polynomial of its points."""
    if not can_be_expanded(reduced.body) or not reduced.body.is_polynomial(*points):
        return None
    body = sp.expand(reduced.body)
    terms = sp.Poly(body, *points).terms()
    return tuple((i, j, c) for (i, j), c in terms) if len(terms) <= 12 else None


def _matrix_product(term: Term, numbers: Numbers, a: Points, b: OtherPoints) -> Array:
    """The sum over columns of coefficient a^i b^j, for every pair of points."""
    i, j, coefficient = term
    weight = jnp.broadcast_to(jnp.asarray(evaluate(coefficient, lambda s: number_of(s, numbers)), a.dtype), a.shape[1:])
    if j == 0:
        return jnp.sum(weight * a**i, axis=1)[:, None]
    if i == 0:
        return jnp.sum(weight * b**j, axis=1)[None, :]
    return (weight * a**i) @ (b**j).T


def _meeting(formula: Formula, numbers: Numbers, summed: Numbers, a: Points) -> Array:
    """The formula at pairs of equal points; `summed` are the numbers of what it sums over columns."""
    reduced = {each.symbol: each for each in formula.reductions}
    names = [point.name for point in formula.points]

    def inside(symbol: sp.Symbol) -> Array:
        return a if symbol in formula.points else number_of(symbol, summed)

    def load(symbol: sp.Symbol) -> Array:
        if symbol in reduced:
            body = jnp.asarray(evaluate(reduced[symbol].body, inside), a.dtype)
            return _WHOLE[reduced[symbol].operator](jnp.broadcast_to(body, a.shape), axis=1)
        name, position = element_of(symbol)
        return a[:, 0 if position is None else position - 1] if name in names else number_of(symbol, numbers)

    return evaluate(formula.expression, load)


# Image-convolutional kernels (van der Wilk, Rasmussen, Hensman 2017): the mean of a kernel over all pairs of patches.
#
# A pair of images needs a covariance for each pair of their patches, so pairs are taken a few at a time and computed
# again for the gradient: memory does not grow with the number of images.

Images = Float[Array, "n pixels"]
Between = Callable[[Float[Array, "P d"], Float[Array, "P d"]], Float[Array, "P P"]]
AT_ONCE = 4_000_000
"""Covariances between patches held at a time."""


def patches_of(images: Images, image: tuple[int, int], patch: tuple[int, int]) -> Float[Array, "n P d"]:
    """Every patch of every image, pixels row by row."""
    (height, width), (rows, columns) = image, patch
    down, across = height - rows + 1, width - columns + 1
    whole = images.reshape(-1, height, width)
    parts = [whole[:, i : i + down, j : j + across] for i in range(rows) for j in range(columns)]
    return jnp.stack(parts, axis=-1).reshape(images.shape[0], down * across, rows * columns)


def mean_over_pairs(
    between: Between, a: Float[Array, "n P d"], b: Float[Array, "m P d"], weights: Float[Array, "P"] | None
) -> Float[Array, "n m"]:
    """The mean covariance of the patches of each two images, each patch times its weight where there are weights."""
    pair = jax.checkpoint(lambda p, q: _mean(between(p, q), weights))
    batch = max(1, AT_ONCE // (a.shape[1] * b.shape[1]))
    return jax.lax.map(lambda p: jax.lax.map(lambda q: pair(p, q), b, batch_size=batch), a)


def _mean(values: Float[Array, "P P"], weights: Float[Array, "P"] | None) -> Float[Array, ""]:
    return jnp.mean(values) if weights is None else weights @ values @ weights / weights.size**2


def mean_within(between: Between, a: Float[Array, "n P d"], weights: Float[Array, "P"] | None) -> Float[Array, "n"]:
    """The mean covariance of the patches of each image among themselves."""
    pair = jax.checkpoint(lambda p: _mean(between(p, p), weights))
    return jax.lax.map(pair, a, batch_size=max(1, AT_ONCE // a.shape[1] ** 2))
