"""`y[p] ~ Normal(f[p], sigma)`: outputs tied to latents."""

from __future__ import annotations

from dataclasses import replace

from gpdsl.language import syntax
from gpdsl.language.checker.densities import density_call
from gpdsl.language.checker.distributions import check_distribution
from gpdsl.language.checker.elements import check_repeated
from gpdsl.language.checker.expressions import check_all
from gpdsl.language.checker.externals import passed_arguments, same_dimensions
from gpdsl.language.checker.image import check_image
from gpdsl.language.checker.left import Observed, check_left
from gpdsl.language.checker.place import Left, Place
from gpdsl.language.checker.scope import Scope, describe_axes
from gpdsl.language.errors.axes import PassedAxes
from gpdsl.language.errors.calls import NotADistribution, UnknownDistribution, WrongArity, WrongKind
from gpdsl.language.errors.definitions import LeftSide
from gpdsl.language.habits import distribution_habit
from gpdsl.language.model import DistributionCall, ExternalLikelihood, Observation, Output
from gpdsl.language.vocabulary import DISTRIBUTIONS

READABLE = frozenset({"const", "param", "input", "row", "latent", "let", "external"})


def check_observation(scope: Scope, statement: syntax.ObservationStatement, seen: list[Observation]) -> None:
    """Check one `~` statement and append it to those `seen`."""
    observed = [check_left(scope, part, statement.distribution) for part in statement.left]
    call = statement.distribution
    if not isinstance(call, syntax.Call):
        scope.problems.fail(NotADistribution(call.span))
    name = call.function.text
    if name in scope.likelihoods:
        distribution = _external(scope, call, observed, scope.likelihoods[name])
    elif scope.sorts.get(name) == "density" and name not in scope.lost:
        distribution = _by_formula(scope, call, observed)
    elif name in DISTRIBUTIONS:
        distribution = _known(scope, call, observed)
    else:
        _unknown(scope, call, observed[0].output)
    axes = observed[0].axes
    subscripts = observed[0].subscripts if len(observed) == 1 else ()
    names = tuple(each.output.name for each in observed)
    guards = observed[0].guards if len(observed) == 1 else ()
    transform = observed[0].transform if len(observed) == 1 else None
    new = Observation(names, axes, distribution, statement.span, subscripts, guards, transform)
    for each in observed:
        check_repeated(scope, each, new)
    seen.append(new)


def _known(scope: Scope, call: syntax.Call, observed: list[Observed]) -> DistributionCall:
    entry = DISTRIBUTIONS[call.function.text]
    if len(observed) > 1:
        scope.problems.fail(
            WrongArity(observed[1].span, entry.name, "one output on its left", len(observed), f"y ~ {entry.name}(...)")
        )
    left = observed[0]
    output = left.output
    if left.kind not in entry.kinds:
        choices = ", ".join(each.name for each in DISTRIBUTIONS.values() if left.kind in each.kinds)
        scope.problems.fail(
            WrongKind(
                call.function.span,
                output.name if left.transform is None else scope.quote(left.span).strip("`"),
                left.kind,
                output.span.line,
                entry.name,
                " and ".join(entry.kinds) or "no",
                choices,
            )
        )
    place = _place(scope, left)
    if left.transform is not None:
        if entry.support == "vector":
            remedy = f"give each element a distribution of its own: `log({output.name}) ~ Normal(...)`"
            scope.problems.fail(LeftSide(left.span, f"`{entry.name}` describes a whole vector", remedy))
        output = replace(output, kind=left.kind)
    found = check_distribution(scope, place, call, left.axes, output)
    check_image(scope, left, found)
    return found


def _place(scope: Scope, left: Observed) -> Place:
    text, name = scope.quote(left.span).strip("`"), left.output.name
    shown = Left("observation", name, text, tuple(left.bound()))
    return Place(f"an observation of `{name}`", READABLE | {"output"}, shown, left.bound())


def _by_formula(scope: Scope, call: syntax.Call, observed: list[Observed]) -> DistributionCall:
    name = call.function.text
    if len(observed) > 1:
        expected = "one output on its left"
        scope.problems.fail(WrongArity(observed[1].span, name, expected, len(observed), f"y ~ {name}(...)"))
    return density_call(scope, _place(scope, observed[0]), call, observed[0])


def _unknown(scope: Scope, call: syntax.Call, output: Output) -> None:
    name = call.function.text
    if name in scope.lost:
        scope.problems.give_up()
    fitting = [each.name for each in DISTRIBUTIONS.values() if output.kind in each.kinds]
    suggestion = scope.problems.suggest(name, [*DISTRIBUTIONS, *scope.likelihoods, *scope.densities])
    scope.problems.fail(
        UnknownDistribution(call.function.span, name, ", ".join(fitting), suggestion, distribution_habit(name))
    )


def _external(
    scope: Scope, call: syntax.Call, observed: list[Observed], likelihood: ExternalLikelihood
) -> DistributionCall:
    """An opaque density sees whole outputs, of the declared dimensions, in the declared order."""
    name = likelihood.name
    if len(observed) != len(likelihood.observed):
        expected = f"{len(likelihood.observed)} output{'s' * (len(likelihood.observed) > 1)} on its left"
        shown = ", ".join(each.name for each in likelihood.observed)
        scope.problems.fail(WrongArity(observed[0].span, name, expected, len(observed), f"({shown}) ~ {name}(...)"))
    for each, declared in zip(observed, likelihood.observed, strict=True):
        if not each.plain or not same_dimensions(each.axes, declared.axes):
            given = describe_axes(each.axes) if each.plain else "a single element"
            scope.problems.fail(PassedAxes(each.span, name, declared.name, describe_axes(declared.axes), given))
    left = Left("observation", observed[0].output.name, observed[0].output.name)
    place = Place(f"an argument of `{name}`", READABLE, left)
    arguments = passed_arguments(scope, place, call, likelihood.arguments, check_all)
    by_name = {declared.name: given for declared, given in zip(likelihood.arguments, arguments, strict=True)}
    return DistributionCall(name, by_name, call.span, external=True)
