"""Values that stand on a complete grid, once in every cell, under a kernel that is a product over its sides.

Their covariance is a Kronecker product K_1 x ... x K_d: of the sides that the rows make (`f(t, s)` under `RBF(on = t) *
Matern32(on = s)`, with every pair of a t and an s), and of outputs that are observed in all rows, which read the same
processes of one kernel each in its own way. Whether there is a grid is found in the data, whatever the order of rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Int

from gpdsl.data import Data
from gpdsl.inference.exact.parts import Part
from gpdsl.kernels.form import Base, Form, On, Product, block, columns_read, count, has_white, picked
from gpdsl.kernels.functionals import Functionals, Values, blocks
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group, columns_of
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows
from gpdsl.symbolic.expectations import latents_in
from gpdsl.symbolic.readings import OWN

if TYPE_CHECKING:
    from gpdsl.inference.exact.system import Statement, System

# Kernels as products of factors that read disjoint columns.

BY_COLUMN = frozenset({"RBF", "Periodic", "Same"})
"""Kernels that are products over their columns, each with an element of those parameters that are vectors."""


@dataclass(frozen=True)
class Factor:
    """A factor of a kernel: its form, the numbers of its parameters, and the columns that it reads.

    `place` is the element of parameters that are vectors, None for all of them.
    """

    form: Form
    parameters: tuple[int, ...]
    columns: frozenset[int]
    place: int | None = None

    def arguments(self, every: Sequence[Array]) -> list[Array]:
        """Its parameters, among those of the whole kernel."""
        own = [every[number] for number in self.parameters]
        return own if self.place is None else [a[self.place] if a.ndim else a for a in own]


def factors_of(form: Form, width: int, first: int = 0) -> list[Factor]:
    """What a kernel over so many columns is a product of; `first` is the number of its first parameter."""
    if isinstance(form, Product):
        found: list[Factor] = []
        for each in form.factors:
            found += factors_of(each, width, first)
            first += count(each)
        return found
    numbers = tuple(range(first, first + count(form)))
    inner, taken = (form.kernel, picked(form)) if isinstance(form, On) else (form, list(range(width)))
    if isinstance(inner, Base) and inner.name in BY_COLUMN and taken:
        apart = [(On((block(c, c + 1),), (), inner), frozenset({c})) for c in taken]
        return [Factor(own, numbers, read, place) for place, (own, read) in enumerate(apart)]
    return [Factor(form, numbers, columns_read(form, width))]


def _linked(factors: Sequence[Factor], width: int) -> list[frozenset[int]]:
    """Columns, together where one factor reads them."""
    found = [frozenset({c}) for c in range(width)]
    for each in factors:
        together = [own for own in found if own & each.columns]
        if together:
            found = [own for own in found if not own & each.columns] + [frozenset.union(*together)]
    return sorted(found, key=min)


# Which sides there are.

MOST_SIDES = 6
"""Sets of columns of several values that are looked at: each pair of halves of them is."""


@dataclass(frozen=True, eq=False)
class Side:
    """Columns of a grid: what a kernel says of them, and the numbers of points where each of their values stands."""

    factors: tuple[Factor, ...]
    columns: frozenset[int]
    where: Int[np.ndarray, " values"]

    @property
    def form(self) -> Form:
        """The product of its factors."""
        forms = tuple(each.form for each in self.factors)
        return forms[0] if len(forms) == 1 else Product(forms) if forms else Base("Constant", ())

    def arguments(self, every: Sequence[Array]) -> list[Array]:
        """Their parameters, in order."""
        return [own for each in self.factors for own in each.arguments(every)]


@dataclass(frozen=True, eq=False)
class Grid:
    """How many outputs read the same processes, the sides of their rows, and which value stands in each cell.

    Cells run through outputs, then through the first side, the last one fastest.
    """

    outputs: int
    sides: tuple[Side, ...]
    order: Int[np.ndarray, " values"]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of outputs, and values of each side."""
        return self.outputs, *(len(side.where) for side in self.sides)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The same without a single output."""
        return self.shape[self.outputs == 1 :]

    def mixes(self, part: Part) -> bool:
        """Whether outputs read the same values of processes, or one output those of several."""
        elements = part.elements.shape[1]
        return self.outputs == elements and elements * part.columns.size > 1


def grid_of(group: Group, part: Part, points: np.ndarray) -> Grid | None:
    """The grid of the values of a part with the columns they read (`Part.grid`), where they stand on one.

    `points` [readings * rows, columns] are those of the group.
    """
    assert part.grid is not None
    elements, rows = part.elements.shape[1], part.rows[0]
    total, one = len(points) // len(group.readings.basis), len(group.readings.basis) == 1
    readings = (part.columns[0][part.grid[1:]] - group.start) // group.size
    if np.max(part.columns) >= group.start + group.size * len(group.readings.basis):
        return None
    places = rows if one else (readings[:, None] * total + rows).ravel()
    seen = np.asarray(points)[places]
    factors = factors_of(group.form, points.shape[1])
    found = _sides(seen, _linked(factors, points.shape[1]))
    if found is None:
        return None
    sides = []
    for columns, codes in found:
        where = places[np.unique(codes, return_index=True)[1]]
        own = tuple(each for each in factors if each.columns and each.columns <= columns)
        sides.append(Side(own, columns, where))
    free = tuple(each for each in factors if not each.columns)  # a constant belongs anywhere
    sides[0] = replace(sides[0], factors=(*sides[0].factors, *free))
    cell = np.ravel_multi_index([codes for _, codes in found], [len(side.where) for side in sides])
    order = np.empty(len(cell), int)
    order[cell] = np.arange(len(cell))
    if not one:
        return Grid(1, tuple(sides), order)
    return Grid(elements, tuple(sides), (np.arange(elements)[:, None] * len(order) + order).ravel())


def _sides(
    points: np.ndarray, linked: Sequence[frozenset[int]]
) -> list[tuple[frozenset[int], Int[np.ndarray, " points"]]] | None:
    """The smallest sets of columns of which all combinations of values occur once, with the place of each value.

    None where points are equal. A set of points is a product of smaller ones in one way at most, so that halves which
    make a product can be cut again without looking at the others.
    """
    codes = []
    for columns in linked:
        own = [np.unique(points[:, c], return_inverse=True)[1].ravel() for c in sorted(columns)]
        codes.append(_coded(own))
    sizes = [int(each.max()) + 1 for each in codes]
    moving = [k for k, size in enumerate(sizes) if size > 1]
    whole = _coded([codes[k] for k in moving] or codes[:1])
    if int(whole.max()) + 1 < len(points):
        return None
    cut = len(moving) <= MOST_SIDES and all(sizes[k] < len(points) for k in moving)
    apart = list(_halves(moving, codes)) if cut else [moving]
    apart += [[k] for k, size in enumerate(sizes) if size == 1]
    made = [(frozenset.union(*[linked[k] for k in own]), _coded([codes[k] for k in own])) for own in apart if own]
    return sorted(made, key=lambda side: min(side[0]))


def _halves(members: list[int], codes: Sequence[np.ndarray]) -> Iterator[list[int]]:
    """Members cut in two wherever all combinations of values of both halves occur."""
    size = lambda some: int(_coded([codes[k] for k in some]).max()) + 1  # noqa: E731
    rest, whole = members[1:], size(members) if members else 0
    for many in range(len(rest)):
        for some in itertools.combinations(rest, many):
            one = [members[0], *some]
            other = [k for k in rest if k not in some]
            if size(one) * size(other) == whole:
                yield from _halves(one, codes)
                yield from _halves(other, codes)
                return
    yield members


def _coded(codes: Sequence[np.ndarray]) -> Int[np.ndarray, " points"]:
    """One number from 0 for every combination of values that occurs."""

    def paired(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.unique(one * (int(other.max()) + 1) + other, return_inverse=True)[1].ravel()

    return reduce(paired, codes)


# Whether all that is observed stands on a grid, in units of its noise too.


def separable(program: Program) -> bool:
    """Whether there are several factors, or several processes of one kernel: what a grid could make use of."""
    if len(program.groups) != 1 or program.fields or program.opaque:
        return False
    (group,) = program.groups
    if group.per_row or group.points or group.factors > 1 or has_white(group.form):
        return False
    width = columns_of(group, program.translator)
    return group.size > 1 or len(_linked(factors_of(group.form, width), width)) > 1


LOOKED_AT = 10_000
"""Of the first rows, for whether their columns have few enough values."""


def may_be_grid(program: Program, data: Data, longest: int) -> bool:
    """Whether values may stand on a grid with no side longer than that: what costs next to nothing to see.

    A side has at least as many values as any of its columns.
    """
    if not separable(program):
        return False
    (group,) = program.groups
    if group.readings.all != (OWN,):
        return True
    some = [np.asarray(data.inputs[name][:LOOKED_AT]) for name in group.inputs if name in data.inputs]
    columns = (column for each in some for column in each.reshape(len(each), -1).T)
    return all(len(np.unique(column)) <= longest for column in columns)


def gridded(system: System, rows: Rows, dtype: Any = float) -> System | None:
    """The system as one part on a grid; None where it stands on none.

    Noise may differ along one side, or from output to output where these read the same processes.
    """
    part, (group,) = _one_part(system.parts), system.program.groups
    if part is None:
        return None
    read = functionals_at(group, group.readings.basis, rows)
    if not all(len(each) == 1 and each[0][0] == 1.0 and isinstance(each[0][1], Values) for each in blocks(read)):
        return None
    reads, told = _columns(system, part), _told(system, part, rows)
    several = len(group.readings.basis) > 1
    if told is None or (several and (group.size > 1 or reads is None)):
        return None
    places = reads if several and reads is not None else np.zeros(part.elements.shape[1], int)
    part = replace(part, grid=np.concatenate([[1], places]))
    grid = grid_of(group, part, np.asarray(points_of(read), dtype))
    if grid is None:
        return None
    along = _along(grid, told, mixed=grid.mixes(part))
    if along is None:
        return None
    part = replace(part, grid=np.concatenate([[along], places]))
    return replace(system, parts=(part,), grid=grid)


def points_of(read: Functionals) -> Any:
    """All points of values, reading by reading."""
    return jnp.concatenate([each[0][1].points for each in blocks(read)])


def _one_part(parts: Sequence[Part]) -> Part | None:
    """All values as one set; None where some are missing in rows where others are observed."""
    if len(parts) != 1 or parts[0].kept is not None or not np.all(parts[0].rows == parts[0].rows[:1]):
        return None
    (part,) = parts
    elements = np.asarray(sorted(map(tuple, part.elements.reshape(-1, 2).tolist())))
    return Part(elements[None], np.unique(part.columns)[None], part.rows[:1], None)


def _columns(system: System, part: Part) -> np.ndarray | None:
    """The place among a part's columns of the one that each element reads; None where one reads several."""
    read = [system.reads[s, number] for s, number in part.elements[0].tolist()]
    if any(len(each) != 1 for each in read):
        return None
    return np.searchsorted(part.columns[0], [next(iter(each)) for each in read])


