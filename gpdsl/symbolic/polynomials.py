"""Polynomials in a few symbols about a centre, without multiplying out what does not depend on those symbols.

About the centre c the polynomial (y - f)^2 is (y - c)^2 - 2 (y - c) d + d^2 in d = f - c: its constant stays a square
and does not cancel when y and c are large. Work is counted, so that a hostile power ends in an answer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import sympy as sp

MAX_PRODUCTS = 5_000
"""Products of two monomials that one expansion may take; a network of 500 latents takes some 3,000."""

MAX_POWER = 32

Monomial = tuple[tuple[sp.Symbol, int], ...]
"""Symbols and their powers, in the order of the symbols; `()` is the constant."""

Polynomial = Mapping[Monomial, sp.Expr]

ONE: Polynomial = {(): sp.Integer(1)}


class NotPolynomial(Exception):
    """The expression is not a polynomial in the symbols, or a larger one than is worth writing out."""


@dataclass
class Budget:
    """How many products are left; spent across several expansions of one expression."""

    left: int = MAX_PRODUCTS

    def spend(self, products: int) -> None:
        """Take that many products. Raises NotPolynomial when fewer are left."""
        self.left -= products
        if self.left < 0:
            raise NotPolynomial


def expand_about(expression: sp.Expr, centres: Mapping[sp.Symbol, sp.Expr], budget: Budget) -> Polynomial:
    """Coefficients of the polynomial in the deviations of the symbols from their centres.

    Raises NotPolynomial where the symbols enter otherwise, or where the budget ends.
    """
    if expression.free_symbols.isdisjoint(centres):
        return {(): expression} if expression != 0 else {}
    if expression in centres:
        return _without_zeros({(): centres[expression], ((expression, 1),): sp.Integer(1)})
    if isinstance(expression, sp.Add):
        return add(expand_about(part, centres, budget) for part in expression.args)
    if isinstance(expression, sp.Mul):
        product = ONE
        for factor in expression.args:
            product = multiply(product, expand_about(factor, centres, budget), budget)
        return product
    if isinstance(expression, sp.Pow):
        return power(expand_about(expression.base, centres, budget), whole_power(expression), budget)
    raise NotPolynomial


def whole_power(expression: sp.Pow) -> int:
    """The exponent of a power that a polynomial may contain. Raises NotPolynomial for any other."""
    if expression.exp.is_Integer and 0 < int(expression.exp) <= MAX_POWER:
        return int(expression.exp)
    raise NotPolynomial


def degree_bound(expression: sp.Expr, symbols: Collection[sp.Symbol]) -> float:
    """A bound on the degree of a polynomial in the symbols, without multiplying it out; infinite for what is none."""
    if expression.free_symbols.isdisjoint(symbols):
        return 0
    if expression in symbols:
        return 1
    if isinstance(expression, sp.Add):
        return max(degree_bound(part, symbols) for part in expression.args)
    if isinstance(expression, sp.Mul):
        return sum(degree_bound(part, symbols) for part in expression.args)
    if isinstance(expression, sp.Pow) and expression.exp.is_Integer and expression.exp > 0:
        return int(expression.exp) * degree_bound(expression.base, symbols)
    return math.inf


def add(polynomials: Iterable[Polynomial]) -> Polynomial:
    """Their sum."""
    parts: dict[Monomial, list[sp.Expr]] = {}
    for polynomial in polynomials:
        for monomial, coefficient in polynomial.items():
            parts.setdefault(monomial, []).append(coefficient)
    return _without_zeros({monomial: sp.Add(*each) for monomial, each in parts.items()})


def multiply(a: Polynomial, b: Polynomial, budget: Budget) -> Polynomial:
    """Their product; coefficients are multiplied, never expanded."""
    if a is ONE or b is ONE:
        return b if a is ONE else a
    budget.spend(len(a) * len(b))
    parts: dict[Monomial, list[sp.Expr]] = {}
    for left, x in a.items():
        for right, y in b.items():
            parts.setdefault(_times(left, right), []).append(x * y)
    return _without_zeros({monomial: sp.Add(*each) for monomial, each in parts.items()})


def power(base: Polynomial, exponent: int, budget: Budget) -> Polynomial:
    """A whole power, from 0. The constant is one symbol meanwhile, so that its powers are collected."""
    constant, symbol = base.get(()), sp.Dummy(real=True)
    if constant is not None and constant.is_Add and exponent > 1:
        named = power({**base, (): symbol}, exponent, budget)
        return _without_zeros({m: c.xreplace({symbol: constant}) for m, c in named.items()})
    result = ONE
    for digit in f"{exponent:b}":
        result = multiply(result, result, budget)
        if digit == "1":
            result = multiply(result, base, budget)
    return result


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for symbol, exponent in b:
        powers[symbol] = powers.get(symbol, 0) + exponent
    return tuple(
        sorted(powers.items(), key=lambda item: (item[0].name, item[0].dummy_index if item[0].is_Dummy else 0))
    )


def _without_zeros(polynomial: Mapping[Monomial, sp.Expr]) -> Polynomial:
    return {monomial: coefficient for monomial, coefficient in polynomial.items() if coefficient != 0}
