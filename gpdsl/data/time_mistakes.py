"""D146 to D148: what can be wrong with times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.data.errors import DataMistake


@dataclass(frozen=True)
class TimeInColumn(DataMistake):
    """A date or a time where a number belongs."""

    column: str
    row: int
    value: str
    code: ClassVar = "D146"
    message: ClassVar = "column `{column}`, row {row}: `{value}` is a date or a time, not a number"
    help: ClassVar = (
        "declare an input `time` to count days since the first, as in `input t : time`, "
        "or `time(per = hour)`; an output is a number"
    )


@dataclass(frozen=True)
class NotATime(DataMistake):
    """A number, or other text, where a date or a time belongs."""

    column: str
    row: int
    value: str
    code: ClassVar = "D147"
    message: ClassVar = "column `{column}`, row {row}: `{value}` is no date or time"
    help: ClassVar = (
        "write dates as 2024-01-05, times as 2024-01-05T14:30 or with their zone as 2024-01-05T14:30+02:00; "
        "for numbers declare the input `real`, for whole numbers that are years `time(per = year)`"
    )


@dataclass(frozen=True)
class ZonesDiffer(DataMistake):
    """Times of which some have a zone and others have none."""

    column: str
    row: int
    found: str
    others: str
    code: ClassVar = "D148"
    message: ClassVar = "column `{column}`, row {row}: the time has {found}, {others}"
    help: ClassVar = "give all of them a zone, or none: nobody can say how far they are from each other"
