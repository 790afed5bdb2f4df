"""`if c then a else b`, and its condition: comparisons joined by `and`, `or` and `not`."""

from __future__ import annotations

from gpdsl.language import syntax
from gpdsl.language.checker.build import operation
from gpdsl.language.checker.place import Place
from gpdsl.language.checker.problems import Failed
from gpdsl.language.checker.reductions import Check
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.reductions import LatentEquality
from gpdsl.language.model import Expression, Read, parts

EXACT = ("==", "!=")


def conditional(scope: Scope, place: Place, formula: syntax.Conditional, check: Check) -> Expression:
    """The checked form of `if c then a else b`: an `if` of three operands, with the axes of all of them."""
    found: list[Expression] = []
    with scope.problems.contained():
        found.append(condition(scope, place, formula.condition, check))
    for branch in (formula.then, formula.otherwise):
        with scope.problems.contained():
            found.append(check(scope, place, branch))
    if len(found) < 3:
        scope.problems.give_up()
    return operation(scope, place, formula.span, "if", tuple(found))


def condition(scope: Scope, place: Place, formula: syntax.Condition, check: Check) -> Expression:
    """The checked form of a condition."""
    if isinstance(formula, syntax.Logical):
        return operation(scope, place, formula.span, formula.operator, _both(scope, place, formula.operands, check))
    sides = _both(scope, place, (formula.left, formula.right), check)
    if formula.operator in EXACT and any(reads_latent(scope, side) for side in sides):
        scope.problems.fail(LatentEquality(formula.span, formula.operator))
    return operation(scope, place, formula.span, formula.operator, sides)


def _both(
    scope: Scope, place: Place, operands: tuple[syntax.Formula | syntax.Condition, ...], check: Check
) -> tuple[Expression, ...]:
    found: list[Expression] = []
    for operand in operands:
        try:
            if isinstance(operand, syntax.Comparison | syntax.Logical):
                found.append(condition(scope, place, operand, check))
            else:
                found.append(check(scope, place, operand))
        except Failed:
            continue
    return tuple(found) if len(found) == len(operands) else scope.problems.give_up()


def reads_latent(scope: Scope, expression: Expression) -> bool:
    """Whether a value depends on a latent, directly or through a `let`."""
    seen: set[str] = set()
    pending = [expression]
    while pending:
        each = pending.pop()
        if isinstance(each, Read) and (each.name in scope.latents or each.name in scope.rows):
            return True
        if isinstance(each, Read) and each.name in scope.lets and each.name not in seen:
            seen.add(each.name)
            pending += [case.body for case in scope.lets[each.name].cases]
        pending += parts(each)
    return False
