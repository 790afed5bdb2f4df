"""Memory maps: columns that stay on disk, of which no more than some rows are read at a time.

A folder of `.npy` files is a table of them, one column a file; a dictionary may hold `np.load(path, mmap_mode="r")`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import Unreadable
from gpdsl.data.moments import as_datetimes
from gpdsl.data.table import Columns, Table, source_name
from gpdsl.errors import described

ROWS_AT_ONCE = 65_536
"""Rows that are looked at together when a column is checked."""

NUMBERS = "biuf"


def stays_on_disk(values: object) -> bool:
    """Whether a column is a memory map of numbers, which is never copied as a whole."""
    return isinstance(values, np.memmap) and values.dtype.kind in NUMBERS and values.ndim > 0


def read_folder(path: Path) -> Table:
    """Every `.npy` file of a folder as a memory map, named as the file is without its extension."""
    source = source_name(path)
    files = sorted(path.glob("*.npy"))
    if not files:
        raise DataError(Unreadable("it is a folder without .npy files"), source=source)
    return Table(Columns([file.stem for file in files], lambda place: _mapped(files[place], source), source), source)


def _mapped(file: Path, source: str) -> np.ndarray:
    try:
        values = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as problem:  # a header may promise anything
        reason = f"{file.name} is no plain NumPy array ({described(problem)})"
        raise DataError(Unreadable(reason), source=source) from problem
    if values.dtype.kind == "M":
        return as_datetimes(np.asarray(values))
    if not stays_on_disk(values):
        raise DataError(Unreadable(f"{file.name} holds no numbers, one row after the other"), source=source)
    return values


def pieces(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Some rows after the other, each with the number of its first; all at once what is in memory anyway."""
    step = ROWS_AT_ONCE if stays_on_disk(values) else max(len(values), 1)
    for start in range(0, len(values), step):
        yield start, np.asarray(values[start : start + step])
