"""Problems on which sparse Gaussian processes are compared, in NumPy alone: peers in other environments read it too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

TASKS = ("regression", "sign", "digits", "parity")
"""kin40k; the sign of its target; MNIST's ten digits; whether a digit is odd."""


@dataclass(frozen=True)
class Task:
    """Rows to learn from and to test on, and the sizes the peers were measured with."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    inducing: int
    batch: int
    lengthscale: float


def load(name: str, folder: Path) -> Task:
    """kin40k standardised on its training part (36000 and 4000 rows); the test digits of MNIST (9000 and 1000)."""
    if name in ("digits", "parity"):
        with np.load(folder / "mnist10k.npz") as stored:
            x, y = stored["images"].reshape(10_000, 784) / 255.0, stored["labels"].astype(int)
        x = x[:, x[:9000].any(axis=0)]  # pixels that are black in every image say nothing
        y = y % 2 if name == "parity" else y
        return Task(x[:9000], y[:9000], x[9000:], y[9000:], 200, 500, 5.0)
    with np.load(folder / "kin40k.npz") as stored:
        table, test = np.column_stack([stored["x"].astype(float), stored["y"]]), stored["test_mask"][:, 0]
    table = (table - table[~test].mean(0)) / table[~test].std(0)
    target = (table[:, -1] > 0).astype(float) if name == "sign" else table[:, -1]
    return Task(table[~test, :-1], target[~test], table[test, :-1], target[test], 500, 1000, 1.0)


def negative_log_density(name: str, y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    """Mean negative log predictive density from predictive moments; `mean` are probabilities but for regression."""
    if name == "regression":
        mean, variance = mean.ravel(), variance.ravel()
        return float(np.mean(0.5 * np.log(2 * np.pi * variance) + 0.5 * (y - mean) ** 2 / variance))
    if name == "digits":
        return float(-np.mean(np.log(np.clip(mean[np.arange(len(y)), y], 1e-12, 1))))
    p = np.clip(mean.ravel(), 1e-12, 1 - 1e-12)
    return float(-np.mean(np.log(np.where(y > 0, p, 1 - p))))
