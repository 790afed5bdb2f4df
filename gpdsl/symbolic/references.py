"""What the symbols of a translated model stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sympy as sp

from gpdsl.language import model as m
from gpdsl.symbolic.readings import OWN, Reading

Position = int | str
"""A subscript: an element counted from 1, or the name of an axis along which the expression is generic.

On its way into a reference also `level_of` an input: the element that it says in each row.
"""

_LEVEL = "@"

Environment = Mapping[str, Position]
"""Where each axis stands, by `axis_key`."""

PREFIXED = {"indicator", "index", "observed", "whitening"}
"""Kinds whose symbols would otherwise have the name of another one."""


Element = tuple[str, tuple[Position, ...]]
"""A quantity's name and where in it."""


class DefineFirst(Exception):
    """Another element of a `let` has to be translated before this one, or Python's stack would overflow."""

    def __init__(self, element: Element) -> None:
        super().__init__(element)
        self.element = element


class NeedsElements(Exception):
    """The expression has no generic form along `axis` (a definition by cases): translate it element by element."""

    def __init__(self, axis: str) -> None:
        super().__init__(axis)
        self.axis: str = axis


def shifted(position: Position, offset: int) -> Position:
    """A subscript moved by a number, which needs a number to start from."""
    if isinstance(position, int):
        return position + offset
    if offset:
        raise NeedsElements(position)
    return position


@dataclass(frozen=True)
class Ref:
    """What a symbol stands for. `kind` is input, const, param, latent, output, indicator, index, external, observed,
    whitening, reduced or gathered.

    Row variables are latents too: independent values, one per row. `reading` says what is read of a latent. What is
    gathered is a constant or parameter, at the row's level of the inputs `at` along these of its axes; `positions` are
    those along the others.
    """

    kind: str
    name: str
    positions: tuple[Position, ...] = ()
    reading: Reading = OWN
    at: tuple[tuple[int, str], ...] = ()

    @property
    def places(self) -> tuple[Position, ...]:
        """What stands in its brackets."""
        found = list(self.positions)
        for place, label in self.at:
            found.insert(place, label)
        return tuple(found)


def level_of(label: str) -> Position:
    """The element that an input of levels says."""
    return _LEVEL + label


def gathered(name: str, positions: tuple[Position, ...]) -> Ref:
    """A constant or parameter at levels of the row, which are among the positions."""
    levels = {k: p[1:] for k, p in enumerate(positions) if isinstance(p, str) and p.startswith(_LEVEL)}
    rest = tuple(p for k, p in enumerate(positions) if k not in levels)
    return Ref("gathered", name, rest, at=tuple(levels.items()))


@dataclass(frozen=True)
class ExternalUse:
    """One distinct call of an opaque function: its arguments element by element, and the shape of its result.

    Of a function that takes a field, `whole` holds the arguments as formulas that are generic along their axes, where
    there are such formulas: a field of hundreds of values is not written out when it is computed.
    """

    key: str
    function: str
    arguments: tuple[tuple[tuple[int, ...], tuple[sp.Expr, ...]], ...]
    result: tuple[int, ...]
    likelihood: bool = False
    whole: tuple[tuple[tuple[str, ...], sp.Expr] | None, ...] = ()


@dataclass(frozen=True)
class Reduced:
    """A reduction by `operator` over the `count` elements of `body` along `axis`, along which it is generic."""

    operator: str
    axis: str
    count: int
    body: sp.Expr


@dataclass(frozen=True)
class Covariance:
    """The covariance matrix of an output's row, entry by entry; free of latents."""

    output: str
    entries: tuple[tuple[sp.Expr, ...], ...]


def axis_key(axis: m.Axis) -> str:
    """Name under which an environment holds the position along `axis`; bare sizes get a star."""
    return axis.name if axis.name is not None else f"*{axis.describe()}"