def _told(system: System, part: Part, rows: Rows) -> list[np.ndarray] | None:
    """What loadings depend on, [elements, rows] each: the element, and inputs. None where more than that."""
    elements, count = part.elements.shape[1], part.rows.shape[1]
    found = [np.broadcast_to(np.arange(elements)[:, None], (elements, count))]
    for each in {number: system.statements[number] for number in part.elements[0, :, 0].tolist()}.values():
        names = _inputs(system.program, each)
        if names is None:
            return None
        for name in names:
            columns = np.asarray(rows.inputs[name])[part.rows[0]].reshape(count, -1)
            found += [np.broadcast_to(column, (elements, count)) for column in columns.T]
    return found


def _inputs(program: Program, each: Statement) -> set[str] | None:
    """The inputs and labels that the slopes of a statement in its latents read; None where they read other data."""
    translator, found = program.translator, set()
    for latent in latents_in(translator, each.signal):
        slope = sp.diff(each.signal, latent)
        for ref in (translator.references[symbol] for symbol in slope.free_symbols):
            if ref.kind == "input":
                found.add(ref.name)
            elif ref.kind == "gathered":
                found |= {label for _, label in ref.at}
            elif ref.kind not in {"param", "const", "index"}:
                return None
    return found


def _along(grid: Grid, told: Sequence[np.ndarray], *, mixed: bool) -> int | None:
    """The side along which alone loadings may differ, from 1; None where there are several, or any but outputs."""
    differ: Callable[[np.ndarray, int], bool] = lambda a, k: bool(np.any(a != np.take(a, [0], axis=k)))  # noqa: E731
    cells = [each.ravel()[grid.order].reshape(grid.shape) for each in told]
    found = {k for each in cells for k in range(len(grid.shape)) if differ(each, k)}
    if mixed:
        return 1 if found <= {0} else None
    return next(iter(found), 1) if len(found) <= 1 else None


