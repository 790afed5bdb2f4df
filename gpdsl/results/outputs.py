"""Tables of conditional distribution functions and samplers of outputs, given the values of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import betainc, expit, gammainc, gammaincc, ndtr

Array = np.ndarray
Arguments = Mapping[str, np.ndarray]

DISCRETE = {"Poisson", "NegativeBinomial", "Binomial", "Bernoulli"}


def success(a: Arguments) -> Array:
    """Probability of success under whichever of `logit`, `probit`, `p` was given."""
    if "logit" in a:
        return expit(a["logit"])
    return ndtr(a["probit"]) if "probit" in a else a["p"]


def _student(y: Array, a: Arguments) -> Array:
    z = (y - a["mean"]) / a["scale"]
    tail = 0.5 * betainc(a["df"] / 2.0, 0.5, a["df"] / (a["df"] + z**2))
    return np.where(z > 0, 1.0 - tail, tail)


def _laplace(y: Array, a: Arguments) -> Array:
    z = (y - a["mean"]) / a["scale"]
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
    "StudentT": _student,
    "Laplace": _laplace,
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


def draw_categorical(generator: np.random.Generator, logits: np.ndarray) -> np.ndarray:
    """Class numbers (from 0) drawn with softmax probabilities over the last axis (Gumbel trick)."""
    return np.argmax(logits + generator.gumbel(size=logits.shape), axis=-1).astype(float)
