"""Expectations under each component: by closed form, quadrature or samples, what samples need, and on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Bool, Float

from gpdsl.inference.problem import as_numpy
from gpdsl.inference.sampling import shared_normals
from gpdsl.lowering.table import align
from gpdsl.program import fine_quadrature
from gpdsl.program.joint import moment_values
from gpdsl.program.quadrature import split_integral
from gpdsl.program.rows import Scope, gathered
from gpdsl.symbolic.arguments import Integrand, integrand_of
from gpdsl.symbolic.expectations import Product, correlated, independent_expectation
from gpdsl.symbolic.functions import floor, log_ndtr_interval, ndtr
from gpdsl.symbolic.gaussian import moments_of, pull_exponentials
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.readings import Ref
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
    return fine_quadrature.may_be_steep(beliefs.program, integrand, keys, scope, beliefs.widest, near)


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
        return fine_quadrature.fine_integral(integral)[0], None
    if one:
        return fine_quadrature.quick_integral(integral) if steep else (fine_quadrature.even_integral(integral), None)
    if fine:
        return fine_quadrature.fine_of_two(integral, RULES[:2])[0][0], None
    values, right = fine_quadrature.quick_of_two(integral, RULES[:2])
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

    normals = normals_of(beliefs, beliefs.samples)
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
        latents = beliefs.marginals.at(beliefs.program, normals_of(beliefs, count))
        latents = jnp.broadcast_to(latents, (count, *beliefs.marginals.mean.shape))
    return (latents, {}) if simulations is None else simulations.draws(beliefs, latents)


def normals_of(beliefs: Beliefs, count: int) -> Float[Array, "S K 1 latents"]:
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


# Means and variances on the host, without a program: polynomials, and products of functions of one latent each.

# Means and variances of sums of products of functions of one latent each, by integrals over one latent at a time.

Each = Callable[[Sequence[sp.Expr], Mapping[sp.Symbol, np.ndarray]], list[np.ndarray]]
"""Expectations [K, rows, *keys] of expressions under every component, some symbols given."""


ROUNDING = 8 * float(np.finfo(float).eps)

Moment = tuple[Float[np.ndarray, "K rows *keys"], Float[np.ndarray, "K rows *keys"]]
"""A moment under every component, and what rounding may have lost of it where its terms cancel."""


def separated_mean(terms: Sequence[Product], each: Each) -> Moment:
    """sum_t c_t prod_f E[g_tf]."""
    means = _means(terms, each)
    parts: list[Any] = [prod(means[e] for e in (term.coefficient, *term.factors.values())) for term in terms]
    return sum(parts), ROUNDING * sum(map(np.abs, parts))


def separated_variance(terms: Sequence[Product], each: Each) -> Moment:
    """sum_st c_s c_t Cov[prod_f g_sf, prod_f g_tf].

    That covariance is prod_f (a_f + C_f) - prod_f a_f, with products of means a_f and covariances C_f of the factors.
    """
    means = _means(terms, each)
    covariances, total, size = _covariances(terms, means, each), np.zeros(()), np.zeros(())
    for s, t in combinations_with_replacement(terms, 2):
        whole: Any = 1.0
        apart: Any = 0.0
        for latent in sorted({*s.factors, *t.factors}, key=str):
            factors = [term.factors[latent] for term in (s, t) if latent in term.factors]
            level: Any = prod(means[each] for each in factors)
            moved: Any = covariances[_pair(*factors)] if len(factors) == 2 else 0.0
            apart, whole = apart * level + whole * moved, whole * (level + moved)
        twice = 1.0 if s is t else 2.0
        part = twice * means[s.coefficient] * means[t.coefficient] * apart
        total, size = total + part, size + np.abs(part)
    return total, ROUNDING * size


def _means(terms: Sequence[Product], each: Each) -> dict[sp.Expr, np.ndarray]:
    """Of all coefficients and factors."""
    asked = list(dict.fromkeys(e for term in terms for e in (term.coefficient, *term.factors.values())))
    return dict(zip(asked, each(asked, {}), strict=True))


def _covariances(
    terms: Sequence[Product], means: Mapping[sp.Expr, np.ndarray], each: Each
) -> dict[tuple[sp.Expr, sp.Expr], np.ndarray]:
    """Of all pairs of factors of one latent, as E[(g - E g) (h - E h)]."""
    pairs = [
        _pair(s.factors[latent], t.factors[latent])
        for s, t in combinations_with_replacement(terms, 2)
        for latent in s.factors
        if latent in t.factors
    ]
    asked = list(dict.fromkeys(pairs))
    symbols = {factor: sp.Dummy("mean", real=True) for pair in asked for factor in pair}
    moved = [(g - symbols[g]) * (h - symbols[h]) for g, h in asked]
    found = each(moved, {symbol: means[factor] for factor, symbol in symbols.items()})
    return dict(zip(asked, found, strict=True))


def _pair(g: sp.Expr, h: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """In an order of their own."""
    first, second = sorted((g, h), key=str)
    return first, second


# Polynomials in moments, parameters and inputs, evaluated where these are: nothing is compiled for them.

HALF = sp.Rational(1, 2)

OPERATIONS, POWERS = 256, 64
"""Of a formula that is evaluated here, and up to which power: a larger one is compiled."""


def polynomial_mean(
    beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...], given: Mapping[sp.Symbol, Any]
) -> Float[np.ndarray, "K rows *keys"] | None:
    """E[expression] under each component, where it is a polynomial in what is on the host; None for anything else."""
    translator, marginals = beliefs.program.translator, beliefs.marginals
    unknown = sp.Tuple(*(expression.free_symbols - given.keys()))
    latents = latents_in(translator, unknown)
    dependent = len(latents) > 1 and (marginals.covariance is not None or bool(correlated(translator, latents)))
    if dependent or (latents and marginals.together):
        return None
    formula = _closed(expression, latents)
    if formula is None:
        return None
    moments = moments_of(latents)
    tables = (
        {moments.mean[s]: (s, marginals.mean) for s in latents},
        {moments.variance[s]: (s, marginals.variance) for s in latents},
    )
    read = {symbol: which for table in tables for symbol, which in table.items()}
    others = formula.free_symbols - given.keys() - read.keys()
    sources = {symbol: source_of(beliefs, symbol, keys) for symbol in others}
    if any(values is None for values in sources.values()):
        return None

    def value_of(symbol: sp.Symbol) -> Any:
        if symbol in given:
            return np.asarray(given[symbol])
        if symbol in read:
            latent, values = read[symbol]
            return beliefs.program.evaluator.of_latent(latent, np.asarray(values), keys)
        return sources[symbol]

    value = evaluate(formula, {symbol: value_of(symbol) for symbol in formula.free_symbols})
    value = np.asarray(value, np.asarray(marginals.mean).dtype)
    return np.broadcast_to(value, shape_of(beliefs, value, keys))


@functools.lru_cache(maxsize=1024)
def _closed(expression: sp.Expr, latents: tuple[sp.Symbol, ...]) -> sp.Expr | None:
    """The expectation by independent latents in their moments, where it is a polynomial of few operations."""
    pulled = pull_exponentials(expression)
    formula = independent_expectation(pulled, latents, False, True) if latents else expression
    return formula if formula is not None and _is_plain(formula) else None


def _is_plain(formula: sp.Expr) -> bool:
    nodes = list(sp.preorder_traversal(formula))
    return len(nodes) <= OPERATIONS and all(
        isinstance(each, sp.Add | sp.Mul | sp.Symbol | sp.Number | ndtr | log_ndtr_interval)
        or (isinstance(each, sp.Pow) and each.exp.is_Integer and 0 < int(each.exp) <= POWERS)
        or (isinstance(each, sp.Pow) and each.exp == -HALF and each.base.is_positive)
        or (isinstance(each, sp.exp) and isinstance(each.args[0], log_ndtr_interval))
        for each in nodes
    )


def source_of(beliefs: Beliefs, symbol: sp.Symbol, keys: tuple[str, ...]) -> np.ndarray | None:
    """The values [..., *keys] of a symbol, where it is a parameter, a constant or an input; None of any other."""
    ref = beliefs.program.translator.references.get(symbol)
    whole = None if ref is None else _whole(beliefs, ref)
    return None if ref is None or whole is None else align(whole, ref.positions, keys)


def _whole(beliefs: Beliefs, ref: Ref) -> np.ndarray | None:
    match ref.kind:
        case "param":
            return np.asarray(beliefs.parameters[ref.name])
        case "const":
            const = beliefs.program.declarations.consts[ref.name]
            return np.broadcast_to(np.asarray(const.values), beliefs.program.translator.shape(const.axes))
        case "input":
            return np.asarray(beliefs.rows.inputs[ref.name])
        case "gathered" if ref.name in beliefs.parameters:
            return gathered(np.asarray(beliefs.parameters[ref.name]), ref, beliefs.rows.inputs)
    return None


# Double-exponential rules on either side of a place (Takahasi and Mori 1974): tails of any kind, and bounds.

INTERVALS, TOGETHER = 256, 16
"""Of the rule on either side, and how many of them are computed together."""

FIRST, BOUNDED = -3.6, 4.0
"""Ends of the rule: towards the place that splits the range, and towards a bound."""


@dataclass(frozen=True, eq=False)
class Rule:
    """Double-exponential points about `split` [n]: v = split + width E / (1 + |width| E / reach), E = exp(pi/2 sinh s).

    Arrays [2, n] are of the two sides: `width` below is negative, `reach` infinite where there is no bound, and `far`
    is the last place, where there is none.
    """

    split: np.ndarray
    centre: np.ndarray
    width: np.ndarray
    reach: np.ndarray
    far: np.ndarray

    def only(self, rows: np.ndarray) -> Rule:
        """That of some laws."""
        return Rule(*(each[..., rows] for each in vars(self).values()))

    def at(self, points: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Points [some, n] of either side, and weights per interval."""
        for width, reach, far in zip(self.width, self.reach, self.far, strict=True):
            last = np.arcsinh(2 / np.pi * np.log(np.abs(far - self.split) / np.abs(width)))
            step = (np.where(np.isfinite(reach), BOUNDED, last) - FIRST) / INTERVALS
            for start in range(0, len(points), TOGETHER):
                part = points[start : start + TOGETHER, None]
                s = FIRST + step * part
                grown = np.exp(np.pi / 2 * np.sinh(s))
                bent = 1.0 + np.abs(width) * grown / reach
                weight = np.abs(width) * grown / bent**2 * np.pi / 2 * np.cosh(s) * step
                yield self.split + width * grown / bent, np.where(part == INTERVALS, 0.5, 1.0) * weight
