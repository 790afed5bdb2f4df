"""Predictive distributions of outputs: a law mixed over the latents its arguments depend on."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp
from jaxtyping import Array
from scipy.special import ndtr

from gpdsl.lowering.table import evaluate
from gpdsl.program.cache import jit
from gpdsl.results import conditional, expectation as ex
from gpdsl.results.integrals import Quantity
from gpdsl.results.nodes import SPREAD_STEPS, degrees, existing, joint_weights, no_mean, nodes_of, weighted_nodes
from gpdsl.results.quantiles import Around, invert, of_normals
from gpdsl.results.series import series_of
from gpdsl.results.slopes import MANY, THIN, Smooth
from gpdsl.symbolic import laws
from gpdsl.symbolic.curves import Curve, curve
from gpdsl.symbolic.expectations import has_external, latents_in
from gpdsl.symbolic.kinks import bends, cuts_of
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.terms import Formula

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


# Predictive distributions of outputs observed through a `density` of the file, integrated numerically.

AT_ONCE = 4096
"""Distributions put on a grid together."""


@dataclass(frozen=True, eq=False)
class ByFormula:
    """One observation at the rows of `beliefs`, like `Predictive`; each density is normalised numerically.

    That of a registered distribution has a `law`, by which its moments and draws are those it was registered with.
    """

    beliefs: ex.Beliefs
    formula: Formula
    keys: tuple[str, ...]
    sizes: tuple[int, ...]
    law: Predictive | None = None

    def mean(self) -> np.ndarray:
        """Predictive mean."""
        return self._moments()[0] if self.law is None else self.law.mean()

    def variance(self) -> np.ndarray:
        """Predictive variance."""
        return self._moments()[1] if self.law is None else self.law.variance()

    def quantile(self, p: float) -> np.ndarray:
        """The smallest value whose predictive distribution function reaches `p`."""
        found = []
        for curves, weights in self._curves(bends=bends(self.formula.log_density, (self.formula.symbol,))):
            nodes = len(weights)

            def mixture(y: np.ndarray, curves: Curve = curves, weights: np.ndarray = weights) -> np.ndarray:
                return curves.cdf(np.repeat(y, nodes)).reshape(-1, nodes) @ weights  # noqa: B023

            ends = curves.quantile(np.full(curves.log_mass.shape, p)).reshape(-1, nodes)
            low, high = ends.min(axis=1), ends.max(axis=1)
            widen = 0.0 if curves.discrete else 1e-9 * (1 + np.abs(high - low))
            found.append(invert(mixture, p, low - widen, high + widen, discrete=curves.discrete))
        return np.concatenate(found).reshape(self.beliefs.count, *self.sizes)

    def draw(self, values: ValuesOf, generator: np.random.Generator) -> np.ndarray:
        """Draws [count, rows, *keys], where `values` gives an expression at drawn latents."""
        if self.law is not None:
            return self.law.draw(values, generator)
        leaves = {symbol: np.asarray(values(symbol)) for symbol in self._symbols()}
        shape = np.broadcast_shapes(*(each.shape for each in leaves.values()), (1, self.beliefs.count, *self.sizes))
        flat = {symbol: np.broadcast_to(each, shape).reshape(-1) for symbol, each in leaves.items()}
        uniform = generator.random(shape).reshape(shape[0], -1)

        def of(first: int, size: int, chosen: np.ndarray) -> np.ndarray:
            return self._curve({s: each[first : first + size] for s, each in flat.items()}, size).quantile(chosen)

        if shape[0] > 1 and all(np.all(each == each[:1]) for each in leaves.values()):  # one for all draws of a row
            return np.stack([of(at, 1, own) for at, own in enumerate(uniform.T)], axis=1).reshape(shape)
        parts = {at: uniform.ravel()[at : at + AT_ONCE] for at in range(0, uniform.size, AT_ONCE)}
        return np.concatenate([of(at, len(part), part) for at, part in parts.items()]).reshape(shape)

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        means, variances = [], []
        for curves, weights in self._curves():
            mean, variance = (each.reshape(-1, len(weights)) for each in curves.moments())
            centre = mean @ weights
            means.append(centre)
            variances.append((variance + (mean - centre[:, None]) ** 2) @ weights)
        shape = (self.beliefs.count, *self.sizes)
        return np.concatenate(means).reshape(shape), np.concatenate(variances).reshape(shape)

    def _symbols(self) -> list[sp.Symbol]:
        symbols = self.formula.log_density.free_symbols - {self.formula.symbol}
        return sorted(symbols, key=lambda each: each.name)

    def _curves(self, *, bends: bool = False) -> Iterator[tuple[Curve, np.ndarray]]:
        """The conditional distributions at the nodes of the latents, some rows at a time, and the nodes' weights.

        What is averaged over the latents `bends` where a jump of the density passes by.
        """
        named = {str(place): symbol for place, symbol in enumerate(self._symbols())}
        steep = bends or Quantity(self.beliefs, self.formula.log_density, self.keys).is_steep(ex.GENTLE)
        values, weights = (nodes_of if steep else weighted_nodes)(self.beliefs, named, self.keys)
        joint = joint_weights(weights, self.beliefs).reshape(-1)
        count = self.beliefs.count * int(np.prod(self.sizes))
        flat = {}
        for name, symbol in named.items():
            full = np.broadcast_to(np.asarray(values[name]), (*values[name].shape[:3], *self.sizes))
            flat[symbol] = full.reshape(len(joint), count).T
        size = max(1, AT_ONCE // len(joint))
        for start in range(0, count, size):
            part = {symbol: each[start : start + size].reshape(-1) for symbol, each in flat.items()}
            rows = min(size, count - start)
            yield self._curve(part, rows * len(joint)), joint

    def _curve(self, leaves: dict[sp.Symbol, np.ndarray], size: int) -> Curve:
        order = tuple(leaves)
        compiled = _compiled(self.formula.log_density, self.formula.symbol, order)

        def log_density(y: np.ndarray) -> np.ndarray:
            return np.broadcast_to(np.asarray(compiled(y, [leaves[each] for each in order])), y.shape)

        cuts = cuts_of(self.formula.log_density, self.formula.symbol, leaves, size, self.formula.kind)
        return curve(log_density, size, self.formula.kind, cuts)


@functools.lru_cache(maxsize=64)
def _compiled(
    formula: sp.Expr, symbol: sp.Symbol, others: tuple[sp.Symbol, ...]
) -> Callable[[np.ndarray, list[np.ndarray]], Array]:
    """A formula at values y of a symbol and values of the others; one program for each size of a grid."""

    def at(y: Array, given: list[Array]) -> Array:
        known = {symbol: y, **dict(zip(others, given, strict=True))}
        return evaluate(formula, known.__getitem__)

    return jit(at, brief=True)
