"""The table of plain distributions: log density, mean and variance as SymPy expressions; distribution function, draws.

Parameters follow Stan: `Normal(mean, sd)`, `Gamma(shape, rate)`, `NegativeBinomial(mean, dispersion)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import sympy as sp
from scipy import special

from gpdsl.language import model as m
from gpdsl.symbolic import functions as f
from gpdsl.symbolic.conditions import choose, less

# What a plain distribution of one number is: log density, mean and variance as SymPy expressions, and functions.

Formula: TypeAlias = sp.Expr
Arguments = Mapping[str, Formula]
Array = np.ndarray
Values = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Density:
    """One distribution, whose arguments are taken by name.

    `log_density(y, a)`, `mean(a)` and `variance(a)` are formulas. `cdf(y, a)` is P(Y <= y), elementwise, and
    `draw(generator, a)` one value per element of arguments that have the same shape. Of a registered one, formulas and
    `cdf` may be None; `moments(a)` are then mean and variance by value, `quantile(p, a)` is the inverse of `cdf`,
    `definition` the log density as a file would define it, `sampled` whether `draw` is more than these quantiles, and
    `said` what saved fits know it by.
    """

    log_density: Callable[[Formula, Arguments], Formula]
    mean: Callable[[Arguments], Formula] | None
    variance: Callable[[Arguments], Formula] | None
    cdf: Callable[[Array, Values], Array] | None
    draw: Callable[[np.random.Generator, Values], Array]
    moments: Callable[[Values], tuple[Array, Array]] | None = None
    quantile: Callable[[Array, Values], Array] | None = None
    definition: m.Density | None = None
    sampled: bool = True
    said: str = ""


def if_above(least: int, degrees: Formula, moment: Formula) -> Formula:
    """A moment of a heavy tail, infinite up to so many degrees of freedom."""
    return sp.Piecewise((moment, degrees > least), (sp.oo, True))


# Distributions of sizes, of standard deviations and length-scales above all: the table `densities` has them too.
#
# `PCScale` and `PCLengthscale` are the priors of Fuglstad et al. (2019), "Constructing priors that penalize the
# complexity of Gaussian random fields": a standard deviation is exponential, and a length-scale to the power -d/2 is.


def student_t(y: Formula, a: Arguments) -> Formula:
    """Log density of Student's t about a mean."""
    df, z = a["df"], (y - a["mean"]) / a["scale"]
    normaliser = f.log_rising(df / 2, sp.Rational(1, 2)) - sp.log(df * sp.pi) / 2 - sp.log(a["scale"])
    return normaliser - (df + 1) / 2 * f.log1p(z**2 / df)


def _half_student_mean(a: Arguments) -> Formula:
    df = a["df"]
    ratio = sp.exp(f.lgamma((df + 1) / 2) - f.lgamma(df / 2))
    return if_above(1, df, 2 * a["scale"] * sp.sqrt(df / sp.pi) * ratio / (df - 1))


def _inverse_gamma(y: Formula, a: Arguments) -> Formula:
    shape, scale = a["shape"], a["scale"]
    return shape * sp.log(scale) - f.lgamma(shape) - (shape + 1) * sp.log(y) - scale / y


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
    return (a["below"] * (-sp.log(a["alpha"])) ** (1 / k)) ** order * sp.exp(f.lgamma(1 - order / k))


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
        lambda y, a: sp.log(2 / sp.pi) - sp.log(a["scale"]) - f.log1p((y / a["scale"]) ** 2),
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


IMPOSSIBLE = sp.Float(-1e30)
"""Log density of what cannot be: finite, so that it can stand beside a component of a mixture that allows it."""


def _normal(y: Formula, a: Arguments) -> Formula:
    return -sp.log(2 * sp.pi) / 2 - sp.log(a["sd"]) - (y - a["mean"]) ** 2 / (2 * a["sd"] ** 2)


def _uniform(y: Formula, a: Arguments) -> Formula:
    inside = -sp.log(a["upper"] - a["lower"])
    return choose(less(y, a["lower"]), IMPOSSIBLE, choose(less(a["upper"], y), IMPOSSIBLE, inside))


def _logistic(y: Formula, a: Arguments) -> Formula:
    z = (y - a["mean"]) / a["scale"]
    return -sp.log(a["scale"]) - f.softplus(z) - f.softplus(-z)


def _weibull(y: Formula, a: Arguments) -> Formula:
    k, scale = a["shape"], a["scale"]
    return sp.log(k) - sp.log(scale) + (k - 1) * (sp.log(y) - sp.log(scale)) - (y / scale) ** k


