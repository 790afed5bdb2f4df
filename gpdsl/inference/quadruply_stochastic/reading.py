"""What engines and predictions read of a program with weights: its one latent's basis functions at rows."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.quadruply_stochastic.features import Features
from gpdsl.inference.quadruply_stochastic.weights import Index, Weights, divergence, log_diagonal
from gpdsl.program.evaluation import stack_inputs
from gpdsl.program.parameters import Unconstrained
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows


def inputs_of(program: Program, rows: Rows) -> Float[Array, "n d"]:
    """The arguments of the latent at the rows, side by side."""
    return stack_inputs(program.groups[0].inputs, rows)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Seen:
    """A block of basis functions at some points: their values, q's numbers and the diagonal of S.

    `projected` are the block's shares of Phi [mu, C], and `spread` that of the variance from C's lone diagonal.
    """

    index: Index
    values: Float[Array, "n k"]
    q: Weights
    precision: Float[Array, "k"]

    @property
    def projected(self) -> Float[Array, "n columns"]:
        """Phi times the mean and the dense columns."""
        return self.values @ self.q.vectors.T

    @property
    def spread(self) -> Float[Array, "n"]:
        """Sum of phi_i^2 c_ii^2 over the functions without a dense column."""
        return self.values**2 @ self.q.deviation(self.precision, self.index) ** 2


def see(features: Features, learnt: Unconstrained, x: Float[Array, "n d"], index: Index, q: Weights) -> Seen:
    """The functions `index` at the points x, of which `q` holds the numbers."""
    return Seen(index, features.values(learnt, x, index), q, features.precision(learnt, index))


def moments(
    features: Features, learnt: Unconstrained, x: Float[Array, "n d"], q: Weights, size: int
) -> tuple[Float[Array, "n columns"], Float[Array, "n"]]:
    """Phi [mu, C_1..r] and the variance of Phi w under q, from all functions, `size` at a time.

    The first column is the mean of f above its prior mean; memory is that of n by `size` values.
    """
    size = min(size, features.count)

    def add(total: tuple[Array, Array], number: Array) -> tuple[tuple[Array, Array], None]:
        index, live = slab(number, size, features.count)
        values = features.consecutive(learnt, x, index) * live
        seen = Seen(index, values, q.at(index), features.precision(learnt, index))
        return (total[0] + seen.projected, total[1] + seen.spread), None

    start = jnp.zeros((x.shape[0], 1 + q.columns), x.dtype), jnp.zeros(x.shape[0], x.dtype)
    (projected, spread), _ = jax.lax.scan(add, start, jnp.arange(slabs(features.count, size)))
    return projected, spread + jnp.sum(projected[:, 1:] ** 2, axis=1)


def covariances(
    features: Features, learnt: Unconstrained, x: Float[Array, "n d"], q: Weights, size: int
) -> Float[Array, "n n"]:
    """Covariances of Phi w under q between points, Phi C C' Phi', from all functions, `size` at a time."""
    size = min(size, features.count)

    def add(total: tuple[Array, Array], number: Array) -> tuple[tuple[Array, Array], None]:
        index, live = slab(number, size, features.count)
        values, part = features.consecutive(learnt, x, index) * live, q.at(index)
        lone = values * part.deviation(features.precision(learnt, index), index)
        return (total[0] + values @ part.vectors[1:].T, total[1] + lone @ lone.T), None

    start = jnp.zeros((x.shape[0], q.columns), x.dtype), jnp.zeros((x.shape[0], x.shape[0]), x.dtype)
    (dense, lone), _ = jax.lax.scan(add, start, jnp.arange(slabs(features.count, size)))
    return dense @ dense.T + lone


def whole_divergence(features: Features, learnt: Unconstrained, q: Weights, size: int) -> Float[Array, ""]:
    """KL(q || N(0, S^-1)), a block after the other; for a dense S without its constant -(m + log |S|) / 2.

    A dense S takes all pairs of blocks, O(m^2) once.
    """
    size = min(size, features.count)
    blocks = jnp.arange(slabs(features.count, size))

    def add(total: Array, number: Array) -> tuple[Array, None]:
        index, live = slab(number, size, features.count)
        part, precision = q.at(index), features.precision(learnt, index)
        if features.diagonal:
            return total + jnp.sum(divergence(part, precision, index) * live), None
        vectors = part.vectors * live

        def pair(sum_: Array, other: Array) -> tuple[Array, None]:
            there, seen = slab(other, size, features.count)
            cross = features.cross_precision(learnt, index, there)
            return sum_ + 0.5 * jnp.sum((vectors @ cross) * q.at(there).vectors * seen), None

        squares, _ = jax.lax.scan(pair, jnp.zeros((), vectors.dtype), blocks)
        alone = 0.5 * precision * part.deviation(precision, index) ** 2 - log_diagonal(part, precision, index)
        return total + squares + jnp.sum(alone * live), None

    total, _ = jax.lax.scan(add, jnp.zeros((), q.vectors.dtype), blocks)
    return total


def slabs(count: int, size: int) -> int:
    """How many blocks of `size` cover `count` functions."""
    return -(-count // size)


def slab(number: Array | int, size: int, count: int) -> tuple[Index, Float[Array, "k"]]:
    """The functions of one block of a pass over all, and 1.0 for those no block before it has: the last ends with m."""
    start = jnp.minimum(number * size, count - size)
    index = start + jnp.arange(size)
    return index, jnp.asarray(index >= number * size, float)
