"""SymPy expressions → NumPy numbers, by a table: for checks that must run without JAX."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy as sp
from scipy import special

from gpdsl.symbolic import conditions as c
from gpdsl.symbolic import functions as f

Value = Any
"""A float or an array; shapes follow broadcasting."""


def _fold(function: Callable[[Value, Value], Value]) -> Callable[..., Value]:
    return lambda *values: functools.reduce(function, values)


def log1mexp(x: Value) -> Value:
    """log(1 - exp(-x)) for x >= 0 (Maechler 2012)."""
    return np.where(x < np.log(2.0), np.log(-np.expm1(-x)), np.log1p(-np.exp(-x)))


def _log_rising(x: np.ndarray, n: np.ndarray) -> np.ndarray:
    """log Gamma(x + n) - log Gamma(x), where the two may agree in all their digits."""
    return np.where(np.equal(n, 0), 0.0, special.gammaln(n) - special.betaln(x, n))


def _log_ndtr_interval(a: Value, b: Value) -> Value:
    """On the side of the normal where the difference does not cancel."""
    low, high = np.where(a > 0, -b, a), np.where(a > 0, -a, b)
    return special.log_ndtr(high) + log1mexp(special.log_ndtr(high) - special.log_ndtr(low))


TABLE: Mapping[type, Callable[..., Value]] = {
    sp.Add: _fold(operator.add),
    sp.Mul: _fold(operator.mul),
    sp.Pow: np.power,
    sp.exp: np.exp,
    sp.log: np.log,
    sp.sin: np.sin,
    sp.cos: np.cos,
    sp.tan: np.tan,
    sp.asin: np.arcsin,
    sp.acos: np.arccos,
    sp.atan: np.arctan,
    sp.sinh: np.sinh,
    sp.cosh: np.cosh,
    sp.tanh: np.tanh,
    sp.asinh: np.arcsinh,
    sp.atanh: np.arctanh,
    sp.erf: special.erf,
    sp.Abs: np.abs,
    sp.gamma: special.gamma,
    sp.besselk: special.kv,
    sp.besseli: special.iv,
    f.absolute: np.abs,
    f.minimum: _fold(np.minimum),
    f.maximum: _fold(np.maximum),
    f.softplus: lambda x: np.logaddexp(0.0, x),
    f.sigmoid: special.expit,
    f.log1p: np.log1p,
    f.expm1: np.expm1,
    f.lgamma: special.gammaln,
    f.ndtr: special.ndtr,
    f.log_ndtr: special.log_ndtr,
    f.ndtri: special.ndtri,
    f.floor: np.floor,
    f.logsumexp: _fold(np.logaddexp),
    f.times_log: special.xlogy,
    f.log_rising: _log_rising,
    f.log_beta: special.betaln,
    f.log1mexp: log1mexp,
    f.log_difference: lambda a, b: a + log1mexp(a - b),
    f.log_ndtr_interval: _log_ndtr_interval,
    f.log_gamma_cdf: lambda shape, x: np.log(special.gammainc(shape, x)),
    f.log_gamma_sf: lambda shape, x: np.log(special.gammaincc(shape, x)),
    f.log_student_cdf: lambda df, x: np.log(special.stdtr(df, x)),
    c.less: np.less,
    c.less_equal: np.less_equal,
    c.equal: np.equal,
    c.both: np.logical_and,
    c.opposite: np.logical_not,
    c.choose: lambda holds, then, otherwise: np.where(holds, then, otherwise),
}


def evaluate(expression: sp.Expr, values: Mapping[sp.Symbol, Value]) -> Value:
    """The value of an expression whose symbols have these values; NaN or infinite where it has none."""
    memo: dict[sp.Basic, Value] = {}

    def visit(node: sp.Basic) -> Value:
        if node not in memo:
            memo[node] = _node(node, visit, values)
        return memo[node]

    with np.errstate(all="ignore"):
        return visit(expression)


def _node(node: sp.Basic, visit: Callable[[sp.Basic], Value], values: Mapping[sp.Symbol, Value]) -> Value:
    if isinstance(node, sp.Symbol):
        return values[node]
    if isinstance(node, sp.Number | sp.NumberSymbol):
        return np.float64(float(node))
    return TABLE[node.func](*[visit(argument) for argument in node.args])
