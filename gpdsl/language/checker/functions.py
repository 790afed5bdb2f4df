"""What a model calls by names of its own: `function t(y; a) = ...`, densities, and opaque functions.

A definition is checked once as a formula of anything, and written out again at each call, which checks it once more
with the caller's expressions in the place of the arguments: only then is it known which axes they have. The other names
of a formula are those of the file, whatever the caller calls its own. Opaque functions take whole arrays of the
declared dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

from gpdsl.language import model as m, syntax
from gpdsl.language.checker.axes import declared_axes
from gpdsl.language.checker.build import fact_of, match_arguments, remember
from gpdsl.language.checker.layers import followed
from gpdsl.language.checker.scope import NOTHING, Fact, Left, Passed, Place, Scope, describe_axes
from gpdsl.language.errors.axes import PassedAxes
from gpdsl.language.errors.calls import MissingArgument, UnknownType
from gpdsl.language.errors.definitions import CallsItself, CallsTooDeep, CallsTooMany, InsideCall
from gpdsl.language.errors.names import DeclaredTwice, ShadowsBuiltin
from gpdsl.language.vocabulary import BUILTINS, MAX_EXPANDED, MAX_FUNCTION_DEPTH

Check = Callable[[Scope, Place, syntax.Formula], m.Expression]
Statement = syntax.FunctionStatement | syntax.DensityStatement

_CALL_DEPTH = 2
"""As how many operations a call counts, even that of a function which only calls another."""

_CALL_TERMS = 10
"""As how many terms a call counts, whatever it writes out: what its check costs."""

READABLE = frozenset({"const", "param"})
"""What a formula may read besides its arguments."""


# --- definitions ------------------------------------------------------------------------------------------------


def check_functions(scope: Scope, statements: Sequence[syntax.FunctionStatement], check: Check) -> None:
    """Check every definition, those that others call first."""
    by_name = {statement.name.text: statement for statement in statements}

    def one(scope: Scope, statement: syntax.FunctionStatement) -> None:
        name, arguments, parameters = statement.name, texts_of(statement.arguments), texts_of(statement.parameters)
        body = check_formula(scope, statement, arguments, check)
        scope.formulas[name.text] = statement
        scope.functions[name.text] = m.Function(name.text, name.span, arguments, parameters, body)

    for name in _in_order(scope, by_name):
        scope.attempt(name, one, by_name[name])


def check_formula(scope: Scope, statement: Statement, arguments: tuple[str, ...], check: Check) -> m.Expression:
    """The body of a definition with its arguments as `Local`; what is wrong with it whatever is passed is said here."""
    _check_arguments(scope, statement)
    name = statement.name.text
    sort = "density" if isinstance(statement, syntax.DensityStatement) else "function"
    locals_ = {each: m.Local(statement.name.span, (), each) for each in (*arguments, *texts_of(statement.parameters))}
    left = Left(sort, name, f"{sort} {name}")
    body = check(
        scope, Place(f"`{sort} {name}`", READABLE, left, NOTHING, local=locals_, generic=True), statement.value
    )
    if fact_of(scope, body).depth > MAX_FUNCTION_DEPTH:
        scope.problems.fail(CallsTooDeep(statement.name.span, name, MAX_FUNCTION_DEPTH))
    return body


def texts_of(names: Iterable[syntax.Identifier]) -> tuple[str, ...]:
    """Names as they are written."""
    return tuple(each.text for each in names)


def _check_arguments(scope: Scope, statement: Statement) -> None:
    seen: dict[str, str] = {}
    observed = (statement.observed,) if isinstance(statement, syntax.DensityStatement) else ()
    for each in (*observed, *statement.arguments, *statement.parameters):
        if each.text in BUILTINS:
            scope.problems.fail(ShadowsBuiltin(each.span, each.text, BUILTINS[each.text]))
        if each.text in scope.indices:
            scope.problems.fail(DeclaredTwice(each.span, each.text, scope.line(scope.places[each.text], each.span)))
        if each.text in seen:
            scope.problems.fail(DeclaredTwice(each.span, each.text, seen[each.text]))
        seen[each.text] = scope.line(each.span, each.span)


def _in_order(scope: Scope, statements: Mapping[str, syntax.FunctionStatement]) -> list[str]:
    """Names such that each calls only earlier ones. Calls that lead back are reported, and their functions lost."""
    order: list[str] = []
    calls = {name: [(call.function.text, call) for call in _calls(statements, name)] for name in statements}
    for name, call, cycle in followed(calls):
        if call is None:
            order.append(name)
            continue
        shown = " → ".join(f"`{each}`" for each in (*cycle[:8], name))
        scope.problems.add(CallsItself(call.span, name, shown))
        scope.lost.update(cycle)
    return [name for name in order if name not in scope.lost]


def _calls(statements: Mapping[str, syntax.FunctionStatement], name: str) -> Iterator[syntax.Call]:
    for node in nodes(statements[name].value):
        if isinstance(node, syntax.Call) and node.function.text in statements:
            yield node


def nodes(formula: syntax.Node) -> Iterator[syntax.Node]:
    """A piece of syntax and everything inside it."""
    waiting: list[object] = [formula]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting += reversed(node)
        elif isinstance(node, syntax.Node):
            yield node
            waiting += [getattr(node, each.name) for each in reversed(fields(node)) if each.name != "span"]


# --- calls ------------------------------------------------------------------------------------------------------


def function_call(scope: Scope, place: Place, call: syntax.Call, check: Check) -> m.Expression:
    """A call of a function of the file, its formula written out with these arguments."""
    name = call.function.text
    if name not in scope.formulas:
        scope.problems.give_up()
    statement = scope.formulas[name]
    arguments = passed_arguments(scope, place, call, statement, check)
    body = expand(scope, place, call, statement, arguments, check)
    values = tuple(value for value, _ in arguments.values())
    fact = fact_of(scope, body)
    return remember(
        scope, m.FunctionCall(call.span, body.axes, name, values, body), replace(fact, depth=fact.depth + _CALL_DEPTH)
    )


def passed_arguments(
    scope: Scope, place: Place, call: syntax.Call, statement: Statement, check: Check
) -> dict[str, tuple[m.Expression, Passed]]:
    """What each argument stands for in one call; those after `;` are the model's own quantities unless given."""
    name, required = call.function.text, texts_of(statement.arguments)
    names = (*required, *texts_of(statement.parameters))
    signature = _signature(statement)
    matched = match_arguments(scope, call, names, signature, required=required)

    def one(each: str) -> tuple[m.Expression, Passed]:
        if each in matched:
            return check(scope, place, matched[each]), _passed(place, matched[each])
        if each not in scope.sorts and each not in scope.lost:
            shown = f"`{each}` (the file declares no `{each}`)"
            scope.problems.fail(MissingArgument(call.span, name, shown, signature))
        own = syntax.Name(call.span, syntax.Identifier(call.span, each))
        return check(scope, replace(place, local={}, passed={}, generic=False), own), Passed()

    return dict(zip(names, scope.problems.each(names, one), strict=True))


