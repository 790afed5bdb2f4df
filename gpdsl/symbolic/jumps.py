"""Conditions on latents at which a value jumps: there a derivative through the samples misses what the boundary does.

E[if f > t then a else b] moves with the mean of f although both branches are constant. Quadrature and pathwise
gradients see neither; values with score-function gradients do.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from gpdsl.errors import GpdslError
from gpdsl.symbolic.conditions import choose, condition, less, less_equal, opposite
from gpdsl.symbolic.functions import floor

MAX_OPERATIONS = 500
"""Beyond this the two branches are not compared at the boundary, and count as different."""


def jumps(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> tuple[sp.Expr, ...]:
    """The conditions on latents whose branches differ at the boundary, and the steps of `floor`."""
    if not expression.has(choose, floor):
        return ()
    found = sorted((*expression.atoms(choose), *expression.atoms(floor)), key=str)
    deciding = [each for each in found if not each.args[0].free_symbols.isdisjoint(latents)]
    return tuple(each.args[0] for each in deciding if isinstance(each, floor) or not _continuous(each, latents))


def refuse_quadrature(expectations: str) -> None:
    """Raises GpdslError when quadrature was asked for, whose error at a jump does not vanish."""
    if expectations == "quadrature":
        raise GpdslError("quadrature is inexact where a condition on a latent makes a jump; use expectations = auto")


def _continuous(conditional: sp.Expr, latents: Sequence[sp.Symbol]) -> bool:
    """Whether both branches surely agree where the condition changes: it is linear in one latent of its own."""
    holds, then, otherwise = conditional.args
    while isinstance(holds, opposite):
        holds = holds.args[0]
    if not isinstance(holds, less | less_equal) or conditional.count_ops() > MAX_OPERATIONS:
        return False
    difference = holds.args[0] - holds.args[1]
    inside = sorted(difference.free_symbols.intersection(latents), key=lambda f: f.name)
    slope = difference.diff(inside[0]) if difference.is_Add or difference.is_Mul or difference.is_Symbol else sp.S.Zero
    if slope == 0 or not slope.free_symbols.isdisjoint(latents) or difference.has(condition):
        return False
    boundary = inside[0] - difference / slope
    there = {inside[0]: sp.expand(boundary)}
    return sp.expand(then.xreplace(there) - otherwise.xreplace(there)) == 0
