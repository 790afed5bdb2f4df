"""Points of learnt parameters, the densities that they were drawn from, and their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from gpdsl.inference import proposals

if TYPE_CHECKING:
    from gpdsl.inference.integrated import Explored

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
        enough = 1.0 / np.sum(first**2) >= EVEN * count and not shape > UNEVEN and error <= ERROR
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
