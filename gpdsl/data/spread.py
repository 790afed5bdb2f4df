"""How far the inputs of bound data spread, column by column."""

from __future__ import annotations

import numpy as np

from gpdsl.data.bound import Data
from gpdsl.data.memory_maps import pieces


def spreads(data: Data) -> dict[str, tuple[float, ...]]:
    """The standard deviation of each column of each input."""
    return {name: tuple(map(float, _deviations(values))) for name, values in data.inputs.items()}


def _deviations(values: np.ndarray) -> np.ndarray:
    """Piece by piece: the spread within each about its own mean, and that of their means."""
    counts, means, variances = [], [], []
    for _, piece in pieces(values):
        columns = np.reshape(piece, (len(piece), -1)).astype(np.float64)
        counts.append(len(columns))
        means.append(columns.mean(axis=0))
        variances.append(columns.var(axis=0))
    centre = np.average(means, axis=0, weights=counts)
    return np.sqrt(np.average(np.asarray(variances) + (np.asarray(means) - centre) ** 2, axis=0, weights=counts))
