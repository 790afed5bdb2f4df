"""The table of plain distributions: log density, mean and variance of each, as SymPy expressions.

Parameters follow Stan: `Normal(mean, sd)`, `Gamma(shape, rate)`, `NegativeBinomial(mean, dispersion)`.
Everything gpdsl knows of a distribution's mathematics is derived from these formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import sympy as sp

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

Formula: TypeAlias = sp.Expr
Arguments = Mapping[str, Formula]


@dataclass(frozen=True)
class Density:
    """One distribution. `log_density(y, a)`, `mean(a)` and `variance(a)` take the arguments by name."""

    log_density: Callable[[Formula, Arguments], Formula]
    mean: Callable[[Arguments], Formula]
    variance: Callable[[Arguments], Formula]


def _normal(y: Formula, mean: Formula, sd: Formula) -> Formula:
    return -sp.log(2 * sp.pi) / 2 - sp.log(sd) - (y - mean) ** 2 / (2 * sd**2)


def _student_t(y: Formula, a: Arguments) -> Formula:
    df, z = a["df"], (y - a["mean"]) / a["scale"]
    normaliser = log_rising(df / 2, sp.Rational(1, 2)) - sp.log(df * sp.pi) / 2 - sp.log(a["scale"])
    return normaliser - (df + 1) / 2 * log1p(z**2 / df)


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
    choose = log_rising(phi, y) - y * sp.log(phi) - lgamma(y + 1)
    return choose + times_log(y, mean) - (y + phi) * log1p(mean / phi)


def _binomial(y: Formula, a: Arguments) -> Formula:
    n = a["trials"]
    choose = -log_beta(y + 1, n - y + 1) - sp.log(n + 1)
    if "logit" in a:
        return choose + y * a["logit"] - n * softplus(a["logit"])
    if "probit" in a:
        return choose + y * log_ndtr(a["probit"]) + (n - y) * log_ndtr(-a["probit"])
    return choose + y * sp.log(a["p"]) + (n - y) * log1p(-a["p"])


def _bernoulli(y: Formula, a: Arguments) -> Formula:
    if "logit" in a:
        return y * a["logit"] - softplus(a["logit"])
    if "probit" in a:
        return log_ndtr((2 * y - 1) * a["probit"])
    return y * sp.log(a["p"]) + (1 - y) * log1p(-a["p"])


def success_probability(a: Arguments) -> Formula:
    """Probability of success under whichever of `logit`, `probit`, `p` was given."""
    if "logit" in a:
        return sigmoid(a["logit"])
    return ndtr(a["probit"]) if "probit" in a else a["p"]


def _log_normal_variance(a: Arguments) -> Formula:
    return (sp.exp(a["sd"] ** 2) - 1) * sp.exp(2 * a["mean"] + a["sd"] ** 2)


def _weibull_variance(a: Arguments) -> Formula:
    second, first = lgamma(1 + 2 / a["shape"]), lgamma(1 + 1 / a["shape"])
    return a["scale"] ** 2 * (sp.exp(second) - sp.exp(2 * first))


def _student_variance(a: Arguments) -> Formula:
    return sp.Piecewise((a["scale"] ** 2 * a["df"] / (a["df"] - 2), a["df"] > 2), (sp.oo, True))


def _binomial_variance(a: Arguments) -> Formula:
    p = success_probability(a)
    return a.get("trials", sp.Integer(1)) * p * (1 - p)


DENSITIES: dict[str, Density] = {
    "Normal": Density(lambda y, a: _normal(y, a["mean"], a["sd"]), lambda a: a["mean"], lambda a: a["sd"] ** 2),
    "StudentT": Density(_student_t, lambda a: a["mean"], _student_variance),
    "Laplace": Density(
        lambda y, a: -sp.log(2) - sp.log(a["scale"]) - absolute(y - a["mean"]) / a["scale"],
        lambda a: a["mean"],
        lambda a: 2 * a["scale"] ** 2,
    ),
    "Logistic": Density(_logistic, lambda a: a["mean"], lambda a: sp.pi**2 * a["scale"] ** 2 / 3),
    "LogNormal": Density(
        lambda y, a: _normal(sp.log(y), a["mean"], a["sd"]) - sp.log(y),
        lambda a: sp.exp(a["mean"] + a["sd"] ** 2 / 2),
        _log_normal_variance,
    ),
    "Gamma": Density(
        lambda y, a: a["shape"] * sp.log(a["rate"]) - lgamma(a["shape"]) + (a["shape"] - 1) * sp.log(y) - a["rate"] * y,
        lambda a: a["shape"] / a["rate"],
        lambda a: a["shape"] / a["rate"] ** 2,
    ),
    "Exponential": Density(
        lambda y, a: sp.log(a["rate"]) - a["rate"] * y, lambda a: 1 / a["rate"], lambda a: 1 / a["rate"] ** 2
    ),
    "Weibull": Density(_weibull, lambda a: a["scale"] * sp.exp(lgamma(1 + 1 / a["shape"])), _weibull_variance),
    "Beta": Density(
        _beta,
        lambda a: a["a"] / (a["a"] + a["b"]),
        lambda a: a["a"] * a["b"] / ((a["a"] + a["b"]) ** 2 * (a["a"] + a["b"] + 1)),
    ),
    "Poisson": Density(
        lambda y, a: times_log(y, a["mean"]) - a["mean"] - lgamma(y + 1),
        lambda a: a["mean"],
        lambda a: a["mean"],
    ),
    "NegativeBinomial": Density(
        _negative_binomial, lambda a: a["mean"], lambda a: a["mean"] + a["mean"] ** 2 / a["dispersion"]
    ),
    "Binomial": Density(_binomial, lambda a: a["trials"] * success_probability(a), _binomial_variance),
    "Bernoulli": Density(_bernoulli, success_probability, _binomial_variance),
}
"""Every plain distribution of one number. Those of levels and those made of others are in `symbolic.laws`."""