def _beta(y: Formula, a: Arguments) -> Formula:
    alpha, beta = a["a"], a["b"]
    return -f.log_beta(alpha, beta) + (alpha - 1) * sp.log(y) + (beta - 1) * f.log1p(-y)


def _negative_binomial(y: Formula, a: Arguments) -> Formula:
    mean, phi = a["mean"], a["dispersion"]
    ways = f.log_rising(phi, y) - y * sp.log(phi) - f.lgamma(y + 1)
    return ways + f.times_log(y, mean) - (y + phi) * f.log1p(mean / phi)


def _binomial(y: Formula, a: Arguments) -> Formula:
    n = a["trials"]
    ways = -f.log_beta(y + 1, n - y + 1) - sp.log(n + 1)
    if "logit" in a:
        return ways + y * a["logit"] - n * f.softplus(a["logit"])
    if "probit" in a:
        return ways + y * f.log_ndtr(a["probit"]) + (n - y) * f.log_ndtr(-a["probit"])
    return ways + y * sp.log(a["p"]) + (n - y) * f.log1p(-a["p"])


def _bernoulli(y: Formula, a: Arguments) -> Formula:
    if "logit" in a:
        return y * a["logit"] - f.softplus(a["logit"])
    if "probit" in a:
        return f.log_ndtr((2 * y - 1) * a["probit"])
    return y * sp.log(a["p"]) + (1 - y) * f.log1p(-a["p"])


def success_probability(a: Mapping[str, Any], logistic: Callable = f.sigmoid, normal: Callable = f.ndtr) -> Any:
    """Probability of success under whichever of `logit`, `probit`, `p` was given, as a formula or as values."""
    if "logit" in a:
        return logistic(a["logit"])
    return normal(a["probit"]) if "probit" in a else a["p"]


def failure_probability(a: Arguments) -> Formula:
    """The rest, in which nothing cancels where it is small."""
    if "logit" in a:
        return f.sigmoid(-a["logit"])
    return f.ndtr(-a["probit"]) if "probit" in a else 1 - a["p"]


def _success(a: Values) -> Array:
    return np.asarray(success_probability(a, special.expit, special.ndtr))


def _weibull_variance(a: Arguments) -> Formula:
    second, first = f.lgamma(1 + 2 / a["shape"]), f.lgamma(1 + 1 / a["shape"])
    return a["scale"] ** 2 * (sp.exp(second) - sp.exp(2 * first))


def _student_variance(a: Arguments) -> Formula:
    return if_above(2, a["df"], a["scale"] ** 2 * a["df"] / (a["df"] - 2))


def _binomial_variance(a: Arguments) -> Formula:
    p = success_probability(a)
    return a.get("trials", sp.Integer(1)) * p * (1 - p)


def _standard(y: Array, a: Values) -> Array:
    return (y - a["mean"]) / a["scale"]


def _laplace_cdf(y: Array, a: Values) -> Array:
    z = _standard(y, a)
    return np.where(z < 0, 0.5 * np.exp(np.minimum(z, 0.0)), 1.0 - 0.5 * np.exp(-np.maximum(z, 0.0)))


def _binomial_cdf(y: Array, a: Values) -> Array:
    n, k = a["trials"], np.floor(y)
    inside = special.betainc(np.maximum(n - k, 1e-9), k + 1.0, 1.0 - _success(a))
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, inside))


def _negative_binomial_cdf(y: Array, a: Values) -> Array:
    p = a["dispersion"] / (a["dispersion"] + a["mean"])
    return np.where(y < 0, 0.0, special.betainc(a["dispersion"], np.floor(np.maximum(y, 0.0)) + 1.0, p))


