"""SAVIGP sections 9.4 to 9.6 and appendices K.2, K.4: MNIST's ten digits, and whether a digit is odd (MNIST-B).

`python benchmarks/papers/digits.py parity` (or `digits`, or both; `--quick` for the small ones; `--keep FILE` to go on
where a run stopped). Three questions: how many inducing inputs (fixed at k-means centres), learnt or fixed, all rows or
minibatches. The papers train on 60000 images and test on 10000; at hand are the 10000 test images, of which 9000 train
and 1000 test, so that the papers' sparsity factors and their numbers of inducing inputs are different things: both are
shown. `rows` halves or quarters the training images, which shows what more of them would be worth.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (2, 1, 0)]

from kept import Kept  # noqa: E402
from peers.svgp_problems import Task, load  # noqa: E402
from report import CONSOLE, find_data, show  # noqa: E402

import gpdsl  # noqa: E402

MODELS = {
    "parity": """
input x : real[D]
output y : binary
param s2 : positive = 10
param ell : positive = 5
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Bernoulli(logit = f)
""",
    "digits": """
index c in 1..C
input x : real[D]
output y : label[c]
param s2 : positive = 10
param ell : positive = 5
latent f[c](x) ~ GP(0, s2 * RBF(ell))
y ~ Categorical(logits = f)
""",
}

STOCHASTIC = {"batch": 500, "dtype": "float32"}
ADADELTA = {**STOCHASTIC, "optimizer": "adadelta", "steps": 4000}
PAPERS_LOOP = {"optimizer": "lbfgs"}


@dataclass(frozen=True)
class Case:
    """One fit: what is asked, its number of inducing inputs, its options, and what the paper prints for it."""

    what: str
    inducing: int
    options: dict[str, Any] = field(default_factory=dict)
    paper: str = ""
    rows: int = 9000
    quick: bool = False


FIXED = "all rows, fixed"
LEARNT = {"learn_inducing": True}

CASES = {
    "parity": [
        Case(FIXED, 9, quick=True),
        Case(FIXED, 36, quick=True),
        Case(FIXED, 180, quick=True),
        Case(FIXED, 360, {}, "2400 (SF 0.04): 1.9 %, 0.062"),
        Case(FIXED, 180, {}, rows=4500),
        Case(FIXED, 180, {}, rows=2250),
        Case("all rows, learnt", 9, LEARNT, "60 (SF 0.001): 3.17 %, 0.097", quick=True),
        Case("all rows, learnt", 36, LEARNT, "240 (SF 0.004): 2.12 %, 0.068"),
        Case("all rows, learnt", 60, LEARNT, "60: 3.17 %, 0.097"),
        Case("all rows, learnt", 240, LEARNT, "240: 2.12 %, 0.068"),
        Case("all rows, learnt, L-BFGS on everything", 60, {**LEARNT, **PAPERS_LOOP}, "60: 3.17 %, 0.097"),
        Case("minibatches, learnt", 9, {**LEARNT, **STOCHASTIC}, "60 (SF 0.001): 3.11 %, 0.099", quick=True),
        Case("minibatches, learnt", 36, {**LEARNT, **STOCHASTIC}, "240 (SF 0.004): 2.68 %, 0.083"),
        Case("minibatches, learnt", 60, {**LEARNT, **STOCHASTIC}, "60: 3.11 %, 0.099"),
        Case("minibatches, learnt", 240, {**LEARNT, **STOCHASTIC}, "240: 2.68 %, 0.083"),
        Case("minibatches, learnt, Adadelta", 60, {**LEARNT, **ADADELTA}, "60: 3.11 %, 0.099"),
    ],
    "digits": [
        Case("minibatches, fixed", 36, STOCHASTIC, quick=True),
        Case("minibatches, fixed", 180, STOCHASTIC),
        Case("minibatches, fixed", 360, STOCHASTIC, "2400 (SF 0.04), all rows: 2.77 %"),
        Case("minibatches, fixed", 180, STOCHASTIC, rows=4500),
        Case("minibatches, fixed", 180, STOCHASTIC, rows=2250),
        Case("minibatches, learnt", 9, {**LEARNT, **STOCHASTIC}),
        Case("minibatches, learnt", 36, {**LEARNT, **STOCHASTIC}, quick=True),
        Case("minibatches, learnt", 60, {**LEARNT, **STOCHASTIC}),
        Case("minibatches, learnt", 240, {**LEARNT, **STOCHASTIC}),
        Case("all rows, fixed", 36),
    ],
}

SAID = {
    "parity": "SAVIGP K.2, 9.5, table 3: denser is better; learnt inputs do as well as ten times as many that are "
    "fixed; minibatches lose little.",
    "digits": "SAVIGP 9.4.1, K.4: denser is better; learnt inputs do as well as ten times as many that are fixed.",
}


def run(name: str, quick: bool, kept: Kept) -> None:
    """Every case of one problem, as one table."""
    paths = find_data("mnist10k.npz")
    if paths is None:
        return
    task = load(name, paths[0].parent)
    rows = []
    for case in CASES[name]:
        if quick and not case.quick:
            continue
        label = f"{name}: {case.what}, {case.inducing} inducing inputs, {case.rows} images"
        error, nlp, elbo, seconds, compiling = kept.measure(label, partial(_one, name, task, case))
        sparsity = f"{case.inducing / case.rows:.3g}"
        rows.append([case.what, case.rows, case.inducing, sparsity, f"{error:.1%}", nlp, elbo, seconds, compiling])
        rows[-1].append(case.paper)
    columns = [
        "optimisation, inducing inputs",
        "images",
        "M",
        "SF",
        "error",
        "NLP",
        "ELBO",
        "seconds",
        "of which compiling",
    ]
    show(f"{name}: 1000 test images", [*columns, "SAVIGP, 60000 images: M, error, NLP"], rows)
    CONSOLE.print(f"{SAID[name]}\n")


def _one(name: str, task: Task, case: Case) -> list[float]:
    """Error rate, NLP, bound, processor seconds of a whole fit, seconds of compiling."""
    train, test = {"x": task.x[: case.rows], "y": task.y[: case.rows]}, {"x": task.x_test, "y": task.y_test}
    options = {"batch": 0, "seed": 0, "progress": False, **case.options}
    start = time.process_time()
    fit = gpdsl.compile(MODELS[name]).fit(train, inducing=case.inducing, **options)
    seconds = time.process_time() - start
    return [gpdsl.score.error_rate(fit, test), gpdsl.score.nlpd(fit, test), fit.elbo, seconds, fit.compile_seconds]


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*CASES, []], default=list(CASES))
    parser.add_argument("--quick", action="store_true", help="the small cases only")
    parser.add_argument("--keep", type=Path, help="file of measurements to go on from, and to add to")
    given = parser.parse_args()
    for name in given.names:
        run(name, given.quick, Kept(given.keep))


if __name__ == "__main__":
    main()
