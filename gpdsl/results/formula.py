"""Predictive distributions of outputs observed through a `density` of the file, integrated numerically."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import sympy as sp
from jaxtyping import Array

from gpdsl.lowering.table import evaluate
from gpdsl.program.compilation import jit
from gpdsl.results import expectation as ex
from gpdsl.results.nodes import nodes_of, weighted_nodes
from gpdsl.results.predictive import Predictive, ValuesOf
from gpdsl.results.quantiles import invert
from gpdsl.symbolic.curves import Curve, curve
from gpdsl.symbolic.kinks import bends, cuts_of
from gpdsl.symbolic.terms import Formula

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
            discrete = curves.discrete
            low, high = ends.min(axis=1), ends.max(axis=1)
            widen = 0.0 if discrete else 1e-9 * (1 + np.abs(high - low))
            found.append(invert(mixture, p, low - widen, high + widen, discrete=discrete))
        return np.concatenate(found).reshape(self.beliefs.count, *self.sizes)

    def draw(self, values: ValuesOf, generator: np.random.Generator) -> np.ndarray:
        """Draws [count, rows, *keys], where `values` gives an expression at drawn latents."""
        if self.law is not None:
            return self.law.draw(values, generator)
        leaves = {symbol: np.asarray(values(symbol)) for symbol in self._symbols()}
        shape = np.broadcast_shapes(*(each.shape for each in leaves.values()), (1, self.beliefs.count, *self.sizes))
        flat = {symbol: np.broadcast_to(each, shape).reshape(-1) for symbol, each in leaves.items()}
        uniform, drawn = generator.random(int(np.prod(shape))), []
        for start in range(0, len(uniform), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            chosen = uniform[part]
            curves = self._curve({symbol: each[part] for symbol, each in flat.items()}, len(chosen))
            drawn.append(curves.quantile(chosen))
        return np.concatenate(drawn).reshape(shape)

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
        symbols = self._symbols()
        named = {str(place): symbol for place, symbol in enumerate(symbols)}
        steep = bends or ex.is_steep(self.beliefs, self.formula.log_density, self.keys, near=ex.GENTLE)
        values, weights = (nodes_of if steep else weighted_nodes)(self.beliefs, named, self.keys)
        joint = (weights[:, None] * self.beliefs.weights[None, :]).reshape(-1)
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
