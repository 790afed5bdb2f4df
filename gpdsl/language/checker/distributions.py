"""Distributions right of `~`: their arguments, against the outputs or parameters they describe."""

from __future__ import annotations

from gpdsl.language import syntax
from gpdsl.language.checker.arguments import match_arguments
from gpdsl.language.checker.build import fact_of
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.fit_left import require_axes
from gpdsl.language.checker.place import Place
from gpdsl.language.checker.scope import Scope
from gpdsl.language.checker.values import check_domain
from gpdsl.language.errors.calls import MissingArgument, MustBeNamed, OnlyOne
from gpdsl.language.model import Axis, DistributionCall, Expression
from gpdsl.language.vocabulary import DISTRIBUTIONS, Distribution, signature


def check_distribution(scope: Scope, place: Place, call: syntax.Call, allowed: tuple[Axis, ...]) -> DistributionCall:
    """A known distribution whose arguments vary only along the `allowed` axes."""
    entry = DISTRIBUTIONS[call.function.text]
    matched = match_distribution(scope, call, entry)
    arguments: dict[str, Expression] = {}
    for name, formula in matched.items():
        with scope.problems.contained():
            arguments[name] = _argument(scope, place, formula, entry, name, allowed)
    if len(arguments) < len(matched):
        scope.problems.give_up()
    return DistributionCall(entry.name, arguments, call.span)


def match_distribution(scope: Scope, call: syntax.Call, entry: Distribution) -> dict[str, syntax.Formula]:
    """The arguments by name; exactly one of the alternatives (`logit`, `p`) must be among them, by its name."""
    plain = [each.name for each in entry.parameters if not each.alternative]
    alternatives = [each.name for each in entry.parameters if each.alternative]
    choices = ", ".join(f"`{each}`" for each in alternatives)
    positional = [each for each in call.arguments if each.name is None]
    if alternatives and len(positional) > len(plain):
        shown = ", ".join([*plain, f"{alternatives[0]} = ..."])
        scope.problems.fail(MustBeNamed(positional[len(plain)].span, entry.name, choices, f"{entry.name}({shown})"))
    matched = match_arguments(scope, call, plain, signature(entry), required=plain, named_only=alternatives)
    chosen = [name for name in alternatives if name in matched]
    if alternatives and not chosen:
        scope.problems.fail(MissingArgument(call.span, entry.name, f"(one of {choices})", signature(entry)))
    if len(chosen) > 1:
        scope.problems.fail(OnlyOne(call.span, entry.name, choices))
    return matched


def _argument(
    scope: Scope, place: Place, formula: syntax.Formula, entry: Distribution, name: str, allowed: tuple[Axis, ...]
) -> Expression:
    checked = check_expression(scope, place, formula)
    require_axes(scope, place.left, checked, allowed)
    value = fact_of(scope, checked).value
    if value is not None:
        domain = next(each.domain for each in entry.parameters if each.name == name)
        check_domain(scope, formula.span, f"`{name}` of `{entry.name}`", value, domain)
    return checked
