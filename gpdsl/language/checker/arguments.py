"""Which argument of a call is which: by position, then by name."""

from __future__ import annotations

from collections.abc import Sequence

from gpdsl.language import syntax
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.calls import MissingArgument, RepeatedArgument, UnknownArgument, WrongArity
from gpdsl.language.habits import word_habit


def match_arguments(
    scope: Scope,
    call: syntax.Call,
    names: Sequence[str],
    signature: str,
    *,
    required: Sequence[str],
    named_only: Sequence[str] = (),
) -> dict[str, syntax.Formula]:
    """The arguments of a call by parameter name, in the order of `names`.

    Fails with a mistake when there are too many, one is unknown or repeated, or a required one is missing.
    `named_only` are names accepted only as `name = value`.
    """
    function = call.function.text
    positional = [each for each in call.arguments if each.name is None]
    if len(positional) > len(names):
        scope.problems.fail(WrongArity(call.span, function, count(len(names)), len(positional), signature))
    found: dict[str, syntax.Formula] = dict(zip(names, (each.value for each in positional), strict=False))
    for argument in call.arguments:
        if argument.name is None:
            continue
        name = argument.name.text
        if name in found:
            scope.problems.fail(RepeatedArgument(argument.name.span, function, name, signature))
        if name not in names and name not in named_only:
            suggestion = scope.problems.suggest(name, [*names, *named_only])
            habit = word_habit(name)
            scope.problems.fail(UnknownArgument(argument.name.span, function, name, signature, suggestion, habit))
        found[name] = argument.value
    missing = [name for name in required if name not in found]
    if missing and not any(each.name for each in call.arguments) and len(required) == len(names) and not named_only:
        scope.problems.fail(WrongArity(call.span, function, count(len(names)), len(positional), signature))
    if missing:
        shown = " and ".join(f"`{name}`" for name in missing)
        scope.problems.fail(MissingArgument(call.span, function, shown, signature))
    return {name: found[name] for name in (*names, *named_only) if name in found}


def count(number: int) -> str:
    """`no arguments`, `1 argument`, `2 arguments`."""
    return {0: "no arguments", 1: "1 argument"}.get(number, f"{number} arguments")
