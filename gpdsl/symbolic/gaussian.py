"""Exact expectations of symbolic expressions under independent Gaussians: DESIGN.md section 4, one general rule.

A term closes when it is a polynomial in the latents and in exponentials of linear functions of them:

    E[exp(a'f) P(f)] = exp(a'm + a'Va/2) * E[P(g)],  g ~ N(m + Va, V)      (exponential tilting)
    E[P(g)]          = exp(1/2 sum_j v_j d^2/dg_j^2) P  at the mean         (heat operator; finite for a polynomial)

Neither step multiplies the polynomial out, so (y - f)^2 becomes (y - m)^2 + v, which does not cancel when y is large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

MAX_DEGREE = 16
MAX_OPERATIONS = 20_000


@dataclass(frozen=True)
class Moments:
    """Symbols for the mean and the variance of each latent value."""

    mean: Mapping[sp.Symbol, sp.Symbol]
    variance: Mapping[sp.Symbol, sp.Symbol]


def moments_of(latents: Sequence[sp.Symbol]) -> Moments:
    """Fresh symbols, named after the latents so that equal reads get equal symbols."""
    return Moments(
        {f: sp.Symbol(f"mean({f.name})", real=True) for f in latents},
        {f: sp.Symbol(f"variance({f.name})", nonnegative=True) for f in latents},
    )


def pull_exponentials(expression: sp.Expr) -> sp.Expr:
    """Rewrite log(c exp(a)) as log(c) + a and (c exp(a))^k as c^k exp(ka), true whatever the sign of c."""

    def pull_log(argument: sp.Expr) -> sp.Expr:
        exponents, rest = _split_exponentials(argument)
        return sum(exponents, sp.log(rest)) if exponents else sp.log(argument)

    def pull_power(base: sp.Expr, power: sp.Expr) -> sp.Expr:
        exponents, rest = _split_exponentials(base)
        return rest**power * sp.exp(power * sum(exponents)) if exponents else base**power

    expression = expression.replace(sp.log, pull_log)
    powers = {p: pull_power(p.base, p.exp) for p in expression.atoms(sp.Pow)}
    return expression.xreplace({p: q for p, q in powers.items() if p != q})


def _split_exponentials(expression: sp.Expr) -> tuple[list[sp.Expr], sp.Expr]:
    factors = sp.Mul.make_args(expression)
    exponents = [f.args[0] for f in factors if isinstance(f, sp.exp)]
    return exponents, sp.Mul(*[f for f in factors if not isinstance(f, sp.exp)])


def expectation(expression: sp.Expr, latents: Sequence[sp.Symbol], moments: Moments) -> sp.Expr | None:
    """E[expression] as a formula in the latents' means and variances, or None when it is outside the closed family."""
    total = sp.Integer(0)
    for term in sp.Add.make_args(expression):
        closed = _term(term, latents, moments)
        if closed is None:
            return None
        total += closed
    return total


def _term(term: sp.Expr, latents: Sequence[sp.Symbol], moments: Moments) -> sp.Expr | None:
    inside = [f for f in latents if term.has(f)]
    if not inside:
        return term
    if sp.count_ops(term) > MAX_OPERATIONS:
        return None
    exponents: dict[sp.Symbol, sp.Expr] = {}
    for atom in term.atoms(sp.exp):
        if atom.has(*inside):
            exponents[sp.Dummy(real=True)] = atom.args[0]
    if not all(_is_linear(e, inside) for e in exponents.values()):
        return None
    polynomial = term.xreplace({sp.exp(e): symbol for symbol, e in exponents.items()})
    if not polynomial.is_polynomial(*inside, *exponents):
        return None
    parts = _coefficients(polynomial, list(exponents))
    if parts is None:
        return None
    total = sp.Integer(0)
    for powers, coefficient in parts:
        exponent = sp.expand(sp.Add(*[k * exponents[s] for s, k in powers.items()]))
        tilted = _tilted(exponent, coefficient, inside, moments)
        if tilted is None:
            return None
        total += tilted
    return total


def _is_linear(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> bool:
    expanded = sp.expand(expression)
    if not expanded.is_polynomial(*latents):
        return False
    return all(not sp.diff(expanded, f).has(*latents) for f in latents)


def _coefficients(
    polynomial: sp.Expr, symbols: Sequence[sp.Symbol]
) -> list[tuple[dict[sp.Symbol, int], sp.Expr]] | None:
    """Coefficients of each monomial in `symbols`, by Taylor's formula, so that the coefficients stay factored."""
    parts: list[tuple[dict[sp.Symbol, int], sp.Expr]] = [({}, polynomial)]
    for symbol in symbols:
        split = []
        for powers, expression in parts:
            derivative, power = expression, 0
            while derivative != 0:
                if power > MAX_DEGREE:
                    return None
                coefficient = derivative.subs(symbol, 0) / sp.factorial(power)
                if coefficient != 0:
                    split.append(({**powers, symbol: power}, coefficient))
                derivative, power = sp.diff(derivative, symbol), power + 1
                if not derivative.has(symbol) and sp.expand(derivative) == 0:
                    break
        parts = split
    return parts


def _tilted(
    exponent: sp.Expr, polynomial: sp.Expr, latents: Sequence[sp.Symbol], moments: Moments
) -> sp.Expr | None:
    slopes = {f: sp.diff(exponent, f) for f in latents}
    constant = exponent.xreplace({f: sp.Integer(0) for f in latents})
    log_factor = constant + sp.Add(
        *[a * moments.mean[f] + a**2 * moments.variance[f] / 2 for f, a in slopes.items() if a != 0]
    )
    smoothed = _heat(polynomial, latents, moments)
    if smoothed is None:
        return None
    centre = {f: moments.mean[f] + a * moments.variance[f] for f, a in slopes.items()}
    return sp.exp(log_factor) * smoothed.xreplace(centre)


def _heat(polynomial: sp.Expr, latents: Sequence[sp.Symbol], moments: Moments) -> sp.Expr | None:
    """Apply exp(1/2 sum_j v_j d^2/df_j^2) to a polynomial; None past MAX_DEGREE."""
    total = current = polynomial
    for order in range(1, MAX_DEGREE + 1):
        current = sp.Add(*[moments.variance[f] * sp.diff(current, f, 2) for f in latents]) / (2 * order)
        if current == 0 or (not current.has(*latents) and sp.expand(current) == 0):
            return total
        total += current
    return None
