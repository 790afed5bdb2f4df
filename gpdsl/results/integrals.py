"""Expectations under each component: by closed form, quadrature or samples, what samples need, and on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from gpdsl.program.quadrature import Integral, split_integral
from gpdsl.program.rows import Scope
from gpdsl.symbolic.arguments import Integrand, integrand_of
from gpdsl.symbolic.expectations import Product, correlated, has_external, independent_expectation, latents_in
from gpdsl.symbolic.functions import floor, log_ndtr_interval, ndtr
from gpdsl.symbolic.gaussian import moments_of, pull_exponentials
from gpdsl.symbolic.numeric import evaluate

if TYPE_CHECKING:
    from gpdsl.results.expectation import Beliefs


RULES = (32, 23, 17, 28, 33)
"""Nodes along each of two arguments: of an integral, of what it is compared with, and of what tells its error."""

BESIDE = tuple(fine_quadrature.even_rule(6 * count + count % 2) for count in RULES)
"""Along the second where the first is integrated over finely: E[exp(-30 f^2 g^2) | g] is steep around g = 0 still."""

NEAR = 0.5
"""Standard deviations from the mean's line at which a singularity leaves the trapezoidal rule exact."""

Found = tuple[Float[Array, "K rows *keys"], Bool[Array, ""] | None]
"""An expectation, and whether it is right in all rows where it is known to be so only afterwards: else `fine`."""


NUMBERS_AT_ONCE = 1 << 17
"""Of latents at samples that are averaged over together: so many stay near the processor."""


