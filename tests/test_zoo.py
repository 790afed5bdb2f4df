"""The zoo under `python -W error`: checked, explained, drawn, fitted, predicted, kept; no warning escapes.

Warnings of gpdsl's own are meant for users: they are expected by name, and nothing else may appear on standard error.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslWarning

ROOT = Path(__file__).resolve().parents[1]
ROWS = 24

OPTIONS: dict[str, dict[str, Any]] = {"airline": {"inducing": 6, "batch": 12}}
SAID: dict[str, list[str]] = {}
"""How gpdsl's own warnings begin, where a model has some."""

QUICK = {"coal_mining"}


def whole(name: str, folder: Path) -> None:
    """Everything that can be done with a model of the zoo, in a process in which other warnings are errors."""
    from tests.simulation.test_requests import zoo_model

    warnings.filterwarnings("always", category=GpdslWarning)
    model = zoo_model(name)
    data = model.sample_prior(rows=ROWS, seed=4).data
    model.warnings(data)
    model.latex(standalone=True)
    model.graph()
    model.explain(data, **OPTIONS.get(name, {}))
    fit = model.fit(data, steps=3, seed=0, **OPTIONS.get(name, {}))
    assert fit.summary() and np.isfinite(fit.elbo)
    fit.save(folder / "kept.gpfit")
    again = gpdsl.load_fit(folder / "kept.gpfit", externals=model.externals)
    prediction, declared = again.predict(data), model.declarations
    for each in (*declared.latents, *declared.lets, *declared.outputs):
        assert np.all(np.isfinite(prediction.mean(each)))
        assert prediction.sample(each, 3).shape[:2] == (3, ROWS)
    assert np.all(np.isfinite(again.log_predictive_density(data)))


def in_a_process(code: str, *arguments: str) -> list[str]:
    """The lines that Python code in a process of its own, with warnings as errors, has for standard error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in gpdsl.zoo_names()]
)
def test_no_warning_escapes(name: str, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.test_zoo import whole; whole(sys.argv[1], Path(sys.argv[2]))"
    )
    lines = in_a_process(code, name, str(tmp_path))
    said = [line for line in lines if "GpdslWarning" in line]
    expected = SAID.get(name, [])
    assert len(said) == len(expected) and len(lines) <= 2 * len(said), lines
    for line, words in zip(said, expected, strict=True):
        assert words in line


def test_the_convolutional_model_is_one_of_convolutions() -> None:
    """Its evidence with covariances that are integrals of the products of two windows, summed up on a grid."""
    x, instrument = np.array([0.0, 0.3, 0.9, 1.4, 2.0, 2.2]), np.array([1, 2, 2, 1, 3, 1])
    y, grid = np.array([0.2, -0.1, 0.5, 0.9, 0.3, -0.4]), np.arange(-8, 10, 0.005)
    width = np.array([0.2, 0.5, 1.1])[instrument - 1, None]
    window = np.exp(-0.5 * ((x[:, None] - grid) / width) ** 2) / (np.sqrt(2 * np.pi) * width)
    noise = np.array([0.1, 0.2, 0.3])[instrument - 1]
    covariance = 0.005 * np.sqrt(2 * np.pi) * window @ window.T + np.diag(noise**2)
    evidence = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    data = {"x": x, "instrument": instrument, "y": y}
    fit = gpdsl.zoo("convolutional").fit(data, fixed=list(PARAMETERS), init=PARAMETERS)
    assert fit.elbo == pytest.approx(evidence, abs=1e-8)


PARAMETERS = {"s2": 1.0, "width": [0.2, 0.5, 1.1], "noise": [0.1, 0.2, 0.3]}
