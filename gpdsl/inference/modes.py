"""Modes of the evidence with the priors over learnt parameters: axes and widths around each, and where others may be.

Of a period each cycle in the span has a maximum of its own, as narrow as a radian at its end, and half or twice the
period often explains noisy rows as well: no search from one leads to another, and no draw of a prior hits one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from gpdsl.inference import proposals
from gpdsl.inference.ascent.lbfgs import flat
from gpdsl.inference.images import Images
from gpdsl.program.program import Program

if TYPE_CHECKING:
    from gpdsl.inference.integrated import Explored, Learnt

STEP = 0.7
"""Standard deviations between differences of gradients that give the curvature."""

LEAST_CURVED = 1e-3
"""Of a ridge, in units in which each parameter alone is curved by one."""

TIMES = 1 / 3, 1 / 2, 2.0, 3.0
"""A period that other periods are looked for at."""

FAR, TRIED = 20.0, 8
"""Nats below the mode beyond which no other is looked for, and how many climbs are made at most."""

CLIMB, NEAR = 30, 0.02
"""Steps of each at most, and nats that one of them has to gain."""

BESIDE = 3.0
"""Standard deviations along any axis from a mode at which another one may be."""

SLIGHT = 1e-5
"""Share of the probability, by the height and the widths of a mode, below which it is left out: twice the period with a
ten thousandth is half of the standard deviation of one that is known well."""


def around(density: Explored, mode: Float[np.ndarray, " d"], top: float) -> tuple[proposals.Split, tuple[str, ...]]:
    """Axes from the curvature around the mode, widths from the fall on either side, and what has no end on one.

    The curvature is that of differences over most of a standard deviation: at the mode itself there may be a kink.
    """
    units = np.diag(density.steps)
    scales = density.steps * [
        min(proposals.reach(density.value, mode, top, side * unit) for side in (-1, 1)) for unit in units
    ]
    scales = np.minimum(scales, density.widest)
    differences = [_slope(density, mode, step) for step in np.diag(STEP * scales)]
    scaled = -np.asarray(differences) * scales * scales[:, None]
    curvatures, directions = np.linalg.eigh(0.5 * (scaled + scaled.T))
    axes = scales[:, None] * directions / np.sqrt(np.maximum(curvatures, LEAST_CURVED))
    open_ended: list[str] = []
    widths = np.empty((2, len(mode)))
    for place, axis in enumerate(axes.T):
        most = np.min(density.widest / np.maximum(np.abs(axis), 1e-300))
        for side, sign in enumerate((-1, 1)):
            found = proposals.reach(density.value, mode, top, sign * axis)
            widths[side, place] = min(found, most)
            if found > most:
                open_ended.append(density.most_moved(axis))
    return proposals.Split(mode, axes, *(proposals.WIDER * widths)), tuple(dict.fromkeys(open_ended))


def _slope(density: Explored, mode: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Of the gradient, by a difference."""
    return (density(mode + step)[1] - density(mode - step)[1]) / (2 * float(np.linalg.norm(step)))


def others(
    density: Explored,
    program: Program,
    first: proposals.Split,
    top: float,
    ends: Sequence[Float[np.ndarray, " d"]],
) -> list[proposals.Split]:
    """What is around other modes that matter, from `ends` of searches and other values of periods and frequencies."""
    begun = [*((end, first.sds) for end in ends), *_candidates(density, program, first)]
    begun = [each for each in begun if not _near([first], density.images.of(each[0]))]
    heights = density.values(np.array([at for at, _ in begun])) if begun else np.zeros(0)
    known, masses = [first], [top + first.log_volume]
    for place in np.argsort(-heights)[:TRIED]:
        at, units = begun[place]
        if heights[place] < top - FAR or _near(known, density.images.of(at)):
            continue
        mode, height = proposals.mode_of(density, at, units, steps=CLIMB, tolerance=NEAR)
        if height > top + np.log(SLIGHT) and not _near(known, density.images.of(mode)):
            known.append(around(density, mode, height)[0])
            masses.append(height + known[-1].log_volume)
    least = np.logaddexp.reduce(masses) + np.log(SLIGHT)
    return [each for each, mass in zip(known[1:], masses[1:], strict=True) if mass > least]


def shares(
    known: Sequence[proposals.Split],
    images: Images,
    points: Float[np.ndarray, "n d"],
    weights: Float[np.ndarray, " n"],
) -> tuple[float, ...]:
    """Of the weight, by the mode that is next to one of the images in its own widths."""
    every = images.of(points).reshape(-1, points.shape[1])
    heights = np.stack([each.log_density(every) + each.log_volume for each in known])
    next_to = np.argmax(heights.reshape(len(known), len(points), -1).max(axis=2), axis=0)
    return tuple(np.bincount(next_to, weights, len(known)).tolist())


def _candidates(
    density: Explored, program: Program, first: proposals.Split
) -> Iterator[tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]]:
    """Places where another mode may be, and lengths of first steps from there."""
    data, learnt = program.parameters.data, density.learnt(first.mode)
    widths = flat(density.learnt(first.sds))
    for name in {**data.steps, **data.others}:
        for ratio, moved in cycles_beside(program, learnt, name, data.others.get(name, ())):
            at = flat(moved)
            yield at, np.where(at == first.mode, widths, widths * min(ratio, 1 / ratio))


