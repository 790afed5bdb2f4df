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

from gpdsl.symbolic.laws import Law

Array = np.ndarray
Curve = tuple[Array, Array, Array, Array]
"""A distribution function, its density, and two derivatives of that; [nodes, n], or [n] of an average."""

THIN, MANY = 16, 128
"""Of how many nodes one is looked at first, where there are so many."""

AT_ONCE = 1 << 15
"""Numbers that stay near the processor."""

STEPS, FAR = 12, 2.0
"""From one place to the next, and how far one may lead, in standard deviations."""

SETTLED, NOTHING = 3e-4, 1e-15
"""Change of slope within a step, in shares, after which the next would change nothing; and rounding of an average."""


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
    return share, density, density * (1.0 - 2.0 * share) * rate, density * (1.0 - 6.0 * share + 6.0 * share**2) * rate**2


SMOOTH: Mapping[str, Callable[[Array, Mapping[str, Array]], Curve]] = {
    "Normal": _normal,
    "StudentT": _student_t,
    "Logistic": _logistic,
}
"""Laws with a density on the whole line that has derivatives everywhere."""


@dataclass(frozen=True, eq=False)
class Smooth:
    """Laws of a name in `SMOOTH`, their arguments [nodes or 1, n or 1], and the weights [nodes] of their average."""

    name: str
    arguments: Mapping[str, Array]
    weights: Float[Array, " nodes"]
    count: int

    @classmethod
    def of(cls, law: Law, weights: Array, shape: tuple[int, ...]) -> Smooth | None:
        """Of a law whose arguments are [*weights, *shape], or [1, ...] along any; None where there is no such law."""
        if law.name not in SMOOTH:
            return None
        nodes, count = weights.size, int(np.prod(shape))

        def flat(leaf: Array) -> Array:
            leaf = np.asarray(leaf)
            axes = weights.ndim
            same = all(k == 1 or s == 0 for k, s in zip(leaf.shape[axes:], leaf.strides[axes:], strict=True))
            kept = leaf[(..., *(slice(0, 1),) * len(shape))] if same else leaf
            whole = np.broadcast_to(kept, (*weights.shape, *(kept.shape[axes:] if same else shape)))
            return whole.reshape(nodes, 1 if same else count)

        return cls(law.name, {name: flat(leaf) for name, leaf in law.arguments.items()}, weights.reshape(-1), count)

    @cached_property
    def thinned(self) -> Smooth | None:
        """The average over some of the nodes, where there are many."""
        if self.weights.size < MANY:
            return None
        weights = self.weights[::THIN] / self.weights[::THIN].sum()
        arguments = {name: leaf[::THIN] for name, leaf in self.arguments.items()}
        return Smooth(self.name, arguments, weights, self.count)

    def part(self, some: slice | Array) -> Smooth:
        """Of some of the places."""
        arguments = {n: leaf if leaf.shape[1] == 1 else leaf[:, some] for n, leaf in self.arguments.items()}
        return Smooth(self.name, arguments, self.weights, len(np.arange(self.count)[some]))

    def at(self, y: Float[Array, " n"]) -> Curve:
        """The average, and its derivatives."""
        shape = len(self.weights), len(y)
        given = {name: np.asarray(leaf, float) for name, leaf in self.arguments.items()}
        curves = SMOOTH[self.name](y, given)
        first, *rest = (self.weights @ np.broadcast_to(each, shape) for each in curves)
        return first, rest[0], rest[1], rest[2]

    def cdf(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """The average alone."""
        return self.at(y)[0]

    def quantile(
        self, probability: float, centre: Float[Array, " n"], spread: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
        """Where it reaches a probability, and whether that was found, from about where and how wide it is."""
        if self.thinned is None:
            start = centre + ndtri(probability) * spread
        else:
            start, settled = self.thinned.quantile(probability, centre, spread)
            start = np.where(settled, start, centre)
        size = max(1, AT_ONCE // len(self.weights))
        found = [
            self.part(part)._stepped(probability, start[part], spread[part])
            for part in (slice(first, first + size) for first in range(0, self.count, size))
        ]
        place, settled = (np.concatenate(each) for each in zip(*found, strict=True))
        return place, settled

    def _stepped(self, probability: float, place: Array, spread: Array) -> tuple[Array, Array]:
        low, high = np.full(place.shape, -np.inf), np.full(place.shape, np.inf)
        over = np.zeros(place.shape, bool)
        with np.errstate(all="ignore"):
            for _ in range(STEPS):
                reached, density, slope, bend = self.at(place)
                lacking = reached - probability
                low, high = np.where(lacking < 0, place, low), np.where(lacking > 0, place, high)
                step, settles = _step(lacking, density, slope, bend)
                settles &= np.abs(lacking) < SETTLED * min(probability, 1.0 - probability)
                settles |= np.abs(lacking) <= NOTHING * probability
                step = np.clip(np.where(np.isfinite(step), step, 0.0), -FAR * spread, FAR * spread)
                after = place + step
                out = (after <= low) | (after >= high)
                after = np.where(out & ~settles & np.isfinite(low + high), 0.5 * (low + high), after)
                place = np.where(over, place, after)
                over = over | settles
                if over.all():
                    break
        return place, over


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
