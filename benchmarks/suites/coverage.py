"""Coverage of central intervals over data sets simulated from models of the zoo, parameters learnt with priors.

The plug-in fit and `hyperparameters = integrated` of the same 200 data sets for each model. GPDSL_COVERAGE names models
to run instead of all, GPDSL_RUNS another number of data sets, GPDSL_KEEP a folder in which every calibration is saved.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import gpdsl

RUNS, POINTS = 200, 5

UNIT = "LogNormal(0, 0.5)"


class Case(NamedTuple):
    """A model of the zoo: rows, sizes of its indices, the priors of what is learnt, and its inputs' range."""

    rows: int
    priors: dict[str, str]
    sizes: dict[str, int]
    width: float = 6.0
    fixed: tuple[str, ...] = ()


CASES = {
    "boston": Case(40, {"mu": "Normal(22, 5)", "s2": "LogNormal(4, 0.5)", "ell": UNIT, "sigma": UNIT}, {"D": 1}),
    "coal_mining": Case(60, {"m": "Normal(0.5, 0.5)", "s2": UNIT, "ell": UNIT}, {}),
    "derivatives": Case(
        20, {"s2": UNIT, "ell": UNIT, "sigma": "LogNormal(-1, 0.5)", "sigma_d": "LogNormal(-1, 0.5)"}, {}
    ),
    "laplace": Case(40, {"s2": UNIT, "ell": UNIT, "b": "LogNormal(-1.5, 0.5)"}, {"D": 1}),
    "ordinal": Case(60, {"s2": UNIT, "ell": UNIT}, {"D": 1}, fixed=("cut",)),
    "preference": Case(60, {"s2": UNIT, "ell": UNIT}, {"D": 1}),
    "probit": Case(60, {"m": "Normal(0, 0.5)", "s2": "LogNormal(1, 0.5)", "ell": UNIT}, {"D": 1}),
    "student_t": Case(40, {"s2": UNIT, "ell": UNIT, "scale": "LogNormal(-1.5, 0.5)"}, {"D": 1}),
    "heteroscedastic": Case(
        80,
        {"s2_f": UNIT, "ell_f": UNIT, "m": "Normal(-2, 0.5)", "s2_g": UNIT, "ell_g": "LogNormal(0.7, 0.5)"},
        {"D": 1},
    ),
}


def with_priors(name: str, priors: dict[str, str]) -> gpdsl.Model:
    """The model of the zoo with these priors, its initial values kept."""
    text = (Path(__file__).resolve().parents[2] / "models" / f"{name}.gpm").read_text()
    for parameter, prior in priors.items():
        line = re.compile(rf"^(param\s+{parameter}\b[^#\n]*?)\s*(#.*)?$", re.MULTILINE)
        text, count = line.subn(rf"\1 ~ {prior}", text)
        assert count == 1, parameter
    return gpdsl.compile(text)


def inputs(model: gpdsl.Model, case: Case) -> dict[str, Any]:
    """Uniform over the same width: lengths around one are neither flat nor white."""
    rng = np.random.default_rng(0)
    return {name: rng.uniform(0, case.width, case.rows) for name in model.declarations.inputs}


def run() -> None:
    """Print a table, a line as soon as it is known: latents and outputs together, parameters together."""
    names = os.environ.get("GPDSL_COVERAGE", " ".join(CASES)).split()
    runs, keep = int(os.environ.get("GPDSL_RUNS", RUNS)), os.environ.get("GPDSL_KEEP")
    print("| model | fit | runs | latents, 50% | 90% | parameters, 50% | 90% | outputs, 50% | 90% | s of a run |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name in names:
        case = CASES[name]
        model = with_priors(name, case.priors)
        for choice in ("plugged", "integrated"):
            more = {"hyperparameters": "integrated"} if choice == "integrated" else {}
            data = inputs(model, case)
            found = gpdsl.sbc(model, data, runs=runs, points=POINTS, fixed=list(case.fixed), seed=0, **more)
            if keep:
                found.save(Path(keep) / f"{name}-{choice}.json")
            groups = [list(model.declarations.latents), list(case.priors), list(model.declarations.outputs)]
            cells = [_cell(found, group, level) for group in groups for level in (0.5, 0.9)]
            seconds = found.seconds / max(found.runs, 1)
            print(f"| {name} | {choice} | {found.runs} | {' | '.join(cells)} | {seconds:.1f} |", flush=True)


def _cell(found: gpdsl.Calibration, names: list[str], level: float) -> str:
    """The share of true values of several names inside, and its standard error over runs."""
    known = [found.shares[name] for name in names if name in found.shares]
    if not known:
        return "-"
    shares = np.concatenate([each.reshape(len(each), -1) for each in known], axis=1)
    each = np.mean(np.abs(shares - 0.5) <= 0.5 * level, axis=1)
    return f"{np.mean(each):.3f} ± {np.std(each) / np.sqrt(len(each)):.3f}"