def cycles_beside(
    program: Program, learnt: Learnt, name: str, others: Iterable[float] = ()
) -> Iterator[tuple[float, Learnt]]:
    """Each element of a period or frequency at parts and multiples of itself, and at others, all else as it is.

    How many times what it was, and what is learnt then; values outside its domain are left out.
    """
    bijector = program.parameters.bijectors[name]
    here = np.asarray(bijector.forward(learnt[name]))
    for which in np.ndindex(here.shape):
        for value in (*(each * here[which] for each in TIMES), *others):
            moved = here.copy()
            moved[which] = value
            if bijector.contains(moved):
                yield float(value / here[which]), {**learnt, name: bijector.inverse(moved)}


def _near(known: Sequence[proposals.Split], images: Float[np.ndarray, "images d"]) -> bool:
    """Whether a place, by all its images, belongs to one of the modes."""
    return any(np.any(np.all(np.abs(each.along_axes(images)) < BESIDE, axis=1)) for each in known)


# Points of learnt parameters, the densities that they were drawn from, and their weights.

ERROR = 0.1
"""Share of the standard deviation of a parameter, in its own units, that may be its Monte-Carlo error: what a long tail
takes more points for, such as that of the spread of eight groups."""

EVEN = 0.4
"""Effective share of points that is enough."""

UNEVEN = 0.5
"""Pareto's k above which more points are drawn: standard deviations of averages are large."""


def _at_images(source: proposals.Proposal, every: Float[np.ndarray, "n images d"]) -> Float[np.ndarray, "n images"]:
    """Log densities at all images of points."""
    return source.log_density(every.reshape(-1, every.shape[2])).reshape(every.shape[:2])


class Drawn:
    """Points so far, the densities that they were drawn from, their values, and the parameters in their own units."""

    def __init__(self, density: Explored, first: proposals.Split, averaged: Bool[np.ndarray, " values"]) -> None:
        self.density, self._first, self._averaged = density, first, averaged
        self.points, self.values = np.zeros((0, len(density.start))), np.zeros(0)
        self.sources: list[tuple[proposals.Proposal, int]] = []
        self._own: list[np.ndarray] = []

    def add(self, source: proposals.Proposal, uniform: Float[np.ndarray, "n d"]) -> None:
        """As many from a density as there are uniform numbers, each at that of its images which is next to the first
        mode."""
        every = self.density.images.of(source.points(uniform))
        drawn = every[np.arange(len(every)), np.argmax(_at_images(self._first, every), axis=1)]
        own, volumes = self.density.measured(self.density.images.of(drawn).reshape(-1, drawn.shape[1]))
        own, volumes = own[:, self._averaged].reshape(*every.shape[:2], -1), volumes[:: every.shape[1]]
        sound = np.all(np.isfinite(own), axis=(1, 2))  # a prior may reach beyond the largest number
        values = np.full(len(drawn), -np.inf)
        values[sound] = self.density.beside(drawn[sound], volumes[sound])
        self.points, self.values = np.concatenate([self.points, drawn]), np.concatenate([self.values, values])
        self._own.append(np.where(sound[:, None, None], own, 0.0))
        self.sources.append((source, len(drawn)))

    def _log_density(self, source: proposals.Proposal, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """That of points of a source, each at one of its images."""
        found: Float[np.ndarray, " n"] = np.logaddexp.reduce(_at_images(source, self.density.images.of(points)), axis=1)
        return found

    @property
    def own(self) -> Float[np.ndarray, "points images d"]:
        """The parameters that are averaged, in their own units, at all images."""
        return np.concatenate(self._own)

    def weights(self) -> tuple[Float[np.ndarray, " points"], float]:
        """Under the mixture of all densities, smoothed, with Pareto's k."""
        each = np.stack([self._log_density(source, self.points) + np.log(count) for source, count in self.sources])
        log_weights, shape = proposals.smoothed(self.values - np.logaddexp.reduce(each, axis=0))
        return np.exp(log_weights), shape

    def alone(
        self, count: int, weights: Float[np.ndarray, " points"]
    ) -> tuple[Float[np.ndarray, " points"], float, float] | None:
        """The regular set alone, where it is enough and the others have found nothing beside it: it is less noisy."""
        of_first = self.values[:count] - self._log_density(self.sources[0][0], self.points[:count])
        log_weights, shape = proposals.smoothed(of_first)
        first = np.concatenate([np.exp(log_weights), np.zeros(len(weights) - count)])
        error, own = proposals.error_of_spread(self.own, first), self.own
        (mean, sd), (whole, wide) = (proposals.moments(own, each) for each in (first, weights))
        same = np.all(np.abs(wide - sd) <= ERROR * sd) and np.all(np.abs(whole - mean) <= ERROR * sd)
        enough = proposals.worth(first) >= EVEN * count and not shape > UNEVEN and error <= ERROR
        return (first, shape, error) if same and enough else None

    def parts(self, weights: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
        """What each point adds to the variances of the parameters, as shares of them."""
        own = self.own
        if not own.size:
            return weights
        squares = weights[:, None] * np.mean((own - proposals.moments(own, weights)[0]) ** 2, axis=1)
        shares = squares / np.maximum(squares.sum(axis=0), np.finfo(float).tiny)
        found: Float[np.ndarray, " points"] = shares.mean(axis=1)
        return found / max(float(found.sum()), np.finfo(float).tiny)
