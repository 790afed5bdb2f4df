"""`let g[p] = ...`: one definition, or cases with recursion along an index."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from gpdsl.language import model as m, syntax
from gpdsl.language.checker.axes import check_distinct, subscript_parts
from gpdsl.language.checker.build import fact_of, require_axes
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.scope import NOTHING, Fact, IndexRange, Left, Place, Scope
from gpdsl.language.errors import axes as wrong
from gpdsl.language.errors.limits import PowerTooLarge, TooManyCases
from gpdsl.language.errors.names import DeclaredTwice
from gpdsl.language.vocabulary import MAX_AXIS, MAX_CASES, MAX_DEGREE, Span

# The left side of a `let`: which elements each case covers, and that together they cover each once.

_BETWEEN = {
    "all": lambda limit: (1, MAX_AXIS),
    "==": lambda limit: (limit, limit),
    "<": lambda limit: (1, limit - 1),
    "<=": lambda limit: (1, limit),
    ">": lambda limit: (limit + 1, MAX_AXIS),
    ">=": lambda limit: (limit, MAX_AXIS),
}
"""From where to where a condition lets an index run."""


def case_axes(scope: Scope, statements: Sequence[syntax.LetStatement]) -> tuple[m.Axis, ...]:
    """The axes of a `let` from the subscripts of all its cases: a case `a[1]` takes the index of the others."""
    first = statements[0].subscripts or ()
    names: list[str | None] = [None] * len(first)
    for statement in statements:
        subscripts = statement.subscripts or ()
        if len(subscripts) != len(first):
            expected = f"{len(first)} subscripts on line {statements[0].span.line}"
            scope.problems.fail(
                wrong.SubscriptCount(statement.name.span, statement.name.text, expected, len(subscripts))
            )
        for position, subscript in enumerate(subscripts):
            index, shift = subscript_parts(scope, subscript)
            if index is None:
                continue
            if shift:
                scope.problems.fail(wrong.BadSubscript(subscript.span))
            if names[position] not in (None, index.text):
                remedy = f"write `{statement.name.text}[{names[position]}]` in every case"
                what, own, told = statement.name.text, names[position] or "", scope.describe_index(index.text)
                scope.problems.fail(wrong.WrongIndex(index.span, what, own, index.text, told, remedy))
            names[position] = index.text
    for position, name in enumerate(names):
        if name is None:
            last = subscript_parts(scope, (statements[-1].subscripts or ())[position])[1]
            sized = [each for each, entry in scope.indices.items() if entry.axis.size == last]
            along = next(iter([*sized, *scope.indices]), "p")
            scope.problems.fail(wrong.IndexUnnamed(first[position].span, statements[0].name.text, along, last))
    return tuple(scope.indices[name].axis for name in names if name is not None)


def case_guards(
    scope: Scope, statement: syntax.LetStatement, axes: tuple[m.Axis, ...]
) -> tuple[tuple[m.Guard, ...], tuple[bool, ...]]:
    """One guard per axis of a case, and for each whether the case names the index, so that its value may use it."""
    guards, named = [], []
    for subscript, axis in zip(statement.subscripts or (), axes, strict=True):
        guards.append(guard_of(scope, statement.name.text, subscript, axis))
        named.append(subscript_parts(scope, subscript)[0] is not None)
    return tuple(guards), tuple(named)


def guard_of(scope: Scope, name: str, subscript: syntax.Subscript, axis: m.Axis) -> m.Guard:
    """What one subscript left of `=` or `~` says about the values of its index: `p > 1`, `p`, `2`."""
    index, number = subscript_parts(scope, subscript)
    operator = subscript.comparison or ("all" if index is not None else "==")
    if subscript.comparison is not None:
        if index is None or not isinstance(subscript.against, syntax.Literal):
            scope.problems.fail(wrong.BadSubscript(subscript.span))
        number = _limit(scope, subscript)
    guard = m.Guard(axis.name or "", operator, number)
    if not values(guard, axis):
        why = f"no value of `{guard.index}` from 1 to {axis.size or axis.dimension} fits"
        shown = f"{number}" if index is None else f"{guard.index} {operator} {number}"
        advice = "change the condition or remove the case"
        scope.problems.fail(wrong.SubscriptOutOfRange(subscript.span, name, f"{name}[{shown}]", why, advice))
    return guard


def _limit(scope: Scope, subscript: syntax.Subscript) -> int:
    literal = subscript.against
    if not isinstance(literal, syntax.Literal) or not isinstance(literal.value, int) or literal.value > MAX_AXIS:
        return scope.problems.fail(wrong.BadSubscript(subscript.span))
    return literal.value


def values(guard: m.Guard, axis: m.Axis) -> Sequence[int]:
    """The values a guard lets through; an axis of unknown size counts as a little longer than every limit."""
    size = axis.size if axis.size is not None else guard.value + 2
    if guard.operator == "!=":
        return [value for value in range(1, size + 1) if value != guard.value]
    low, high = _BETWEEN[guard.operator](guard.value)
    return range(max(low, 1), min(high, size) + 1)


def meet(first: m.Guard, second: m.Guard, axis: m.Axis) -> bool:
    """Whether some value of an index passes both guards; an axis of unknown size goes on beyond every limit."""
    low, high = 1, axis.size if axis.size is not None else max(first.value, second.value) + 2
    without = set()
    for guard in (first, second):
        if guard.operator == "!=":
            without.add(guard.value)
        else:
            least, most = _BETWEEN[guard.operator](guard.value)
            low, high = max(low, least), min(high, most)
    return high - low + 1 > sum(low <= value <= high for value in without)


def reach(guard: m.Guard, axis: m.Axis) -> IndexRange:
    """From where to where an index runs under a guard."""
    allowed = values(guard, axis)
    return IndexRange(allowed[0], allowed[-1] if axis.size is not None else None)


def check_coverage(scope: Scope, name: str, span: Span, axes: tuple[m.Axis, ...], cases: Sequence[m.Case]) -> None:
    """No element in two cases, none left out. For sizes that data bind, this must hold whatever the size.

    A little beyond every limit, all further elements are alike.
    """
    limits = [max(case.guards[k].value for case in cases) for k in range(len(axes))]
    sized = [
        m.Axis(axis.name, size=limit + 2 if axis.size is None else min(axis.size, limit + 2))
        for axis, limit in zip(axes, limits, strict=True)
    ]
    for k, case in enumerate(cases):
        for other in cases[:k]:
            if all(map(meet, case.guards, other.guards, axes)):
                scope.problems.fail(wrong.CasesOverlap(case.span, name, other.span.line))
    boxes = [[frozenset(values(guard, axis)) for guard, axis in zip(case.guards, sized, strict=True)] for case in cases]
    missing = missing_element(boxes, [frozenset(range(1, (axis.size or 1) + 1)) for axis in sized])
    if missing is not None:
        scope.problems.fail(wrong.CasesMissing(span, name, ", ".join(map(str, missing))))


def missing_element(boxes: list[list[frozenset[int]]], whole: list[frozenset[int]]) -> tuple[int, ...] | None:
    """An element of the product `whole` in none of the boxes: axis by axis, only values that differ in some box."""
    if not whole:
        return None if boxes else ()
    seen: set[frozenset[int]] = set()
    for value in sorted(whole[0]):
        inside = frozenset(k for k, box in enumerate(boxes) if value in box[0])
        if inside in seen:
            continue
        seen.add(inside)
        rest = missing_element([boxes[k][1:] for k in sorted(inside)], whole[1:])
        if rest is not None:
            return (value, *rest)
    return None


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
    cases = scope.problems.each(statements, lambda statement: _check_case(scope, statement, axes))
    check_coverage(scope, first.name.text, first.name.span, axes, cases)
    _check_recursion(scope, first, axes, cases)
    _define(scope, first, axes, tuple(cases))


def _check_whole(scope: Scope, statement: syntax.LetStatement) -> None:
    name = statement.name.text
    place = Place(f"`let {name}`", _READABLE, Left("let", name, f"let {name}"), NOTHING, free=True)
    body = check_expression(scope, place, statement.value)
    check_distinct(scope, name, statement.name.span, body.axes)
    guards = tuple(m.Guard(axis.name or "") for axis in body.axes)
    _define(scope, statement, body.axes, (m.Case(guards, body, statement.span),))


def _define(scope: Scope, statement: syntax.LetStatement, axes: tuple[m.Axis, ...], cases: tuple[m.Case, ...]) -> None:
    name = statement.name.text
    facts = [fact_of(scope, case.body) for case in cases]
    own = max(_own_degree(scope, case.body, name) for case in cases)
    steps = max((axis.size or 2 for axis in axes), default=2) - 1
    # a[p] = a[p-1]^2 has degree 2^(n-1) at the last of n elements.
    if own > 1 and own ** min(steps, 64) > MAX_DEGREE:
        scope.problems.fail(PowerTooLarge(statement.span, MAX_DEGREE))
    scope.let_facts[name] = Fact(degree=max(each.degree for each in facts), terms=max(each.terms for each in facts))
    scope.lets[name] = m.Let(name, statement.name.span, axes, cases)


def _own_degree(scope: Scope, expression: m.Expression, name: str) -> float:
    """The degree of an expression in one name."""
    match expression:
        case m.Read():
            return float(expression.name == name)
        case m.Operation(operator="^", operands=(base, exponent)):
            return _own_degree(scope, base, name) * max(1.0, fact_of(scope, exponent).largest or 1.0)
    degrees = [_own_degree(scope, part, name) for part in m.parts(expression)]
    product = isinstance(expression, m.Operation) and expression.operator in ("*", "/")
    return sum(degrees) if product else max(degrees, default=0.0)


def _check_case(scope: Scope, statement: syntax.LetStatement, axes: tuple[m.Axis, ...]) -> m.Case:
    guards, named = case_guards(scope, statement, axes)
    name = statement.name.text
    bound = {guard.index: reach(guard, axis) for guard, axis, own in zip(guards, axes, named, strict=True) if own}
    end = (statement.subscripts or ())[-1].span
    text = scope.source.line(statement.span.line)[statement.span.column - 1 : end.end_column]
    left = Left("let", name, text if end.end_line == statement.span.line else f"let {name}", tuple(bound))
    place = Place(f"`let {name}`", _READABLE, left, bound, recursion=(name, axes))
    body = check_expression(scope, place, statement.value)
    require_axes(scope, left, body, tuple(axis for axis, own in zip(axes, named, strict=True) if own))
    return m.Case(guards, body, statement.span)


def _check_recursion(
    scope: Scope, statement: syntax.LetStatement, axes: tuple[m.Axis, ...], cases: Sequence[m.Case]
) -> None:
    """Every element read must be strictly earlier, or every one strictly later, along one and the same index."""
    own = [(case, read) for case in cases for read in m.reads_of(case.body) if read.name == statement.name.text]
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
        scope.problems.fail(wrong.BadRecursion(offender.span, statement.name.text))


def steps(guard: m.Guard, axis: m.Axis, read: m.Read, position: int, sign: int) -> bool:
    """Whether a read goes strictly back (`sign` 1) or forward (-1) along one axis, wherever the guard holds."""
    subscript = read.subscripts[position]
    if isinstance(subscript, m.IndexValue):
        return subscript.index == guard.index and subscript.offset * sign < 0
    if not isinstance(subscript, m.Fixed):
        return False
    span = reach(guard, axis)
    if sign > 0:
        return subscript.position < span.low
    return span.high is not None and subscript.position > span.high
