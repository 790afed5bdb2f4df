"""Distributions right of `~`: their arguments, against the outputs or parameters they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpdsl.language import syntax
from gpdsl.language.checker.axes import carrier
from gpdsl.language.checker.build import fact_of, match_arguments, require_axes
from gpdsl.language.checker.constraints import check_domain
from gpdsl.language.checker.expressions import check_expression
from gpdsl.language.checker.scope import IndexRange, Place, Scope, describe_axes
from gpdsl.language.distributions import DISTRIBUTIONS, Distribution, signature
from gpdsl.language.errors import definitions as wrong
from gpdsl.language.errors.axes import LogitsAxis
from gpdsl.language.errors.calls import MissingArgument, MustBeNamed, OnlyOne, UnknownArgument, WrongArity, WrongKind
from gpdsl.language.model import Axis, DistributionCall, Expression, Output

# `MultivariateNormal`: the elements of one output together, with a covariance matrix or a factor of it.

_NOT_IN_COVARIANCE = frozenset({"latent", "row", "external", "output"})


def more_axes(axes: tuple[Axis, ...], allowed: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes of an argument beside those of the left side."""
    return tuple(axis for axis in axes if axis not in allowed)


@dataclass(frozen=True)
class _Described:
    """What stands left of a distribution: where its arguments are read, the axes they may have, and an output, if any.

    Without one the distribution is a prior.
    """

    scope: Scope
    place: Place
    allowed: tuple[Axis, ...]
    output: Output | None

    def argument(self, formula: syntax.Formula, place: Place | None = None) -> Expression:
        """An expression along the allowed axes."""
        checked = check_expression(self.scope, place or self.place, formula)
        require_axes(self.scope, self.place.left, checked, self.allowed)
        return checked

    def along_any(self, formula: syntax.Formula, place: Place | None = None) -> tuple[Expression, tuple[Axis, ...]]:
        """An expression in which every index has a value, and its axes beside the allowed ones."""
        place, indices = place or self.place, self.scope.indices.items()
        bound = {**{name: IndexRange.of(index.axis) for name, index in indices}, **place.bound}
        checked = check_expression(self.scope, replace(place, bound=bound), formula)
        return checked, more_axes(checked.axes, self.allowed)


def _check_vector(left: _Described, call: syntax.Call, matched: Mapping[str, syntax.Formula]) -> DistributionCall:
    """The mean of each element, and `covariance = S` or `factor = W, sd = s`."""
    scope, place, name, output = left.scope, left.place, call.function.text, left.output
    assert output is not None
    if len(output.axes) != 1 or left.allowed != output.axes:
        given = f"some elements of `{output.name}`" if output.axes else "one number"
        if len(output.axes) > 1 and left.allowed == output.axes:
            given = f"one with {len(output.axes)}"
        scope.problems.fail(wrong.NotAWholeVector(call.span, name, given))
    if "covariance" in matched and "sd" in matched:
        scope.problems.fail(OnlyOne(call.span, name, "`covariance`, `sd`"))
    spread = replace(place, words=f"the covariance of `{name}`", readable=place.readable - _NOT_IN_COVARIANCE)

    def one(argument: str) -> Expression:
        if argument not in ("covariance", "factor"):
            return left.argument(matched[argument], place if argument == "mean" else spread)
        checked, _ = left.along_any(matched[argument], spread)
        _check_matrix(scope, matched[argument], argument, checked, output)
        return checked

    return DistributionCall(name, dict(zip(matched, scope.problems.each(matched, one), strict=True)), call.span)


def _check_matrix(scope: Scope, formula: syntax.Formula, argument: str, checked: Expression, output: Output) -> None:
    (own,) = output.axes
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
        scope.problems.fail(wrong.BadMatrix(formula.span, argument, output.name, expected, given))


# Distributions made of others: `Mixture`, `Truncated` and `Censored`.

KNOWN = frozenset({"const", "input"})
BOUNDS = ("lower", "upper")
_SUM = 1e-6


