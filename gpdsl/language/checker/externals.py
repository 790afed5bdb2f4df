"""Opaque functions: their declaration, and calls that pass whole arrays of the declared dimensions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpdsl.language import syntax
from gpdsl.language.checker.axes import declared_axes
from gpdsl.language.checker.build import fact_of, match_arguments, remember
from gpdsl.language.checker.facts import Fact
from gpdsl.language.checker.scope import NOTHING, Place, Scope, describe_axes
from gpdsl.language.errors.axes import PassedAxes
from gpdsl.language.errors.calls import UnknownType
from gpdsl.language.errors.names import DeclaredTwice
from gpdsl.language.model import (
    Axis,
    Expression,
    External,
    ExternalArgument,
    ExternalCall,
    ExternalLikelihood,
    same_axis,
)

CheckAll = Callable[..., tuple[Expression, ...]]


def check_external(scope: Scope, statement: syntax.ExternalStatement) -> None:
    """`external g(a: real[4]) -> real[4]`."""
    arguments = _passed(scope, statement.arguments)
    result = _dimensions(scope, statement.name, statement.result, "the result of an external")
    name = statement.name
    scope.externals[name.text] = External(name.text, name.span, arguments, result)


def check_likelihood(scope: Scope, statement: syntax.ExternalLikelihoodStatement) -> None:
    """`external likelihood g(y: real | a: real[4])`."""
    everything = _passed(scope, (*statement.observed, *statement.arguments))
    observed, arguments = everything[: len(statement.observed)], everything[len(statement.observed) :]
    name = statement.name
    scope.likelihoods[name.text] = ExternalLikelihood(name.text, name.span, observed, arguments)


def _passed(scope: Scope, passed: tuple[syntax.Passed, ...]) -> tuple[ExternalArgument, ...]:
    seen: dict[str, str] = {}
    for each in passed:
        if each.name.text in seen:
            scope.problems.fail(DeclaredTwice(each.name.span, each.name.text, seen[each.name.text]))
        seen[each.name.text] = scope.line(each.name.span, each.name.span)
    words = "an argument of an external"
    return tuple(ExternalArgument(each.name.text, _dimensions(scope, each.name, each.type, words)) for each in passed)


def _dimensions(scope: Scope, name: syntax.Identifier, kind: syntax.Type, words: str) -> tuple[Axis, ...]:
    if kind.word.text != "real":
        suggestion = scope.problems.suggest(kind.word.text, ["real"])
        scope.problems.fail(UnknownType(kind.word.span, kind.word.text, words, "`real` or `real[...]`", suggestion))
    return declared_axes(scope, name, (), kind.sizes)


def external_call(scope: Scope, place: Place, call: syntax.Call, check_all: CheckAll) -> Expression:
    """A call whose result takes the declared axes; a bare size takes the index of an argument of that size."""
    name = call.function.text
    if name not in scope.externals:
        scope.problems.give_up()
    external = scope.externals[name]
    arguments = passed_arguments(scope, place, call, external.arguments, check_all)
    passed = tuple(axis for argument in arguments for axis in argument.axes)
    axes = tuple(_adopt(axis, passed) for axis in external.result)
    terms = 1 + sum(fact_of(scope, each).terms for each in arguments)
    return remember(scope, ExternalCall(call.span, axes, name, arguments), Fact(terms=terms))


def passed_arguments(
    scope: Scope, place: Place, call: syntax.Call, declared: tuple[ExternalArgument, ...], check_all: CheckAll
) -> tuple[Expression, ...]:
    """The arguments in declared order, each with exactly the declared dimensions."""
    name = call.function.text
    names = [each.name for each in declared]
    signature = f"{name}({', '.join(names)})"
    matched = match_arguments(scope, call, names, signature, required=names)
    whole = replace(place, bound=NOTHING, whole=True)
    arguments = check_all(scope, whole, matched.values())
    wrong = False
    for argument, expected in zip(arguments, declared, strict=True):
        if not same_dimensions(argument.axes, expected.axes):
            scope.problems.add(
                PassedAxes(
                    argument.span, name, expected.name, describe_axes(expected.axes), describe_axes(argument.axes)
                )
            )
            wrong = True
    return arguments if not wrong else scope.problems.give_up()


def same_dimensions(given: tuple[Axis, ...], expected: tuple[Axis, ...]) -> bool:
    """Whether axes agree one by one, in order."""
    return len(given) == len(expected) and all(same_axis(a, b) for a, b in zip(given, expected, strict=True))


def _adopt(axis: Axis, passed: tuple[Axis, ...]) -> Axis:
    if axis.name is not None:
        return axis
    candidates = {each.name: each for each in passed if each.name is not None and same_axis(each, axis)}
    return next(iter(candidates.values())) if len(candidates) == 1 else axis
