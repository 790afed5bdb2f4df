"""D12x and D13x: what can be wrong with a file or an object that should hold a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.data.errors import DataMistake


@dataclass(frozen=True)
class Unreadable(DataMistake):
    """A file that is absent, locked, or not text."""

    reason: str
    code: ClassVar = "D120"
    message: ClassVar = "the file cannot be read: {reason}"
    help: ClassVar = "check the path and the contents"


@dataclass(frozen=True)
class UnknownFormat(DataMistake):
    """A file name with an extension that is not read."""

    extension: str
    code: ClassVar = "D121"
    message: ClassVar = "files ending in `{extension}` are not read"
    help: ClassVar = "use .csv, .tsv, .parquet or .npz"


@dataclass(frozen=True)
class DuplicateColumn(DataMistake):
    """Two columns with one name."""

    column: str
    first: int
    second: int
    code: ClassVar = "D122"
    message: ClassVar = "columns {first} and {second} are both called `{column}`"
    help: ClassVar = "rename one of them"


@dataclass(frozen=True)
class RaggedRow(DataMistake):
    """A line with too many or too few fields."""

    row: int
    found: int
    expected: int
    code: ClassVar = "D123"
    message: ClassVar = "row {row} has {found} fields, expected {expected} as in the first line"
    help: ClassVar = "complete the line; a value with a comma in it is written in double quotes"


@dataclass(frozen=True)
class NoHeader(DataMistake):
    """A file whose first line is not column names."""

    code: ClassVar = "D124"
    message: ClassVar = "the first line holds numbers, not column names"
    help: ClassVar = "write the names of the columns on the first line, as in `x1,x2,y`"


@dataclass(frozen=True)
class MissingPackage(DataMistake):
    """A format that needs a package that is not installed."""

    format: str
    package: str
    code: ClassVar = "D125"
    message: ClassVar = "{format} needs the package `{package}`, which is not installed"
    help: ClassVar = "pip install 'gpdsl[data]', or save the data as .csv"


@dataclass(frozen=True)
class BeyondMemory(DataMistake):
    """Columns that do not fit into memory."""

    needed: str
    free: str
    code: ClassVar = "D126"
    message: ClassVar = "its columns take about {needed} in memory, of which {free} are free"
    help: ClassVar = (
        "keep the columns needed, or save each as NAME.npy in a folder and pass the folder: these stay on disk"
    )


@dataclass(frozen=True)
class OutOfScale(DataMistake):
    """Values of which no variance can be computed."""

    column: str
    row: int
    value: str
    unit: str
    code: ClassVar = "D129"
    message: ClassVar = "column `{column}`, row {row}: the output is {value}, whose variance float64 cannot multiply"
    help: ClassVar = "state it in other units: values nearer to 1, as the column divided by {unit}"


@dataclass(frozen=True)
class TooManyDigits(DataMistake):
    """A number, or a label that is one, which a float does not hold."""

    column: str
    row: int
    value: str
    code: ClassVar = "D127"
    message: ClassVar = "column `{column}`, row {row}: `{value}` is beyond what the 64 bits of a number hold"
    help: ClassVar = "numbers reach 1.8e308, and whole ones are exact up to 2^53: rescale it, or give labels as text"


@dataclass(frozen=True)
class UnclearColumns(DataMistake):
    """Columns of which not all can be the quantity."""

    kind: str
    name: str
    reason: str
    code: ClassVar = "D128"
    message: ClassVar = "it is not clear which columns are {kind} `{name}`: {reason}"
    help: ClassVar = "rename the others, or say which: columns={{'{name}': [...]}} in Python, --column {name}=A,B,..."


@dataclass(frozen=True)
class NotATable(DataMistake):
    """An object that is no table."""

    kind: str
    code: ClassVar = "D130"
    message: ClassVar = "data of type `{kind}` are not a table"
    help: ClassVar = (
        "pass a dictionary of arrays, a data frame (of a lazy one, what it collects), "
        "or the path of a .csv or .parquet file"
    )


@dataclass(frozen=True)
class NotAColumn(DataMistake):
    """An entry that is no array of numbers or text."""

    column: str
    reason: str
    code: ClassVar = "D131"
    message: ClassVar = "`{column}` is no column of numbers or text: {reason}"
    help: ClassVar = "give it one number or one text per row"
