"""What holds an exact posterior: the data in units of their noise, from which everything else follows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from gpdsl.inference.bound import GroupView
from gpdsl.inference.exact.parts import Kind, Part, kinds, over_sets
from gpdsl.inference.exact.system import Whitened, at_rows, hidden, kernel_arguments, read_by, statement, with_nothing
from gpdsl.inference.posteriors.family import (
    ELEMENTS,
    Covariances,
    Inverse,
    Matrix,
    Told,
    Whitened as Inducing,
    beside,
    spread_of,
)
from gpdsl.inference.posteriors.features import factorise, inverse_root
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group, KernelValues, kernel_values
from gpdsl.program.joint import basis_columns, with_sums
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope, observed_mask

# What values of a part have to do with latents elsewhere: at new rows, and as whitened values at those of the data.


@dataclass(frozen=True, eq=False)
class New:
    """New rows beside the data of a fit: its program, what the data read of each group, and the prior at the rows."""

    fitted: Program
    read: Sequence[Functionals]
    seen: Sequence[GroupView]
    rows: Rows

    def processes(self, part: Part) -> Iterator[tuple[_Crossed, Kind, np.ndarray]]:
        """Those of each kind that a part reads, and their columns at the rows [sets, columns]."""
        for before, view, of_all in zip(self.fitted.groups, self.seen, self.read, strict=True):
            group, basis = view.group, len(before.readings.basis)
            new = functionals_at(group, group.readings.all, self.rows)
            starts = group.size * np.arange(len(group.readings.all))
            for kind in kinds(before, part.columns):
                columns = (kind.processes[:, :, None] + group.start + starts).reshape(len(part.rows), -1)
                yield _Crossed(view, new, of_all, basis, kind.columns), kind, columns


@dataclass(frozen=True, eq=False)
class _Crossed:
    """Processes of one kind at new rows; `of_all` is what all rows of the data read, in so many `basis` readings."""

    view: GroupView
    new: Functionals
    of_all: Functionals
    basis: int
    columns: Mapping[int, tuple[int, ...]]

    def __call__(
        self, loadings: Float[Array, "columns elements rows"], old: Any, factor: Any, processes: Any, at: Any = None
    ) -> Float[Array, "pairs new values"]:
        """Covariances of one kind of processes at new rows with the values of one set at its `old` ones."""
        view, (_, elements, count) = self.view, loadings.shape
        new = self.new if at is None else at_rows(self.new, at)
        block = covariance(view.group.form, kernel_arguments(view.kernel, factor), new, at_rows(self.of_all, old))
        apart = block.reshape(len(view.group.readings.all), -1, self.basis, count)[:, :, np.asarray(list(self.columns))]
        weights = jnp.stack([with_nothing(loadings)[np.asarray(places)] for places in self.columns.values()])
        crossed = jnp.einsum("snrm,rpem->psnem", apart, weights)
        scaled = view.kernel.scale[processes][:, None, None, None, None] * crossed
        return scaled.reshape(-1, apart.shape[1], elements * count)


def crossed(
    part: Part, loadings: Float[Array, "sets columns elements rows"], new: New
) -> tuple[np.ndarray, Float[Array, "sets pairs new values"]]:
    """The columns [sets, columns] whose latents a part tells about, and their covariances with its noiseless values."""
    columns: list[np.ndarray] = []
    found: list[Array] = []
    for own, kind, places in new.processes(part):
        found.append(over_sets(own, loadings, part.rows, kind.factor, kind.processes))
        columns.append(places)
    return np.concatenate(columns, axis=1), part.values_of(jnp.concatenate(found, axis=1))


def crossed_by_level(
    part: Part, loadings: Float[Array, "sets columns elements rows"], new: New, sets: Int[Array, " new"]
) -> tuple[Int[Array, "new pairs"], Float[Array, "new pairs values"]]:
    """The same where each new row has to do with the values of one set, or with none where that is -1."""
    columns: list[np.ndarray] = []
    found: list[Array] = []
    own, known = sets.clip(0), sets >= 0
    for each, kind, places in new.processes(part):
        of_row = lambda at, *its, each=each: each(*its, at[None])[:, 0]  # noqa: E731
        its = (jnp.asarray(one)[own] for one in (loadings, part.rows, kind.factor, kind.processes))
        found.append(jax.vmap(of_row)(jnp.arange(len(sets)), *its))
        columns.append(places)
    cross = jnp.concatenate(found, axis=1)
    if part.kept is not None:
        kept = jnp.asarray(part.kept)[own][:, None, :]
        cross = jnp.where(kept >= 0, jnp.take_along_axis(cross, kept.clip(0), axis=2), 0.0)
    cross = jnp.where(known[:, None, None], cross, 0.0)
    return jnp.asarray(np.concatenate(columns, axis=1))[own], cross


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


# What holds an exact posterior: the data in units of their noise, from which everything else follows.

PLACES = "elements", "columns", "rows", "kept", "grid"
"""What a file keeps of a part."""


@dataclass(frozen=True, eq=False)
class Regression:
    """The data of an exact fit: each `Part` of the observations, and its values in units of their noise."""

    parts: tuple[Part, ...]
    values: tuple[Whitened, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many observed values each set has that shares no latent with others."""
        return tuple(size for part in self.parts for size in part.sizes)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file keeps."""
        kept: dict[str, np.ndarray] = {}
        for number, (part, known) in enumerate(zip(self.parts, self.values, strict=True)):
            own = {name: getattr(part, name) for name in PLACES}
            own |= {"z": known.z, "loadings": known.loadings}
            kept |= {f"regression.{number}.{name}": np.asarray(v) for name, v in own.items() if v is not None}
        return kept

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Regression:
        """The posterior of a file."""
        parts: list[Part] = []
        values: list[Whitened] = []
        while (prefix := f"regression.{len(parts)}.") + "z" in arrays:
            own = {name: arrays.get(prefix + name) for name in (*PLACES, "z", "loadings")}
            values.append(Whitened(own.pop("z"), own.pop("loadings")))  # type: ignore[arg-type]  # checked by `check`
            parts.append(Part(**own))  # type: ignore[arg-type]
        return cls(tuple(parts), tuple(values))

    def check(self, program: Program, read: Sequence[Functionals], rows: int) -> None:
        """Raise ValueError where this is no posterior of the program with so many rows."""
        points = [leaf for each in read for leaf in jax.tree.leaves(each)]
        found = [np.ndim(leaf) == 2 and len(leaf) == rows and bool(np.all(np.isfinite(leaf))) for leaf in points]
        statements = len(program.observations)
        for part, known in zip(self.parts, self.values, strict=True):
            found += [part.elements.ndim == 3, part.columns.ndim == part.rows.ndim == 2]
            found += [part.kept is None or part.kept.ndim == 2]
            if not all(found):
                break
            sets, elements, seen = len(part.rows), part.elements.shape[1], part.rows.shape[1]
            shape = sets, part.columns.shape[1], elements, seen
            found += [np.shape(known.loadings) == shape, np.shape(known.z) == (sets, part.width)]
            found += [bool(np.all(np.isfinite(known.z))), bool(np.all(np.isfinite(known.loadings)))]
            found += [bool(np.all((part.elements >= 0) & (part.elements[..., :1] < statements)))]
            found += [part.elements.shape == (sets, elements, 2), len(part.columns) == sets]
            found += [
                *(_within(own, program.latents) for own in np.unique(part.columns, axis=0)),
                *(_within(np.unique(own), rows) for own in part.rows),
            ]
            if part.grid is not None:
                found += [
                    part.kept is None,
                    sets == 1,
                    part.grid.shape == (elements + 1,),
                    bool(np.all(part.grid >= 0)),
                ]
                found += [bool(np.all(part.grid[1:] < part.columns.shape[1]))]
            if part.kept is not None:
                found += [len(part.kept) == sets, *(_within(own[own >= 0], elements * seen) for own in part.kept)]
        if not all(found):
            raise ValueError("the data of an exact fit do not fit together")

    def at_inducing(
        self, program: Program, parameters: Mapping[str, Array], read: Sequence[Functionals], jitter: float
    ) -> list[Inducing]:
        """The same posterior over the whitened values of what the rows read, for a fit that starts from this one.

        With u = sqrt(scale) F w, F F' = K and A = H sqrt(scale) F, w has the precision I + A'A and the mean of A'z.
        """
        kernels, factors = [], []
        for group, at in zip(program.groups, read, strict=True):
            kernels.append(kernel_values(program.evaluator, group, parameters))
            factors.append(factorise(group, kernels[-1], at, jitter))
        sizes = [group.size * f.shape[-1] for group, f in zip(program.groups, factors, strict=True)]
        precision, moment = jnp.zeros((sum(sizes), sum(sizes))), jnp.zeros(sum(sizes))
        for part, known in zip(self.parts, self.values, strict=True):
            loaded = loaded_by(part, jnp.asarray(known.loadings), program, kernels, factors)

            def add(total: tuple[Array, Array], own: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
                return (total[0] + own[0].T @ own[0], total[1] + own[0].T @ own[1]), None

            (precision, moment), _ = jax.lax.scan(add, (precision, moment), (loaded, jnp.asarray(known.z)))
        root = inverse_root(precision[None])[0]
        ends = np.cumsum(sizes)[:-1]
        pieces = zip(jnp.split(root @ (root.T @ moment), ends), jnp.split(root, ends), program.groups, strict=True)
        return [Inducing(m.reshape(1, g.size, -1), r.reshape(1, g.size, -1, r.shape[-1])) for m, r, g in pieces]


def _within(places: np.ndarray, size: int) -> bool:
    """Whether these are different whole numbers from 0 to below `size`, at least one."""
    whole = np.issubdtype(places.dtype, np.integer) and places.size > 0 and len(np.unique(places)) == places.size
    return bool(whole and places.min() >= 0 and places.max() < size)


def values_read(
    fitted: Program, program: Program, parameters: Mapping[str, Array], rows: Rows, mean: Float[Array, "rows columns"]
) -> list[tuple[Array, Array, Array]]:
    """z - H m and H of the elements of every statement, where these are observed, in what is no sum, and their noise in
    units of that of the program that was `fitted`, which has no white noise of kernels."""
    spread = with_sums(program, jnp.eye(len(basis_columns(program)), dtype=mean.dtype))
    nothing, found = jnp.zeros((len(mean), fitted.latents), mean.dtype), []
    for observation, before in zip(program.observations, fitted.observations, strict=True):
        each, its = statement(program, observation), statement(fitted, before)
        assert each is not None
        assert its is not None
        left, loadings, constant = read_by(program, each, Scope(parameters, rows, mean))
        plain = read_by(fitted, its, Scope(parameters, rows, nothing))[2]
        seen = (observed_mask(rows, observation) > 0).reshape(left.shape)
        loadings = jnp.where(seen[..., None], jnp.einsum("ia,ane->nei", spread, loadings), 0.0)
        found.append((jnp.where(seen, left, 0.0), loadings, jnp.exp(plain - constant)))
    return found


def values_of(read: Sequence[Sequence[np.ndarray]], inverses: Iterable[Inverse]) -> Sequence[np.ndarray]:
    """H of the values of each row, z - H m, B^-1 among them and B^-1 z, in units of their noise."""
    elements = [s * ELEMENTS + e for s, each in enumerate(read) for e in range(each[0].shape[1])]
    left, loadings, units = (np.concatenate(each, axis=1) for each in zip(*read, strict=True))
    inverse, alpha = np.tile(np.eye(len(elements)), (len(left), 1, 1)), np.zeros(left.shape)
    for each in inverses:
        different = np.searchsorted(elements, np.unique(each.elements))
        own = different[each.places]
        inverse[each.rows[:, None], own[:, None], different] = each.beside
        alpha[each.rows, own] = each.alpha
    return loadings, left, inverse * units[:, :, None] * units[:, None, :], units * alpha


# What an exact posterior says at a few rows, in NumPy: K - C B^-1 C', with B = I + H K H' and C = K_rf H'.

Set = tuple[Matrix, dict[int, Matrix], np.ndarray, np.ndarray, np.ndarray]
"""Of values that share latents: H K H', H K_fr of each latent that they read, by its column, z, rows and elements.

