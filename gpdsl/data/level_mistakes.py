"""Mistakes about labels: D115 to D117 and D149."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.data.errors import DataMistake


@dataclass(frozen=True)
class LabelOutside(DataMistake):
    """A label that is none of the declared levels."""

    column: str
    row: int
    value: str
    index: str
    levels: str
    code: ClassVar = "D116"
    message: ClassVar = "column `{column}`, row {row}: the label `{value}` is not a level of `{index}`"
    help: ClassVar = "the levels are {levels}"


@dataclass(frozen=True)
class UnknownLevel(DataMistake):
    """A level that the rows of a fit did not have, where only those have a value."""

    column: str
    row: int
    value: str
    index: str
    needs: str
    remedy: str
    code: ClassVar = "D149"
    message: ClassVar = (
        "column `{column}`, row {row}: the fit has seen no `{value}`, and `{needs}` has one value per level"
    )
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class TooManyLevels(DataMistake):
    """A label column with so many values that it is hardly one."""

    column: str
    found: int
    limit: int
    code: ClassVar = "D117"
    message: ClassVar = "column `{column}` is declared a label, but has {found} different values (at most {limit})"
    help: ClassVar = "declare the output `real` or `count`, or group the labels"


@dataclass(frozen=True)
class LevelOutside(DataMistake):
    """A number that is no level of a `Coregion` kernel."""

    column: str
    row: int
    value: str
    latent: str
    size: int
    code: ClassVar = "D145"
    message: ClassVar = "column `{column}`, row {row}: {value} is no level of the `Coregion` of `{latent}`"
    help: ClassVar = "its levels are the whole numbers from 1 to {size}, the size of its matrix"
