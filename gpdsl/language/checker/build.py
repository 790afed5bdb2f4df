"""Build checked expressions, following the bounds of each as it grows, and what is read at the level of a column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gpdsl.language import syntax
from gpdsl.language.checker.axes import carrier, contains, read, take_names, unite
from gpdsl.language.checker.scope import ByGroup, Fact, Left, Place, Scope, combine, describe_axes
from gpdsl.language.errors.axes import AxesDiffer, AxisNotOnLeft
from gpdsl.language.errors.calls import MissingArgument, RepeatedArgument, UnknownArgument, WrongArity
from gpdsl.language.errors.functionals import LabelNotNumber, LevelNotSaid, NotALabel, TooManyReadings
from gpdsl.language.errors.limits import NotFinite, PowerTooLarge, TooManyTerms
from gpdsl.language.habits import OTHER_NUMBERS, VARIANCES, word_habit
from gpdsl.language.model import VALUE, At, Axis, Expression, Functional, Latent, Number, Operation, Read, same_axis
from gpdsl.language.vocabulary import KERNELS, MAX_DEGREE, MAX_READINGS, MAX_TERMS, Span

# Which argument of a call is which: by position, then by name.


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
        habit = _kernel_habit(scope, function, [each.value for each in positional]) if named_only else ""
        scope.problems.fail(WrongArity(call.span, function, count(len(names)), len(positional), signature, habit))
    found: dict[str, syntax.Formula] = dict(zip(names, (each.value for each in positional), strict=False))
    for argument in call.arguments:
        if argument.name is None:
            continue
        name = argument.name.text
        if name in found:
            scope.problems.fail(RepeatedArgument(argument.name.span, function, name, signature))
        if name not in names and name not in named_only:
            habit = OTHER_NUMBERS.get((function, name.lower()), "") or word_habit(name)
            suggestion = "" if habit else scope.problems.suggest(name, [*names, *named_only])
            if named_only and name.lower() in VARIANCES:
                habit = _kernel_habit(scope, function, [])
            scope.problems.fail(UnknownArgument(argument.name.span, function, name, signature, suggestion, habit))
        found[name] = argument.value
    missing = [name for name in required if name not in found]
    if missing and not any(each.name for each in call.arguments) and len(required) == len(names) and not named_only:
        scope.problems.fail(WrongArity(call.span, function, count(len(names)), len(positional), signature))
    if missing:
        shown = " and ".join(f"`{name}`" for name in missing)
        scope.problems.fail(MissingArgument(call.span, function, shown, signature))
    return {name: found[name] for name in (*names, *named_only) if name in found}


def _kernel_habit(scope: Scope, function: str, values: Sequence[syntax.Formula]) -> str:
    """What to write instead of `RBF(ell; x)` and `RBF(s2, ell)`: columns are named, the variance stands before."""
    names = [value.identifier.text for value in values if isinstance(value, syntax.Name)]
    columns = [name for name in names if scope.sorts.get(name) == "input"]
    if not columns:
        own = function not in KERNELS  # its formula may have a variance
        return "" if own else f"a kernel has no variance of its own: it stands before it, `s2 * {function}(...)`"
    others = [name for name in names if name not in columns]
    on = columns[0] if len(columns) == 1 else f"[{', '.join(columns)}]"
    return f"columns are chosen by name: write `{function}({', '.join([*others, f'on = {on}'])})`"


def count(number: int) -> str:
    """`no arguments`, `1 argument`, `2 arguments`."""
    return {0: "no arguments", 1: "1 argument"}.get(number, f"{number} arguments")


# The right side against the left: every axis of a value must be on the left side.


def require_axes(scope: Scope, left: Left, expression: Expression, allowed: tuple[Axis, ...]) -> None:
    """Report the first axis of a value that is not allowed, at the smallest part that has it."""
    for axis in expression.axes:
        if not contains(allowed, axis):
            span, shown = carrier(expression, axis).span, f"`{left.text}`"
            scope.problems.fail(AxisNotOnLeft(span, scope.quote(span), axis.describe(), shown, left.lacks(axis)))


def fact_of(scope: Scope, expression: Expression) -> Fact:
    """What is known of an expression built here."""
    entry = scope.facts.get(id(expression))
    return entry[1] if entry is not None else Fact()


def remember(scope: Scope, expression: Expression, fact: Fact) -> Expression:
    """Keep a fact beside its expression, which stays alive with it, so that its id stays its own."""
    scope.facts[id(expression)] = (expression, fact)
    return expression


def recorded(scope: Scope, expression: Read) -> Read:
    """Remember a reading; the joint distribution of all readings of a latent at a row is kept, so they are few."""
    seen = scope.readings.setdefault(expression.name, {VALUE})
    if expression.functional not in seen and len(seen) >= MAX_READINGS:
        scope.problems.fail(TooManyReadings(expression.span, expression.name, MAX_READINGS))
    seen.add(expression.functional)
    remember(scope, expression, Fact())
    return expression


def number(scope: Scope, span: Span, value: int | float, text: str) -> Expression:
    """A literal with a finite value."""
    if not math.isfinite(value):
        scope.problems.fail(NotFinite(span, text[:30]))
    return remember(scope, Number(span, (), value), Fact(float(value), abs(float(value))))


def operation(scope: Scope, place: Place, span: Span, operator: str, operands: tuple[Expression, ...]) -> Expression:
    """An elementwise operation, with the united axes of its operands and within the limits."""
    axes: tuple[Axis, ...] = operands[0].axes
    for operand in operands[1:]:
        if place.free and not _nested(_open(place, axes), _open(place, operand.axes)):
            shown = [scope.quote(each.span) for each in (operands[0], operand)]
            given = [describe_axes(_open(place, each)) for each in (axes, operand.axes)]
            remedy = _indexed(place, _open(place, unite(axes, operand.axes)), operands)
            scope.problems.fail(AxesDiffer(span, shown[0], shown[1], given[0], given[1], remedy))
        axes = unite(axes, operand.axes)
    operands = tuple(take_names(scope, each, axes) for each in operands)
    fact = combine(operator, tuple(fact_of(scope, each) for each in operands))
    if fact.degree > MAX_DEGREE:
        scope.problems.fail(PowerTooLarge(span, MAX_DEGREE))
    if fact.value is not None and math.isnan(fact.value):
        scope.problems.fail(NotFinite(span, scope.quote(span).strip("`")))
    if fact.terms > MAX_TERMS:
        scope.problems.fail(TooManyTerms(span, place.left.name, MAX_TERMS))
    return remember(scope, Operation(span, axes, operator, operands), fact)


def _indexed(place: Place, axes: tuple[Axis, ...], operands: tuple[Expression, ...]) -> str:
    """How to write a `let` of all axes of its operands, which then are read element by element."""
    if any(axis.name is None for axis in axes):
        return "take one element, `[1]`"
    left = f"name the axes on the left: `let {place.left.name}[{', '.join(str(axis.name) for axis in axes)}] = ...`"
    plain = [each for each in operands if isinstance(each, Read) and each.axes]
    shown = [f"`{each.name}[{', '.join(str(axis.name) for axis in each.axes)}]`" for each in plain]
    return f"{left} with {' and '.join(shown)}" if len(shown) == len(operands) else left


def _open(place: Place, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes that nothing around gives a value to: an index that a `sum` runs over combines with every other."""
    return tuple(axis for axis in axes if axis.name not in place.bound)


