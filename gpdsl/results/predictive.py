"""Predictive distributions of outputs: a law mixed over the latents its arguments depend on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp
from scipy.special import ndtr

from gpdsl.results import conditional, expectation as ex
from gpdsl.results.integrals import Quantity
from gpdsl.results.nodes import SPREAD_STEPS, degrees, existing, joint_weights, no_mean, nodes_of, weighted_nodes
from gpdsl.results.quantiles import Around, invert, of_normals
from gpdsl.results.series import series_of
from gpdsl.results.slopes import MANY, THIN, Smooth
from gpdsl.symbolic import laws
from gpdsl.symbolic.expectations import has_external, latents_in
from gpdsl.symbolic.laws import Law

ValuesOf = Callable[[sp.Expr], np.ndarray]


@dataclass(frozen=True, eq=False)
class Average:
    """A law at nodes [nodes, K, rows, *keys] of what its arguments depend on, and their weights [nodes, K]."""

    law: Law
    weights: np.ndarray

    def cdf(self, y: np.ndarray, reached: bool = True) -> np.ndarray:
        """P(Y <= y) [rows, *keys], or P(Y < y) where y is not `reached`, averaged over the nodes."""
        return np.tensordot(self.weights, conditional.cdf(self.law, y, reached), axes=([0, 1], [0, 1]))

    @cached_property
    def thinned(self) -> Average | None:
        """The average over some of the nodes, where there are many."""
        if self.weights.size < MANY:
            return None
        nodes, components = self.weights.shape
        some = np.s_[::THIN] if nodes >= components else np.s_[:, : max(1, components // THIN)]
        weights = self.weights[some]
        return Average(self.law.map(lambda leaf: leaf[some]), weights / weights.sum())


@dataclass(frozen=True, eq=False)
class Predictive:
    """One observation at the rows of `beliefs`; results are [rows, *keys], with a last axis of levels for a label.

    `keys` are the generic axes of the observation and `sizes` their lengths. The elements of a multivariate
    output stand along a last axis.
    """

    beliefs: ex.Beliefs
    law: Law
    keys: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def weights(self) -> np.ndarray:
        """Of the components."""
        return self.beliefs.weights

    @property
    def elements(self) -> tuple[Predictive, ...]:
        """The elements of a multivariate output, each on its own."""
        return tuple(replace(self, law=law) for law in laws.elements(self.law))

    def mean(self) -> np.ndarray:
        """Mean, or the probabilities of the levels."""
        if self.law.vector:
            return np.stack([each.mean() for each in self.elements], axis=-1)
        if self.law.levels:
            chances = [sp.exp(each) for each in laws.log_probabilities(self.law)]
            return np.stack([self._full(p) for p in ex.means_of(self.beliefs, chances, self.keys)], axis=-1)
        formula = laws.mean(self.law)
        if formula is None:
            return self._existing(self._moments()[0])
        return self._existing(existing(self.beliefs, formula, self.keys, ex.mean_of))

    def _existing(self, values: Any) -> np.ndarray:
        """Values in all rows, NaN where there is no mean."""
        full = self._full(values)
        return np.where(no_mean(self.beliefs, self.law, self.keys), np.nan, full) if degrees(self.law) else full

    def variance(self) -> np.ndarray:
        """Variance, or that of the indicators of the levels."""
        if self.law.vector:
            return np.stack([each.variance() for each in self.elements], axis=-1)
        if self.law.levels:
            chances = self.mean()
            return chances * (1.0 - chances)
        if self.law.name == "Bernoulli":
            one, none = self.chances
            return self._full(one * none)
        mean, spread = laws.mean(self.law), laws.variance(self.law)
        if mean is None or spread is None:
            return self._existing(self._moments()[1])
        within = ex.mean_of(self.beliefs, spread, self.keys)
        return self._existing(within + existing(self.beliefs, mean, self.keys, ex.variance_of))

    def quantile(self, p: float) -> np.ndarray:
        """The smallest value whose predictive distribution function reaches `p`; of levels, their number from 1."""
        if self.law.vector:
            return np.stack([each.quantile(p) for each in self.elements], axis=-1)
        if self.law.levels:
            reached = np.cumsum(self.mean(), axis=-1) >= p - 1e-12
            return np.argmax(reached, axis=-1) + 1.0
        if self.of_log is not None:
            return np.exp(self.of_log.quantile(p))
        if self.law.name == "Bernoulli":
            return self._full(np.where(self.chances[1] >= p, 0.0, 1.0))
        if self.normals is not None:
            return self._full(self.normals.quantile(p))
        average, (centre, spread) = self.average, self.around
        if self._smooth is not None:
            return self._full(Around(self._smooth, centre, spread).quantile(p))
        rough = None if average.thinned is None else average.thinned.cdf
        low, high, discrete = centre - 4 * spread, centre + 4 * spread, conditional.is_discrete(average.law)
        found = invert(average.cdf, p, low, high, discrete=discrete, rough=rough)
        return self._full(np.clip(found, *conditional.ends(average.law)))

    def share(self, y: np.ndarray, *, above: bool, reached: bool) -> np.ndarray | None:
        """P(Y < y) or P(Y > y), or also Y = y where `reached`, for y [rows, *keys]; None of levels and vectors."""
        if self.law.vector or self.law.levels:
            return None
        if self.of_log is not None:
            with np.errstate(divide="ignore"):
                return self.of_log.share(np.log(np.maximum(y, 0.0)), above=above, reached=reached)
        exact = self.normal
        if exact is not None:
            away = (y - exact[0]) / np.sqrt(exact[1])
            return self._full(np.tensordot(self.weights, ndtr(-away if above else away), axes=1))
        below = self.average.cdf(y, reached=above != reached)
        return self._full(np.clip(1.0 - below if above else below, 0.0, 1.0))

    @property
    def chances(self) -> tuple[np.ndarray, np.ndarray]:
        """Of a Bernoulli output, how probable 1 is, and 0."""
        one, none = ex.means_of(self.beliefs, laws.chances(self.law), self.keys)
        return one, none

    @cached_property
    def of_log(self) -> Predictive | None:
        """The logarithm of a log-normal output, which is normal."""
        return replace(self, law=Law("Normal", self.law.arguments)) if self.law.name == "LogNormal" else None

    @cached_property
    def average(self) -> Average:
        whole, averaged = conditional.collapsed(self.beliefs, self.law)
        leaves = {str(place): leaf for place, leaf in enumerate(whole.leaves())}
        for finer in FINER:
            nodes, weights = nodes_of(self.beliefs, leaves, self.keys, finer, averaged)
            law = whole.filled(np.asarray(nodes[name]) for name in nodes)
            numbers = FINER[1] * len(weights) * len(self.beliefs.weights) * self.beliefs.count * math.prod(self.sizes)
            if len(weights) != finer * SPREAD_STEPS + 1 or numbers > MOST:
                break
            few, some = _each(law, weights, COARSER)
            if _enough(some, _looked_at(few, some)):
                law, weights = _each(law, weights, 2 * COARSER) if self.beliefs.coarse else (few, some)
                break
            if max(np.nanmax(np.abs(np.diff(v, axis=0)), initial=0.0) for v in _looked_at(law, weights)) < STEEP:
                break
        return Average(law, joint_weights(weights, self.beliefs))

    @cached_property
    def normals(self) -> Around | None:
        return None if self.normal is None else of_normals(*self.normal, self.weights)

    @cached_property
    def _smooth(self) -> Smooth | None:
        average = self.average
        return Smooth.of(average.law, average.weights, self.around[0].shape)

    @cached_property
    def around(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation, and other numbers where there are none: where a search begins."""
        centre, spread = self.mean(), np.sqrt(self.variance())
        found = np.isfinite(spread) & (spread > 0)
        return np.where(np.isfinite(centre), centre, 0.0), np.where(found, spread, 1.0)

    @property
    def nodes(self) -> int:
        """How many laws the distribution function is an average of."""
        if self.of_log is not None:
            return self.of_log.nodes
        return len(self.weights) if self.normal is not None else self.average.weights.size

    def draw(self, values: ValuesOf, generator: np.random.Generator) -> np.ndarray:
        """Draws [count, rows, *keys], where `values` gives an expression at drawn latents; levels as numbers from 1."""
        law = self.law.map(lambda leaf: self._spread(values(leaf)))
        if law.levels:
            chances = [self._spread(values(each)) for each in laws.log_probabilities(self.law)]
            return conditional.draw_categorical(generator, np.stack(chances, axis=-1)) + 1.0
        return conditional.draw(law, generator)

    def leaves(self) -> dict[str, sp.Expr]:
        """Every argument of the law, by a name of its own, in their order."""
        return {str(place): leaf for place, leaf in enumerate(self.law.leaves())}

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of a law whose moments have no formula, by the rule of its latents."""
        steep = any(Quantity(self.beliefs, each, self.keys).is_steep(ex.GENTLE) for each in self.law.leaves())
        values, weights = (nodes_of if steep else weighted_nodes)(self.beliefs, self.leaves(), self.keys)
        mean, variance = conditional.moments(self.law.filled(np.asarray(values[name]) for name in values))
        joint, bounded = joint_weights(weights, self.beliefs), self.law.name in ("Censored", "Truncated")
        # as steep at a bound as the law is narrow, whatever its arguments; of samples, weights are equal
        if bounded and np.ptp(joint) > 0 and np.any(np.diff(mean, axis=0) ** 2 > variance[1:]):
            (mean, variance), joint = conditional.moments(self.average.law), self.average.weights
        centre = np.tensordot(joint, mean, axes=([0, 1], [0, 1]))
        return self._full(centre), self._full(
            np.tensordot(joint, variance + (mean - centre) ** 2, axes=([0, 1], [0, 1]))
        )

    @cached_property
    def normal(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Component means and variances of the output when it is jointly Gaussian with the latents."""
        if self.law.name != "Normal":
            return None
        translator = self.beliefs.program.translator
        mean, sd = self.law.arguments["mean"], self.law.arguments["sd"]
        latents = latents_in(translator, mean)
        if latents_in(translator, sd) or has_external(translator, mean) or not mean.is_polynomial(*latents):
            return None
        if latents and sp.Poly(mean, *latents).total_degree() > 1:
            return None
        noise = ex.per_component(self.beliefs, sd**2, self.keys, {})
        if series := series_of(self.beliefs, mean, self.keys):  # of what is linear it is exact
            return series.mean()[0], np.asarray(series.variance()[0] + noise)
        centre = sp.Dummy("centre", real=True)
        means = ex.per_component(self.beliefs, mean, self.keys, {})
        spread = ex.per_component(self.beliefs, (mean - centre) ** 2, self.keys, {centre: means})
        return np.asarray(means), np.asarray(spread + noise)

    def _full(self, values: Any) -> np.ndarray:
        """Broadcast over rows and over axes the value does not vary along."""
        return np.broadcast_to(np.asarray(values), (self.beliefs.count, *self.sizes))

    def _spread(self, values: Any) -> np.ndarray:
        return np.array(np.broadcast_to(np.asarray(values), (*values.shape[:2], *self.sizes)))


