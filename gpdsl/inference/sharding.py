"""Rows over several devices, of this process or of many: each has its share, and one reduction a sweep adds them up.

JAX's own runtime does the work. What is computed row by row stays on the row's device; sums over rows become one
all-reduce. Everything else is on every device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gpdsl.errors import GpdslError
from gpdsl.program.rows import Rows

AXIS = "rows"


@dataclass(frozen=True)
class Shards:
    """The devices that rows are spread over; none for the default device alone."""

    mesh: Mesh | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return 1 if self.mesh is None else self.mesh.size

    def rows(self, rows: Rows) -> tuple[Rows, int]:
        """Host arrays of rows as sharded arrays, and how many rows there are then.

        Their number becomes a multiple of that of the devices, by copies of the first row in which nothing is observed.
        """
        length = next(iter(rows.observed.values())).shape[0]
        if self.mesh is None:
            return rows, length
        more = -length % self.mesh.size
        sharding = NamedSharding(self.mesh, PartitionSpec(AXIS))
        spread = replace(_on_host(rows), mesh=self.mesh)
        longer = jax.tree.map(lambda a: np.concatenate([a, np.repeat(a[:1], more, axis=0)]), spread)
        for known in longer.observed.values():
            known[length:] = 0.0
        return jax.tree.map(lambda a: _global(a, sharding), longer), length + more

    def everywhere(self, tree: Any) -> Any:
        """Host arrays on every device."""
        if self.mesh is None:
            return tree
        sharding = NamedSharding(self.mesh, PartitionSpec())
        return jax.tree.map(lambda a: _global(np.asarray(a), sharding), tree)


def shards_for(devices: int | None, dense: bool, opaque: bool) -> Shards:
    """The first `devices` of all processes; by default all of them when there are several processes, else one.

    A dense posterior, whose matrices do not fall apart by rows, is by default the work of each process alone.

    Raises GpdslError when there are fewer; for a dense posterior over several; and for opaque functions, which have
    executors of their own.
    """
    known = jax.devices()
    wanted = devices or (len(known) if jax.process_count() > 1 else 1)
    if wanted == 1 and jax.process_count() == 1:
        return Shards()
    if dense and devices is None:
        return Shards()  # each process does the same
    if wanted > len(known):
        raise GpdslError(
            f"devices = {wanted}: JAX sees {len(known)}; start JAX on more, or on CPU ask for them before it starts: "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={wanted}"
        )
    if dense:
        raise GpdslError("a dense posterior does not fall apart by rows: set inducing to use several devices")
    if opaque:
        raise GpdslError("rows that opaque functions are called for stay on one device: give the functions an executor")
    if wanted % jax.process_count():
        raise GpdslError(f"devices = {wanted}: expected a multiple of the {jax.process_count()} processes")
    each = wanted // jax.process_count()
    chosen = [[d for d in known if d.process_index == p][:each] for p in range(jax.process_count())]
    return Shards(Mesh(np.asarray(chosen).ravel(), (AXIS,)))


def _on_host(rows: Rows) -> Rows:
    return jax.tree.map(np.array, rows)


def _global(values: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """One array over all processes, each of which puts up its own part."""
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])
