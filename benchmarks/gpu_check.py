"""Does a fit on the GPU say what the CPU says in float64, and how fast is it: `make gpu-check`.

Without a GPU the same checks run in float32 on the CPU, and the page says so. The problems have the shapes of kin40k
(regression and its sign) and of the MNIST digits; where the data are absent, random data of those shapes stand in.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from report import CONSOLE, find_data, show  # noqa: E402

import gpdsl  # noqa: E402
import gpdsl.results.fitting  # noqa: E402  # JAX begins after it has been told how

SMALL, INDUCING_SMALL = 1200, 60
ELBO_GAP = 3e-3
"""Largest relative difference of the bounds: float32 needs a jitter a thousand times that of float64."""

ROUNDS = 2
"""The first compiles, the second is timed."""

REGRESSION = """input x : real[D]
output y : real
param s2 : positive = 1
param ell : positive[D] = 2
param sigma : positive = 0.3
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Normal(f, sigma)
"""
BINARY = REGRESSION.replace("output y : real", "output y : binary").replace("param sigma : positive = 0.3\n", "")
BINARY = BINARY.replace("Normal(f, sigma)", "Bernoulli(logit = f)")
DIGITS = """index c in 1..C
input x : real[D]
output y : label[c]
param s2 : positive = 10
param ell : positive = 15
latent f[c](x) ~ GP(0, s2 * RBF(ell))
y ~ Categorical(logits = f)
"""

Table = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A model, its data, and how many inducing points and rows a step it is timed with."""

    text: str
    data: Table
    inducing: int
    batch: int
    tolerance: float
    """Largest difference of predictive means from float64 on the CPU, in standard deviations of them."""


def main() -> None:
    """Verify, then time; ends with status 1 when a check fails."""
    warnings.simplefilter("ignore")
    device = "gpu" if _has_gpu() else "cpu"
    CONSOLE.print(f"JAX {jax.__version__}, devices: {', '.join(map(str, jax.devices()))}")
    if device == "cpu":
        CONSOLE.print("no GPU is visible to JAX: the float32 checks run on the CPU")
    problems = {"kin40k": _kin40k(REGRESSION), "kin40k, sign": _kin40k(BINARY), "digits": _digits()}
    sound = [_verify(name, problem, device) for name, problem in problems.items()]
    for name, problem in problems.items():
        _time(name, problem, device)
    sys.exit(0 if all(sound) else 1)


def _has_gpu() -> bool:
    return any(each.platform in {"gpu", "cuda", "rocm"} for each in jax.devices())


def _kin40k(text: str) -> Problem:
    paths = find_data("kin40k.npz")
    if paths is None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(40_000, 8))
        y = np.sin(x @ rng.normal(size=(8, 3))).sum(axis=1)
    else:
        with np.load(paths[0]) as stored:
            x, y = stored["x"].astype(float), stored["y"].astype(float).ravel()
    y = (y - y.mean()) / y.std()
    data = {"x": (x - x.mean(axis=0)) / x.std(axis=0), "y": (y > 0).astype(int) if "binary" in text else y}
    return Problem(text, data, 500, 1000, 0.05)


def _digits() -> Problem:
    paths = find_data("mnist10k.npz")
    if paths is None:
        rng = np.random.default_rng(1)
        labels = rng.integers(0, 10, size=9000)
        x = 0.3 * rng.normal(size=(10, 784))[labels] + rng.normal(size=(9000, 784))
        return Problem(DIGITS, {"x": 0.5 * x, "y": labels}, 200, 500, 0.1)
    with np.load(paths[0]) as stored:
        images = next(stored[name] for name in stored.files if stored[name].ndim >= 2)
        labels = stored["labels"]
    x = images.reshape(len(images), -1)[:9000] / 255.0
    return Problem(DIGITS, {"x": x, "y": labels[:9000]}, 200, 500, 0.1)


def _first(data: Table, count: int) -> Table:
    return {name: values[:count] for name, values in data.items()}


def _verify(name: str, problem: Problem, device: str) -> bool:
    """The same fit of some of the rows at the same parameters, in float64 on the CPU and in float32 on the device."""
    data = _first(problem.data, SMALL)
    model = gpdsl.compile(problem.text)
    names = list(model.declarations.params)
    options: dict[str, Any] = {"inducing": INDUCING_SMALL, "posterior": "full", "fixed": names, "seed": 0}
    exact = model.fit(data, dtype="float64", device="cpu", progress=False, **options)
    quick = model.fit(data, dtype="float32", device=device, progress=False, **options)
    a, b = (np.asarray(fit.predict(data).mean("f")) for fit in (exact, quick))
    spread = float(np.std(a))
    shift = float(np.max(np.abs(a - b))) / spread
    gap = abs(exact.elbo - quick.elbo) / abs(exact.elbo)
    holds = shift <= problem.tolerance and gap <= ELBO_GAP
    CONSOLE.print(
        f"{'holds' if holds else 'FAILS'}: {name}: float32 on the {device} against float64 on the CPU: means of f "
        f"within {shift:.2g} of their spread (demanded <= {problem.tolerance:g}), "
        f"ELBO within {gap:.1e} (demanded <= {ELBO_GAP:g})"
    )
    return holds


def _time(name: str, problem: Problem, device: str) -> None:
    """Seconds per minibatch step at full size, the second of two fits, compile time apart."""
    model, rows, steps = gpdsl.compile(problem.text), [], 200
    for dtype in ("float32", "float64"):
        for _ in range(ROUNDS):
            start = time.perf_counter()
            fit = model.fit(
                problem.data,
                posterior="full",
                inducing=problem.inducing,
                batch=problem.batch,
                steps=steps,
                dtype=dtype,
                device=device,
                seed=0,
                progress=False,
            )
            seconds = time.perf_counter() - start
        taken = np.diff(fit.history[:, 2])
        per_step = float(np.median(taken / np.diff(fit.history[:, 0]))) if len(taken) else float("nan")
        rows.append([dtype, 1e3 * per_step, fit.compile_seconds, seconds, fit.elbo / fit.rows])
    columns = ["precision", "ms per step", "compiling, s", f"{steps} steps in all, s", "ELBO per row"]
    show(f"{name}: {problem.inducing} inducing points, {problem.batch} rows a step, on the {device}", columns, rows)


if __name__ == "__main__":
    main()
