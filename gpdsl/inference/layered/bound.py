"""The bound of layers: what is expected of the last one over samples of the others, less divergences (SGPVI eq. 78).

With S replicas of the variables of rows, log of the mean of their weights stands in place of the expectation
(SGPVI eqs. 77 and 82), and rises towards the log of the integral over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from gpdsl.inference.estimators.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.layered.propagation import Drawn, Layers, Posterior
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import row_features
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.rows import Rows, row_count

SAMPLED = 4
"""Samples of the last layer for each pass, where its expectation has no formula and no quadrature."""


@dataclass(frozen=True)
class Expected:
    """The part of the bound that is a sum over rows, estimated from some of them in `samples` passes.

    Each pass has as many replicas of a row as the layers say.
    """

    layers: Layers
    samples: int
    total: int

    def __call__(
        self,
        parameters: Mapping[str, Array],
        inducing: Sequence[Functionals],
        posterior: Mapping[int, Posterior],
        rows: Rows,
        key: Array,
        jitter: Array | float,
    ) -> Float[Array, ""]:
        """Expected log likelihood less divergences of row variables, as of all rows."""
        program, replicas = self.layers.program, self.layers.replicas
        shape = self.samples * replicas, row_count(rows)
        own, other = jax.random.split(key)
        normals = jax.random.normal(own, (*shape, program.latents), precision_of(inducing))
        variables = {place: self._moments(posterior[place], rows, normals.dtype) for place in self.variables}
        white = {place: mean + sd * normals[..., self._own(place)] for place, (mean, sd) in variables.items()}

        def likelihood(white: Mapping[int, Array]) -> Float[Array, "S rows"]:
            found = self.layers.marginals(parameters, inducing, posterior, rows, Drawn(normals, white), jitter)
            given = None
            if program.sampled:
                # replicas see the same functions: of noise of their own, the log of a mean weight would take the best
                given = jax.random.normal(other, (SAMPLED, self.samples, *normals.shape[1:]), normals.dtype)
                given = jnp.repeat(given, replicas, axis=1)
            return expected_log_likelihood(program, parameters, rows, found, given)

        apart = [place for place in self._rows if replicas == 1 or place not in variables]
        costs = sum(_divergence(posterior[place], rows) for place in apart)
        values = likelihood(white) if replicas == 1 else self._weighed(likelihood, white, variables)
        return self.total / shape[1] * (jnp.sum(jnp.mean(values, axis=0)) - costs)

    @property
    def variables(self) -> tuple[int, ...]:
        """The places of row variables that latents are functions of."""
        program = self.layers.program
        return tuple(p for p in self._rows if set(program.groups[p].names) & program.inner)

    @property
    def _rows(self) -> tuple[int, ...]:
        return tuple(place for place, group in enumerate(self.layers.program.groups) if group.per_row)

    def _moments(self, q: Posterior, rows: Rows, dtype: Any) -> tuple[Array, Array]:
        """Means and standard deviations of the rows' variables, [rows, elements]."""
        mean, variance = q.moments(row_features(rows, dtype))
        return mean[0].T, jnp.sqrt(variance[0].T)

    def _own(self, place: int) -> slice:
        group = self.layers.program.groups[place]
        return slice(group.start, group.stop)

    def _weighed(
        self, likelihood: Callable[[Any], Array], white: dict[int, Array], variables: Mapping[int, tuple[Array, Array]]
    ) -> Float[Array, "samples rows"]:
        """Log of the mean weight of a row's replicas, p(y, w) / q(w).

        Where nothing else ties replicas to each other, the gradient in q(w) is the doubly reparameterised one (Tucker
        et al., 2019): the score of a weight is zero in expectation, and what is left goes with squares of weights. The
        plain one drowns in noise as there are more replicas (Rainforth et al., 2018).
        """
        apart = not self.layers.ties_replicas

        def weights(white: Mapping[int, Array]) -> Float[Array, "samples replicas rows"]:
            found = likelihood(white)
            for place, (mean, sd) in variables.items():
                m, s = (stop_gradient(mean), stop_gradient(sd)) if apart else (mean, sd)
                found = found + jnp.sum(0.5 * ((white[place] - m) / s) ** 2 + jnp.log(s), axis=-1)
                found = found - 0.5 * jnp.sum(white[place] ** 2, axis=-1)
            return found.reshape(self.samples, self.layers.replicas, -1)

        if apart:
            share = jax.nn.softmax(stop_gradient(weights(white)), axis=1)
            white = {p: _slowed(value, share.reshape(*value.shape[:2], 1)) for p, value in white.items()}
        return logsumexp(weights(white), axis=1) - jnp.log(self.layers.replicas)


@jax.custom_vjp
def _slowed(value: Array, share: Array) -> Array:
    """The value itself, with a gradient that is a share of its own."""
    return value


_slowed.defvjp(lambda value, share: (value, share), lambda share, slope: (slope * share, jnp.zeros_like(share)))


def precision_of(inducing: Sequence[Functionals]) -> Any:
    """The precision of a fit."""
    return jax.tree.leaves(inducing)[0].dtype


def _divergence(q: Posterior, rows: Rows) -> Float[Array, ""]:
    """Of the variables of some rows from their prior."""
    mean, variance = q.moments(row_features(rows, jnp.zeros(()).dtype))
    return 0.5 * jnp.sum(variance + mean**2 - 1.0 - jnp.log(variance))


def divergence(q: Whitened) -> Float[Array, ""]:
    """Of whitened inducing values from their prior; the root is lower triangular."""
    diagonal = jnp.diagonal(q.root, axis1=-2, axis2=-1)
    return 0.5 * (jnp.sum(q.mean**2) + jnp.sum(q.root**2) - diagonal.size - 2.0 * jnp.sum(jnp.log(jnp.abs(diagonal))))