EIGEN = 20.0
"""An eigendecomposition takes as long as so many times n^3 operations of a product of matrices."""


def work(lengths: Sequence[int]) -> float:
    """Floating-point operations of an evaluation and its gradient on a grid, eigenvectors by the time they take."""
    values = math.prod(map(float, lengths))
    return sum(EIGEN * float(n) ** 3 + 6.0 * values * n for n in lengths)


# Values that rounding keeps from a grid: of two that are nearly equal each would be a place of its own on its side.

NEAR = 1e-9
"""Of the largest value of a column: nobody means two places that are closer."""


def near_grid(program: Program, data: Data) -> str:
    """Why rows are no grid that were one if nearly equal values were equal, with two of them; else nothing."""
    if not separable(program):
        return ""
    found, lengths = "", []
    for name in (name for name in program.groups[0].inputs if name in data.inputs):
        for column in np.asarray(data.inputs[name], float).reshape(data.rows, -1).T:
            values = np.unique(column)
            near = np.diff(values) <= NEAR * np.abs(values).max()
            lengths.append(len(values) - int(near.sum()))
            if near.any() and not found:
                first = int(np.argmax(near))
                found = f"`{name}` has {values[first]!s} and {values[first + 1]!s}"
    if not found or len(lengths) < 2 or prod(lengths) > data.rows:
        return ""
    return f"; no grid, since nearly equal values are not equal: {found}, and rounding them alike may make it one"
