"""The bound of a model with fields, and the derivatives that natural gradients need: all rows read all values at once.

With the whitened values w of all fields together, f = mean + A w and q(w) = N(m, V), the observations do not
factorise over values, but they are a function of f alone. Bonnet's and Price's theorems give the gradients of the
expected log likelihood from its derivatives in f, whatever the dimension of f:

    dL_ell/dm = A' E_q[grad l(f)],      dL_ell/dV = A' E_q[hess l(f)] A / 2,

so that q is best where V^-1 = I - A' E_q[hess l] A and m = A' E_q[grad l] (SAVIGP eq. 34 for one site over all of f).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.inference.expected_log_likelihood import log_density
from gpdsl.inference.fields.calls import Emulator, emulated
from gpdsl.kernels.numerics import log_det_factor
from gpdsl.program.evaluation import Roots, deviations, field_means, roots
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope, row_count

Learnt = Mapping[str, Array]
Known = Mapping[str, Emulator | Array]
"""What stands for each opaque function: an emulator, or its results at the fields in question."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Joint:
    """q of all whitened values: its mean, and the lower Cholesky factor of its precision."""

    mean: Float[Array, "D"]
    factor: Float[Array, "D D"]

    def root(self) -> Float[Array, "D D"]:
        """A root of the covariance: root root' = V."""
        return solve_triangular(self.factor, jnp.eye(len(self.mean), dtype=self.mean.dtype), lower=True, trans=1)

    def divergence(self) -> Float[Array, ""]:
        """KL from the prior N(0, I)."""
        spread = jnp.sum(self.root() ** 2) + jnp.sum(self.mean**2)
        return 0.5 * (spread - len(self.mean) + log_det_factor(self.factor))


@dataclass(frozen=True)
class FieldBound:
    """The functions of one problem that get compiled. They take numbers only, so that new ones need no compilation."""

    program: Program
    jitter: float

    def log_likelihood(self, learnt: Learnt, values: Float[Array, "D"], rows: Rows, known: Known) -> Float[Array, ""]:
        """log p(all observations | fields)."""
        return self.given(self.program.parameters.constrain(learnt), values, rows, known)

    def given(
        self, parameters: Mapping[str, Array], values: Float[Array, "D"], rows: Rows, known: Known
    ) -> Float[Array, ""]:
        """The same at parameters in their domains."""
        latents, count = values[None], row_count(rows)
        scope = Scope(parameters, rows, latents, emulated(self.program, parameters, rows, latents, known))
        return jnp.sum(log_density(self.program, scope, (count,)))

    def fields(self, learnt: Learnt, white: Float[Array, "D S"]) -> Float[Array, "S D"]:
        """Values of all fields."""
        return self.fields_given(self.program.parameters.constrain(learnt), white)

    def fields_given(self, parameters: Mapping[str, Array], white: Float[Array, "D S"]) -> Float[Array, "S D"]:
        """The same at parameters in their domains."""
        around = deviations(self.program, roots(self.program, parameters, self.jitter), white)
        return (field_means(self.program, parameters)[:, None] + around).T

    def value(
        self,
        learnt: Learnt,
        q: Joint,
        normals: Float[Array, "S D"],
        rows: Rows,
        known: Known,
        curvature: Float[Array, "D D"],
    ) -> Float[Array, ""]:
        """The bound, its expectation over the samples that `normals` make.

        `curvature` is a Hessian in the values: the quadratic form with it, whose expectation is known, is a control
        variate that leaves nothing to sample where the likelihood is Gaussian and the fields enter linearly.
        """
        around = deviations(self.program, self._roots(learnt), q.root() @ normals.T).T
        centre = self.fields(learnt, q.mean[:, None])[0]
        values = jax.lax.map(lambda each: self.log_likelihood(learnt, centre + each, rows, known), around)
        loaded = deviations(self.program, self._roots(learnt), q.root())
        known_part = 0.5 * jnp.sum(loaded * (curvature @ loaded))
        sampled_part = 0.5 * jnp.sum(around * (around @ curvature), axis=1)
        prior = self.program.log_prior(self.program.parameters.constrain(learnt))
        return jnp.mean(values - sampled_part) + known_part - q.divergence() + prior

    def sloped(self, *arguments: Any) -> tuple[Float[Array, ""], Learnt]:
        """The same, and its gradient in the parameters."""
        return jax.value_and_grad(self.value)(*arguments)

    def target(
        self, learnt: Learnt, q: Joint, normals: Float[Array, "S D"], rows: Rows, known: Known
    ) -> tuple[Float[Array, "D"], Float[Array, "D D"], Float[Array, "D D"]]:
        """The gradient A' E[grad l], the precision I - A' E[hess l] A that q has if it stays, and E[hess l]."""
        drawn = self.fields(learnt, q.mean[:, None] + q.root() @ normals.T)

        def derivatives(f: Array) -> tuple[Array, Array]:
            of = lambda at: self.log_likelihood(learnt, at, rows, known)  # noqa: E731
            return jax.grad(of)(f), jax.hessian(of)(f)

        slopes, curvatures = jax.lax.map(derivatives, drawn)
        identity = jnp.eye(drawn.shape[1], dtype=drawn.dtype)
        loading, curvature = deviations(self.program, self._roots(learnt), identity), jnp.mean(curvatures, axis=0)
        return loading.T @ jnp.mean(slopes, axis=0), identity - loading.T @ curvature @ loading, curvature

    def _roots(self, learnt: Learnt) -> Roots:
        return roots(self.program, self.program.parameters.constrain(learnt), self.jitter)


def moved(q: Joint, gradient: Float[Array, "D"], precision: Float[Array, "D D"], rate: Any) -> Joint:
    """A natural-gradient step; a short one is a part of a whole one, in the mean and in the precision.

    (The mean's own short step would divide by the precision that it leads to, which may still be far too small.)
    """
    mixed = (1.0 - rate) * (q.factor @ q.factor.T) + rate * precision
    step = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(precision), True), gradient - q.mean)
    return Joint(q.mean + rate * step, jnp.linalg.cholesky(0.5 * (mixed + mixed.T)))


def reflected(precision: Float[Array, "D D"]) -> Float[Array, "D D"]:
    """A matrix with its negative eigenvalues turned positive, for a step from where the likelihood is convex."""
    values, vectors = jnp.linalg.eigh(0.5 * (precision + precision.T))
    return (vectors * jnp.abs(values)) @ vectors.T


def start(dimension: int, sd: float, dtype: Any) -> Joint:
    """Around the prior mean, with this share of its standard deviation."""
    return Joint(jnp.zeros(dimension, dtype), jnp.eye(dimension, dtype=dtype) / sd)


def difference(a: Joint, b: Joint) -> Float[Array, ""]:
    """The mean of the KL divergences of two Gaussians from each other."""
    gap = a.mean - b.mean
    spread = jnp.sum((a.factor.T @ b.root()) ** 2) + jnp.sum((b.factor.T @ a.root()) ** 2) - 2 * len(gap)
    apart = jnp.sum((a.factor.T @ gap) ** 2) + jnp.sum((b.factor.T @ gap) ** 2)
    return 0.25 * (spread + apart)
