"""The dense columns of C, from solutions X = H^-1 [e_1 .. e_r] with the precision H of the weights.

The bound in the columns c_1 .. c_r, with zeros above the diagonal, is largest where they are the first columns of the
Cholesky factor of H^-1. These are X L^-T, and L L' = X'HX is the corner of H^-1. So the columns need no steps of their
own: X solves the same equations as the mean does, with e_i in place of the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.inference.quadruply_stochastic.weights import Index, Weights, below_diagonal, own_column


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lengths:
    """X'HX in its two parts: X'SX, and X'Phi'W Phi X as batches estimate it.

    It is positive definite and bounds X'SX for any X, so that no column is longer than the prior's while X converges.
    """

    prior: Float[Array, "r r"]
    likelihood: Float[Array, "r r"]

    @property
    def root(self) -> Float[Array, "r r"]:
        """L."""
        total = self.prior + self.likelihood
        return jnp.linalg.cholesky(total) if total.size else total

    def columns(self, solutions: Float[Array, "r k"]) -> Float[Array, "r k"]:
        """(X L^-T)' of solutions, or of their values at rows, given as X'."""
        return solve_triangular(self.root, solutions, lower=True) if solutions.shape[0] else solutions

    def weights(self, held: Weights, index: Index) -> Weights:
        """q of some functions from the mean and the solutions."""
        own = own_column(held.columns, index)
        dense = self.columns(jnp.asarray(held.vectors[1:])) * below_diagonal(held.columns, index)
        dense = jnp.where(own > 0, jnp.diagonal(self.root)[:, None], dense)
        return Weights(jnp.concatenate([held.vectors[:1], dense]), held.curvature)


def first_functions(held: Weights) -> Float[Array, "columns m"]:
    """Zeros for the mean, and a unit vector for each solution: what they are without any row."""
    ranks = jnp.arange(held.columns)
    return jnp.zeros_like(held.vectors).at[1 + ranks, ranks].set(1.0)


def solutions_of(q: Weights, *, fresh: bool) -> tuple[Weights, Lengths]:
    """Solutions that give the dense columns of q, for S = I: X = C L' with the corner L of C, where H C = E L^-T.

    A fresh q knows no row: its columns are multiples of the unit vectors that its solutions are.
    """
    columns = jnp.asarray(q.vectors[1:])
    corner = columns[:, : q.columns].T
    root = jnp.linalg.inv(corner) if fresh and q.columns else corner
    solved = root @ columns
    prior = solved @ solved.T
    return replace(q, vectors=jnp.concatenate([q.vectors[:1], solved])), Lengths(prior, root @ root.T - prior)
