"""The numbers that a checked expression stands for before anything is fitted."""

from __future__ import annotations

from gpdsl.language import model as m
from gpdsl.language.checker.facts import evaluate


def value_of(declarations: m.Declarations, expression: m.Expression) -> float | None:
    """The value of an expression of numbers, scalar constants and initial values of scalar parameters, else None."""
    match expression:
        case m.Number(value=value):
            return float(value)
        case m.Read(name=name, subscripts=()):
            values: object = None
            if name in declarations.consts:
                values = declarations.consts[name].values
            elif name in declarations.params:
                values = declarations.params[name].initial
            return values if isinstance(values, float) else None
        case m.Operation(operator=operator, operands=operands):
            found = [value_of(declarations, each) for each in operands]
            known = [each for each in found if each is not None]
            value = evaluate(operator, tuple(known)) if len(known) == len(found) else float("nan")
            return value if value == value else None
    return None


def flat(values: float | tuple) -> list[float]:
    """All numbers of nested tuples."""
    return [each for inside in values for each in flat(inside)] if isinstance(values, tuple) else [values]
