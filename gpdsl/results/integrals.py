"""Expectations under each component by closed form, quadrature or samples, and what samples need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Bool, Float

from gpdsl.inference.estimators.sampling import shared_normals
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
from gpdsl.symbolic.arguments import Integrand, integrand_of
from gpdsl.symbolic.functions import floor
from gpdsl.symbolic.terms import has_external, latents_in

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


# Samples of the latents at the rows of beliefs, values of expressions there, and their averages.

NUMBERS_AT_ONCE = 1 << 17
"""Of latents at samples that are averaged over together: so many stay near the processor."""


def sampled_mean(
    beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...], given: Mapping[sp.Symbol, Any]
) -> Float[Array, "K rows *keys"]:
    """The average over the samples, some of them after the other where the latents of all would be many."""
    opaque = has_external(beliefs.program.translator, without(expression, given))
    components, rows, columns = beliefs.marginals.mean.shape
    together = 1 << (max(1, NUMBERS_AT_ONCE // (components * rows * columns)).bit_length() - 1)
    # both are powers of two
    if opaque or beliefs.marginals.together or together >= beliefs.samples:
        return jnp.mean(sampled(beliefs, expression, keys, given), axis=0)
    at = beliefs.marginals.sampler(beliefs.program)

    def added(normals: Array) -> Array:
        values = _values(beliefs, expression, keys, given, at(normals), {})
        return jnp.sum(values, axis=0)

    normals = _normals(beliefs, beliefs.samples)
    parts = jax.lax.map(added, normals.reshape(-1, together, *normals.shape[1:]))
    return jnp.sum(parts, axis=0) / beliefs.samples


def sampled(
    beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...], given: Mapping[sp.Symbol, Any]
) -> Float[Array, "S K rows *keys"]:
    """Values at samples of the latents, opaque functions included."""
    opaque = has_external(beliefs.program.translator, without(expression, given))
    latents, externals = sample_latents(beliefs, beliefs.samples, need_externals=opaque)
    return _values(beliefs, expression, keys, given, latents, externals)


def _values(
    beliefs: Beliefs,
    expression: sp.Expr,
    keys: tuple[str, ...],
    given: Mapping[sp.Symbol, Any],
    latents: Float[Array, "S K rows latents"],
    externals: Mapping[str, Array],
) -> Float[Array, "S K rows *keys"]:
    values = jnp.asarray(beliefs.program.evaluator(expression, beliefs.scope(latents, externals), keys, given))
    full = (*latents.shape[:2], beliefs.count, *values.shape[values.ndim - len(keys) :])
    return jnp.broadcast_to(values, full)


def sample_latents(
    beliefs: Beliefs, count: int, need_externals: bool, latents: Array | None = None
) -> tuple[Float[Array, "S K rows latents"], dict[str, Array]]:
    """Samples of all latents at the rows, or those given, and the values of opaque functions there."""
    simulations = beliefs.simulations if need_externals else None
    if simulations is not None and latents is None:
        return simulations.samples(beliefs)
    if latents is None:
        latents = beliefs.marginals.at(beliefs.program, _normals(beliefs, count))
        latents = jnp.broadcast_to(latents, (count, *beliefs.marginals.mean.shape))
    return (latents, {}) if simulations is None else simulations.draws(beliefs, latents)


def _normals(beliefs: Beliefs, count: int) -> Float[Array, "S K 1 latents"]:
    """The same for every row: what is said of a row depends on no other, and varies smoothly from row to row."""
    components, _, columns = beliefs.marginals.mean.shape
    scheme = "antithetic" if beliefs.marginals.together else "qmc"
    return jnp.asarray(shared_normals(beliefs.seed, count, components, columns, scheme), beliefs.marginals.mean.dtype)


def without(expression: sp.Basic, given: Iterable[sp.Symbol]) -> sp.Tuple:
    """The symbols of an expression but those that are given: they are known by reference."""
    return sp.Tuple(*(expression.free_symbols - set(given)))


def shape_of(beliefs: Beliefs, value: Any, keys: tuple[str, ...]) -> tuple[int, ...]:
    """The shape [K, rows, *keys] of a value that may be the same along the first of these."""
    value = np.asarray(value) if np.isscalar(value) else value
    own = np.shape(value)
    axes = own[len(own) - len(keys) :] if len(own) >= len(keys) else (1,) * len(keys)
    return (len(beliefs.weights), beliefs.count, *axes)
