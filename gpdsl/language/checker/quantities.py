"""Declarations of known and estimated quantities: index, input, output, const, param."""

from __future__ import annotations

import math
from dataclasses import replace

from gpdsl.language import syntax
from gpdsl.language.checker.axes import check_distinct, declared_axes, free_axis, index_axis, whole_number
from gpdsl.language.checker.constraints import (
    check_axes,
    check_bounds,
    check_initial,
    default_initial,
    refuse_bounds,
    time_unit,
)
from gpdsl.language.checker.fields import is_lattice
from gpdsl.language.checker.scope import Scope
from gpdsl.language.checker.values import check_shape, evaluate_value, shape_of
from gpdsl.language.errors.axes import BadLevels, LabelNeedsIndex, RangeStart
from gpdsl.language.errors.calls import UnknownType
from gpdsl.language.errors.groups import SeveralLabels
from gpdsl.language.errors.limits import NotFinite, SizeOutOfRange
from gpdsl.language.habits import TYPES
from gpdsl.language.limits import MAX_AXIS
from gpdsl.language.model import Axis, Const, Index, Input, Output, Param
from gpdsl.language.vocabulary import CONSTRAINTS, INPUT_KINDS, OUTPUT_KINDS


def check_index(scope: Scope, statement: syntax.IndexStatement) -> None:
    """`index p in 1..4`, `index c in {4, 7, 9}`."""
    name = statement.name
    if statement.start is None or statement.stop is None:
        levels = _levels(scope, statement)
        axis = Axis(name.text, size=len(levels))
        scope.indices[name.text] = Index(name.text, name.span, axis, levels)
        return
    if statement.start.value != 1:
        scope.problems.fail(RangeStart(statement.start.span, statement.start.text[:20]))
    stop = statement.stop.value
    if isinstance(stop, syntax.Literal):
        axis = Axis(name.text, size=whole_number(scope, stop))
    else:
        axis = free_axis(scope, stop, name.text)
    scope.indices[name.text] = Index(name.text, name.span, axis)


def _levels(scope: Scope, statement: syntax.IndexStatement) -> tuple[int | float | str, ...]:
    seen: set[int | float | str] = set()
    first_is_text = isinstance(statement.levels[0][0], str)
    if len(statement.levels) > MAX_AXIS:
        scope.problems.fail(SizeOutOfRange(statement.levels[MAX_AXIS][1], str(len(statement.levels)), MAX_AXIS))
    for level, span in statement.levels:
        shown = f'"{level}"' if isinstance(level, str) else str(level)
        if isinstance(level, float) and not math.isfinite(level):
            scope.problems.fail(NotFinite(span, scope.quote(span).strip("`")))
        if level in seen:
            scope.problems.fail(BadLevels(span, shown, "is listed twice"))
        if isinstance(level, str) != first_is_text:
            scope.problems.fail(BadLevels(span, shown, "is of another sort than the first"))
        seen.add(level)
    return tuple(level for level, _ in statement.levels)


def _word(scope: Scope, kind: syntax.Type, statement: str, known: tuple[str, ...]) -> str:
    word = kind.word
    if word.text not in known:
        shown = ", ".join(f"`{each}`" for each in known)
        habit = TYPES.get(word.text.lower(), "")
        suggestion = habit if habit in known else scope.problems.suggest(word.text, known)
        scope.problems.fail(
            UnknownType(
                word.span,
                word.text[:30],
                f"an {statement}" if statement[0] in "aeio" else f"a {statement}",
                shown,
                suggestion,
            )
        )
    return word.text


def check_input(scope: Scope, statement: syntax.InputStatement) -> None:
    """`input x : real[13]`, `input t : time(per = hour)`."""
    kind = _word(scope, statement.type, "input", INPUT_KINDS)
    unit = time_unit(scope, statement.type) if kind == "time" else ""
    if not unit:
        refuse_bounds(scope, statement.type, "an input")
    name, label = statement.declared.name, None
    if kind == "label":
        label = _label(scope, "input", name, statement.type)
        if statement.declared.indices:
            scope.problems.fail(SeveralLabels(name.span, name.text))
        scope.labels.setdefault(label.name or "", name.text)
    sizes = statement.type.sizes if label is None else ()
    axes = declared_axes(scope, name, statement.declared.indices, sizes)
    scope.inputs[name.text] = Input(name.text, name.span, axes, kind, unit, label)


