"""Values that rounding keeps from a grid: of two that are nearly equal each would be a place of its own on its side."""

from __future__ import annotations

from math import prod

import numpy as np

from gpdsl.data import Data
from gpdsl.inference.exact.grids import separable
from gpdsl.program.program import Program

NEAR = 1e-9
"""Of the largest value of a column: nobody means two places that are closer."""


def near_grid(program: Program, data: Data) -> str:
    """Why rows are no grid that were one if nearly equal values were equal, with two of them; else nothing."""
    if not separable(program):
        return ""
    found, lengths = "", []
    for name in (name for name in program.groups[0].inputs if name in data.inputs):
        for column in np.asarray(data.inputs[name], float).reshape(data.rows, -1).T:
            values = np.unique(column)
            near = np.diff(values) <= NEAR * np.abs(values).max()
            lengths.append(len(values) - int(near.sum()))
            if near.any() and not found:
                first = int(np.argmax(near))
                found = f"`{name}` has {values[first]!s} and {values[first + 1]!s}"
    if not found or len(lengths) < 2 or prod(lengths) > data.rows:
        return ""
    return f"; no grid, since nearly equal values are not equal: {found}, and rounding them alike may make it one"
