"""Means of logistic functions of what is linear in the latents: quadrature on the host, without a program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import sympy as sp
from jaxtyping import Float
from scipy.special import expit

from gpdsl.results.integrals import Quantity, polynomial_mean
from gpdsl.results.series import series_of
from gpdsl.symbolic.expectations import is_linear
from gpdsl.symbolic.functions import sigmoid, softplus

REACH, NUMBERS = 8.5, 1 << 21
"""Standard deviations that a trapezoidal rule goes out, and at how many places the function is asked for: more are left
to a program."""

DIGITS, HIGHEST = 37.0, 8.6
"""The rule's error is exp(-37), by a path so many standard deviations above the real line at most."""

CENTRE = sp.Symbol("centre of a logit", real=True)


def mean_on_host(quantity: Quantity) -> Float[np.ndarray, "K rows *keys"] | None:
    """The mean under each component, where nothing is compiled for it; None for anything else."""
    logit = _logit_of(quantity.expression)
    if logit is None:
        return polynomial_mean(quantity)
    moments = _normal_moments(replace(quantity, expression=logit))
    mean = None if moments is None else logistic_normal(*moments)
    return None if mean is None else np.asarray(mean, np.asarray(quantity.beliefs.marginals.mean).dtype)


def _logit_of(expression: sp.Expr) -> sp.Expr | None:
    """The argument of a logistic function, which exp(-softplus(x)) is one of -x."""
    if isinstance(expression, sigmoid):
        return expression.args[0]
    inner = -expression.args[0] if isinstance(expression, sp.exp) else None
    return -inner.args[0] if isinstance(inner, softplus) else None


def _normal_moments(quantity: Quantity) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean and variance under each component of what is linear in the latents."""
    expression, given = quantity.expression, quantity.given
    if not is_linear(expression, quantity.latents):
        return None
    series = None if given else series_of(quantity.beliefs, expression, quantity.keys)
    if series is not None:
        return series.mean()[0], series.variance()[0]
    mean = polynomial_mean(quantity)
    if mean is None:
        return None
    square = replace(quantity, expression=(expression - CENTRE) ** 2, given={**given, CENTRE: mean})
    variance = polynomial_mean(square)
    return None if variance is None else (mean, variance)


def logistic_normal(mean: np.ndarray, variance: np.ndarray) -> np.ndarray | None:
    """E[1 / (1 + exp(-f))] of f ~ N(mean, variance), with all digits where it is small; None where that is much work.

    By the trapezoidal rule in z = (f - mean) / sd, which goes further out above, where exp(f) has its mean from. Along
    a path d above the real line, below the pole at pi / sd, the error is exp(d^2 / 2 - 2 pi d / step).
    """
    mean, sd = np.asarray(mean, float), np.sqrt(np.maximum(np.asarray(variance, float), 0.0))
    widest = float(np.max(sd, initial=1e-3))
    above = min(np.pi / widest, HIGHEST)
    step, reach = 2.0 * np.pi * above / (DIGITS + 0.5 * above**2), 2.0 * REACH + widest
    if not np.isfinite(reach) or mean.size * reach / step > NUMBERS:
        return None
    z = np.arange(-REACH, REACH + widest + step, step)
    weights = step / np.sqrt(2.0 * np.pi) * np.exp(-0.5 * z**2)
    found: np.ndarray = expit(mean[..., None] + sd[..., None] * z) @ weights
    return found
