"""The language's operators, functions and reductions on NumPy arrays, by the name the checked tree has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import erf, expit, gammaln, ndtr

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
    "tanh": np.tanh,
    "abs": np.abs,
    "sigmoid": expit,
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

REDUCTIONS: Mapping[str, Callable[[Value, Value], Value]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "logsumexp": np.logaddexp,
}
"""Functions of all values along an axis, two values at a time."""
