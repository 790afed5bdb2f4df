"""Exact expectations of symbolic expressions under Gaussians, independent or joint: DESIGN.md section 4, one rule.

A term closes when it is a polynomial in the latents and in exponentials of linear functions of them:

    E[exp(a'f) P(f)] = exp(a'm + a'Va/2) * E[P(g)],  g ~ N(m + Va, V)      (exponential tilting)
    E[d^k]           = (k - 1)!! v^(k/2) for even k, 0 for odd k           (P written in d_j = g_j - E[g_j])
    E[d_1 ... d_k]   = sum over pairings of products of covariances        (Isserlis, when they are correlated)

P is written about the mean and never multiplied out, so (y - f)^2 becomes (y - m)^2 + v, which does not cancel when y
is large. Products of two polynomials are paired by parity without being formed: most of their terms have mean zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sympy as sp

from gpdsl.symbolic.numeric import ONE, Budget, Monomial, NotPolynomial, Polynomial, expand_about, multiply, whole_power

Pair = frozenset[sp.Symbol]


@dataclass(frozen=True)
class Moments:
    """Symbols for the mean and the variance of each latent value, and the covariance of each correlated pair."""

    mean: Mapping[sp.Symbol, sp.Symbol]
    variance: Mapping[sp.Symbol, sp.Symbol]
    covariance: Mapping[Pair, sp.Symbol] = field(default_factory=dict)

    def symbol(self, f: sp.Symbol, g: sp.Symbol) -> sp.Symbol:
        """Cov(f, g) of a pair that is the same or correlated."""
        return self.variance[f] if f == g else self.covariance[frozenset((f, g))]

    def between(self, f: sp.Symbol, g: sp.Symbol) -> sp.Expr:
        """Cov(f, g), 0 for an independent pair."""
        return self.symbol(f, g) if f == g or self.covariance else sp.Integer(0)


@dataclass(frozen=True)
class Linear:
    """constant + sum of slope * latent."""

    constant: sp.Expr
    slopes: Mapping[sp.Symbol, sp.Expr]


def moments_of(latents: Sequence[sp.Symbol]) -> Moments:
    """Symbols named after the latents, so that equal reads get equal symbols."""
    return Moments(
        {f: sp.Symbol(f"mean({f.name})", real=True) for f in latents},
        {f: sp.Symbol(f"variance({f.name})", nonnegative=True) for f in latents},
    )


def joint_moments_of(latents: Sequence[sp.Symbol]) -> Moments:
    """The same with a covariance for every pair."""
    apart = moments_of(latents)
    names = {frozenset(pair): sorted(f.name for f in pair) for pair in itertools.combinations(latents, 2)}
    joint = {pair: sp.Symbol(f"covariance({', '.join(each)})", real=True) for pair, each in names.items()}
    return Moments(apart.mean, apart.variance, joint)


def pull_exponentials(expression: sp.Expr) -> sp.Expr:
    """Rewrite log(c exp(a)) as log(c) + a and (c exp(a))^k as c^k exp(ka), true whatever the sign of c."""
    if not expression.args or not expression.has(sp.exp, sp.Pow):
        return expression
    expression = expression.func(*[pull_exponentials(a) for a in expression.args])
    if isinstance(expression, sp.log):
        exponent, rest = _split_exponentials(expression.args[0])
        return expression if exponent == 0 else sp.log(rest) + exponent
    if isinstance(expression, sp.Pow):
        exponent, rest = _split_exponentials(expression.base)
        return expression if exponent == 0 else rest**expression.exp * sp.exp(expression.exp * exponent)
    return expression


def _split_exponentials(expression: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    factors = sp.Mul.make_args(expression)
    exponents = {f: _exponent(f) for f in factors}
    rest = [f for f, exponent in exponents.items() if exponent is None]
    return sp.Add(*[exponent for exponent in exponents.values() if exponent is not None]), sp.Mul(*rest)


def _exponent(expression: sp.Expr) -> sp.Expr | None:
    """a of exp(a), and a log(c) of c^a with a positive number c: SymPy writes exp(f log(2)) as 2^f by itself."""
    if isinstance(expression, sp.exp):
        return expression.args[0]
    if isinstance(expression, sp.Pow) and expression.base.is_positive and expression.base.is_number:
        return None if expression.exp.is_number else expression.exp * sp.log(expression.base)
    return None


def parts_of(term: sp.Expr, latents: Sequence[sp.Symbol], budget: Budget) -> list[tuple[Linear, sp.Expr]]:
    """A product as a sum of exp(linear) times polynomials in the latents. Raises NotPolynomial where it is none."""
    inside = sorted(term.free_symbols.intersection(latents), key=lambda f: f.name)
    if not inside:
        return [(Linear(sp.Integer(0), {}), term)]
    found = {e: _exponent(e) for e in term.atoms(sp.exp, sp.Pow) if not e.free_symbols.isdisjoint(inside)}
    symbols = {e: sp.Dummy(real=True) for e, exponent in found.items() if exponent is not None}
    exponents = {symbol: linear(found[e], inside, budget) for e, symbol in symbols.items()}
    parts = expand_about(term.xreplace(symbols), dict.fromkeys(exponents, sp.Integer(0)), budget)
    return [(_combine(powers, exponents, inside), polynomial) for powers, polynomial in parts.items()]


def linear(expression: sp.Expr, latents: Sequence[sp.Symbol], budget: Budget) -> Linear:
    """The slopes of an expression in the latents. Raises NotPolynomial when it is not linear in the latents."""
    polynomial = expand_about(expression, dict.fromkeys(latents, sp.Integer(0)), budget)
    by_latent = {monomial[0][0]: c for monomial, c in polynomial.items() if degree(monomial) == 1}
    if any(degree(monomial) > 1 for monomial in polynomial):
        raise NotPolynomial
    return Linear(polynomial.get((), sp.Integer(0)), by_latent)


def degree(monomial: Monomial) -> int:
    """The sum of its powers."""
    return sum(power for _, power in monomial)


def _combine(powers: Monomial, exponents: Mapping[sp.Symbol, Linear], latents: Sequence[sp.Symbol]) -> Linear:
    """The exponent of a product of powers of exponentials."""
    constant = sp.Add(*[k * exponents[s].constant for s, k in powers])
    slopes = {f: sp.Add(*[k * exponents[s].slopes.get(f, 0) for s, k in powers]) for f in latents}
    return Linear(constant, slopes)


@dataclass(frozen=True)
class Tilted:
    """The latents under a Gaussian times exp(linear): their means, and the logarithm of what it integrates to."""

    centres: Mapping[sp.Symbol, sp.Expr]
    log_mass: sp.Expr

    @classmethod
    def of(cls, exponent: Linear, latents: Sequence[sp.Symbol], moments: Moments) -> Tilted:
        """By an exponent in some of the latents."""
        slopes = exponent.slopes
        shifts = {f: sp.Add(*[a * moments.between(f, g) for g, a in slopes.items() if a != 0]) for f in latents}
        growth = sp.Add(*[a * (moments.mean[f] + shifts[f] / 2) for f, a in slopes.items()])
        return cls({f: moments.mean[f] + shifts[f] for f in latents}, exponent.constant + growth)


def tilted_mean(exponent: Linear, polynomial: sp.Expr, moments: Moments, budget: Budget) -> sp.Expr:
    """E[exp(exponent) * polynomial]."""
    tilted = Tilted.of(exponent, tuple(exponent.slopes), moments)
    return sp.exp(tilted.log_mass) * mean_about(polynomial, tilted.centres, moments, budget)


def mean_about(expression: sp.Expr, centres: Mapping[sp.Symbol, sp.Expr], moments: Moments, budget: Budget) -> sp.Expr:
    """E[expression] for a polynomial in latents with these means."""
    if expression.free_symbols.isdisjoint(centres):
        return expression
    if expression.is_Add:
        return sp.Add(*[mean_about(part, centres, moments, budget) for part in expression.args])
    fixed, bases = sp.Integer(1), []
    for factor in sp.Mul.make_args(expression):
        if factor.free_symbols.isdisjoint(centres):
            fixed *= factor
        elif isinstance(factor, sp.Pow):
            bases += [expand_about(factor.base, centres, budget)] * whole_power(factor)
        else:
            bases.append(expand_about(factor, centres, budget))
    half = len(bases) // 2
    left, right = _product(bases[:half], budget), _product(bases[half:], budget)
    return fixed * _paired(left, right, moments, budget)


def _product(polynomials: Sequence[Polynomial], budget: Budget) -> Polynomial:
    result = ONE
    for polynomial in polynomials:
        result = multiply(result, polynomial, budget)
    return result


def _paired(a: Polynomial, b: Polynomial, moments: Moments, budget: Budget) -> sp.Expr:
    """E[a b] for polynomials in centred Gaussians: only monomials of equal parity count."""
    partners: dict[tuple[sp.Symbol, ...] | int, list[tuple[Monomial, sp.Expr]]] = {}
    for monomial, coefficient in b.items():
        partners.setdefault(_parity(monomial, moments), []).append((monomial, coefficient))
    parts = []
    for left, x in a.items():
        matching = partners.get(_parity(left, moments), [])
        budget.spend(len(matching))
        parts += [x * y * moment_of(left, right, moments, budget) for right, y in matching]
    return sp.Add(*parts)


def _parity(monomial: Monomial, moments: Moments) -> tuple[sp.Symbol, ...] | int:
    """The symbols with odd powers; of joint Gaussians, whether the degree is odd."""
    return degree(monomial) % 2 if moments.covariance else tuple(symbol for symbol, power in monomial if power % 2)


def moment_of(a: Monomial, b: Monomial, moments: Moments, budget: Budget) -> sp.Expr:
    """E[a b] of two monomials in centred Gaussians."""
    powers = dict(a)
    for symbol, power in b:
        powers[symbol] = powers.get(symbol, 0) + power
    if moments.covariance:
        return _isserlis(tuple(powers.items()), moments, budget)
    return sp.Mul(*[sp.factorial2(k - 1) * moments.variance[f] ** (k // 2) for f, k in powers.items()])


def _isserlis(powers: Monomial, moments: Moments, budget: Budget) -> sp.Expr:
    """E[product] of jointly Gaussian deviations: the first of them is paired with each of the others in turn."""
    left = tuple((f, k) for f, k in powers if k)
    if len(left) == 1:
        symbol, power = left[0]
        return sp.factorial2(power - 1) * moments.variance[symbol] ** (power // 2)
    if not left:
        return sp.Integer(1)
    (first, power), *others = left
    rest = {first: power - 1, **dict(others)}
    parts = []
    for partner, count in rest.items():
        covariance = moments.between(first, partner)
        if count and covariance != 0:
            budget.spend(1)
            remaining = tuple((f, k - (f == partner)) for f, k in rest.items())
            parts.append(count * covariance * _isserlis(remaining, moments, budget))
    return sp.Add(*parts)
