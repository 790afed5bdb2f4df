"""SAVIGP section 9.4.1, K.3 and K.4: torques of a robot arm by a Gaussian process regression network.

`python benchmarks/papers/sarcos.py` (`--quick` for the small ones, `--keep FILE` to go on where a run stopped).
SARCOS-2 learns joints 4 and 7 alone (three latents), SARCOS all seven (eight latents); the measures are those of joints
4 and 7 in both. The paper trains on 44484 rows and tests on 4449; at hand are the 4449, of which 3500 train and 949
test. Inputs and outputs are standardised by the training rows; NLPD is per row, of the joints that are learnt, on the
raw scale.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (2, 1, 0)]

from kept import Kept  # noqa: E402
from recorded import record  # noqa: E402
from report import CONSOLE, find_data, show  # noqa: E402

import gpdsl  # noqa: E402

MODEL = """
index p in 1..P
input x : real[D]
output y[p] : real
param ell_g : positive[D] = 4
param ell_w : positive[D] = 8
param sigma[p] : positive = 0.1
latent g(x) ~ GP(0, RBF(ell_g))
latent w[p](x) ~ GP(0, RBF(ell_w))
y[p] ~ Normal(w[p] * g, sigma[p])
"""

TRAIN, JOINTS = 3500, (3, 6)
"""Training rows, and joints 4 and 7, counted from 0."""


@dataclass(frozen=True)
class Case:
    """One fit: which joints, how many inducing inputs per latent, its options, and what the paper prints for it."""

    joints: str
    what: str
    inducing: int
    options: dict[str, Any] = field(default_factory=dict)
    paper: str = ""
    quick: bool = False


MINI = {"batch": 500, "steps": 1500}
LEARNT = {**MINI, "learn_inducing": True}

CASES = [
    Case("SARCOS-2", "minibatches, fixed", 35, MINI, quick=True),
    Case("SARCOS-2", "minibatches, fixed", 70, MINI),
    Case("SARCOS-2", "minibatches, fixed", 140, MINI, "1779: 0.0033, 0.0065"),
    Case("SARCOS-2", "minibatches, fixed", 350, MINI),
    Case("SARCOS-2", "minibatches, learnt", 35, LEARNT, quick=True),
    Case("SARCOS-2", "minibatches, learnt", 140, LEARNT, "1779: 0.0033, 0.0065"),
    Case("SARCOS-2", "minibatches, learnt", 350, LEARNT),
    Case("SARCOS-2", "all rows, fixed", 35, {"batch": 0}),
    Case("SARCOS-2", "all rows, learnt", 35, {"batch": 0, "learn_inducing": True}),
    Case("SARCOS", "minibatches, fixed", 140, MINI),
    Case("SARCOS", "minibatches, learnt", 140, LEARNT),
]


def run(quick: bool, kept: Kept, keep: bool) -> None:
    """Every case, as one table; `keep` puts the rows into that of RESULTS.md."""
    paths = find_data("sarcos_test.npz")
    if paths is None:
        return
    with np.load(paths[0]) as stored:
        x, y = np.asarray(stored["x"], float), np.asarray(stored["y"], float)
    order = np.random.default_rng(0).permutation(len(x))
    rows = []
    for case in CASES:
        if quick and not case.quick:
            continue
        label = f"{case.joints}: {case.what}, {case.inducing} inducing inputs"
        four, seven, nlpd, elbo, seconds, compiling = kept.measure(label, partial(_one, case, x[order], y[order]))
        sparsity = f"{case.inducing / TRAIN:.2g}"
        rows.append([case.joints, case.what, case.inducing, sparsity, four, seven, nlpd, elbo, seconds, compiling])
        rows[-1].append(case.paper)
        if keep:
            names = {"SARCOS-2": "joints 4, 7", "SARCOS": "all seven"}
            row = {
                "outputs": names[case.joints],
                "how": case.what,
                "M": case.inducing,
                "SF": f"{case.inducing / TRAIN:.1g}",
            }
            row |= {"error 4": four, "error 7": seven, "NLPD": nlpd, "bound": f"{elbo:.0f}", "CPU s": f"{seconds:.0f}"}
            record("sarcos", ["outputs", "how", "M"], row)
    columns = [
        "outputs",
        "how",
        "M",
        "SF",
        "MSSE 4",
        "MSSE 7",
        "NLPD",
        "ELBO",
        "s",
        "compiling",
        "SAVIGP: M, MSSE 4, 7",
    ]
    show(f"SARCOS: {len(x) - TRAIN} test rows", columns, rows)
    CONSOLE.print("SAVIGP 9.4.1, K.3, K.4: denser is better; seven joints instead of two hardly change the errors; ")
    CONSOLE.print("learnt inducing inputs help less than on the digits.\n")


def _one(case: Case, x: np.ndarray, y: np.ndarray) -> list[float]:
    """Standardised errors of joints 4 and 7, NLPD, bound, processor seconds of a whole fit, seconds of compiling."""
    joints = list(JOINTS) if case.joints == "SARCOS-2" else list(range(7))
    y = y[:, joints]
    centre, spread = x[:TRAIN].mean(axis=0), x[:TRAIN].std(axis=0)
    mean, sd = y[:TRAIN].mean(axis=0), y[:TRAIN].std(axis=0)
    x, y = (x - centre) / spread, (y - mean) / sd
    train, test = {"x": x[:TRAIN], "y": y[:TRAIN]}, {"x": x[TRAIN:], "y": y[TRAIN:]}
    start = time.process_time()
    fit = gpdsl.compile(MODEL).fit(train, inducing=case.inducing, seed=0, progress=False, **case.options)
    seconds = time.process_time() - start
    gap = (fit.predict(test).mean("y") - test["y"])[:, [joints.index(j) for j in JOINTS]]
    errors = np.mean(gap**2, axis=0) / np.var(test["y"][:, [joints.index(j) for j in JOINTS]], axis=0)
    nlpd = gpdsl.score.nlpd(fit, test) + float(np.sum(np.log(sd)))
    return [*errors, nlpd, fit.elbo, seconds, fit.compile_seconds]


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small cases only")
    parser.add_argument("--keep", type=Path, help="file of measurements to go on from, and to add to")
    parser.add_argument("--record", action="store_true", help="put the rows into the table of RESULTS.md")
    given = parser.parse_args()
    run(given.quick, Kept(given.keep), given.record)


if __name__ == "__main__":
    main()
