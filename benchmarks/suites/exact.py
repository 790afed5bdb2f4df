"""Exact GPs beside peers: the evidence and its gradient at 300 to 4000 rows, and whole fits beside SciPy's L-BFGS.

`GPDSL_PEERS` names a Python that has GPyTorch and scikit-learn, `GPDSL_PEERS_TF` one that has GPflow; who is absent is
left out. Every library runs in a process of its own, one after the other, in rounds of which the quickest counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from peers.exact_evidence import COLUMNS, LENGTH, NOISE, VARIANCE, measured, problem
from report import CONSOLE, ROOT, show, verdict
from scipy.linalg import lapack
from scipy.optimize import minimize

import gpdsl
from gpdsl.program.cache import precision

SIZES = (300, 1000, 2000, 4000)
KERNELS = {"RBF": "RBF", "Matern52": "Matérn 5/2"}
PYTHONS = {"NumPy": None, "scikit-learn": "GPDSL_PEERS", "GPyTorch": "GPDSL_PEERS", "GPflow": "GPDSL_PEERS_TF"}
ROUNDS = 2

MODEL = """
input x : real[D]
output y : real
param s2 : positive = {variance}
param ell : positive[D] = {length}
param sigma : positive = {noise}
latent f(x) ~ GP(0, s2 * {kernel}(ell))
y ~ Normal(f, sigma)
"""


def run() -> None:
    """Both tables."""
    for kernel in KERNELS:
        _evaluations(kernel)
    _fits()


def _evaluations(kernel: str) -> None:
    rows, ratios = [], []
    for size in SIZES:
        found: dict[str, dict[str, float]] = {}
        for _ in range(ROUNDS):
            for library in ("gpdsl", *PYTHONS):
                row = _process(library, kernel, size)
                if row and row["ms"] < found.get(library, {"ms": np.inf})["ms"]:
                    found[library] = row
        values = {library: row["value"] for library, row in found.items()}
        for library, value in values.items():
            if abs(value - values["gpdsl"]) > 1e-2:
                CONSOLE.print(f"{library} computes something else: {value:.6f}, gpdsl {values['gpdsl']:.6f}")
        fastest = min(row["ms"] for library, row in found.items() if library != "gpdsl")
        rows.append((size, *(_shown(found.get(library)) for library in ("gpdsl", *PYTHONS)), _least(found)))
        ratios.append((size, found["gpdsl"]["ms"] / fastest))
    columns = ["rows", "gpdsl", *PYTHONS, "fastest peer"]
    show(f"evidence and gradient, {KERNELS[kernel]}, {COLUMNS} columns, ms (CPU ms)", columns, rows)
    for size, ratio in ratios:
        if size >= 1000:
            verdict(f"{KERNELS[kernel]}, {size} rows: share of the fastest peer's time", ratio, 0.8)


def _shown(row: dict[str, float] | None) -> str:
    return f"{row['ms']:.1f} ({row['cpu']:.0f})" if row else "-"


def _least(found: dict[str, dict[str, float]]) -> str:
    return min((name for name in found if name != "gpdsl"), key=lambda name: found[name]["ms"])


def _process(library: str, kernel: str, size: int) -> dict[str, float]:
    """What a process of its own prints; nothing where the library is not to be had."""
    repeats = "7" if size >= 2000 else "20"
    variable = PYTHONS.get(library)
    python = sys.executable if variable is None else os.environ.get(variable)
    if not python:
        return {}
    script = "suites/exact.py" if library == "gpdsl" else "peers/exact_evidence.py"
    command = [python, str(ROOT / "benchmarks" / script), library, kernel, str(size), repeats]
    paths = {"PYTHONPATH": f"{ROOT / 'benchmarks'}:{ROOT}"} if library == "gpdsl" else {}
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | paths
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        CONSOLE.print(f"{library} failed: {done.stderr.strip().splitlines()[-1:]}")
        return {}
    return json.loads(done.stdout.strip().splitlines()[-1])


def own(kernel: str, size: int) -> Callable[[], float]:
    """gpdsl's evidence and gradient, as its search calls it."""
    from gpdsl.inference.exact.evidence import evidence_of
    from gpdsl.inference.exact.system import make_system
    from tests.inference.problems import problem_of

    x, y = problem(size)
    text = MODEL.format(variance=VARIANCE, length=LENGTH, noise=NOISE, kernel=kernel)
    with precision("float64"):
        given = problem_of(text, {"x": x, "y": y}, inducing=0)
        system = make_system(given.program, given.rows)
        assert system is not None
        evidence = evidence_of(given, system)

    def evaluate() -> float:
        with precision("float64"):
            value, gradient = evidence(given.parameters)
        return value if all(np.all(np.isfinite(np.asarray(g))) for g in gradient.values()) else float("nan")

    return evaluate


