"""Build checked expressions, following the bounds of each as it grows."""

from __future__ import annotations

import math

from gpdsl.language.checker.axes import unite
from gpdsl.language.checker.facts import Fact, combine, number_fact
from gpdsl.language.checker.naming import take_names
from gpdsl.language.checker.place import Place
from gpdsl.language.checker.scope import Scope, describe_axes
from gpdsl.language.errors.axes import AxesDiffer
from gpdsl.language.errors.functionals import TooManyReadings
from gpdsl.language.errors.limits import NotFinite, PowerTooLarge, TooManyTerms
from gpdsl.language.limits import MAX_DEGREE, MAX_READINGS, MAX_TERMS
from gpdsl.language.model import VALUE, Axis, Expression, Number, Operation, Read, same_axis
from gpdsl.language.source import Span


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
    return remember(scope, Number(span, (), value), number_fact(float(value)))


def operation(scope: Scope, place: Place, span: Span, operator: str, operands: tuple[Expression, ...]) -> Expression:
    """An elementwise operation, with the united axes of its operands and within the limits."""
    axes: tuple[Axis, ...] = operands[0].axes
    for operand in operands[1:]:
        if place.free and not _nested(_open(place, axes), _open(place, operand.axes)):
            scope.problems.fail(
                AxesDiffer(
                    span,
                    scope.quote(operands[0].span),
                    scope.quote(operand.span),
                    describe_axes(_open(place, axes)),
                    describe_axes(_open(place, operand.axes)),
                    _indexed(scope, place, _open(place, unite(axes, operand.axes)), operands),
                )
            )
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


def _indexed(scope: Scope, place: Place, axes: tuple[Axis, ...], operands: tuple[Expression, ...]) -> str:
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
