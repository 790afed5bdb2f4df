"""Quantiles of mixtures: exact inversion of a distribution function that is a weighted sum."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array

BISECTIONS = 80


def invert(
    cdf: Callable[[Array], Array], probability: float, low: Array, high: Array, *, discrete: bool = False
) -> np.ndarray:
    """Smallest y with cdf(y) >= probability, elementwise, by bisection from a bracket that is widened as needed."""
    low, high = jnp.asarray(low), jnp.asarray(high)
    for _ in range(60):
        short = cdf(high) < probability
        long = cdf(low) > probability
        if not (bool(jnp.any(short)) or bool(jnp.any(long))):
            break
        width = high - low
        high, low = jnp.where(short, high + width, high), jnp.where(long, low - width, low)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        below = cdf(middle) < probability
        low, high = jnp.where(below, middle, low), jnp.where(below, high, middle)
    return np.asarray(jnp.ceil(high - 1e-6) if discrete else high)


def mixture_of_normals(mean: Array, variance: Array, weights: np.ndarray, probability: float) -> np.ndarray:
    """Quantile of sum_k w_k N(mean_k, variance_k); `mean` and `variance` are [K, ...]."""
    sd = jnp.sqrt(variance)
    ends = mean + sd * ndtri(probability)
    if len(weights) == 1:
        return np.asarray(ends[0])
    pi = jnp.asarray(weights).reshape(-1, *(1,) * (mean.ndim - 1))
    low, high = jnp.min(ends, axis=0), jnp.max(ends, axis=0)
    cdf = lambda y: jnp.sum(pi * ndtr((y - mean) / jnp.maximum(sd, 1e-300)), axis=0)  # noqa: E731
    return invert(cdf, probability, low - 1e-9, high + 1e-9)


def weighted_quantile(values: np.ndarray, weights: np.ndarray, probability: float) -> np.ndarray:
    """Quantile along the first axis of weighted samples."""
    order = np.argsort(values, axis=0)
    ranked = np.take_along_axis(values, order, axis=0)
    spread = np.broadcast_to(weights.reshape(-1, *(1,) * (values.ndim - 1)), values.shape)
    cumulative = np.cumsum(np.take_along_axis(spread, order, axis=0), axis=0)
    index = np.argmax(cumulative >= probability - 1e-12, axis=0)
    return np.take_along_axis(ranked, index[None], axis=0)[0]
