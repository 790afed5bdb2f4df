"""Kernels by formula: `kernel spiral(r; ell, p) = ...` in the distance, `kernel k(a, b; ell) = ...` in two points."""

from __future__ import annotations

from collections.abc import Iterator

from gpdsl.language import syntax
from gpdsl.language.checker.arguments import match_arguments
from gpdsl.language.checker.axes import carrier, contains
from gpdsl.language.checker.build import remember
from gpdsl.language.checker.domains import ON, Domain, selected
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.facts import Fact
from gpdsl.language.checker.kernel_calls import fit_argument
from gpdsl.language.checker.place import Left, Place
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.axes import KernelAxis
from gpdsl.language.errors.kernels import (
    KernelPoints,
    MustBePositional,
    RepeatedName,
    VectorInDistance,
    WrittenForOneColumn,
)
from gpdsl.language.model import Axis, Expression, Kernel, KernelDefinition, KernelFormula, Local, Whole
from gpdsl.language.vocabulary import REDUCTIONS

COLUMNS = Axis(None, dimension="columns")
"""The axis of a point in a definition that is checked before it is known over which input it will be called."""

_OVER_COLUMNS = frozenset({*REDUCTIONS, "dot", "norm"})
_READABLE = frozenset({"const", "param", "function"})


def check_definition(scope: Scope, statement: syntax.KernelStatement) -> None:
    """Check a definition as it stands, for one column or for any number when its formula says so."""
    name = statement.name.text
    points, parameters = statement.arguments, statement.parameters
    if not 1 <= len(points) <= 2:
        scope.problems.fail(KernelPoints(points[-1].span if points else statement.span, name, len(points)))
    seen: set[str] = set()
    for each in (*points, *parameters):
        if each.text in seen:
            scope.problems.fail(RepeatedName(each.span, each.text))
        seen.add(each.text)
    texts = tuple(each.text for each in points)
    axis = COLUMNS if len(points) == 2 and _over_columns(statement.value, frozenset(texts)) else None
    local = _points(scope, statement, axis) | {each.text: _local(scope, each, ()) for each in parameters}
    body = _body(scope, statement, local, axis)
    names = tuple(each.text for each in parameters)
    scope.kernels[name] = KernelDefinition(name, statement.name.span, texts, names, body)
    scope.kernel_statements[name] = statement


def check_formula(scope: Scope, place: Place, call: syntax.Call, domain: Domain) -> Kernel:
    """A call: parameters given, or else the quantities of the same names; the formula over this call's columns."""
    name = call.function.text
    if name not in scope.kernel_statements:
        scope.problems.give_up()
    statement = scope.kernel_statements[name]
    names = [each.text for each in statement.parameters]
    signature = f"{name}({', '.join(names)})"
    for argument in call.arguments:
        if argument.name is not None and argument.name.text in scope.kernels[name].arguments:
            scope.problems.fail(MustBePositional(argument.name.span, name, argument.name.text, signature))
    matched = match_arguments(scope, call, names, signature, required=(), named_only=(ON,))
    on, seen = selected(scope, place, matched.get(ON), domain)
    arguments: dict[str, Expression] = {}
    for parameter in statement.parameters:
        formula = matched.get(parameter.text)
        if formula is None:
            formula = syntax.Name(call.span, syntax.Identifier(call.span, parameter.text))
        with scope.problems.contained():
            arguments[parameter.text] = _argument(scope, place, statement, parameter, formula, seen)
    if len(arguments) < len(names):
        scope.problems.give_up()
    body = _over(scope, place, call, statement, arguments, seen)
    return KernelFormula(call.span, name, arguments, scope.kernels[name].arguments, body, on)


def _argument(
    scope: Scope,
    place: Place,
    statement: syntax.KernelStatement,
    parameter: syntax.Identifier,
    formula: syntax.Formula,
    domain: Domain,
) -> Expression:
    checked = check_expression(scope, place, formula)
    points = statement.arguments
    columns = domain.input_axis
    if len(points) == 1 and columns is not None and any(_is_columns(a, columns, domain) for a in checked.axes):
        scope.problems.fail(VectorInDistance(formula.span, statement.name.text, parameter.text, points[0].text))
    fit_argument(scope, checked, domain, vector=len(points) == 2)
    return checked


