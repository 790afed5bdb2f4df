"""Axes: how types and brackets declare them, how operands unite them, and which ones the left side lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpdsl.language import model as m, syntax
from gpdsl.language.checker.scope import SORTS, Place, Scope
from gpdsl.language.errors import axes as wrong
from gpdsl.language.errors.definitions import BadSlice
from gpdsl.language.errors.functionals import NotALabel
from gpdsl.language.errors.limits import SizeOutOfRange, TooManyElements
from gpdsl.language.errors.names import NotAnIndex, SliceNotHere
from gpdsl.language.habits import SUBSCRIPT_OF_A_ROW
from gpdsl.language.syntax import Identifier, Literal, Size
from gpdsl.language.vocabulary import MAX_AXIS, MAX_ELEMENTS, Span, closest


def whole_number(scope: Scope, literal: Literal) -> int:
    """The size a number stands for, from 1 to the limit."""
    value = literal.value
    if not isinstance(value, int) or not 1 <= value <= MAX_AXIS:
        scope.problems.fail(SizeOutOfRange(literal.span, literal.text[:20], MAX_AXIS))
    return value


def size_axis(scope: Scope, size: Size) -> m.Axis:
    """The axis of one entry of `real[...]`: a size, a declared index, or a letter that data bind."""
    if isinstance(size.value, Literal):
        return m.Axis(None, size=whole_number(scope, size.value))
    known = scope.sorts.get(size.value.text) == "index"
    return index_axis(scope, size.value) if known else free_axis(scope, size.value, None)


def free_axis(scope: Scope, letter: Identifier, name: str | None) -> m.Axis:
    """An axis whose size data bind; a declared name, or one much like an index, is a mistake instead."""
    if letter.text in scope.sorts:
        scope.problems.fail(wrong.NotASize(letter.span, letter.text, SORTS[scope.sorts[letter.text]]))
    likely = closest(letter.text, scope.indices) if len(letter.text) > 2 else ""
    if likely:
        scope.problems.fail(NotAnIndex(letter.span, letter.text, _index_advice(scope, letter.text), likely))
    return m.Axis(name, dimension=letter.text)


def index_axis(scope: Scope, name: Identifier) -> m.Axis:
    """The axis of an index named in brackets."""
    if name.text in scope.indices:
        return scope.indices[name.text].axis
    if name.text not in scope.lost:
        suggestion = scope.problems.suggest(name.text, scope.indices)
        scope.problems.add(NotAnIndex(name.span, name.text, _index_advice(scope, name.text), suggestion))
    return scope.problems.give_up()


def _index_advice(scope: Scope, name: str) -> str:
    """How a name becomes an index, with the ones there are; levels of a column are those of an index of its own."""
    if scope.sorts.get(name) == "input":
        free = next((each for each in "sgckl" if each not in scope.sorts), f"{name}s")
        return (
            f"levels of a column have an index of its own: `index {free} in 1..{free.upper()}`, "
            f"`input {name} : label[{free}]`, `param a[{free}] : real`; `a[{name}]` reads that of the row"
        )
    shown = ", ".join(f"`{each}`" for each in list(scope.indices)[:5])
    sized = [each for each in scope.sorts if name in {axis.dimension for axis in scope.axes_of(each) or ()}]
    if sized:
        free = next((each for each in (name.lower(), *"dkpqj") if each not in {name, *scope.sorts}), f"{name}s")
        return (
            f"`{name}` is a size, that of `{sized[0]}`, and a size follows the type: `param a : real[{name}]`; "
            f"an index of this size is declared by `index {free} in 1..{name}`"
        )
    wide = {each: of.axes[0].size for each, of in scope.inputs.items() if len(of.axes) == 1 and of.axes[0].size}
    for each, width in wide.items() if name == name.upper() else ():
        return f"one for each column of `{each}` is `param a : real[{width}]`; an index is `index k in 1..{width}`"
    size = name.upper()
    free = f"`index {name} in 1..{size}`, whose size the data say, or " * (size not in {name, *scope.sorts})
    return f"declare it: {free}`index {name} in 1..4`" + (f"; declared are {shown}" if shown else "")


def declared_axes(
    scope: Scope, name: Identifier, indices: Iterable[Identifier], sizes: Iterable[Size]
) -> tuple[m.Axis, ...]:
    """All axes of a declaration, named ones first; they must differ, and not multiply to too much."""
    axes = tuple(index_axis(scope, each) for each in indices) + tuple(size_axis(scope, each) for each in sizes)
    check_distinct(scope, name.text, name.span, axes)
    elements = 1
    for axis in axes:
        elements *= axis.size or 1
    if elements > MAX_ELEMENTS:
        scope.problems.fail(TooManyElements(name.span, name.text, elements, MAX_ELEMENTS))
    return axes


def check_distinct(scope: Scope, name: str, span: Span, axes: tuple[m.Axis, ...]) -> None:
    """Axes of one quantity must be told apart by name or size."""
    for position, axis in enumerate(axes):
        if any(m.same_axis(axis, other) for other in axes[:position]):
            scope.problems.fail(wrong.AmbiguousAxis(span, name, axis.describe(), str(axis.size or axis.dimension)))


def unite(left: tuple[m.Axis, ...], right: tuple[m.Axis, ...]) -> tuple[m.Axis, ...]:
    """The axes of an elementwise operation; a bare size that meets an index takes its name."""
    united = list(left)
    for axis in right:
        match = next((k for k, other in enumerate(united) if m.same_axis(axis, other)), None)
        if match is None:
            united.append(axis)
        elif united[match].name is None:
            united[match] = axis
    return tuple(united)


def contains(axes: tuple[m.Axis, ...], axis: m.Axis) -> bool:
    """Whether an axis is among others."""
    return any(m.same_axis(axis, other) for other in axes)


def carrier(expression: m.Expression, axis: m.Axis) -> m.Expression:
    """The smallest part of an expression that has an axis: what an error about it points at."""
    if isinstance(expression, m.FunctionCall):
        # The formula stands elsewhere in the text: of a call, its arguments or the whole of it can be pointed at.
        argument = next((each for each in expression.arguments if contains(each.axes, axis)), None)
        return expression if argument is None or argument.span == expression.span else carrier(argument, axis)
    inner = next((part for part in m.parts(expression) if contains(part.axes, axis)), None)
    return expression if inner is None else carrier(inner, axis)


def replace_index(text: str, old: str, new: str) -> str:
    """`latent depth[p](s)` with the index `p` replaced inside its brackets."""
    return re.sub(r"\[[^\[\]]*\]", lambda found: re.sub(rf"\b{re.escape(old)}\b", new, found.group()), text, count=1)


# Subscripts of a name that is read: which axis each one runs along, and whether it stays in range.


def all_elements(span: Span, name: str, axes: tuple[m.Axis, ...], functional: m.Functional = m.VALUE) -> m.Read:
    """All elements of a quantity."""
    chosen = tuple(m.IndexValue(axis.name) if axis.name is not None else m.Whole(axis) for axis in axes)
    return m.Read(span, axes, name, chosen, functional)


def read(scope: Scope, place: Place, name: syntax.Name, axes: tuple[m.Axis, ...]) -> m.Read:
    """A quantity with declared `axes`, one subscript per axis; without subscripts, every element."""
    text = name.identifier.text
    if name.subscripts is None:
        return all_elements(name.span, text, axes)
    given = _explicit(scope, place, name, axes)
    # Trailing axes without a name may be left out: `ell[p]` of `param ell[p] : positive[D]` is still a vector.
    subscripts: tuple[m.Subscript, ...] = (*given, *(m.Whole(axis) for axis in axes[len(given) :]))
    kept = tuple(_axis(scope, subscript) for subscript in subscripts)
    varying = tuple(axis for axis in kept if axis is not None)
    check_distinct(scope, text, name.span, varying)
    return m.Read(name.span, varying, text, subscripts)


def _axis(scope: Scope, subscript: m.Subscript) -> m.Axis | None:
    match subscript:
        case m.IndexValue(index=index):
            return scope.indices[index].axis
        case m.Whole(axis=axis) | m.Slice(axis=axis):
            return axis
        case _:
            return None


def _of_one_number(scope: Scope, name: str, written: Sequence[syntax.Subscript]) -> str:
    """What to do about subscripts of a name without axes: to declare the axis, or to leave out the number of a row."""
    value = written[0].value
    word = value.identifier.text if isinstance(value, syntax.Name) else ""
    axis = scope.inputs[word].label if word in scope.inputs else None
    index = word if word in scope.indices else str(axis.name) if axis else ""
    if index:
        return f"give `{name}` that axis where it is declared, `{name}[{index}]`, or leave out the subscript"
    if name in scope.params and scope.params[name].axes:  # in the definition of a kernel
        return (
            f"in a kernel, divide all columns at once, `norm((a - b) / {name})`, or name numbers, `{name}1`, `{name}2`"
        )
    rows = scope.sorts.get(name) in ("input", "output", "latent", "row")
    return SUBSCRIPT_OF_A_ROW.format(name=name) if rows else ""


def _explicit(scope: Scope, place: Place, name: syntax.Name, axes: tuple[m.Axis, ...]) -> list[m.Subscript]:
    written = name.subscripts or ()
    named = len(axes)
    while named and axes[named - 1].name is None:
        named -= 1
    if len(written) > len(axes) or len(written) < max(named, min(1, len(axes))):
        expected = {0: "no axes", 1: "1 axis"}.get(len(axes), f"{len(axes)} axes")
        span = Span(
            written[0].span.line, written[0].span.column, written[-1].span.end_line, written[-1].span.end_column
        )
        text, habit = name.identifier.text, ""
        if text in scope.params and len(written) == len(axes) - 1 and axes[-1].size is not None:
            left = ", ".join(str(axis.name) for axis in axes[:-1])
            declared = f"`{text}[{left}] : {scope.params[text].constraint}[{axes[-1].size}]`"
            habit = (
                f"write one subscript per axis, or none for all; of a plain size, as in {declared}, it may be left out"
            )
        elif not axes:
            habit = _of_one_number(scope, text, written)
        scope.problems.fail(wrong.SubscriptCount(span, text, expected, len(written), habit))
    chosen = []
    for subscript, axis in zip(written, axes, strict=False):
        chosen.append(_one(scope, place, name.identifier.text, subscript, axis))
    return chosen


def _one(scope: Scope, place: Place, name: str, subscript: syntax.Subscript, axis: m.Axis) -> m.Subscript:
    if subscript.stop is not None:
        return _slice(scope, name, subscript, subscript.stop, axis)
    if (level := _level(scope, place, name, subscript, axis)) is not None:
        return level
    _refuse_column(scope, name, subscript, axis)
    index, offset = subscript_parts(scope, subscript)
    if subscript.comparison is not None:
        scope.problems.fail(wrong.BadSubscript(subscript.span))
    if index is None:
        if offset < 1 or (axis.size is not None and offset > axis.size):
            why = f"the elements along this axis are 1..{axis.size or axis.dimension}"
            remedy = f"use a number from 1 to {axis.size or axis.dimension}"
            element = f"{name}[{scope.quote(subscript.span).strip('`')}]"
            scope.problems.fail(wrong.SubscriptOutOfRange(subscript.span, name, element, why, remedy))
        return m.Fixed(offset)
    _check_index(scope, place, name, index, axis)
    check_shift(scope, place, name, subscript.span, m.IndexValue(index.text, offset))
    return m.IndexValue(index.text, offset)


def _level(scope: Scope, place: Place, name: str, subscript: syntax.Subscript, axis: m.Axis) -> m.Level | None:
    """`width[d]` in the definition of `kernel k[d, e](a, b; width)`."""
    value = subscript.value.left if isinstance(subscript.value, syntax.Binary) else subscript.value
    given = value.identifier.text if isinstance(value, syntax.Name) else ""
    if given not in place.levels:
        return None
    if value is not subscript.value or subscript.comparison is not None:
        scope.problems.fail(wrong.BadSubscript(subscript.span))
    level = place.levels[given]
    if level is not None and not alike(level, axis):
        own, told = axis.describe(), f"`{given}` is a level of `{level.describe()}` where the kernel is called"
        remedy = f"call it for a latent over `{own}`, or read what is indexed by `{level.describe()}`"
        scope.problems.fail(wrong.WrongIndex(subscript.span, name, own, given, told, remedy))
    return m.Level(given)


def alike(level: m.Axis, axis: m.Axis) -> bool:
    """Whether every level of an index numbers an element of an axis: of its own, or of one that is as long."""
    return m.same_axis(level, axis) or (level.size, level.dimension) == (axis.size, axis.dimension)


def _refuse_column(scope: Scope, name: str, subscript: syntax.Subscript, axis: m.Axis) -> None:
    """`a[site]` where `site` is an input of numbers."""
    given = subscript.value.identifier.text if isinstance(subscript.value, syntax.Name) else ""
    if given in scope.inputs:
        index, kind = axis.describe(), scope.inputs[given].kind
        remedy = f"where it holds groups, declare it a label: `input {given} : label[{index}]`"
        if axis.name is None:
            remedy = f"give `{name}` an index, `index s in 1..S`, and declare `input {given} : label[s]`"
        what = f"an input of numbers (`{kind}`)"
        scope.problems.fail(NotALabel(subscript.span, name, given, what, index, remedy))


def _slice(scope: Scope, name: str, subscript: syntax.Subscript, last: syntax.Literal, axis: m.Axis) -> m.Subscript:
    first = subscript.value.value if isinstance(subscript.value, syntax.Literal) else None
    stop = last.value
    end = f"{axis.size or axis.dimension}"
    if not isinstance(first, int) or not isinstance(stop, int) or not 1 <= first <= stop <= MAX_AXIS:
        why = f"a range of elements goes up, from one whole number to another below {MAX_AXIS + 1}"
        scope.problems.fail(BadSlice(subscript.span, why, f"write `{name}[1..{end}]`"))
    if axis.size is not None and stop > axis.size:
        why = f"`{name}` has the elements 1..{end} along this axis, not up to {stop}"
        scope.problems.fail(BadSlice(subscript.span, why, f"end the range at {end} or before"))
    return m.Fixed(first) if first == stop else m.Slice(m.Axis(None, size=stop - first + 1), first)


def subscript_parts(scope: Scope, subscript: syntax.Subscript) -> tuple[syntax.Identifier | None, int]:
    """The index and the shift of `p - 1`, or None and the number of `2`."""
    if subscript.stop is not None:
        scope.problems.fail(SliceNotHere(subscript.span))
    match subscript.value:
        case syntax.Literal(value=int(value)):
            return None, value
        case syntax.Name(subscripts=None, identifier=index):
            return _known(scope, index), 0
        case syntax.Binary(
            operator="+" | "-" as sign,
            left=syntax.Name(subscripts=None, identifier=index),
            right=syntax.Literal(value=int(value)),
        ):
            return _known(scope, index), value if sign == "+" else -value
    return scope.problems.fail(wrong.BadSubscript(subscript.span))


def _known(scope: Scope, index: syntax.Identifier) -> syntax.Identifier:
    if index.text in scope.lost:
        scope.problems.give_up()
    if index.text not in scope.indices:
        suggestion = scope.problems.suggest(index.text, scope.indices)
        scope.problems.fail(NotAnIndex(index.span, index.text, _index_advice(scope, index.text), suggestion))
    return index


def _check_index(scope: Scope, place: Place, name: str, index: syntax.Identifier, axis: m.Axis) -> None:
    used = scope.indices[index.text].axis
    if not m.same_axis(used, axis):
        told, remedy = scope.describe_index(index.text), _wrong_index_remedy(place, name, index, axis)
        scope.problems.fail(wrong.WrongIndex(index.span, name, axis.describe(), index.text, told, remedy))
    if index.text not in place.bound:
        if place.whole:
            scope.problems.fail(wrong.WholeNeeded(index.span, name))
        remedy = place.left.lacks(used)
        if place.free:
            remedy = f"write `let {place.left.name}[{index.text}] = ...`, or `{name}` without subscripts"
        scope.problems.fail(wrong.IndexNotBound(index.span, index.text, scope.describe_index(index.text), remedy))


def _wrong_index_remedy(place: Place, name: str, index: syntax.Identifier, axis: m.Axis) -> str:
    left = place.left
    if axis.name is None:
        return f"use a number from 1 to {axis.describe()}, or an index that is declared as 1..{axis.describe()}"
    if index.text in left.indices and axis.name not in left.indices:
        verb = "write" if left.sort in ("observation", "let") else "declare"
        return f"{verb} `{replace_index(left.text, index.text, axis.name)}`"
    if axis.name in place.bound:
        return f"write `{name}[{axis.name}]`"
    return f"take an element by number, or index by `{axis.name}` on both sides"


def _restricted(place: Place, limit: str) -> str:
    """The statement for some values of an index alone."""
    name = place.left.name
    return f"`{name}[{limit}] ~ ...`" if place.left.sort == "observation" else f"`let {name}[{limit}] = ...`"


def check_shift(scope: Scope, place: Place, name: str, span: Span, subscript: m.IndexValue) -> None:
    """An index moved by a number must stay in range wherever it runs at this place."""
    index, offset = subscript.index, subscript.offset
    reach, size = place.bound[index], scope.indices[index].axis.size
    shown = f"{name}[{index} {'+' if offset > 0 else '-'} {abs(offset)}]"
    if offset < 0 and reach.low + offset < 1:
        why = f"`{index}` starts at {reach.low} here"
        remedy = f"restrict it on the left, {_restricted(place, f'{index} > {-offset}')}, and say what the rest is"
        scope.problems.fail(wrong.SubscriptOutOfRange(span, name, shown, why, remedy))
    if offset > 0 and (reach.high is None or size is None or reach.high + offset > size):
        end = str(reach.high) if reach.high is not None else f"the size that data give `{index}`"
        limit = f"{index} < {size - offset + 1}" if size is not None else f"{index} > {offset}"
        condition = _restricted(place, limit)
        remedy = (
            f"restrict it on the left, {condition}, and say what the rest is"
            if size is not None
            else f"count backwards instead, with a condition: {condition}"
        )
        scope.problems.fail(wrong.SubscriptOutOfRange(span, name, shown, f"`{index}` goes up to {end} here", remedy))


# A bare size that meets an index of the same size takes its name: `x * h[p]` with `x : real[4]`, `index p in 1..4`.


def take_names(scope: Scope, expression: m.Expression, axes: tuple[m.Axis, ...]) -> m.Expression:
    """The expression with each of its bare axes read along the index among `axes` that it matches, if there is one."""
    for bare in [axis for axis in expression.axes if axis.name is None]:
        index = next((axis for axis in axes if axis.name is not None and m.same_axis(axis, bare)), None)
        if index is not None and index.name not in [axis.name for axis in expression.axes]:
            expression = _along(scope, expression, bare, index)
    return expression


def _along(scope: Scope, expression: m.Expression, bare: m.Axis, index: m.Axis) -> m.Expression:
    if bare not in expression.axes:
        return expression
    axes = tuple(index if axis == bare else axis for axis in expression.axes)
    changed: m.Expression
    match expression:
        case m.Read(subscripts=subscripts) | m.Local(subscripts=subscripts):
            moved = tuple(_subscript(each, bare, index) for each in subscripts)
            changed = replace(expression, axes=axes, subscripts=moved)
        case m.Operation(operands=operands):
            inside = tuple(_along(scope, each, bare, index) for each in operands)
            changed = replace(expression, axes=axes, operands=inside)
        case m.Reduction(body=body):
            changed = replace(expression, axes=axes, body=_along(scope, body, bare, index))
        case m.FunctionCall(arguments=arguments, body=body):
            given = tuple(_along(scope, each, bare, index) for each in arguments)
            changed = replace(expression, axes=axes, arguments=given, body=_along(scope, body, bare, index))
        case m.ExternalCall():
            changed = replace(expression, axes=axes)
        case _:
            return expression
    if id(expression) in scope.facts:
        scope.facts[id(changed)] = (changed, scope.facts[id(expression)][1])
    return changed


def _subscript(subscript: m.Subscript, bare: m.Axis, index: m.Axis) -> m.Subscript:
    match subscript:
        case m.Whole(axis=axis) if axis == bare:
            return m.IndexValue(index.name or "")
        case m.Slice(axis=axis, start=start) if axis == bare:
            return m.IndexValue(index.name or "", start - 1)
    return subscript