def _nested(a: tuple[Axis, ...], b: tuple[Axis, ...]) -> bool:
    small, large = sorted((a, b), key=len)
    return all(any(same_axis(axis, other) for other in large) for axis in small)


# What is read at the level of a column in each row: `a[site]`, `f[site](b)`, `W[site, q]`.

ON = "`on`"
"""Where a kernel may see a label: it is checked which does."""


def over_levels(scope: Scope, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Those axes whose values are the levels of a column of the data."""
    return tuple(axis for axis in axes if axis.name in scope.labels)


def levels_of(scope: Scope, latent: Latent) -> int:
    """How many of the arguments of a latent say which level."""
    group = scope.by_group.get(latent.name)
    return 0 if group is None else len(over_levels(scope, group.axes))


def refuse_label(scope: Scope, name: syntax.Identifier) -> None:
    """A label is no number."""
    declared = scope.inputs.get(name.text)
    if declared is not None and declared.label is not None:
        scope.problems.fail(LabelNotNumber(name.span, name.text, declared.label.describe()))


def read_at_level(scope: Scope, place: Place, name: syntax.Name, axes: tuple[Axis, ...]) -> Expression | None:
    """`a[site]`, `f[site]`, `W[site, q]`; None for a name that has nothing to do with levels of columns."""
    text = name.identifier.text
    if place.words != ON:
        refuse_label(scope, name.identifier)
    grouped = scope.by_group.get(text)
    declared = axes if grouped is None else grouped.axes
    given = name.subscripts or ()
    labels = [_label(scope, place, each) for each in given]
    if grouped is None and not any(labels):
        return None
    if grouped is not None and not given:
        _refuse_unsaid(scope, name.identifier, declared, place)
    found: dict[int, str] = {}
    for position, (axis, subscript, label) in enumerate(zip(declared, given, labels, strict=False)):
        if label:
            _check_label(scope, text, subscript, label, axis)
            found[position] = label
        elif grouped is not None and axis.name in scope.labels:
            _refuse_unsaid(scope, name.identifier, declared, place, given)
    rest = tuple(each for position, each in enumerate(given) if position not in found)
    left = tuple(axis for position, axis in enumerate(declared) if position not in found)
    plain = read(scope, place, replace(name, subscripts=rest or None), left)
    if grouped is not None:
        return _of_latent(scope, plain, grouped, tuple(found.values()))
    kept = iter(plain.subscripts)
    subscripts = tuple(At(found[k]) if k in found else next(kept) for k in range(len(declared)))
    return remember(scope, replace(plain, subscripts=subscripts), Fact())


def _label(scope: Scope, place: Place, subscript: syntax.Subscript) -> str:
    """The input that a subscript names, or that says the level of an index `s` in `GP(mu[s], ...)`; empty if none."""
    value = subscript.value
    if not isinstance(value, syntax.Name) or value.subscripts is not None or subscript.stop or subscript.comparison:
        return ""
    text = value.identifier.text
    declared = scope.inputs.get(text)
    if declared is not None and declared.label is not None:
        return text
    own = text in scope.labels and text in place.left.indices and text not in place.bound
    return scope.labels[text] if own else ""


def _check_label(scope: Scope, name: str, subscript: syntax.Subscript, given: str, axis: Axis) -> None:
    label = scope.inputs[given].label
    if label is not None and not same_axis(label, axis):
        what, known, index = f"a label of `{label.describe()}`", scope.labels.get(axis.name or ""), axis.describe()
        remedy = f"write `{name}[{known}]`" if known else f"declare `input {index}1 : label[{index}]`"
        scope.problems.fail(NotALabel(subscript.span, name, given, what, index, remedy))


def refuse_without_level(scope: Scope, name: syntax.Identifier) -> None:
    """`f(b)` of what each level has its own of."""
    group = scope.by_group.get(name.text)
    if group is not None:
        _refuse_unsaid(scope, name, group.axes)


def _refuse_unsaid(
    scope: Scope,
    name: syntax.Identifier,
    declared: tuple[Axis, ...],
    place: Place | None = None,
    given: Sequence[syntax.Subscript] = (),
) -> None:
    shown = ", ".join(scope.labels.get(axis.name or "", axis.describe()) for axis in declared)
    index = next(axis.describe() for axis in declared if axis.name in scope.labels)
    without = ""
    if place is not None and place.left.sort == "let" and index in place.left.indices:
        own = place.left.name
        without = f", in `let {own} = ...` without `[{index}]`: `{own}` is then that of the row"
    if given and scope.indices[index].axis.size is None:
        without += f"; or say how many levels there are, `index {index} in 1..3`, whose elements can be read"
    scope.problems.fail(LevelNotSaid(name.span, name.text, index, f"{name.text}[{shown}]", without))


def _of_latent(scope: Scope, plain: Read, group: ByGroup, labels: tuple[str, ...]) -> Expression:
    own = scope.latents[group.latent].arguments
    at = (*own[: len(own) - len(labels)], *labels)
    value = recorded(scope, replace(plain, name=group.latent, functional=Functional(() if at == own else at)))
    if not group.log:
        return value
    return remember(scope, Operation(plain.span, value.axes, "exp", (value,)), Fact())
