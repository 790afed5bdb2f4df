"""Predictive distributions of outputs observed through a `density` of the file, integrated numerically."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import sympy as sp
from jaxtyping import Array

from gpdsl.errors import GpdslWarning
from gpdsl.lowering.table import evaluate
from gpdsl.program.cache import jit
from gpdsl.results import expectation as ex
from gpdsl.results.integrals import Quantity
from gpdsl.results.nodes import joint_weights, nodes_of, weighted_nodes
from gpdsl.results.predictive import Predictive, ValuesOf
from gpdsl.results.quantiles import invert
from gpdsl.symbolic.counts import Curve
from gpdsl.symbolic.density_mass import TOLERANCE
from gpdsl.symbolic.kinks import bends
from gpdsl.symbolic.standard import curve_of
from gpdsl.symbolic.terms import Formula

AT_ONCE = 4096
"""Distributions put on a grid together."""

POINTS = 1000
"""About how many values each is computed at."""


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
        for curves, weights in self._curves(whole=True):
            nodes = len(weights)

            def mixture(y: np.ndarray, curves: Curve = curves, weights: np.ndarray = weights) -> np.ndarray:
                return curves.cdf(np.repeat(y, nodes)).reshape(-1, nodes) @ weights  # noqa: B023

            ends = curves.quantile(np.asarray(p)).reshape(-1, nodes)
            low, high = ends.min(axis=1), ends.max(axis=1)
            widen = 0.0 if curves.discrete else 1e-9 * (1 + np.abs(high - low))
            found.append(invert(mixture, p, low - widen, high + widen, discrete=curves.discrete))
        return np.concatenate(found).reshape(self.beliefs.count, *self.sizes)

    def share(self, y: np.ndarray, *, above: bool, reached: bool) -> np.ndarray | None:
        """P(Y < y) or P(Y > y), or also Y = y where `reached`, for y [rows, *keys]; None of one setting of many."""
        if self.beliefs.coarse:
            return None
        at = np.broadcast_to(np.where(np.isnan(y), 0.0, y), (self.beliefs.count, *self.sizes)).reshape(-1)
        found, first = [], 0
        for curves, weights in self._curves(whole=True):
            nodes = len(weights)
            own = at[first : first + len(curves.log_mass) // nodes]
            first += len(own)
            own = np.ceil(own) - 1.0 if curves.discrete and above == reached else own
            found.append(curves.cdf(np.repeat(own, nodes)).reshape(-1, nodes) @ weights)
        below = np.clip(np.concatenate(found), 0.0, 1.0).reshape(self.beliefs.count, *self.sizes)
        return 1.0 - below if above else below

    @property
    def nodes(self) -> int:
        """How many values the distribution function is an average of."""
        return POINTS * len(self._at_nodes(True)[1])

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

    @property
    def _count(self) -> int:
        return self.beliefs.count * int(np.prod(self.sizes))

    def _at_nodes(self, whole: bool) -> tuple[dict[sp.Symbol, np.ndarray], np.ndarray]:
        """What the density reads, [elements, nodes], and the nodes' weights.

        Where a jump of the density passes by, the `whole` distribution bends along the latents; moments do not.
        """
        log_density = self.formula.log_density
        named = {str(place): symbol for place, symbol in enumerate(self._symbols())}
        bent = whole and bends(log_density, (self.formula.symbol,))
        steep = bent or Quantity(self.beliefs, log_density, self.keys).is_steep(ex.GENTLE)
        values, weights = (nodes_of if steep else weighted_nodes)(self.beliefs, named, self.keys)
        joint = joint_weights(weights, self.beliefs).reshape(-1)
        full = {
            symbol: np.broadcast_to(np.asarray(values[name]), (*values[name].shape[:3], *self.sizes))
            for name, symbol in named.items()
        }
        return {symbol: each.reshape(len(joint), self._count).T for symbol, each in full.items()}, joint

    def _curves(self, *, whole: bool = False) -> Iterator[tuple[Curve, np.ndarray]]:
        """The conditional distributions at the nodes of the latents, some rows at a time, and the nodes' weights."""
        flat, joint = self._at_nodes(whole)
        size, doubt = max(1, AT_ONCE // len(joint)), []
        for start in range(0, self._count, size):
            part = {symbol: each[start : start + size].reshape(-1) for symbol, each in flat.items()}
            found = self._curve(part, min(size, self._count - start) * len(joint))
            doubt.append(found.doubt.reshape(-1, len(joint)) @ joint)
            yield found, joint
        self._say(np.concatenate(doubt))

    def _say(self, doubt: np.ndarray) -> None:
        """A warning of distributions [n] whose mass is not one."""
        if some := int(np.count_nonzero(~(doubt < TOLERANCE))):
            warnings.warn(
                f"the density of `{self.formula.symbol}` integrates to one but for {np.max(doubt):.2g} in {some} of "
                f"{len(doubt)} places: it is not normalised, or has narrow tops that were not found; predictions are "
                "of the mass that was found. The terms of a sum are looked at one by one: log(exp(...) + exp(...))",
                GpdslWarning,
                stacklevel=6,
            )

    def _curve(self, leaves: dict[sp.Symbol, np.ndarray], size: int) -> Curve:
        order = tuple(leaves)
        compiled = _compiled(self.formula.log_density, self.formula.symbol, order)

        def log_density(y: np.ndarray) -> np.ndarray:
            return np.broadcast_to(np.asarray(compiled(y, [leaves[each] for each in order])), y.shape)

        formula = self.formula
        return curve_of(formula.log_density, formula.symbol, leaves, size, formula.kind, log_density)


@functools.lru_cache(maxsize=64)
def _compiled(
    formula: sp.Expr, symbol: sp.Symbol, others: tuple[sp.Symbol, ...]
) -> Callable[[np.ndarray, list[np.ndarray]], Array]:
    """A formula at values y of a symbol and values of the others; one program for each size of a grid."""

    def at(y: Array, given: list[Array]) -> Array:
        known = {symbol: y, **dict(zip(others, given, strict=True))}
        return evaluate(formula, known.__getitem__)

    return jit(at, brief=True)
