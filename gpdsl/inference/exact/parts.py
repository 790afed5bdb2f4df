"""Observed values that share no latent with others, and batches of them: programs do not grow with their number.

Alike are sets of values that read as many processes of the same groups in the same way, whatever the rows and the
numbers of their kernels, and that are nearly of one size. The smaller ones are filled up with values that read nothing
and are zero, z = 0, so that they add nothing to the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from gpdsl.inference.posteriors.family import ELEMENTS
from gpdsl.kernels.form import telling
from gpdsl.kernels.functionals import Functionals, every_point
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group
from gpdsl.program.rows import Rows
from gpdsl.symbolic.readings import Reading, reading

NEAR, LITTLE, NEAR_LITTLE = 0.8, 32, 0.4
"""Share of the largest size from which sets are filled up to it; from which those of so few values are."""


@dataclass(frozen=True, eq=False)
class Part:
    """Observed values that share latents among each other and with no other value; or several such sets, all alike.

    The first axis of everything counts the sets. `elements` [sets, elements, 2] are statement and number of its
    element; `columns` [sets, columns] those of the marginals that they read; `rows` [sets, rows] the numbers of the
    rows in which any of them is observed; `kept` [sets, values] the places among [elements * rows] that are, None for
    all of them, and -1 for no value, which fills up the smaller sets. Of a set on a grid (`grids`) `grid` says along
    which side loadings may differ, and then the place of the column that each element reads.
    """

    elements: np.ndarray
    columns: np.ndarray
    rows: np.ndarray
    kept: np.ndarray | None
    grid: np.ndarray | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of observed values of each set."""
        if self.kept is None:
            return (self.width,) * len(self.rows)
        return tuple(map(int, np.sum(self.kept >= 0, axis=1)))

    @property
    def width(self) -> int:
        """Number of values of each set, with those that fill it up: the size of B."""
        return self.elements.shape[1] * self.rows.shape[1] if self.kept is None else self.kept.shape[1]

    def rows_of(self, number: int) -> tuple[Int[np.ndarray, " values"], ...]:
        """The places of the values of a set among its elements and rows, -1 where one fills it up, their rows, and of
        which element they are, as one number."""
        kept = np.arange(self.width) if self.kept is None else self.kept[number]
        element, row = np.divmod(kept.clip(0), self.rows.shape[1])
        return kept, self.rows[number][row], self.elements[number][element] @ [ELEMENTS, 1]

    def values_of(self, found: Array, axes: Sequence[int] = (-1,)) -> Array:
        """What belongs to the values of each set, [sets, ...], from what belongs to all its elements and rows.

        Along the axes given; zero for values that fill it up.
        """
        if self.kept is None:
            return found
        filled = bool(np.any(self.kept < 0))

        def own(found: Array, kept: Any) -> Array:
            for axis in axes:
                found = jnp.take(found, kept.clip(0), axis=axis)
                if filled:
                    some = jnp.expand_dims(kept >= 0, tuple(range(1, -axis)))
                    found = jnp.where(some, found, 0.0)
            return found

        return over_sets(own, found, self.kept)


def over_sets(function: Callable[..., Any], *stacked: Any) -> Any:
    """`function` of what each set has, of [sets, ...] all; what is known to be equal for all sets is computed once."""
    if len(stacked[0]) == 1:
        return jax.tree.map(lambda found: found[None], function(*[each[0] for each in stacked]))
    equal = [isinstance(each, np.ndarray) and bool(np.all(each == each[:1])) for each in stacked]

    def own(*different: Any) -> Any:
        rest = iter(different)
        return function(*[each[0] if same else next(rest) for each, same in zip(stacked, equal, strict=True)])

    return jax.vmap(own)(*[jnp.asarray(each) for each, same in zip(stacked, equal, strict=True) if not same])


@dataclass(frozen=True)
class Kind:
    """Processes of a group with one covariance matrix up to scale, which each set of a part reads.

    `factor` [sets] is the number of the matrix and `processes` [sets, processes] are theirs; `columns`: of each
    reading, the places among a set's columns, process by process, -1 where it is not read.
    """

    factor: np.ndarray
    processes: np.ndarray
    columns: Mapping[int, tuple[int, ...]]


