"""The language's operators, functions and reductions on NumPy arrays, by the name the checked tree has for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import erf, expit, gammaln, logit, ndtr, ndtri

Value = Any
"""A number, or an array that broadcasts against the rows, [..., rows]."""

ELEMENTARY: Mapping[str, Callable[..., Value]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "^": np.float_power,
    "pow": np.float_power,
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "log2": np.log2,
    "log10": np.log10,
    "floor": np.floor,
    "abs": np.abs,
    "sigmoid": expit,
    "logit": logit,
    "probit": ndtri,
    "softplus": lambda a: np.logaddexp(0.0, a),
    "log1p": np.log1p,
    "expm1": np.expm1,
    "erf": erf,
    "lgamma": gammaln,
    "Phi": ndtr,
    "min": np.minimum,
    "max": np.maximum,
    "if": np.where,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
}


def _fold(function: Callable[[Value, Value], Value]) -> Callable[[Sequence[Value]], Value]:
    return lambda values: functools.reduce(function, values)


REDUCTIONS: Mapping[str, Callable[[Sequence[Value]], Value]] = {
    "sum": _fold(np.add),
    "prod": _fold(np.multiply),
    "mean": lambda values: functools.reduce(np.add, values) / len(values),
    "norm": lambda values: np.sqrt(functools.reduce(np.add, [np.square(value) for value in values])),
    "max": _fold(np.maximum),
    "min": _fold(np.minimum),
    "logsumexp": _fold(np.logaddexp),
}
"""Functions of all values along an axis."""
