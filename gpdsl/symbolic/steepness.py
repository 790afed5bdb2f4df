"""How steep a smooth function of one latent is: where to look closely, and where Gauss–Hermite quadrature is exact.

That is so where the nearest singularity of the function in the complex plane is far away in units of the latent's
standard deviation: the error of n nodes falls like exp(-2 distance sqrt(n)).
"""

from __future__ import annotations

import math

import sympy as sp

from gpdsl.symbolic.conditions import choose, condition
from gpdsl.symbolic.functions import log_ndtr, ndtr, sigmoid, softplus
from gpdsl.symbolic.gaussian import linear
from gpdsl.symbolic.polynomials import Budget, NotPolynomial
from gpdsl.symbolic.regions import CORNERS

MOST_CENTRES = 4
"""Places around which something may be steep that are looked at closely."""

RADII = {
    softplus: math.pi,
    sigmoid: math.pi,
    sp.tanh: math.pi / 2,
    log_ndtr: 2.8,
    ndtr: 2.0,
    sp.exp: 4.5,
    sp.sin: 4.5,
    sp.cos: 4.5,
}
"""Distance from the real line of a function's nearest singularity; of those without one, what growth allows."""


def centres(expression: sp.Expr, latent: sp.Symbol) -> tuple[sp.Expr, ...]:
    """Linear functions of a latent that a function or a power is taken of: it may be steep where one is zero."""
    arguments = {arg for each in expression.atoms(sp.Function, sp.Pow) for arg in each.args if arg.has(latent)}
    found = dict[sp.Expr, None]()
    for argument in sorted(arguments, key=lambda e: (e.count_ops(), str(e))):
        slope = _slope(argument, latent)
        if slope is not None:
            found[sp.expand(argument / slope)] = None
    return tuple(found)[:MOST_CENTRES]


def widths(expression: sp.Expr, latent: sp.Symbol) -> list[tuple[sp.Expr, float]] | None:
    """Slopes with which a latent enters functions, and those functions' radii; None where something else is in it.

    Conditions and corners, which an integral is split at, do not count.
    """
    if not expression.has(latent) or expression == latent:
        return []
    found: list[tuple[sp.Expr, float]] = []
    radius = RADII.get(expression.func)
    if radius is not None:
        slope = _slope(expression.args[0], latent)
        return None if slope is None else [(slope, radius)]
    power = expression.is_Pow and expression.exp.is_integer and expression.exp.is_positive
    if not (expression.is_Add or expression.is_Mul or power or isinstance(expression, (choose, condition, *CORNERS))):
        return None
    for argument in expression.args:
        inside = widths(argument, latent)
        if inside is None:
            return None
        found += inside
    return found


def _slope(argument: sp.Expr, latent: sp.Symbol) -> sp.Expr | None:
    """Of what is linear in the latent."""
    try:
        return linear(argument, (latent,), Budget()).slopes.get(latent)
    except NotPolynomial:
        return None
