"""The right side against the left: every axis of a value must be on the left side."""

from __future__ import annotations

from gpdsl.language.checker.axes import carrier, contains
from gpdsl.language.checker.place import Left
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.axes import AxisNotOnLeft
from gpdsl.language.model import Axis, Expression


def require_axes(scope: Scope, left: Left, expression: Expression, allowed: tuple[Axis, ...]) -> None:
    """Report the first axis of a value that is not allowed, at the smallest part that has it."""
    for axis in expression.axes:
        if not contains(allowed, axis):
            source = carrier(expression, axis)
            mistake = AxisNotOnLeft(
                source.span, scope.quote(source.span), axis.describe(), f"`{left.text}`", left.lacks(axis)
            )
            scope.problems.fail(mistake)
