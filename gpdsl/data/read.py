"""One entry for every kind of table: dictionaries of arrays, data frames, and files by their extension."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from gpdsl.data.convert import from_object
from gpdsl.data.csv_file import read_csv
from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import NotATable, UnknownFormat, Unreadable
from gpdsl.data.frames import read_frame, read_npz, read_parquet
from gpdsl.data.memory_maps import read_folder
from gpdsl.data.table import Columns, Table, source_name
from gpdsl.errors import described, quoted

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
        return Table(Columns(names, lambda place: from_object(names[place], values[place], "data"), "data"))
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
