"""The numbers that standardise data, kept with the fit, and what they do to values on their way in and out."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from gpdsl.data.memory_maps import pieces, stays_on_disk

if TYPE_CHECKING:
    from gpdsl.data.bound import Data

Numbers = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Standardised:
    """Mean and standard deviation of inputs and outputs by name, of the shape of one row; other names stay as they are.

    A fit knows `(value - mean) / sd`; what users give and get is in the units of their data.
    """

    means: Numbers = field(default_factory=dict)
    sds: Numbers = field(default_factory=dict)

    def into(self, name: str, values: np.ndarray) -> np.ndarray:
        """Values [..., *axes] of the data as the fit knows them."""
        return (values - self.means[name]) / self.sds[name] if name in self.sds else values

    def back(self, name: str, values: np.ndarray) -> np.ndarray:
        """Values [..., *axes] of the fit in the units of the data."""
        return self.means[name] + self.sds[name] * values if name in self.sds else values

    def widened(self, name: str, spreads: np.ndarray, power: int = 1) -> np.ndarray:
        """Standard deviations, or with `power` 2 variances, in the units of the data."""
        return self.sds[name] ** power * spreads if name in self.sds else spreads

    def applied(self, data: Data) -> Data:
        """Bound data as the fit knows them; a memory map becomes one of a temporary file, some rows at a time."""
        if not self.sds:
            return data
        inputs = {
            n: self._on_disk(n, values) if stays_on_disk(values) else self.into(n, values)
            for n, values in data.inputs.items()
        }
        outputs = {n: np.where(data.observed[n], self.into(n, values), 0.0) for n, values in data.outputs.items()}
        return replace(data, inputs=inputs, outputs=outputs, standardised=self)

    def removed(self, data: Data) -> Data:
        """Bound data as the fit knows them, in their own units again; memory maps of the fit are read."""
        inputs = {n: self.back(n, np.asarray(v)) if n in self.sds else v for n, v in data.inputs.items()}
        outputs = {n: np.where(data.observed[n], self.back(n, v), 0.0) for n, v in data.outputs.items()}
        return replace(data, inputs=inputs, outputs=outputs, standardised=Standardised()) if self.sds else data

    def _on_disk(self, name: str, values: np.ndarray) -> np.ndarray:
        if name not in self.sds:
            return values
        with tempfile.TemporaryFile() as file:
            found = np.memmap(file, np.float64, "w+", shape=values.shape)
        for start, piece in pieces(values):
            found[start : start + len(piece)] = self.into(name, piece)
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """The numbers by the names they have in a file."""
        means = {f"standardised.mean.{name}": values for name, values in self.means.items()}
        return means | {f"standardised.sd.{name}": values for name, values in self.sds.items()}

    @classmethod
    def from_arrays(cls, arrays: Numbers) -> Standardised:
        """The numbers in a file; there are none where nothing was standardised."""

        def named(kind: str) -> dict[str, np.ndarray]:
            begin = f"standardised.{kind}."
            return {name.removeprefix(begin): values for name, values in arrays.items() if name.startswith(begin)}

        return cls(named("mean"), named("sd"))

    def covariance(self, name: str, values: np.ndarray) -> np.ndarray:
        """Covariances [rows, *axes, rows, *axes] in the units of the data."""
        if name not in self.sds:
            return values
        sd = self.sds[name]
        return sd.reshape(*sd.shape, 1, *(1 for _ in sd.shape)) * sd * values

    def log_jacobian(self, observed: Mapping[str, np.ndarray]) -> np.ndarray | float:
        """Of every row, by how much the log density of its observed outputs is above that in the units of the data."""
        logs = [np.where(known, np.log(self.sds[n]), 0.0) for n, known in observed.items() if n in self.sds]
        return sum(each.reshape(len(each), -1).sum(axis=1) for each in logs)
