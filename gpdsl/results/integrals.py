"""Expectations under each component by closed form, quadrature or samples, traced: what is compiled together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array, Bool, Float

from gpdsl.inference.problem import as_numpy
from gpdsl.program.fine_quadrature import (
    even_integral,
    fine_integral,
    fine_of_two,
    may_be_steep,
    quick_integral,
    quick_of_two,
)
from gpdsl.program.joint import moment_values
from gpdsl.program.quadrature import split_integral
from gpdsl.program.rows import Scope
from gpdsl.results.samples import sampled_mean, shape_of, without
from gpdsl.symbolic.arguments import Integrand, integrand_of
from gpdsl.symbolic.functions import floor
from gpdsl.symbolic.terms import latents_in

if TYPE_CHECKING:
    from gpdsl.results.expectation import Beliefs

RULES = (32, 23, 17, 28, 33)
"""Nodes along each of two arguments: of an integral, of what it is compared with, and of what tells its error."""

NEAR = 0.5
"""Standard deviations from the mean's line at which a singularity leaves the trapezoidal rule exact."""

Found = tuple[Float[Array, "K rows *keys"], Bool[Array, ""] | None]
"""An expectation, and whether it is right in all rows where it is known to be so only afterwards: else `fine`."""


def is_steep(beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...], given: Any = (), near: float = NEAR) -> bool:
    """Whether it has one argument and may have a singularity nearer than so many of its standard deviations."""
    integrand = integrand_in(beliefs, expression, given)
    if len(integrand.arguments) != 1:
        return False
    scope = Scope(as_numpy(dict(beliefs.parameters)), beliefs.rows)  # nothing is compiled for what is on the host
    return may_be_steep(beliefs.program, integrand, keys, scope, beliefs.widest, near)


def integrand_in(beliefs: Beliefs, expression: sp.Basic, given: Iterable[sp.Symbol] = ()) -> Integrand:
    """An expression, or a tuple of them, in few arguments."""
    translator = beliefs.program.translator
    return integrand_of(translator, expression, latents_in(translator, without(expression, given)))


def expected(
    beliefs: Beliefs,
    expression: sp.Expr,
    keys: tuple[str, ...],
    given: Mapping[sp.Symbol, Array],
    steep: bool,
    fine: bool,
) -> Found:
    """By what is exact or cheapest of the three; `steep` integrals are checked, `fine` ones are right as they are."""
    evaluator = beliefs.program.evaluator
    latents = latents_in(beliefs.program.translator, without(expression, given))
    if not latents:
        return _with_rows(evaluator(expression, beliefs.scope(), keys, given), beliefs, keys), None
    program = beliefs.program
    if beliefs.marginals.together and len(latents) > 1:  # values at different points are dependent
        return sampled_mean(beliefs, expression, keys, given), None
    closed = beliefs.closed(expression, latents)
    if closed is not None:
        table = moment_values(program, latents, beliefs.marginals, keys, closed.free_symbols)
        return _with_rows(evaluator(closed, beliefs.scope(), keys, {**table, **given}), beliefs, keys), None
    integrand = integrand_in(beliefs, expression, given)
    if integrand.kinks is None:
        return sampled_mean(beliefs, expression, keys, given), None
    integral, one = beliefs.integral(integrand, keys, given), len(integrand.symbols) == 1
    if any(each.has(floor) for each in integral.kinks) or (integral.kinks and not one):
        return split_integral(integral), None
    if one and (integral.kinks or fine):
        return fine_integral(integral)[0], None
    if one:
        return quick_integral(integral) if steep else (even_integral(integral), None)
    values, right = (fine_of_two(integral, RULES[:2])[0], None) if fine else quick_of_two(integral, RULES[:2])
    return values[0], right


def _with_rows(value: Array, beliefs: Beliefs, keys: tuple[str, ...]) -> Array:
    return jnp.broadcast_to(value, shape_of(beliefs, value, keys))
