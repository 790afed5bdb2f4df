"""A law whose arguments have values: its distribution function, draws and moments, components included."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sympy as sp
from scipy.special import expit

from gpdsl.lowering.table import evaluate
from gpdsl.results.outputs import CDF, DISCRETE, QUANTILES, SAMPLERS
from gpdsl.symbolic import laws
from gpdsl.symbolic.laws import Law

Array = np.ndarray

REACH, STEP = 3.4, 0.1
"""Range and spacing of the double-exponential rule: nodes crowd at the ends, where a quantile function may be infinite.
"""


def is_discrete(law: Law) -> bool:
    """Whether its values are whole numbers."""
    return law.name in DISCRETE or (bool(law.components) and all(is_discrete(each) for each in law.components))


def cdf(law: Law, y: Array) -> Array:
    """P(Y <= y), elementwise over the arrays of the arguments."""
    match law.name:
        case "Mixture":
            parts = zip(laws.weights(law), law.components, strict=True)
            return np.asarray(sum(weight * cdf(each, y) for weight, each in parts))
        case "Truncated":
            window = _window(law)
            inside = window.share(np.clip(y, window.lower, window.upper))
            return np.where(y < window.lower, 0.0, np.where(y >= window.upper, 1.0, inside))
        case "Censored":
            window = _window(law)
            inner = law.components[0]
            return np.where(
                y < window.lower, 0.0, np.where(y >= window.upper, 1.0, CDF[inner.name](y, inner.arguments))
            )
    return CDF[law.name](y, law.arguments)


def draw(law: Law, generator: np.random.Generator) -> Array:
    """One value per element of the arguments, which all have the same shape; a vector along one more axis."""
    match law.name:
        case "Mixture":
            drawn = np.stack([draw(each, generator) for each in law.components])
            shares = np.cumsum(np.stack(laws.weights(law)), axis=0)
            chosen = np.sum(generator.random(shares.shape[1:]) * shares[-1] >= shares, axis=0)
            return np.take_along_axis(drawn, np.minimum(chosen, len(drawn) - 1)[None], axis=0)[0]
        case "Truncated":
            window = _window(law)
            share = generator.random(np.shape(law.components[0].leaves()[0]))
            return window.at(share, 1.0 - share)
        case "Censored":
            window = _window(law)
            return np.clip(draw(law.components[0], generator), window.lower, window.upper)
        case "MultivariateNormal":
            return _draw_jointly(law, generator)
    return SAMPLERS[law.name](generator, law.arguments)


def _draw_jointly(law: Law, generator: np.random.Generator) -> Array:
    """A vector [..., p]; a singular covariance is allowed."""
    mean = np.stack(law.arguments["mean"], axis=-1)
    size = mean.shape[-1]
    covariance = np.stack(law.arguments["covariance"], axis=-1).reshape(*mean.shape[:-1], size, size)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    return mean + np.einsum("...ij,...j->...i", root, generator.standard_normal(mean.shape))


def moments(law: Law) -> tuple[Array, Array]:
    """Mean and variance."""
    match law.name:
        case "Mixture":
            parts = [moments(each) for each in law.components]
            shares = laws.weights(law)
            mean = sum(share * m for share, (m, _) in zip(shares, parts, strict=True))
            spread = sum(share * (v + (m - mean) ** 2) for share, (m, v) in zip(shares, parts, strict=True))
            return np.asarray(mean), np.asarray(spread)
        case "Truncated":
            return _inside(_window(law))
        case "Censored":
            return _censored_moments(_window(law))
    symbols = {name: sp.Symbol(name, real=True) for name in law.arguments}
    density = laws.DENSITIES[law.name]
    table = {symbols[name]: value for name, value in law.arguments.items()}
    mean, variance = (np.asarray(evaluate(f(symbols), table.__getitem__)) for f in (density.mean, density.variance))
    return mean, variance


@dataclass(frozen=True, eq=False)
class _Window:
    """A distribution between two bounds: the probabilities `below` and `above` them, and the `width` inside.

    Each place is counted from the nearer tail, so that nothing cancels however far out the window is.
    """

    inner: Law
    lower: Array
    upper: Array
    below: Array
    above: Array
    width: Array

    def share(self, y: Array) -> Array:
        """P(Y <= y) given that Y is inside."""
        table, a = QUANTILES[self.inner.name], self.inner.arguments
        risen = CDF[self.inner.name](y, a) - self.below
        fallen = self.width - (table.above(y, a) - self.above)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.clip(np.where(self.below > 0.5, fallen, risen) / self.width, 0.0, 1.0)

    def at(self, share: Array, rest: Array) -> Array:
        """Where that share of the distribution inside lies below, and `rest` = 1 - share above."""
        table, a = QUANTILES[self.inner.name], self.inner.arguments
        smallest = np.finfo(float).tiny
        left = np.clip(self.below + share * self.width, smallest, 0.75)
        right = np.clip(self.above + rest * self.width, smallest, 0.75)
        place = np.where(left < right, table.ppf(left, a), table.isf(right, a))
        return np.clip(place, self.lower, self.upper)


def _window(law: Law) -> _Window:
    inner = law.components[0]
    table, a = QUANTILES[inner.name], inner.arguments
    lower = np.asarray(law.arguments.get("lower", -np.inf), float)
    upper = np.asarray(law.arguments.get("upper", np.inf), float)
    below, above = CDF[inner.name](lower, a), table.above(upper, a)
    width = np.where(below > 0.5, table.above(lower, a) - above, CDF[inner.name](upper, a) - below)
    return _Window(inner, lower, upper, below, above, width)


def _inside(window: _Window) -> tuple[Array, Array]:
    """E[Y] and Var[Y] inside the window: integrals of its quantile function, by the double-exponential rule."""
    times = np.arange(-REACH, REACH + STEP / 2, STEP)
    share, rest = expit(np.pi * np.sinh(times)), expit(-np.pi * np.sinh(times))
    weight = STEP * np.pi * np.cosh(times) * share * rest
    weight = weight / weight.sum()
    places = [window.at(s, r) for s, r in zip(share, rest, strict=True)]
    mean = np.asarray(sum(w * y for w, y in zip(weight, places, strict=True)))
    return mean, np.asarray(sum(w * (y - mean) ** 2 for w, y in zip(weight, places, strict=True)))


def _censored_moments(window: _Window) -> tuple[Array, Array]:
    """Those of the recorded value: the bounds with the probabilities beyond them, and what lies between."""
    centre, spread = _inside(window)
    below = np.where(np.isfinite(window.lower), window.below, 0.0)
    above = np.where(np.isfinite(window.upper), window.above, 0.0)
    low = np.where(np.isfinite(window.lower), window.lower, 0.0)
    high = np.where(np.isfinite(window.upper), window.upper, 0.0)
    inside = np.maximum(window.width, 0.0)
    mean = below * low + above * high + inside * centre
    within = inside * (spread + (centre - mean) ** 2)
    return mean, below * (low - mean) ** 2 + above * (high - mean) ** 2 + within
