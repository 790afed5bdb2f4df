"""Tables: dictionaries of arrays, data frames, and files by their extension, are read; columns are written to files."""

from __future__ import annotations

import csv
import io
import os
import re
import stat
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from gpdsl.data import file_mistakes as wrong
from gpdsl.data.convert import column_of, from_texts, number_of, order_of, read_frame, read_npz, read_parquet, readings
from gpdsl.data.errors import DataError, NoRows
from gpdsl.data.table import Columns, Table, read_folder, refuse_beyond_memory, source_name
from gpdsl.data.times import texts_of
from gpdsl.errors import GpdslError, GpdslWarning, described, plural, quoted
from gpdsl.replacing import written

# Text files with one row per line: .csv and .tsv, by the standard library alone.

MEMORY_PER_BYTE = 8
"""Bytes that a byte of text takes while it is read, as one of some characters of a field."""

MARKS = ("\udcff\udcfe", "\udcfe\udcff")
"""How the first bytes of UTF-16 are read."""
SEPARATORS = (",", "\t", ";", "|")
BLANK = " "
"""Divides columns, however many there are, where nothing else does."""
END = "\udc00"
"""A last line of no file: a field that holds it was never closed."""
SAID = re.compile(r'"?sep=(.)"?\s*', re.I)
"""A first line of spreadsheets that says what divides the columns."""
Marks = tuple[str, str]
"""What stands between thousands, and before decimals."""


def read_csv(path: Path) -> Table:
    """Read a file with column names on its first line. What divides it is what the line `sep=;` above says, or one of
    `,` tab `;` `|` that divides the first line as the next, or blanks where these do.

    A first column without a name is `index`. Blank lines are skipped; empty fields and NA, NaN, null are missing.
    Numbers have a point, and may have commas between thousands, `1,234.5`; between `;`, tabs, `|` or blanks they may
    have them the other way round, `1.234,5`: where some can be read in one way alone, and none in the other alone.
    Raises DataError naming the line.
    """
    source = source_name(path)
    refuse_beyond_memory(MEMORY_PER_BYTE * path.stat().st_size, source)
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
            first, second = file.readline(), file.readline()
            if "\0" in first or first.startswith(MARKS):
                raise DataError(
                    wrong.Unreadable(wrong.NOT_UTF8, wrong.SAVE_AGAIN.format(encoding="UTF-16")), source=source
                )
            said = SAID.fullmatch(first)
            separator = said[1] if said else _separator(first, second)
            file.seek(0)
            above = bool(said and file.readline())
            text = chain(map(str.strip, file) if separator == BLANK else file, [END])
            reader = csv.reader(text, delimiter=separator, skipinitialspace=True)
            records: list[list[str]] = []
            lines = []
            begins = above + 1
            for record in reader:
                if record and record[-1].endswith(END):
                    if record != [END]:
                        raise DataError(wrong.Unreadable(wrong.OPEN_QUOTE, wrong.CLOSE_IT), source=f"{source}:{begins}")
                elif record:
                    if any("\0" in field for field in record):
                        zero = f"row {len(records)} has a byte of value zero, which no text has"
                        raise DataError(
                            wrong.Unreadable(zero, wrong.ZERO_BYTE), source=f"{source}:{reader.line_num + above}"
                        )
                    records.append(record)
                    lines.append(reader.line_num + above)
                begins = reader.line_num + above + 1
    except (OSError, csv.Error) as problem:
        raise DataError(wrong.Unreadable(_reason(problem)), source=source) from problem
    if not records:
        raise DataError(NoRows(), source=source)
    names = [name.strip().encode(errors="surrogateescape").decode(errors="replace") for name in records[0]]
    if all(number_of(name) is not None for name in names):
        raise DataError(wrong.NoHeader(), source=f"{source}:1")
    if not names[0] and "index" not in names:  # as pandas and R write the labels of rows, and pandas an index of dates
        names[0] = "index"
    _check_widths(records[1:], len(names), source, np.array(lines[1:]))
    if len(names) == 1 and not said:
        _check_blanks(first, second, source)
    told = cache(lambda: _marks(records[1:], separator))

    def column(place: int) -> np.ndarray:
        return _column(names[place], [each[place] for each in records[1:]], source, told)

    columns = Columns(names, column, source)
    return Table(columns, source, np.array(lines[1:], dtype=np.int64))


def _marks(records: list[list[str]], separator: str) -> Marks | None:
    """How the numbers of a file are written, where some can be read in one way alone, and none in the other alone."""
    fields = {field for record in records for field in record if "," in field or "." in field}
    found = {marks for read in map(readings, fields) if len(read) == 1 for marks in read}
    unsure = len(found) != 1 or (separator == "," and (".", ",") in found)
    return None if unsure else found.pop()


def _column(name: str, texts: list[str], source: str, told: Callable[[], Marks | None]) -> np.ndarray:
    """One column; `told` says how the numbers of its file are written.

    Raises DataError where it holds bytes that are not UTF-8, which other columns may.
    """
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as problem:
        advice = wrong.SAVE_AGAIN.format(encoding="LATIN1")
        raise DataError(wrong.NotAColumn(quoted(name), wrong.NOT_UTF8, advice), source=source) from problem
    found = from_texts(texts)
    marked = (readings(text) for text in texts if "," in text or "." in text)
    asked = any(marked) if found.dtype == object else len(next(marked, ())) > 1  # `1.234` is a number either way
    if asked and (marks := told()):
        pointed = from_texts([readings(text).get(marks, text) for text in texts])
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
    """What divides the first two lines alike, or else the first line; blanks where some field is a number."""
    able = [each for each in SEPARATORS if each in first]
    if not able:
        names, values = _fields(first, BLANK), _fields(second, BLANK)
        return BLANK if len(names) == len(values) > 1 and any(number_of(each) is not None for each in values) else ","
    found = {each: (len(_fields(first, each)), len(_fields(second, each))) for each in able}
    return max(able, key=lambda each: (found[each][0] == found[each][1]) * found[each][0])