def _check_mixture(left: _Described, call: syntax.Call) -> DistributionCall:
    """`Mixture(weights, Normal(f, s), Normal(0, 10))`."""
    scope, entry = left.scope, DISTRIBUTIONS["Mixture"]
    given, components = None, []
    for place_of, argument in enumerate(call.arguments):
        if argument.name is not None and argument.name.text != "weights":
            scope.problems.fail(UnknownArgument(argument.name.span, entry.name, argument.name.text, entry.form))
        if argument.name is not None or (place_of == 0 and syntax.called(argument.value) not in DISTRIBUTIONS):
            given = argument
        else:
            components.append(argument.value)
    if given is None:
        remedy = f"write `{entry.form}`: a number between 0 and 1, or a list or simplex with one weight per component"
        scope.problems.fail(wrong.BadWeights(call.span, "a mixture begins with its weights", "no weights", remedy))
    if len(components) < entry.components:
        expected = "weights and two distributions or more"
        scope.problems.fail(WrongArity(call.span, entry.name, expected, len(call.arguments), entry.form))
    weights: dict[str, Expression] = {}

    def one(component: syntax.Formula) -> DistributionCall:
        inner = _component(scope, entry, component)
        if inner.components and inner.name != "Truncated":
            scope.problems.fail(wrong.NotAComponent(component.span, entry.name, f"`{inner.name}`", entry.form))
        return _checked_inside(left, component, inner, inner.kinds)

    with scope.problems.contained:
        weights = _weights(left, given.value, len(components))
    checked = scope.problems.each(components, one)
    if not weights:
        scope.problems.give_up()
    return DistributionCall(entry.name, weights, call.span, components=tuple(checked))


def _weights(left: _Described, formula: syntax.Formula, count: int) -> dict[str, Expression]:
    scope = left.scope
    remedy = f"write a list of {count} numbers that add up to 1, or declare `param w : simplex[{count}]`"
    if isinstance(formula, syntax.Array):
        if len(formula.items) != count:
            problem = f"a mixture of {count} distributions has {count} weights"
            scope.problems.fail(wrong.BadWeights(formula.span, problem, f"{len(formula.items)} here", remedy))
        listed = []
        for item in formula.items:
            listed.append(left.argument(item))
            _check_unit(scope, item, listed[-1])
        values = [fact_of(scope, each).value for each in listed]
        known = [value for value in values if value is not None]
        if len(known) == count and abs(sum(known) - 1) > _SUM:
            problem = "the weights of a mixture add up to 1"
            scope.problems.fail(wrong.BadWeights(formula.span, problem, f"these add up to {sum(known):g}", remedy))
        return {f"weights[{number}]": each for number, each in enumerate(listed, 1)}
    checked, more = left.along_any(formula)
    if not more and count == 2:
        _check_unit(scope, formula, checked)
    elif len(more) != 1 or more[0].size not in (None, count):
        problem = f"a mixture of {count} distributions has {count} weights"
        found = "one number" if not more else " by ".join(axis.describe() for axis in more)
        scope.problems.fail(wrong.BadWeights(formula.span, problem, f"{found} here", remedy))
    return {"weights": checked}


def _check_unit(scope: Scope, formula: syntax.Formula, checked: Expression) -> None:
    value = fact_of(scope, checked).value
    if value is not None:
        check_domain(scope, formula.span, "a weight of `Mixture`", value, "unit")


def _check_bounded(left: _Described, call: syntax.Call) -> DistributionCall:
    """`Truncated(Normal(f, s), lower = 0)`, `Censored(Weibull(k, exp(f)), upper = limit)`; bounds are known numbers."""
    scope, place, entry = left.scope, left.place, DISTRIBUTIONS[call.function.text]
    component, bounds = _bounds(scope, call, entry)
    arguments: dict[str, Expression] = {}
    checked: list[DistributionCall] = []
    with scope.problems.contained:
        inner = _component(scope, entry, component)
        if not inner.tails:
            known = ", ".join(each.name for each in DISTRIBUTIONS.values() if each.tails)
            scope.problems.fail(wrong.CannotBound(component.span, entry.name, inner.name, known))
        kinds = (*inner.kinds, *entry.kinds) if inner.support == "real" else inner.kinds
        checked.append(_checked_inside(left, component, inner, kinds))
    known_place = replace(place, words=f"a bound of `{entry.name}`", readable=place.readable & KNOWN)
    for name, formula in bounds.items():
        with scope.problems.contained:
            arguments[name] = left.argument(formula, known_place)
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
        scope.problems.fail(wrong.BoundsOrder(call.span, f"`{entry.name}`", f"{lower:g}", f"{upper:g}"))


def _component(scope: Scope, entry: Distribution, formula: syntax.Formula) -> Distribution:
    if syntax.called(formula) in DISTRIBUTIONS:
        return DISTRIBUTIONS[syntax.called(formula)]
    word = formula.function if isinstance(formula, syntax.Call) else None
    suggestion = "" if word is None else scope.problems.suggest(word.text, DISTRIBUTIONS)
    return scope.problems.fail(
        wrong.NotAComponent(formula.span, entry.name, scope.quote(formula.span), entry.form, suggestion)
    )


