"""`let g[p] = ...`: one definition, or cases with recursion along an index."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from gpdsl.language import syntax
from gpdsl.language.checker.axes import check_distinct
from gpdsl.language.checker.build import fact_of
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.facts import Fact
from gpdsl.language.checker.fit_left import require_axes
from gpdsl.language.checker.guards import case_axes, case_guards, check_coverage, reach
from gpdsl.language.checker.place import NOTHING, Left, Place
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.axes import BadRecursion
from gpdsl.language.errors.limits import PowerTooLarge, TooManyCases
from gpdsl.language.errors.names import DeclaredTwice
from gpdsl.language.limits import MAX_CASES, MAX_DEGREE
from gpdsl.language.model import (
    Axis,
    Case,
    Expression,
    Fixed,
    Guard,
    IndexValue,
    Let,
    Operation,
    Read,
    parts,
)

_READABLE = frozenset({"const", "param", "input", "row", "latent", "let", "external"})


def check_let(scope: Scope, statements: Sequence[syntax.LetStatement]) -> None:
    """All statements of one name together."""
    first = statements[0]
    if first.subscripts is None:
        if len(statements) > 1:
            again = statements[1].name
            scope.problems.fail(DeclaredTwice(again.span, again.text, scope.line(first.span, again.span)))
        _check_whole(scope, first)
        return
    if len(statements) > MAX_CASES:
        scope.problems.fail(TooManyCases(first.name.span, first.name.text, MAX_CASES))
    axes = case_axes(scope, statements)
    check_distinct(scope, first.name.text, first.name.span, axes)
    cases: list[Case] = []
    for statement in statements:
        with scope.problems.contained():
            cases.append(_check_case(scope, statement, axes))
    if len(cases) < len(statements):
        scope.problems.give_up()
    check_coverage(scope, first.name.text, first.name.span, axes, cases)
    _check_recursion(scope, first, axes, cases)
    _define(scope, first, axes, tuple(cases))


def _check_whole(scope: Scope, statement: syntax.LetStatement) -> None:
    name = statement.name.text
    place = Place(f"`let {name}`", _READABLE, Left("let", name, f"let {name}"), NOTHING, free=True)
    body = check_expression(scope, place, statement.value)
    check_distinct(scope, name, statement.name.span, body.axes)
    guards = tuple(Guard(axis.name or "") for axis in body.axes)
    _define(scope, statement, body.axes, (Case(guards, body, statement.span),))


def _define(scope: Scope, statement: syntax.LetStatement, axes: tuple[Axis, ...], cases: tuple[Case, ...]) -> None:
    name = statement.name.text
    facts = [fact_of(scope, case.body) for case in cases]
    own = max(_own_degree(scope, case.body, name) for case in cases)
    steps = max((axis.size or 2 for axis in axes), default=2) - 1
    # a[p] = a[p-1]^2 has degree 2^(n-1) at the last of n elements.
    if own > 1 and own ** min(steps, 64) > MAX_DEGREE:
        scope.problems.fail(PowerTooLarge(statement.span, MAX_DEGREE))
    scope.let_facts[name] = Fact(degree=max(each.degree for each in facts), terms=max(each.terms for each in facts))
    scope.lets[name] = Let(name, statement.name.span, axes, cases)


def _own_degree(scope: Scope, expression: Expression, name: str) -> float:
    """The degree of an expression in one name."""
    match expression:
        case Read():
            return float(expression.name == name)
        case Operation(operator="^", operands=(base, exponent)):
            return _own_degree(scope, base, name) * max(1.0, fact_of(scope, exponent).largest or 1.0)
    degrees = [_own_degree(scope, part, name) for part in parts(expression)]
    product = isinstance(expression, Operation) and expression.operator in ("*", "/")
    return sum(degrees) if product else max(degrees, default=0.0)


def _check_case(scope: Scope, statement: syntax.LetStatement, axes: tuple[Axis, ...]) -> Case:
    guards, named = case_guards(scope, statement, axes)
    name = statement.name.text
    bound = {guard.index: reach(guard, axis) for guard, axis, own in zip(guards, axes, named, strict=True) if own}
    end = (statement.subscripts or ())[-1].span
    text = scope.source.line(statement.span.line)[statement.span.column - 1 : end.end_column]
    left = Left("let", name, text if end.end_line == statement.span.line else f"let {name}", tuple(bound))
    place = Place(f"`let {name}`", _READABLE, left, bound, recursion=(name, axes))
    body = check_expression(scope, place, statement.value)
    require_axes(scope, left, body, tuple(axis for axis, own in zip(axes, named, strict=True) if own))
    return Case(guards, body, statement.span)


def reads(expression: Expression) -> list[Read]:
    """Every name read in an expression."""
    if isinstance(expression, Read):
        return [expression]
    return [each for part in parts(expression) for each in reads(part)]


def _check_recursion(
    scope: Scope, statement: syntax.LetStatement, axes: tuple[Axis, ...], cases: Sequence[Case]
) -> None:
    """Every element read must be strictly earlier, or every one strictly later, along one and the same index."""
    own = [(case, read) for case in cases for read in reads(case.body) if read.name == statement.name.text]
    for position, sign in product(range(len(axes)), (1, -1)):
        if all(steps(case.guards[position], axes[position], read, position, sign) for case, read in own):
            return
    if own:
        offender = next(
            (
                read
                for case, read in own
                if not any(steps(case.guards[k], axes[k], read, k, 1) for k in range(len(axes)))
            ),
            own[0][1],
        )
        scope.problems.fail(BadRecursion(offender.span, statement.name.text))


def steps(guard: Guard, axis: Axis, read: Read, position: int, sign: int) -> bool:
    """Whether a read goes strictly back (`sign` 1) or forward (-1) along one axis, wherever the guard holds."""
    subscript = read.subscripts[position]
    if isinstance(subscript, IndexValue):
        return subscript.index == guard.index and subscript.offset * sign < 0
    if not isinstance(subscript, Fixed):
        return False
    span = reach(guard, axis)
    if sign > 0:
        return subscript.position < span.low
    return span.high is not None and subscript.position > span.high