def _fields(line: str, separator: str) -> list[str]:
    return next(csv.reader([line.strip(BLANK)], delimiter=separator, skipinitialspace=True), [])


def _check_blanks(first: str, second: str, source: str) -> None:
    """Raise DataError for a file of one column whose lines have blanks, unlike, as where some are within fields."""
    names, values = _fields(first, BLANK), _fields(second, BLANK)
    if min(len(names), len(values)) > 1 and any(number_of(each) is not None for each in values):
        unlike = f"blanks alone divide its lines, the first into {len(names)} fields and the next into {len(values)}"
        advice = "write commas, semicolons or tabs between the columns"
        raise DataError(wrong.Unreadable(unlike, advice), source=source)


def _reason(problem: Exception) -> str:
    """Why a file could not be read, without its path: the message already names the file."""
    return problem.strerror or str(problem) if isinstance(problem, OSError) else str(problem)


def _check_widths(records: list[list[str]], expected: int, source: str, lines: np.ndarray) -> None:
    widths = Counter(map(len, records))
    width, number = max(widths.items(), key=lambda each: each[1], default=(expected, 0))
    if width != expected and number > max(1, len(records) / 2):  # it is the first line that is the odd one
        others = "all others" if number == len(records) else "most others"
        raise DataError(wrong.HeaderUnlike(plural(expected, "field"), others, width), source=f"{source}:1")
    for row, record in enumerate(records, 1):
        if len(record) != expected:
            raise DataError(wrong.RaggedRow(row, len(record), expected), source=source, lines=lines)


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
        columns = Columns(names, lambda place: column_of(names[place], values[place], "data"), "data")
        return Table(columns, order=lambda name: order_of(values[names.index(name)], name))
    if isinstance(source, str | os.PathLike):
        return _read_file(Path(source))
    table = read_frame(source)
    if table is None:
        raise DataError(wrong.NotATable(type(source).__name__))
    return table


def _read_file(path: Path) -> Table:
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        raise DataError(wrong.Unreadable("no such file"), source=str(path)) from None
    except (OSError, ValueError) as problem:
        raise DataError(
            wrong.Unreadable(quoted(getattr(problem, "strerror", "") or problem)), source=str(path)
        ) from problem
    reader = read_folder if stat.S_ISDIR(kind) else READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(wrong.UnknownFormat(path.suffix or path.name), source=source_name(path))
    if reader is not read_folder and not stat.S_ISREG(kind):
        raise DataError(wrong.Unreadable("it is a device or a pipe, not a file"), source=source_name(path))
    try:
        return reader(path)
    except DataError:
        raise
    except Exception as problem:  # whatever a library makes of bytes that are not what their name promises
        raise DataError(wrong.Unreadable(described(problem)), source=source_name(path)) from problem


# Writing columns to a file that `read_table` takes back: whole or not at all, numbers to the last digit.


Written = Mapping[str, np.ndarray]


def write_table(columns: Written, path: str | Path) -> None:
    """Write columns, each [rows], as .csv, .tsv, .parquet or .npz by the suffix. Raises GpdslError when it fails."""
    target = Path(path)
    check_format(path)
    write = FORMATS[target.suffix.lower()]
    with written(path, "wb") as file:
        write(columns, file)


def check_format(path: str | Path) -> None:
    """Raise GpdslError for a name whose suffix is none of the formats."""
    if Path(path).suffix.lower() not in FORMATS:
        raise GpdslError(f"cannot write {path}: expected a name ending in {', '.join(FORMATS)}")


def write_text(columns: Written, file: IO[str], separator: str = ",") -> None:
    """Write columns as delimited text with their names on the first line; missing values are empty."""
    writer = csv.writer(file, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*map(_texts, columns.values()), strict=True))


def _texts(values: np.ndarray) -> Iterator[str]:
    for value in texts_of(values) if values.dtype.kind == "M" else values.tolist():
        if value is None or value != value:
            yield ""
        elif isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            yield str(int(value))
        else:
            yield repr(value) if isinstance(value, float) else str(value)


def _delimited(separator: str) -> Callable[[Written, IO[bytes]], None]:
    def write(columns: Written, file: IO[bytes]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        write_text(columns, text, separator)
        text.detach()  # with all of it written

    return write


def _parquet(columns: Written, file: IO[bytes]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as problem:
        raise GpdslError("writing Parquet needs the package pyarrow: install gpdsl[data], or write .csv") from problem
    pq.write_table(pa.table({name: _plain(values) for name, values in columns.items()}), file)


def _plain(values: np.ndarray) -> Any:
    return values.tolist() if values.dtype == object else values


def _archive(columns: Written, file: IO[bytes]) -> None:
    arrays: dict[str, Any] = {
        name: values.astype(str) if values.dtype == object else values for name, values in columns.items()
    }
    np.savez_compressed(file, **arrays)


FORMATS: Mapping[str, Callable[[Written, IO[bytes]], None]] = {
    ".csv": _delimited(","),
    ".tsv": _delimited("\t"),
    ".parquet": _parquet,
    ".npz": _archive,
}
