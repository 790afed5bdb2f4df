"""`Simulation`: a simulated data set, the truth behind it, and both as columns of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpdsl.data.columns import STYLES
from gpdsl.data.write import write_table


@dataclass(frozen=True, eq=False)
class Simulation:
    """One draw from a model's prior. Arrays are [rows, *axes].

    `data` holds inputs and outputs, as `Model.fit` takes them; `latents`, `lets` and `row_variables` what is behind
    them; `functionals` values of `f(a)` and `D(f, x)`, by these names; `parameters` the values used. `assumed` are
    sizes nobody gave, and `drawn` inputs nobody gave.
    """

    data: Mapping[str, np.ndarray]
    latents: Mapping[str, np.ndarray]
    functionals: Mapping[str, np.ndarray]
    lets: Mapping[str, np.ndarray]
    row_variables: Mapping[str, np.ndarray]
    parameters: Mapping[str, np.ndarray]
    sizes: Mapping[str, int]
    assumed: Mapping[str, int]
    drawn: tuple[str, ...]

    def table(self) -> dict[str, np.ndarray]:
        """The data as columns, one per element, named as gpdsl reads them: `x`, `x1`; `t[2,1]` of several axes."""
        table = _columns(self.data)
        short = {re.sub(r"\[(\d+)\]$", r"\1", column): each for column, each in table.items()}
        # Where `x1` is the name of another quantity, brackets tell which is which.
        return short if len(short) == len(table) else table

    def truth(self) -> dict[str, np.ndarray]:
        """Latents, functionals of them, row variables and lets as columns: `f`, `g[2]`, `f(a)`, `D(f, x)`."""
        return _columns({**self.row_variables, **self.latents, **self.functionals, **self.lets})

    def save(self, path: str | Path) -> None:
        """Write the data to a .csv, .tsv, .parquet or .npz file. Raises GpdslError when that fails."""
        write_table(self.table(), path)

    def save_truth(self, path: str | Path) -> None:
        """Write the truth to a file, as `save` does the data."""
        write_table(self.truth(), path)


def _columns(quantities: Mapping[str, np.ndarray]) -> dict[str, Any]:
    table = {}
    for name, values in quantities.items():
        for position in np.ndindex(*values.shape[1:]):
            column = STYLES[-1](name, tuple(each + 1 for each in position)) if position else name
            table[column] = values[(slice(None), *position)]
    return table
