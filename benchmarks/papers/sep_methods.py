"""The three methods of SEP as options of a fit, the models of its experiments, and how a fit is measured."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import gpdsl

ARD = """
input x : real[D]
output y : binary
param s2  : positive = 1
param ell : positive[D] = {ell}
param noise : positive = 0.1
latent f(x) ~ GP(0, s2 * RBF(ell) + noise * White())
y ~ Bernoulli(probit = f)
"""
ISOTROPIC = """
input x : real[D]
output y : binary
param s2  : positive = 4
param ell : positive = {ell}
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Bernoulli(probit = f)
"""

METHODS: dict[str, dict[str, Any]] = {
    "GFITC": {"engine": "ep", "batch": 0, "steps": 250, "power": 1},
    "SEP": {"engine": "ep", "batch": 0, "optimizer": "adam", "steps": 250, "power": 1},
    "SVI": {"batch": 0, "steps": 250},
    "power 0.5": {"engine": "ep", "batch": 0, "steps": 250, "power": 0.5},
}
"""The last is not in the paper: between EP and variational inference, by L-BFGS as GFITC."""


def measured(text: str, train: dict[str, Any], test: dict[str, Any], options: dict[str, Any]) -> list[float]:
    """Negative log likelihood and error rate on test rows, and processor seconds of the steps and of the whole fit.

    Those of the steps are from the first report of the fit to the last, and as much again for the steps before these.
    """
    marks: list[tuple[int, float]] = []
    model, start = gpdsl.compile(text), time.process_time()
    fit = model.fit(train, callback=lambda report: marks.append((report.step, time.process_time())), **options)
    whole = time.process_time() - start
    (first, begun), (last, ended) = marks[0], marks[-1]
    seconds = (ended - begun) * last / (last - first) if last > first else float("nan")
    wrong = np.mean((fit.predict(test).mean("y") > 0.5) != (test["y"] > 0))
    nll = -float(fit.log_predictive_density(test).mean())
    return [nll, float(wrong), seconds, whole]


def table_of(file: Path) -> np.ndarray:
    """The columns of a file, the class last."""
    names = file.read_text().split("\n", 1)[0].split(",")
    values = np.genfromtxt(file, delimiter=",", skip_header=1)
    return np.column_stack([np.delete(values, names.index("y"), axis=1), values[:, names.index("y")]])


def classes_of(table: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": table[:, :-1], "y": (table[:, -1] > 0).astype(int)}
