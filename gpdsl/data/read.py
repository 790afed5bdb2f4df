"""One entry for every kind of table: dictionaries of arrays, data frames, and files by their extension."""

from __future__ import annotations

import csv
import os
import re
import stat
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from gpdsl.data.convert import (
    THOUSANDS,
    from_object,
    from_texts,
    number_of,
    order_of,
    read_frame,
    read_npz,
    read_parquet,
)
from gpdsl.data.errors import DataError, NoRows
from gpdsl.data.file_mistakes import (
    NOT_UTF8,
    SAVE_AGAIN,
    ZERO_BYTE,
    HeaderUnlike,
    NoHeader,
    NotAColumn,
    NotATable,
    RaggedRow,
    UnknownFormat,
    Unreadable,
)
from gpdsl.data.table import Columns, Table, read_folder, refuse_beyond_memory, source_name
from gpdsl.errors import GpdslWarning, described, plural, quoted

# Text files with one row per line: .csv and .tsv, by the standard library alone.

MEMORY_PER_BYTE = 8
"""Bytes that a byte of text takes while it is read, as one of some characters of a field."""

MARKS = ("\udcff\udcfe", "\udcfe\udcff")
"""How the first bytes of UTF-16 are read."""
SEPARATORS = (",", "\t", ";")
DECIMAL_COMMA, DECIMAL_POINT = (
    re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.I),
    re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?", re.I),
)


def read_csv(path: Path) -> Table:
    """Read a file with column names on its first line. The separator is `,` tab or `;`: what divides it as the next.

    A first column without a name is `index`. Blank lines are skipped; empty fields and NA, NaN, null are missing.
    Numbers have a point; between `;` or tabs they have a comma where some say so, `1,5`, and none has a point.
    Raises DataError naming the line.
    """
    source = source_name(path)
    refuse_beyond_memory(MEMORY_PER_BYTE * path.stat().st_size, source)
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
            first, second = file.readline(), file.readline()
            file.seek(0)
            if "\0" in first or first.startswith(MARKS):
                raise DataError(Unreadable(NOT_UTF8, SAVE_AGAIN.format(encoding="UTF-16")), source=source)
            separator = _separator(first, second)
            reader = csv.reader(file, delimiter=separator)
            records: list[list[str]] = []
            lines = []
            for record in reader:
                if record:
                    if any("\0" in field for field in record):
                        zero = f"row {len(records)} has a byte of value zero, which no text has"
                        raise DataError(Unreadable(zero, ZERO_BYTE), source=f"{source}:{reader.line_num}")
                    records.append(record)
                    lines.append(reader.line_num)
    except (OSError, csv.Error) as problem:
        raise DataError(Unreadable(_reason(problem)), source=source) from problem
    if not records:
        raise DataError(NoRows(), source=source)
    names = [name.strip().encode(errors="surrogateescape").decode(errors="replace") for name in records[0]]
    _check_header(names, source)
    if not names[0] and "index" not in names:  # as pandas and R write the labels of rows, and pandas an index of dates
        names[0] = "index"
    _check_widths(records[1:], len(names), source, np.array(lines[1:]))
    commas = cache(lambda: separator != "," and _have_commas(records[1:]))

    def column(place: int) -> np.ndarray:
        return _column(names[place], [each[place] for each in records[1:]], source, commas)

    columns = Columns(names, column, source)
    return Table(columns, source, np.array(lines[1:], dtype=np.int64))


def _have_commas(records: list[list[str]]) -> bool:
    """Whether numbers have a comma before their decimals: some have, none has a point, and thousands are another's."""
    fields = [field.strip() for record in records for field in record if "," in field or "." in field]
    some = any(DECIMAL_COMMA.fullmatch(each) and not THOUSANDS.fullmatch(each) for each in fields)
    return some and not any(map(DECIMAL_POINT.fullmatch, fields))


