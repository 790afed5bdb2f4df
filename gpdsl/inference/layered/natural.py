"""Natural gradients for the last layer: from the expectations' slopes in mean and covariance, in one linear step.

With p(w) = N(0, I) and E the expected log likelihood, q moves towards precision I - 2 dE/dS and precision times mean
dE/dm - 2 dE/dS m, a share of the way in both; that is a step of natural gradients (Salimbeni, Eleftheriadis and
Hensman, 2018). Of log-concave likelihoods dE/dS has no positive eigenvalue, so that every such q is a Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.inference.posteriors.family import Whitened, project
from gpdsl.inference.posteriors.features import Features


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Gaussians:
    """One Gaussian of the whitened inducing values of each latent, by its covariance: what slopes are taken in."""

    mean: Float[Array, "1 latents M"]
    covariance: Float[Array, "1 latents M M"]

    def moments(self, features: Features) -> tuple[Float[Array, "1 latents rows"], Float[Array, "1 latents rows"]]:
        """Means and variances at the features' rows, at unit kernel scale."""
        variance = jnp.sum((features.phi @ self.covariance) * features.phi, axis=-1) + features.residual
        return project(features, self.mean), variance


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Precise:
    """The same by Cholesky factors of precisions."""

    mean: Float[Array, "1 latents M"]
    factor: Float[Array, "1 latents M M"]

    @classmethod
    def prior(cls, latents: int, inducing: int, dtype: jnp.dtype) -> Precise:
        """The prior."""
        factor = jnp.broadcast_to(jnp.eye(inducing, dtype=dtype), (1, latents, inducing, inducing))
        return cls(jnp.zeros((1, latents, inducing), dtype), factor)

    @classmethod
    def of(cls, q: Whitened) -> Precise:
        """Those of roots of covariances."""
        root = jnp.asarray(q.root)
        precision = jnp.linalg.inv(root @ jnp.swapaxes(root, -1, -2))
        return cls(jnp.asarray(q.mean), jnp.linalg.cholesky(0.5 * (precision + jnp.swapaxes(precision, -1, -2))))

    def gaussians(self) -> Gaussians:
        """By their covariances."""
        root = self._root()
        return Gaussians(self.mean, root @ jnp.swapaxes(root, -1, -2))

    def divergence(self, known: Gaussians) -> Float[Array, ""]:
        """From the prior; `known` are `gaussians`."""
        logs = jnp.log(jnp.diagonal(self.factor, axis1=-2, axis2=-1))
        squares = jnp.sum(self.mean**2) + jnp.sum(jnp.diagonal(known.covariance, axis1=-2, axis2=-1))
        return 0.5 * (squares - logs.size) + jnp.sum(logs)

    def whitened(self) -> Whitened:
        """By lower triangular roots of their covariances."""
        return Whitened(self.mean, jnp.linalg.cholesky(self.gaussians().covariance))

    def moved(self, slope: Gaussians, share: Array | float) -> Precise:
        """A share of the way along a natural gradient; where that leads to no Gaussian, it stays."""
        bend = 0.5 * (slope.covariance + jnp.swapaxes(slope.covariance, -1, -2))
        identity = jnp.eye(self.mean.shape[-1], dtype=self.mean.dtype)
        before = self.factor @ jnp.swapaxes(self.factor, -1, -2)
        precision = (1.0 - share) * before + share * (identity - 2.0 * bend)
        told = slope.mean - 2.0 * jnp.einsum("klij,klj->kli", bend, self.mean)
        linear = (1.0 - share) * jnp.einsum("klij,klj->kli", before, self.mean) + share * told
        factor = jnp.linalg.cholesky(precision)
        half = solve_triangular(factor, linear[..., None], lower=True)
        mean = solve_triangular(factor, half, lower=True, trans=1)[..., 0]
        sound = jnp.all(jnp.isfinite(factor)) & jnp.all(jnp.isfinite(mean))
        return Precise(jnp.where(sound, mean, self.mean), jnp.where(sound, factor, self.factor))

    def _root(self) -> Float[Array, "1 latents M M"]:
        identity = jnp.broadcast_to(jnp.eye(self.mean.shape[-1], dtype=self.mean.dtype), self.factor.shape)
        return solve_triangular(self.factor, identity, lower=True, trans=1)
