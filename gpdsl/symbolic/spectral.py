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

from gpdsl.symbolic.functions import expanded

FREQUENCY = sp.Symbol("omega", real=True)
MOST_TERMS = 60
MOST_FACTORED = 200
MOST_WAVES = 20_000
MOST_EXPANDED = 6
PANELS = 200
"""Least number of panels of a quadrature, evenly and again geometrically spaced."""
ROUNDING = 1e-7
_HARMONIC = sp.Symbol("n", integer=True)
_PROBES = 10.0 ** np.linspace(-6.0, 6.0, 121)


def spectral_density(profile: sp.Expr, distance: sp.Symbol, dimensions: int) -> sp.Expr | None:
    """The spectral density, as a function of `FREQUENCY`, of a kernel that is `profile` of the distance.

    None when the table does not have it. A process without memory between frequencies, such as `cos`, has spikes.
    """
    terms = (profile,) if _term(profile, distance, dimensions) is not None else sp.Add.make_args(expanded(profile))
    if len(terms) > MOST_TERMS:
        return None
    total = sp.Integer(0)
    for term in terms:
        found = _term(term, distance, dimensions)
        if found is None:
            return None
        total += found
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
    base = _base(expanded(exponent), int(power), others, r, d)
    if base is None:
        return None
    for wave in waves:  # the transform of f cos(b t) is half of that of f, moved by b to either side
        rate = expanded(wave / r)
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
    if expanded(exponent - linear * r - square * r**2) != 0:
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
    rate = expanded(wave.base.args[0] / r)
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
    alpha, base = -factor.exp, expanded(factor.base)
    start, slope = base.coeff(r, 0), base.coeff(r, 2)
    if slope == 0 or expanded(base - start - slope * r**2) != 0 or (start / slope).is_positive is False:
        return None
    width = sp.sqrt(start / slope)
    order, frequency = alpha - sp.Rational(d, 2), sp.Abs(FREQUENCY)
    factor_ = 2 * sp.pi ** sp.Rational(d, 2) * width**d / sp.gamma(alpha) * start**-alpha
    return factor_ * _bessel(order, width * frequency)


def _bessel(order: sp.Expr, z: sp.Expr) -> sp.Expr:
    """(z / 2)^order K_order(z): of a half-integer order an exponential times a polynomial."""
    if not (order.is_Rational and order.q == 2 and 0 < order <= MOST_EXPANDED):
        return (z / 2) ** order * sp.besselk(order, z)
    n = int(order - sp.Rational(1, 2))
    terms = [sp.factorial(n + k) / (sp.factorial(k) * sp.factorial(n - k)) * z ** (n - k) / 2**k for k in range(n + 1)]
    return sp.sqrt(sp.pi) / 2 ** (n + 1) * sp.exp(-z) * sp.Add(*terms)


def numeric_spectral_density(
    profile: Callable[[np.ndarray], np.ndarray], frequencies: np.ndarray, dimensions: int
) -> np.ndarray:
    """The same by quadrature, of a profile that vanishes at large distances. NaN when it does not.

    In d dimensions it is a Hankel transform: (2 pi)^(d/2) w^(1-d/2) times the integral of r^(d/2) J_(d/2-1)(w r) k(r).
    """
    frequencies = np.asarray(frequencies, float)
    reach = _reach(profile)
    if reach is None:
        return np.full(frequencies.shape, np.nan)
    values = [_at_frequency(profile, abs(float(w)), dimensions, reach) for w in frequencies.ravel()]
    return np.array(values).reshape(frequencies.shape)


def _at_frequency(
    profile: Callable[[np.ndarray], np.ndarray], w: float, d: int, reach: float, panels: int = PANELS
) -> float:
    """NaN for more waves within reach than are counted."""
    waves = reach * w / np.pi
    if waves > MOST_WAVES:
        return float("nan")
    # Panels no longer than half a wave, and short near zero, where the profile may change at any scale.
    even = np.linspace(0.0, reach, int(waves) + panels)
    edges = np.union1d(even, np.geomspace(1e-9 * reach, reach, panels))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    halves = np.diff(edges)[:, None] / 2
    r = (edges[:-1, None] + halves + halves * nodes).ravel()
    return _transform(r, (halves * weights).ravel() * profile(r), w, d)


def _transform(r: np.ndarray, masses: np.ndarray, w: float, d: int) -> float:
    if d == 1:
        return float(2 * np.sum(masses * np.cos(w * r)))
    if w == 0:
        return float(2 * np.pi ** (d / 2) / special.gamma(d / 2) * np.sum(masses * r ** (d - 1)))
    kernel = r ** (d / 2) * special.jv(d / 2 - 1, w * r)
    return float((2 * np.pi) ** (d / 2) * w ** (1 - d / 2) * np.sum(masses * kernel))


def lowest_density(profile: Callable[[np.ndarray], np.ndarray], dimensions: int) -> float | None:
    """The most negative value of the spectral density as a part of the largest, or None where it is not negative.

    Looked for at frequencies that belong to distances within which the profile vanishes, down to a thousandth of them.
    """
    reach = _reach(profile)
    if reach is None:
        return None
    frequencies = np.geomspace(1.0, 1e3, 50) / reach
    with np.errstate(all="ignore"):
        values, others = (
            np.array([_at_frequency(profile, w, dimensions, reach, panels) for w in frequencies])
            for panels in (PANELS, PANELS // 2)
        )
    if not (np.isfinite(values).all() and np.isfinite(others).all()):
        return None
    errors = 10 * np.abs(values - others) + ROUNDING * np.max(np.abs(values))
    lowest = int(np.argmin(values + errors))
    return float(values[lowest] / np.max(np.abs(values))) if values[lowest] + errors[lowest] < 0 else None


def _reach(profile: Callable[[np.ndarray], np.ndarray]) -> float | None:
    """The distance beyond which the profile is nothing, by a grid over all scales."""
    values = np.abs(profile(_PROBES))
    start = float(np.max(values[np.isfinite(values)], initial=0.0))
    above = np.flatnonzero(~(values < 1e-13 * start))
    if not above.size or above[-1] == len(_PROBES) - 1:
        return None
    return float(_PROBES[above[-1] + 1])
