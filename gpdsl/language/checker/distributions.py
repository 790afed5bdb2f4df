"""Distributions right of `~`: their arguments, against the outputs or parameters they describe."""

from __future__ import annotations

from dataclasses import replace

from gpdsl.language import syntax
from gpdsl.language.checker.arguments import match_arguments
from gpdsl.language.checker.axes import carrier
from gpdsl.language.checker.build import fact_of
from gpdsl.language.checker.components import KNOWN, check_bounded, check_mixture, check_order
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.fit_left import require_axes
from gpdsl.language.checker.place import IndexRange, Place
from gpdsl.language.checker.scope import Scope, describe_axes
from gpdsl.language.checker.values import check_domain
from gpdsl.language.checker.vectors import check_vector, more_axes
from gpdsl.language.entries import Parameter
from gpdsl.language.errors.axes import LogitsAxis
from gpdsl.language.errors.calls import MissingArgument, MustBeNamed, OnlyOne
from gpdsl.language.errors.distributions import BadCutpoints
from gpdsl.language.model import Axis, DistributionCall, Expression, Output
from gpdsl.language.vocabulary import DISTRIBUTIONS, Distribution, signature


def check_distribution(
    scope: Scope, place: Place, call: syntax.Call, allowed: tuple[Axis, ...], output: Output | None = None
) -> DistributionCall:
    """A known distribution of an output, or of a parameter; its arguments vary only along the `allowed` axes.

    Those with one value per level or cutpoint have that axis besides.
    """
    entry = DISTRIBUTIONS[call.function.text]
    bounded = entry.name == "Uniform"
    if bounded:
        place = replace(place, words="a bound of `Uniform`", readable=place.readable & KNOWN)
    if entry.name == "Mixture":
        return check_mixture(scope, place, call, allowed, output, check_distribution)
    if entry.components:
        return check_bounded(scope, place, call, allowed, output, check_distribution)
    matched = match_distribution(scope, call, entry)
    if entry.support == "vector" and output is not None:
        return check_vector(scope, place, call, matched, allowed, output)
    arguments: dict[str, Expression] = {}
    for name, formula in matched.items():
        with scope.problems.contained():
            arguments[name] = _argument(scope, place, formula, entry, name, allowed, output)
    if len(arguments) < len(matched):
        scope.problems.give_up()
    if bounded:
        check_order(scope, call, entry, arguments)
    return DistributionCall(entry.name, arguments, call.span)


def match_distribution(scope: Scope, call: syntax.Call, entry: Distribution) -> dict[str, syntax.Formula]:
    """The arguments by name; exactly one of the alternatives (`logit`, `p`) must be among them, by its name."""
    plain = [each.name for each in entry.parameters if not each.alternative]
    required = [each.name for each in entry.parameters if not each.alternative and each.default is None]
    alternatives = [each.name for each in entry.parameters if each.alternative]
    choices = ", ".join(f"`{each}`" for each in alternatives)
    positional = [each for each in call.arguments if each.name is None]
    named = {each.name.text for each in call.arguments if each.name is not None}
    if entry.default and positional and named.isdisjoint(alternatives):
        plain, alternatives = [entry.default, *plain], [each for each in alternatives if each != entry.default]
        return match_arguments(
            scope, call, plain, signature(entry), required=[entry.default, *required], named_only=alternatives
        )
    if alternatives and len(positional) > len(plain):
        shown = ", ".join([*plain, f"{alternatives[0]} = ..."])
        scope.problems.fail(MustBeNamed(positional[len(plain)].span, entry.name, choices, f"{entry.name}({shown})"))
    matched = match_arguments(scope, call, plain, signature(entry), required=required, named_only=alternatives)
    chosen = [name for name in alternatives if name in matched]
    if alternatives and not chosen:
        scope.problems.fail(MissingArgument(call.span, entry.name, f"(one of {choices})", signature(entry)))
    if len(chosen) > 1:
        scope.problems.fail(OnlyOne(call.span, entry.name, choices))
    return matched


def _argument(
    scope: Scope,
    place: Place,
    formula: syntax.Formula,
    entry: Distribution,
    name: str,
    allowed: tuple[Axis, ...],
    output: Output | None,
) -> Expression:
    parameter = next(each for each in entry.parameters if each.name == name)
    if parameter.per == "level" and output is not None and output.label is not None:
        checked = _per_level(scope, place, formula, allowed, output, output.label)
    elif parameter.per == "cutpoint" and output is not None:
        checked = _cutpoints(scope, place, formula, allowed, output)
    else:
        checked = check_expression(scope, place, formula)
        require_axes(scope, place.left, checked, allowed)
    _check_value(scope, formula, checked, entry, parameter)
    return checked


def _check_value(
    scope: Scope, formula: syntax.Formula, checked: Expression, entry: Distribution, parameter: Parameter
) -> None:
    value = fact_of(scope, checked).value
    if value is not None:
        check_domain(scope, formula.span, f"`{parameter.name}` of `{entry.name}`", value, parameter.domain)


def _per_level(
    scope: Scope, place: Place, formula: syntax.Formula, allowed: tuple[Axis, ...], output: Output, label: Axis
) -> Expression:
    inside = replace(place, bound={**place.bound, label.name or "": IndexRange.of(label)})
    checked = check_expression(scope, inside, formula)
    require_axes(scope, place.left, checked, (*allowed, label))
    if not any(axis.name == label.name for axis in checked.axes):
        span = carrier(checked, checked.axes[0]).span if checked.axes else checked.span
        scope.problems.fail(LogitsAxis(span, describe_axes(checked.axes).strip("`"), output.name, label.describe()))
    return checked


def _cutpoints(
    scope: Scope, place: Place, formula: syntax.Formula, allowed: tuple[Axis, ...], output: Output
) -> Expression:
    """One value fewer than levels, along an axis of their own."""
    inside = replace(place, bound={**{n: IndexRange.of(i.axis) for n, i in scope.indices.items()}, **place.bound})
    checked = check_expression(scope, inside, formula)
    more = more_axes(checked.axes, allowed)
    levels = None if output.label is None else output.label.size
    if len(more) == 1 and (levels is None or more[0].size in (None, levels - 1)):
        return checked
    given = "one number" if not more else " by ".join(axis.describe() for axis in more)
    shown = f"{more[0].size} values" if len(more) == 1 and more[0].size is not None else given
    count = str(output.label.dimension) if output.label is not None and levels is None else str(levels)
    needed = f"{count} - 1 values" if levels is None else f"{levels - 1} values along an axis of their own"
    declaration = f"ordered[{'4' if levels is None else levels - 1}]"
    return scope.problems.fail(BadCutpoints(formula.span, output.name, count, needed, shown, declaration))