@dataclass(frozen=True, eq=False)
class Quantity:
    """An expression of latents at the rows of beliefs, or a tuple of them, along axes `keys`.

    Symbols that are `given` have values already, broadcastable to [K, rows, *keys].
    """

    beliefs: Beliefs
    expression: sp.Expr
    keys: tuple[str, ...] = ()
    given: Mapping[sp.Symbol, Any] = field(default_factory=dict)

    @functools.cached_property
    def _open(self) -> sp.Tuple:
        """Its symbols but those that are given: they are known by reference."""
        return sp.Tuple(*(self.expression.free_symbols - self.given.keys()))

    @functools.cached_property
    def latents(self) -> tuple[sp.Symbol, ...]:
        """Those that it reads."""
        return latents_in(self.beliefs.program.translator, self._open)

    @functools.cached_property
    def opaque(self) -> bool:
        """Whether it reads opaque functions."""
        return has_external(self.beliefs.program.translator, self._open)

    @functools.cached_property
    def closed(self) -> sp.Expr | None:
        """The formula of its expectation in moments of the latents; None where there is none."""
        return self.beliefs.closed(self.expression, self.latents)

    @functools.cached_property
    def integrand(self) -> Integrand:
        """It in few arguments."""
        return integrand_of(self.beliefs.program.translator, self.expression, self.latents)

    @property
    def integral(self) -> Integral:
        """Its expectation over these arguments."""
        return self.beliefs.integral(self.integrand, self.keys, self.given)

    @property
    def dependent(self) -> bool:
        """Whether it reads values at different points that depend on each other."""
        return self.beliefs.marginals.together and len(self.latents) > 1

    @property
    def sampled(self) -> bool:
        """Whether its expectation is an average over samples, and has their error."""
        if self.opaque or self.dependent or not self.latents:
            return self.opaque or bool(self.latents)
        return self.closed is None and self.integrand.kinks is None

    def is_steep(self, near: float = NEAR) -> bool:
        """Whether it has one argument and may have a singularity nearer than so many of its standard deviations."""
        if len(self.integrand.arguments) != 1:
            return False
        beliefs = self.beliefs
        scope = Scope(as_numpy(dict(beliefs.parameters)), beliefs.rows)  # nothing is compiled for what is on the host
        return fine_quadrature.may_be_steep(beliefs.program, self.integrand, self.keys, scope, beliefs.widest, near)

    def expectation(self, steep: bool, fine: bool) -> Found:
        """By what is exact or cheapest; `steep` integrals are checked, `fine` ones are right as they are."""
        if not self.latents:
            return self._in_rows(self.expression, {}), None
        if self.sampled:
            return self.sampled_mean(), None
        if self.closed is not None:
            beliefs, read = self.beliefs, self.closed.free_symbols
            table = moment_values(beliefs.program, self.latents, beliefs.marginals, self.keys, read)
            return self._in_rows(self.closed, table), None
        integral, one = self.integral, len(self.integrand.symbols) == 1
        if any(each.has(floor) for each in integral.kinks) or (integral.kinks and not one):
            return split_integral(integral), None
        if one and (integral.kinks or fine):
            return fine_quadrature.fine_integral(integral)[0], None
        if one:
            even = fine_quadrature.even_integral
            return fine_quadrature.quick_integral(integral) if steep else (even(integral), None)
        if fine:
            return fine_quadrature.fine_integral(replace(integral, beside=BESIDE[0]))[0], None
        values, right = fine_quadrature.quick_of_two(integral, RULES[:2])
        return values[0], right

    def _in_rows(self, formula: sp.Expr, table: Mapping[sp.Symbol, Array]) -> Float[Array, "K rows *keys"]:
        """A formula without latents, some of its symbols in a table."""
        beliefs = self.beliefs
        value = beliefs.program.evaluator(formula, beliefs.scope(), self.keys, {**table, **self.given})
        return jnp.broadcast_to(value, shape_of(beliefs, value, self.keys))

    def sampled_mean(self) -> Float[Array, "K rows *keys"]:
        """The average over the samples, some of them after the other where the latents of all would be many."""
        beliefs = self.beliefs
        components, rows, columns = beliefs.marginals.mean.shape
        together = 1 << (max(1, NUMBERS_AT_ONCE // (components * rows * columns)).bit_length() - 1)
        # both are powers of two
        if self.opaque or beliefs.marginals.together or together >= beliefs.samples:
            return jnp.mean(self.at_samples(), axis=0)
        at = beliefs.marginals.sampler(beliefs.program)
        normals = normals_of(beliefs, beliefs.samples).reshape(-1, together, components, 1, columns)
        parts = jax.lax.map(lambda some: jnp.sum(self.values(at(some), {}), axis=0), normals)
        return jnp.sum(parts, axis=0) / beliefs.samples

    def at_samples(self) -> Float[Array, "S K rows *keys"]:
        """Values at samples of the latents, opaque functions included."""
        return self.values(*sample_latents(self.beliefs, self.beliefs.samples, need_externals=self.opaque))

    def values(
        self, latents: Float[Array, "S K places latents"], externals: Mapping[str, Array]
    ) -> Float[Array, "S K rows *keys"]:
        """Values at these latents, of the rows or of the places of fields, and values of opaque functions."""
        beliefs = self.beliefs
        scope = beliefs.scope(latents, externals)
        values = jnp.asarray(beliefs.program.evaluator(self.expression, scope, self.keys, self.given))
        own = values.shape[values.ndim - len(self.keys) :]
        return jnp.broadcast_to(values, (*latents.shape[:2], beliefs.count, *own))


# Samples of the latents at the rows of beliefs.


def sample_latents(
    beliefs: Beliefs, count: int, need_externals: bool, latents: Array | None = None
) -> tuple[Float[Array, "S K rows latents"], dict[str, Array]]:
    """Samples of all latents at the rows, or those given, and the values of opaque functions there."""
    simulations = beliefs.simulations if need_externals else None
    if simulations is not None and latents is None:
        return simulations.samples(beliefs)
    if latents is None:
        latents = beliefs.marginals.sampler(beliefs.program)(normals_of(beliefs, count))
        latents = jnp.broadcast_to(latents, (count, *beliefs.marginals.mean.shape))
    return (latents, {}) if simulations is None else simulations.draws(beliefs, latents)


def normals_of(beliefs: Beliefs, count: int) -> Float[Array, "S K 1 latents"]:
    """The same for every row: what is said of a row depends on no other, and varies smoothly from row to row."""
    components, _, columns = beliefs.marginals.mean.shape
    scheme = "antithetic" if beliefs.marginals.together else "qmc"
    return jnp.asarray(shared_normals(beliefs.seed, count, components, columns, scheme), beliefs.marginals.mean.dtype)


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


def polynomial_mean(quantity: Quantity) -> Float[np.ndarray, "K rows *keys"] | None:
    """The mean under each component, of a polynomial in what is on the host; None for anything else."""
    beliefs, latents, keys, given = quantity.beliefs, quantity.latents, quantity.keys, quantity.given
    translator, marginals = beliefs.program.translator, beliefs.marginals
    dependent = len(latents) > 1 and (marginals.covariance is not None or bool(correlated(translator, latents)))
    if dependent or (latents and marginals.together):
        return None
    formula = _closed(quantity.expression, latents)
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


SOURCES = frozenset({"param", "const", "input"})


def source_of(beliefs: Beliefs, symbol: sp.Symbol, keys: tuple[str, ...]) -> np.ndarray | None:
    """The values [..., *keys] of a symbol, where it is a parameter, a constant or an input; None of any other."""
    ref = beliefs.program.translator.references.get(symbol)
    if ref is None or not (ref.kind in SOURCES or (ref.kind == "gathered" and ref.name in beliefs.parameters)):
        return None
    whole = beliefs.program.evaluator.source(ref, Scope(beliefs.parameters, beliefs.rows))
    return align(np.asarray(whole), ref.positions, keys)


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
