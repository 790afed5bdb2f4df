"""SymPy scalars → JAX arrays, by a table: nothing is printed to text, nothing is evaluated from text."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import sympy as sp
from jax.scipy.special import erf, gammaln, ndtr, ndtri
from jaxtyping import Array, Float

from gpdsl.lowering import tails
from gpdsl.lowering.tails import mills
from gpdsl.symbolic import conditions as c, functions as f

Loader = Callable[[sp.Symbol], Array]
Visit = Callable[[sp.Basic], Array]


def _fold(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    return lambda *values: functools.reduce(function, values)


def _logsumexp(*values: Array) -> Array:
    largest = jax.lax.stop_gradient(functools.reduce(jnp.maximum, values))
    return largest + jnp.log(functools.reduce(operator.add, [jnp.exp(v - largest) for v in values]))


TABLE: dict[type, Callable[..., Array]] = {
    sp.Add: _fold(operator.add),
    sp.Mul: _fold(operator.mul),
    sp.exp: jnp.exp,
    sp.log: jnp.log,
    sp.sin: jnp.sin,
    sp.cos: jnp.cos,
    sp.tan: jnp.tan,
    sp.asin: jnp.arcsin,
    sp.acos: jnp.arccos,
    sp.atan: jnp.arctan,
    sp.sinh: jnp.sinh,
    sp.cosh: jnp.cosh,
    sp.tanh: jnp.tanh,
    sp.asinh: jnp.arcsinh,
    sp.atanh: jnp.arctanh,
    sp.erf: erf,
    f.lgamma: gammaln,
    f.times_log: tails.times_log,
    f.log_rising: tails.log_rising,
    f.log_beta: tails.log_beta,
    f.absolute: jnp.abs,
    sp.Abs: jnp.abs,
    sp.sign: jnp.sign,
    f.minimum: _fold(jnp.minimum),
    f.maximum: _fold(jnp.maximum),
    f.softplus: jax.nn.softplus,
    f.sigmoid: jax.nn.sigmoid,
    f.log1p: jnp.log1p,
    f.expm1: jnp.expm1,
    f.ndtr: ndtr,
    f.log_ndtr: tails.log_ndtr,
    f.ndtri: ndtri,
    f.divisor: lambda x: jnp.maximum(x, 10.0 * float(jnp.finfo(jnp.result_type(x, 0.0)).tiny) ** 0.5),
    f.mills: lambda order, x: mills(int(order), jnp.asarray(x, jnp.result_type(x, 0.0))),
    f.floor: jnp.floor,
    f.logsumexp: _logsumexp,
    f.log1mexp: tails.log1mexp,
    f.log_difference: tails.log_difference,
    f.log_ndtr_interval: tails.log_ndtr_interval,
    f.log_gamma_cdf: tails.log_gamma_cdf,
    f.log_gamma_sf: tails.log_gamma_sf,
    f.log_student_cdf: tails.log_student_cdf,
    c.less: jnp.less,
    c.less_equal: jnp.less_equal,
    c.equal: jnp.equal,
    c.both: jnp.logical_and,
    c.opposite: jnp.logical_not,
    sp.StrictGreaterThan: jnp.greater,
    sp.GreaterThan: jnp.greater_equal,
    sp.StrictLessThan: jnp.less,
    sp.LessThan: jnp.less_equal,
}


TOGETHER = (f.log_ndtr, f.log_ndtr_interval)
"""Functions of many operations: all calls in an expression are computed by one, as for the levels of an Ordinal."""


def evaluate(expression: sp.Basic, load: Loader, taken: Array | None = None) -> Array:
    """Value of an expression whose symbols `load` turns into arrays; shapes follow NumPy broadcasting.

    `taken` is where the branch of a conditional that this is part of holds; None outside of any.
    """
    memo: dict[sp.Basic, Array] = {}

    def visit(node: sp.Basic) -> Array:
        if node not in memo and isinstance(node, TOGETHER):
            memo.update(_together(_calls(expression, node.func), visit))
        if node not in memo:
            memo[node] = _choice(node, visit, load, taken) if isinstance(node, c.choose) else _node(node, visit, leaf)
        return memo[node]

    def leaf(symbol: sp.Symbol) -> Array:
        value = load(symbol)
        # No derivative flows into what is not taken: there it may be infinite, and 0 * inf is no number.
        return value if taken is None else jnp.where(taken, value, jax.lax.stop_gradient(value))

    return visit(expression)


def _calls(expression: sp.Basic, function: type) -> list[sp.Basic]:
    """Calls of a function outside of conditionals, unless one is part of another."""
    found, visited = [], [expression]
    while visited:
        node = visited.pop()
        found += [node] if node.func == function else []
        visited += [] if isinstance(node, c.choose) else node.args
    return [] if any(argument.has(function) for call in found for argument in call.args) else [*dict.fromkeys(found)]


def _together(calls: list[sp.Basic], visit: Visit) -> dict[sp.Basic, Array]:
    """Values of several calls from one call of their function, where all are of one shape; else nothing."""
    arguments = [jnp.broadcast_arrays(*[visit(a) for a in call.args]) for call in calls]
    if len({each[0].shape for each in arguments}) != 1:
        return {}
    stacked = [jnp.stack(each) for each in zip(*arguments, strict=True)]
    return dict(zip(calls, TABLE[calls[0].func](*stacked), strict=True))


def _choice(node: c.choose, visit: Visit, load: Loader, taken: Array | None) -> Array:
    holds = jnp.asarray(visit(node.args[0]), bool)
    then, otherwise = holds, jnp.logical_not(holds)
    if taken is not None:
        then, otherwise = jnp.logical_and(taken, then), jnp.logical_and(taken, otherwise)
    return jnp.where(holds, evaluate(node.args[1], load, then), evaluate(node.args[2], load, otherwise))


def _node(node: sp.Basic, visit: Visit, load: Loader) -> Array:
    if isinstance(node, sp.Symbol):
        return load(node)
    if isinstance(node, sp.Pow):
        return _power(node, visit)
    if isinstance(node, sp.Piecewise):
        value = visit(node.args[-1].args[0])
        for branch in reversed(node.args[:-1]):
            value = jnp.where(visit(branch.args[1]), visit(branch.args[0]), value)
        return value
    if node in (sp.true, sp.false):
        return jnp.asarray(bool(node))
    if isinstance(node, sp.Number | sp.NumberSymbol):
        return float(node)  # type: ignore[return-value]  # weakly typed: keeps the dtype of the arrays
    return TABLE[node.func](*[visit(a) for a in node.args])


def _power(node: sp.Pow, visit: Callable[[sp.Basic], Array]) -> Array:
    base, exponent = node.base, node.exp
    if exponent == sp.Rational(1, 2):
        return _root(visit(base))
    if exponent.is_Integer and abs(int(exponent)) <= 64:
        return jax.lax.integer_pow(jnp.asarray(visit(base)), int(exponent))
    return jnp.power(visit(base), visit(exponent))


def _root(value: Array) -> Array:
    """Square root with the derivative zero at zero: a norm has no other where its argument vanishes."""
    zero = jnp.equal(value, 0)
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, value)))


def align(array: Any, positions: tuple[int | str, ...], keys: tuple[str, ...]) -> Any:
    """Bring the last `len(positions)` axes of an array into the order of `keys`.

    A number picks one element (from 1) and drops the axis; a key keeps it. Missing keys become axes of length one, so
    that results broadcast from the right: [..., rows, *keys].
    """
    lead = array.ndim - len(positions)
    picks = tuple(p - 1 if isinstance(p, int) else slice(None) for p in positions)
    array = array[(Ellipsis, *picks)]
    kept = [p for p in positions if isinstance(p, str)]
    order = [kept.index(k) for k in keys if k in kept]
    array = array.transpose((*range(lead), *(lead + i for i in order)))  # of NumPy or JAX
    shape, sizes = array.shape[:lead], iter(array.shape[lead:])
    return array.reshape((*shape, *(next(sizes) if k in kept else 1 for k in keys)))


# Cosines of angles in turns: cos(2 pi u), by a polynomial after whole turns are taken off, which loses no digits.
#
# XLA's cosine on CPU takes seven times as long, most of it for angles so large that no feature has them.

TERMS = {"float32": 6, "float64": 11}
"""Terms of the sine's Taylor series that are not lost in rounding up to a quarter of a turn."""


@jax.custom_jvp
def cosine(turns: Float[Array, "..."]) -> Float[Array, "..."]:
    """cos(2 pi u), elementwise. Its derivative is another polynomial, not that of this one, term by term."""
    inside = jnp.abs(turns - jnp.round(turns))
    angle = (2.0 * math.pi) * (0.25 - inside)  # cos(2 pi u) = sin(pi / 2 - 2 pi |u|)
    square = jnp.square(angle)
    terms = TERMS.get(turns.dtype.name, TERMS["float64"])
    total = jnp.zeros_like(angle)
    for power in reversed(range(terms)):
        total = total * square + (-1.0) ** power / math.factorial(2 * power + 1)
    return angle * total


@cosine.defjvp
def _cosine_jvp(at: Any, along: Any) -> tuple[Array, Array]:
    (turns,), (change,) = at, along
    return cosine(turns), (-2.0 * math.pi) * cosine(turns - 0.25) * change
