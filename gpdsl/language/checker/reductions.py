"""Sums, products and the like over an index or over the only axis there is, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpdsl.language import model as m, syntax
from gpdsl.language.checker.axes import check_shift, contains, read
from gpdsl.language.checker.build import fact_of, number, operation, remember
from gpdsl.language.checker.scope import SORTS, Fact, IndexRange, Passed, Place, Scope, describe_axes
from gpdsl.language.errors.axes import IndexNotBound, PointlessReduction, SubscriptOutOfRange
from gpdsl.language.errors.calls import NotAValue, UnknownArgument, WrongArity
from gpdsl.language.errors.names import NothingShared, NothingToReduce, NotReadable, SeveralShared, SeveralToReduce
from gpdsl.language.vocabulary import Span

# Values passed to a formula: what the arguments of a `function` stand for inside one call, and their elements.

Chosen = tuple[tuple[m.Axis, m.Subscript], ...]
"""A subscript for each of some axes."""


def passed_value(scope: Scope, place: Place, name: syntax.Name, value: m.Expression, passed: Passed) -> m.Expression:
    """An argument inside a formula: the expression passed, or the part of it that the subscripts choose."""
    text = name.identifier.text
    if name.subscripts is None:
        caught = next((axis for axis in value.axes if axis.name in passed.running and axis.name in place.bound), None)
        if caught is not None and caught.name is not None:
            index = caught.name
            remedy = (
                f"run over another index inside the function, or name the argument's part with `let` first: `{index}`"
            )
            scope.problems.fail(IndexNotBound(name.span, index, f"`{text}` already has its own `{index}`", remedy))
        return value
    axes = tuple(axis for axis in value.axes if axis.name not in passed.elements)
    chosen = read(scope, place, name, axes)
    return _substitute(scope, place, name, value, tuple(zip(axes, chosen.subscripts, strict=True)))


def generic_value(scope: Scope, place: Place, name: syntax.Name) -> m.Expression:
    """An element of an argument while its function is being defined: its axes are those of the subscripts written."""
    axes = tuple(_generic_axis(scope, each, k) for k, each in enumerate(name.subscripts or ()))
    chosen = read(scope, place, name, axes)
    return m.Local(name.span, chosen.axes, name.identifier.text, chosen.subscripts)


def _generic_axis(scope: Scope, subscript: syntax.Subscript, position: int) -> m.Axis:
    """The axis that a subscript suggests: that of its index, or one nobody knows."""
    value = subscript.value.left if isinstance(subscript.value, syntax.Binary) else subscript.value
    if isinstance(value, syntax.Name) and value.identifier.text in scope.indices:
        return scope.indices[value.identifier.text].axis
    return m.Axis(None, dimension=f"?{position}")


def has_unknown_axes(place: Place, expression: m.Expression) -> bool:
    """Whether an expression in a definition reads an argument as a whole, with whatever axes a call will give it."""
    local = (each for each in m.every_part(expression) if isinstance(each, m.Local)) if place.generic else ()
    return any(not each.subscripts for each in local)


def unknown_reduction(scope: Scope, span: Span, operator: str, body: m.Expression) -> m.Expression:
    """A sum in a definition over axes that only a call will tell."""
    inside = fact_of(scope, body)
    axis = m.Axis(None, dimension="?")
    fact = replace(inside, value=None, largest=None, terms=inside.terms + 1, depth=inside.depth + 1)
    return remember(scope, m.Reduction(span, body.axes, operator, axis, body), fact)


def _substitute(scope: Scope, place: Place, name: syntax.Name, value: m.Expression, chosen: Chosen) -> m.Expression:
    """The expression with the running values of some axes replaced: `a` at `i = 2`, or along another index."""
    chosen = tuple((axis, subscript) for axis, subscript in chosen if not _keeps(axis, subscript))
    if not any(m.same_axis(axis, each) for axis, _ in chosen for each in value.axes):
        return value
    inside = lambda part, left=chosen: _substitute(scope, place, name, part, left)  # noqa: E731
    axes = _axes(scope, value.axes, chosen)
    match value:
        case m.IndexNumber(index=index):
            return _index_number(scope, place, value, {axis.name: each for axis, each in chosen}[index])
        case m.Read(subscripts=subscripts):
            new = tuple(_subscript(scope, place, name, value, k, chosen) for k in range(len(subscripts)))
            changed: m.Expression = replace(value, axes=axes, subscripts=new)
        case m.Operation(operands=operands):
            changed = replace(value, axes=axes, operands=tuple(map(inside, operands)))
        case m.Reduction(axis=own, body=body):
            rest = tuple(each for each in chosen if not m.same_axis(each[0], own))
            changed = replace(value, axes=axes, body=inside(body, rest))
        case m.FunctionCall(arguments=arguments, body=body):
            changed = replace(value, axes=axes, arguments=tuple(map(inside, arguments)), body=inside(body))
        case m.Local():
            new = tuple(next((s for own, s in chosen if m.same_axis(own, each)), m.Whole(each)) for each in value.axes)
            changed = replace(value, axes=axes, subscripts=new)
        case m.ExternalCall(function=function):
            remedy = "give it a name first: `let g = ...`, and pass `g`"
            scope.problems.fail(NotAValue(name.span, function, "result of an opaque function", remedy))
        case _:
            raise TypeError(type(value).__name__)
    return remember(scope, changed, fact_of(scope, value))


def _keeps(axis: m.Axis, subscript: m.Subscript) -> bool:
    """Whether a subscript leaves its axis as it is."""
    return isinstance(subscript, m.Whole) or (
        isinstance(subscript, m.IndexValue) and subscript.index == axis.name and not subscript.offset
    )


def _axes(scope: Scope, axes: tuple[m.Axis, ...], chosen: Chosen) -> tuple[m.Axis, ...]:
    """The axes that remain: an element drops one, another index renames it."""
    kept = []
    for axis in axes:
        subscript = next((each for own, each in chosen if m.same_axis(own, axis)), None)
        if isinstance(subscript, m.IndexValue):
            kept.append(scope.indices[subscript.index].axis)
        elif not isinstance(subscript, m.Fixed):
            kept.append(axis)
    return tuple(kept)


def _index_number(scope: Scope, place: Place, value: m.IndexNumber, subscript: m.Subscript) -> m.Expression:
    if isinstance(subscript, m.Fixed):
        return number(scope, value.span, subscript.position, str(subscript.position))
    assert isinstance(subscript, m.IndexValue)
    axis = scope.indices[subscript.index].axis
    moved = remember(scope, m.IndexNumber(value.span, (axis,), subscript.index), fact_of(scope, value))
    shift = number(scope, value.span, subscript.offset, str(subscript.offset))
    return operation(scope, place, value.span, "+", (moved, shift)) if subscript.offset else moved


def _subscript(scope: Scope, place: Place, name: syntax.Name, value: m.Read, k: int, chosen: Chosen) -> m.Subscript:
    own, declared = value.subscripts[k], _declared(scope, value)[k]
    offset = own.offset if isinstance(own, m.IndexValue) else 0
    running = declared if isinstance(own, m.Whole) else _running(scope, own)
    new = next((each for axis, each in chosen if running is not None and m.same_axis(axis, running)), None)
    match new:
        case m.Fixed(position=position):
            at = position + offset
            if at < 1 or (declared.size is not None and at > declared.size):
                why = f"the elements along this axis are 1..{declared.describe()}"
                element = f"{value.name}[{at}]"
                scope.problems.fail(SubscriptOutOfRange(name.span, value.name, element, why, "use another element"))
            return m.Fixed(at)
        case m.IndexValue(index=index, offset=shift):
            moved = m.IndexValue(index, shift + offset)
            check_shift(scope, place, value.name, name.span, moved)
            return moved
    return own


def _running(scope: Scope, subscript: m.Subscript) -> m.Axis | None:
    return scope.indices[subscript.index].axis if isinstance(subscript, m.IndexValue) else None


def _declared(scope: Scope, value: m.Read) -> tuple[m.Axis, ...]:
    axes = scope.axes_of(value.name)
    # The `let` being defined: it is read by subscripts only, whose axes are those of its indices.
    within = tuple(_running(scope, each) or m.Axis(None, dimension="?") for each in value.subscripts)
    return within if axes is None else axes


Check = Callable[[Scope, Place, syntax.Formula], m.Expression]


def reduction(scope: Scope, place: Place, call: syntax.Call, check: Check) -> m.Expression:
    """`sum(q, ...)` over an index, `sum(...)` over the one axis of its argument that has no value at this place."""
    name, signature = call.function.text, f"{call.function.text}(q, ...)"
    no_names(scope, call, signature)
    if len(call.arguments) not in (1, 2):
        expected = "an index and an expression, or one expression with one axis"
        scope.problems.fail(WrongArity(call.span, name, expected, len(call.arguments), signature))
    if len(call.arguments) == 1:
        body = check(scope, place, call.arguments[0].value)
        if has_unknown_axes(place, body):
            return unknown_reduction(scope, call.span, name, body)
        return _reduced(scope, call.span, name, _only_axis(scope, place, name, body), body)
    axis = _index(scope, place, call, signature)
    inner = replace(place, bound={**place.bound, axis.name or "": IndexRange.of(axis)})
    body = check(scope, inner, call.arguments[1].value)
    if has_unknown_axes(place, body) and not contains(body.axes, axis):
        return unknown_reduction(scope, call.span, name, body)
    if not contains(body.axes, axis):
        scope.problems.fail(PointlessReduction(body.span, name, axis.describe()))
    return _reduced(scope, call.span, name, axis, body)


def _index(scope: Scope, place: Place, call: syntax.Call, signature: str) -> m.Axis:
    name, first = call.function.text, call.arguments[0].value
    if not isinstance(first, syntax.Name) or first.subscripts is not None:
        scope.problems.fail(WrongArity(first.span, name, "an index as its first argument", 2, signature))
    index = first.identifier
    if index.text in place.levels:
        advice, words = f"give the level another name than `{index.text}`", f"the first argument of `{name}`"
        other = call.arguments[-1].value
        if name in ("min", "max") and isinstance(other, syntax.Name) and other.identifier.text in place.levels:
            one, two, sign = index.text, other.identifier.text, "<" if name == "min" else ">"
            advice = f"of two levels, write which it is: `if {one} {sign} {two} then {one} else {two}`"
        scope.problems.fail(NotReadable(index.span, index.text, "the level of a point", words, advice))
    if scope.sort_of(index) != "index":
        advice = f"write `{signature}` with a declared index `q`"
        words = f"the first argument of `{name}`"
        scope.problems.fail(NotReadable(index.span, index.text, SORTS[scope.sorts[index.text]], words, advice))
    return scope.indices[index.text].axis if index.text in scope.indices else scope.problems.give_up()


def _reduced(scope: Scope, span: Span, name: str, axis: m.Axis, body: m.Expression) -> m.Expression:
    axes = tuple(each for each in body.axes if not m.same_axis(each, axis))
    inside = fact_of(scope, body)
    own = next(each for each in body.axes if m.same_axis(each, axis))
    fact = Fact(degree=inside.degree, terms=inside.terms + 1)
    return remember(scope, m.Reduction(span, axes, name, own, body), fact)


def _free(place: Place, axes: tuple[m.Axis, ...]) -> list[m.Axis]:
    """The axes along which an expression is a whole array here: those without a name, and those not on the left."""
    return [axis for axis in axes if axis.name is None or not (axis.name in place.bound or place.runs(axis.name))]


def _only_axis(scope: Scope, place: Place, name: str, body: m.Expression) -> m.Axis:
    free = _free(place, body.axes)
    if not free:
        bound = _listed(body.axes)
        why = f"varies along {bound} only, which is on the left side" if bound else "this is one number"
        remedy = f"write `{name}(q, ...)` with a declared index `q`, and something inside that varies along it"
        if bound:
            remedy = f"to run over all its values, write `{name}({body.axes[0].describe()}, {_text(scope, body)})`"
        scope.problems.fail(NothingToReduce(body.span, name, why, remedy))
    if len(free) > 1:
        remedy = _which(name, free, _text(scope, body))
        scope.problems.fail(SeveralToReduce(body.span, name, _listed(tuple(free), "or"), remedy))
    return free[0]


def _text(scope: Scope, *expressions: m.Expression) -> str:
    """What is written there, as factors of a product."""
    texts = [scope.quote(each.span).strip("`") for each in expressions]
    return "..." if "this" in texts else " * ".join(texts)


def _which(name: str, axes: list[m.Axis], body: str) -> str:
    named = [axis.name for axis in axes if axis.name is not None]
    if named:
        return f"say which: `{name}({named[0]}, {body})`"
    return f"declare an index for one of them, `index q in 1..{axes[0].describe()}`, and write `{name}(q, ...)`"


def _listed(axes: tuple[m.Axis, ...], word: str = "and") -> str:
    return f" {word} ".join(f"`{axis.describe()}`" for axis in axes)


def contraction(
    scope: Scope, place: Place, span: Span, operator: str, operands: tuple[m.Expression, ...]
) -> m.Expression:
    """`a @ b` and `dot(a, b)`: the sum of the products over the one axis that both have."""
    left, right = operands
    if has_unknown_axes(place, left) or has_unknown_axes(place, right):
        return unknown_reduction(scope, span, "sum", operation(scope, place, span, "*", operands))
    shared = [axis for axis in _free(place, left.axes) if contains(tuple(_free(place, right.axes)), axis)]
    if not shared:
        scope.problems.fail(_nothing_shared(scope, span, operator, left, right))
    if len(shared) > 1:
        remedy = _which("sum", shared, _text(scope, left, right))
        scope.problems.fail(SeveralShared(span, operator, _listed(tuple(shared)), remedy))
    product = operation(scope, replace(place, free=False), span, "*", operands)
    return _reduced(scope, span, "sum", shared[0], product)


def _nothing_shared(scope: Scope, span: Span, operator: str, left: m.Expression, right: m.Expression) -> NothingShared:
    words = (scope.quote(left.span), scope.quote(right.span))
    label = f"{words[0]} is {describe_axes(left.axes)}, {words[1]} is {describe_axes(right.axes)}"
    both = [axis.describe() for axis in left.axes if contains(right.axes, axis)]
    if not both:
        remedy = "multiply element by element with `*`, or give both an index to sum over: `a[q]` and `b[q]`"
        return NothingShared(span, operator, "and these have none in common", label, remedy)
    remedy = f"to sum over it all the same, write `sum({both[0]}, {_text(scope, left, right)})`"
    return NothingShared(span, operator, f"and the only one, `{both[0]}`, is on the left side", label, remedy)


def no_names(scope: Scope, call: syntax.Call, signature: str) -> None:
    """Refuse `exp(a = 2)`."""
    for each in call.arguments:
        if each.name is not None:
            scope.problems.fail(UnknownArgument(each.name.span, call.function.text, each.name.text, signature))
