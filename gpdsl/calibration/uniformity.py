"""Whether numbers between 0 and 1 are uniform: their distribution function against simultaneous bands.

Säilynoja, Bürkner and Vehtari (2022), with the distribution of their statistic by simulation.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import binom

SIMULATED = 4000
MOST_PLACES = 200
"""Places at which distribution functions are compared, where the numbers are more."""


def uniform_p(shares: Float[np.ndarray, " runs"]) -> float:
    """The probability that uniform numbers would look so uneven, or more; NaN without any."""
    if not len(shares):
        return float("nan")
    counts = _counts(shares[None])
    return float((1 + np.sum(_null(len(shares)) <= _statistic(counts, len(shares))[0])) / (SIMULATED + 1))


def combined_p(several: Float[np.ndarray, " tests"]) -> float:
    """One probability for tests that may depend on one another, by sums of Cauchy variates: Liu and Xie (2020)."""
    known = np.clip(several[~np.isnan(several)], 0.0, 1.0 - 0.5 / SIMULATED)
    if not len(known):
        return float("nan")
    return float(0.5 - np.arctan(np.mean(np.tan((0.5 - known) * np.pi))) / np.pi)


def band(count: int, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places, and between what the distribution function of so many uniform numbers stays everywhere."""
    at, tail = _places(count), 0.5 * np.quantile(_null(count), 1.0 - level)
    return at, binom.ppf(tail, count, at) / count, binom.ppf(1.0 - tail, count, at) / count


def _places(count: int) -> Float[np.ndarray, " places"]:
    steps = max(min(count, MOST_PLACES), 2)
    return np.arange(1, steps) / steps


def _counts(shares: Float[np.ndarray, "sets runs"]) -> Int[np.ndarray, "sets places"]:
    """How many lie at or below each place."""
    steps = len(_places(shares.shape[1])) + 1
    cells = np.clip(np.ceil(shares * steps).astype(int) - 1, 0, steps - 1)
    found = np.zeros((len(shares), steps), int)
    np.add.at(found, (np.arange(len(shares))[:, None], cells), 1)
    return np.cumsum(found, axis=1)[:, :-1]


def _statistic(counts: Int[np.ndarray, "sets places"], count: int) -> Float[np.ndarray, " sets"]:
    """Twice the smallest tail of a binomial distribution over all places: their eq. 9."""
    at = _places(count)[:, None]
    below = binom.cdf(np.arange(count + 1), count, at)
    above = binom.sf(np.arange(count + 1) - 1, count, at)
    tails = np.minimum(below, above)
    return 2.0 * np.min(tails[np.arange(len(at)), counts], axis=1)


@lru_cache(maxsize=32)
def _null(count: int) -> Float[np.ndarray, " simulated"]:
    """The statistic of uniform numbers."""
    return _statistic(_counts(np.random.default_rng(0).uniform(size=(SIMULATED, count))), count)
