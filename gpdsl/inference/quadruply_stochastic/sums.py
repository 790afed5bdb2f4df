"""Sums over all basis functions at the rows of a batch, and what the rows of a batch add to all weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float, Int

from gpdsl.data.table import stays_on_disk
from gpdsl.inference.problem import Problem, as_arrays
from gpdsl.inference.quadruply_stochastic.weights import Features, Index, Weights, divergence, log_diagonal
from gpdsl.program.evaluation import stack_inputs
from gpdsl.program.parameters import Unconstrained
from gpdsl.program.program import Program, take_rows
from gpdsl.program.rows import Rows

# Where the rows of a batch are: on the device with all others, or on disk, from which they are read when needed.

Total = TypeVar("Total")

Places = Int[np.ndarray, "..."]


def located(problem: Problem, *indices: Places) -> tuple[Rows, tuple[Array, ...]]:
    """Rows that hold those of the indices, and the indices there, each in the shape given.

    These are all rows of the problem, or of memory maps the ones asked for.
    """
    if not any(map(stays_on_disk, jax.tree.leaves(problem.rows))):
        return problem.rows, tuple(map(jnp.asarray, indices))
    flat = np.concatenate([np.ravel(index) for index in indices])
    ends = np.cumsum([np.size(index) for index in indices])
    places = np.split(np.arange(len(flat)), ends[:-1])
    shaped = (jnp.asarray(place.reshape(index.shape)) for place, index in zip(places, indices, strict=True))
    return gathered(problem, flat), tuple(shaped)


def gathered(problem: Problem, index: Places) -> Rows:
    """Some rows by themselves, on the device."""
    return as_arrays(take_rows(problem.rows, index), problem.options.dtype)


# Sums over all basis functions at the rows of a batch, and what the rows of a batch add to all weights.

# What engines and predictions read of a program with weights: its one latent's basis functions at rows.


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

    def add(total: tuple[Array, Array], index: Index, live: Array) -> tuple[Array, Array]:
        values = features.consecutive(learnt, x, index) * live
        seen = Seen(index, values, q.at(index), features.precision(learnt, index))
        return total[0] + seen.projected, total[1] + seen.spread

    start = jnp.zeros((x.shape[0], 1 + q.columns), x.dtype), jnp.zeros(x.shape[0], x.dtype)
    projected, spread = over_slabs(features.count, size, add, start)
    return projected, spread + jnp.sum(projected[:, 1:] ** 2, axis=1)


def covariances(
    features: Features, learnt: Unconstrained, x: Float[Array, "n d"], q: Weights, size: int
) -> Float[Array, "n n"]:
    """Covariances of Phi w under q between points, Phi C C' Phi', from all functions, `size` at a time."""

    def add(total: tuple[Array, Array], index: Index, live: Array) -> tuple[Array, Array]:
        values, part = features.consecutive(learnt, x, index) * live, q.at(index)
        lone = values * part.deviation(features.precision(learnt, index), index)
        return total[0] + values @ part.vectors[1:].T, total[1] + lone @ lone.T

    start = jnp.zeros((x.shape[0], q.columns), x.dtype), jnp.zeros((x.shape[0], x.shape[0]), x.dtype)
    dense, lone = over_slabs(features.count, size, add, start)
    return dense @ dense.T + lone


def whole_divergence(features: Features, learnt: Unconstrained, q: Weights, size: int) -> Float[Array, ""]:
    """KL(q || N(0, S^-1)), a block after the other; for a dense S without its constant -(m + log |S|) / 2.

    A dense S takes all pairs of blocks, O(m^2) once.
    """

    def add(total: Array, index: Index, live: Array) -> Array:
        part, precision = q.at(index), features.precision(learnt, index)
        if features.diagonal:
            return total + jnp.sum(divergence(part, precision, index) * live)
        vectors = part.vectors * live

        def pair(sum_: Array, there: Index, seen: Array) -> Array:
            cross = features.cross_precision(learnt, index, there)
            return sum_ + 0.5 * jnp.sum((vectors @ cross) * q.at(there).vectors * seen)

        squares = over_slabs(features.count, size, pair, jnp.zeros((), vectors.dtype))
        alone = 0.5 * precision * part.deviation(precision, index) ** 2 - log_diagonal(part, precision, index)
        return total + squares + jnp.sum(alone * live)

    return over_slabs(features.count, size, add, jnp.zeros((), q.vectors.dtype))


def slabs(count: int, size: int) -> int:
    """How many blocks of `size` cover `count` functions."""
    return -(-count // size)


def slab(number: Array | int, size: int, count: int) -> tuple[Index, Float[Array, "k"]]:
    """The functions of one block of a pass over all, and 1.0 for those no block before it has: the last ends with m."""
    start = jnp.minimum(number * size, count - size)
    index = start + jnp.arange(size)
    return index, jnp.asarray(index >= number * size, float)


def over_slabs(count: int, size: int, add: Callable[[Total, Index, Array], Total], start: Total) -> Total:
    """A sum over all functions, `size` at a time: what `add` makes of it and of each block (`slab`) in turn."""
    size = min(size, count)
    numbers = jnp.arange(slabs(count, size))
    return jax.lax.scan(lambda total, number: (add(total, *slab(number, size, count)), None), start, numbers)[0]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Running:
    """Sums over basis functions: Phi [mu, X_1..r], now and on average, C's lone variance, and Phi S^-1 Phi'."""

    now: Float[Array, "b columns"]
    average: Float[Array, "b columns"]
    spread: Float[Array, "b"]
    gram: Float[Array, "b b"]

    def joined(self, seen: Seen, now: Float[Array, "columns k"]) -> Running:
        """With the share of a block; what has been `seen` is the average."""
        gram = self.gram + (seen.values / seen.precision) @ seen.values.T
        here = self.now + seen.values @ now.T
        return Running(here, self.average + seen.projected, self.spread + seen.spread, gram)


def nothing_seen(rows: int, columns: int, dtype: Any) -> Running:
    """The sums over no functions."""
    vectors = jnp.zeros((rows, 1 + columns), dtype)
    return Running(vectors, vectors, jnp.zeros(rows, dtype), jnp.zeros((rows, rows), dtype))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Held:
    """The mean of q and the solutions X behind its dense columns, as they are `now` and as they were on `average`.

    What is now has the noise of the last batches, which q is better without.
    """

    now: Float[Array, "columns m"]
    average: Weights


def surveyed(features: Features, learnt: Mapping[str, Array], x: Float[Array, "b d"], held: Held, size: int) -> Running:
    """The sums over all functions at points, `size` functions at a time."""

    def add(sums: Running, index: Index, live: Array) -> Running:
        values = features.consecutive(learnt, x, index) * live
        seen = Seen(index, values, held.average.at(index), features.precision(learnt, index))
        return sums.joined(seen, held.now[:, index])

    return over_slabs(features.count, size, add, nothing_seen(x.shape[0], held.average.columns, x.dtype))


def added(
    features: Features, learnt: Mapping[str, Array], x: Float[Array, "b d"], vectors: Array, duals: Array, size: int
) -> Float[Array, "columns m"]:
    """`vectors` and S^-1 Phi' `duals` of some rows, one number of each dual vector for each row."""

    def add(vectors: Array, index: Index, live: Array) -> Array:
        share = duals.T @ (features.consecutive(learnt, x, index) * live) / features.precision(learnt, index)
        return with_part(vectors, part_of(vectors, index[0], len(index)) + share, index[0])

    return over_slabs(features.count, size, add, vectors)


