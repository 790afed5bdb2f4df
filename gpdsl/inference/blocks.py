"""All rows of a large batch, some at a time: the bound and its gradient in memory that does not grow with the rows.

The features of 10^6 rows for 100 inducing points are 0.8 GB, and a reverse pass holds several of them. Here every block
of rows makes its features anew, in the forward pass and again in the reverse pass.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg  # noqa: F401  the library whose threads are limited has to be loaded
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int
from threadpoolctl import ThreadpoolController

from gpdsl.errors import GpdslError
from gpdsl.inference.sampling import base_normals
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

SMALL = 200
"""Rows up to which more threads do not pay."""

CROWDED = 1.75
"""Processes that want to run, for each core, from which others than this one have much to do."""


KEPT = range(700, 8001)
"""Rows of matrices whose memory is kept: of fewer it is kept anyway, and of more it is too much to be held."""

MMAP_MAX, TRIM_THRESHOLD, MMAP_THRESHOLD = -4, -1, -3
"""Names of GNU's `mallopt`."""

_fits, _lock = 0, threading.Lock()


@contextmanager
def _memory() -> Iterator[None]:
    """Freed memory stays with the process until the last of the fits that run has ended."""
    global _fits
    library = _gnu()
    if library is None:
        yield
        return
    with _lock:
        _fits += 1
        library.mallopt(MMAP_MAX, 0)
        library.mallopt(TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        with _lock:
            _fits -= 1
            if not _fits:
                # where the library's own adjustment ends in programs with large arrays; asking for anything stops it
                library.mallopt(MMAP_THRESHOLD, 2**25)
                library.mallopt(TRIM_THRESHOLD, 2**26)
                library.mallopt(MMAP_MAX, 2**16)
                library.malloc_trim(0)


def _gnu() -> Any:
    """The C library if it is GNU's and nobody has set its memory by the environment, else None."""
    if any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return None
    try:
        library = ctypes.CDLL(None)
        return library if library.gnu_get_libc_version and library.mallopt and library.malloc_trim else None
    except (AttributeError, OSError, TypeError):  # another system
        return None


@contextmanager
def machine_for(size: int) -> Iterator[None]:
    """A context for factorisations of matrices with `size` rows, again and again: threads and memory that suit them."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    # Whether it lies in a folder of SciPy's; where the system provides one library for all, none does.
    own = [each for each in libraries if any("scipy" in folder for folder in Path(each.filepath).parent.parts[-2:])]
    limited = libraries if size <= SMALL or _crowded() else [each for each in libraries if own and each not in own]
    before = [(each, each.num_threads) for each in limited]
    try:
        for each, _ in before:
            each.set_num_threads(1)
        with _memory() if size in KEPT else nullcontext():
            yield
    finally:
        for each, threads in before:
            each.set_num_threads(threads)


def _crowded() -> bool:
    """Whether the load of the last minute is more than this process makes."""
    try:
        return os.getloadavg()[0] > CROWDED * (os.cpu_count() or 1)
    except (AttributeError, OSError):  # not known on this system
        return False


# Rows over several devices, of this process or of many: each has its share, and one reduction a sweep adds them up.
#
# JAX's own runtime does the work. What is computed row by row stays on the row's device; sums over rows become one
# all-reduce. Everything else is on every device.

AXIS = "rows"


def over_devices(mesh: Mesh, rows: Rows, start: Any) -> tuple[Rows, Any]:
    """Host arrays of rows as sharded arrays, and those of the start on every device.

    The number of rows becomes a multiple of that of the devices, by copies of the first in which nothing is observed.
    """

    def put(tree: Any, spec: PartitionSpec) -> Any:
        sharding = NamedSharding(mesh, spec)
        return jax.tree.map(
            lambda a: jax.make_array_from_callback(np.shape(a), sharding, np.asarray(a).__getitem__), tree
        )

    more = -next(iter(rows.observed.values())).shape[0] % mesh.size
    return put(unobserved_after(replace(rows, mesh=mesh), more), PartitionSpec(AXIS)), put(start, PartitionSpec())


def mesh_for(devices: int | None, dense: bool, opaque: bool) -> Mesh | None:
    """The first `devices` of all processes; by default all of them when there are several processes, else one.

    None for the default device alone.

    A dense posterior, whose matrices do not fall apart by rows, is by default the work of each process alone.

    Raises GpdslError when there are fewer; for a dense posterior over several; and for opaque functions, which have
    executors of their own.
    """
    known = jax.devices()
    wanted = devices or (len(known) if jax.process_count() > 1 else 1)
    if wanted == 1 and jax.process_count() == 1:
        return None
    if dense and devices is None:
        return None  # each process does the same
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
    return Mesh(np.asarray(chosen).ravel(), (AXIS,))


def unobserved_after(rows: Rows, more: int) -> Rows:
    """Host arrays of the rows, and behind them `more` copies of the first in which nothing is observed."""
    longer = first_again(rows, more)
    for known in longer.observed.values():
        known[len(known) - more :] = 0.0
    return longer


def first_again(tree: Any, more: int) -> Any:
    """Host arrays, each with its first element `more` times behind the others."""
    host = jax.tree.map(np.asarray, tree)
    return jax.tree.map(lambda a: np.concatenate([a, np.repeat(a[:1], more, axis=0)]), host)


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
    """How many rows blocks have that are to have `size`, and no more than are on a device."""
    count = next(iter(rows.observed.values())).shape[0]
    return min(size, count // rows.shards)


def over_blocks(
    rows: Rows, size: int, function: Callable[[Block, Any], tuple[Any, Any]], beside: Any = None, given: Any = None
) -> tuple[Any, Any]:
    """Sums over blocks, and what there is for each row: `function` gives both, the latter with the rows first.

    `beside` are arrays with an entry for each row, taken along. Where rows are spread over several devices, each goes
    through blocks of its own, and their sums are added up once, in the end. The function's second argument is `given`:
    all that gradients are taken in has to be there, since JAX takes none in what a function of a device closes over.
    """
    part = part_of_block(rows, size)
    if rows.mesh is None:
        return _in_turn(rows, part, function, beside, given, jnp.asarray(0))

    def on_device(own: Rows, beside: Any, given: Any) -> tuple[Any, Any]:
        device = jax.lax.axis_index(AXIS)
        total, found = _in_turn(replace(own, mesh=None), part, function, beside, given, device)
        return jax.tree.map(lambda a: a[None], total), found

    spread, everywhere = PartitionSpec(AXIS), PartitionSpec()
    specs = (spread, spread, everywhere)
    apart = jax.shard_map(on_device, mesh=rows.mesh, in_specs=specs, out_specs=spread, check_vma=False)
    total, found = apart(rows, beside, given)
    return jax.tree.map(lambda a: jnp.sum(a, axis=0), total), found


def _in_turn(
    rows: Rows, part: int, function: Callable[[Block, Any], tuple[Any, Any]], beside: Any, given: Any, device: Array
) -> tuple[Any, Any]:
    """The same for the rows of one device, `part` at a time."""
    count = next(iter(rows.observed.values())).shape[0]
    blocks, dtype = -(-count // part), next(iter(rows.observed.values())).dtype

    def one(place: Array) -> tuple[Any, Any]:
        first = jnp.minimum(place * part, count - part)
        some, others = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, first, part), (rows, beside))
        inside = first + jnp.arange(part)
        weight = (inside >= place * part).astype(dtype)
        return function(Block(some, others, weight, device * count + inside, device * blocks + place), given)

    def joined(values: Array) -> Array:
        new = count - (blocks - 1) * part
        return jnp.concatenate([values[:-1].reshape(-1, *values.shape[2:]), values[-1, part - new :]])

    shapes = jax.eval_shape(one, jnp.asarray(0))[0]
    start = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)

    def step(total: Any, place: Array) -> tuple[Any, Any]:
        summed, found = jax.checkpoint(one)(place)
        return jax.tree.map(jnp.add, total, summed), found

    total, found = jax.lax.scan(step, start, jnp.arange(blocks))
    return total, jax.tree.map(joined, found)
