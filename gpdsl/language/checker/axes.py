"""Axes: how types and brackets declare them, how operands unite them, and which ones the left side lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpdsl.language.checker.scope import SORTS, Scope
from gpdsl.language.errors.axes import AmbiguousAxis, NotASize
from gpdsl.language.errors.limits import SizeOutOfRange, TooManyElements
from gpdsl.language.errors.names import NotAnIndex
from gpdsl.language.limits import MAX_AXIS, MAX_ELEMENTS
from gpdsl.language.model import Axis, Expression, FunctionCall, parts, same_axis
from gpdsl.language.source import Span
from gpdsl.language.suggest import closest
from gpdsl.language.syntax import Identifier, Literal, Size


def whole_number(scope: Scope, literal: Literal) -> int:
    """The size a number stands for, from 1 to the limit."""
    value = literal.value
    if not isinstance(value, int) or not 1 <= value <= MAX_AXIS:
        scope.problems.fail(SizeOutOfRange(literal.span, literal.text[:20], MAX_AXIS))
    return value


def size_axis(scope: Scope, size: Size) -> Axis:
    """The axis of one entry of `real[...]`: a size, a declared index, or a letter that data bind."""
    if isinstance(size.value, Literal):
        return Axis(None, size=whole_number(scope, size.value))
    known = scope.sorts.get(size.value.text) == "index"
    return index_axis(scope, size.value) if known else free_axis(scope, size.value, None)


def free_axis(scope: Scope, letter: Identifier, name: str | None) -> Axis:
    """An axis whose size data bind; a declared name, or one much like an index, is a mistake instead."""
    if letter.text in scope.sorts:
        scope.problems.fail(NotASize(letter.span, letter.text, SORTS[scope.sorts[letter.text]]))
    likely = closest(letter.text, scope.indices) if len(letter.text) > 2 else ""
    if likely:
        scope.problems.fail(NotAnIndex(letter.span, letter.text, scope.index_advice(letter.text), likely))
    return Axis(name, dimension=letter.text)


def index_axis(scope: Scope, name: Identifier) -> Axis:
    """The axis of an index named in brackets."""
    if name.text in scope.indices:
        return scope.indices[name.text].axis
    if name.text not in scope.lost:
        suggestion = scope.problems.suggest(name.text, scope.indices)
        scope.problems.add(NotAnIndex(name.span, name.text, scope.index_advice(name.text), suggestion))
    return scope.problems.give_up()


def declared_axes(
    scope: Scope, name: Identifier, indices: Iterable[Identifier], sizes: Iterable[Size]
) -> tuple[Axis, ...]:
    """All axes of a declaration, named ones first; they must differ, and not multiply to too much."""
    axes = tuple(index_axis(scope, each) for each in indices) + tuple(size_axis(scope, each) for each in sizes)
    check_distinct(scope, name.text, name.span, axes)
    elements = 1
    for axis in axes:
        elements *= axis.size or 1
    if elements > MAX_ELEMENTS:
        scope.problems.fail(TooManyElements(name.span, name.text, elements, MAX_ELEMENTS))
    return axes


def check_distinct(scope: Scope, name: str, span: Span, axes: tuple[Axis, ...]) -> None:
    """Axes of one quantity must be told apart by name or size."""
    for position, axis in enumerate(axes):
        if any(same_axis(axis, other) for other in axes[:position]):
            scope.problems.fail(AmbiguousAxis(span, name, axis.describe(), str(axis.size or axis.dimension)))


def unite(left: tuple[Axis, ...], right: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes of an elementwise operation; a bare size that meets an index takes its name."""
    united = list(left)
    for axis in right:
        match = next((k for k, other in enumerate(united) if same_axis(axis, other)), None)
        if match is None:
            united.append(axis)
        elif united[match].name is None:
            united[match] = axis
    return tuple(united)


def contains(axes: tuple[Axis, ...], axis: Axis) -> bool:
    """Whether an axis is among others."""
    return any(same_axis(axis, other) for other in axes)


def carrier(expression: Expression, axis: Axis) -> Expression:
    """The smallest part of an expression that has an axis: what an error about it points at."""
    if isinstance(expression, FunctionCall):
        # The formula stands elsewhere in the text: of a call, its arguments or the whole of it can be pointed at.
        argument = next((each for each in expression.arguments if contains(each.axes, axis)), None)
        return expression if argument is None or argument.span == expression.span else carrier(argument, axis)
    inner = next((part for part in parts(expression) if contains(part.axes, axis)), None)
    return expression if inner is None else carrier(inner, axis)


def replace_index(text: str, old: str, new: str) -> str:
    """`latent depth[p](s)` with the index `p` replaced inside its brackets."""
    return re.sub(r"\[[^\[\]]*\]", lambda found: re.sub(rf"\b{re.escape(old)}\b", new, found.group()), text, count=1)
