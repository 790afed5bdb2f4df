"""`MultivariateNormal`: the elements of one output together, with a covariance matrix or a factor of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpdsl.language import syntax
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.fit_left import require_axes
from gpdsl.language.checker.place import IndexRange, Place
from gpdsl.language.checker.scope import Scope, describe_axes
from gpdsl.language.errors.calls import OnlyOne
from gpdsl.language.errors.distributions import BadMatrix, NotAWholeVector
from gpdsl.language.model import Axis, DistributionCall, Expression, Output

_NOT_IN_COVARIANCE = frozenset({"latent", "row", "external", "output"})


def more_axes(axes: tuple[Axis, ...], allowed: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes of an argument beside those of the left side."""
    return tuple(axis for axis in axes if axis not in allowed)


def check_vector(
    scope: Scope,
    place: Place,
    call: syntax.Call,
    matched: Mapping[str, syntax.Formula],
    allowed: tuple[Axis, ...],
    output: Output,
) -> DistributionCall:
    """The mean of each element, and `covariance = S` or `factor = W, sd = s`."""
    name = call.function.text
    if len(output.axes) != 1 or allowed != output.axes:
        given = f"some elements of `{output.name}`" if output.axes else "one number"
        if len(output.axes) > 1 and allowed == output.axes:
            given = f"one with {len(output.axes)}"
        scope.problems.fail(NotAWholeVector(call.span, name, given))
    if "covariance" in matched and "sd" in matched:
        scope.problems.fail(OnlyOne(call.span, name, "`covariance`, `sd`"))
    bound = {**{each: IndexRange.of(index.axis) for each, index in scope.indices.items()}, **place.bound}
    spread = replace(place, words=f"the covariance of `{name}`", readable=place.readable - _NOT_IN_COVARIANCE)
    arguments: dict[str, Expression] = {}
    for argument, formula in matched.items():
        with scope.problems.contained():
            if argument in ("covariance", "factor"):
                checked = check_expression(scope, replace(spread, bound=bound), formula)
                _check_matrix(scope, formula, argument, checked, allowed[0], output)
            else:
                checked = check_expression(scope, place if argument == "mean" else spread, formula)
                require_axes(scope, place.left, checked, allowed)
            arguments[argument] = checked
    if len(arguments) < len(matched):
        scope.problems.give_up()
    return DistributionCall(name, arguments, call.span)


def _check_matrix(
    scope: Scope, formula: syntax.Formula, argument: str, checked: Expression, own: Axis, output: Output
) -> None:
    more = more_axes(checked.axes, (own,))
    fits = len(more) == 1 and own in checked.axes
    if argument == "covariance":
        fits = fits and (more[0].size == own.size or None in (more[0].size, own.size))
        size = "the same size" if own.size is None else f"size {own.size}"
        expected = f"the index `{own.describe()}` and another of {size}"
    else:
        expected = f"the index `{own.describe()}` and one more, along which factors are counted"
    if not fits:
        given = describe_axes(checked.axes).strip("`")
        scope.problems.fail(BadMatrix(formula.span, argument, output.name, expected, given))
