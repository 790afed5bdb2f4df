"""All rows of a large batch, some at a time: the bound and its gradient in memory that does not grow with the rows.

The features of 10^6 rows for 100 inducing points are 0.8 GB, and a reverse pass holds several of them. Here every block
of rows makes its features anew, in the forward pass and again in the reverse pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gpdsl.inference.estimators.sampling import base_normals
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

LARGE = 2**25
"""Numbers in the features of all rows above which they are made block by block."""

AT_ONCE = 2**20
"""Numbers in the features of a block, about."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Draws:
    """Base samples that are drawn block by block; equal keys give equal samples."""

    key: Array
    samples: int = field(metadata={"static": True})
    components: int = field(metadata={"static": True})
    latents: int = field(metadata={"static": True})
    halves: bool = field(metadata={"static": True})
    sampling: str = field(metadata={"static": True})

    def of(self, block: Array, rows: int) -> Float[Array, "samples components rows latents"]:
        """Those of one block."""
        key = jax.random.fold_in(self.key, block)
        return base_normals(key, self.samples, self.components, rows, self.latents, self.halves, self.sampling)


def block_rows(program: Program, inducing: Sequence[Functionals], rows: int) -> int:
    """How many rows to take at a time: 0 for all, where their features are no burden."""
    each = sum(
        group.factors * len(z) * len(group.readings.all)
        for group, z in zip(program.groups, inducing, strict=True)
        if not group.per_row
    )
    return 0 if rows * each <= LARGE else max(AT_ONCE // max(each, 1), 64)


@dataclass(frozen=True)
class Block:
    """Some rows, their numbers, and what else there is for each of them; `place` is the number of the block.

    `weight` is 0 for rows that an earlier block had already: all blocks are of one size.
    """

    rows: Rows
    beside: Any
    weight: Float[Array, "rows"]
    numbers: Int[Array, "rows"]
    place: Array

    @property
    def size(self) -> int:
        """How many rows."""
        return self.numbers.shape[0]

    def samples(self, normals: Array | Draws | None) -> Float[Array, "samples components rows latents"] | None:
        """Those of the base samples that belong to these rows."""
        if isinstance(normals, Draws):
            return normals.of(self.place, self.size)
        return None if normals is None else normals[:, :, self.numbers]


def part_of_block(rows: Rows, size: int) -> int:
    """How many rows of each device a block of about `size` rows has."""
    count = next(iter(rows.observed.values())).shape[0]
    return min(-(-size // rows.shards), count // rows.shards)


def over_blocks(
    rows: Rows, size: int, function: Callable[[Block], tuple[Any, Any]], beside: Any = None
) -> tuple[Any, Any]:
    """Sums over blocks, and what there is for each row: `function` gives both, the latter with the rows first.

    `beside` are arrays with an entry for each row, taken along. Where rows are spread over several devices, a block
    has some of each, so that nothing but the sums leaves a device.
    """
    count = next(iter(rows.observed.values())).shape[0]
    each = count // rows.shards
    part = part_of_block(rows, size)
    blocks = -(-each // part)
    apart = jax.tree.map(lambda a: a.reshape(rows.shards, each, *a.shape[1:]), (rows, beside))
    shards, dtype = jnp.arange(rows.shards), next(iter(rows.observed.values())).dtype

    def one(place: Array) -> tuple[Any, Any]:
        first = jnp.minimum(place * part, each - part)

        def taken(array: Array) -> Array:
            some = jax.lax.dynamic_slice_in_dim(array, first, part, axis=1)
            return some.reshape(rows.shards * part, *array.shape[2:])

        some, others = jax.tree.map(taken, apart)
        inside = first + jnp.arange(part)
        weight = jnp.broadcast_to(inside >= place * part, (rows.shards, part)).ravel().astype(dtype)
        return function(Block(some, others, weight, (each * shards[:, None] + inside).ravel(), place))

    def joined(values: Array) -> Array:
        found = jnp.swapaxes(values.reshape(blocks, rows.shards, part, *values.shape[2:]), 0, 1)
        new = each - (blocks - 1) * part
        before = found[:, :-1].reshape(rows.shards, -1, *values.shape[2:])
        return jnp.concatenate([before, found[:, -1, part - new :]], axis=1).reshape(count, *values.shape[2:])

    shapes = jax.eval_shape(one, jnp.asarray(0))[0]
    start = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)

    def step(total: Any, place: Array) -> tuple[Any, Any]:
        summed, found = jax.checkpoint(one)(place)
        return jax.tree.map(jnp.add, total, summed), found

    total, found = jax.lax.scan(step, start, jnp.arange(blocks))
    return total, jax.tree.map(joined, found)
