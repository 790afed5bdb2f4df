"""Features that are not points: patches of digits, Fourier features of rows by the million, harmonics beside points.

`python benchmarks/papers/features.py patches` (or `rows`, `sphere`, `chosen`; `--keep FILE` to go on where a run
stopped). Digits are the 10000 images at hand, 9000 of them to train on, each averaged to 14 by 14 pixels; the two
kernels have equally many inducing variables, the same minibatches and steps. Rows are kin8nm's first column again and
again. Harmonics are those of an arc-cosine kernel with a weight for each column, on the first splits of power and
kin8nm, beside as many points of the same kernel. Features that are chosen by themselves are of series drawn over 100
length-scales, beside points, whose number is that at which the budgets of a default fit end.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (2, 1, 0)]

from kept import Kept  # noqa: E402
from report import find_data, show  # noqa: E402

import gpdsl  # noqa: E402

SCALES = """
param s2  : positive = {s2} ~ LogNormal(log({s2}), 1)
param ell : positive = {ell} ~ LogNormal(log({ell}), 0.5)
"""
KERNELS = {
    "RBF": ("", SCALES.format(s2=10, ell=3), "RBF(ell)", 100),
    "patches": ("", SCALES.format(s2=50, ell=1), "Patch(RBF(ell), image = [14, 14], patch = [5, 5])", "patches(100)"),
    "weighted patches": (
        "index p in 1..100\nparam w[p] : real = 1 ~ Normal(1, 1)",
        SCALES.format(s2=50, ell=1),
        "Patch(RBF(ell), image = [14, 14], patch = [5, 5], weights = w)",
        "patches(100)",
    ),
}
TASKS = {
    "odd or even": ("", "binary", "latent f(x) ~ GP(0, s2 * {})", "Bernoulli(logit = f)"),
    "ten digits": ("index c in 1..C", "label[c]", "latent f[c](x) ~ GP(0, s2 * {})", "Categorical(logits = f)"),
}
ASKED = {"batch": 200, "steps": 1000, "dtype": "float32", "diagnose": "no"}

CURVE = """
input x : real
output y : real
param s2 : positive = 1
param ell : positive = 1
param noise : positive = 1
latent f(x) ~ GP(0, s2 * Matern32(ell))
y ~ Normal(f, noise)
"""


def digits() -> tuple[np.ndarray, np.ndarray] | None:
    """Pixels from 0 to 1 [10000, 196], and the digits."""
    files = find_data("mnist10k.npz")
    if files is None:
        return None
    table = np.load(files[0])
    pixels = table[next(key for key in table.files if key != "labels")].reshape(-1, 14, 2, 14, 2) / 255.0
    return pixels.mean(axis=(2, 4)).reshape(-1, 196), table["labels"].ravel().astype(int)


def patches(kept: Kept) -> None:
    """Errors on the last 1000 digits."""
    known = digits()
    if known is None:
        return
    rows = []
    for task in TASKS:
        for kernel in KERNELS:
            rows.append([task, kernel, *kept.measure(f"{task}: {kernel}", partial(_classified, task, kernel, *known))])
            rows[-1][2] = f"{rows[-1][2]:.1%}"
    columns = ["classes", "kernel", "error", "NLP", "bound", "processor seconds"]
    show(f"100 inducing variables, {ASKED['steps']} steps on {ASKED['batch']} of 9000 images of 14 x 14", columns, rows)


def _classified(task: str, kernel: str, x: np.ndarray, label: np.ndarray) -> list[float]:
    index, kind, latent, law = TASKS[task]
    own, scales, formula, inducing = KERNELS[kernel]
    y = label % 2 if kind == "binary" else label
    lines = [index, "input x : real[196]", f"output y : {kind}", own, scales, latent.format(formula), f"y ~ {law}"]
    train, test = {"x": x[:9000], "y": y[:9000]}, {"x": x[9000:], "y": y[9000:]}
    begun = time.process_time()
    fit = gpdsl.compile("\n".join(lines)).fit(train, inducing=inducing, **ASKED)
    seconds = time.process_time() - begun
    return [gpdsl.score.error_rate(fit, test), gpdsl.score.nlpd(fit, test), fit.elbo, seconds]


def replicated(kept: Kept) -> None:
    """Milliseconds of a step on so many rows."""
    files = find_data("kin8nm.npz")
    if files is None:
        return
    table = np.load(files[0])
    x, y = (np.asarray(each, float) for each in (table["x"][:, 0], np.ravel(table["y"])))
    x, y = ((each - each.mean()) / each.std() for each in (x, y))
    sizes = 10_000, 100_000, 1_000_000
    rows = [[count, *kept.measure(f"rows: {count}", partial(_stepped, x, y, count))] for count in sizes]
    show("fourier(50) of Matern32: the second fit of each size", ["rows", "ms a step", "steps", "seconds"], rows)


def _stepped(x: np.ndarray, y: np.ndarray, count: int) -> list[float]:
    some = np.arange(count) % len(x)
    for _ in range(2):  # the first compiles
        steps: list[float] = []
        begun = time.perf_counter()
        gpdsl.compile(CURVE).fit(
            {"x": x[some], "y": y[some]},
            inducing="fourier(50)",
            diagnose="no",
            callback=lambda _, steps=steps: steps.append(time.perf_counter()),
        )
        seconds = time.perf_counter() - begun
    return [1e3 * float(np.median(np.diff(steps))), len(steps), seconds]


LAYER = """
input x : real[D]
output y : real
param w : positive[D] = 1
param b : positive = 1
param noise : positive = 0.5
latent f(x) ~ GP(0, ArcCosine(order = 1, weight = w, bias = b))
y ~ Normal(f, noise)
"""
EQUAL = {
    "power.npz": ("spherical(5)", "points(75)", "spherical(7)", "points(215)"),
    "kin8nm.npz": ("spherical(3)", "points(54)", "spherical(5)", "points(504)"),
}
"""As many harmonics as points, pair by pair."""


def sphere(kept: Kept) -> None:
    """Negative log densities, bounds and steps of harmonics and points, of standardised columns."""
    files = find_data(*EQUAL)
    if files is None:
        return
    rows = []
    for path in files:
        for inducing in EQUAL[path.name]:
            measured = kept.measure(f"{path.stem}: {inducing}", partial(_layered, path, inducing))
            rows.append([path.stem, inducing, *measured])
    columns = ["data", "inducing", "NLPD", "bound", "processor ms a step", "steps"]
    show("ArcCosine(order = 1) with a weight for each column, the first split", columns, rows)


def _layered(path: Path, inducing: str) -> list[float]:
    table = np.load(path)
    test = table["test_mask"][:, 0].astype(bool)
    x, y = np.asarray(table["x"], float), np.ravel(np.asarray(table["y"], float))
    x, y = ((each - each[~test].mean(axis=0)) / each[~test].std(axis=0) for each in (x, y))
    steps: list[float] = []
    fit = gpdsl.compile(LAYER).fit(
        {"x": x[~test], "y": y[~test]},
        inducing=inducing,
        diagnose="no",
        callback=lambda _: steps.append(time.process_time()),
    )
    nlpd = gpdsl.score.nlpd(fit, {"x": x[test], "y": y[test]})
    return [nlpd, fit.elbo, 1e3 * float(np.median(np.diff(steps))), len(steps)]


SERIES = [
    ("Matern12", "Normal", 30_000, 344),
    ("Matern32", "Normal", 30_000, 344),
    ("Matern52", "Normal", 30_000, 344),
    ("Matern32", "Normal", 300_000, 0),
    ("Matern32", "Poisson", 10_000, 774),
]
"""Kernel, likelihood, rows, and how many points beside what is chosen: 0 where only that is fitted."""
WAVES = 1000
"""Random ones, of which a series is the sum."""


def chosen(kept: Kept) -> None:
    """Bounds, and root mean squared errors of the latent at rows left out, by default and with points.

    A fit takes about a minute on two cores that nothing else uses, and there are nine.
    """
    rows = []
    for kernel, law, count, points in SERIES:
        series = f"{kernel}, {law}, {count}"
        for inducing in (None, points) if points else (None,):
            kind = f"{points} points" if inducing else "chosen"
            measured = kept.measure(f"{series}: {kind}", partial(_chosen, kernel, law, count, inducing))
            rows.append([series, kind, int(measured[0]), *measured[1:]])
    columns = ["series", "inducing", "M", "bound", "told to be lost", "error of the latent", "processor seconds"]
    show("features chosen by themselves, and points", columns, rows)


def _chosen(kernel: str, law: str, count: int, inducing: int | None) -> list[float]:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 100, count + 500))
    waves, turns = rng.standard_t(int(kernel[-2]), WAVES), rng.uniform(0, 2 * np.pi, WAVES)
    f = sum(np.cos(wave * x + turn) for wave, turn in zip(waves, turns, strict=True)) * np.sqrt(2 / WAVES)
    y = f + 0.3 * rng.standard_normal(len(x)) if law == "Normal" else rng.poisson(np.exp(f))
    text = CURVE.replace("Matern32", kernel)
    if law == "Poisson":
        text = text.replace("y : real", "y : count").replace("param noise : positive = 1\n", "")
        text = text.replace("Normal(f, noise)", "Poisson(exp(f))")
    test = np.zeros(len(x), bool)
    test[rng.choice(len(x), 500, replace=False)] = True
    begun = time.process_time()
    fit = gpdsl.compile(text).fit({"x": x[~test], "y": y[~test]}, inducing=inducing, diagnose="no")
    seconds = time.process_time() - begun
    error = float(np.sqrt(np.mean((fit.predict({"x": x[test]}).mean("f") - f[test]) ** 2)))
    return [len(fit.inducing[0]), fit.elbo, fit.inducing_loss or 0.0, error, seconds]


PARTS = {"patches": patches, "rows": replicated, "sphere": sphere, "chosen": chosen}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    parser.add_argument("--keep", type=Path, help="file of measurements to go on from, and to add to")
    given = parser.parse_args()
    for part in given.parts:
        PARTS[part](Kept(given.keep))


if __name__ == "__main__":
    main()