def _signature(statement: Statement) -> str:
    shown = ", ".join(texts_of(statement.arguments))
    parameters = ", ".join(texts_of(statement.parameters))
    return f"{statement.name.text}({shown}{'; ' if parameters else ''}{parameters})"


def _passed(place: Place, formula: syntax.Formula) -> Passed:
    """The indices that have a value in an argument: those written as subscripts, and those that run at the call."""
    elements: set[str] = set()
    running = set(place.bound)
    for node in nodes(formula):
        if isinstance(node, syntax.Subscript):
            elements |= {each.identifier.text for each in nodes(node.value) if isinstance(each, syntax.Name)}
        elif isinstance(node, syntax.Name):
            known = place.passed.get(node.identifier.text, Passed())
            elements |= known.elements | {node.identifier.text}
            running |= known.running
    return Passed(frozenset(elements), frozenset(running))


def expand(
    scope: Scope,
    place: Place,
    call: syntax.Call,
    statement: Statement,
    arguments: Mapping[str, tuple[m.Expression, Passed]],
    check: Check,
) -> m.Expression:
    """The formula of a definition with these arguments in it. Mistakes inside point at the call."""
    inner = Place(
        f"`{statement.name.text}`",
        place.readable & READABLE,
        place.left,
        NOTHING,
        free=place.free,
        local={name: value for name, (value, _) in arguments.items()},
        passed={name: passed for name, (_, passed) in arguments.items()},
        generic=place.generic,
    )
    if scope.expanded > MAX_EXPANDED:
        scope.problems.give_up()  # said once; going on would cost what the limit is there to prevent
    before = len(scope.problems.mistakes)
    body: m.Expression | None = None
    with scope.problems.contained:
        body = check(scope, inner, statement.value)
    if body is None:
        _blame_call(scope, call, statement, before)
    fact = fact_of(scope, body)
    if fact.depth > 2 * MAX_FUNCTION_DEPTH:
        scope.problems.fail(CallsTooDeep(call.span, call.function.text, 2 * MAX_FUNCTION_DEPTH))
    scope.expanded += fact.terms + _CALL_TERMS
    if scope.expanded > MAX_EXPANDED:
        scope.problems.fail(CallsTooMany(call.span, MAX_EXPANDED))
    return body


