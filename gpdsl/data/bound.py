"""Data bound to a model: every input and output as an array in declared order, and the sizes that were free."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gpdsl.data.memory_maps import pieces
from gpdsl.data.standardised import Standardised
from gpdsl.data.times import Calendar


@dataclass(frozen=True, eq=False)
class Data:
    """The arrays of one model, float64, first axis the rows.

    `inputs[name]` is [rows] or [rows, *axes]; a memory map of numbers keeps its type and stays on disk.
    `outputs[name]` is [rows, *axes]: binary as 0 and 1, a label as its
    number from 0; 0 where `observed[name]`, of the same shape, is false. `sizes` binds dimension letters, `levels`
    gives the labels of an index in order; `column_names` are the names the user gave, for messages. `moments` are the
    times that numbers among the inputs stand for, and `calendar` tells from when on these count. `standardised` are
    the numbers behind the values of inputs and outputs that are not in the user's units. `unseen` are the levels of
    each index that an earlier fit does not know; their numbers follow those of `levels`.
    """

    rows: int
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    observed: Mapping[str, np.ndarray]
    sizes: Mapping[str, int]
    levels: Mapping[str, tuple]
    column_names: Mapping[str, tuple[str, ...]]
    source: str = "data"
    moments: Mapping[str, np.ndarray] = field(default_factory=dict)
    calendar: Calendar | None = None
    standardised: Standardised = field(default_factory=Standardised)
    unseen: Mapping[str, tuple] = field(default_factory=dict)

    @cached_property
    def digests(self) -> dict[str, str]:
        """What tells the values of each input and output, as they are fitted, from others."""
        found = {
            name: _digest(self.moments[name].astype(np.int64) if name in self.moments else values)
            for name, values in self.inputs.items()
        }
        for name, values in self.outputs.items():
            found[name] = _digest(np.where(self.observed[name], values, np.nan), str(self.levels))
        return found

    @property
    def every_level(self) -> dict[str, tuple]:
        """The words that numbers of labels stand for, by index."""
        return {index: (*words, *self.unseen.get(index, ())) for index, words in self.levels.items()}

    def take(self, index: np.ndarray | slice) -> Data:
        """The same with some of the rows, by number from 0 or as a slice."""
        inputs, outputs, observed, moments = (
            {name: values[index] for name, values in table.items()}
            for table in (self.inputs, self.outputs, self.observed, self.moments)
        )
        rows = len(np.arange(self.rows)[index])
        return replace(self, rows=rows, inputs=inputs, outputs=outputs, observed=observed, moments=moments)


def _digest(values: np.ndarray, beside: str = "") -> str:
    """SHA-256 of an array, as float64 whatever it is kept in."""
    found = hashlib.sha256(f"{values.shape} {beside}".encode())
    for _, piece in pieces(values):
        found.update(np.ascontiguousarray(piece, np.float64).data)
    return found.hexdigest()
