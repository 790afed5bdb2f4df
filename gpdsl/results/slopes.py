"""Quantiles of averages of many smooth laws: steps from the distribution function and its first three derivatives.

What takes the time is the distribution function at every node; the derivatives cost a fraction of it, and with them a
step leaves the fourth power of the error it began with. Nodes far apart beside the width of their laws make steps that
do not settle: those places are left to a search that needs no slopes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, gammaln, ndtr, ndtri, stdtr

from gpdsl.results import conditional
from gpdsl.symbolic.laws import Law

Array = np.ndarray
Curve = tuple[Array, Array, Array, Array]
"""A distribution function, its density, and two derivatives of that; [nodes, n], or [n] of an average."""

THIN, MANY = 16, 256
"""Of how many nodes one is looked at first, where there are so many."""

BINS = 8
"""Places of a grid in one width of the laws: with weights for cubics, the average differs by about 1e-6."""

NEAR = 1e-4
"""Share of a probability that may be lacking where the slopes are those of an average that differs by so little."""

WORTH = 4
"""Of so many nodes one place of a grid at most."""

AT_ONCE = 1 << 15
"""Numbers that stay near the processor."""

STEPS, FAR = 12, 2.0
"""From one place to the next, and how far one may lead, in standard deviations."""

SETTLED, NOTHING = 1e-3, 1e-15
"""Change of slope within a step, in shares, after which the next would change nothing; and rounding of an average."""

SEEN = 1e-2
"""Of the narrowest law's width: a longer step may lead across a law that its slopes do not see."""


def _normal(y: Array, a: Mapping[str, Array]) -> Curve:
    rate = 1.0 / a["sd"]
    z = (y - a["mean"]) * rate
    density = z * z
    density *= -0.5
    np.exp(density, out=density)
    density *= rate / np.sqrt(2 * np.pi)
    slope = density * z
    bend = slope * z
    bend -= density
    bend *= rate**2
    slope *= -rate
    return ndtr(z, out=z), density, slope, bend


def _student_t(y: Array, a: Mapping[str, Array]) -> Curve:
    df, rate = a["df"], 1.0 / a["scale"]
    z = (y - a["mean"]) * rate
    scaled = df + z * z
    height = np.exp(gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df)) / np.sqrt(np.pi * df) * rate
    density = height * np.exp(-0.5 * (df + 1.0) * np.log(scaled / df))
    fall = -(df + 1.0) * rate * z / scaled
    bend = density * (fall**2 - (df + 1.0) * rate**2 * (2.0 * df - scaled) / scaled**2)
    return stdtr(df, z), density, density * fall, bend


def _logistic(y: Array, a: Mapping[str, Array]) -> Curve:
    rate = 1.0 / a["scale"]
    share = expit((y - a["mean"]) * rate)
    density = share * (1.0 - share) * rate
    bend = density * (1.0 - 6.0 * share + 6.0 * share**2) * rate**2
    return share, density, density * (1.0 - 2.0 * share) * rate, bend


SMOOTH: Mapping[str, Callable[[Array, Mapping[str, Array]], Curve]] = {
    "Normal": _normal,
    "StudentT": _student_t,
    "Logistic": _logistic,
}
"""Laws with a density on the whole line that has derivatives everywhere."""