def _is_columns(axis: Axis, columns: Axis, domain: Domain) -> bool:
    return contains((columns,), axis) and not contains(domain.axes, axis)


def _over(
    scope: Scope,
    place: Place,
    call: syntax.Call,
    statement: syntax.KernelStatement,
    arguments: dict[str, Expression],
    domain: Domain,
) -> Expression:
    """The formula over the columns of this call; its points and parameters are `Local`."""
    points = statement.arguments
    axis = domain.input_axis if len(points) == 2 else None
    if axis is None and len(points) == 2 and _over_columns(statement.value, frozenset(p.text for p in points)):
        axis = Axis(None, size=1)
    columns = (axis,) if axis is not None else ()
    local = _points(scope, statement, axis)
    for parameter in statement.parameters:
        own = tuple(each for each in arguments[parameter.text].axes if contains(columns, each))
        own = tuple(each for each in own if not contains(domain.axes, each))
        local[parameter.text] = _local(scope, parameter, own)
    body = _body(scope, statement, local, axis)
    if body.axes:
        point = points[0].text
        scope.problems.fail(WrittenForOneColumn(call.span, statement.name.text, domain.describe(), point))
    return body


def _points(scope: Scope, statement: syntax.KernelStatement, axis: Axis | None) -> dict[str, Expression]:
    axes = (axis,) if axis is not None and len(statement.arguments) == 2 else ()
    return {each.text: _local(scope, each, axes) for each in statement.arguments}


def _local(scope: Scope, name: syntax.Identifier, axes: tuple[Axis, ...]) -> Expression:
    return remember(scope, Local(name.span, axes, name.text, tuple(Whole(axis) for axis in axes)), Fact())


def _body(
    scope: Scope, statement: syntax.KernelStatement, local: dict[str, Expression], axis: Axis | None
) -> Expression:
    """The checked formula; along an axis other than the columns it would be several covariances."""
    name = statement.name.text
    names = ", ".join(each.text for each in statement.arguments)
    left = Left("kernel", name, f"kernel {name}({names}; ...)")
    body = check_expression(scope, Place("a kernel", _READABLE, left, local=local), statement.value)
    for each in body.axes:
        if axis is None or not contains((axis,), each):
            source = carrier(body, each)
            shown = scope.quote(source.span).strip("`")
            one = f"one number: take an element, such as `{shown}[1]`, or sum over the axis"
            scope.problems.fail(KernelAxis(source.span, shown, each.describe(), "one number", one))
    return body


def _over_columns(formula: syntax.Formula, points: frozenset[str]) -> bool:
    """Whether a formula takes elements of its points, or sums and the like over their columns."""
    for part in _walk(formula):
        match part:
            case syntax.Name(identifier=word, subscripts=subscripts) if subscripts is not None and word.text in points:
                return True
            case syntax.Call(function=word, arguments=inside) if word.text in _OVER_COLUMNS:
                own = inside[0].value if len(inside) == 1 or word.text == "dot" else None
                if own is not None and any(_is_point(each, points) for each in _walk(own)):
                    return True
            case syntax.Binary(operator="@", left=left):
                if any(_is_point(each, points) for each in _walk(left)):
                    return True
    return False


def _is_point(formula: syntax.Formula, points: frozenset[str]) -> bool:
    return isinstance(formula, syntax.Name) and formula.identifier.text in points


def _walk(formula: object) -> Iterator[syntax.Formula]:
    """A formula and everything inside it."""
    stack = [formula]
    while stack:
        node = stack.pop()
        yield node  # type: ignore[misc]
        match node:
            case syntax.Call(arguments=arguments):
                stack += [each.value for each in arguments]
            case syntax.Binary(left=left, right=right) | syntax.Comparison(left=left, right=right):
                stack += [left, right]
            case syntax.Negation(operand=operand):
                stack.append(operand)
            case syntax.Logical(operands=operands):
                stack += list(operands)
            case syntax.Conditional(condition=condition, then=then, otherwise=otherwise):
                stack += [condition, then, otherwise]
