"""Sums, products and the like over an index or over the only axis there is, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpdsl.language import syntax
from gpdsl.language.checker.axes import contains
from gpdsl.language.checker.build import fact_of, operation, remember
from gpdsl.language.checker.facts import Fact
from gpdsl.language.checker.passed import has_unknown_axes, unknown_reduction
from gpdsl.language.checker.place import IndexRange, Place
from gpdsl.language.checker.scope import SORTS, Scope, describe_axes
from gpdsl.language.errors.axes import PointlessReduction
from gpdsl.language.errors.calls import UnknownArgument, WrongArity
from gpdsl.language.errors.names import NotReadable
from gpdsl.language.errors.reductions import NothingShared, NothingToReduce, SeveralShared, SeveralToReduce
from gpdsl.language.model import Axis, Expression, Reduction, same_axis
from gpdsl.language.source import Span

Check = Callable[[Scope, Place, syntax.Formula], Expression]


def reduction(scope: Scope, place: Place, call: syntax.Call, check: Check) -> Expression:
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
    axis = _index(scope, call, signature)
    inner = replace(place, bound={**place.bound, axis.name or "": IndexRange.of(axis)})
    body = check(scope, inner, call.arguments[1].value)
    if has_unknown_axes(place, body) and not contains(body.axes, axis):
        return unknown_reduction(scope, call.span, name, body)
    if not contains(body.axes, axis):
        scope.problems.fail(PointlessReduction(body.span, name, axis.describe()))
    return _reduced(scope, call.span, name, axis, body)


def _index(scope: Scope, call: syntax.Call, signature: str) -> Axis:
    name, first = call.function.text, call.arguments[0].value
    if not isinstance(first, syntax.Name) or first.subscripts is not None:
        scope.problems.fail(WrongArity(first.span, name, "an index as its first argument", 2, signature))
    index = first.identifier
    if scope.sort_of(index) != "index":
        advice = f"write `{signature}` with a declared index `q`"
        words = f"the first argument of `{name}`"
        scope.problems.fail(NotReadable(index.span, index.text, SORTS[scope.sorts[index.text]], words, advice))
    return scope.indices[index.text].axis if index.text in scope.indices else scope.problems.give_up()


def _reduced(scope: Scope, span: Span, name: str, axis: Axis, body: Expression) -> Expression:
    axes = tuple(each for each in body.axes if not same_axis(each, axis))
    inside = fact_of(scope, body)
    own = next(each for each in body.axes if same_axis(each, axis))
    fact = Fact(degree=inside.degree, terms=inside.terms + 1)
    return remember(scope, Reduction(span, axes, name, own, body), fact)


def _free(place: Place, axes: tuple[Axis, ...]) -> list[Axis]:
    """The axes along which an expression is a whole array here: those without a name, and those not on the left."""
    return [axis for axis in axes if axis.name is None or not (axis.name in place.bound or place.runs(axis.name))]


def _only_axis(scope: Scope, place: Place, name: str, body: Expression) -> Axis:
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


def _text(scope: Scope, *expressions: Expression) -> str:
    """What is written there, as factors of a product."""
    texts = [scope.quote(each.span).strip("`") for each in expressions]
    return "..." if "this" in texts else " * ".join(texts)


def _which(name: str, axes: list[Axis], body: str) -> str:
    named = [axis.name for axis in axes if axis.name is not None]
    if named:
        return f"say which: `{name}({named[0]}, {body})`"
    return f"declare an index for one of them, `index q in 1..{axes[0].describe()}`, and write `{name}(q, ...)`"


def _listed(axes: tuple[Axis, ...], word: str = "and") -> str:
    return f" {word} ".join(f"`{axis.describe()}`" for axis in axes)


def contraction(scope: Scope, place: Place, span: Span, operator: str, operands: tuple[Expression, ...]) -> Expression:
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


def _nothing_shared(scope: Scope, span: Span, operator: str, left: Expression, right: Expression) -> NothingShared:
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
