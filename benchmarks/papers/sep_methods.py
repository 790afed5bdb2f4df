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
    "GFITC": {"engine": "ep", "batch": 0, "steps": 250},
    "SEP": {"engine": "ep", "batch": 0, "optimizer": "adam", "steps": 250},
    "SVI": {"batch": 0, "steps": 250},
    "power 0.5": {"engine": "ep", "batch": 0, "steps": 250, "power": 0.5},
}
"""The last is not in the paper: between EP and variational inference, by L-BFGS as GFITC."""


def measured(text: str, train: dict[str, Any], test: dict[str, Any], options: dict[str, Any]) -> list[float]:
    """Negative log likelihood and error rate on test rows, and processor seconds of the fit.

    The seconds are those beyond a fit of a single step, which compiles and traces as much; and those of both together.
    """
    model, start = gpdsl.compile(text), time.process_time()
    model.fit(train, **{**options, "steps": 1})
    compiled = time.process_time()
    model.fit(train, **{**options, "steps": 1})
    one, begun = time.process_time() - compiled, time.process_time()
    fit = model.fit(train, **options)
    seconds = time.process_time() - begun - one
    wrong = np.mean((fit.predict(test).mean("y") > 0.5) != (test["y"] > 0))
    nll = -float(fit.log_predictive_density(test).mean())
    return [nll, float(wrong), max(seconds, 0.0), compiled - start + seconds]


def table_of(file: Path) -> np.ndarray:
    """The columns of a file, the class last."""
    names = file.read_text().split("\n", 1)[0].split(",")
    values = np.genfromtxt(file, delimiter=",", skip_header=1)
    return np.column_stack([np.delete(values, names.index("y"), axis=1), values[:, names.index("y")]])


def classes_of(table: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": table[:, :-1], "y": (table[:, -1] > 0).astype(int)}
