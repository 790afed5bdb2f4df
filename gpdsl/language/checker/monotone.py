"""Whether a transformed left side tells an output from its value: a proof from the signs and ranges of its parts.

Sums, products and compositions of monotone pieces are monotone when the constraints of the parameters fix their signs:
`y + sum(i, a[i]*tanh(b[i]*(y + c[i])))` increases when every `a` and `b` is positive (Snelson et al., warped GPs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from gpdsl.language import model as m
from gpdsl.language.checker.scope import Scope, evaluate

INFINITE = math.inf
RANGES = {
    "real": (-INFINITE, INFINITE),
    "positive": (0.0, INFINITE),
    **dict.fromkeys(("unit", "simplex"), (0.0, 1.0)),
    "correlation_factor": (-1.0, 1.0),
}
OPEN = {"positive", "unit", "simplex"}


Tables: TypeAlias = Scope | m.Declarations
"""What is known of the names of a file: a `Scope` while it is checked, `Declarations` afterwards."""


def reads_latent(tables: Tables, expression: m.Expression) -> bool:
    """Whether a value depends on a latent, directly or through a `let`."""
    seen: set[str] = set()
    pending = [expression]
    while pending:
        for each in m.reads_of(pending.pop()):
            if each.name in tables.latents or each.name in tables.rows:
                return True
            if each.name in tables.lets and each.name not in seen:
                seen.add(each.name)
                pending += [case.body for case in tables.lets[each.name].cases]
    return False


@dataclass(frozen=True)
class Course:
    """How a value moves with the output: `direction` is 1, -1, 0 (it does not) or None (nobody knows).

    It lies between `low` and `high`; `sign` is 1 or -1 when it is strictly of that sign, else 0. What rises or falls
    with the output, which lies strictly inside its own range, never comes to the ends.
    """

    low: float = -INFINITE
    high: float = INFINITE
    direction: int | None = 0
    sign: int = 0

    def __post_init__(self) -> None:
        if self.low > 0 or self.high < 0:
            object.__setattr__(self, "sign", 1 if self.low > 0 else -1)
        elif self.known and 0 in (self.low, self.high):
            object.__setattr__(self, "sign", 1 if self.low == 0 else -1)

    @property
    def known(self) -> bool:
        """Whether it is strictly monotone in the output."""
        return self.direction in (1, -1)


@dataclass(frozen=True)
class Undefined(Exception):
    """An operation that is not defined for every value of the output: `operator` needs its argument to be `needs`."""

    operator: str
    needs: str
    expression: m.Expression


def course(tables: Tables, expression: m.Expression) -> Course:
    """How an expression moves with the one output it reads. Raises Undefined where it has no value."""
    match expression:
        case m.Number(value=value):
            return Course(float(value), float(value))
        case m.IndexNumber():
            return Course(1.0, INFINITE)
        case m.Read(name=name):
            return _read(tables, name)
        case m.FunctionCall(body=body):
            return course(tables, body)
        case m.Reduction(operator=operator, body=body):
            return _reduced(operator, course(tables, body))
        case m.Operation(operator=operator, operands=operands) if operator in _BINARY and len(operands) == 2:
            return _BINARY[operator](course(tables, operands[0]), course(tables, operands[1]))
        case m.Operation(operator="neg", operands=(operand,)):
            return _negative(course(tables, operand))
        case m.Operation(operator=operator, operands=(operand,)) if operator in _INCREASING:
            return _increasing(operator, course(tables, operand), expression)
        case m.Operation(operands=operands):
            still = all(course(tables, each).direction == 0 for each in operands)
            return Course(direction=0 if still else None)
    return Course(direction=None)


def _read(tables: Tables, name: str) -> Course:
    if name in tables.outputs:
        kind = tables.outputs[name].kind
        return Course(*RANGES.get(kind, RANGES["real"]), direction=1, sign=int(kind in OPEN))
    if name in tables.params:
        param = tables.params[name]
        low, high = RANGES.get(param.constraint, RANGES["real"])
        low, high = param.lower if param.lower is not None else low, param.upper if param.upper is not None else high
        # A parameter lies strictly inside its bounds.
        return Course(low, high, sign=1 if low >= 0 else -1 if high <= 0 else 0)
    if name in tables.consts:
        values = m.flat(tables.consts[name].values)
        return Course(min(values), max(values))
    if name in tables.inputs and tables.inputs[name].kind == "positive":
        return Course(0.0, INFINITE, sign=1)
    return Course()


def _together(a: Course, b: Course) -> int | None:
    """The direction of a sum."""
    if a.direction is None or b.direction is None:
        return None
    if 0 in (a.direction, b.direction):
        return a.direction or b.direction
    return a.direction if a.direction == b.direction else None


def _add(a: Course, b: Course) -> Course:
    sign = 0
    for each in (1, -1):
        weak = [c.sign == each or (c.low >= 0 if each > 0 else c.high <= 0) for c in (a, b)]
        if all(weak) and each in (a.sign, b.sign):
            sign = each
    return Course(a.low + b.low, a.high + b.high, _together(a, b), sign)


def _negative(a: Course) -> Course:
    return Course(-a.high, -a.low, None if a.direction is None else -a.direction, -a.sign)


def _multiply(a: Course, b: Course) -> Course:
    ends = [0.0 if 0.0 in (x, y) else x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    direction: int | None = None
    if a.direction == 0 == b.direction:
        direction = 0
    elif 0 in (a.direction, b.direction):
        still, moving = (a, b) if a.direction == 0 else (b, a)
        direction = moving.direction * still.sign if moving.direction and still.sign else None
    elif a.sign and b.sign and a.direction and b.direction:
        # d(ab) = a'b + ab': both parts of one sign when |a| and |b| grow together.
        direction = a.sign * b.sign * a.direction * a.sign if a.direction * a.sign == b.direction * b.sign else None
    return Course(min(ends), max(ends), direction, a.sign * b.sign)


def _inverse(a: Course) -> Course:
    if not a.sign:
        return Course(direction=0 if a.direction == 0 else None)
    low, high = sorted((_over(a.low, a.sign), _over(a.high, a.sign)))
    return Course(low, high, None if a.direction is None else -a.direction, a.sign)


def _over(value: float, sign: int) -> float:
    return math.copysign(INFINITE, sign) if value == 0 else 1 / value


def _power(base: Course, exponent: Course) -> Course:
    if exponent.direction != 0:
        logarithm = math.log(base.low) if base.low > 0 and base.low == base.high else 0.0
        up = (logarithm > 0) - (logarithm < 0)
        return Course(0.0, INFINITE, exponent.direction * up if up and exponent.direction else None, base.sign)
    whole = exponent.low if exponent.low == exponent.high and float(exponent.low).is_integer() else None
    direction = 0 if base.direction == 0 else None
    if base.sign > 0:
        if base.direction and exponent.sign:
            direction = base.direction * exponent.sign
        return Course(0.0, INFINITE, direction, 1)
    if whole is not None and whole > 0 and whole % 2:
        return Course(direction=base.direction, sign=base.sign)
    if whole is not None and base.sign < 0 and base.direction:
        direction = int(math.copysign(base.direction, -whole if whole % 2 == 0 else whole)) if whole else 0
    return Course(0.0 if whole is not None and whole % 2 == 0 else -INFINITE, INFINITE, direction)


def _reduced(operator: str, body: Course) -> Course:
    if operator in ("sum", "logsumexp", "prod") and (operator != "prod" or body.sign > 0):
        sign = body.sign if operator != "logsumexp" else 0
        return Course(0.0 if sign > 0 else -INFINITE, 0.0 if sign < 0 else INFINITE, body.direction, sign)
    return Course(direction=0 if body.direction == 0 else None)


def _log(value: float) -> float:
    return -INFINITE if value <= 0 else math.log(value)


def _exp(value: float) -> float:
    return INFINITE if value > 700 else math.exp(value)


_INCREASING: Mapping[str, tuple[Callable[[float], float], float]] = {
    "exp": (_exp, -INFINITE),
    "log": (_log, 0.0),
    "sqrt": (lambda a: INFINITE if a == INFINITE else math.sqrt(max(a, 0.0)), 0.0),
    "tanh": (math.tanh, -INFINITE),
    "sigmoid": (lambda a: 1 / (1 + _exp(-a)), -INFINITE),
    "softplus": (lambda a: max(a, 0.0) + math.log1p(_exp(-abs(a))), -INFINITE),
    "log1p": (lambda a: _log(1 + a), -1.0),
    "expm1": (lambda a: _exp(a) - 1, -INFINITE),
    "erf": (math.erf, -INFINITE),
    "Phi": (lambda a: 0.5 * math.erfc(-a / math.sqrt(2)), -INFINITE),
}
"""Functions that increase, each with the smallest argument it is defined for."""

_POSITIVE = {"exp", "sigmoid", "softplus", "Phi"}
_ODD = {"tanh", "erf", "expm1", "log1p", "sqrt"}
_NEEDS = {"log": "a positive argument", "sqrt": "an argument from 0", "log1p": "an argument above -1"}

_BINARY: Mapping[str, Callable[[Course, Course], Course]] = {
    "+": _add,
    "-": lambda a, b: _add(a, _negative(b)),
    "*": _multiply,
    "/": lambda a, b: _multiply(a, _inverse(b)),
    "^": _power,
}


def _increasing(operator: str, inside: Course, expression: m.Expression) -> Course:
    function, smallest = _INCREASING[operator]
    if inside.low < smallest and inside.direction != 0:
        raise Undefined(operator, _NEEDS[operator], expression)
    sign = 1 if operator in _POSITIVE else inside.sign if operator in _ODD else 0
    return Course(function(inside.low), function(inside.high), inside.direction, sign)


# A transformed left side at the initial values of its parameters: what is tried where its direction is not proved.

POINTS = 241
CENTRAL = 3.0
TYPICAL = {"real": 0.5, "positive": 0.5, "count": 1.0, "unit": 0.5, "time": 0.5}
"""A value for inputs, which only data will tell."""


def counterexample(tables: Tables, expression: m.Expression, output: str) -> str:
    """Why a transform is not strictly monotone at the initial values, in words; empty when no sign of it was found."""
    points = _points(tables.outputs[output].kind)
    try:
        values = [value_at(tables, expression, y) for y in points]
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


_TOTALS: Mapping[str, Callable[[list[float]], float]] = {"sum": math.fsum, "prod": math.prod, "max": max, "min": min}


def value_at(
    tables: Tables, expression: m.Expression, y: float, env: Mapping[str, int] = MappingProxyType({})
) -> float:
    """The left side where the output is y, at the initial parameters; NaN where it has no finite value.

    Raises KeyError, IndexError or TypeError where it reads what only data will tell.
    """
    match expression:
        case m.Number(value=value):
            return float(value)
        case m.IndexNumber(index=index):
            return float(env[index])
        case m.Read(name=name):
            return y if name in tables.outputs else _value_read(tables, expression, env, y)
        case m.FunctionCall(body=body):
            return value_at(tables, body, y, env)
        case m.Reduction(operator=operator, axis=axis, body=body):
            places = range(1, (axis.size or 2) + 1)
            key = axis.name or f"*{axis.describe()}"
            return _TOTALS[operator]([value_at(tables, body, y, {**env, key: k}) for k in places])
        case m.Operation(operator="if", operands=(condition, then, otherwise)):
            return value_at(tables, then if value_at(tables, condition, y, env) else otherwise, y, env)
        case m.Operation(operator=operator, operands=operands):
            return evaluate(operator, tuple(value_at(tables, each, y, env) for each in operands))
    raise TypeError(type(expression).__name__)


def _value_read(tables: Tables, read: m.Read, env: Mapping[str, int], y: float) -> float:
    places = [_place(subscript, env) for subscript in read.subscripts]
    if read.name in tables.inputs:
        return TYPICAL[tables.inputs[read.name].kind]
    if read.name in tables.lets:
        declared = tables.lets[read.name]
        (case,) = declared.cases if len(declared.cases) == 1 else (None,)
        if case is None:
            raise KeyError(read.name)
        inside = {axis.name or "": place for axis, place in zip(declared.axes, places, strict=True)}
        return value_at(tables, case.body, y, inside)
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
