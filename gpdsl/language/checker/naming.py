"""A bare size that meets an index of the same size takes its name: `x * h[p]` with `x : real[4]`, `index p in 1..4`."""

from __future__ import annotations

from dataclasses import replace

from gpdsl.language.checker.scope import Scope
from gpdsl.language.model import (
    Axis,
    Expression,
    ExternalCall,
    FunctionCall,
    IndexValue,
    Local,
    Operation,
    Read,
    Reduction,
    Slice,
    Subscript,
    Whole,
    same_axis,
)


def take_names(scope: Scope, expression: Expression, axes: tuple[Axis, ...]) -> Expression:
    """The expression with each of its bare axes read along the index among `axes` that it matches, if there is one."""
    for bare in [axis for axis in expression.axes if axis.name is None]:
        index = next((axis for axis in axes if axis.name is not None and same_axis(axis, bare)), None)
        if index is not None and index.name not in [axis.name for axis in expression.axes]:
            expression = _along(scope, expression, bare, index)
    return expression


def _along(scope: Scope, expression: Expression, bare: Axis, index: Axis) -> Expression:
    if bare not in expression.axes:
        return expression
    axes = tuple(index if axis == bare else axis for axis in expression.axes)
    changed: Expression
    match expression:
        case Read(subscripts=subscripts) | Local(subscripts=subscripts):
            moved = tuple(_subscript(each, bare, index) for each in subscripts)
            changed = replace(expression, axes=axes, subscripts=moved)
        case Operation(operands=operands):
            inside = tuple(_along(scope, each, bare, index) for each in operands)
            changed = replace(expression, axes=axes, operands=inside)
        case Reduction(body=body):
            changed = replace(expression, axes=axes, body=_along(scope, body, bare, index))
        case FunctionCall(arguments=arguments, body=body):
            given = tuple(_along(scope, each, bare, index) for each in arguments)
            changed = replace(expression, axes=axes, arguments=given, body=_along(scope, body, bare, index))
        case ExternalCall():
            changed = replace(expression, axes=axes)
        case _:
            return expression
    if id(expression) in scope.facts:
        scope.facts[id(changed)] = (changed, scope.facts[id(expression)][1])
    return changed


def _subscript(subscript: Subscript, bare: Axis, index: Axis) -> Subscript:
    match subscript:
        case Whole(axis=axis) if axis == bare:
            return IndexValue(index.name or "")
        case Slice(axis=axis, start=start) if axis == bare:
            return IndexValue(index.name or "", start - 1)
    return subscript
