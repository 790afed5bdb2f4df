"""q(w) = N(mu, C C') over the weights of m basis functions, C a chevron: its state, and any block of it.

The first r columns of C are dense below the diagonal, the others have nothing but their diagonal element, which has a
closed form (QSGP Proposition 1): c_ii^2 = 1 / (s_ii + h_i), where h_i is the curvature of the expected log likelihood
in weight i. So the state holds mu, r columns and h, (r + 2) m numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

Index = Int[Array, "k"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Weights:
    """The numbers of q(w), for all basis functions or some of them.

    `vectors` holds the mean and after it the dense columns of C; `curvature` is h.
    """

    vectors: Float[Array | np.ndarray, "columns m"]
    curvature: Float[Array | np.ndarray, "m"]

    @property
    def columns(self) -> int:
        """r, the number of dense columns."""
        return self.vectors.shape[0] - 1

    def at(self, index: Index) -> Weights:
        """Those of some basis functions: a gather of O(k)."""
        return Weights(self.vectors[:, index], self.curvature[index])

    def deviation(self, precision: Float[Array, "k"], index: Index) -> Float[Array, "k"]:
        """The diagonal elements of C that stand alone in their columns, 0 for functions with a dense column.

        They belong to q: a gradient in the hyperparameters, with q held, sees none of them.
        """
        alone = 1.0 / jnp.sqrt(jax.lax.stop_gradient(precision) + self.curvature)
        return jnp.where(index < self.columns, 0.0, alone)


def start_weights(features: int, columns: int, curvature: float, dtype: str) -> Weights:
    """The prior mean; dense columns start as those of the mean field, by the closed form for this curvature."""
    scale = 1.0 / (1.0 + curvature) ** 0.5
    vectors = jnp.zeros((1 + columns, features), dtype)
    ranks = jnp.arange(columns)
    return Weights(vectors.at[1 + ranks, ranks].set(scale), jnp.full(features, curvature, dtype))


def block(start: Int[Array, ""] | int, size: int, features: int) -> Index:
    """`size` basis functions from `start` on, in a ring.

    A start drawn uniformly gives every function the same chance, at a cost that does not depend on how many there are,
    so that sums over a block, times m / size, are unbiased; no function is drawn twice.
    """
    return jnp.mod(start + jnp.arange(size), features)


def below_diagonal(columns: int, index: Index) -> Float[Array, "r k"]:
    """Where the dense columns of C have elements, 1.0 on and below the diagonal."""
    return jnp.asarray(index[None, :] >= jnp.arange(columns)[:, None], float)


def own_column(columns: int, index: Index) -> Float[Array, "r k"]:
    """1.0 at the diagonal elements of the dense columns of C."""
    return jnp.asarray(index[None, :] == jnp.arange(columns)[:, None], float)


def log_diagonal(q: Weights, precision: Float[Array, "k"], index: Index) -> Float[Array, "k"]:
    """log c_ii of the functions of a block."""
    alone = -0.5 * jnp.log(jax.lax.stop_gradient(precision) + q.curvature)
    if not q.columns:
        return alone
    own = jnp.sum(own_column(q.columns, index) * q.vectors[1:], axis=0)
    dense = index < q.columns
    return jnp.where(dense, jnp.log(jnp.where(dense, own, 1.0)), alone)


def divergence(q: Weights, precision: Float[Array, "k"], index: Index) -> Float[Array, "k"]:
    """What each function of a block adds to KL(q(w) || N(0, S^-1)), for a diagonal S: QSGP eq. 2.

    Sums over a block, times m / k, are unbiased for the sum over all (Theorems 1 and 2, Proposition 2).
    """
    size = jnp.sum(q.vectors**2, axis=0) + q.deviation(precision, index) ** 2
    return 0.5 * (precision * size - 1.0 - jnp.log(precision)) - log_diagonal(q, precision, index)


# The dense columns of C, from solutions X = H^-1 [e_1 .. e_r] with the precision H of the weights.
#
# The bound in the columns c_1 .. c_r, with zeros above the diagonal, is largest where they are the first columns of
# the Cholesky factor of H^-1. These are X L^-T, and L L' = X'HX is the corner of H^-1. So the columns need no steps of
# their own: X solves the same equations as the mean does, with e_i in place of the data.


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
