"""A table: columns as they came and which of them stay on disk; what dates in it stand for; which rows a step takes."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from jaxtyping import Int

from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import BeyondMemory, DuplicateColumn, Unreadable
from gpdsl.errors import GpdslError, described, quoted


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


_MONTH = re.compile(r"(\d{4})-(\d{2})")
_QUARTER = re.compile(r"(\d{4})-?Q([1-4])")
_YEAR_FIRST = re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})((?:[T ].*)?)")
_DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})((?:[T ].*)?)")
YEAR_LAST = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})((?:[T ].*)?)")
"""Days that do not say which number is the month, or in which century they are."""
NAMED_MONTH = re.compile(
    r"\b\d{1,2}[\s.,-]*(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b|"
    r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b[\s.,-]*\d",
    re.IGNORECASE,
)
"""Days and months with the names of months in English."""
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")


def as_datetimes(values: np.ndarray) -> np.ndarray:
    """An array of NumPy's times as objects, to the microsecond; None where there is none, text beyond the year 9999."""
    moments = values.astype("M8[us]").astype(object)
    years = values.astype("M8[Y]").astype(np.int64) + 1970
    beyond = ~np.isnat(values) & ((years < 1) | (years > 9999))  # of which NumPy makes whole numbers
    if beyond.any():
        moments[beyond] = values[beyond].astype(str)
    return moments


def moment_of(value: Any) -> datetime | None:
    """When a date, a datetime or a period begins; None for anything else."""
    if isinstance(value, datetime):
        return value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, np.datetime64):
        return value.astype("M8[us]").item()
    return value.to_timestamp().to_pydatetime() if type(value).__name__ == "Period" else None


def moment_in(text: str) -> datetime | None:
    """The moment that an ISO text stands for, as of `2024-01-05`, `2024-01-05T14:30+02:00`, `2024-01` and `2024Q1`.

    Of an interval, `2024-01-01/2024-01-07`, it is where it begins. `2024/1/5` and `2024.1.5` are days as well,
    and so is `5.1.2024`: with points the day stands first everywhere.
    """
    if day := _DOTTED.fullmatch(text.strip()):
        text = f"{day[3]}-{int(day[2]):02}-{int(day[1]):02}{day[4]}"
    if day := _YEAR_FIRST.fullmatch(text.strip()):
        text = f"{day[1]}-{int(day[2]):02}-{int(day[3]):02}{day[4]}"
    text = text.partition("/")[0].strip()
    try:
        if found := _MONTH.fullmatch(text):
            return datetime(int(found[1]), int(found[2]), 1)
        if found := _QUARTER.fullmatch(text):
            return datetime(int(found[1]), 3 * int(found[2]) - 2, 1)
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def format_of(text: str) -> str:
    """How `strptime` and pandas would be told to read such a day; nothing of other texts. The day is first in doubt."""
    found = YEAR_LAST.fullmatch(text.strip())
    if found is None:
        return ""
    first, point, second, year, rest = found.groups()
    order = ("%m", "%d") if int(second) > 12 >= int(first) else ("%d", "%m")
    clock = f"{rest[0]}{':'.join(('%H', '%M', '%S')[: rest.count(':') + 1])}" if rest else ""
    if rest[-2:].lower() in ("am", "pm"):
        clock = clock.replace("%H", "%I") + rest[len(rest[:-2].rstrip()) : -2] + "%p"
    return point.join((*order, "%Y" if len(year) > 2 else "%y")) + clock


def moment_by_digits(number: float) -> datetime | None:
    """The day that a whole number such as 20240105 spells; None for others."""
    return moment_in(f"{number:.0f}") if 1e7 <= number < 1e8 and number.is_integer() else None


def zone_name(moment: datetime) -> str:
    """The name of the zone of a moment, or its distance from UTC; nothing where it has none."""
    zone, offset = moment.tzinfo, moment.utcoffset()
    if zone is None or offset is None:
        return ""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)  # of zoneinfo, of pytz
    minutes, seconds = divmod(int(offset.total_seconds()), 60)
    if name:
        return str(name)
    if not minutes or seconds:
        return "UTC"
    return f"{'+' if minutes > 0 else '-'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def zone_of(name: str) -> tzinfo:
    """The zone of a name. Raises GpdslError where this machine does not know it."""
    if name == "UTC":
        return UTC
    if found := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError) as problem:
        raise GpdslError(f"the time zone `{quoted(name)}` is not known here; pip install tzdata") from problem


def as_text(moment: date) -> str:
    """A moment in ISO's form: the date alone at midnight without a zone."""
    if isinstance(moment, datetime) and moment.tzinfo is None and not (moment - datetime.min) % timedelta(days=1):
        return moment.date().isoformat()
    return moment.isoformat()


def some_rows(rows: int, count: int, seed: int | Sequence[int] = 0) -> Int[np.ndarray, " some"]:
    """So many row numbers (from 0) at random, all where there are no more, in ascending order."""
    return np.sort(np.random.default_rng(seed).permutation(rows)[:count])


def minibatches(rows: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """An endless stream of batches of exactly `size` row numbers (from 0); the same seed gives the same stream.

    One shape means one compilation, so the rows left over at the end of an epoch are dropped; shuffling makes them
    others each time. `size` larger than `rows` gives all rows.
    """
    rng = np.random.default_rng(seed)
    width = min(size, rows)
    while True:
        order = rng.permutation(rows)
        for start in range(0, rows - width + 1, width):
            yield order[start : start + width]
