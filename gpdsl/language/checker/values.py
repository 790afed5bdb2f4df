"""Values of constants and parameters: numbers and nested lists of them, computed in floating point."""

from __future__ import annotations

import math

from gpdsl.language import syntax
from gpdsl.language.checker.facts import evaluate
from gpdsl.language.checker.fields import is_lattice, lattice
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.limits import NotFinite
from gpdsl.language.errors.values import NotANumber, OutsideDomain, WrongShape
from gpdsl.language.model import Axis
from gpdsl.language.source import Span

_FUNCTIONS = ("exp", "log", "sqrt")
_DOMAINS = {
    "real": ("a number", lambda value: True),
    "positive": ("positive", lambda value: value > 0),
    "unit": ("between 0 and 1", lambda value: 0 < value < 1),
    "count": ("a whole number from 0", lambda value: value >= 0 and value == math.floor(value)),
}


def check_domain(scope: Scope, span: Span, what: str, value: float, domain: str, remedy: str = "") -> None:
    """Report a known number outside its domain; `remedy` says what else than the number may be changed."""
    words, inside = _DOMAINS[domain]
    if not inside(value):
        scope.problems.fail(OutsideDomain(span, what, f"{value:g}", words, remedy))


def evaluate_value(scope: Scope, formula: syntax.Formula, name: str, domain: str = "real") -> float | tuple:
    """The value of `formula`: a float, or nested tuples of floats for a list."""
    if isinstance(formula, syntax.Array):
        return tuple(evaluate_value(scope, item, name, domain) for item in formula.items)
    if is_lattice(formula):
        return lattice(scope, formula, name, evaluate_value)
    value = _number(scope, formula, name)
    if not math.isfinite(value):
        scope.problems.fail(NotFinite(formula.span, scope.quote(formula.span).strip("`")))
    check_domain(scope, formula.span, f"`{name}`", value, domain, f", or declare another type than `{domain}`")
    return value


def _number(scope: Scope, formula: syntax.Formula, name: str) -> float:
    match formula:
        case syntax.Literal(value=value):
            return float(value)
        case syntax.Name(identifier=syntax.Identifier(text="pi"), subscripts=None):
            return math.pi
        case syntax.Negation(operand=operand):
            return -_number(scope, operand, name)
        case syntax.Binary(operator=operator, left=left, right=right) if operator != "@":
            return evaluate(operator, (_number(scope, left, name), _number(scope, right, name)))
        case syntax.Call(function=function, arguments=(syntax.Argument(name=None, value=argument),)) if (
            function.text in _FUNCTIONS
        ):
            return evaluate(function.text, (_number(scope, argument, name),))
        case syntax.Name(identifier=word) | syntax.Call(function=word):
            return scope.problems.fail(NotANumber(word.span, word.text, f"`{name}`"))
    what = {syntax.Array: "[...]", syntax.Conditional: "if ..."}.get(type(formula), "@")
    return scope.problems.fail(NotANumber(formula.span, what, f"`{name}`"))


def shape_of(scope: Scope, formula: syntax.Formula, values: float | tuple, name: str) -> tuple[int, ...]:
    """The lengths of nested lists, which must be even."""
    if isinstance(values, tuple) and is_lattice(formula):
        return (len(values), len(values[0])) if isinstance(values[0], tuple) else (len(values),)
    if not isinstance(values, tuple) or not isinstance(formula, syntax.Array):
        return ()
    shapes = [shape_of(scope, item, value, name) for item, value in zip(formula.items, values, strict=True)]
    for item, shape in zip(formula.items, shapes, strict=True):
        if shape != shapes[0]:
            scope.problems.fail(WrongShape(item.span, name, f"{_shown(shapes[0])} here", _shown(shape)))
    return (len(values), *shapes[0])


def check_shape(
    scope: Scope, formula: syntax.Formula, values: float | tuple, name: str, axes: tuple[Axis, ...]
) -> None:
    """A list must have one level per axis, of the size of each; one number stands for all elements."""
    shape = shape_of(scope, formula, values, name)
    if not shape:
        return
    if len(shape) != len(axes):
        expected = "one number" if not axes else f"{_levels(len(axes))}, one per axis"
        scope.problems.fail(WrongShape(formula.span, name, expected, _levels(len(shape))))
    for size, axis in zip(shape, axes, strict=True):
        if axis.size is not None and size != axis.size:
            expected = f"{axis.size} values along `{axis.describe()}`"
            scope.problems.fail(WrongShape(formula.span, name, expected, str(size)))


def _levels(count: int) -> str:
    return "a plain list" if count == 1 else f"lists nested {count} deep"


def _shown(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} values" if shape else "one number"