@dataclass(frozen=True, eq=False)
class Smooth:
    """Laws of a name in `SMOOTH`, their arguments [n or 1, nodes or 1], and the weights of their average."""

    name: str
    arguments: Mapping[str, Array]
    weights: Float[Array, " nodes"] | Float[Array, "n nodes"]
    count: int

    @classmethod
    def of(cls, law: Law, weights: Array, shape: tuple[int, ...]) -> Smooth | None:
        """Of a law whose arguments are [*weights, *shape]; None where there is no such law."""
        if law.name not in SMOOTH:
            return None
        arguments = {name: _flat(np.asarray(leaf), weights.shape, shape) for name, leaf in law.arguments.items()}
        return cls(law.name, arguments, weights.reshape(-1), int(np.prod(shape)))

    @property
    def _scale(self) -> Float[Array, "n nodes"]:
        return self.arguments["sd" if self.name == "Normal" else "scale"]

    @cached_property
    def thinned(self) -> Smooth | None:
        """The average over fewer nodes, where there are many: the same but for little if they are as wide, or rough."""
        if self.weights.size < MANY:
            return None
        if all(leaf.shape[1] == 1 for name, leaf in self.arguments.items() if name != "mean"):
            bins = np.ptp(self.arguments["mean"], axis=1) / (self._scale[:, 0] / BINS)
            if np.all(bins < self.weights.size / WORTH):
                return self._binned(int(np.max(bins)) + 4)
        weights = self.weights[::THIN] / self.weights[::THIN].sum()
        arguments = {name: leaf if leaf.shape[1] == 1 else leaf[:, ::THIN] for name, leaf in self.arguments.items()}
        return Smooth(self.name, arguments, weights, self.count)

    def _binned(self, bins: int) -> Smooth:
        """The weight of each node is shared among four places of a grid around it, as a cubic through them reads it."""
        mean = self.arguments["mean"]
        low, step = mean.min(axis=1, keepdims=True), np.ptp(mean, axis=1, keepdims=True) / (bins - 3)
        at = (mean - low) / np.where(step > 0, step, 1.0)
        first = np.minimum(at.astype(int), bins - 4)
        u = at - first
        before, behind = (1 - u) * (2 - u) * self.weights, (1 + u) * u * self.weights
        shares = (before * u / -6, before * (1 + u) / 2, behind * (2 - u) / 2, behind * (1 - u) / -6)
        place = (first + bins * np.arange(len(mean))[:, None]).ravel()
        weights = sum(np.bincount(place + k, share.ravel(), len(mean) * bins) for k, share in enumerate(shares))
        grid = low + step * (np.arange(bins) - 1)
        return Smooth(self.name, {**self.arguments, "mean": grid}, np.reshape(weights, grid.shape), self.count)

    def part(self, some: slice | Array) -> Smooth:
        """Of some of the places, whose numbers then lie together."""
        arguments = {
            name: np.ascontiguousarray(leaf if leaf.shape[0] == 1 else leaf[some], float)
            for name, leaf in self.arguments.items()
        }
        weights = self.weights if self.weights.ndim == 1 else self.weights[some]
        return Smooth(self.name, arguments, weights, len(np.arange(self.count)[some]))

    def at(self, y: Float[Array, " n"]) -> Curve:
        """The average, and its derivatives."""
        first, *rest = (self._averaged(each) for each in SMOOTH[self.name](y[:, None], self.arguments))
        return first, rest[0], rest[1], rest[2]

    def cdf(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """The average alone."""
        with np.errstate(all="ignore"):  # where a law has no width
            return self._averaged(conditional.cdf(Law(self.name, self.arguments), np.asarray(y)[:, None]))

    def _averaged(self, values: Float[Array, "n nodes"]) -> Float[Array, " n"]:
        whole = np.broadcast_to(values, (len(values), self.weights.shape[-1]))
        return np.einsum("pn,n->p" if self.weights.ndim == 1 else "pn,pn->p", whole, self.weights)

    def quantile(
        self, probability: float, centre: Float[Array, " n"], spread: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
        """Where it reaches a probability, and whether that was found, from about where and how wide it is."""
        if len(self.weights) == 1 and self.name == "Normal":
            mean, sd = (np.broadcast_to(self.arguments[name], (self.count, 1))[:, 0] for name in ("mean", "sd"))
            return mean + sd * ndtri(probability), np.ones(self.count, bool)
        start = centre + ndtri(probability) * spread
        found = [part._from_few(probability, start[rows], spread[rows]) for rows, part in self._parts]
        place, settled = (np.concatenate(each) for each in zip(*found, strict=True))
        return place, settled

    @cached_property
    def _narrowest(self) -> Float[Array, " n"]:
        """The width of the narrowest law, or [1] where that is the same everywhere."""
        return self._scale.min(axis=1)  # type: ignore[no-any-return]

    @cached_property
    def _parts(self) -> list[tuple[slice, Smooth]]:
        """Some places after the other, which all quantiles go through."""
        size = max(1, AT_ONCE // self.weights.shape[-1])
        places = [slice(first, first + size) for first in range(0, self.count, size)]
        return [(each, self.part(each)) for each in places]

    def _from_few(self, probability: float, place: Array, spread: Array) -> tuple[Array, Array]:
        """`_stepped` from where fewer nodes reach the probability, but where their slopes are enough for one step."""
        if self.thinned is None:
            return self._stepped(probability, place, spread)
        found, near = self.thinned._stepped(probability, place, spread)
        place = np.where(near, found, place)
        with np.errstate(all="ignore"):
            lacking = self.cdf(place) - probability
            step, _ = _step(lacking, *self.thinned.at(place)[1:])
        near &= (np.abs(lacking) < NEAR * min(probability, 1.0 - probability)) & (self.thinned.weights.ndim == 2)
        place = np.where(near, place + step, place)
        if near.all():
            return place, near
        left = np.flatnonzero(~near)
        place[left], near[left] = self.part(left)._stepped(probability, place[left], spread[left])
        return place, near

    def _stepped(self, probability: float, place: Array, spread: Array) -> tuple[Array, Array]:
        """`quantile` of few places, of which those that are found are left alone."""
        place, left, some = place.copy(), np.arange(self.count), self
        low, high = np.full(place.shape, -np.inf), np.full(place.shape, np.inf)
        with np.errstate(all="ignore"):
            for _ in range(STEPS):
                here, wide = place[left], FAR * spread[left]
                reached, density, slope, bend = some.at(here)
                lacking = reached - probability
                low, high = np.where(lacking < 0, here, low), np.where(lacking > 0, here, high)
                step, settles = _step(lacking, density, slope, bend)
                settles &= np.abs(lacking) < SETTLED * min(probability, 1.0 - probability)
                settles &= np.abs(step) < SEEN * some._narrowest
                settles |= np.abs(lacking) <= NOTHING * probability
                after = here + np.clip(np.where(np.isfinite(step), step, 0.0), -wide, wide)
                outside = ~settles & ((after <= low) | (after >= high)) & np.isfinite(low + high)
                place[left] = np.where(outside, 0.5 * (low + high), after)
                left, low, high = left[~settles], low[~settles], high[~settles]
                if not len(left):
                    break
                some = self.part(left) if settles.any() else some
        return place, ~np.isin(np.arange(self.count), left)


def _flat(leaf: Array, nodes: tuple[int, ...], places: tuple[int, ...]) -> Array:
    """[*nodes, *places] as [places, nodes], with 1 along what it does not vary along."""
    shape, sizes = (*nodes, *places), []
    leaf, axes = np.broadcast_to(leaf, shape), len(nodes)
    for own in (slice(0, axes), slice(axes, None)):
        varies = any(k > 1 and s != 0 for k, s in zip(leaf.shape[own], leaf.strides[own], strict=True))
        sizes.append(int(np.prod(shape[own])) if varies else 1)
        if not varies:
            leaf = leaf[(*(slice(None),) * (own.start or 0), *(slice(0, 1),) * len(shape[own]))]
    return leaf.reshape(sizes).T


def _step(lacking: Array, density: Array, slope: Array, bend: Array) -> tuple[Array, Array]:
    """The series of the inverse function to the third order, and whether what comes after it is nothing.

    Where that is not so, a step of Newton's.
    """
    newton = -lacking / density
    second, third = 0.5 * slope / density, bend / (6.0 * density)
    bent, bent_more = second * newton, third * newton**2
    whole = newton * (1.0 - bent + 2.0 * bent**2 - bent_more)
    small = (np.abs(bent) < 0.1) & (np.abs(bent_more) < 0.01)
    settles = (np.abs(bent) < SETTLED) & (np.abs(bent_more) < SETTLED**2)
    return np.where(small, whole, newton), settles
