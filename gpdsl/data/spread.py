"""How far the inputs of bound data spread, column by column."""

from __future__ import annotations

import numpy as np

from gpdsl.data.bound import Data


def spreads(data: Data) -> dict[str, tuple[float, ...]]:
    """The standard deviation of each column of each input."""
    return {name: tuple(map(float, _columns(values).std(axis=0))) for name, values in data.inputs.items()}


def _columns(values: np.ndarray) -> np.ndarray:
    return np.reshape(values, (len(values), -1)).astype(np.float64)