def _blame_call(scope: Scope, call: syntax.Call, statement: Statement, before: int) -> None:
    mistakes, name, line = scope.problems.mistakes, statement.name.text, scope.line(statement.name.span, call.span)
    found = mistakes[before:]
    del mistakes[before:]
    for each in found[:1]:
        if isinstance(each, CallsTooMany):
            scope.problems.add(each.but(span=call.span))
        else:
            scope.problems.add(InsideCall(call.span, name, line, each.message_text(), each.help_text()))
    scope.problems.give_up()


# Opaque functions: their declaration, and calls that pass whole arrays of the declared dimensions.

CheckAll = Callable[..., tuple[m.Expression, ...]]


def check_external(scope: Scope, statement: syntax.ExternalStatement) -> None:
    """`external g(a: real[4]) -> real[4]`."""
    arguments = _declared(scope, statement.arguments)
    result = _dimensions(scope, statement.name, statement.result, "the result of an external")
    name = statement.name
    scope.externals[name.text] = m.External(name.text, name.span, arguments, result)


def check_likelihood(scope: Scope, statement: syntax.ExternalLikelihoodStatement) -> None:
    """`external likelihood g(y: real | a: real[4])`."""
    everything = _declared(scope, (*statement.observed, *statement.arguments))
    observed, arguments = everything[: len(statement.observed)], everything[len(statement.observed) :]
    name = statement.name
    scope.likelihoods[name.text] = m.ExternalLikelihood(name.text, name.span, observed, arguments)


def _declared(scope: Scope, passed: tuple[syntax.Passed, ...]) -> tuple[m.ExternalArgument, ...]:
    seen: dict[str, str] = {}
    for each in passed:
        if each.name.text in seen:
            scope.problems.fail(DeclaredTwice(each.name.span, each.name.text, seen[each.name.text]))
        seen[each.name.text] = scope.line(each.name.span, each.name.span)
    words = "an argument of an external"
    return tuple(m.ExternalArgument(each.name.text, _dimensions(scope, each.name, each.type, words)) for each in passed)


def _dimensions(scope: Scope, name: syntax.Identifier, kind: syntax.Type, words: str) -> tuple[m.Axis, ...]:
    if kind.word.text != "real":
        suggestion = scope.problems.suggest(kind.word.text, ["real"])
        scope.problems.fail(UnknownType(kind.word.span, kind.word.text, words, "`real` or `real[...]`", suggestion))
    return declared_axes(scope, name, (), kind.sizes)


def external_call(scope: Scope, place: Place, call: syntax.Call, check_all: CheckAll) -> m.Expression:
    """A call whose result takes the declared axes; a bare size takes the index of an argument of that size."""
    name = call.function.text
    if name not in scope.externals:
        scope.problems.give_up()
    external = scope.externals[name]
    arguments = external_arguments(scope, place, call, external.arguments, check_all)
    passed = tuple(axis for argument in arguments for axis in argument.axes)
    axes = tuple(_adopt(axis, passed) for axis in external.result)
    terms = 1 + sum(fact_of(scope, each).terms for each in arguments)
    return remember(scope, m.ExternalCall(call.span, axes, name, arguments), Fact(terms=terms))


def external_arguments(
    scope: Scope, place: Place, call: syntax.Call, declared: tuple[m.ExternalArgument, ...], check_all: CheckAll
) -> tuple[m.Expression, ...]:
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
            shown = describe_axes(expected.axes), describe_axes(argument.axes)
            scope.problems.add(PassedAxes(argument.span, name, expected.name, *shown))
            wrong = True
    return arguments if not wrong else scope.problems.give_up()


def same_dimensions(given: tuple[m.Axis, ...], expected: tuple[m.Axis, ...]) -> bool:
    """Whether axes agree one by one, in order."""
    return len(given) == len(expected) and all(m.same_axis(a, b) for a, b in zip(given, expected, strict=True))


def _adopt(axis: m.Axis, passed: tuple[m.Axis, ...]) -> m.Axis:
    if axis.name is not None:
        return axis
    candidates = {each.name: each for each in passed if each.name is not None and m.same_axis(each, axis)}
    return next(iter(candidates.values())) if len(candidates) == 1 else axis
