"""Basis functions of a latent, k(x, x') = phi(x)' S^-1 phi(x'), and q(w) = N(mu, C C') over their weights, C a chevron.

The first r columns of C are dense below the diagonal, the others have nothing but their diagonal element, which has a
closed form (QSGP Proposition 1): c_ii^2 = 1 / (s_ii + h_i), where h_i is the curvature of the expected log likelihood
in weight i. So the state holds mu, r columns and h, (r + 2) m numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from gpdsl.errors import GpdslError
from gpdsl.kernels.counters import Stream
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Values
from gpdsl.kernels.waves import turning, unsuited, waves
from gpdsl.lowering.table import cosine
from gpdsl.program.groups import Group, KernelValues, columns_of, kernel_values
from gpdsl.program.parameters import Unconstrained
from gpdsl.program.program import Program

# Basis functions of a latent: k(x, x') = phi(x)' S^-1 phi(x'), with any columns of Phi computed on their own.
#
# Random Fourier features (Rahimi and Recht 2007) are drawn again from a seed and their index wherever they are needed.

SHARED = 32
"""Columns from which on a cosine and a sine with one wave's turns take less time than two features on their own."""


class Features(Protocol):
    """m basis functions phi(x) and the prior precision S of their weights: f(x) = phi(x)'w, w ~ N(0, S^-1)."""

    @property
    def latent(self) -> Latent:
        """Whose functions they are."""

    @property
    def count(self) -> int:
        """m."""

    @property
    def diagonal(self) -> bool:
        """Whether S is diagonal."""

    def values(self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]) -> Float[Array, "n k"]:
        """Columns `index` of Phi at the points x: the latent's arguments side by side."""

    def consecutive(
        self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]
    ) -> Float[Array, "n k"]:
        """`values` at indices that follow each other, which may have much in common."""

    def precision(self, parameters: Unconstrained, index: Int[Array, "k"]) -> Float[Array, "k"]:
        """The diagonal of S at `index`."""

    def cross_precision(self, parameters: Unconstrained, i: Int[Array, "k"], j: Int[Array, "l"]) -> Float[Array, "k l"]:
        """Rows i and columns j of S."""


@dataclass(frozen=True)
class Latent:
    """One latent process of a program: the first element of `group`."""

    program: Program
    group: Group

    def kernel(self, parameters: Unconstrained) -> tuple[Array, tuple[Array, ...]]:
        """Its variance and the parameters of its form at these (unconstrained) values."""
        known = self.program.parameters.constrain(parameters)
        values: KernelValues = kernel_values(self.program.evaluator, self.group, known)
        return values.scale[0], tuple(argument[0] for argument in values.arguments)

    def covariance(
        self, parameters: Unconstrained, x: Float[Array, "n d"], other: Float[Array, "k d"] | None = None
    ) -> Float[Array, "n k"]:
        """The prior covariance of its values at points, with those at other points if there are any."""
        scale, arguments = self.kernel(parameters)
        return scale * covariance(self.group.form, arguments, Values(x), None if other is None else Values(other))


@dataclass(frozen=True)
class FourierFeatures:
    """Random Fourier features: feature 2 p is the cosine and feature 2 p + 1 the sine of wave p.

    Phi Phi' is k in expectation over the seed, and S is the identity. Waves that do not turn have no sine: of a kernel
    in which none does, every feature is a wave of its own.
    """

    latent: Latent
    count: int
    seed: int
    diagonal: bool = True

    @property
    def per_wave(self) -> int:
        """How many features a wave has."""
        return 2 if turning(self.latent.group.form) else 1

    def values(self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]) -> Float[Array, "n k"]:
        """Columns `index` of Phi."""
        scale, arguments = self.latent.kernel(parameters)
        number, part = jnp.divmod(jnp.asarray(index), self.per_wave)
        drawn = waves(self.latent.group.form, arguments, x, Stream(self.seed, number, x.dtype))
        strength = jnp.sqrt(scale * drawn.power * (self.per_wave / self.count))
        value = strength * cosine(drawn.turns(-0.25 * part.astype(x.dtype)))
        value = value if drawn.amplitude is None else value * drawn.amplitude
        return jnp.broadcast_to(value.astype(x.dtype), (x.shape[0], number.shape[0]))

    def consecutive(
        self, parameters: Unconstrained, x: Float[Array, "n d"], index: Int[Array, "k"]
    ) -> Float[Array, "n k"]:
        """`values`; where waves have many columns, each is drawn once for its cosine and its sine."""
        if self.per_wave == 1 or x.shape[1] < SHARED:
            return self.values(parameters, x, index)
        size, first = index.shape[0], index[0] // 2
        scale, arguments = self.latent.kernel(parameters)
        drawn = waves(
            self.latent.group.form, arguments, x, Stream(self.seed, first + jnp.arange(size // 2 + 1), x.dtype)
        )
        strength = jnp.sqrt(scale * drawn.power * (2 / self.count))
        amplitude = strength if drawn.amplitude is None else strength * drawn.amplitude
        turns = drawn.turns(jnp.zeros_like(drawn.power))
        both = cosine(turns[..., None] - jnp.asarray([0.0, 0.25], x.dtype)) * amplitude[..., None]
        both = jnp.broadcast_to(both.astype(x.dtype), (x.shape[0], *both.shape[-2:])).reshape(x.shape[0], -1)
        return jax.lax.dynamic_slice_in_dim(both, index[0] - 2 * first, size, axis=1)

    def precision(self, parameters: Unconstrained, index: Int[Array, "k"]) -> Float[Array, "k"]:
        """Ones."""
        return jnp.ones(jnp.shape(index), dtype_of(parameters))

    def cross_precision(self, parameters: Unconstrained, i: Int[Array, "k"], j: Int[Array, "l"]) -> Float[Array, "k l"]:
        """The identity."""
        return jnp.asarray(i[:, None] == j[None, :], dtype_of(parameters))


def dtype_of(parameters: Unconstrained) -> jnp.dtype:
    """The precision of some parameters; JAX's own where there are none."""
    return jnp.result_type(*parameters.values()) if parameters else jnp.zeros(()).dtype


def fourier_features(program: Program, count: int, seed: int) -> FourierFeatures:
    """`count` random Fourier features of the first latent process of the program.

    Raises GpdslError when a part of its kernel has none.
    """
    latent = Latent(program, program.groups[0])
    why = unsuited(latent.group.form, columns_of(latent.group, program.translator))
    if why is not None:
        name = latent.group.names[0]
        raise GpdslError(f"latent `{name}` has no random Fourier features: {why}; use basis = inducing, or engine = vi")
    return FourierFeatures(latent, count, seed)


# q(w) = N(mu, C C') over the weights of m basis functions, C a chevron: its state, and any block of it.

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
