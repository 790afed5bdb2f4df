"""Predictive distributions of outputs observed through a transform: those of the transform, taken back.

Quantiles, and so medians, are exact: t^-1 of the quantile of t(y). Means and variances are integrals over t(y).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from gpdsl.inference.estimators.expected_log_likelihood import gauss_hermite
from gpdsl.results import expectation as ex
from gpdsl.results.inverse import inverse
from gpdsl.results.predictive import Predictive, ValuesOf
from gpdsl.symbolic.curves import LINES
from gpdsl.symbolic.warps import Warp

NODES = 100
REACH, STEP = 3.0, 0.1
"""Range and spacing of the double-exponential rule over the quantiles of a transform that is not Gaussian."""

TAILS = (1e-9, 1e-12)
"""Probabilities beyond quantiles, between which the tail of an output is measured."""

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Warped:
    """One observation of `warp` at the rows of `beliefs`, where `base` describes the transformed value."""

    beliefs: ex.Beliefs
    base: Predictive
    warp: Warp

    def mean(self) -> Array:
        """Mean of the output."""
        return self._moments()[0]

    def variance(self) -> Array:
        """Variance of the output."""
        return self._moments()[1]

    def quantile(self, p: float) -> Array:
        """Exact: the quantile of the transform taken back, or the opposite one when the transform decreases."""
        return self.back(self.base.quantile(p if self.increasing else 1.0 - p))

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
        evaluator, keys = self.beliefs.program.evaluator, self.base.keys

        def both(numbers: tuple, y: jnp.ndarray) -> tuple:
            beliefs, given = self.beliefs.with_numbers(numbers), {self.warp.symbol: y}
            value, slope = (evaluator(e, beliefs.scope(), keys, given) for e in (self.warp.value, self.warp.slope))
            return jnp.broadcast_to(value, y.shape), jnp.broadcast_to(slope, y.shape)

        compiled, numbers = self.beliefs.compile(("warp", self.warp.value, keys), both), self.beliefs.numbers()

        def at(y: Array) -> tuple[Array, Array]:
            value, slope = compiled(numbers, jnp.asarray(y))
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

    def _moments(self) -> tuple[Array, Array]:
        values, weights = self._nodes()
        outputs = self.back(values)
        weights = weights.reshape(-1, *(1,) * (outputs.ndim - 1))
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.sum(weights * outputs, axis=0)
            variance = np.sum(weights * (outputs - mean) ** 2, axis=0)
        power = self._power()
        mean = np.where(power < 1.0, mean, np.nan)
        return mean, np.where(power < 0.5, variance, np.where(power < 1.0, np.inf, np.nan))

    def _power(self) -> Array:
        """How fast quantiles run away, as (probability beyond)^-power: 1 and above is no mean, 1/2 no variance."""
        if self.base.normal() is not None:
            return np.zeros(self._shape)
        steps = []
        for near, far in ((TAILS[0], TAILS[1]), (1.0 - TAILS[0], 1.0 - TAILS[1])):
            with np.errstate(all="ignore"):
                ends = [np.log(np.abs(self.quantile(p))) for p in (near, far)]
                steps.append((ends[1] - ends[0]) / np.log(TAILS[0] / TAILS[1]))
        return np.nan_to_num(np.maximum(*steps), nan=np.inf)

    def _nodes(self) -> tuple[Array, Array]:
        """Values [nodes, rows, *keys] of the transform, and weights of their rule."""
        exact = self.base.normal()
        if exact is not None:
            nodes, weights = gauss_hermite(1, NODES)
            mean, sd = (
                np.broadcast_to(each, (len(self.beliefs.weights), *self._shape))
                for each in (exact[0], np.sqrt(exact[1]))
            )
            column = nodes[:, 0].reshape(-1, *(1,) * mean.ndim)
            joint = weights[:, None] * self.beliefs.weights[None, :]
            return (mean + sd * column).reshape(-1, *self._shape), joint.reshape(-1)
        t = np.arange(-REACH, REACH + STEP / 2, STEP)
        p = 1 / (1 + np.exp(-np.pi * np.sinh(t)))
        weights = STEP * np.pi * np.cosh(t) * p * (1 - p)
        return np.stack([self.base.quantile(each) for each in p]), weights / weights.sum()
