"""A table: named arrays with one entry per row, where they came from, and those of them that stay on disk."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import BeyondMemory, DuplicateColumn, Unreadable
from gpdsl.data.moments import as_datetimes
from gpdsl.errors import described


class Columns(Mapping[str, np.ndarray]):
    """Columns by name, each read, converted and judged when it is first asked for: a model names few of many.

    `read` gives the column at a place, from 0. A name that two columns have is refused when it is asked for.
    """

    def __init__(self, names: Sequence[str], read: Callable[[int], np.ndarray], source: str) -> None:
        self._names = names
        self._places = {name: place for place, name in reversed(list(enumerate(names))) if name}
        self._counts = Counter(names)
        self._read = read
        self._source = source
        self._found: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._found:
            place = self._places[name]
            if self._counts[name] > 1:
                second = self._names.index(name, place + 1)
                raise DataError(DuplicateColumn(name, place + 1, second + 1), source=self._source)
            self._found[name] = self._read(place)
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name in self._names if name))

    def __len__(self) -> int:
        return len(self._places)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name: float64, or object holding text, dates and None; arrays of a dictionary keep their further axes.

    `source` is what error messages call the data; `lines[row]` is the line of the file a row stands on, if known.
    """

    columns: Mapping[str, np.ndarray]
    source: str = "data"
    lines: np.ndarray | None = None
    order: Callable[[str], tuple[str, ...]] = lambda column: ()
    """The categories of a column in their order, where they have one, of a name."""

    @property
    def rows(self) -> int:
        """Rows of the first column that is one, 0 without any."""
        for name in self.columns:
            with suppress(DataError):
                return self.columns[name].shape[0]
        return 0

    def line(self, row: int) -> int | None:
        """The line of the file that holds row `row` (from 1)."""
        return None if self.lines is None else int(self.lines[row - 1])


def source_name(path: Path) -> str:
    """How messages name a file: as the user would recognise it, without the folders."""
    return path.name or str(path)  # of the folder `.`, which has no name


# Memory maps: columns that stay on disk, of which no more than some rows are read at a time.

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
