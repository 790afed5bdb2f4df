"""What opaque functions give at the rows of a prediction: a polynomial per row and value, and what it leaves open.

Points x = m + R u are drawn somewhat wider than the posterior, so that its tails lie between them, and count by
importance weights. Values are regressed on Hermite polynomials of u, of the degree that says best what it has not seen.
At other points a function gives what its polynomial says plus what the polynomial left at one of the points evaluated.
Where lines between the points of a function of one number say better what they have not seen, it gives what these say.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import jax
import numpy as np
from jaxtyping import Bool, Float

from gpdsl.inference.opaque.surrogate import ENOUGH
from gpdsl.inference.sampling import least_squares

# Straight lines between the evaluations of a row, where a function of one number bends or jumps.
#
# Lines lie above a convex function everywhere, so that what they miss adds up: of a smooth function a sixth of what the
# lines that leave a point out miss there.

COHERENT = 0.25
"""Of the mean of what lines without a point miss: so much, and not more, is the error of the mean."""


def left_between(u: Float[np.ndarray, "N S"], values: Float[np.ndarray, "N S D"]) -> Float[np.ndarray, "N S D"]:
    """What the line through the two neighbours of every point misses there; at both ends, the nearest value."""
    order = np.argsort(u, axis=1)
    x, y = np.take_along_axis(u, order, axis=1)[:, :, None], np.take_along_axis(values, order[:, :, None], axis=1)
    gap = x[:, 2:] - x[:, :-2]
    share = np.where(gap > 0.0, (x[:, 1:-1] - x[:, :-2]) / np.where(gap > 0.0, gap, 1.0), 0.5)
    inner = y[:, 1:-1] - (1.0 - share) * y[:, :-2] - share * y[:, 2:]
    missed = np.concatenate([y[:, :1] - y[:, 1:2], inner, y[:, -1:] - y[:, -2:-1]], axis=1)
    found = np.empty_like(missed)
    np.put_along_axis(found, order[:, :, None], missed, axis=1)
    return found


def between(
    u: Float[np.ndarray, "N S"], values: Float[np.ndarray, "N S D"], at: Float[np.ndarray, "N M"]
) -> Float[np.ndarray, "N M D"]:
    """Values on the lines at other points, and the outermost values beyond."""
    order = np.argsort(u, axis=1)
    found = np.empty((*at.shape, values.shape[-1]))
    for row, places in enumerate(order):
        for d in range(values.shape[-1]):
            found[row, :, d] = np.interp(at[row], u[row, places], values[row, places, d])
    return found


ROWS_AT_ONCE = 256
"""Rows whose regressions are held in memory together."""

IN_CACHE = 1 << 14
"""Points whose polynomials are evaluated together."""

MOST_DEGREE, MOST_FEATURES = 12, 64
"""Of a polynomial above the quadratic."""

WIDER, FURTHEST, FAR = 2.5, 2.6, 2.1
"""By how much the variance of points is larger, over all directions; standard normals behind them go no further.

So far out two points lie on the axis of one latent, 4.9 of its standard deviations, so that what bends in a tail is
seen in every row; and so far (`FAR`) on each axis of several, where further would ask for half as many points again.
"""

LEFT_OPEN, UNSURE = 0.05, 0.01
"""Of a value's standard deviation: what a polynomial may leave open, and the standard error that this may come to."""

NOISE = 0.5
"""The same for lines between the most points of a row: where they leave more, neighbours have little in common."""

ROUNDING = 1e-6
"""Of a value's size: differences that are the function's own inaccuracy."""

Values = Mapping[str, Float[np.ndarray, "N S D"]]


def stretch(width: int) -> float:
    """How much wider than the posterior points are drawn: their weights are worth about as many for any width."""
    return float(np.sqrt(1.0 + WIDER / width)) if width else 1.0


def ends_of(width: int) -> Float[np.ndarray, "2"]:
    """Standard normals behind the points at both ends of an axis."""
    return np.asarray([-1.0, 1.0]) * (FURTHEST if width == 1 else FAR)


