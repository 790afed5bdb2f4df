"""Predictive distributions of outputs observed through a transform: those of the transform, taken back.

Quantiles, and so medians, are exact: t^-1 of the quantile of t(y).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from gpdsl.results import expectation as ex
from gpdsl.results.cells import inverse
from gpdsl.results.predictive import Predictive, ValuesOf
from gpdsl.results.warp_latents import warp_moments
from gpdsl.symbolic.curves import LINES
from gpdsl.symbolic.terms import Warp

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Warped:
    """One observation of `warp` at the rows of `beliefs`, where `base` describes the transformed value."""

    beliefs: ex.Beliefs
    base: Predictive
    warp: Warp

    def mean(self) -> Array:
        """Mean of the output."""
        return warp_moments(self.base, self.warp, increasing=self.increasing)[0]

    def variance(self) -> Array:
        """Variance of the output."""
        return warp_moments(self.base, self.warp, increasing=self.increasing)[1]

    def quantile(self, p: float) -> Array:
        """Exact: the quantile of the transform taken back, or the opposite one when the transform decreases."""
        return self.back(self.base.quantile(p if self.increasing else 1.0 - p))

    def share(self, y: Array, *, above: bool, reached: bool) -> Array | None:
        """P(Y < y) or P(Y > y), or also Y = y where `reached`: of the transform, which may decrease."""
        line = LINES[self.warp.kind]
        inside = line.forward(line.inverse(np.asarray(y, float)))
        values = self._compiled()(np.broadcast_to(inside, self._shape))[0]
        return self.base.share(values, above=above == self.increasing, reached=reached)

    @property
    def nodes(self) -> int:
        """How many laws the distribution function is an average of."""
        return self.base.nodes

    def draw(self, values: ValuesOf, generator: np.random.Generator) -> Array:
        """Draws [count, rows, *keys] of the transform, taken back."""
        return self.back(self.base.draw(values, generator))

    @property
    def increasing(self) -> bool:
        """The direction proved, or that of the transform at the fitted parameters."""
        if self.warp.direction is not None:
            return self.warp.direction > 0
        line = LINES[self.warp.kind]
        at = self._compiled()
        ends = [at(np.full(self._shape, line.forward(np.asarray(v))))[0] for v in (-1.0, 1.0)]
        return bool(np.all(ends[1] > ends[0]))

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.beliefs.count, *self.base.sizes)

    def _compiled(self) -> Callable[[Array], tuple[Array, Array]]:
        """The transform and its slope at y [..., rows, *keys]."""
        warp, evaluator, keys = self.warp, self.beliefs.program.evaluator, self.base.keys

        def both(beliefs: ex.Beliefs, y: jnp.ndarray) -> tuple:
            given = {warp.symbol: y}
            value, slope = (evaluator(e, beliefs.scope(), keys, given) for e in (warp.value, warp.slope))
            return jnp.broadcast_to(value, y.shape), jnp.broadcast_to(slope, y.shape)

        compiled = self.beliefs.compile(("warp", warp.value, keys), both)

        def at(y: Array) -> tuple[Array, Array]:
            value, slope = compiled(jnp.asarray(y))
            return np.asarray(value), np.asarray(slope)

        return at

    def back(self, transformed: Array) -> Array:
        """The outputs [..., rows, *keys] whose transform has these values."""
        line, at = LINES[self.warp.kind], self._compiled()

        def function(v: Array) -> tuple[Array, Array]:
            value, slope = at(line.forward(v))
            return value, slope * np.exp(line.log_slope(v))

        found = inverse(function, np.asarray(transformed), increasing=self.increasing)
        return line.forward(found)
