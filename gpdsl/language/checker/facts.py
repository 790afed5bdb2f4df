"""Bounds on what an expression costs once written out, found while it is built, so that no text hangs a later stage.

`9^9^9^9` is never computed in exact arithmetic: constants are followed in floating point only, and powers by degree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Fact:
    """`value` when it is one known number; `largest` bounds a constant's magnitude; `degree` and `terms` its size."""

    value: float | None = None
    largest: float | None = None
    degree: float = 1
    terms: int = 1


def number_fact(value: float) -> Fact:
    """A literal or scalar constant."""
    return Fact(value, abs(value))


def combine(operator: str, operands: tuple[Fact, ...]) -> Fact:
    """The fact of an operation from those of its operands; a constant without finite value becomes NaN."""
    values = tuple(each.value for each in operands)
    known = [value for value in values if value is not None]
    value = evaluate(operator, tuple(known)) if len(known) == len(values) else None
    degrees = [each.degree for each in operands]
    if operator == "^":
        base, exponent = operands
        degree = base.degree * max(1.0, exponent.largest) if exponent.largest is not None else sum(degrees)
    else:
        degree = sum(degrees) if operator in "*/" else max(degrees)
    largest = None if value is None else abs(value)
    return Fact(value, largest, degree, sum(each.terms for each in operands) + 1)


def evaluate(operator: str, values: tuple[float, ...]) -> float:
    """An operation on floats; NaN where it has no finite value."""
    try:
        result = _OPERATIONS[operator](*values)
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
        "tanh": math.tanh,
        "abs": abs,
        "sigmoid": _sigmoid,
        "softplus": _softplus,
        "log1p": math.log1p,
        "expm1": math.expm1,
        "erf": math.erf,
        "lgamma": math.lgamma,
        "min": min,
        "max": max,
        "Phi": lambda a: 0.5 * math.erfc(-a / math.sqrt(2)),
    }
)
