"""`y[p] ~ Normal(f[p], sigma)`: outputs tied to latents."""

from __future__ import annotations

from dataclasses import dataclass

from gpdsl.language import syntax
from gpdsl.language.checker.distributions import check_distribution
from gpdsl.language.checker.expressions import check_all
from gpdsl.language.checker.externals import passed_arguments, same_dimensions
from gpdsl.language.checker.place import IndexRange, Left, Place
from gpdsl.language.checker.scope import SORTS, Scope, describe_axes
from gpdsl.language.checker.subscripts import read
from gpdsl.language.errors.axes import BadSubscript, PassedAxes
from gpdsl.language.errors.calls import (
    NotADistribution,
    NotAnOutput,
    TransformedLeft,
    UnknownDistribution,
    WrongArity,
    WrongKind,
)
from gpdsl.language.errors.names import ObservedTwice
from gpdsl.language.model import (
    Axis,
    DistributionCall,
    ExternalLikelihood,
    Fixed,
    Observation,
    Output,
    Subscript,
)
from gpdsl.language.source import Span
from gpdsl.language.vocabulary import DISTRIBUTIONS

_READABLE = frozenset({"const", "param", "input", "row", "latent", "let", "external"})
_ADVICE = {
    "none": "if `{name}` is data that the model explains, declare `output {name} : real`",
    "latent": "the prior of a latent stands in its declaration; observe an output: `y ~ Normal({name}, sigma)`",
    "param": "the prior of a parameter stands in its declaration: `param {name} : real ~ Normal(0, 1)`",
    "let": "a `let` is computed; observe an output: `y ~ Normal({name}, sigma)`",
    "input": "an input is known; declare `{name}` as `output` if the model is to explain it",
}


@dataclass(frozen=True)
class _Observed:
    """One output left of `~`, with the elements that are observed."""

    output: Output
    subscripts: tuple[Subscript, ...]
    axes: tuple[Axis, ...]
    span: Span
    plain: bool


def check_observation(scope: Scope, statement: syntax.ObservationStatement, seen: list[Observation]) -> None:
    """Check one `~` statement and append it to those `seen`."""
    observed = [_left(scope, part) for part in statement.left]
    call = statement.distribution
    if not isinstance(call, syntax.Call):
        scope.problems.fail(NotADistribution(call.span))
    name = call.function.text
    if name in scope.likelihoods:
        distribution = _external(scope, call, observed, scope.likelihoods[name])
    elif name in DISTRIBUTIONS:
        distribution = _known(scope, call, observed)
    else:
        _unknown(scope, call, observed[0].output)
    axes = observed[0].axes
    subscripts = observed[0].subscripts if len(observed) == 1 else ()
    for each in observed:
        _check_repeated(scope, each, seen)
    names = tuple(each.output.name for each in observed)
    seen.append(Observation(names, axes, distribution, statement.span, subscripts))


def _left(scope: Scope, formula: syntax.Formula) -> _Observed:
    if not isinstance(formula, syntax.Name):
        scope.problems.fail(TransformedLeft(formula.span))
    name = formula.identifier
    sort = scope.sorts.get(name.text)
    if sort is None and name.text not in scope.lost:
        suggestion = scope.problems.suggest(name.text, scope.outputs)
        advice = _ADVICE["none"].format(name=name.text)
        scope.problems.add(NotAnOutput(name.span, name.text, "not declared", advice, suggestion))
        scope.lost.add(name.text)
    if scope.sort_of(name) != "output":
        what, advice = SORTS[scope.sort_of(name)], _ADVICE.get(scope.sort_of(name), _ADVICE["none"])
        scope.problems.fail(NotAnOutput(name.span, name.text, what, advice.format(name=name.text)))
    if name.text not in scope.outputs:
        scope.problems.give_up()
    output = scope.outputs[name.text]
    # On the left, an index takes its value from the subscript itself.
    bound = {index: IndexRange.of(entry.axis) for index, entry in scope.indices.items()}
    place = Place("an observation", _READABLE, Left("observation", name.text, name.text), bound)
    for subscript in formula.subscripts or ():
        if not isinstance(subscript.value, syntax.Name | syntax.Literal):
            scope.problems.fail(BadSubscript(subscript.span))
    checked = read(scope, place, formula, output.axes)
    return _Observed(output, checked.subscripts, checked.axes, formula.span, formula.subscripts is None)


def _known(scope: Scope, call: syntax.Call, observed: list[_Observed]) -> DistributionCall:
    entry = DISTRIBUTIONS[call.function.text]
    if len(observed) > 1:
        scope.problems.fail(
            WrongArity(observed[1].span, entry.name, "one output on its left", len(observed), f"y ~ {entry.name}(...)")
        )
    left = observed[0]
    output = left.output
    if output.kind not in entry.kinds:
        choices = ", ".join(each.name for each in DISTRIBUTIONS.values() if output.kind in each.kinds)
        scope.problems.fail(
            WrongKind(
                call.function.span,
                output.name,
                output.kind,
                output.span.line,
                entry.name,
                " and ".join(entry.kinds) or "no",
                choices,
            )
        )
    names = [axis.name for axis in left.axes if axis.name is not None]
    bound = {name: IndexRange.of(axis) for name, axis in zip(names, (a for a in left.axes if a.name), strict=True)}
    text = scope.quote(left.span).strip("`")
    place = Place(
        f"an observation of `{output.name}`", _READABLE, Left("observation", output.name, text, tuple(names)), bound
    )
    return check_distribution(scope, place, call, left.axes, output)


def _unknown(scope: Scope, call: syntax.Call, output: Output) -> None:
    name = call.function.text
    if name in scope.lost:
        scope.problems.give_up()
    fitting = [each.name for each in DISTRIBUTIONS.values() if output.kind in each.kinds]
    suggestion = scope.problems.suggest(name, [*DISTRIBUTIONS, *scope.likelihoods])
    scope.problems.fail(UnknownDistribution(call.function.span, name, ", ".join(fitting), suggestion))


def _external(
    scope: Scope, call: syntax.Call, observed: list[_Observed], likelihood: ExternalLikelihood
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
    place = Place(f"an argument of `{name}`", _READABLE, left)
    arguments = passed_arguments(scope, place, call, likelihood.arguments, check_all)
    by_name = {declared.name: given for declared, given in zip(likelihood.arguments, arguments, strict=True)}
    return DistributionCall(name, by_name, call.span, external=True)


def _check_repeated(scope: Scope, new: _Observed, seen: list[Observation]) -> None:
    for old in seen:
        if new.output.name in old.outputs and _overlap(new.subscripts, old.subscripts):
            scope.problems.fail(ObservedTwice(new.span, new.output.name, old.span.line))


def _overlap(a: tuple[Subscript, ...], b: tuple[Subscript, ...]) -> bool:
    """Whether two sets of elements of one output share one; without subscripts all are meant."""
    if len(a) != len(b):
        return True
    return not any(isinstance(x, Fixed) and isinstance(y, Fixed) and x != y for x, y in zip(a, b, strict=True))