def _column(name: str, texts: list[str], source: str, commas: Callable[[], bool]) -> np.ndarray:
    """One column; `commas` says whether its file has them before decimals.

    Raises DataError where it holds bytes that are not UTF-8, which other columns may.
    """
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as problem:
        advice = SAVE_AGAIN.format(encoding="LATIN1")
        raise DataError(NotAColumn(quoted(name), NOT_UTF8, advice), source=source) from problem
    found = from_texts(texts)
    if found.dtype == object and any(map(DECIMAL_COMMA.fullmatch, map(str.strip, texts))) and commas():
        pointed = from_texts([each.replace(",", ".", 1) for each in texts])
        found = found if pointed.dtype == object else pointed
    none = sum(text.strip().lower() == "none" for text in texts) if found.dtype == object else 0
    if none:  # which is a word as often as it is Python's word for missing
        warnings.warn(
            f"{source}: `{quoted(name)}` is missing where it says None, in {none} of {len(texts)} rows; if this is one "
            "of its words, write another, or use Parquet",
            GpdslWarning,
            stacklevel=2,
        )
    return found


def _separator(first: str, second: str) -> str:
    """What divides the first two lines alike, or else the first line."""
    able = [each for each in SEPARATORS if each in first] or [SEPARATORS[0]]
    found = {each: [len(next(csv.reader([line], delimiter=each), [])) for line in (first, second)] for each in able}
    return max(able, key=lambda each: (found[each][0] == found[each][1]) * found[each][0])


def _reason(problem: Exception) -> str:
    """Why a file could not be read, without its path: the message already names the file."""
    return problem.strerror or str(problem) if isinstance(problem, OSError) else str(problem)


def _check_header(names: list[str], source: str) -> None:
    if all(number_of(name) is not None for name in names):
        raise DataError(NoHeader(), source=f"{source}:1")


def _check_widths(records: list[list[str]], expected: int, source: str, lines: np.ndarray) -> None:
    widths = {len(record) for record in records}
    if len(records) > 1 and len(widths) == 1 and widths != {expected}:  # it is the first line that is the odd one
        fields = plural(expected, "field")
        raise DataError(HeaderUnlike(expected, widths.pop(), fields), source=f"{source}:1")
    for row, record in enumerate(records, 1):
        if len(record) != expected:
            raise DataError(RaggedRow(row, len(record), expected), source=source, lines=lines)


READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".txt": read_csv,
    ".parquet": read_parquet,
    ".pq": read_parquet,
    ".npz": read_npz,
}


def read_table(source: object) -> Table:
    """Read a table: a dictionary of arrays [rows, ...], a data frame, a path, or a Table (returned as it is).

    Numbers become float64, text and dates object arrays; memory maps, also those of a folder of `.npy` files, stay on
    disk. A column is read when it is asked for; Series in a dictionary are taken row by row, whatever their index.
    Raises DataError for what is no table, with file and line.
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, Mapping):
        names, values = [str(name) for name in source], list(source.values())
        columns = Columns(names, lambda place: from_object(names[place], values[place], "data"), "data")
        return Table(columns, order=lambda name: order_of(values[names.index(name)], name))
    if isinstance(source, str | os.PathLike):
        return _read_file(Path(source))
    table = read_frame(source)
    if table is None:
        raise DataError(NotATable(type(source).__name__))
    return table


def _read_file(path: Path) -> Table:
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        raise DataError(Unreadable("no such file"), source=str(path)) from None
    except (OSError, ValueError) as problem:
        raise DataError(Unreadable(quoted(getattr(problem, "strerror", "") or problem)), source=str(path)) from problem
    reader = read_folder if stat.S_ISDIR(kind) else READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(UnknownFormat(path.suffix or path.name), source=source_name(path))
    if reader is not read_folder and not stat.S_ISREG(kind):
        raise DataError(Unreadable("it is a device or a pipe, not a file"), source=source_name(path))
    try:
        return reader(path)
    except DataError:
        raise
    except Exception as problem:  # whatever a library makes of bytes that are not what their name promises
        raise DataError(Unreadable(described(problem)), source=source_name(path)) from problem