# --- whole fits -------------------------------------------------------------------------------------------------


def airfoil_like(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Five columns of which some matter more, a smooth function and noise, standardised."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, 5))
    y = np.sin(1.5 * x[:, 0]) + 0.6 * x[:, 1] * np.cos(x[:, 2]) + 0.3 * x[:, 3] + 0.2 * rng.normal(size=rows)
    return x, (y - y.mean()) / y.std()


def twenty_lines(x: np.ndarray, y: np.ndarray) -> tuple[float, int]:
    """SciPy's L-BFGS on the evidence in NumPy, from 1, 1 and 0.3: the best value, and how many evaluations it took."""

    def negative(at: np.ndarray) -> tuple[float, np.ndarray]:
        s2, ell, noise = np.exp(at[0]), np.exp(at[1:-1]), np.exp(2 * at[-1])
        z = x / ell
        squares = np.sum(z**2, axis=1)
        signal = s2 * np.exp(-0.5 * np.maximum(squares[:, None] + squares - 2.0 * z @ z.T, 0.0))
        factor, failed = lapack.dpotrf(signal + noise * np.eye(len(y)), lower=1, clean=1)
        if failed:
            return 1e25, np.zeros_like(at)
        alpha, _ = lapack.dpotrs(factor, y, lower=1)
        half, _ = lapack.dpotri(factor, lower=1)
        weights = 0.5 * (np.outer(alpha, alpha) - (np.tril(half) + np.tril(half, -1).T))
        pulled = weights * signal
        in_ell = 2.0 * (pulled.sum(axis=1) @ z**2 - np.sum(z * (pulled @ z), axis=0))
        slope = np.concatenate([[pulled.sum()], in_ell, [2.0 * noise * np.trace(weights)]])
        value = -0.5 * y @ alpha - np.sum(np.log(np.diag(factor))) - 0.5 * len(y) * np.log(2 * np.pi)
        return -value, -slope

    start = np.concatenate([np.zeros(1 + x.shape[1]), [np.log(0.3)]])
    found = minimize(negative, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-9, "maxcor": 20})
    return -float(found.fun), int(found.nfev)


def _fits() -> None:
    rows = []
    text = MODEL.format(variance=1, length=1, noise=0.3, kernel="RBF")
    for size in (500, 1353):
        x, y = airfoil_like(size)
        model = gpdsl.compile(text)
        first = model.fit({"x": x, "y": y})
        start = time.perf_counter()
        fit = model.fit({"x": x, "y": y})
        ours = time.perf_counter() - start
        start = time.perf_counter()
        value, evaluations = twenty_lines(x, y)
        peer = time.perf_counter() - start
        rows.append((size, first.seconds, first.compile_seconds, ours, fit.elbo, peer, value, evaluations, ours / peer))
    columns = ["rows", "first, s", "compiling", "second, s", "evidence", "NumPy, s", "evidence", "evaluations", "share"]
    show("whole fits, five columns, beside SciPy's L-BFGS on NumPy", columns, rows)
    for size, *_, ratio in rows:
        verdict(f"{size} rows: share of NumPy's time", float(ratio), 1.0)
    verdict("compilation of the first fit, seconds", max(float(row[2]) for row in rows), 2.0)


if __name__ == "__main__":
    from gpdsl.inference.blocks import machine_for

    with machine_for(int(sys.argv[3])):
        print(json.dumps(measured(own(sys.argv[2], int(sys.argv[3])), int(sys.argv[4]))))
