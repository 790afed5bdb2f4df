"""Constraints of parameters: bounds, simplexes and ordered values, and whether initial values respect them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from gpdsl.language import syntax
from gpdsl.language.checker.layers import LATTICE, lattice
from gpdsl.language.checker.scope import Scope, evaluate
from gpdsl.language.errors.calls import NotANumber, OutsideDomain, RepeatedArgument, UnknownArgument, WrongShape
from gpdsl.language.errors.definitions import BadType, BoundsOrder, OutsideConstraint
from gpdsl.language.errors.limits import NotFinite
from gpdsl.language.model import Axis, Param
from gpdsl.language.vocabulary import TIME_UNITS, Span

# Values of constants and parameters: numbers and nested lists of them, computed in floating point.

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
    if syntax.called(formula) == LATTICE:
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
    if isinstance(values, tuple) and syntax.called(formula) == LATTICE:
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


BOUNDED = ("real", "positive")
ALONG_AXIS = ("simplex", "ordered")
SHAPED = (*ALONG_AXIS, "correlation_factor")
_SIMPLEX_ERROR = 1e-6

Bound = float | None


def refuse_bounds(scope: Scope, bound: syntax.Argument, statement: str) -> None:
    """Only parameters have bounds: data are what they are."""
    problem = f"{statement} has no bounds"
    remedy = "bounds stand in the type of a parameter, `param rho : real(lower = -1, upper = 1)`; "
    remedy += "for data see `Truncated` and `Censored`"
    scope.problems.fail(BadType(bound.span, problem, "not possible here", remedy))


def time_unit(scope: Scope, kind: syntax.Type) -> str:
    """The unit of `time(per = hour)`; days where it is left out."""
    units, form = ", ".join(f"`{each}`" for each in TIME_UNITS), "time(per = hour)"
    unit = "day"
    for bound in kind.bounds:
        if bound.name is None or bound.name.text != "per":
            problem, remedy = "a time has nothing but its unit", f"write `{form}`; the units are {units}"
            scope.problems.fail(BadType(bound.span, problem, "not possible here", remedy))
        if bound is not kind.bounds[0]:
            scope.problems.fail(RepeatedArgument(bound.name.span, "time", "per", form))
        word = bound.value
        if not isinstance(word, syntax.Name) or word.subscripts or word.identifier.text not in TIME_UNITS:
            remedy = (
                f"write one of {units}, as in `{form}`; months and quarters have no one length: "
                "a cycle of twelve months has the period 1 in `time(per = year)`"
            )
            scope.problems.fail(BadType(word.span, "no such unit of time", "not a unit", remedy))
        unit = word.identifier.text
    return unit


def check_bounds(scope: Scope, name: str, kind: syntax.Type) -> tuple[Bound, Bound]:
    """The bounds of `real(lower = -1, upper = 1)`, in order; None where there is none."""
    word = kind.word.text
    if word not in BOUNDED:
        problem, remedy = f"`{word}` has no bounds of its own", "write `real(lower = ..., upper = ...)`"
        scope.problems.fail(BadType(kind.bounds[0].span, problem, "not possible here", remedy))
    found: dict[str, float] = {}
    form = f"{word}(lower = 0, upper = 10)"
    for bound in kind.bounds:
        if bound.name is None:
            problem = f"a bound of `{word}` is given by name"
            scope.problems.fail(BadType(bound.span, problem, "lower or upper?", f"write `{form}`, or one of the two"))
        if bound.name.text not in ("lower", "upper"):
            suggestion = scope.problems.suggest(bound.name.text, ("lower", "upper"))
            scope.problems.fail(UnknownArgument(bound.name.span, word, bound.name.text, form, suggestion))
        if bound.name.text in found:
            scope.problems.fail(RepeatedArgument(bound.name.span, word, bound.name.text, form))
        value = evaluate_value(scope, bound.value, name)
        if isinstance(value, tuple):
            remedy = "one bound holds for all elements"
            scope.problems.fail(BadType(bound.value.span, f"a bound of `{name}` is one number", "a list here", remedy))
        found[bound.name.text] = value
    lower, upper = found.get("lower"), found.get("upper")
    least = 0.0 if word == "positive" else None
    if word == "positive" and lower is not None and lower < 0:
        problem, remedy = f"`{name}` is positive already", "write `real` for values below 0 too, or leave the bound out"
        scope.problems.fail(BadType(kind.span, problem, f"lower = {lower:g}", remedy))
    bottom = least if lower is None else lower
    if bottom is not None and upper is not None and bottom >= upper:
        scope.problems.fail(BoundsOrder(kind.span, f"`{name}`", f"{bottom:g}", f"{upper:g}"))
    return lower, upper


def check_axes(scope: Scope, name: str, kind: syntax.Type, axes: tuple[Axis, ...]) -> None:
    """A simplex has an axis of two elements or more, ordered values have one, and a factor is a square matrix."""
    word = kind.word.text
    if word == "correlation_factor":
        _check_square(scope, name, kind, axes)
        return
    what = "elements that add up to 1" if word == "simplex" else "elements that increase"
    if not axes:
        problem = f"`{name}` is one number, but `{word}` means {what}"
        scope.problems.fail(BadType(kind.span, problem, "no size here", f"write `{word}[3]`"))
    if word == "simplex" and axes[-1].size == 1:
        problem = f"a simplex of one element is always 1, so there is nothing to learn in `{name}`"
        scope.problems.fail(BadType(kind.span, problem, "one element", "give it two elements or more, or a `const`"))


def _check_square(scope: Scope, name: str, kind: syntax.Type, axes: tuple[Axis, ...]) -> None:
    sizes = {axis.size for axis in axes[-2:]} - {None}
    if len(axes) < 2 or len(sizes) > 1:
        shown = ", ".join(axis.describe() for axis in axes) or "one number"
        remedy = f"write two indices of equal size, `index p in 1..3`, `index q in 1..3` and `param {name}[p,q] : ...`"
        scope.problems.fail(BadType(kind.span, f"`{name}` is a square matrix", f"[{shown}] here", remedy))


def check_initial(scope: Scope, formula: syntax.Formula, param: Param) -> None:
    """Initial values inside the bounds, adding up to 1, or increasing."""
    if param.constraint == "correlation_factor":
        remedy = "leave it out; `init` of a fit takes a factor"
        rule = "is not written: it starts without correlations"
        scope.problems.fail(OutsideConstraint(formula.span, param.name, rule, "a value here", remedy))
    if param.constraint in ALONG_AXIS:
        _check_rows(scope, formula, param)
    elif param.lower is not None or param.upper is not None:
        for item, value in _numbers(formula, param.initial):
            _check_inside(scope, item, value, param)


def _check_inside(scope: Scope, formula: syntax.Formula, value: float, param: Param) -> None:
    lower, upper = param.lower, param.upper
    if (lower is None or lower < value) and (upper is None or value < upper):
        return
    between = f"between {lower:g} and {upper:g}" if lower is not None and upper is not None else ""
    rule = between or (f"above {lower:g}" if lower is not None else f"below {upper:g}")
    remedy = f"write a value strictly {rule}, or change the bounds"
    scope.problems.fail(
        OutsideConstraint(formula.span, param.name, f"must lie {rule}, not at {value:g}", f"{value:g} here", remedy)
    )


def _check_rows(scope: Scope, formula: syntax.Formula, param: Param) -> None:
    if not isinstance(formula, syntax.Array):
        remedy = (
            f"write a list, `[{'0.2, 0.3, 0.5' if param.constraint == 'simplex' else '-1, 0, 1'}]`, or leave it out"
        )
        rule = f"is a list, since it is {param.constraint}"
        scope.problems.fail(OutsideConstraint(formula.span, param.name, rule, "one number here", remedy))
    for row, values in _rows(formula, param.initial):
        if param.constraint == "simplex":
            if abs(sum(values) - 1) > _SIMPLEX_ERROR:
                rule, remedy = "must add up to 1", "scale the elements so that they add up to 1"
                found = f"these add up to {sum(values):g}"
                scope.problems.fail(OutsideConstraint(row.span, param.name, rule, found, remedy))
            continue
        wrong = next(((a, b) for a, b in pairwise(values) if not a < b), None)
        if wrong is not None:
            found = f"{wrong[1]:g} stands after {wrong[0]:g}"
            remedy = "write the elements from the smallest to the largest, no two of them equal"
            scope.problems.fail(OutsideConstraint(row.span, param.name, "must increase", found, remedy))


def _numbers(formula: syntax.Formula, values: float | tuple) -> Iterator[tuple[syntax.Formula, float]]:
    if isinstance(formula, syntax.Array) and isinstance(values, tuple):
        for item, value in zip(formula.items, values, strict=True):
            yield from _numbers(item, value)
    elif not isinstance(values, tuple):
        yield formula, values


def _rows(formula: syntax.Array, values: float | tuple) -> Iterator[tuple[syntax.Formula, tuple[float, ...]]]:
    """The innermost lists."""
    assert isinstance(values, tuple)
    if not isinstance(values[0], tuple):
        yield formula, values
        return
    for item, value in zip(formula.items, values, strict=True):
        if isinstance(item, syntax.Array):
            yield from _rows(item, value)
