"""Profiles: a covariance as a function of the distance, with the derivatives it has where two points meet.

With s = r^2, dk/ds = k'(r) / (2 r) is found once by SymPy, in which the division cancels; automatic differentiation of
a square root would divide zero by zero at r = 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array

from gpdsl.lowering.table import evaluate
from gpdsl.symbolic.kernel_calculus import at_values, differentiated
from gpdsl.symbolic.kernel_formula import DISTANCE, MAX_SIMPLIFIED, at_zero

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
    return _with_root(expression, at_zero(expression, DISTANCE), names)(squares, *numbers.values())


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
    limit = at_zero(slope, DISTANCE)
    return slope, sp.Integer(0) if limit is None else limit
