"""E[expression] under Gaussians where it has a formula: smooth ones by one rule, conditions on latents by regions.

What data decide gives the expectation of each branch where it holds. A condition that compares a linear function of
latents with a threshold cuts their space into two half-spaces; |f|, max and min are such conditions too.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from gpdsl.symbolic.conditions import choose
from gpdsl.symbolic.gaussian import Linear, Moments, parts_of, pull_exponentials, tilted_mean
from gpdsl.symbolic.polynomials import MAX_PRODUCTS, Budget, NotPolynomial
from gpdsl.symbolic.regions import EVERYWHERE, Region, half_space, undecided, without_corners
from gpdsl.symbolic.truncated import truncated_mean

BRANCH = MAX_PRODUCTS // 64
"""What each branching on a condition takes of the budget: conditions that multiply are soon left to quadrature."""


def expectation(expression: sp.Expr, latents: Sequence[sp.Symbol], moments: Moments) -> sp.Expr | None:
    """E[expression] as a formula in the latents' means and variances.

    None when it is outside the closed family, or inside it but too large to be worth writing out.
    """
    budget = Budget()
    try:
        return _over(without_corners(expression, latents), tuple(latents), moments, EVERYWHERE, budget)
    except NotPolynomial:
        return None


def smooth_pieces(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> list[tuple[sp.Expr, Region]] | None:
    """An expression by regions without conditions in them; None where data decide, or where it has no such form."""
    budget, found = Budget(), list[tuple[sp.Expr, Region]]()
    pending = [(without_corners(expression, latents), EVERYWHERE)]
    try:
        while pending:
            part, region = pending.pop()
            condition = undecided(part, latents)
            if condition is None:
                found.append((part, region))
                continue
            budget.spend(BRANCH)
            simple = half_space(condition, latents, budget)
            if simple != condition:
                pending.append((part.xreplace({condition: simple}), region))
            else:
                pending += _sides(part, condition, region)
    except NotPolynomial:
        return None
    return None if any(part.has(choose) for part, _ in found) else found


def _sides(expression: sp.Expr, half: sp.Expr, region: Region) -> list[tuple[sp.Expr, Region]]:
    """What is left of an expression where a half-space holds and where not, unless it is empty."""
    sides = zip((1, 0), region.split(half), strict=True)
    return [(expression.xreplace({half: sp.Integer(holds)}), side) for holds, side in sides if side is not None]


def _over(
    expression: sp.Expr, latents: tuple[sp.Symbol, ...], moments: Moments, region: Region, budget: Budget
) -> sp.Expr:
    """E[expression where the latents are in the region]."""
    decided = _conditional(expression, latents)
    if decided is not None:
        budget.spend(BRANCH)
        branches = [pull_exponentials(expression.xreplace({decided: sp.Integer(holds)})) for holds in (1, 0)]
        return choose(decided, *[_over(branch, latents, moments, region, budget) for branch in branches])
    if expression.is_Add:
        return sp.Add(*[_over(term, latents, moments, region, budget) for term in expression.args])
    condition = undecided(expression, latents)
    if condition is None:
        parts = parts_of(expression, latents, budget) if expression != 0 else []
        return sp.Add(*[_mean(exponent, polynomial, moments, region, budget) for exponent, polynomial in parts])
    budget.spend(BRANCH)
    simple = half_space(condition, latents, budget)
    if simple != condition:
        new = pull_exponentials(expression.xreplace({condition: simple}))
        return _over(new, latents, moments, region, budget)
    sides = _sides(expression, condition, region)
    return sp.Add(*[_over(pull_exponentials(part), latents, moments, side, budget) for part, side in sides])


def _mean(exponent: Linear, polynomial: sp.Expr, moments: Moments, region: Region, budget: Budget) -> sp.Expr:
    if region is EVERYWHERE:
        return tilted_mean(exponent, polynomial, moments, budget)
    return truncated_mean(exponent, polynomial, region, moments, budget)


def _conditional(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> sp.Expr | None:
    """The condition of the outermost conditional that data decide, with latents in a branch."""
    if not expression.has(choose):
        return None
    found = [e for e in expression.atoms(choose) if not e.free_symbols.isdisjoint(latents)]
    decided = [e for e in found if e.args[0].free_symbols.isdisjoint(latents)]
    return max(decided, key=lambda e: (e.count_ops(), str(e))).args[0] if decided else None
