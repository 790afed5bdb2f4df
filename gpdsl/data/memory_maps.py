"""Memory maps: columns that stay on disk, of which no more than some rows are read at a time.

A folder of `.npy` files is a table of them, one column a file; a dictionary may hold `np.load(path, mmap_mode="r")`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import BeyondMemory, Unreadable
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


# Memory: what is too large for it is refused before it is read.

SMALL = 2**28
"""Bytes that nobody needs to ask for."""


def refuse_beyond_memory(needed: float, source: str) -> None:
    """Raise DataError where so many bytes are more than what is free."""
    if needed < SMALL:
        return
    free = free_memory()
    if needed > free:
        raise DataError(BeyondMemory(f"{needed / 2**30:.3g} GiB", f"{free / 2**30:.3g} GiB"), source=source)


def free_memory() -> float:
    """Bytes that can be had without swapping; infinite where the system does not say."""
    with suppress(OSError, ValueError, StopIteration), open("/proc/meminfo", encoding="ascii") as lines:
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    if sys.platform != "win32":
        with suppress(OSError, ValueError):
            return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return float("inf")
