"""Bounds on what an expression costs once written out, found while it is built, so that no text hangs a later stage.

`9^9^9^9` is never computed in exact arithmetic: constants are followed in floating point only, and powers by degree.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from types import MappingProxyType


@dataclass(frozen=True)
class Fact:
    """`value` when it is one known number; `largest` bounds a constant's magnitude; `degree` and `terms` its size.

    `depth` says how many operations stand inside each other, definitions of functions written out.
    """

    value: float | None = None
    largest: float | None = None
    degree: float = 1
    terms: int = 1
    depth: int = 1


def combine(name: str, operands: tuple[Fact, ...]) -> Fact:
    """The fact of an operation from those of its operands; a constant without finite value becomes NaN."""
    values = tuple(each.value for each in operands)
    known = [value for value in values if value is not None]
    value = evaluate(name, tuple(known)) if len(known) == len(values) else None
    degrees = [each.degree for each in operands]
    if name == "^":
        base, exponent = operands
        degree = base.degree * max(1.0, exponent.largest) if exponent.largest is not None else sum(degrees)
    else:
        degree = sum(degrees) if name in "*/" else max(degrees)
    largest = None if value is None else abs(value)
    depth = max(each.depth for each in operands) + 1
    return Fact(value, largest, degree, sum(each.terms for each in operands) + 1, depth)


def evaluate(name: str, values: tuple[float, ...]) -> float:
    """An operation on floats; NaN where it has no finite value."""
    try:
        result = _OPERATIONS[name](*values)
    except (ArithmeticError, ValueError):
        return math.nan
    if isinstance(result, complex) or not math.isfinite(result):
        return math.nan
    return float(result)


def _softplus(a: float) -> float:
    return max(a, 0.0) + math.log1p(math.exp(-abs(a)))


def _sigmoid(a: float) -> float:
    return 1 / (1 + math.exp(-a)) if a >= 0 else math.exp(a) / (1 + math.exp(a))


_OPERATIONS: Mapping[str, Callable[..., float]] = MappingProxyType(
    {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
        "^": lambda a, b: float(a) ** float(b),
        "neg": lambda a: -a,
        "exp": math.exp,
        "log": math.log,
        "sqrt": math.sqrt,
        "sin": math.sin,
        "cos": math.cos,
        "tan": math.tan,
        "asin": math.asin,
        "acos": math.acos,
        "atan": math.atan,
        "sinh": math.sinh,
        "cosh": math.cosh,
        "tanh": math.tanh,
        "asinh": math.asinh,
        "atanh": math.atanh,
        "log2": math.log2,
        "log10": math.log10,
        "floor": math.floor,
        "logit": lambda a: math.log(a) - math.log1p(-a),
        "probit": NormalDist().inv_cdf,
        "abs": abs,
        "sigmoid": _sigmoid,
        "softplus": _softplus,
        "log1p": math.log1p,
        "expm1": math.expm1,
        "erf": math.erf,
        "lgamma": math.lgamma,
        "if": lambda condition, a, b: a if condition else b,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
        "==": operator.eq,
        "!=": operator.ne,
        "and": lambda a, b: bool(a and b),
        "or": lambda a, b: bool(a or b),
        "not": operator.not_,
        "min": min,
        "max": max,
        "Phi": lambda a: 0.5 * math.erfc(-a / math.sqrt(2)),
    }
)
