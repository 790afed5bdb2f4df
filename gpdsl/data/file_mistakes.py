"""D12x and D13x: what can be wrong with a file or an object that should hold a table."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.data.errors import CellMistake, ColumnMistake, DataMistake


class Unreadable(DataMistake, code="D120"):
    """A file that is absent, locked, or not text."""

    reason: str
    remedy: str = "check the path and the contents"
    message: ClassVar = "the file cannot be read: {reason}"


NOT_UTF8 = "it is not UTF-8 text"
SAVE_AGAIN = (
    "save it as UTF-8, which spreadsheets call `CSV UTF-8`, or convert it: "
    "iconv -f {encoding} -t UTF-8 OLD.csv > NEW.csv"
)
ZERO_BYTE = "it is damaged: write it again, or drop these bytes: tr -d '\\000' < OLD.csv > NEW.csv"
"""What to do about text that is none."""
OPEN_QUOTE = "a double quote opens a field here that none closes before the end of the file"
CLOSE_IT = 'close it; one within a field is written twice, as in "a 5"" pipe"'
"""A quote that would take all later rows into its field."""


class UnknownFormat(DataMistake, code="D121"):
    """A file name with an extension that is not read."""

    extension: str
    message: ClassVar = "files ending in `{extension}` are not read"
    help: ClassVar = "use .csv, .tsv, .parquet or .npz"


class DuplicateColumn(ColumnMistake, code="D122"):
    """Two columns with one name."""

    first: int
    second: int
    message: ClassVar = "columns {first} and {second} are both called `{column}`"
    help: ClassVar = "rename one of them"


class RaggedRow(DataMistake, code="D123"):
    """A line with too many or too few fields."""

    row: int
    found: int
    expected: int
    message: ClassVar = "row {row} has {found} fields, expected {expected} as in the first line"
    help: ClassVar = "complete the line; a value with a comma in it is written in double quotes"


class HeaderUnlike(DataMistake, code="D168"):
    """A first line of another width than all others, which agree."""

    fields: str
    others: str
    width: int
    message: ClassVar = (
        "the first line is taken for the names of the columns and has {fields}, but {others} have {width}"
    )
    help: ClassVar = "put the names of the columns there, and remove what stands above them, such as a comment"


class NoHeader(DataMistake, code="D124"):
    """A file whose first line is not column names."""

    message: ClassVar = "the first line holds numbers, not column names"
    help: ClassVar = "write the names of the columns on the first line, as in `x1,x2,y`"


class MissingPackage(DataMistake, code="D125"):
    """A format that needs a package that is not installed."""

    format: str
    package: str
    message: ClassVar = "{format} needs the package `{package}`, which is not installed"
    help: ClassVar = "pip install 'gpdsl[data]', or save the data as .csv"


class BeyondMemory(DataMistake, code="D126"):
    """Columns that do not fit into memory."""

    needed: str
    free: str
    message: ClassVar = "its columns take about {needed} in memory, of which {free} are free"
    help: ClassVar = (
        "keep the columns needed, or save each as NAME.npy in a folder and pass the folder: these stay on disk"
    )


class OutOfScale(CellMistake, code="D129"):
    """Values of which no variance can be computed."""

    unit: str
    message: ClassVar = "column `{column}`, row {row}: the output is {value}, whose variance float64 cannot multiply"
    help: ClassVar = "state it in other units: values nearer to 1, as the column divided by {unit}"


class TooManyDigits(CellMistake, code="D127"):
    """A number, or a label that is one, which a float does not hold."""

    message: ClassVar = "column `{column}`, row {row}: `{value}` is beyond what the 64 bits of a number hold"
    help: ClassVar = "numbers reach 1.8e308, and whole ones are exact up to 2^53: rescale it, or give labels as text"


class UnclearColumns(DataMistake, code="D128"):
    """Columns of which not all can be the quantity."""

    kind: str
    name: str
    reason: str
    message: ClassVar = "it is not clear which columns are {kind} `{name}`: {reason}"
    help: ClassVar = "rename the others, or say which: columns={{'{name}': [...]}} in Python, --column {name}=A,B,..."


class NotATable(DataMistake, code="D130"):
    """An object that is no table."""

    kind: str
    message: ClassVar = "data of type `{kind}` are not a table"
    help: ClassVar = (
        "pass a dictionary of arrays, as {{'x': X, 'y': y}}, a data frame (of a lazy one, what it collects), "
        "or the path of a .csv or .parquet file"
    )


class NotAColumn(ColumnMistake, code="D131"):
    """An entry that is no array of numbers or text."""

    reason: str
    remedy: str = "give it one number or one text per row"
    message: ClassVar = "`{column}` is no column of numbers or text: {reason}"


# Mistakes about labels: D115 to D117 and D149.


class LabelOutside(CellMistake, code="D116"):
    """A label that is none of the declared levels."""

    index: str
    levels: str
    instead: str = ""
    message: ClassVar = "column `{column}`, row {row}: the label `{value}` is not a level of `{index}`"
    help: ClassVar = "the levels are {levels}{instead}"


class UnknownLevel(CellMistake, code="D149"):
    """A level that the rows of a fit did not have, where only those have a value."""

    index: str
    needs: str
    remedy: str
    message: ClassVar = (
        "column `{column}`, row {row}: the fit has seen no `{value}`, and `{needs}` has one value per level"
    )


class TooManyLevels(ColumnMistake, code="D117"):
    """A label column with so many values that it is hardly one."""

    found: int
    limit: int
    message: ClassVar = "column `{column}` is declared a label, but has {found} different values (at most {limit})"
    help: ClassVar = "declare the output `real` or `count`, or group the labels"


class LevelOutside(CellMistake, code="D145"):
    """A number that is no level of a `Coregion` kernel."""

    latent: str
    size: int
    message: ClassVar = "column `{column}`, row {row}: {value} is no level of the `Coregion` of `{latent}`"
    help: ClassVar = "its levels are the whole numbers from 1 to {size}, the size of its matrix"


# D146 to D148: what can be wrong with times.


class TimeInColumn(CellMistake, code="D146"):
    """A date or a time where a number belongs."""

    message: ClassVar = "column `{column}`, row {row}: `{value}` is a date or a time, not a number"
    help: ClassVar = (
        "declare an input `time` to count days since the first, as in `input t : time`, "
        "or `time(per = hour)`; an output is a number"
    )


class NotATime(CellMistake, code="D147"):
    """A number, or other text, where a date or a time belongs."""

    suggestion: str = ""
    message: ClassVar = "column `{column}`, row {row}: `{value}` is no date or time"
    help: ClassVar = (
        "write dates as 2024-01-05, times as 2024-01-05T14:30 or with their zone as 2024-01-05T14:30+02:00; "
        "for numbers declare the input `real`, for whole numbers that are years `time(per = year)`; "
        'seconds since 1970 are dates by data["{column}"] = pandas.to_datetime(data["{column}"], unit="s")'
    )
    suggested_help: ClassVar = (
        "write dates as 2024-01-05, since this one may be read in several ways; or tell pandas how it is written, "
        'data["{column}"] = pandas.to_datetime(data["{column}"], format="{suggestion}"): %d is the day, %m the month'
    )


class ZonesDiffer(ColumnMistake, code="D148"):
    """Times of which some have a zone and others have none."""

    row: int
    found: str
    others: str
    message: ClassVar = "column `{column}`, row {row}: the time has {found}, {others}"
    help: ClassVar = "give all of them a zone, or none: nobody can say how far they are from each other"
