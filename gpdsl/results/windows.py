"""Distributions between two bounds: probabilities and places counted from the nearer tail."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from gpdsl.lowering import tails
from gpdsl.program.cache import jit, precision
from gpdsl.results.cells import inverse
from gpdsl.symbolic.densities import DENSITIES, Density, pc_hazard, pc_quantile
from gpdsl.symbolic.numeric import log1mexp

# Tails of the continuous distributions in logarithms: nothing underflows however far out of those that can be cut.

Array = np.ndarray
Arguments = Mapping[str, np.ndarray]
Side = Callable[[Array, Arguments], Array]
Tail = Callable[..., Any]

FAR = -200.0
"""Log probabilities below which SciPy's quantile functions are not used: they overflow, or lose their digits."""

LOG_2, LARGEST = np.log(2.0), 700.0


@dataclass(frozen=True)
class LogTails:
    """`below(y, a)` is log P(Y <= y), `above` log P(Y > y); `at_below(q, a)`, `at_above` are where these are q."""

    below: Side
    above: Side
    at_below: Side
    at_above: Side


def log_difference(larger: Array, smaller: Array) -> Array:
    """log(exp(larger) - exp(smaller)); of equal numbers minus infinity."""
    with np.errstate(all="ignore"):
        found = larger + log1mexp(np.maximum(larger - smaller, 0.0))
    return np.where(np.asarray(larger) == -np.inf, -np.inf, found)


def _symmetric(below: Callable[[Array], Array], at_below: Callable[[Array], Array], scale: str) -> LogTails:
    """A distribution symmetric about its mean, by its standard form."""
    return LogTails(
        lambda y, a: below((y - a["mean"]) / a[scale]),
        lambda y, a: below(-(y - a["mean"]) / a[scale]),
        lambda q, a: a["mean"] + a[scale] * at_below(q),
        lambda q, a: a["mean"] - a[scale] * at_below(q),
    )


def _laplace(z: Array) -> Array:
    return np.where(z < 0, np.minimum(z, 0.0) - LOG_2, np.log1p(-0.5 * np.exp(-np.maximum(z, 0.0))))


def _laplace_at(q: Array) -> Array:
    low = np.minimum(q, -LOG_2)
    return np.where(q < -LOG_2, low + LOG_2, -LOG_2 - log1mexp(-np.maximum(q, -LOG_2)))


def _hazard(cumulative: Side, at: Side) -> LogTails:
    """A positive variable by its cumulative hazard H, P(Y > y) = exp(-H(y)), and the inverse of H."""
    return LogTails(
        lambda y, a: log1mexp(cumulative(np.maximum(y, 0.0), a)),
        lambda y, a: -cumulative(np.maximum(y, 0.0), a),
        lambda q, a: at(-log1mexp(-q), a),
        lambda q, a: at(-q, a),
    )


def _log_normal(side: float) -> tuple[Side, Side]:
    def below(y: Array, a: Arguments) -> Array:
        return special.log_ndtr(side * (np.log(np.maximum(y, 0.0)) - a["mean"]) / a["sd"])

    return below, lambda q, a: np.exp(a["mean"] + side * a["sd"] * special.ndtri_exp(q))


def _gamma(tail: Tail, quantile: Tail, *, rises: bool) -> tuple[Side, Side]:
    """One tail of a gamma distribution and its inverse, Newton's method in log y where SciPy's has no digits left."""

    def log_tail(y: Array, a: Arguments) -> Array:
        x = np.minimum(a["rate"] * np.maximum(y, 0.0), np.finfo(float).max)
        return np.where(np.asarray(y) == np.inf, 0.0 if rises else -np.inf, _compiled(tail)(a["shape"], x))

    def far(q: Array, shape: Array) -> Array:
        def function(v: Array) -> tuple[Array, Array]:
            v = np.clip(v, -LARGEST, LARGEST)
            value = _compiled(tail)(shape, np.exp(v))
            slope = np.exp(shape * v - np.exp(v) - special.gammaln(shape) - value)
            return value, slope if rises else -slope

        return np.exp(inverse(function, q, increasing=rises))

    def at(q: Array, a: Arguments) -> Array:
        return _near_or_far(q, a["shape"], lambda q, shape: quantile(shape, np.exp(q)), far) / a["rate"]

    return log_tail, at


def _near_or_far(q: Array, shape: Array, near: Tail, far: Tail) -> Array:
    """`near` of the log probabilities above `FAR`, `far` of the others, where finite."""
    q, shape = np.broadcast_arrays(np.asarray(q, float), np.asarray(shape, float))
    found, beyond = np.asarray(near(q, shape)), (q < FAR) & np.isfinite(q)
    return np.where(beyond, far(np.where(beyond, q, FAR), shape), found) if beyond.any() else found


@functools.cache
def _compiled(tail: Tail) -> Tail:
    """A tail of `lowering`, compiled, in double precision whatever that of the fit."""
    compiled = jit(tail, brief=True)

    def at(shape: Array, y: Array) -> Array:
        with precision("float64"):
            return np.asarray(compiled(np.asarray(shape, float), np.asarray(y, float)))

    return at


