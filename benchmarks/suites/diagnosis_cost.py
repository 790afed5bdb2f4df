"""What the default diagnosis costs beside its fit, in processor seconds; GPDSL_DATA has the data of `power`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gpdsl
from gpdsl.results.criticism import findings
from suites.diagnosis import HEAD, REGRESSION, Fitted, X, factorised, few_points, product

ROOT = Path(__file__).resolve().parents[2]


def zoo(name: str) -> Callable[[int], Fitted]:
    """A model of the zoo, with 100 simulated rows."""
    model = gpdsl.zoo(name)
    return lambda seed: (model, model.sample_prior(rows=100, seed=seed).data, {})


def regression(seed: int) -> Fitted:
    """A curve through 40 rows."""
    y = np.sin(2 * X) + 0.2 * np.random.default_rng(seed).standard_normal(40)
    return HEAD.format(kind="real") + REGRESSION, {"x": X, "y": y}, {}


def mixture(seed: int) -> Fitted:
    """Two Gaussians for two modes."""
    text, data, _ = product(seed)
    return text, data, {"posterior": "mixture_full(2)"}


def sparse(_: int) -> Fitted:
    """The 9,568 rows of `power`."""
    folder = Path(os.environ.get("GPDSL_DATA", ROOT.parent / "shared" / "data"))
    with np.load(folder / "power.npz") as found:
        x, y = found["x"].astype(float), found["y"].astype(float)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return gpdsl.zoo("boston"), {"x": x, "y": (y - y.mean()) / y.std()}, {"inducing": 100}


CASES: dict[str, Callable[[int], Fitted]] = {
    "regression, 40 rows, exact": regression,
    **{name: zoo(name) for name in ("coal_mining", "probit", "wisconsin", "student_t", "ordinal", "derivatives")},
    **{name: zoo(name) for name in ("multitask", "heteroscedastic", "seismic")},
    "seismic, posterior = full": factorised,
    "product of two latents": product,
    "product, posterior = mixture_full(2)": mixture,
    "300 rows, 8 inducing points": few_points,
    "power, 9,568 rows, 100 inducing points": sparse,
}


def run() -> None:
    """Print a table: seconds of the fit, of standard errors and of all else, and the share of the two in the first.

    Of a fit in a new process without programs of earlier ones, in a new one with them, and of another fit in that.
    """
    titles = [f"{when}: fit | errors | looks | share" for when in ("new", "new process", "again")]
    print(f"| fits | {' | '.join(titles)} |\n|{' --- |' * 13}", flush=True)
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            given = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")]), "GPDSL_CACHE_DIR": folder}
            code = f"from suites.diagnosis_cost import measured; measured({name!r})"
            command = [sys.executable, "-c", code]
            told = [subprocess.check_output(command, env={**os.environ, **given}, text=True) for _ in range(2)]
        first, later = (each.splitlines() for each in told)
        print(f"| {name} | {' | '.join([first[0], *later])} |", flush=True)


def measured(name: str) -> None:
    """Print a line of each of two fits, made in this process one after the other."""
    warnings.simplefilter("ignore")
    model, data, options = CASES[name](1)
    spent, original = [0.0], findings._curvature

    def timed(*given: Any) -> Any:
        begun = time.process_time()
        try:
            return original(*given)
        finally:
            spent[0] = time.process_time() - begun

    findings._curvature = timed
    for _ in range(2):
        begun = time.process_time()
        compiled = gpdsl.compile(model) if isinstance(model, str) else model
        fit = compiled.fit(data, **options)
        fitted = time.process_time()
        fit.diagnose()
        whole = time.process_time() - fitted
        print(f"{fitted - begun:.3f} | {spent[0]:.3f} | {whole - spent[0]:.3f} | {whole / (fitted - begun):.0%}")
