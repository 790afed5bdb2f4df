"""E380 to E383: latents over points that are the same in every row, and the points themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class PointsWithoutIndex(Mistake):
    """`latent f(node)` over a constant whose points no index numbers, or over several that do not go together."""

    latent: str
    name: str
    why: str
    remedy: str
    code: ClassVar = "E380"
    message: ClassVar = "`{latent}` cannot be a field over `{name}`: {why}"
    label: ClassVar = "expected points along one index"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class FieldInRow(Mistake):
    """A field where something with a value in the row is needed, or elsewhere than at its points."""

    name: str
    why: str
    code: ClassVar = "E381"
    message: ClassVar = "`{name}` is a field, the same in every row: {why}"
    label: ClassVar = "not possible for a field"
    help: ClassVar = "a field is read whole, `{name}`, or at one of its points, `{name}[1]`"


@dataclass(frozen=True)
class NoColumnsOfPoints(Mistake):
    """`RBF(1, on = node[1])` for a field."""

    latent: str
    code: ClassVar = "E382"
    message: ClassVar = "the kernel of a field sees all columns of its points"
    label: ClassVar = "`on` has nothing to select from in `{latent}`"
    help: ClassVar = "leave `on` out; a length-scale for each column, `param ell : positive[2]`, tells them apart"


@dataclass(frozen=True)
class BadLattice(Mistake):
    """`lattice(...)` that describes no grid."""

    why: str
    code: ClassVar = "E383"
    message: ClassVar = "this is no grid of points: {why}"
    label: ClassVar = "expected `lattice(lower, upper, points)`"
    help: ClassVar = "write `lattice([0, 0], [4, 2], [21, 11])`, or `lattice(0, 10, 50)` along a line"
