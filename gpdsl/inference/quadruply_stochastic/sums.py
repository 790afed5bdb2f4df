"""Sums over all basis functions at the rows of a batch, and what the rows of a batch add to all weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
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
