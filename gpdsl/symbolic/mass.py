"""The probability that a law of numbers has between two bounds."""

from __future__ import annotations

import math

import numpy as np
import sympy as sp
from scipy.integrate import quad
from scipy.special import logsumexp

from gpdsl.language.model import interval_of
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.symbolic.densities import DENSITIES
from gpdsl.symbolic.laws import Law, log_density, log_weights
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.stable import TAILS

CANCELLED = 1e-6
"""A difference of distribution functions that is smaller has too few digits."""

CUTS = (0.001, 0.1, 0.5, 0.9, 0.999)
"""Shares at whose quantiles integrals are cut, where quantiles are known: they tell where the density is."""


def log_mass(law: Law, low: float, high: float) -> float:
    """log P(low < Y < high) of a law without unknowns, whose distribution function has one value between the bounds."""
    if law.name == "Mixture":
        parts = zip(log_weights(law), law.components, strict=True)
        return float(logsumexp([float(weight) + log_mass(each, low, high) for weight, each in parts]))
    if law.name == "Truncated":
        (inner,) = law.components
        own = float(law.arguments.get("lower", -math.inf)), float(law.arguments.get("upper", math.inf))
        return log_mass(inner, max(low, own[0]), min(high, own[1])) - log_mass(inner, *own)
    least, most = interval_of(DISTRIBUTIONS[law.name].support)
    if low <= least and high >= most:
        return 0.0
    if law.name in TAILS:
        return _by_tails(law, max(low, least), min(high, most))
    arguments = law.map(float).arguments
    cdf = DENSITIES[law.name].cdf
    share = 0.0 if cdf is None else float(cdf(np.array(high), arguments) - cdf(np.array(low), arguments))
    return math.log(share) if share > CANCELLED else _by_quadrature(law, max(low, least), min(high, most))


def _by_tails(law: Law, low: float, high: float) -> float:
    tails, (least, most) = TAILS[law.name], interval_of(DISTRIBUTIONS[law.name].support)
    if low <= least:
        found = tails.below(sp.Float(high), law.arguments)
    elif high >= most:
        found = tails.above(sp.Float(low), law.arguments)
    else:
        found = tails.between(sp.Float(low), sp.Float(high), law.arguments)
    return float(evaluate(found, {}))


def _by_quadrature(law: Law, low: float, high: float) -> float:
    y = sp.Dummy("y", real=True)
    formula, quantile = log_density(law, y), DENSITIES[law.name].quantile
    cuts = [] if quantile is None else [float(quantile(np.array(p), law.map(float).arguments)) for p in CUTS]
    ends = [low, *(each for each in cuts if low < each < high), high]

    def density(at: float) -> float:
        return float(np.exp(evaluate(formula, {y: np.float64(at)})))

    parts = [quad(density, *between, epsabs=0.0, limit=200)[0] for between in zip(ends, ends[1:], strict=False)]
    total = sum(parts)
    return math.log(total) if total > 0 else -math.inf
