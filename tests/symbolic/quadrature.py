"""Expectations under independent Gaussians by a 60-point rule per dimension, in NumPy: the independent reference."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import sympy as sp

POINTS = 60

UNARY: Mapping[type, Callable[[np.ndarray], np.ndarray]] = {
    sp.exp: np.exp,
    sp.log: np.log,
    sp.tanh: np.tanh,
}


def value(expression: sp.Expr, table: Mapping[sp.Symbol, np.ndarray | float]) -> np.ndarray | float:
    """Plain evaluation of sums, products, powers, exponentials, logarithms, log gammas and conditions."""
    if expression in table:
        return table[expression]
    if expression.is_Number or expression.is_NumberSymbol:
        return float(expression)
    arguments = [value(a, table) for a in expression.args]
    if expression.is_Add:
        return sum(arguments)
    if expression.is_Mul:
        return math.prod(arguments)
    if expression.is_Pow:
        return arguments[0] ** arguments[1]
    if expression.func.__name__ == "choose":
        return np.where(arguments[0], arguments[1], arguments[2])
    if expression.func.__name__ == "less_equal":
        return np.less_equal(*arguments)
    if expression.func.__name__ == "lgamma":
        return np.vectorize(math.lgamma)(arguments[0])
    return UNARY[expression.func](arguments[0])


def expectation(
    expression: sp.Expr,
    means: Mapping[sp.Symbol, float],
    variances: Mapping[sp.Symbol, float],
    data: Mapping[sp.Symbol, float],
    points: int = POINTS,
) -> tuple[float, float]:
    """E[expression], and E[|expression|], the scale against which it is compared."""
    x, w = np.polynomial.hermite_e.hermegauss(points)
    latents: Sequence[sp.Symbol] = list(means)
    grid = np.array(list(itertools.product(x, repeat=len(latents)))).T
    weights = np.prod(np.array(list(itertools.product(w / w.sum(), repeat=len(latents)))), axis=1)
    table = {f: means[f] + math.sqrt(variances[f]) * grid[i] for i, f in enumerate(latents)}
    values = np.broadcast_to(value(expression, {**table, **data}), weights.shape)
    return float(weights @ values), float(weights @ np.abs(values))
