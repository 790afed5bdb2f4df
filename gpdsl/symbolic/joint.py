"""Several readings of one latent in one term: f(a) - f(b) as one reading, anything else through independent normals.

Linear functionals are closed under linear combination: a term that depends on f(a) and f(b) only through their
difference depends on one univariate Gaussian. Otherwise s_i = m_i + sum_j R_ij z_j with independent standard normals z
and R the root of the readings' covariance, so that all that holds for independent latents holds for z.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sympy as sp

from gpdsl.symbolic.closed import expectation, probit_expectation
from gpdsl.symbolic.gaussian import Moments, joint_moments_of, moments_of
from gpdsl.symbolic.readings import added
from gpdsl.symbolic.translate import Translator

Correlated = tuple[sp.Symbol, ...]
"""Two or more readings of the same latent element."""


def correlated(translator: Translator, latents: Sequence[sp.Symbol]) -> tuple[Correlated, ...]:
    """The sets of readings that are not independent of each other."""
    found: dict[tuple, list[sp.Symbol]] = {}
    for symbol in latents:
        ref = translator.references[symbol]
        found.setdefault((ref.name, ref.positions), []).append(symbol)
    return tuple(tuple(symbols) for symbols in found.values() if len(symbols) > 1)


def sum_of(translator: Translator, a: sp.Symbol, b: sp.Symbol) -> sp.Symbol:
    """The reading a + b: its variance tells the covariance, (Var(a + b) - Var a - Var b) / 2."""
    first, second = translator.references[a], translator.references[b]
    return translator.symbol(replace(first, reading=added([(first.reading, 1.0), (second.reading, 1.0)])))


def root_symbol(a: sp.Symbol, b: sp.Symbol) -> sp.Symbol:
    """The entry of the lower Cholesky factor of the readings' covariance in the row of `a`, the column of `b`."""
    return sp.Symbol(f"root({a.name}, {b.name})", real=True)


def combined(translator: Translator, expression: sp.Expr, latents: Sequence[sp.Symbol]) -> sp.Expr:
    """The expression with a linear combination of readings as one reading, where it depends on nothing else of them."""
    for symbols in correlated(translator, latents):
        expression = _combine(translator, expression, symbols)
    return expression


def _combine(translator: Translator, expression: sp.Expr, symbols: Correlated) -> sp.Expr:
    for node in sp.preorder_traversal(expression):
        ratios = _linear(node, symbols) if node.is_Add else None
        if ratios is None:
            continue
        new, whole = _as_one(translator, expression, ratios)
        if new.free_symbols.isdisjoint(ratios):
            return new
        translator.references.pop(whole, None)
        return expression
    return expression


def _linear(node: sp.Add, symbols: Correlated) -> dict[sp.Symbol, float] | None:
    """Weights of two or more readings in a sum, relative to the first, when they are numbers."""
    weights: dict[sp.Symbol, sp.Expr] = {}
    for argument in node.args:
        inside = [s for s in symbols if s in argument.free_symbols]
        if len(inside) == 1 and inside[0] not in weights:
            weights[inside[0]] = argument / inside[0]
    if len(weights) < 2:
        return None
    first = min(weights, key=lambda s: s.name)
    ratios = {s: weights[s] / weights[first] for s in sorted(weights, key=lambda s: s.name)}
    return {s: float(r) for s, r in ratios.items()} if all(r.is_Number for r in ratios.values()) else None


def _as_one(
    translator: Translator, expression: sp.Expr, ratios: Mapping[sp.Symbol, float]
) -> tuple[sp.Expr, sp.Symbol]:
    first, *others = ratios
    readings = [(translator.references[s].reading, weight) for s, weight in ratios.items()]
    whole = translator.symbol(replace(translator.references[first], reading=added(readings)))
    exact = {s: sp.nsimplify(weight, rational=True) for s, weight in ratios.items()}
    new = expression.xreplace({first: whole - sp.Add(*[exact[s] * s for s in others])})
    if not new.free_symbols.isdisjoint(others):
        new = new.replace(lambda e: e.is_Add and not e.free_symbols.isdisjoint(others), sp.expand_mul)
    return new, whole


@dataclass(frozen=True)
class Innovations:
    """Readings written through independent symbols: `latents` are those, with their `moments`."""

    substitution: Mapping[sp.Symbol, sp.Expr]
    latents: tuple[sp.Symbol, ...]
    moments: Moments


def innovations(translator: Translator, latents: Sequence[sp.Symbol]) -> Innovations:
    """Independent symbols behind some readings: standard normals behind correlated ones, the others themselves."""
    moments = moments_of(latents)
    mean, variance = dict(moments.mean), dict(moments.variance)
    substitution: dict[sp.Symbol, sp.Expr] = {}
    independent = list(latents)
    for symbols in correlated(translator, latents):
        normals = {s: sp.Dummy(f"z({s.name})", real=True) for s in symbols}
        for i, s in enumerate(symbols):
            parts = [root_symbol(s, t) * normals[t] for t in symbols[: i + 1]]
            substitution[s] = moments.mean[s] + sp.Add(*parts)
        for s, z in normals.items():
            independent[independent.index(s)] = z
            mean[z], variance[z] = sp.Integer(0), sp.Integer(1)
    return Innovations(substitution, tuple(independent), Moments(mean, variance))


def joint_expectation(
    translator: Translator,
    expression: sp.Expr,
    latents: Sequence[sp.Symbol],
    coupled: bool = False,
    probits: bool = False,
) -> sp.Expr | None:
    """E[expression] in the readings' means, variances and roots of covariances; None outside the closed family.

    Where all latents are correlated with each other (`coupled`), it is written in their covariances. The family holds
    `probits` where these are asked for.
    """
    if coupled or not correlated(translator, latents):
        return independent_expectation(expression, tuple(latents), coupled, probits)
    behind = innovations(translator, latents)
    moved = expression.xreplace(dict(behind.substitution))
    found = expectation(moved, behind.latents, behind.moments)
    return probit_expectation(moved, behind.latents, behind.moments) if found is None and probits else found


@functools.lru_cache(maxsize=1024)
def independent_expectation(
    expression: sp.Expr, latents: tuple[sp.Symbol, ...], coupled: bool, probits: bool
) -> sp.Expr | None:
    """The same of latents that are independent of each other, or `coupled`: every prediction asks for it again."""
    moments = joint_moments_of(latents) if coupled else moments_of(latents)
    found = expectation(expression, latents, moments)
    return probit_expectation(expression, latents, moments) if found is None and probits else found