def _student(z: Array, df: Array) -> Array:
    """log P(T <= z), by SciPy's function where that has its digits: it is hundreds of times as quick."""
    z, df = np.broadcast_arrays(np.asarray(z, float), np.asarray(df, float))
    tail = special.stdtr(df, -np.abs(z))
    with np.errstate(divide="ignore"):
        found = np.where(z < 0, np.log(tail), np.log1p(-tail))
    far = (found < FAR) & np.isfinite(z)
    return np.where(far, _compiled(tails.log_student_cdf)(df, z), found) if far.any() else found


def _student_at(q: Array, df: Array) -> Array:
    """Where log P(T <= z) = q."""
    upper = q > -LOG_2
    low = np.where(upper, log1mexp(-np.minimum(q, -1e-300)), q)
    found = _near_or_far(low, df, lambda q, df: special.stdtrit(df, np.exp(q)), _far_student)
    return np.where(upper, -found, found)


def _far_student(q: Array, df: Array) -> Array:
    """Newton's method in asinh z; a power of |z| where that is all that is left of the tail."""
    normaliser = special.gammaln(0.5 * (df + 1)) - special.gammaln(0.5 * df) - 0.5 * np.log(df * np.pi)
    log_power = (normaliser + 0.5 * (df + 1) * np.log(df) - np.log(df) - q) / df

    def function(v: Array) -> tuple[Array, Array]:
        z = np.sinh(np.clip(v, -LARGEST / 2, LARGEST / 2))
        value = _student(z, df)
        log_density = normaliser - 0.5 * (df + 1) * np.log1p(z**2 / df)
        return value, np.exp(log_density - value) * np.sqrt(1.0 + z**2)

    with np.errstate(over="ignore"):
        return np.where(log_power > 20.0 + np.log(df), -np.exp(log_power), np.sinh(inverse(function, q)))


_BELOW, _AT_BELOW = _gamma(tails.log_gamma_cdf, special.gammaincinv, rises=True)
_ABOVE, _AT_ABOVE = _gamma(tails.log_gamma_sf, special.gammainccinv, rises=False)


def _by_above(above: Callable[[Array, Arguments], Array], at_above: Callable[[Array, Arguments], Array]) -> LogTails:
    """A distribution of positive values by log P(Y > y) and its inverse."""
    return LogTails(
        lambda y, a: np.where(y > 0, log1mexp(-np.minimum(above(y, a), -1e-300)), -np.inf),
        above,
        lambda q, a: at_above(log1mexp(-np.minimum(q, -1e-300)), a),
        at_above,
    )


def _inverted(a: Arguments) -> Arguments:
    """The Gamma distribution of 1 / Y."""
    return {"shape": a["shape"], "rate": a["scale"]}


LOG_TAILS: Mapping[str, LogTails] = {
    "Normal": _symmetric(special.log_ndtr, special.ndtri_exp, "sd"),
    "Laplace": _symmetric(_laplace, _laplace_at, "scale"),
    "Logistic": _symmetric(special.log_expit, lambda q: q - log1mexp(-q), "scale"),
    "StudentT": LogTails(
        lambda y, a: _student((y - a["mean"]) / a["scale"], a["df"]),
        lambda y, a: _student(-(y - a["mean"]) / a["scale"], a["df"]),
        lambda q, a: a["mean"] + a["scale"] * _student_at(q, a["df"]),
        lambda q, a: a["mean"] - a["scale"] * _student_at(q, a["df"]),
    ),
    "LogNormal": LogTails(_log_normal(1.0)[0], _log_normal(-1.0)[0], _log_normal(1.0)[1], _log_normal(-1.0)[1]),
    "Exponential": _hazard(lambda y, a: a["rate"] * y, lambda h, a: h / a["rate"]),
    "Weibull": _hazard(lambda y, a: (y / a["scale"]) ** a["shape"], lambda h, a: a["scale"] * h ** (1 / a["shape"])),
    "Gamma": LogTails(_BELOW, _ABOVE, _AT_BELOW, _AT_ABOVE),
    "InverseGamma": LogTails(
        lambda y, a: _ABOVE(1 / y, _inverted(a)),
        lambda y, a: _BELOW(1 / y, _inverted(a)),
        lambda q, a: 1 / _AT_ABOVE(q, _inverted(a)),
        lambda q, a: 1 / _AT_BELOW(q, _inverted(a)),
    ),
    "HalfNormal": _by_above(
        lambda y, a: LOG_2 + special.log_ndtr(-np.maximum(y, 0.0) / a["sd"]),
        lambda q, a: -a["sd"] * special.ndtri_exp(q - LOG_2),
    ),
    "HalfCauchy": LogTails(
        lambda y, a: np.log(2 / np.pi * np.arctan2(np.maximum(y, 0.0), a["scale"])),
        lambda y, a: np.log(2 / np.pi * np.arctan2(a["scale"], np.maximum(y, 0.0))),
        lambda q, a: a["scale"] * np.tan(0.5 * np.pi * np.exp(q)),
        lambda q, a: a["scale"] / np.tan(0.5 * np.pi * np.exp(q)),
    ),
    "HalfStudentT": _by_above(
        lambda y, a: LOG_2 + _student(-np.maximum(y, 0.0) / a["scale"], a["df"]),
        lambda q, a: -a["scale"] * _student_at(q - LOG_2, a["df"]),
    ),
    "PCScale": _hazard(
        lambda y, a: -np.log(a["alpha"]) / a["above"] * y, lambda h, a: -h * a["above"] / np.log(a["alpha"])
    ),
    "PCLengthscale": LogTails(
        lambda y, a: -pc_hazard(y, a),
        lambda y, a: log1mexp(pc_hazard(y, a)),
        lambda q, a: pc_quantile(-q, a),
        lambda q, a: pc_quantile(-log1mexp(-q), a),
    ),
    "Uniform": LogTails(
        lambda y, a: np.log((np.clip(y, a["lower"], a["upper"]) - a["lower"]) / (a["upper"] - a["lower"])),
        lambda y, a: np.log((a["upper"] - np.clip(y, a["lower"], a["upper"])) / (a["upper"] - a["lower"])),
        lambda q, a: a["lower"] + np.exp(q) * (a["upper"] - a["lower"]),
        lambda q, a: a["upper"] - np.exp(q) * (a["upper"] - a["lower"]),
    ),
    "Beta": LogTails(
        lambda y, a: np.log(special.betainc(a["a"], a["b"], np.clip(y, 0.0, 1.0))),
        lambda y, a: np.log(special.betaincc(a["a"], a["b"], np.clip(y, 0.0, 1.0))),
        lambda q, a: special.betaincinv(a["a"], a["b"], np.exp(q)),
        lambda q, a: special.betainccinv(a["a"], a["b"], np.exp(q)),
    ),
}


