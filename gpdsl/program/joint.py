"""Marginals of what is read of the latents in each row: roots of covariances, and joint samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.program.groups import Group
from gpdsl.program.program import Program
from gpdsl.symbolic.expectations import correlated, root_symbol, sum_of
from gpdsl.symbolic.gaussian import Pair, joint_moments_of

SINGULAR = 1e-12
"""Share of a reading's variance below which it counts as determined by the readings before it."""

WRITTEN_OUT = 4
"""Readings up to which a root is written out entry by entry."""

MULTIPLIED_OUT = 16
"""Readings up to which samples are multiplied by a root entry by entry."""

NUDGE = 1e-9
"""Relative addition to the diagonal of a larger covariance, whose readings may determine each other."""

Table = list[list[Array]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Marginals:
    """Means and variances of all latents at some rows, for each mixture component; one column per reading of each.

    `covariance` among all columns is there when the posterior correlates different latents; its diagonal is `variance`.
    Without it the readings of one latent are correlated, by the variances of their sums, and nothing else is.
    """

    mean: Float[Array, "K rows latents"]
    variance: Float[Array, "K rows latents"]
    covariance: Float[Array, "K rows latents latents"] | None = None

    together: ClassVar[bool] = False
    """Whether all columns depend on each other, which joint samples alone tell."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.mean.shape[1]

    def part(self, index: slice | np.ndarray) -> Marginals:
        """Those of some of the rows."""
        return jax.tree.map(lambda a: a[:, index], self)

    def at(self, program: Program, normals: Float[Array, "S K #rows latents"]) -> Float[Array, "S K rows latents"]:
        """Joint samples from standard normals, row by row, or from the same ones for all rows."""
        if self.covariance is not None:
            basis = basis_columns(program)
            moved = jnp.einsum("...ij,...j->...i", block_root(self.covariance, basis), normals[..., basis])
            return with_sums(program, self.mean[..., basis] + moved)
        drawn = self.mean + deviation(self.variance) * normals
        for group in program.groups:
            if group.readings.sums:
                part = _of_group(group, self.mean, self.variance, normals)
                drawn = drawn.at[..., group.start : group.stop].set(part)
        return drawn

    def sampler(
        self, program: Program
    ) -> Callable[[Float[Array, "S K #rows latents"]], Float[Array, "S K rows latents"]]:
        """`at` for some normals after the other: what they are multiplied by is worked out once.

        A small root is multiplied entry by entry, which XLA fuses with what is made of the samples.
        """
        basis = basis_columns(program)
        if self.covariance is None or len(basis) > MULTIPLIED_OUT:
            return partial(self.at, program)
        root, mean = block_root(self.covariance, basis), self.mean[..., basis]

        def sampled(normals: Array) -> Array:
            z = normals[..., basis]
            moved = [sum(root[..., i, j] * z[..., j] for j in range(i + 1)) for i in range(len(basis))]
            return with_sums(program, jnp.stack([mean[..., i] + each for i, each in enumerate(moved)], axis=-1))

        return sampled


def moment_values(
    program: Program,
    latents: Sequence[sp.Symbol],
    q: Marginals,
    axes: tuple[str, ...],
    needed: Collection[sp.Symbol] | None = None,
) -> dict[sp.Symbol, Array]:
    """Values of the symbols in which an expectation is written: means, variances, covariances or their roots.

    Of the covariances between latents, only those `needed` (all by default).
    """
    moments, read = joint_moments_of(latents), program.evaluator.of_latent
    found = {moments.mean[s]: read(s, q.mean, axes) for s in latents}
    found |= {moments.variance[s]: read(s, q.variance, axes) for s in latents}
    if q.covariance is not None:
        asked = {pair: symbol for pair, symbol in moments.covariance.items() if needed is None or symbol in needed}
        return found | {symbol: _between(program, pair, q.covariance, axes) for pair, symbol in asked.items()}
    for symbols in correlated(program.translator, latents):
        root = lower_root([[_covariance(program, s, t, q.variance, axes) for t in symbols] for s in symbols])
        for i, s in enumerate(symbols):
            found |= {root_symbol(s, t): root[i][j] for j, t in enumerate(symbols[: i + 1])}
    return found


def _of_group(group: Group, mean: Array, variance: Array, normals: Array) -> Array:
    columns = [slice(group.start + k * group.size, group.start + (k + 1) * group.size) for k in range(_count(group))]
    root = lower_root(covariance_table(group, variance))
    found = [
        mean[..., columns[i]] + sum(root[i][j] * normals[..., columns[j]] for j in range(i + 1))
        for i in range(len(group.readings.basis))
    ]
    sums = {place: found[i] + found[j] for i, j, place in group.readings.sums}
    found += [sums[k] for k in range(len(found), _count(group))]
    return jnp.concatenate(found, axis=-1)


def _count(group: Group) -> int:
    return len(group.readings.all)


def covariance_table(group: Group, variance: Float[Array, "*lead rows columns"]) -> Table:
    """Covariances of the basis readings of a group, each [*lead, rows, processes], from the variances of their sums."""
    size, count = group.size, len(group.readings.basis)
    of = lambda k: variance[..., group.start + k * size : group.start + (k + 1) * size]  # noqa: E731
    table = [[of(i) if i == j else jnp.zeros_like(of(0)) for j in range(count)] for i in range(count)]
    for i, j, place in group.readings.sums:
        table[i][j] = table[j][i] = 0.5 * (of(place) - of(i) - of(j))
    return table


def _covariance(program: Program, s: sp.Symbol, t: sp.Symbol, variance: Array, axes: tuple[str, ...]) -> Array:
    read = program.evaluator.of_latent
    if s == t:
        return read(s, variance, axes)
    together = read(sum_of(program.translator, s, t), variance, axes)
    return 0.5 * (together - read(s, variance, axes) - read(t, variance, axes))


def lower_root(covariance: Table) -> Table:
    """Lower Cholesky factor; of a singular covariance too. Entry by entry when it is small, which XLA fuses."""
    if len(covariance) > WRITTEN_OUT:
        return _root_at_once(covariance)
    root: Table = []
    for i, row in enumerate(covariance):
        entries: list[Array] = []
        for j in range(i):
            rest = row[j] - sum((entries[k] * root[j][k] for k in range(j)), start=jnp.zeros_like(row[j]))
            entries.append(rest / root[j][j])
        left = row[i] - sum((e**2 for e in entries), start=jnp.zeros_like(row[i]))
        root.append([*entries, deviation(jnp.maximum(left, SINGULAR * row[i]))])
    return root


def _root_at_once(covariance: Table) -> Table:
    root = _nudged_root(jnp.stack([jnp.stack(row, axis=-1) for row in covariance], axis=-2))
    return [[root[..., i, j] for j in range(i + 1)] for i in range(len(covariance))]


def _nudged_root(matrix: Float[Array, "*lead n n"]) -> Float[Array, "*lead n n"]:
    scale = jnp.maximum(jnp.diagonal(matrix, axis1=-2, axis2=-1), jnp.finfo(matrix.dtype).tiny * 1e16)
    nudge = max(NUDGE, 8.0 * float(jnp.finfo(matrix.dtype).eps))
    return jnp.linalg.cholesky(matrix + nudge * scale[..., None] * jnp.eye(matrix.shape[-1], dtype=matrix.dtype))


def basis_columns(program: Program) -> np.ndarray:
    """The columns of the marginals that are no sums of others."""
    counts = [(group.start, len(group.readings.basis) * group.size) for group in program.groups]
    return np.concatenate([np.zeros(0, int), *(np.arange(start, start + count) for start, count in counts)])


def same_latent(program: Program) -> Float[np.ndarray, "columns columns"]:
    """1 for two columns that are read of one latent, 0 for others."""
    processes = [np.tile(group.start + np.arange(group.size), len(group.readings.all)) for group in program.groups]
    every = np.concatenate(processes)
    return (every[:, None] == every[None, :]).astype(float)


def block_root(covariance: Float[Array, "*lead n n"], columns: np.ndarray) -> Float[Array, "*lead J J"]:
    """Lower roots of the covariance among some columns, row by row."""
    return _nudged_root(covariance[..., columns[:, None], columns[None, :]])


def with_sums(program: Program, basis: Float[Array, "*lead basis"]) -> Float[Array, "*lead columns"]:
    """All columns, from the values of those that are no sums."""
    if not any(group.readings.sums for group in program.groups):
        return basis
    parts, start = [], 0
    for group in program.groups:
        size = group.size
        found = [basis[..., start + k * size : start + (k + 1) * size] for k in range(len(group.readings.basis))]
        sums = {place: found[i] + found[j] for i, j, place in group.readings.sums}
        start += len(found) * size
        parts += [*found, *(sums[k] for k in range(len(found), _count(group)))]
    return jnp.concatenate(parts, axis=-1)


def _between(program: Program, pair: Pair, covariance: Array, axes: tuple[str, ...]) -> Array:
    """Covariances of two reads, for every element along the axes."""
    read, count = program.evaluator.of_latent, covariance.shape[-1]
    first, second = (np.asarray(read(s, np.arange(count)[None], axes))[0] for s in sorted(pair, key=str))
    return covariance[..., first, second]


def deviation(variance: Array) -> Array:
    """Square root with a finite derivative where a variance has rounded to zero."""
    return jnp.sqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).tiny * 1e16))


def column_roots(program: Program, q: Marginals, component: int, columns: Sequence[int]) -> Float[Array, "rows J J"]:
    """Roots of the covariance among some columns of a component's marginals, row by row."""
    if q.covariance is not None:
        return block_root(q.covariance[component], np.asarray(columns))
    variance = q.variance[component]
    places = [_place(program, column) for column in columns]
    tables = {id(g): covariance_table(g, variance) for g in program.groups if g.readings.sums}
    zero = jnp.zeros_like(variance[..., 0])
    rows: Table = []
    for i, (group, reading, process) in enumerate(places):
        row = []
        for j, (other, read_there, process_there) in enumerate(places):
            if i == j:
                row.append(variance[..., columns[i]])
            elif group is other and process == process_there and id(group) in tables:
                row.append(tables[id(group)][reading][read_there][..., process])
            else:
                row.append(zero)
        rows.append(row)
    root = lower_root(rows)
    filled = [jnp.stack([*entries, *[zero] * (len(columns) - len(entries))], axis=-1) for entries in root]
    return jnp.stack(filled, axis=-2)


def _place(program: Program, column: int) -> tuple[Group, int, int]:
    """The group of a column, which reading of its latents stands there, and which latent it is."""
    group = next(g for g in program.groups if g.start <= column < g.stop)
    reading, process = divmod(column - group.start, group.size)
    return group, reading, process