def importance(u: Float[np.ndarray, "N S J"]) -> Float[np.ndarray, "N S"]:
    """Weights, adding up to 1, of points drawn so much wider."""
    wider = stretch(u.shape[-1])
    log = -0.5 * np.sum(u**2, axis=-1) * (1.0 - wider**-2)
    weights = np.exp(log - log.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@lru_cache
def exponents(width: int, degree: int) -> np.ndarray:
    """Powers [F, J] of all monomials up to a degree, lower degrees first."""
    found = [
        np.bincount(np.asarray(chosen, int), minlength=width)
        for total in range(degree + 1)
        for chosen in itertools.combinations_with_replacement(range(width), total)
    ]
    return np.asarray(found, int).reshape(len(found), width)


def features(u: Float[np.ndarray, "N S J"], degree: int) -> Float[np.ndarray, "N S F"]:
    """Orthonormal polynomials of normals as wide as the points are drawn."""
    scaled, powers = np.moveaxis(u, -1, 0) / stretch(u.shape[-1]), exponents(u.shape[-1], degree)
    table = [np.ones_like(scaled), scaled]
    for n in range(1, degree):  # He_{n+1} = u He_n - n He_{n-1}, over sqrt(n!)
        table.append((scaled * table[n] - np.sqrt(n) * table[n - 1]) / np.sqrt(n + 1.0))
    found = np.ones((len(powers), *u.shape[:2]))
    for monomial, its_powers in zip(found, powers, strict=True):
        for place in np.flatnonzero(its_powers):
            monomial *= table[its_powers[place]][place]
    return np.moveaxis(found, 0, -1)


def degrees(width: int, points: int) -> list[int]:
    """Degrees that so many points carry."""
    found = [0]
    for degree in range(1, MOST_DEGREE + 1 if width else 1):
        count = len(exponents(width, degree)) if degree < 3 or width < 9 else MOST_FEATURES + 1
        if ENOUGH * count > points or (degree > 2 and count > MOST_FEATURES):
            break
        found.append(degree)
    return found


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Polynomials:
    """Of every value in N rows: coefficients, the range that a value may take, residuals without the point itself.

    `settled` says of which rows so little is left open that more points are not needed, `lines` in which rows lines
    between the `points` answer instead.
    """

    degree: int = field(metadata={"static": True})
    points: Float[np.ndarray, "N S J"]
    values: Values
    lines: Bool[np.ndarray, "N"]
    coefficients: Values
    lowest: Mapping[str, Float[np.ndarray, "N D"]]
    highest: Mapping[str, Float[np.ndarray, "N D"]]
    residuals: Values
    weights: Float[np.ndarray, "N S"]
    settled: Float[np.ndarray, "N"]

    def part(self, index: np.ndarray) -> Polynomials:
        """Of some of the rows."""
        return jax.tree.map(lambda values: values[index], self)

    def __call__(self, u: Float[np.ndarray, "N M J"], seed: int) -> dict[str, np.ndarray]:
        """Values [N, M, D] at other points: a polynomial and one of its residuals, each as often as it weighs."""
        left = systematic(self.weights, u.shape[1], np.random.default_rng(seed))
        found = {key: np.take_along_axis(each, left[:, :, None], axis=1) for key, each in self.residuals.items()}
        for rows in _blocks(len(u), max(IN_CACHE // max(u.shape[1], 1), 1)):
            basis = features(u[rows], self.degree)
            for key, coefficients in self.coefficients.items():
                found[key][rows] += basis @ coefficients[rows]
        for key, values in found.items():
            np.clip(values, self.lowest[key][:, None], self.highest[key][:, None], out=values)
            if (at := self.lines).any():
                values[at] = between(self.points[at, :, 0], self.values[key][at], u[at, :, 0])
        return found


def by_lines(found: Polynomials) -> Bool[np.ndarray, "N"]:
    """Of which rows lines between many points say more than as many samples: not where a function is like noise."""
    spread = {key: _spread(found.weights, value) for key, value in found.values.items()}
    left = [_mean(found.weights, found.residuals[k] ** 2) <= (NOISE * spread[k]) ** 2 for k in spread]
    return found.lines & np.all(np.concatenate(left, axis=-1), axis=-1)


def systematic(weights: Float[np.ndarray, "N S"], count: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers [N, count] of points, in random order, each within one of as many times as its weight asks for."""
    steps = (np.arange(count) + rng.random((len(weights), 1))) / count
    reached = np.cumsum(weights, axis=1)
    reached[:, -1] = 1.0
    chosen = [np.searchsorted(row, at, side="right") for row, at in zip(reached, steps, strict=True)]
    return rng.permuted(np.minimum(np.asarray(chosen, int).reshape(len(weights), count), weights.shape[1] - 1), axis=1)


def regress(u: Float[np.ndarray, "N S J"], values: Values) -> Polynomials:
    """The polynomials of all rows; lower degrees have zeros for what they leave out."""
    found = [_regressed(u[part], {k: v[part] for k, v in values.items()}) for part in _blocks(len(u), ROWS_AT_ONCE)]
    return jax.tree.map(lambda *parts: np.concatenate(parts), *found)


def _blocks(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, max(count, 1), size))


def _regressed(u: Float[np.ndarray, "N S J"], values: Values) -> Polynomials:
    weights, tried = importance(u), degrees(u.shape[-1], u.shape[1])
    spread = {key: _spread(weights, value) for key, value in values.items()}
    most, best = features(u, tried[-1]), np.full(len(u), np.inf)
    targets = {key: value[:, :, None] for key, value in values.items()}
    coefficients = {k: np.zeros((len(u), most.shape[-1], v.shape[-1])) for k, v in values.items()}
    residuals = {key: np.zeros_like(value) for key, value in values.items()}
    for degree in tried:
        size = len(exponents(u.shape[-1], degree))
        found, said = least_squares(most[:, :, None, :size], weights * weights.shape[1], targets)
        seen = bool(u.shape[-1])  # where nothing uncertain is read, one point says all
        left = {key: seen * (values[key] - said[key][:, :, 0]) for key in values}
        score = _score(weights, left, spread)
        better = score < best
        best = np.where(better, score, best)
        for key in values:
            residuals[key][better] = left[key][better]
            coefficients[key][better] = 0.0
            coefficients[key][better, :size] = found[key][better]
    lowest, highest = {k: _range(v)[0] for k, v in values.items()}, {k: _range(v)[1] for k, v in values.items()}
    settled = np.all([_settled(weights, values[k], residuals[k], spread[k]) for k in values], axis=0)
    lines = np.zeros(len(u), bool)
    if u.shape[-1] == 1:
        left = {key: left_between(u[:, :, 0], value) for key, value in values.items()}
        lines = ~settled & (_score(weights, left, spread) < best)
        for key in values:
            residuals[key][lines] = left[key][lines]
        exact = np.all([_settled(weights, values[k], left[k], spread[k], lines=True) for k in values], axis=0)
        settled = np.where(lines, exact, settled)
    return Polynomials(tried[-1], u, values, lines, coefficients, lowest, highest, residuals, weights, settled)


def _score(weights: Float[np.ndarray, "N S"], left: Values, spread: Values) -> Float[np.ndarray, "N"]:
    """What is left open of all values, in units of their variances."""
    return sum(np.sum(_mean(weights, left[k] ** 2) / np.maximum(spread[k] ** 2, 1e-300), -1) for k in left)


def _mean(weights: Float[np.ndarray, "N S"], values: Float[np.ndarray, "N S D"]) -> Float[np.ndarray, "N D"]:
    return np.einsum("ns,nsd->nd", weights, values)


def _spread(weights: Float[np.ndarray, "N S"], values: Float[np.ndarray, "N S D"]) -> Float[np.ndarray, "N D"]:
    return np.sqrt(_mean(weights, (values - _mean(weights, values)[:, None]) ** 2))


def _settled(
    weights: np.ndarray, values: np.ndarray, left: np.ndarray, spread: np.ndarray, lines: bool = False
) -> np.ndarray:
    """Whether little is left open: by polynomials of the values, by lines of the mean alone."""
    root, alone = np.sqrt(_mean(weights, left**2)), np.sqrt(np.sum(weights**2, axis=1))[:, None]
    root = np.maximum(root, np.sqrt(_mean(in_the_tails(weights), left**2)))
    slack = ROUNDING * np.max(np.abs(values), axis=1)
    if lines:
        return np.all(
            np.maximum(root * alone, COHERENT * np.abs(_mean(weights, left))) <= UNSURE * spread + slack, axis=-1
        )
    return np.all((root <= LEFT_OPEN * spread + slack) & (root * alone <= UNSURE * spread + slack), axis=-1)


def in_the_tails(weights: Float[np.ndarray, "N S"]) -> Float[np.ndarray, "N S"]:
    """Weights for what matters in the tails, of which few points say anything."""
    return np.sqrt(weights) / np.sum(np.sqrt(weights), axis=1, keepdims=True)


def _range(values: Float[np.ndarray, "N S D"]) -> tuple[np.ndarray, np.ndarray]:
    """The least and greatest that a value may be elsewhere; of a rate or a probability it stays one."""
    least, most = values.min(axis=1), values.max(axis=1)
    beyond = 0.5 * (most - least)
    lowest, highest = least - beyond, most + beyond
    lowest = np.where(least >= 0.0, np.maximum(lowest, 0.1 * least), lowest)
    highest = np.where(most <= 0.0, np.minimum(highest, 0.1 * most), highest)
    chance = (least >= 0.0) & (most <= 1.0)
    return lowest, np.where(chance, np.minimum(highest, 1.0 - 0.1 * (1.0 - most)), highest)
