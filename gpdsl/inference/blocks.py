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
from jaxtyping import Array, Float

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


def over_blocks(
    rows: Rows, size: int, function: Callable[[Rows, Float[Array, "rows"], Array, Array], tuple[Any, Any]]
) -> tuple[Any, Any]:
    """Sums over blocks, and what there is for each row: `function(rows, weights, numbers, block)` gives both.

    The last block is filled up with rows of weight 0. What is returned for each row has the rows first.
    """
    count = next(iter(rows.observed.values())).shape[0]
    blocks = -(-count // size)
    index = jnp.arange(blocks * size).reshape(blocks, size)

    def one(place: Array, block: Array) -> tuple[Any, Any]:
        inside = jnp.minimum(place, count - 1)
        some = jax.tree.map(lambda a: a[inside], rows)
        weight = (place < count).astype(next(iter(rows.observed.values())).dtype)
        return function(some, weight, inside, block)

    shapes = jax.eval_shape(one, index[0], jnp.asarray(0))[0]
    start = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)

    def step(total: Any, at: tuple[Array, Array]) -> tuple[Any, Any]:
        summed, each = jax.checkpoint(one)(*at)
        return jax.tree.map(jnp.add, total, summed), each

    total, each = jax.lax.scan(step, start, (index, jnp.arange(blocks)))
    return total, jax.tree.map(lambda a: a.reshape(blocks * size, *a.shape[2:])[:count], each)
