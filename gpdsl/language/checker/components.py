"""Distributions made of others: `Mixture`, `Truncated` and `Censored`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpdsl.language import syntax
from gpdsl.language.checker.build import fact_of
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.fit_left import require_axes
from gpdsl.language.checker.place import IndexRange, Place
from gpdsl.language.checker.scope import Scope
from gpdsl.language.checker.values import check_domain
from gpdsl.language.checker.vectors import more_axes
from gpdsl.language.errors.calls import MissingArgument, UnknownArgument, WrongArity, WrongKind
from gpdsl.language.errors.distributions import BadWeights, BoundsOrder, CannotBound, NotAComponent
from gpdsl.language.model import Axis, DistributionCall, Expression, Output
from gpdsl.language.vocabulary import DISTRIBUTIONS, Distribution

Check = Callable[..., DistributionCall]

KNOWN = frozenset({"const", "input"})
BOUNDS = ("lower", "upper")
_SUM = 1e-6


def check_mixture(
    scope: Scope,
    place: Place,
    call: syntax.Call,
    allowed: tuple[Axis, ...],
    output: Output | None,
    check: Check,
) -> DistributionCall:
    """`Mixture(weights, Normal(f, s), Normal(0, 10))`."""
    entry = DISTRIBUTIONS["Mixture"]
    given, components = None, []
    for place_of, argument in enumerate(call.arguments):
        if argument.name is not None and argument.name.text != "weights":
            scope.problems.fail(UnknownArgument(argument.name.span, entry.name, argument.name.text, entry.form))
        if argument.name is not None or (place_of == 0 and not _is_distribution(argument.value)):
            given = argument
        else:
            components.append(argument.value)
    if given is None:
        remedy = f"write `{entry.form}`: a number between 0 and 1, or a list or simplex with one weight per component"
        scope.problems.fail(BadWeights(call.span, "a mixture begins with its weights", "no weights", remedy))
    if len(components) < entry.components:
        scope.problems.fail(
            WrongArity(call.span, entry.name, "weights and two distributions or more", len(call.arguments), entry.form)
        )
    weights: dict[str, Expression] = {}
    checked: list[DistributionCall] = []
    with scope.problems.contained():
        weights = _weights(scope, place, given.value, allowed, len(components))
    for component in components:
        with scope.problems.contained():
            inner = _component(scope, entry, component)
            if inner.components and inner.name != "Truncated":
                scope.problems.fail(NotAComponent(component.span, entry.name, f"`{inner.name}`", entry.form))
            _check_kind(scope, component, inner, output, inner.kinds)
            checked.append(check(scope, place, component, allowed, output))
    if not weights or len(checked) < len(components):
        scope.problems.give_up()
    return DistributionCall(entry.name, weights, call.span, components=tuple(checked))


def _weights(
    scope: Scope, place: Place, formula: syntax.Formula, allowed: tuple[Axis, ...], count: int
) -> dict[str, Expression]:
    remedy = f"write a list of {count} numbers that add up to 1, or declare `param w : simplex[{count}]`"
    if isinstance(formula, syntax.Array):
        if len(formula.items) != count:
            problem = f"a mixture of {count} distributions has {count} weights"
            scope.problems.fail(BadWeights(formula.span, problem, f"{len(formula.items)} here", remedy))
        listed = [_weight(scope, place, item, allowed) for item in formula.items]
        values = [fact_of(scope, each).value for each in listed]
        known = [value for value in values if value is not None]
        if len(known) == count and abs(sum(known) - 1) > _SUM:
            problem = "the weights of a mixture add up to 1"
            scope.problems.fail(BadWeights(formula.span, problem, f"these add up to {sum(known):g}", remedy))
        return {f"weights[{number}]": each for number, each in enumerate(listed, 1)}
    bound = {**{name: IndexRange.of(index.axis) for name, index in scope.indices.items()}, **place.bound}
    checked = check_expression(scope, replace(place, bound=bound), formula)
    more = more_axes(checked.axes, allowed)
    if not more and count == 2:
        _check_unit(scope, formula, checked)
    elif len(more) != 1 or more[0].size not in (None, count):
        problem = f"a mixture of {count} distributions has {count} weights"
        found = "one number" if not more else " by ".join(axis.describe() for axis in more)
        scope.problems.fail(BadWeights(formula.span, problem, f"{found} here", remedy))
    return {"weights": checked}


def _weight(scope: Scope, place: Place, formula: syntax.Formula, allowed: tuple[Axis, ...]) -> Expression:
    checked = check_expression(scope, place, formula)
    require_axes(scope, place.left, checked, allowed)
    _check_unit(scope, formula, checked)
    return checked


def _check_unit(scope: Scope, formula: syntax.Formula, checked: Expression) -> None:
    value = fact_of(scope, checked).value
    if value is not None:
        check_domain(scope, formula.span, "a weight of `Mixture`", value, "unit")


def check_bounded(
    scope: Scope,
    place: Place,
    call: syntax.Call,
    allowed: tuple[Axis, ...],
    output: Output | None,
    check: Check,
) -> DistributionCall:
    """`Truncated(Normal(f, s), lower = 0)`, `Censored(Weibull(k, exp(f)), upper = limit)`; bounds are known numbers."""
    entry = DISTRIBUTIONS[call.function.text]
    component, bounds = _bounds(scope, call, entry)
    arguments: dict[str, Expression] = {}
    checked: list[DistributionCall] = []
    with scope.problems.contained():
        inner = _component(scope, entry, component)
        if not inner.tails:
            known = ", ".join(each.name for each in DISTRIBUTIONS.values() if each.tails)
            scope.problems.fail(CannotBound(component.span, entry.name, inner.name, known))
        kinds = (*inner.kinds, *entry.kinds) if inner.support == "real" else inner.kinds
        _check_kind(scope, component, inner, output, kinds)
        checked.append(check(scope, place, component, allowed, output))
    known_place = replace(place, words=f"a bound of `{entry.name}`", readable=place.readable & KNOWN)
    for name, formula in bounds.items():
        with scope.problems.contained():
            arguments[name] = check_expression(scope, known_place, formula)
            require_axes(scope, place.left, arguments[name], allowed)
    if not checked or len(arguments) < len(bounds):
        scope.problems.give_up()
    check_order(scope, call, entry, arguments)
    return DistributionCall(entry.name, arguments, call.span, components=tuple(checked))


def _bounds(scope: Scope, call: syntax.Call, entry: Distribution) -> tuple[syntax.Formula, dict[str, syntax.Formula]]:
    """The distribution inside, and the bounds by name."""
    positional = [each.value for each in call.arguments if each.name is None]
    named: dict[str, syntax.Formula] = {}
    for argument in call.arguments:
        if argument.name is not None:
            if argument.name.text not in BOUNDS:
                suggestion = scope.problems.suggest(argument.name.text, BOUNDS)
                name = argument.name
                scope.problems.fail(UnknownArgument(name.span, entry.name, name.text, entry.form, suggestion))
            named[argument.name.text] = argument.value
    if len(positional) != 1:
        expected = "one distribution and its bounds by name"
        scope.problems.fail(WrongArity(call.span, entry.name, expected, len(positional), entry.form))
    if not named:
        scope.problems.fail(MissingArgument(call.span, entry.name, "`lower` or `upper`", entry.form))
    return positional[0], {name: named[name] for name in BOUNDS if name in named}


def check_order(scope: Scope, call: syntax.Call, entry: Distribution, arguments: dict[str, Expression]) -> None:
    known = {name: fact_of(scope, each).value for name, each in arguments.items()}
    lower, upper = known.get("lower"), known.get("upper")
    if lower is not None and upper is not None and lower >= upper:
        scope.problems.fail(BoundsOrder(call.span, f"`{entry.name}`", f"{lower:g}", f"{upper:g}"))


def _is_distribution(formula: syntax.Formula) -> bool:
    return isinstance(formula, syntax.Call) and formula.function.text in DISTRIBUTIONS


def _component(scope: Scope, entry: Distribution, formula: syntax.Formula) -> Distribution:
    if isinstance(formula, syntax.Call) and formula.function.text in DISTRIBUTIONS:
        return DISTRIBUTIONS[formula.function.text]
    word = formula.function if isinstance(formula, syntax.Call) else None
    suggestion = "" if word is None else scope.problems.suggest(word.text, DISTRIBUTIONS)
    return scope.problems.fail(
        NotAComponent(formula.span, entry.name, scope.quote(formula.span), entry.form, suggestion)
    )


def _check_kind(
    scope: Scope, formula: syntax.Formula, inner: Distribution, output: Output | None, kinds: Sequence[str]
) -> None:
    """The distribution inside describes the output as well."""
    if output is None or output.kind in kinds:
        return
    choices = ", ".join(each.name for each in DISTRIBUTIONS.values() if output.kind in each.kinds)
    shown = " and ".join(inner.kinds)
    scope.problems.fail(WrongKind(formula.span, output.name, output.kind, output.span.line, inner.name, shown, choices))
