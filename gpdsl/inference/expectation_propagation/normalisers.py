"""log Z_n as a function of the cavities, with its first two derivatives in their means.

For a formula these come from automatic differentiation. For a sum over points f_s, Z = sum_s b_s N(f_s | a, V), they
follow from the mean and the covariance of the points under their weights in the sum, E and C:

    dz/da = V^-1 (E - a),      d2z/da2 = V^-1 C V^-1 - V^-1,

at the cost of one sum, where differentiation takes one for every latent of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from gpdsl.program.joint import Marginals, block_root


@dataclass(frozen=True)
class Derivatives:
    """log Z_n of each row, and its gradient and (block of) second derivatives in the mean of the cavity."""

    value: Float[Array, "rows"]
    slope: Float[Array, "rows latents"]
    curvature: Float[Array, "rows latents"] | Float[Array, "rows latents latents"]


class Normaliser(Protocol):
    """log Z_n as a function of the cavities."""

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        """The values; differentiable in what the likelihood and the cavities depend on."""

    def derivatives(self, cavity: Marginals) -> Derivatives:
        """Values with their derivatives in the cavities' means."""


@dataclass(frozen=True)
class Formula:
    """A closed form. `separate`: of a sum over latents, each of which enters a term of its own."""

    value: Callable[[Marginals], Float[Array, "rows"]]
    separate: bool

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        return self.value(cavity)

    def derivatives(self, cavity: Marginals) -> Derivatives:
        """By automatic differentiation, once for every latent unless they are separate."""

        def at(mean: Array) -> Array:
            return self.value(Marginals(mean[None], cavity.variance, cavity.covariance))

        def slope(mean: Array) -> Array:
            return jax.grad(lambda m: jnp.sum(at(m)))(mean)

        mean = cavity.mean[0]
        if self.separate:
            first, curvature = jax.jvp(slope, (mean,), (jnp.ones_like(mean),))
            return Derivatives(at(mean), first, curvature)

        def along(direction: Array) -> tuple[Array, Array]:
            return jax.jvp(slope, (mean,), (jnp.broadcast_to(direction, mean.shape),))

        first, second = jax.vmap(along, out_axes=(None, 2))(jnp.eye(mean.shape[1], dtype=mean.dtype))
        block = 0.5 * (second + jnp.swapaxes(second, 1, 2))
        own = jnp.diagonal(block, axis1=1, axis2=2)
        return Derivatives(at(mean), first, own if cavity.covariance is None else block)


@dataclass(frozen=True)
class EachLatent:
    """A sum over nodes for every latent by itself, where it is `read`; `behind` is log b, `rest` what reads none."""

    nodes: Float[Array, "S rows latents"]
    behind: Float[Array, "S rows latents"]
    read: Bool[Array, "rows latents"]
    rest: Float[Array, "rows"]

    def _terms(self, cavity: Marginals) -> Float[Array, "S rows latents"]:
        a, v = cavity.mean[0], cavity.variance[0]
        return self.behind - 0.5 * ((self.nodes - a) ** 2 / v + jnp.log(v))

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        return jnp.sum(jnp.where(self.read, logsumexp(self._terms(cavity), axis=0), 0.0), axis=1) + self.rest

    def derivatives(self, cavity: Marginals) -> Derivatives:
        a, v = cavity.mean[0], cavity.variance[0]
        terms = self._terms(cavity)
        each = logsumexp(terms, axis=0)
        weights = jnp.exp(terms - each)
        mean = jnp.sum(weights * self.nodes, axis=0)
        variance = jnp.sum(weights * (self.nodes - mean) ** 2, axis=0)
        slope, curvature = (mean - a) / v, (variance / v - 1.0) / v
        value = jnp.sum(jnp.where(self.read, each, 0.0), axis=1) + self.rest
        return Derivatives(value, jnp.where(self.read, slope, 0.0), jnp.where(self.read, curvature, 0.0))


