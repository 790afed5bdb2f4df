"""Distributions of sizes, of standard deviations and length-scales above all: the table `densities` has them too.

`PCScale` and `PCLengthscale` are the priors of Fuglstad et al. (2019), "Constructing priors that penalize the
complexity of Gaussian random fields": a standard deviation is exponential, and a length-scale to the power -d/2 is.
"""

from __future__ import annotations

import numpy as np
import sympy as sp
from scipy import special

from gpdsl.symbolic.density import Arguments, Density, Formula, Values, if_above
from gpdsl.symbolic.functions import lgamma, log1p, log_rising


def student_t(y: Formula, a: Arguments) -> Formula:
    """Log density of Student's t about a mean."""
    df, z = a["df"], (y - a["mean"]) / a["scale"]
    normaliser = log_rising(df / 2, sp.Rational(1, 2)) - sp.log(df * sp.pi) / 2 - sp.log(a["scale"])
    return normaliser - (df + 1) / 2 * log1p(z**2 / df)


def _half_student_mean(a: Arguments) -> Formula:
    df = a["df"]
    ratio = sp.exp(lgamma((df + 1) / 2) - lgamma(df / 2))
    return if_above(1, df, 2 * a["scale"] * sp.sqrt(df / sp.pi) * ratio / (df - 1))


def _inverse_gamma(y: Formula, a: Arguments) -> Formula:
    shape, scale = a["shape"], a["scale"]
    return shape * sp.log(scale) - lgamma(shape) - (shape + 1) * sp.log(y) - scale / y


def _pc_rate(a: Arguments) -> Formula:
    """Of the exponential distribution with P(Y > above) = alpha."""
    return -sp.log(a["alpha"]) / a["above"]


def _pc_lengthscale(y: Formula, a: Arguments) -> Formula:
    k, rate = a["dimension"] / 2, -sp.log(a["alpha"])
    ratio = sp.log(a["below"]) - sp.log(y)
    return sp.log(k) + sp.log(rate) + k * ratio - sp.log(y) - rate * sp.exp(k * ratio)


def _pc_moment(order: int, a: Arguments) -> Formula:
    """E[Y^order]: Y^(-d/2) is exponential."""
    k = a["dimension"] / 2
    return (a["below"] * (-sp.log(a["alpha"])) ** (1 / k)) ** order * sp.exp(lgamma(1 - order / k))


def pc_quantile(hazard: np.ndarray, a: Values) -> np.ndarray:
    """Where P(Y <= y) is exp(-hazard), of a `PCLengthscale`."""
    found: np.ndarray = a["below"] * (-np.log(a["alpha"]) / hazard) ** (2.0 / a["dimension"])
    return found


def pc_hazard(y: np.ndarray, a: Values) -> np.ndarray:
    """-log P(Y <= y), of a `PCLengthscale`."""
    with np.errstate(divide="ignore", over="ignore"):
        found: np.ndarray = -np.log(a["alpha"]) * (a["below"] / np.maximum(y, 0.0)) ** (0.5 * a["dimension"])
    return found


SIZES: dict[str, Density] = {
    "InverseGamma": Density(
        _inverse_gamma,
        lambda a: if_above(1, a["shape"], a["scale"] / (a["shape"] - 1)),
        lambda a: if_above(2, a["shape"], a["scale"] ** 2 / ((a["shape"] - 1) ** 2 * (a["shape"] - 2))),
        lambda y, a: special.gammaincc(a["shape"], a["scale"] / np.maximum(y, 1e-300)),
        lambda g, a: a["scale"] / g.gamma(a["shape"]),
        quantile=lambda p, a: a["scale"] / special.gammainccinv(a["shape"], p),
    ),
    "HalfNormal": Density(
        lambda y, a: sp.log(2 / sp.pi) / 2 - sp.log(a["sd"]) - y**2 / (2 * a["sd"] ** 2),
        lambda a: a["sd"] * sp.sqrt(2 / sp.pi),
        lambda a: a["sd"] ** 2 * (1 - 2 / sp.pi),
        lambda y, a: special.erf(np.maximum(y, 0.0) / (a["sd"] * np.sqrt(2.0))),
        lambda g, a: np.abs(g.normal(0.0, a["sd"])),
        quantile=lambda p, a: a["sd"] * np.sqrt(2.0) * special.erfinv(p),
    ),
    "HalfCauchy": Density(
        lambda y, a: sp.log(2 / sp.pi) - sp.log(a["scale"]) - log1p((y / a["scale"]) ** 2),
        lambda a: sp.oo,
        lambda a: sp.oo,
        lambda y, a: 2 / np.pi * np.arctan(np.maximum(y, 0.0) / a["scale"]),
        lambda g, a: np.abs(a["scale"] * g.standard_cauchy(np.shape(a["scale"]))),
        quantile=lambda p, a: a["scale"] * np.tan(0.5 * np.pi * p),
    ),
    "HalfStudentT": Density(
        lambda y, a: sp.log(2) + student_t(y, {"mean": sp.Integer(0), **a}),
        _half_student_mean,
        lambda a: if_above(2, a["df"], a["scale"] ** 2 * a["df"] / (a["df"] - 2) - _half_student_mean(a) ** 2),
        lambda y, a: 2 * special.stdtr(a["df"], np.maximum(y, 0.0) / a["scale"]) - 1,
        lambda g, a: np.abs(a["scale"] * g.standard_t(a["df"])),
        quantile=lambda p, a: a["scale"] * special.stdtrit(a["df"], 0.5 * (1 + p)),
    ),
    "PCScale": Density(
        lambda y, a: sp.log(_pc_rate(a)) - _pc_rate(a) * y,
        lambda a: 1 / _pc_rate(a),
        lambda a: 1 / _pc_rate(a) ** 2,
        lambda y, a: -np.expm1(np.log(a["alpha"]) / a["above"] * np.maximum(y, 0.0)),
        lambda g, a: g.exponential(-a["above"] / np.log(a["alpha"])),
        quantile=lambda p, a: a["above"] * np.log1p(-p) / np.log(a["alpha"]),
    ),
    "PCLengthscale": Density(
        _pc_lengthscale,
        lambda a: if_above(2, a["dimension"], _pc_moment(1, a)),
        lambda a: if_above(4, a["dimension"], _pc_moment(2, a) - _pc_moment(1, a) ** 2),
        lambda y, a: np.exp(-pc_hazard(y, a)),
        lambda g, a: pc_quantile(g.standard_exponential(np.shape(a["below"])), a),
        quantile=lambda p, a: pc_quantile(-np.log(p), a),
    ),
}