def check_output(scope: Scope, statement: syntax.OutputStatement) -> None:
    """`output y[p] : count`, `output y : label[c]`, `output y : ordinal[c]`."""
    kind = _word(scope, statement.type, "output", OUTPUT_KINDS)
    refuse_bounds(scope, statement.type, "an output")
    name, sizes, label = statement.declared.name, statement.type.sizes, None
    if kind in ("label", "ordinal"):
        label, sizes = _label(scope, "output", name, statement.type), ()
    axes = declared_axes(scope, name, statement.declared.indices, sizes)
    scope.outputs[name.text] = Output(name.text, name.span, kind, axes, label)


def _label(scope: Scope, word: str, name: syntax.Identifier, kind: syntax.Type) -> Axis:
    """The axis of the levels in `label[c]`."""
    if len(kind.sizes) != 1 or not isinstance(kind.sizes[0].value, syntax.Identifier):
        scope.problems.fail(LabelNeedsIndex(kind.span, word, name.text, kind.word.text))
    return index_axis(scope, kind.sizes[0].value)


def check_const(scope: Scope, statement: syntax.ConstStatement) -> None:
    """`const a[p] = [1, 2]`; without an index, a list gets an axis of its own length."""
    name, formula = statement.declared.name, statement.value
    axes = declared_axes(scope, name, statement.declared.indices, ())
    values = evaluate_value(scope, formula, name.text)
    if is_lattice(formula) and len(axes) == 1 and isinstance(values, tuple) and isinstance(values[0], tuple):
        axes = (*axes, Axis(None, size=len(values[0])))
    if not statement.declared.indices:
        axes = tuple(Axis(None, size=size) for size in shape_of(scope, formula, values, name.text))
        _distinct(scope, name, axes)
    check_shape(scope, formula, values, name.text, axes)
    scope.consts[name.text] = Const(name.text, name.span, axes, values)


def _distinct(scope: Scope, name: syntax.Identifier, axes: tuple[Axis, ...]) -> None:
    for axis in axes:
        if axis.size is not None and axis.size > MAX_AXIS:
            scope.problems.fail(SizeOutOfRange(name.span, str(axis.size), MAX_AXIS))
    check_distinct(scope, name.text, name.span, axes)


def check_param(scope: Scope, statement: syntax.ParamStatement) -> None:
    """`param sigma[p] : positive = 0.1 fixed`; its prior is checked once every name is known."""
    constraint = _word(scope, statement.type, "parameter", tuple(CONSTRAINTS))
    name = statement.declared.name
    axes = declared_axes(scope, name, statement.declared.indices, statement.type.sizes)
    check_axes(scope, name.text, statement.type, axes)
    lower, upper = check_bounds(scope, name.text, statement.type)
    initial: float | tuple = default_initial(constraint, lower, upper)
    given = statement.value is not None
    param = Param(name.text, name.span, constraint, axes, initial, statement.fixed, None, lower, upper, given)
    if statement.value is not None:
        param = replace(param, initial=initial_value(scope, statement.value, param))
    scope.params[name.text] = param


def initial_value(scope: Scope, formula: syntax.Formula, param: Param) -> float | tuple:
    """The value at which a parameter starts: of its type and shape, and inside its bounds."""
    domain = {"simplex": "unit", **dict.fromkeys(("ordered", "correlation_factor"), "real")}
    value = evaluate_value(scope, formula, param.name, domain.get(param.constraint, param.constraint))
    check_shape(scope, formula, value, param.name, param.axes)
    check_initial(scope, formula, replace(param, initial=value))
    return value