@dataclass(frozen=True)
class Along:
    """A function of one linear function of the latents, whose slopes are the `direction` and whose law `law` gives."""

    inner: EachLatent
    law: Callable[[Marginals], Marginals]
    direction: Float[Array, "rows latents"]

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        return self.inner(self.law(cavity))

    def derivatives(self, cavity: Marginals) -> Derivatives:
        found, c = self.inner.derivatives(self.law(cavity)), self.direction
        if cavity.covariance is None:
            return Derivatives(found.value, c * found.slope, c**2 * found.curvature)
        return Derivatives(found.value, c * found.slope, c[:, :, None] * c[:, None, :] * found.curvature[..., None])


@dataclass(frozen=True)
class Together:
    """A sum over points of all latents of a row that are no sums, the columns `basis`; `behind` is log b."""

    points: Float[Array, "S rows J"]
    behind: Float[Array, "S rows"]
    basis: np.ndarray

    def _terms(self, cavity: Marginals, root: Float[Array, "rows J J"]) -> Float[Array, "S rows"]:
        gap = jnp.moveaxis(self.points - cavity.mean[0][..., self.basis], 0, -1)
        scaled = solve_triangular(root, gap, lower=True)
        log_det = jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
        return self.behind - 0.5 * jnp.moveaxis(jnp.sum(scaled**2, axis=-2), -1, 0) - log_det

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        return logsumexp(self._terms(cavity, root_of(cavity, self.basis)), axis=0)

    def derivatives(self, cavity: Marginals) -> Derivatives:
        root = root_of(cavity, self.basis)
        terms = self._terms(cavity, root)
        value = logsumexp(terms, axis=0)
        weights = jnp.exp(terms - value)
        mean = jnp.einsum("sn,snj->nj", weights, self.points)
        gap = self.points - mean
        spread = jnp.einsum("sni,snj->nij", weights[..., None] * gap, gap)
        identity = jnp.broadcast_to(jnp.eye(len(self.basis), dtype=root.dtype), root.shape)
        inverse = solve_triangular(root, identity, lower=True)
        precision = jnp.swapaxes(inverse, 1, 2) @ inverse
        first = jnp.einsum("nij,nj->ni", precision, mean - cavity.mean[0][..., self.basis])
        second = precision @ spread @ precision - precision
        rows, latents = cavity.mean.shape[1:]
        slope = jnp.zeros((rows, latents), first.dtype).at[:, self.basis].set(first)
        block = jnp.zeros((rows, latents, latents), first.dtype)
        block = block.at[:, self.basis[:, None], self.basis].set(0.5 * (second + jnp.swapaxes(second, 1, 2)))
        own = jnp.diagonal(block, axis1=1, axis2=2)
        return Derivatives(value, slope, own if cavity.covariance is None else block)


@dataclass(frozen=True)
class Corrected:
    """A sum over points of a surrogate, with the ratio of two others: log Z = whole + true - said."""

    whole: Together
    true: Together
    said: Together

    def __call__(self, cavity: Marginals) -> Float[Array, "rows"]:
        return self.whole(cavity) + self.true(cavity) - self.said(cavity)

    def derivatives(self, cavity: Marginals) -> Derivatives:
        whole, true, said = (each.derivatives(cavity) for each in (self.whole, self.true, self.said))
        return Derivatives(
            whole.value + true.value - said.value,
            whole.slope + true.slope - said.slope,
            whole.curvature + true.curvature - said.curvature,
        )


def root_of(q: Marginals, basis: np.ndarray) -> Float[Array, "rows J J"]:
    """Lower roots of the covariances of the latents that are no sums, row by row."""
    if q.covariance is not None:
        return block_root(q.covariance, basis)[0]
    return jnp.sqrt(q.variance[0][..., basis])[..., None] * jnp.eye(len(basis), dtype=q.mean.dtype)
