"""A table: named arrays with one entry per row, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name: float64, or object holding text and None; arrays of a dictionary keep their further axes.

    `source` is what error messages call the data; `lines[row]` is the line of the file a row stands on, if known.
    """

    columns: Mapping[str, np.ndarray]
    source: str = "data"
    lines: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """Rows of the first column, 0 without columns."""
        return next((values.shape[0] for values in self.columns.values()), 0)

    def line(self, row: int) -> int | None:
        """The line of the file that holds row `row` (from 1)."""
        return None if self.lines is None else int(self.lines[row - 1])

    def with_column(self, name: str, values: np.ndarray) -> Table:
        """The table with one column replaced or added."""
        return replace(self, columns={**self.columns, name: values})


def source_name(path: Path) -> str:
    """How messages name a file: as the user would recognise it, without the folders."""
    return path.name