def part_of(numbers: Any, start: Array, size: int) -> Any:
    """`size` functions' numbers out of all, from arrays with functions along their last axis."""
    return jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, size, -1), numbers)


def with_part(numbers: Any, part: Any, start: Array) -> Any:
    """All numbers with those of some functions replaced."""
    return jax.tree.map(lambda a, b: jax.lax.dynamic_update_slice_in_dim(a, b, start, -1), numbers, part)


# The rows' side of the weights: w = S^-1 Phi' alpha with one number for each row, and the best numbers of a batch.
#
# The bound in the mean mu of q is sum_l g_l(phi_l' mu) - mu' S mu / 2 with g_l the expected log likelihood of row l,
# so that at its maximum mu = S^-1 Phi' alpha with alpha_l = g_l'(f_l). While mu has this form for any alpha, the rows
# p have a problem of their own: given all others, they see a GP with the covariance K = Phi_p S^-1 Phi_p' around the
# mean c that is left without them, and want the largest sum_p g(c + K a) - a'K a / 2. Its solution is an exact step of
# coordinate ascent in the dual. No noise of the batch is left in it when all rows are at theirs, so that no step has
# to be short (as in "Stochastic gradient descent for Gaussian processes done right", Lin et al. 2024, with blocks in
# place of rows).


HALVINGS = 10
"""How often a step is halved at most before none is taken."""

Values = Float[Array, "n"]


def newton_step(gram: Float[Array, "n n"], weight: Values, residual: Float[Array, "n v"]) -> Float[Array, "n v"]:
    """(I + W K)^-1 residual: what sets g' - alpha to zero where g' is linear with the slope -W < 0, for each column.

    What rounding could make indefinite has a ridge, which shortens a step and leaves the solution where it is.
    """
    half = jnp.sqrt(weight + jnp.finfo(weight.dtype).tiny)[:, None]
    scaled = half * gram * half.T
    ridge = jnp.finfo(gram.dtype).eps * jnp.trace(scaled)
    matrix = scaled + (1.0 + ridge) * jnp.eye(gram.shape[0], dtype=gram.dtype)
    return half * cho_solve(cho_factor(matrix, lower=True), residual / half)


def best_length(
    gain: Callable[[Values], Values], gram: Float[Array, "n n"], start: Values, step: Values
) -> Float[Array, ""]:
    """How much of a step of alpha the batch's own objective wants: 1, a power of 1/2, or nothing.

    `gain` is what a change of f adds to each row's expected log likelihood.
    """
    moved = gram @ step
    slope, bend = start @ moved, step @ moved

    def objective(length: Array) -> Array:
        return jnp.sum(gain(length * moved)) - length * slope - 0.5 * length**2 * bend

    lengths = jnp.asarray([0.5**number for number in range(HALVINGS)], step.dtype)
    found = jax.lax.map(objective, lengths)
    best = jnp.argmax(jnp.where(jnp.isfinite(found), found, -jnp.inf))
    return jnp.where(found[best] >= 0.0, lengths[best], 0.0)
