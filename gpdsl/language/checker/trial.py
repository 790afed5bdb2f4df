"""A transformed left side at the initial values of its parameters: what is tried where its direction is not proved."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gpdsl.language import model as m
from gpdsl.language.checker.facts import evaluate
from gpdsl.language.checker.monotone import Tables

POINTS = 241
CENTRAL = 3.0
TYPICAL = {"real": 0.5, "positive": 0.5, "count": 1.0, "unit": 0.5, "time": 0.5}
"""A value for inputs, which only data will tell."""

_COMPARED = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}


def value_at(tables: Tables, expression: m.Expression, y: float) -> float:
    """The left side where the output is y, at the initial parameters; NaN where it has no finite value.

    Raises KeyError, IndexError or TypeError where it reads what only data will tell.
    """
    return _value(tables, expression, {}, y)


def counterexample(tables: Tables, expression: m.Expression, output: str) -> str:
    """Why a transform is not strictly monotone at the initial values, in words; empty when no sign of it was found."""
    points = _points(tables.outputs[output].kind)
    try:
        values = [_value(tables, expression, {}, y) for y in points]
    except (KeyError, IndexError, TypeError):
        return ""
    missing = next((y for y, value in zip(points, values, strict=True) if not math.isfinite(value)), None)
    if missing is not None:
        return f"at the initial values of the parameters it has no finite value at {output} = {missing:.3g}"
    rises = [b - a for a, b in zip(values, values[1:], strict=False)]
    noise = [1e-12 * max(abs(a), abs(b)) for a, b in zip(values, values[1:], strict=False)]
    central = sorted(range(len(rises)), key=lambda k: abs(points[k]))
    up = next((k for k in central if rises[k] > noise[k]), None)
    down = next((k for k in central if rises[k] < -noise[k]), None)
    if up is not None and down is not None:
        return (
            f"at the initial values of the parameters it rises at {output} = {points[up]:.3g} "
            f"and falls at {output} = {points[down]:.3g}"
        )
    flat = next((k for k, rise in enumerate(rises) if rise == 0 and abs(points[k]) <= CENTRAL), None)
    return "" if flat is None else f"at the initial values it does not change at {output} = {points[flat]:.3g}"


def _points(kind: str) -> list[float]:
    grid = [k / (POINTS - 1) for k in range(POINTS)]
    if kind == "unit":
        return [0.001 + 0.998 * u for u in grid]
    if kind == "positive":
        return [math.exp(-6 + 12 * u) for u in grid]
    return [math.sinh(6 * (2 * u - 1)) / 6 for u in grid]


def _value(tables: Tables, expression: m.Expression, env: Mapping[str, int], y: float) -> float:
    match expression:
        case m.Number(value=value):
            return float(value)
        case m.IndexNumber(index=index):
            return float(env[index])
        case m.Read(name=name):
            return y if name in tables.outputs else _read(tables, expression, env, y)
        case m.FunctionCall(body=body):
            return _value(tables, body, env, y)
        case m.Reduction(operator=operator, axis=axis, body=body):
            places = range(1, (axis.size or 2) + 1)
            values = [_value(tables, body, {**env, axis.name or f"*{axis.describe()}": k}, y) for k in places]
            return _total(operator, values)
        case m.Operation(operator="if", operands=(condition, then, otherwise)):
            return _value(tables, then if _value(tables, condition, env, y) else otherwise, env, y)
        case m.Operation(operator="not", operands=(operand,)):
            return float(not _value(tables, operand, env, y))
        case m.Operation(operator=operator, operands=operands):
            values = [_value(tables, each, env, y) for each in operands]
            compared = _COMPARED.get(operator)
            return float(compared(*values)) if compared else evaluate(operator, tuple(values))
    raise TypeError(type(expression).__name__)


def _total(operator: str, values: list[float]) -> float:
    match operator:
        case "sum":
            return math.fsum(values)
        case "prod":
            return math.prod(values)
        case "max" | "min":
            return (max if operator == "max" else min)(values)
    raise KeyError(operator)


def _read(tables: Tables, read: m.Read, env: Mapping[str, int], y: float) -> float:
    places = [_place(subscript, env) for subscript in read.subscripts]
    if read.name in tables.inputs:
        return TYPICAL[tables.inputs[read.name].kind]
    if read.name in tables.lets:
        declared = tables.lets[read.name]
        (case,) = declared.cases if len(declared.cases) == 1 else (None,)
        if case is None:
            raise KeyError(read.name)
        inside = {axis.name or "": place for axis, place in zip(declared.axes, places, strict=True)}
        return _value(tables, case.body, inside, y)
    values = tables.params[read.name].initial if read.name in tables.params else tables.consts[read.name].values
    for place in places:
        values = values[place - 1] if isinstance(values, tuple) else values
    if isinstance(values, tuple):
        raise TypeError(read.name)
    return float(values)


def _place(subscript: m.Subscript, env: Mapping[str, int]) -> int:
    match subscript:
        case m.Fixed(position=position):
            return position
        case m.IndexValue(index=index, offset=offset):
            return env.get(index, 1) + offset
        case m.At() | m.Level():
            return 1
    return env.get(f"*{subscript.axis.describe()}", 1)
