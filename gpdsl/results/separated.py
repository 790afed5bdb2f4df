"""Means and variances of sums of products of functions of one latent each, by integrals over one latent at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement
from math import prod
from typing import Any

import numpy as np
import sympy as sp
from jaxtyping import Float

from gpdsl.symbolic.expectations import Product

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