White noise that is a part of the values' own is taken into it: all are in units of what both are.
"""


def told_by_data(groups: Sequence[Covariances], held: Regression) -> Told:
    """Of latents that are read in one way each, and data that are on no grid."""
    found = {(c, c): matrix for group in groups for c, matrix in group.prior.items()}
    means, inverses = {column: np.zeros(len(matrix)) for (column, _), matrix in found.items()}, []
    for part, known in zip(held.parts, held.values, strict=True):
        for signal, cross, z, *whose in _sets(part, known, groups):
            factor = cho_factor(signal + np.diag(np.maximum(1.0, hidden(signal))), lower=True)
            lost = {column: solve_triangular(factor[0], each, lower=True) for column, each in cross.items()}
            for a, b in itertools.product(lost, repeat=2):
                found[a, b] = found.get((a, b), 0.0) - lost[a].T @ lost[b]
            near, alpha = beside(cho_solve(factor, np.eye(len(z))), *whose), cho_solve(factor, z)
            for column, each in cross.items():
                means[column] += each.T @ alpha
            inverses.append(Inverse(near, alpha, spread_of(np.tril(factor[0])), *whose))
    return Told(found, means, inverses)


def _sets(part: Part, known: Whitened, groups: Sequence[Covariances]) -> Iterator[Set]:
    """Every set of a part, without what fills it up."""
    white = {group.start + j: variance for group in groups for j, variance in enumerate(group.white)}
    of = {column: (group, which, scale) for group in groups for column, which, scale in group.latents()}
    for number, columns in enumerate(part.columns):
        loadings, z = np.asarray(known.loadings[number], float), np.asarray(known.z[number], float)
        kept, *whose = part.rows_of(number)
        z, at, elements, kept = (each[kept >= 0] for each in (z, *whose, kept))
        signal, cross = np.zeros((len(z), len(z))), dict[int, Matrix]()
        noise = np.ones(len(z))
        for column, own in zip(map(int, columns), loadings, strict=True):
            group, which, scale = of[column]
            weights = own.reshape(-1)[kept]
            signal = signal + scale * weights[:, None] * group.known[which][np.ix_(at, at)] * weights
            cross[column] = scale * weights[:, None] * group.cross[which][at]
            noise += white[column] * weights**2
        unit = np.sqrt(noise)
        cross = {c: each / unit[:, None] for c, each in cross.items()}
        yield signal / np.outer(unit, unit), cross, z / unit, at, elements
