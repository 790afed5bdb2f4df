"""A table: named arrays with one entry per row, and where they came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import DuplicateColumn


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
