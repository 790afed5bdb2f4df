"""The table of plain distributions: log density, mean and variance as SymPy expressions; distribution function, draws.

Parameters follow Stan: `Normal(mean, sd)`, `Gamma(shape, rate)`, `NegativeBinomial(mean, dispersion)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy as sp
from scipy import special

from gpdsl.symbolic.conditions import choose, less
from gpdsl.symbolic.density import Arguments, Array, Density, Formula, Values, if_above
from gpdsl.symbolic.functions import (
    absolute,
    lgamma,
    log1p,
    log_beta,
    log_ndtr,
    log_rising,
    ndtr,
    sigmoid,
    softplus,
    times_log,
)
from gpdsl.symbolic.sizes import SIZES, student_t

IMPOSSIBLE = sp.Float(-1e30)
"""Log density of what cannot be: finite, so that it can stand beside a component of a mixture that allows it."""


def _normal(y: Formula, a: Arguments) -> Formula:
    return -sp.log(2 * sp.pi) / 2 - sp.log(a["sd"]) - (y - a["mean"]) ** 2 / (2 * a["sd"] ** 2)


def _uniform(y: Formula, a: Arguments) -> Formula:
    inside = -sp.log(a["upper"] - a["lower"])
    return choose(less(y, a["lower"]), IMPOSSIBLE, choose(less(a["upper"], y), IMPOSSIBLE, inside))


def _logistic(y: Formula, a: Arguments) -> Formula:
    z = (y - a["mean"]) / a["scale"]
    return -sp.log(a["scale"]) - softplus(z) - softplus(-z)


def _weibull(y: Formula, a: Arguments) -> Formula:
    k, scale = a["shape"], a["scale"]
    return sp.log(k) - sp.log(scale) + (k - 1) * (sp.log(y) - sp.log(scale)) - (y / scale) ** k


def _beta(y: Formula, a: Arguments) -> Formula:
    alpha, beta = a["a"], a["b"]
    return -log_beta(alpha, beta) + (alpha - 1) * sp.log(y) + (beta - 1) * log1p(-y)


def _negative_binomial(y: Formula, a: Arguments) -> Formula:
    mean, phi = a["mean"], a["dispersion"]
    ways = log_rising(phi, y) - y * sp.log(phi) - lgamma(y + 1)
    return ways + times_log(y, mean) - (y + phi) * log1p(mean / phi)


def _binomial(y: Formula, a: Arguments) -> Formula:
    n = a["trials"]
    ways = -log_beta(y + 1, n - y + 1) - sp.log(n + 1)
    if "logit" in a:
        return ways + y * a["logit"] - n * softplus(a["logit"])
    if "probit" in a:
        return ways + y * log_ndtr(a["probit"]) + (n - y) * log_ndtr(-a["probit"])
    return ways + y * sp.log(a["p"]) + (n - y) * log1p(-a["p"])


def _bernoulli(y: Formula, a: Arguments) -> Formula:
    if "logit" in a:
        return y * a["logit"] - softplus(a["logit"])
    if "probit" in a:
        return log_ndtr((2 * y - 1) * a["probit"])
    return y * sp.log(a["p"]) + (1 - y) * log1p(-a["p"])


def success_probability(a: Mapping[str, Any], logistic: Callable = sigmoid, normal: Callable = ndtr) -> Any:
    """Probability of success under whichever of `logit`, `probit`, `p` was given, as a formula or as values."""
    if "logit" in a:
        return logistic(a["logit"])
    return normal(a["probit"]) if "probit" in a else a["p"]


def _success(a: Values) -> Array:
    return np.asarray(success_probability(a, special.expit, special.ndtr))


def _weibull_variance(a: Arguments) -> Formula:
    second, first = lgamma(1 + 2 / a["shape"]), lgamma(1 + 1 / a["shape"])
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
        lambda y, a: -sp.log(2) - sp.log(a["scale"]) - absolute(y - a["mean"]) / a["scale"],
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
        lambda y, a: a["shape"] * sp.log(a["rate"]) - lgamma(a["shape"]) + (a["shape"] - 1) * sp.log(y) - a["rate"] * y,
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
        lambda a: a["scale"] * sp.exp(lgamma(1 + 1 / a["shape"])),
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
        lambda y, a: times_log(y, a["mean"]) - a["mean"] - lgamma(y + 1),
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
