"""Sums over all basis functions at the rows of a batch, and what the rows of a batch add to all weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from gpdsl.inference.quadruply_stochastic.features import Features
from gpdsl.inference.quadruply_stochastic.reading import Seen, slab, slabs
from gpdsl.inference.quadruply_stochastic.weights import Weights


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

    def add(sums: Running, number: Array) -> tuple[Running, None]:
        index, live = slab(number, size, features.count)
        values = features.consecutive(learnt, x, index) * live
        seen = Seen(index, values, held.average.at(index), features.precision(learnt, index))
        return sums.joined(seen, held.now[:, index]), None

    start = nothing_seen(x.shape[0], held.average.columns, x.dtype)
    return jax.lax.scan(add, start, jnp.arange(slabs(features.count, size)))[0]


def added(
    features: Features, learnt: Mapping[str, Array], x: Float[Array, "b d"], vectors: Array, duals: Array, size: int
) -> Float[Array, "columns m"]:
    """`vectors` and S^-1 Phi' `duals` of some rows, one number of each dual vector for each row."""

    def add(vectors: Array, number: Array) -> tuple[Array, None]:
        index, live = slab(number, size, features.count)
        share = duals.T @ (features.consecutive(learnt, x, index) * live) / features.precision(learnt, index)
        return with_part(vectors, part_of(vectors, index[0], size) + share, index[0]), None

    return jax.lax.scan(add, vectors, jnp.arange(slabs(features.count, size)))[0]


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
