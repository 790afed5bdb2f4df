"""Sums of products of functions of one latent each, like d / v + (e - d) / w.

Of independent latents the expectation of a product is that of its factors multiplied, and the covariance of two
products is written in the factors' means and covariances: numbers of one latent each, however many there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, prod

import sympy as sp

MOST_TERMS = 64
"""Of a sum that is taken apart, and operations in it."""

MULTIPLIED_OUT = 1024
"""Terms up to which a product of sums is multiplied out, of which some may cancel."""


@dataclass(frozen=True)
class Product:
    """c prod_f g_f(f): the coefficient reads no latent, and each factor the one that it belongs to."""

    coefficient: sp.Expr
    factors: Mapping[sp.Symbol, sp.Expr]


def products(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> tuple[Product, ...] | None:
    """The expression as a sum of such products; None where it is none, or one of too many.

    Nothing is multiplied out that need not be: d^2 - 2 d e + e^2 has digits less than (d - e)^2.
    """
    if sp.count_ops(expression) > MOST_TERMS:
        return None
    found: list[Product | None] = []
    for term in sp.Add.make_args(expression):
        known = _product(term, latents)
        parts = [known] if known is not None else [_product(each, latents) for each in _multiplied_out(term, latents)]
        found += parts
        if len(found) > MOST_TERMS or any(each is None for each in parts):
            return None
    return tuple(each for each in found if each is not None)


def _multiplied_out(term: sp.Expr, latents: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """A product as a sum of products, by those of its factors that read several latents."""
    factors = sp.Mul.make_args(term)
    several = [each for each in factors if sum(each.has(latent) for latent in latents) > 1]
    if prod(map(_terms, several)) > MULTIPLIED_OUT:
        return [term]
    others = sp.Mul(*(each for each in factors if each not in several))
    whole = sp.expand(sp.Mul(*several), power_base=False, log=False)
    return [each * others for each in sp.Add.make_args(whole)]


def _terms(factor: sp.Expr) -> int:
    """Of a power of a sum, when it is multiplied out."""
    base, power = factor.as_base_exp()
    several = power.is_Integer and power > 0
    return comb(len(sp.Add.make_args(base)) + int(power) - 1, int(power)) if several else 1


def _product(term: sp.Expr, latents: Sequence[sp.Symbol]) -> Product | None:
    coefficient, factors = sp.Integer(1), dict[sp.Symbol, sp.Expr]()
    for factor in sp.Mul.make_args(term):
        inside = [latent for latent in latents if factor.has(latent)]
        if len(inside) > 1:
            return None
        if inside:
            factors[inside[0]] = factors.get(inside[0], sp.Integer(1)) * factor
        else:
            coefficient *= factor
    return Product(coefficient, factors)
