"""Rows that share no level of a label: a covariance of `Same` falls into blocks, however many rows there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from gpdsl.inference.exact.parts import Part
from gpdsl.kernels.form import telling
from gpdsl.kernels.functionals import Functionals, every_point
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group
from gpdsl.program.rows import Rows
from gpdsl.symbolic.readings import Reading, reading


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