def kinds(group: Group, columns: np.ndarray) -> list[Kind]:
    """The different covariance matrices of a group among the columns [sets, columns] of the marginals."""
    sets: list[list[Kind]] = []
    for own in columns:
        places = {int(column): place for place, column in enumerate(own)}
        inside = [c - group.start for c in places if group.start <= c < group.stop]
        inside = [c for c in inside if c // group.size < len(group.readings.basis)]
        processes, found = sorted({c % group.size for c in inside}), []
        shared = [processes] if group.factors == 1 and processes else [[each] for each in processes]
        for some in shared:
            readings = sorted({c // group.size for c in inside if c % group.size in some})
            whole = {r: tuple(places.get(group.start + r * group.size + j, -1) for j in some) for r in readings}
            found.append(Kind(np.asarray([0 if group.factors == 1 else some[0]]), np.asarray([some]), whole))
        sets.append(found)
    return [
        Kind(np.concatenate([k.factor for k in alike]), np.concatenate([k.processes for k in alike]), alike[0].columns)
        for alike in zip(*sets, strict=True)
    ]


def batched(groups: Sequence[Group], apart: Sequence[Part]) -> tuple[Part, ...]:
    """Sets that are parts of their own, where they are alike as one part."""
    classes: dict[Any, list[Part]] = {}
    for part in apart:
        read = [
            (number, kind.processes.shape, tuple(kind.columns.items()))
            for number, group in enumerate(groups)
            for kind in kinds(group, part.columns)
        ]
        classes.setdefault((part.elements.shape, part.columns.shape, *read), []).append(part)
    return tuple(part for members in classes.values() for part in map(_stacked, _of_one_size(members)))


def _of_one_size(members: Sequence[Part]) -> list[list[Part]]:
    """Parts that are nearly of one size together, in their order."""
    found, rest = [], list(members)
    while rest:
        largest = max(rest, key=lambda part: part.width)
        share = NEAR_LITTLE if largest.width <= LITTLE else NEAR
        alike = [p.width >= share * largest.width and p.rows.size >= share * largest.rows.size for p in rest]
        found.append([part for part, near in zip(rest, alike, strict=True) if near])
        rest = [part for part, near in zip(rest, alike, strict=True) if not near]
    return found


def _stacked(alike: Sequence[Part]) -> Part:
    """Parts of one set each as one; rows that fill one up repeat its last, and no value is kept of them."""
    count = max(part.rows.size for part in alike)
    rows = np.stack([np.pad(part.rows[0], (0, count - part.rows.size), mode="edge") for part in alike])
    kept = None
    if any(part.kept is not None or part.rows.size < count for part in alike):
        kept = np.full((len(alike), max(part.width for part in alike)), -1)
        for own, part in zip(kept, alike, strict=True):
            places = np.arange(part.width) if part.kept is None else part.kept[0]
            own[: part.width] = places // part.rows.size * count + places % part.rows.size
    elements, columns = (np.concatenate([getattr(p, name) for p in alike]) for name in ("elements", "columns"))
    return Part(elements, columns, rows, kept)


# Rows that share no level of a label: a covariance of `Same` falls into blocks, however many rows there are.


def together(groups: Sequence[Group], rows: Rows, known: Int[np.ndarray, " some"]) -> list[Int[np.ndarray, " few"]]:
    """The rows among those `known`, apart where no latent of these groups links them."""
    if len(known) == 0 or not all(falls_apart(group) for group in groups):
        return [known]
    edges: list[np.ndarray] = []
    total = len(known)
    for group in groups:
        for single in _singles(group):
            points = np.asarray(every_point(functionals_at(group, (single,), rows)))[known]
            edges.append(points[:, sorted(telling(group.form, points.shape[1]))])
        count = len(_singles(group))
        _, level = np.unique(np.concatenate(edges[-count:]), axis=0, return_inverse=True)
        edges[-count:] = np.split(level.ravel() + total, count)
        total = int(np.max(edges[-count:])) + 1
    ends, starts = np.concatenate(edges), np.tile(np.arange(len(known)), len(edges))
    links = coo_matrix((np.ones(len(ends), bool), (starts, ends)), (total, total))
    _, component = connected_components(links, directed=False)
    order = np.argsort(component[: len(known)], kind="stable")
    cuts = np.flatnonzero(np.diff(component[: len(known)][order])) + 1
    return [known[each] for each in np.split(order, cuts)]


def _singles(group: Group) -> list[Reading]:
    """The functionals that all readings are made of, each alone."""
    return [reading(each) for each in dict.fromkeys(each for one in group.readings.all for each, _ in one)]


def falls_apart(group: Group) -> bool:
    """Whether some columns of its arguments tell independent values apart."""
    return not group.points and bool(telling(group.form, 1))


# --- new rows ---------------------------------------------------------------------------------------------------

SMALL = 128
"""Values of a set up to which each new row has the factor of its own set."""


def by_level(part: Part, groups: Sequence[Group]) -> bool:
    """Whether new rows can each be looked at beside the one set of values that shares its level."""
    one = all(len(telling(group.form, 1)) == 1 and not group.points for group in groups)
    return len(part.rows) > 1 and part.width <= SMALL and one


def sets_of(
    part: Part, fitted: Sequence[Group], seen: Sequence[Group], read: Sequence[Functionals], rows: Rows
) -> Iterator[Int[Array, " new"]]:
    """For each column of labels, the set of the part that shares the level of each new row there, -1 for none.

    No set comes twice for a row.
    """
    before: list[Int[Array, " new"]] = []
    for old, view, of_all in zip(fitted, seen, read, strict=True):
        column = telling(old.form, 1)
        codes = every_point(of_all)[:, min(column)]
        blocks = sum(len(each) for each in old.readings.basis)
        owner = np.full(len(codes) // blocks, -1)
        for number, own in enumerate(part.rows):
            owner[own] = number
        owners = jnp.tile(jnp.asarray(owner), blocks)
        codes = jnp.where(owners < 0, jnp.inf, codes)
        order = jnp.argsort(codes)
        for single in _singles(view):
            new = every_point(functionals_at(view, (single,), rows))[:, min(column)]
            place = order[jnp.searchsorted(codes[order], new).clip(0, len(order) - 1)]
            found = jnp.where(codes[place] == new, owners[place], -1)
            for other in before:
                found = jnp.where(found == other, -1, found)
            before.append(found)
            yield found