def _checked_inside(
    left: _Described, formula: syntax.Formula, inner: Distribution, kinds: Sequence[str]
) -> DistributionCall:
    """A distribution inside another one, which describes the output as well."""
    output = left.output
    if output is not None and output.kind not in kinds:
        choices = ", ".join(each.name for each in DISTRIBUTIONS.values() if output.kind in each.kinds)
        what = output.name, output.kind, output.span.line, inner.name
        left.scope.problems.fail(WrongKind(formula.span, *what, " and ".join(inner.kinds), choices))
    assert isinstance(formula, syntax.Call)
    return check_distribution(left.scope, left.place, formula, left.allowed, output)


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
    left = _Described(scope, place, allowed, output)
    if entry.name == "Mixture":
        return _check_mixture(left, call)
    if entry.components:
        return _check_bounded(left, call)
    matched = match_distribution(scope, call, entry)
    if entry.support == "vector" and output is not None:
        return _check_vector(left, call, matched)
    checked = scope.problems.each(matched, lambda name: _argument(left, matched[name], entry, name))
    arguments = dict(zip(matched, checked, strict=True))
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
        given = positional[len(plain)].value
        link = given.function.text if isinstance(given, syntax.Call) else ""
        likely = "p" if link in ("sigmoid", "Phi") and "p" in alternatives else alternatives[0]
        words = [scope.quote(each.value.span).strip("`") for each in positional]
        shown = ", ".join([*words[: len(plain)], f"{likely} = {words[len(plain)]}"])
        if "this" in words:
            shown = ", ".join([*plain, f"{likely} = ..."])
        scope.problems.fail(MustBeNamed(positional[len(plain)].span, entry.name, choices, f"{entry.name}({shown})"))
    matched = match_arguments(scope, call, plain, signature(entry), required=required, named_only=alternatives)
    chosen = [name for name in alternatives if name in matched]
    if alternatives and not chosen:
        scope.problems.fail(MissingArgument(call.span, entry.name, f"(one of {choices})", signature(entry)))
    if len(chosen) > 1:
        scope.problems.fail(OnlyOne(call.span, entry.name, choices))
    return matched


def _argument(left: _Described, formula: syntax.Formula, entry: Distribution, name: str) -> Expression:
    output, parameter = left.output, next(each for each in entry.parameters if each.name == name)
    if parameter.per == "level" and output is not None and output.label is not None:
        checked = _per_level(left, formula, output, output.label)
    elif parameter.per == "cutpoint" and output is not None:
        checked = _cutpoints(left, formula, output)
    else:
        checked = left.argument(formula)
    value = fact_of(left.scope, checked).value
    if value is not None:
        never = (entry.name, value) in (("Poisson", 0), ("Binomial", 0))
        remedy = ": 1e-9 where all counts are 0" if never else ""
        what = f"`{parameter.name}` of `{entry.name}`"
        check_domain(left.scope, formula.span, what, value, parameter.domain, remedy)
    return checked


def _per_level(left: _Described, formula: syntax.Formula, output: Output, label: Axis) -> Expression:
    scope, bound = left.scope, {**left.place.bound, label.name or "": IndexRange.of(label)}
    checked = replace(left, allowed=(*left.allowed, label)).argument(formula, replace(left.place, bound=bound))
    if not any(axis.name == label.name for axis in checked.axes):
        span = carrier(checked, checked.axes[0]).span if checked.axes else checked.span
        scope.problems.fail(LogitsAxis(span, describe_axes(checked.axes).strip("`"), output.name, label.describe()))
    return checked


def _cutpoints(left: _Described, formula: syntax.Formula, output: Output) -> Expression:
    """One value fewer than levels, along an axis of their own."""
    checked, more = left.along_any(formula)
    levels = None if output.label is None else output.label.size
    if len(more) == 1 and (levels is None or more[0].size in (None, levels - 1)):
        return checked
    given = "one number" if not more else " by ".join(axis.describe() for axis in more)
    shown = f"{more[0].size} values" if len(more) == 1 and more[0].size is not None else given
    count = str(output.label.dimension) if output.label is not None and levels is None else str(levels)
    needed = f"{count} - 1 values" if levels is None else f"{levels - 1} values along an axis of their own"
    declaration = f"ordered[{'4' if levels is None else levels - 1}]"
    return left.scope.problems.fail(wrong.BadCutpoints(formula.span, output.name, count, needed, shown, declaration))
