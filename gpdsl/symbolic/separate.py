"""Sums of products of functions of one latent each, like d / v + (e - d) / w.

Of independent latents the expectation of a product is that of its factors multiplied, and the covariance of two
products is written in the factors' means and covariances: numbers of one latent each, however many there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

MOST_TERMS = 64
"""Of a sum that is taken apart."""


@dataclass(frozen=True)
class Product:
    """c prod_f g_f(f): the coefficient reads no latent, and each factor the one that it belongs to."""

    coefficient: sp.Expr
    factors: Mapping[sp.Symbol, sp.Expr]


def products(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> tuple[Product, ...] | None:
    """The expression as a sum of such products; None where it is none, or one of too many."""
    if sp.count_ops(expression) > MOST_TERMS:
        return None
    terms = sp.Add.make_args(sp.expand(expression, power_base=False, log=False))
    found = [_product(each, latents) for each in terms] if len(terms) <= MOST_TERMS else [None]
    known = [each for each in found if each is not None]
    return tuple(known) if len(known) == len(found) else None


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
