"""Spectral densities of stationary kernels, by a table of transform pairs, or else by quadrature.

S(w) = integral of k(t) exp(-i w't) dt over t in d dimensions, w in radians per unit of the input; k(t) is the integral
of S(w) exp(i w't) dw / (2 pi)^d (Rasmussen and Williams 2006, section 4.2.1, whose frequency is w / 2 pi).
SymPy's own transforms may take for ever; these do not search.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import sympy as sp
from scipy import special

FREQUENCY = sp.Symbol("omega", real=True)
MOST_TERMS = 60
MOST_FACTORED = 200
_HARMONIC = sp.Symbol("n", integer=True)
_PROBES = 10.0 ** np.linspace(-6.0, 6.0, 121)


def spectral_density(profile: sp.Expr, distance: sp.Symbol, dimensions: int) -> sp.Expr | None:
    """The spectral density, as a function of `FREQUENCY`, of a kernel that is `profile` of the distance.

    None when the table does not have it. A process without memory between frequencies, such as `cos`, has spikes.
    """
    expanded = sp.expand(profile)
    terms = sp.Add.make_args(expanded)
    if len(terms) > MOST_TERMS:
        return None
    found = [_term(term, distance, dimensions) for term in terms]
    total = sp.Integer(0)
    for each in found:
        if each is None:
            return None
        total += each
    rational = total.is_rational_function(FREQUENCY) and sp.count_ops(total) <= MOST_FACTORED
    return sp.factor(total) if rational else total


def _term(term: sp.Expr, r: sp.Symbol, d: int) -> sp.Expr | None:
    """The transform of coefficient * r^n * exp(-a r) or exp(-a r^2) * cosines, or of a rational quadratic."""
    coefficient, rest = term.as_independent(r, as_Add=False)
    power, exponent, waves, others = sp.Integer(0), sp.Integer(0), [], []
    for factor in sp.Mul.make_args(rest):
        if factor == r or (isinstance(factor, sp.Pow) and factor.base == r and factor.exp.is_Integer):
            power += factor.as_base_exp()[1]
        elif isinstance(factor, sp.exp):
            exponent += factor.args[0]
        elif isinstance(factor, sp.cos):
            waves.append(factor.args[0])
        elif (
            isinstance(factor, sp.Pow) and isinstance(factor.base, sp.cos) and factor.exp.is_Integer and factor.exp > 0
        ):
            waves += [factor.base.args[0]] * int(factor.exp)
        elif factor != 1:
            others.append(factor)
    if len(waves) > 6 or (waves and d > 1) or power < 0:
        return None
    base = _base(sp.expand(exponent), int(power), others, r, d)
    if base is None:
        return None
    for wave in waves:  # the transform of f cos(b t) is half of that of f, moved by b to either side
        rate = sp.expand(wave / r)
        if r in rate.free_symbols:
            return None
        base = (base.subs(FREQUENCY, FREQUENCY - rate) + base.subs(FREQUENCY, FREQUENCY + rate)) / 2
    return coefficient * base


def _base(exponent: sp.Expr, power: int, others: list[sp.Expr], r: sp.Symbol, d: int) -> sp.Expr | None:
    if others:
        plain = exponent == 0 and power == 0 and len(others) == 1
        return _rational_quadratic(others[0], r, d) if plain else None
    if d == 1 and power == 0 and exponent.has(sp.sin):
        return _periodic(exponent, r)
    linear, square = exponent.coeff(r, 1), exponent.coeff(r, 2)
    if sp.expand(exponent - linear * r - square * r**2) != 0:
        return None
    if linear == 0 and square == 0:
        return (2 * sp.pi) ** d * sp.DiracDelta(FREQUENCY) if power == 0 else None
    if linear == 0 and power == 0 and (-square).is_positive is not False:
        return (sp.pi / -square) ** sp.Rational(d, 2) * sp.exp(FREQUENCY**2 / (4 * square))
    if square == 0 and (-linear).is_positive is not False:
        return _exponential(-linear, power, d)
    return None


def _periodic(exponent: sp.Expr, r: sp.Symbol) -> sp.Expr | None:
    """Of exp(-c sin(b r)^2): spikes at the multiples of 2 b."""
    size, wave = exponent.as_independent(r, as_Add=False)
    if not (isinstance(wave, sp.Pow) and wave.exp == 2 and isinstance(wave.base, sp.sin)):
        return None
    rate = sp.expand(wave.base.args[0] / r)
    if r in rate.free_symbols:
        return None
    weight = sp.besseli(_HARMONIC, -size / 2) * sp.DiracDelta(FREQUENCY - 2 * _HARMONIC * rate)
    return 2 * sp.pi * sp.exp(size / 2) * sp.Sum(weight, (_HARMONIC, -sp.oo, sp.oo))


def _exponential(rate: sp.Expr, power: int, d: int) -> sp.Expr:
    """Of r^n exp(-a r): derivatives with respect to a of that of exp(-a r)."""
    a = sp.Symbol("a", positive=True)
    half = sp.Rational(d + 1, 2)
    value = 2**d * sp.pi ** sp.Rational(d - 1, 2) * sp.gamma(half) * a / (a**2 + FREQUENCY**2) ** half
    for _ in range(power):
        value = -sp.diff(value, a)
    return sp.factor(value).subs(a, rate)


def _rational_quadratic(factor: sp.Expr, r: sp.Symbol, d: int) -> sp.Expr | None:
    """Of (p + q r^2)^-a: a Bessel function."""
    if not isinstance(factor, sp.Pow) or r in factor.exp.free_symbols:
        return None
    alpha, base = -factor.exp, sp.expand(factor.base)
    start, slope = base.coeff(r, 0), base.coeff(r, 2)
    if slope == 0 or sp.expand(base - start - slope * r**2) != 0 or (start / slope).is_positive is False:
        return None
    width = sp.sqrt(start / slope)
    order, frequency = alpha - sp.Rational(d, 2), sp.Abs(FREQUENCY)
    factor_ = 2 * sp.pi ** sp.Rational(d, 2) * width**d / sp.gamma(alpha) * start**-alpha
    return factor_ * (width * frequency / 2) ** order * sp.besselk(order, width * frequency)


def numeric_spectral_density(
    profile: Callable[[np.ndarray], np.ndarray], frequencies: np.ndarray, dimensions: int
) -> np.ndarray:
    """The same by quadrature, of a profile that vanishes at large distances. NaN when it does not.

    In d dimensions it is a Hankel transform: (2 pi)^(d/2) w^(1-d/2) times the integral of r^(d/2) J_(d/2-1)(w r) k(r).
    """
    reach = _reach(profile)
    if reach is None:
        return np.full(np.shape(frequencies), np.nan)
    largest = max(float(np.max(np.abs(frequencies))), 1e-300)
    panels = int(np.clip(np.ceil(reach * largest / np.pi) + 200, 200, 20_000))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    edges = np.linspace(0.0, reach, panels + 1)
    widths = np.diff(edges)[:, None] / 2
    r = ((edges[:-1, None] + widths) + widths * nodes).ravel()
    masses = (widths * weights).ravel() * profile(r)
    return np.array([_transform(r, masses, abs(float(w)), dimensions) for w in np.ravel(frequencies)]).reshape(
        np.shape(frequencies)
    )


def _transform(r: np.ndarray, masses: np.ndarray, w: float, d: int) -> float:
    if d == 1:
        return float(2 * np.sum(masses * np.cos(w * r)))
    if w == 0:
        return float(2 * np.pi ** (d / 2) / special.gamma(d / 2) * np.sum(masses * r ** (d - 1)))
    kernel = r ** (d / 2) * special.jv(d / 2 - 1, w * r)
    return float((2 * np.pi) ** (d / 2) * w ** (1 - d / 2) * np.sum(masses * kernel))


def _reach(profile: Callable[[np.ndarray], np.ndarray]) -> float | None:
    """The distance beyond which the profile is nothing, by a grid over all scales."""
    values = np.abs(profile(_PROBES))
    start = float(np.max(values[np.isfinite(values)], initial=0.0))
    above = np.flatnonzero(~(values < 1e-13 * start))
    if not above.size or above[-1] == len(_PROBES) - 1:
        return None
    return float(_PROBES[above[-1] + 1])
