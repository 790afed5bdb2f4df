"""SAVIGP section 9.3 and AGP section 4: six data sets, three families of posteriors, sparsity factors from 0.1 to 1.

`python benchmarks/papers/small_scale.py boston` (or several names, or `all`; `--quick` for one split and the ends of
the factors). `--keep FILE` keeps every measurement, and a run that was interrupted goes on from there. The papers show
box plots over five splits, and no number in their text; what it states is printed under each table. The inference it is
compared with is measured here: exact GP regression, the exact evidence of the warped GP, and EP for classification.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (2, 1, 0)]

import jax  # noqa: E402
from kept import Kept  # noqa: E402
from peers import ep, exact_gp  # noqa: E402
from report import CONSOLE, find_data, show  # noqa: E402

import gpdsl  # noqa: E402

FAMILIES = {"FG": "full", "MoG1": "diagonal", "MoG2": "mixture(2)"}
FACTORS = (0.1, 0.2, 0.5, 1.0)

Table = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Split:
    """Training and test rows, and what turns a density of the scaled output into one of the raw output."""

    train: Table
    test: Table
    log_scale: float = 0.0


@dataclass(frozen=True)
class Experiment:
    """One data set of table 1: its model, its measures, the inference it is compared with, what the papers say."""

    model: str
    splits: int
    read: Callable[[int], Split | None]
    measure: tuple[str, Callable[[gpdsl.Fit, Table], float]]
    rivals: Mapping[str, Callable[[Split], list[float]]]
    said: str


def _regression(name: str, *, standardise: bool) -> Callable[[int], Split | None]:
    def read(split: int) -> Split | None:
        paths = find_data(f"{name}/train_{split}.csv", f"{name}/test_{split}.csv")
        if paths is None:
            return None
        (x, y), (new, truth) = map(_columns, paths)
        if not standardise:
            return Split({"x": x, "y": y}, {"x": new, "y": truth})
        centre, spread = x.mean(axis=0), np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
        mean, sd = y.mean(), y.std()
        train = {"x": (x - centre) / spread, "y": (y - mean) / sd}
        return Split(train, {"x": (new - centre) / spread, "y": (truth - mean) / sd}, float(np.log(sd)))

    return read


def _columns(path: Path) -> tuple[np.ndarray, np.ndarray]:
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    return table[:, 1:], table[:, 0]


def _digits(split: int) -> Split | None:
    paths = find_data(f"usps/split_{split}.npz")
    if paths is None:
        return None
    with np.load(paths[0]) as stored:
        return Split({"x": stored["x_train"], "y": stored["y_train"]}, {"x": stored["x_test"], "y": stored["y_test"]})


def _exact(split: Split) -> list[float]:
    """Exact GP regression, its hyperparameters where its own marginal likelihood is highest: SSE, NLPD."""
    x, y = split.train["x"], split.train["y"]
    start = {"mu": y.mean(), "s2": y.var(), "ell": np.full(x.shape[1], 4.0), "sigma": 0.4 * y.std()}
    with jax.enable_x64(True):
        _, learnt = exact_gp.maximise(x, y, start)
    mean, variance = exact_gp.predict(x, y, split.test["x"], learnt)
    gap, noisy = split.test["y"] - mean, variance + learnt["sigma"] ** 2
    nlpd = np.mean(0.5 * np.log(2 * np.pi * noisy) + 0.5 * gap**2 / noisy)
    return [float(np.mean(gap**2) / np.var(split.test["y"])), float(nlpd) + split.log_scale]


def _warped(split: Split, model: str) -> list[float]:
    """By how much the bound of dense FG falls short of the exact evidence of its warped GP, in nats."""
    fit = gpdsl.zoo(model).fit(split.train, seed=0, progress=False, inducing=0, posterior="full")
    at = {name: np.asarray(value, float) for name, value in fit.parameters.items()}
    y = split.train["y"][:, None]
    bent = np.tanh(at["b"] * (y + at["c"]))
    warped, slope = y[:, 0] + bent @ at["a"], 1 + (1 - bent**2) @ (at["a"] * at["b"])
    with jax.enable_x64(True):
        evidence = exact_gp.log_marginal_likelihood(split.train["x"], warped, {**at, "mu": 0.0})
    return [float(evidence) + float(np.sum(np.log(slope))) - fit.elbo]


def _propagated(split: Split) -> list[float]:
    """EP at the hyperparameters of dense FG: error rate, NLP."""
    fit = gpdsl.zoo("wisconsin").fit(split.train, seed=0, progress=False, inducing=0, posterior="full")
    at = {name: np.asarray(value, float) for name, value in fit.parameters.items()}
    p = ep.predict(split.train["x"], split.train["y"], split.test["x"], at)
    right = split.test["y"] > 0
    return [float(np.mean((p > 0.5) != right)), float(-np.mean(np.log(np.where(right, p, 1 - p))))]


def _warped_rivals(model: str) -> dict[str, Callable[[Split], list[float]]]:
    return {
        "GP, exact: SSE, NLPD": _exact,
        "WGP: exact evidence - ELBO of dense FG": lambda split: _warped(split, model),
    }


SSE = ("SSE", gpdsl.score.sse)
ERROR = ("error rate", gpdsl.score.error_rate)

EXPERIMENTS = {
    "boston": Experiment(
        "boston",
        3,
        _regression("boston", standardise=False),
        SSE,
        {"GP, exact: SSE, NLPD": _exact},
        "SAVIGP 9.3.1: SSE of all models and sparsity factors comparable to exact inference; dense FG exactly like it.",
    ),
    "creep": Experiment(
        "creep",
        3,
        _regression("creep", standardise=True),
        SSE,
        _warped_rivals("creep"),
        "AGP 4.2: comparable to exact inference of the warped GP, slightly better than plain GP regression.",
    ),
    "abalone": Experiment(
        "abalone",
        3,
        _regression("abalone", standardise=True),
        SSE,
        _warped_rivals("abalone"),
        "SAVIGP 9.3.2: similar across models and sparsity factors, comparable to exact inference of the warped GP.",
    ),
    "wisconsin": Experiment(
        "wisconsin",
        3,
        _regression("wisconsin", standardise=False),
        ERROR,
        {"EP: error rate, NLP": _propagated},
        "SAVIGP 9.3.3: error rates comparable across models and factors; NLP worse for denser MoG1 and MoG2.",
    ),
    "usps": Experiment(
        "usps",
        2,
        _digits,
        ERROR,
        {},
        "SAVIGP 9.3.4: error rates slightly lower in denser FG; NLP varies in sparse MoG.",
    ),
}


def run(name: str, splits: int, factors: tuple[float, ...], families: tuple[str, ...], kept: Kept) -> None:
    """Fit every family at every sparsity factor on every split, and print means over the splits."""
    experiment = EXPERIMENTS[name]
    measure, _ = experiment.measure
    read = {i: experiment.read(i) for i in range(1, min(splits, experiment.splits) + 1)}
    data = {i: split for i, split in read.items() if split is not None}
    rows = []
    for factor in factors if data else ():
        for family in families:
            label = f"{name} SF {factor:g} {family}"
            found = np.asarray(
                [
                    kept.measure(f"{label} split {i}", partial(_one, experiment, split, factor, FAMILIES[family]))
                    for i, split in data.items()
                ]
            )
            mean, spread = found.mean(axis=0), found.std(axis=0)
            rows.append([factor, family, *(f"{m:.4f} ± {s:.4f}" for m, s in zip(mean[:2], spread[:2], strict=True))])
            rows[-1] += [f"{mean[2]:.1f}", f"{mean[3]:.1f}", f"{mean[4]:.1f}"]
    if not rows:
        return
    columns = ["sparsity factor", "posterior", measure, "NLPD", "ELBO", "CPU s", "compiling, s"]
    show(f"{name}: means ± standard deviations over {len(data)} splits", columns, rows)
    for what, compute in experiment.rivals.items():
        found = np.asarray([kept.measure(f"{name} {what} split {i}", partial(compute, s)) for i, s in data.items()])
        spread = zip(found.mean(axis=0), found.std(axis=0), strict=True)
        CONSOLE.print(f"{what}: {', '.join(f'{m:.4g} ± {s:.4g}' for m, s in spread)}")
    CONSOLE.print(f"the papers: {experiment.said}\n")


def _one(experiment: Experiment, split: Split, factor: float, posterior: str) -> list[float]:
    """Score, NLPD on the raw scale, ELBO, processor seconds, seconds of compiling."""
    count = len(next(iter(split.train.values())))
    options: dict[str, Any] = {"posterior": posterior, "inducing": 0 if factor == 1.0 else round(factor * count)}
    start = time.process_time()
    fit = gpdsl.zoo(experiment.model).fit(split.train, seed=0, progress=False, **options)
    seconds = time.process_time() - start
    nlpd = gpdsl.score.nlpd(fit, split.test) + split.log_scale
    return [experiment.measure[1](fit, split.test), nlpd, fit.elbo, seconds, fit.compile_seconds]


def coal_mining(factors: tuple[float, ...], families: tuple[str, ...]) -> None:
    """SAVIGP 9.3.5: posterior of the intensity, by family and sparsity, beside the dense full Gaussian."""
    paths = find_data("coal_mining.csv")
    if paths is None:
        return
    table = np.loadtxt(paths[0], delimiter=",", skiprows=1)
    data = {"x": table[:, 0], "n": table[:, 1]}
    start = {"m": float(np.log(data["n"].sum() / len(table))), "ell": 2000.0}
    reference = gpdsl.zoo("coal_mining").fit(data, init=start, inducing=0, posterior="full", seed=0, progress=False)
    learnt = {name: np.asarray(value) for name, value in reference.parameters.items()}
    exact = reference.predict(data)
    rows = []
    for factor in factors:
        for family in families:
            options = {"posterior": FAMILIES[family], "inducing": 0 if factor == 1.0 else round(factor * len(table))}
            began = time.process_time()
            fit = gpdsl.zoo("coal_mining").fit(data, init=learnt, fixed=list(learnt), seed=0, progress=False, **options)
            seconds, q = time.process_time() - began, fit.predict(data)
            apart = np.abs(q.mean("f") - exact.mean("f")) / np.sqrt(exact.variance("f"))
            ratio = np.sqrt(q.variance("f") / exact.variance("f"))
            rows.append([factor, family, fit.elbo, apart.max(), ratio.mean(), seconds])
    columns = ["sparsity factor", "posterior", "ELBO", "largest shift of the mean, sd", "mean ratio of sd", "CPU s"]
    show("coal mining: posterior of f beside the dense full Gaussian's", columns, rows)
    CONSOLE.print("SAVIGP 9.3.5: FG alike at all factors; MoG1 and MoG2 have the same mean and too little variance.\n")


def main() -> None:
    """Parse the command line and run."""
    names = [*EXPERIMENTS, "coal_mining"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=[*names, "all"])
    parser.add_argument("--splits", type=int, default=5, help="how many splits at most")
    parser.add_argument("--factors", type=float, nargs="+", default=FACTORS)
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--quick", action="store_true", help="one split, sparsity factors 0.1 and 1")
    parser.add_argument("--keep", type=Path, help="file of measurements to go on from, and to add to")
    given = parser.parse_args()
    factors, families = (0.1, 1.0) if given.quick else tuple(given.factors), tuple(given.families)
    splits, kept = 1 if given.quick else given.splits, Kept(given.keep)
    for name in names if "all" in given.names else given.names:
        if name == "coal_mining":
            coal_mining(factors, families)
        else:
            run(name, splits, factors, families, kept)


if __name__ == "__main__":
    main()