FINER, STEEP, MOST = (1, 4, 16), 0.25, 1 << 24
"""Times as many nodes of a latent where the law is narrower than they are apart: where its distribution function rises
by that much from node to node. No more numbers than these are held."""
COARSER, CLOSE = 4, 1e-8
"""Of how many nodes one is enough where averages over each second of these differ by less than that: the error of a
trapezoidal rule is squared where nodes are halfway closer."""

LOOKED_AT = (0.02, 0.5, 0.98)
"""Shares of the nodes' weight below the nodes around which that is looked at."""


def _each(law: Law, weights: np.ndarray, step: int) -> tuple[Law, np.ndarray]:
    """One of so many nodes."""
    return law.map(lambda leaf: leaf[::step]), weights[::step] / weights[::step].sum()


def _looked_at(law: Law, weights: np.ndarray) -> list[np.ndarray]:
    """Distribution functions at all nodes [nodes, K, rows, *keys], of the means at some of them."""
    places = np.searchsorted(np.cumsum(weights), LOOKED_AT)
    with np.errstate(all="ignore"):
        means = conditional.moments(law.map(lambda leaf: leaf[places]))[0]
        shape = np.broadcast_shapes(*(leaf.shape[1:] for leaf in law.leaves()))
        return [conditional.cdf(law, mean) for mean in np.broadcast_to(means, (len(places), *shape))]


def _enough(weights: np.ndarray, looked: list[np.ndarray]) -> bool:
    """Whether averages over the nodes are right to rounding, where the law is wide, and smooth."""
    some = weights[::2] / weights[::2].sum()
    apart = [np.tensordot(weights, v, axes=1) - np.tensordot(some, v[::2], axes=1) for v in looked]
    return all(np.all(np.abs(each) < CLOSE) for each in apart)
