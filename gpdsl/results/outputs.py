"""Plain distributions by value: distribution functions, quantile functions and samplers, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import (
    betainc,
    expit,
    gammainc,
    gammaincc,
    ndtr,
    stdtr,
)

Array = np.ndarray
Arguments = Mapping[str, np.ndarray]

DISCRETE = {"Poisson", "NegativeBinomial", "Binomial", "Bernoulli"}


def success(a: Arguments) -> Array:
    """Probability of success under whichever of `logit`, `probit`, `p` was given."""
    if "logit" in a:
        return expit(a["logit"])
    return ndtr(a["probit"]) if "probit" in a else a["p"]


def _standard(y: Array, a: Arguments) -> Array:
    return (y - a["mean"]) / a["scale"]


def _laplace(z: Array) -> Array:
    return np.where(z < 0, 0.5 * np.exp(np.minimum(z, 0.0)), 1.0 - 0.5 * np.exp(-np.maximum(z, 0.0)))


def _binomial(y: Array, a: Arguments) -> Array:
    n, k = a["trials"], np.floor(y)
    inside = betainc(np.maximum(n - k, 1e-9), k + 1.0, 1.0 - success(a))
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, inside))


def _negative_binomial(y: Array, a: Arguments) -> Array:
    p = a["dispersion"] / (a["dispersion"] + a["mean"])
    return np.where(y < 0, 0.0, betainc(a["dispersion"], np.floor(np.maximum(y, 0.0)) + 1.0, p))


CDF: dict[str, Callable[[Array, Arguments], Array]] = {
    "Normal": lambda y, a: ndtr((y - a["mean"]) / a["sd"]),
    "StudentT": lambda y, a: stdtr(a["df"], _standard(y, a)),
    "Laplace": lambda y, a: _laplace(_standard(y, a)),
    "Logistic": lambda y, a: expit(_standard(y, a)),
    "LogNormal": lambda y, a: ndtr((np.log(np.maximum(y, 1e-300)) - a["mean"]) / a["sd"]),
    "Gamma": lambda y, a: gammainc(a["shape"], a["rate"] * np.maximum(y, 0.0)),
    "Exponential": lambda y, a: -np.expm1(-a["rate"] * np.maximum(y, 0.0)),
    "Weibull": lambda y, a: -np.expm1(-((np.maximum(y, 0.0) / a["scale"]) ** a["shape"])),
    "Beta": lambda y, a: betainc(a["a"], a["b"], np.clip(y, 0.0, 1.0)),
    "Poisson": lambda y, a: np.where(y < 0, 0.0, gammaincc(np.floor(np.maximum(y, 0.0)) + 1.0, a["mean"])),
    "NegativeBinomial": _negative_binomial,
    "Binomial": _binomial,
    "Bernoulli": lambda y, a: np.where(y < 0, 0.0, np.where(y < 1, 1.0 - success(a), 1.0)),
}

Draw = Callable[[np.random.Generator, Arguments], np.ndarray]


def _success(a: Arguments) -> np.ndarray:
    return np.clip(success(a), 0.0, 1.0)


SAMPLERS: dict[str, Draw] = {
    "Normal": lambda g, a: g.normal(a["mean"], a["sd"]),
    "StudentT": lambda g, a: a["mean"] + a["scale"] * g.standard_t(a["df"]),
    "Laplace": lambda g, a: g.laplace(a["mean"], a["scale"]),
    "Logistic": lambda g, a: g.logistic(a["mean"], a["scale"]),
    "LogNormal": lambda g, a: g.lognormal(a["mean"], a["sd"]),
    "Gamma": lambda g, a: g.gamma(a["shape"], 1.0 / a["rate"]),
    "Exponential": lambda g, a: g.exponential(1.0 / a["rate"]),
    "Weibull": lambda g, a: a["scale"] * g.weibull(a["shape"]),
    "Beta": lambda g, a: g.beta(a["a"], a["b"]),
    "Poisson": lambda g, a: g.poisson(a["mean"]).astype(float),
    "NegativeBinomial": lambda g, a: g.poisson(g.gamma(a["dispersion"], a["mean"] / a["dispersion"])).astype(float),
    "Binomial": lambda g, a: g.binomial(a["trials"].astype(int), _success(a)).astype(float),
    "Bernoulli": lambda g, a: g.binomial(1, _success(a)).astype(float),
}
"""Draws of one value per element of the (already broadcast) arguments."""


def draw_categorical(generator: np.random.Generator, log_chances: np.ndarray) -> np.ndarray:
    """Level numbers (from 0) drawn with probabilities proportional to exp(log_chances) along the last axis (Gumbel)."""
    return np.argmax(log_chances + generator.gumbel(size=log_chances.shape), axis=-1).astype(float)
