"""Odd against even digits: 9000 of the 10000 images at hand train, the others test."""

from __future__ import annotations

import numpy as np
from report import find_data

Data = dict[str, np.ndarray]


def odd_or_even() -> tuple[Data, Data] | None:
    """Training and test rows: pixels `x` from 0 to 1, and `y`, 1 where the digit is odd. None without the data."""
    files = find_data("mnist10k.npz")
    if files is None:
        return None
    table = np.load(files[0])
    x = table[next(k for k in table.files if k != "labels")].reshape(10000, -1) / 255.0
    y = table["labels"] % 2
    return {"x": x[:9000], "y": y[:9000]}, {"x": x[9000:], "y": y[9000:]}
