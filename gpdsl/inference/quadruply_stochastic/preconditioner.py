"""Steps in a block of weights, preconditioned by values at support rows as in EigenPro (Ma and Belkin 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jaxtyping import Array, Float

from gpdsl.inference.quadruply_stochastic.weights import Index, own_column


@dataclass(frozen=True)
class Preconditioner:
    """P = (1 + tau) I + kappa Phi_s' Phi_s of a block; its inverse by Woodbury's formula, with one factor."""

    support: Float[Array, "s k"]
    factor: tuple[Array, bool]
    damping: Array

    def solve(self, vectors: Float[Array, "v k"]) -> Float[Array, "v k"]:
        """P^-1 times each vector."""
        inner = cho_solve(self.factor, self.support @ vectors.T)
        return (vectors - inner.T @ self.support) / (1.0 + self.damping)

    def directions(self, slope: Float[Array, "1+r k"], index: Index) -> Float[Array, "1+r k"]:
        """Of the mean, and of each dense column of C in its elements below the diagonal alone.

        The inverse of the part of P that belongs to those is P^-1 less what P^-1 says of the others (block inverse).
        For column c these are the functions 0 to c, so one Cholesky factor of the first r rows of P^-1 serves all.
        """
        columns = slope.shape[0] - 1
        if not columns:
            return self.solve(slope)
        first = own_column(columns, index)  # where the first r functions stand in this block
        above = jnp.asarray(jnp.arange(columns)[None, :] <= jnp.arange(columns)[:, None], slope.dtype)
        free = jnp.concatenate([jnp.ones_like(slope[:1]), 1.0 - above @ first])
        found = self.solve(slope * free)
        spread = self.solve(first)
        corner = spread @ first.T
        present = jnp.sum(first, axis=1)
        root = jnp.linalg.cholesky(corner + jnp.diag(1.0 - present))
        held = above.T * (first @ found[1:].T)
        half = above.T * solve_triangular(root, held, lower=True)
        weights = solve_triangular(root.T, half, lower=False)
        return (found - jnp.concatenate([jnp.zeros_like(slope[:1]), weights.T @ spread])) * free


def preconditioner(support: Float[Array, "s k"], ridge: Array, damping: Array) -> Preconditioner:
    """From the functions' values at the support rows; `ridge` is (1 + tau) / kappa."""
    gram = support @ support.T + ridge * jnp.eye(support.shape[0], dtype=support.dtype)
    return Preconditioner(support, cho_factor(gram, lower=True), damping)