def _registered(law: Density) -> LogTails:
    """Of a registered distribution, as far out as its probabilities have digits."""
    cdf, quantile = law.cdf, law.quantile
    assert cdf is not None and quantile is not None
    return LogTails(
        lambda y, a: np.log(cdf(y, a)),
        lambda y, a: np.log1p(-cdf(y, a)),
        lambda q, a: quantile(np.exp(q), a),
        lambda q, a: quantile(-np.expm1(q), a),
    )


@dataclass(frozen=True, eq=False)
class Window:
    """A distribution between two bounds, of probability exp(`log_width`).

    Every place is counted from the nearer tail, so that nothing cancels; `right` says that it is the upper one.
    """

    name: str
    arguments: Arguments
    lower: Array
    upper: Array

    @property
    def _tails(self) -> LogTails:
        return LOG_TAILS.get(self.name) or _registered(DENSITIES[self.name])

    def log_below(self, y: Array) -> Array:
        """log P(Y <= y), bounds apart."""
        with np.errstate(all="ignore"):
            return self._tails.below(y, self.arguments)

    def log_above(self, y: Array) -> Array:
        """log P(Y > y), bounds apart."""
        with np.errstate(all="ignore"):
            return self._tails.above(y, self.arguments)

    @functools.cached_property
    def under(self) -> Array:
        """log P(Y <= lower)."""
        return self.log_below(self.lower)

    @functools.cached_property
    def over(self) -> Array:
        """log P(Y > upper)."""
        return self.log_above(self.upper)

    @functools.cached_property
    def right(self) -> Array:
        """Whether the whole window lies in the upper tail."""
        return self.under > -LOG_2

    @functools.cached_property
    def log_width(self) -> Array:
        """log P(lower < Y <= upper)."""
        return np.where(self.right, self._fallen(self.lower), self._risen(self.upper))

    def _risen(self, y: Array) -> Array:
        return log_difference(self.log_below(y), self.under)

    def _fallen(self, y: Array) -> Array:
        return log_difference(self.log_above(y), self.over)

    def share(self, y: Array) -> Array:
        """P(Y <= y) given that Y is inside."""
        with np.errstate(all="ignore"):
            fallen, risen = self._fallen(y) - self.log_width, self._risen(y) - self.log_width
            inside = np.where(self.right, -np.expm1(fallen), np.exp(risen))
        return np.clip(inside, 0.0, 1.0)

    def at(self, log_share: Array, log_rest: Array) -> Array:
        """Where that share of the distribution inside lies below, and the rest, 1 - share, above; both logarithms."""
        with np.errstate(all="ignore"):
            left = np.logaddexp(self.under, log_share + self.log_width)
            right = np.logaddexp(self.over, log_rest + self.log_width)
            low = self._tails.at_below(np.minimum(left, 0.0), self.arguments)
            high = self._tails.at_above(np.minimum(right, 0.0), self.arguments)
        return np.clip(np.where(left < right, low, high), self.lower, self.upper)
