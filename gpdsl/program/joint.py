"""Numbers for several readings of one latent at a row: the root of their covariance, and joint samples."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.program.groups import Group
from gpdsl.program.program import Program
from gpdsl.symbolic.gaussian import moments_of
from gpdsl.symbolic.joint import correlated, root_symbol, sum_of

SINGULAR = 1e-12
"""Share of a reading's variance below which it counts as determined by the readings before it."""

WRITTEN_OUT = 4
"""Readings up to which a root is written out entry by entry."""

NUDGE = 1e-9
"""Relative addition to the diagonal of a larger covariance, whose readings may determine each other."""

Table = list[list[Array]]


def moment_values(
    program: Program,
    latents: Sequence[sp.Symbol],
    mean: Float[Array, "*lead rows columns"],
    variance: Float[Array, "*lead rows columns"],
    axes: tuple[str, ...],
) -> dict[sp.Symbol, Array]:
    """Values of the symbols in which an expectation is written: means, variances, roots of covariances."""
    moments, read = moments_of(latents), program.evaluator.of_latent
    found = {moments.mean[s]: read(s, mean, axes) for s in latents}
    found |= {moments.variance[s]: read(s, variance, axes) for s in latents}
    for symbols in correlated(program.translator, latents):
        root = _root([[_covariance(program, s, t, variance, axes) for t in symbols] for s in symbols])
        for i, s in enumerate(symbols):
            found |= {root_symbol(s, t): root[i][j] for j, t in enumerate(symbols[: i + 1])}
    return found


def values_at(
    program: Program,
    latents: Sequence[sp.Symbol],
    mean: Float[Array, "*lead rows columns"],
    variance: Float[Array, "*lead rows columns"],
    axes: tuple[str, ...],
    normals: Sequence[Array],
) -> dict[sp.Symbol, Array]:
    """Values of readings at independent standard normals, one array of them per reading (broadcast against rows)."""
    moments, known = moments_of(latents), moment_values(program, latents, mean, variance, axes)
    found = {
        s: known[moments.mean[s]] + deviation(known[moments.variance[s]]) * z
        for s, z in zip(latents, normals, strict=True)
    }
    behind = dict(zip(latents, normals, strict=True))
    for symbols in correlated(program.translator, latents):
        for i, s in enumerate(symbols):
            moved = sum(known[root_symbol(s, t)] * behind[t] for t in symbols[: i + 1])
            found[s] = known[moments.mean[s]] + moved
    return found


def samples(
    program: Program,
    mean: Float[Array, "K rows columns"],
    variance: Float[Array, "K rows columns"],
    normals: Float[Array, "S K rows columns"],
) -> Float[Array, "S K rows columns"]:
    """Joint samples of everything that is read, from standard normals: independent between latents."""
    drawn = mean + deviation(variance) * normals
    for group in program.groups:
        if group.readings.sums:
            drawn = drawn.at[..., group.start : group.stop].set(_of_group(group, mean, variance, normals))
    return drawn


def _of_group(group: Group, mean: Array, variance: Array, normals: Array) -> Array:
    columns = [slice(group.start + k * group.size, group.start + (k + 1) * group.size) for k in range(_count(group))]
    root = _root(covariance_table(group, variance))
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


def _root(covariance: Table) -> Table:
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
    count = len(covariance)
    matrix = jnp.stack([jnp.stack(row, axis=-1) for row in covariance], axis=-2)
    scale = jnp.maximum(jnp.diagonal(matrix, axis1=-2, axis2=-1), jnp.finfo(matrix.dtype).tiny * 1e16)
    root = jnp.linalg.cholesky(matrix + NUDGE * scale[..., None] * jnp.eye(count, dtype=matrix.dtype))
    return [[root[..., i, j] for j in range(i + 1)] for i in range(count)]


def deviation(variance: Array) -> Array:
    """Square root with a finite derivative where a variance has rounded to zero."""
    return jnp.sqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).tiny * 1e16))


def column_roots(
    program: Program, variance: Float[Array, "*lead rows columns"], columns: Sequence[int]
) -> Float[Array, "*lead rows J J"]:
    """Roots of the covariance among some columns of the marginals, row by row."""
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
    root = _root(rows)
    filled = [jnp.stack([*entries, *[zero] * (len(columns) - len(entries))], axis=-1) for entries in root]
    return jnp.stack(filled, axis=-2)


def _place(program: Program, column: int) -> tuple[Group, int, int]:
    """The group of a column, which reading of its latents stands there, and which latent it is."""
    group = next(g for g in program.groups if g.start <= column < g.stop)
    reading, process = divmod(column - group.start, group.size)
    return group, reading, process
