"""Every model of the zoo and every engine on a GPU beside the CPU: `python benchmarks/gpu_zoo.py [NAME ...]`.

Each case is drawn from its prior, fitted for a few steps with the same seed on the CPU and on the device, in float64
and on the device in float32, predicted with, and drawn from. In float64 both have the same bound and means but for
rounding, or what the CPU itself makes of it; where they have not, or a fit fails, the case FAILS and the status is 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import gpdsl  # noqa: E402
from tests.inference.test_cuda_lowerings import BINARY, COUNTS, NORMAL, STUDENT  # noqa: E402
from tests.simulation.test_requests import zoo_model  # noqa: E402

ROWS = 120
TOGETHER = int(os.environ.get("GPDSL_TOGETHER", "8"))
"""Cases at once, each a process of its own: most of the time goes by in compilation on the host."""

LIMIT = float(os.environ.get("GPDSL_LIMIT", "200"))
"""Seconds of a case."""

TOLERANCE = 1e-5
"""Largest difference in float64: of the bound relative to it or to one nat a row, of means in their spread."""

MAGNIFIED = 10.0
"""Times as far from the CPU as the CPU is from itself on data that differ in the thirteenth digit, at most."""

PRIORS = NORMAL.replace("positive = 1", "positive = 1 ~ LogNormal(0, 1)").replace("0.3", "0.3 ~ HalfNormal(1)")
OPAQUE = NORMAL.replace("latent f", "external slow(f: real) -> real\nlatent f").replace("Normal(f", "Normal(slow(f)")
MATERN = NORMAL.replace("RBF(", "Matern32(")
PRODUCT = """input x : real
output y : real
param sigma : positive = 0.3
latent f(x) ~ GP(0, RBF(1))
latent g(x) ~ GP(0, RBF(2))
y ~ Normal(f * g, sigma)
"""
WIDE = """input x : real[3]
output y : real
param ell : positive[3] = 1
param sigma : positive = 0.3
latent f(x) ~ GP(0, RBF(ell))
y ~ Normal(f, sigma)
"""
CLASSES = """index c in 1..3
input x : real
output y : label[c]
latent f[c](x) ~ GP(0, RBF(1))
y ~ Categorical(logits = f)
"""


@dataclass(frozen=True)
class Case:
    """A model, and the options of its fit."""

    model: Callable[[], gpdsl.Model]
    options: dict[str, Any] = field(default_factory=dict)
    exactly: bool = True
    """Whether the same seed gives the same fit on every device: not where a search or a chain magnifies rounding."""


def _text(text: str) -> Callable[[], gpdsl.Model]:
    return lambda: gpdsl.compile(text, externals={"slow": np.sin} if "external" in text else {})


def _cases() -> dict[str, Case]:
    few: dict[str, Any] = {"steps": 5}
    zoo = {name: Case(partial(zoo_model, name), few) for name in gpdsl.zoo_names()}
    zoo["airline"] = Case(zoo["airline"].model, {"inducing": 6, "batch": 12, **few})
    sparse, stochastic = {"inducing": 12, "steps": 5}, {"inducing": 12, "batch": 30, "steps": 20}
    engines = {
        "exact": Case(_text(NORMAL), few),
        "exact to the end": Case(_text(NORMAL), {}, exactly=False),
        "exact, large": Case(_text(WIDE), {"steps": 3}),
        "collapsed": Case(_text(NORMAL), {"inducing": 12, "steps": 5}),
        "natural": Case(_text(STUDENT), few),
        "binary": Case(_text(BINARY), few),
        "counts": Case(_text(COUNTS), sparse),
        "minibatches": Case(_text(STUDENT), stochastic),
        "ep": Case(_text(BINARY), {"engine": "ep"}, exactly=False),
        "sparse ep": Case(_text(BINARY), {"engine": "ep", "inducing": 12}, exactly=False),
        "qsgp": Case(_text(NORMAL), {"engine": "qsgp", "features": 20, "steps": 20}, exactly=False),
        "lbfgs": Case(_text(STUDENT), {"optimizer": "lbfgs", "steps": 5}),
        "alternating": Case(_text(STUDENT), {"schedule": "alternating", "steps": 2}),
        "adam": Case(_text(STUDENT), {"optimizer": "adam", "steps": 20}),
        "adadelta": Case(_text(STUDENT), {"optimizer": "adadelta", "steps": 20}),
        "opaque": Case(_text(OPAQUE), {"steps": 2}),
        "opaque, score": Case(_text(OPAQUE), {"steps": 2, "gradients": "score", "samples": 20}),
        "coupled": Case(_text(PRODUCT), {"posterior": "coupled", **few}),
        "mixture": Case(_text(PRODUCT), {"posterior": "mixture_full(2)", "optimizer": "adam", "steps": 20}),
        "corrected": Case(_text(PRODUCT), {"posterior": "corrected", **few}, exactly=False),
        "weights": Case(_text(PRIORS), {"parameters": "gaussian", **few}),
        "integrated": Case(_text(PRIORS), {"hyperparameters": "integrated"}, exactly=False),
        "mcmc": Case(_text(PRIORS), {"engine": "mcmc", "draws": 50, "warm_up": 50, "chains": 2}, exactly=False),
        "mcmc of counts": Case(_text(COUNTS), {"engine": "mcmc", "draws": 50, "warm_up": 50, "chains": 2}, False),
        "fourier features": Case(_text(MATERN), {"inducing": "fourier(10)", **few}),
        "eigen": Case(_text(NORMAL), {"inducing": "eigen(12)", **few}),
        "slopes": Case(_text(NORMAL), {"inducing": "points(6) + slopes(6)", **few}),
        "spherical": Case(_text(WIDE.replace("RBF(ell)", "ArcCosine(order = 1)")), {"inducing": "spherical(4)", **few}),
        "classes": Case(_text(CLASSES), sparse),
    }
    return engines | zoo


def main(names: list[str]) -> None:
    """All cases, or those named, several at once; ends with status 1 where one does not hold."""
    from report import CONSOLE, show

    rows = []
    with ThreadPoolExecutor(TOGETHER) as pool:
        for done in as_completed([pool.submit(_in_a_process, name) for name in names or _cases()]):
            rows.append(done.result())
            CONSOLE.print(*rows[-1])
    columns = [
        "case",
        "holds",
        "bound off",
        "means off",
        "float32: bound off, nats",
        "means off",
        "cpu, s",
        "device, s",
    ]
    show("every model and engine: the device beside the CPU in float64", columns, [row[:8] for row in rows])
    sys.exit(0 if all(row[1] == "yes" for row in rows) else 1)


def _in_a_process(name: str) -> list[Any]:
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, __file__, "--one", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return [name, "NO", *[float("nan")] * 6, f"took longer than {LIMIT:g} s"]
    if done.returncode:
        return [name, "NO", *[float("nan")] * 6, done.stderr[-1500:]]
    return [name, *json.loads(done.stdout.splitlines()[-1])]


def _one(name: str) -> None:
    """Prints, as JSON, the row of a case but for its name, and what did not hold."""
    import jax

    warnings.simplefilter("ignore")
    case = _cases()[name]
    model = case.model()
    data = model.sample_prior(rows=ROWS, seed=4).data
    device = "cpu" if jax.default_backend() == "cpu" else "gpu"
    reference, host_seconds = _fit(model, data, case, "cpu", "float64")
    same, seconds = _fit(model, data, case, device, "float64")
    coarse, _ = _fit(model, data, case, device, "float32")
    bound, means = _off(reference, same, len(data))
    rough = _off(reference, coarse, len(data))
    holds = max(bound, means) <= (TOLERANCE if case.exactly else 0.05) and np.isfinite(coarse[0])
    if not holds and np.isfinite(coarse[0]):  # searches and chains may magnify what is in the last digits
        by_rounding = _off(reference, _fit(model, _rounded(data), case, "cpu", "float64")[0], len(data))
        holds = bound <= MAGNIFIED * by_rounding[0] and means <= MAGNIFIED * by_rounding[1]
    figures = [bound, means, abs(coarse[0] - reference[0]), rough[1], host_seconds, seconds]
    print(json.dumps(["yes" if holds else "NO", *map(float, figures), ""]))


def _rounded(data: Any) -> dict[str, Any]:
    """Real numbers that differ in the thirteenth digit."""
    rng = np.random.default_rng(0)
    columns = {name: np.asarray(values) for name, values in data.items()}
    off = {name: 1e-13 * rng.normal(size=each.shape) for name, each in columns.items() if each.dtype.kind == "f"}
    return {name: each * (1 + off[name]) if name in off else each for name, each in columns.items()}


def _fit(model: gpdsl.Model, data: Any, case: Case, device: str, dtype: str) -> tuple[tuple[float, Any], float]:
    """The bound, and the means of each latent and output; seconds."""
    start = time.perf_counter()
    fit = model.fit(data, seed=0, device=device, dtype=dtype, progress=False, **case.options)
    prediction, declared = fit.predict(data), model.declarations
    means = {each: np.asarray(prediction.mean(each)) for each in (*declared.latents, *declared.outputs)}
    for each in means:
        assert np.all(np.isfinite(prediction.sample(each, 3))) and np.all(np.isfinite(means[each]))
    if device != "cpu":
        assert fit.summary()
    return (float(fit.elbo), means), time.perf_counter() - start


def _off(reference: tuple[float, Any], other: tuple[float, Any], rows: int) -> tuple[float, float]:
    bound = abs(other[0] - reference[0]) / max(abs(reference[0]), rows)
    spread = [
        np.max(np.abs(other[1][each] - mean)) / max(float(np.std(mean)), 1e-3 * float(np.max(np.abs(mean))), 1e-12)
        for each, mean in reference[1].items()
    ]
    return bound, float(max(spread))


if __name__ == "__main__":
    _one(sys.argv[2]) if sys.argv[1:2] == ["--one"] else main(sys.argv[1:])
