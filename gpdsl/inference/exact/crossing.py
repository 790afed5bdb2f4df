"""What values of a part have to do with latents elsewhere: at new rows, and as whitened values at those of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gpdsl.inference.bound import GroupView
from gpdsl.inference.exact.parts import Kind, Part, kinds, over_sets
from gpdsl.inference.exact.whitening import at_rows, kernel_arguments, with_nothing
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group, KernelValues
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows


def crossed(
    part: Part,
    loadings: Float[Array, "sets columns elements rows"],
    fitted: Program,
    seen: Sequence[GroupView],
    read: Sequence[Functionals],
    rows: Rows,
) -> tuple[np.ndarray, Float[Array, "sets pairs new values"]]:
    """The columns [sets, columns] whose latents a part tells about, and their covariances with its noiseless values."""
    columns: list[np.ndarray] = []
    found: list[Array] = []
    for before, view, of_all in zip(fitted.groups, seen, read, strict=True):
        group, basis = view.group, len(before.readings.basis)
        new = functionals_at(group, group.readings.all, rows)
        for kind in kinds(before, part.columns):
            of_set = partial(_crossed_with, view, new, of_all, basis, kind.columns)
            found.append(over_sets(of_set, loadings, part.rows, kind.factor, kind.processes))
            starts = group.start + group.size * np.arange(len(group.readings.all))
            columns.append((kind.processes[:, :, None] + starts).reshape(len(part.rows), -1))
    return np.concatenate(columns, axis=1), part.values_of(jnp.concatenate(found, axis=1))


def crossed_by_level(
    part: Part,
    loadings: Float[Array, "sets columns elements rows"],
    fitted: Program,
    seen: Sequence[GroupView],
    read: Sequence[Functionals],
    rows: Rows,
    sets: Int[Array, " new"],
) -> tuple[Int[Array, "new pairs"], Float[Array, "new pairs values"]]:
    """The same where each new row has to do with the values of one set, or with none where that is -1."""
    columns: list[np.ndarray] = []
    found: list[Array] = []
    own, known = sets.clip(0), sets >= 0
    for before, view, of_all in zip(fitted.groups, seen, read, strict=True):
        group, basis = view.group, len(before.readings.basis)
        new = functionals_at(group, group.readings.all, rows)
        for kind in kinds(before, part.columns):

            def of_row(
                at: Array,
                *its: Any,
                view: GroupView = view,
                new: Any = new,
                of_all: Any = of_all,
                basis: int = basis,
                kind: Kind = kind,
            ) -> Array:
                return _crossed_with(view, at_rows(new, at[None]), of_all, basis, kind.columns, *its)[:, 0]

            its = (jnp.asarray(each)[own] for each in (loadings, part.rows, kind.factor, kind.processes))
            found.append(jax.vmap(of_row)(jnp.arange(len(sets)), *its))
            starts = group.start + group.size * np.arange(len(group.readings.all))
            columns.append((kind.processes[:, :, None] + starts).reshape(len(part.rows), -1))
    cross = jnp.concatenate(found, axis=1)
    if part.kept is not None:
        kept = jnp.asarray(part.kept)[own][:, None, :]
        cross = jnp.where(kept >= 0, jnp.take_along_axis(cross, kept.clip(0), axis=2), 0.0)
    cross = jnp.where(known[:, None, None], cross, 0.0)
    return jnp.asarray(np.concatenate(columns, axis=1))[own], cross


def _crossed_with(
    view: GroupView,
    new: Functionals,
    of_all: Functionals,
    basis: int,
    columns: Mapping[int, tuple[int, ...]],
    loadings: Float[Array, "columns elements rows"],
    old: Any,
    factor: Any,
    processes: Any,
) -> Float[Array, "pairs new values"]:
    """Covariances of one kind of processes at new rows with the values of one set at its `old` ones."""
    group, (_, elements, count) = view.group, loadings.shape
    block = covariance(group.form, kernel_arguments(view.kernel, factor), new, at_rows(of_all, old))
    apart = block.reshape(len(group.readings.all), -1, basis, count)[:, :, np.asarray(list(columns))]
    weights = jnp.stack([with_nothing(loadings)[np.asarray(places)] for places in columns.values()])
    crossed = jnp.einsum("snrm,rpem->psnem", apart, weights)
    scaled = view.kernel.scale[processes][:, None, None, None, None] * crossed
    return scaled.reshape(-1, apart.shape[1], elements * count)


def values_first(cross: Float[Array, "sets columns rows values"]) -> Float[Array, "sets values columns*rows"]:
    """Covariances as the right sides of triangular systems."""
    return jnp.swapaxes(cross.reshape(len(cross), -1, cross.shape[-1]), 1, 2)


def loaded_by(
    part: Part,
    loadings: Float[Array, "sets columns elements rows"],
    program: Program,
    kernels: Sequence[KernelValues],
    factors: Sequence[Float[Array, "factors M M"]],
) -> Float[Array, "sets values whitened"]:
    """A of one part: what its values read of the whitened values of all processes."""
    found = []
    sets, _, elements, count = loadings.shape
    for group, kernel, factor in zip(program.groups, kernels, factors, strict=True):
        own = jnp.zeros((sets, elements * count, group.size, factor.shape[-1]))
        for kind in kinds(group, part.columns):
            read = over_sets(
                partial(_whitened_read, group, kernel, factor, kind.columns),
                loadings,
                part.rows,
                kind.factor,
                kind.processes,
            )
            own = own.at[np.arange(sets)[:, None], :, kind.processes].set(read)
        found.append(own.reshape(sets, elements * count, -1))
    return part.values_of(jnp.concatenate(found, axis=-1), (-2,))


def _whitened_read(
    group: Group,
    kernel: KernelValues,
    factors: Float[Array, "factors M M"],
    columns: Mapping[int, tuple[int, ...]],
    loadings: Float[Array, "columns elements rows"],
    rows: Any,
    factor: Any,
    processes: Any,
) -> Float[Array, "processes values whitened"]:
    """What one set reads of the whitened values of one kind of processes."""
    padded, points = with_nothing(loadings), factors.shape[-1]
    apart = factors[factor].reshape(len(group.readings.basis), -1, points)[:, rows]
    weights = jnp.stack([padded[np.asarray(places)] for places in columns.values()])
    read = jnp.einsum("rpen,rnm->penm", weights, apart[np.asarray(list(columns))])
    scaled = jnp.sqrt(kernel.scale[processes])[:, None, None, None] * read
    return scaled.reshape(len(scaled), -1, points)