DENSITIES: dict[str, Density] = {
    "Normal": Density(
        _normal,
        lambda a: a["mean"],
        lambda a: a["sd"] ** 2,
        lambda y, a: special.ndtr((y - a["mean"]) / a["sd"]),
        lambda g, a: g.normal(a["mean"], a["sd"]),
    ),
    "StudentT": Density(
        student_t,
        lambda a: a["mean"],
        _student_variance,
        lambda y, a: special.stdtr(a["df"], _standard(y, a)),
        lambda g, a: a["mean"] + a["scale"] * g.standard_t(a["df"]),
    ),
    "Laplace": Density(
        lambda y, a: -sp.log(2) - sp.log(a["scale"]) - f.absolute(y - a["mean"]) / a["scale"],
        lambda a: a["mean"],
        lambda a: 2 * a["scale"] ** 2,
        _laplace_cdf,
        lambda g, a: g.laplace(a["mean"], a["scale"]),
    ),
    "Logistic": Density(
        _logistic,
        lambda a: a["mean"],
        lambda a: sp.pi**2 * a["scale"] ** 2 / 3,
        lambda y, a: special.expit(_standard(y, a)),
        lambda g, a: g.logistic(a["mean"], a["scale"]),
    ),
    "LogNormal": Density(
        lambda y, a: _normal(sp.log(y), a) - sp.log(y),
        lambda a: sp.exp(a["mean"] + a["sd"] ** 2 / 2),
        lambda a: (sp.exp(a["sd"] ** 2) - 1) * sp.exp(2 * a["mean"] + a["sd"] ** 2),
        lambda y, a: special.ndtr((np.log(np.maximum(y, 1e-300)) - a["mean"]) / a["sd"]),
        lambda g, a: g.lognormal(a["mean"], a["sd"]),
    ),
    "Gamma": Density(
        lambda y, a: (
            a["shape"] * sp.log(a["rate"]) - f.lgamma(a["shape"]) + (a["shape"] - 1) * sp.log(y) - a["rate"] * y
        ),
        lambda a: a["shape"] / a["rate"],
        lambda a: a["shape"] / a["rate"] ** 2,
        lambda y, a: special.gammainc(a["shape"], a["rate"] * np.maximum(y, 0.0)),
        lambda g, a: g.gamma(a["shape"], 1.0 / a["rate"]),
    ),
    "Exponential": Density(
        lambda y, a: sp.log(a["rate"]) - a["rate"] * y,
        lambda a: 1 / a["rate"],
        lambda a: 1 / a["rate"] ** 2,
        lambda y, a: -np.expm1(-a["rate"] * np.maximum(y, 0.0)),
        lambda g, a: g.exponential(1.0 / a["rate"]),
    ),
    "Weibull": Density(
        _weibull,
        lambda a: a["scale"] * sp.exp(f.lgamma(1 + 1 / a["shape"])),
        _weibull_variance,
        lambda y, a: -np.expm1(-((np.maximum(y, 0.0) / a["scale"]) ** a["shape"])),
        lambda g, a: a["scale"] * g.weibull(a["shape"]),
    ),
    **SIZES,
    "Uniform": Density(
        _uniform,
        lambda a: (a["lower"] + a["upper"]) / 2,
        lambda a: (a["upper"] - a["lower"]) ** 2 / 12,
        lambda y, a: (np.clip(y, a["lower"], a["upper"]) - a["lower"]) / (a["upper"] - a["lower"]),
        lambda g, a: g.uniform(a["lower"], a["upper"]),
        quantile=lambda p, a: a["lower"] + p * (a["upper"] - a["lower"]),
    ),
    "Beta": Density(
        _beta,
        lambda a: a["a"] / (a["a"] + a["b"]),
        lambda a: a["a"] * a["b"] / ((a["a"] + a["b"]) ** 2 * (a["a"] + a["b"] + 1)),
        lambda y, a: special.betainc(a["a"], a["b"], np.clip(y, 0.0, 1.0)),
        lambda g, a: g.beta(a["a"], a["b"]),
    ),
    "Poisson": Density(
        lambda y, a: f.times_log(y, a["mean"]) - a["mean"] - f.lgamma(y + 1),
        lambda a: a["mean"],
        lambda a: a["mean"],
        lambda y, a: np.where(y < 0, 0.0, special.gammaincc(np.floor(np.maximum(y, 0.0)) + 1.0, a["mean"])),
        lambda g, a: g.poisson(a["mean"]).astype(float),
    ),
    "NegativeBinomial": Density(
        _negative_binomial,
        lambda a: a["mean"],
        lambda a: a["mean"] + a["mean"] ** 2 / a["dispersion"],
        _negative_binomial_cdf,
        lambda g, a: g.poisson(g.gamma(a["dispersion"], a["mean"] / a["dispersion"])).astype(float),
    ),
    "Binomial": Density(
        _binomial,
        lambda a: a["trials"] * success_probability(a),
        _binomial_variance,
        _binomial_cdf,
        lambda g, a: g.binomial(a["trials"].astype(int), np.clip(_success(a), 0.0, 1.0)).astype(float),
    ),
    "Bernoulli": Density(
        _bernoulli,
        success_probability,
        _binomial_variance,
        lambda y, a: np.where(y < 0, 0.0, np.where(y < 1, 1.0 - _success(a), 1.0)),
        lambda g, a: g.binomial(1, np.clip(_success(a), 0.0, 1.0)).astype(float),
    ),
}
"""Every plain distribution of one number. Those of levels and those made of others are in `symbolic.laws`."""
