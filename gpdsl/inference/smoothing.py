"""Importance weights whose largest are replaced by quantiles of a generalised Pareto distribution fitted to them.

Vehtari, Simpson, Gelman, Yao and Gabry (2024), "Pareto smoothed importance sampling"; the fit is that of Zhang and
Stephens (2009), with the paper's weak prior on the shape.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

FEW = 25
"""Weights below which no tail can be fitted: they stay as they are."""


def smoothed(log_ratios: Float[np.ndarray, " draws"]) -> tuple[Float[np.ndarray, " draws"], float]:
    """Log weights that add up to 1, and Pareto's k: NaN of few weights; above 0.7 averages are not to be trusted."""
    found = np.asarray(log_ratios, float)
    found = np.where(np.isfinite(found), found, -np.inf) - np.max(found)
    count = len(found)
    tail = int(np.ceil(min(0.2 * count, 3 * np.sqrt(count))))
    shape = float("nan")
    if count >= FEW and tail >= 5:
        order = np.argsort(found)
        largest, threshold = order[-tail:], found[order[-tail - 1]]
        excess = np.exp(found[largest]) - np.exp(threshold)
        if np.isfinite(threshold) and excess[0] < excess[-1]:
            shape, scale = generalised_pareto(np.maximum(excess, np.finfo(float).tiny))
            places = (np.arange(tail) + 0.5) / tail
            quantiles = scale * (np.expm1(-shape * np.log1p(-places)) / shape if shape else -np.log1p(-places))
            found[largest] = np.minimum(np.log(np.exp(threshold) + quantiles), 0.0)
    return found - np.logaddexp.reduce(found), shape


def generalised_pareto(excess: Float[np.ndarray, " tail"]) -> tuple[float, float]:
    """Shape and scale of excesses in increasing order."""
    count = len(excess)
    candidates = 30 + int(np.sqrt(count))
    quarter = excess[int(count / 4 + 0.5) - 1]
    b = 1 / excess[-1] + (1 - np.sqrt(candidates / (np.arange(candidates) + 0.5))) / (3 * quarter)
    shapes = np.mean(np.log1p(-b[:, None] * excess), axis=1)
    likelihood = count * (np.log(-b / shapes) - shapes - 1)
    weights = np.exp(likelihood - np.logaddexp.reduce(likelihood))
    best = weights @ b
    shape = float(np.mean(np.log1p(-best * excess)))
    scale = -shape / best
    return float((count * shape + 10 * 0.5) / (count + 10)), float(scale)
