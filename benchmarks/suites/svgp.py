"""Sparse Gaussian processes on minibatches beside peers: seconds per step, and time to the quality GPflow ends with.

`GPDSL_PEERS_TF` names a Python that has GPflow, `GPDSL_PEERS` one that has GPyTorch and GPJax; a peer without one is
left out. All run in processes of their own, one after the other, and in two rounds, of which the quicker one counts.
CPU seconds are shown beside wall seconds: on a machine that is shared they are what compares.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from peers import svgp_problems as problems
from report import CONSOLE, ROOT, find_data, show, verdict

import gpdsl
import gpdsl.results.fitting  # the peers' clocks do not count imports either
from gpdsl.program.cache import jit, precision

PEERS = {
    "GPflow": ("GPDSL_PEERS_TF", "svgp_gpflow.py"),
    "GPyTorch": ("GPDSL_PEERS", "svgp_gpytorch.py"),
    "GPJax": ("GPDSL_PEERS", "svgp_gpjax.py"),
}
"""Which variable names the interpreter of a peer, and its script."""

ABSENT = {("GPJax", "digits")}
"""What a peer cannot do: GPJax has no softmax of several latents."""

ROUNDS = 2
PEER_STEPS, STEPS = 60, 150
QUALITY = {"regression": (150, 1000), "sign": (150, 1000), "parity": (40, 500)}
"""Steps of gpdsl, and those after which the peer's quality is taken: on odd digits it ends in no number after 1000."""

RECORDED = {"regression": 0.0904, "sign": 0.1678}
"""The peer's test NLPD after those steps, measured once: its time to get there is that of a step times these."""

DTYPES = ("float64", "float32")
MODELS = {
    "regression": "output y : real\nparam s2 : positive = 1\nparam ell : positive[D] = 1\n"
    "param sigma : positive = 0.3162\nlatent f(x) ~ GP(0, s2 * RBF(ell))\ny ~ Normal(f, sigma)\n",
    "sign": "output y : binary\nparam s2 : positive = 1\nparam ell : positive[D] = 1\n"
    "latent f(x) ~ GP(0, s2 * RBF(ell))\ny ~ Bernoulli(logit = f)\n",
    "parity": "output y : binary\nparam s2 : positive = 1\nparam ell : positive = 5\n"
    "latent f(x) ~ GP(0, s2 * RBF(ell))\ny ~ Bernoulli(logit = f)\n",
    "digits": "index c in 1..10\noutput y : label[c]\nparam s2 : positive = 1\nparam ell : positive = 5\n"
    "latent f[c](x) ~ GP(0, s2 * RBF(ell))\ny ~ Categorical(logits = f)\n",
}


def run() -> None:
    """Both tables."""
    paths = find_data("kin40k.npz", "mnist10k.npz")
    if paths is None:
        return
    folder = paths[0].parent
    for dtype in DTYPES:
        _steps(folder, dtype)
    _quality(folder)


def _steps(folder: Path, dtype: str) -> None:
    rates, rows, gains = _gemm(dtype), [], []
    for name in ("regression", "sign", "digits"):
        ours, peers = _side_by_side(name, folder, dtype)
        share = 2e-9 * _products(problems.load(name, folder), name) / ours["cpu"] / rates[1]
        row = [f"{1e3 * v['wall']:.1f} ({1e3 * v['cpu']:.1f})" if v else "-" for v in (ours, *peers.values())]
        ratio = min((v["cpu"] for v in peers.values() if v), default=float("nan")) / ours["cpu"]
        gains.append((name, ratio))
        rows.append((name, *row, f"{ratio:.2f}", f"{100 * share:.0f}%", f"{ours['compiling']:.1f}"))
    columns = ["problem", "gpdsl, ms", *(f"{p}, ms" for p in PEERS), "ratio", "of GEMM rate", "compiling, s"]
    note = f"wall (CPU) per step; a bare matrix product runs at {rates[0]:.0f} ({rates[1]:.0f} a CPU second) Gflop/s"
    show(f"minibatch steps, {dtype}", columns, rows, note)
    for name, ratio in gains:
        if np.isfinite(ratio):
            verdict(f"{name}, {dtype}: times faster a step than the fastest peer, by CPU time", ratio, 2, least=True)


def _side_by_side(name: str, folder: Path, dtype: str) -> tuple[dict[str, float], dict[str, Mapping[str, float]]]:
    """What gpdsl and every peer take, in turn, and the quickest of what each took."""
    ours: list[dict[str, float]] = []
    peers: dict[str, list[Mapping[str, float]]] = {peer: [] for peer in PEERS}
    for _ in range(ROUNDS):
        ours.append(_ours(name, folder, dtype, STEPS))
        for peer, found in peers.items():
            found += [row] if (row := _peer(name, folder, dtype, peer=peer)) else []
    quickest = {peer: min(found, key=lambda row: row["cpu"], default={}) for peer, found in peers.items()}
    return min(ours, key=lambda row: row["cpu"]), quickest


def _quality(folder: Path) -> None:
    rows, dtype = [], "float32"
    for name, (steps, budget) in QUALITY.items():
        whole = name not in RECORDED
        peer = _peer(name, folder, dtype, budget if whole else PEER_STEPS)
        ours = _ours(name, folder, dtype, steps, score=True)
        goal = peer["nlpd"] if peer and whole else RECORDED.get(name, float("nan"))
        needed = (peer["total_cpu"] if whole else budget * peer["cpu"]) if peer else float("nan")
        rows.append((name, goal, budget, ours["nlpd"], steps, ours["total_cpu"], needed, needed / ours["total_cpu"]))
    columns = ["problem", "GPflow's NLPD", "after", "gpdsl's NLPD", "after", "gpdsl, CPU s", "GPflow, CPU s", "ratio"]
    show("time to quality, float32, compilation included", columns, rows)
    for name, goal, _, found, *_, ratio in rows:
        CONSOLE.print(f"{name}: {'reached' if found <= goal else 'NOT reached'}")
        verdict(f"{name}: times faster to that quality", ratio, 5, least=True)


def _ours(name: str, folder: Path, dtype: str, steps: int, *, score: bool = False) -> dict[str, float]:
    """Seconds per step and in all, and the test NLPD when that is asked for."""
    task = problems.load(name, folder)
    seen: list[tuple[int, float, float]] = []
    start, start_cpu = time.perf_counter(), time.process_time()
    model = gpdsl.compile("input x : real[D]\n" + MODELS[name])
    options = {"samples": 10} if name == "digits" else {}
    label = task.y + 1 if name == "digits" else task.y
    fit = model.fit(
        {"x": task.x, "y": label},
        inducing=task.inducing,
        batch=task.batch,
        learn_inducing=True,
        steps=steps,
        dtype=dtype,
        callback=lambda report: seen.append((report.step, time.perf_counter(), time.process_time())),
        **options,
    )
    found = {"total": time.perf_counter() - start, "total_cpu": time.process_time() - start_cpu}
    found |= {"compiling": fit.compile_seconds, **_per_step(seen)}
    if score:
        test = {"x": task.x_test, "y": task.y_test + 1 if name == "digits" else task.y_test}
        found["nlpd"] = float(-np.mean(fit.log_predictive_density(test)))
    return found


def _per_step(seen: list[tuple[int, float, float]]) -> dict[str, float]:
    pairs = list(zip(seen, seen[1:], strict=False))
    if not pairs:  # a fit of one report
        return {}
    each = [[(b[k] - a[k]) / (b[0] - a[0]) for a, b in pairs] for k in (1, 2)]
    return {"wall": float(np.median(each[0])), "cpu": float(np.median(each[1]))}


def _peer(name: str, folder: Path, dtype: str, steps: int = PEER_STEPS, peer: str = "GPflow") -> Mapping[str, float]:
    """What a peer's process prints; nothing where there is none."""
    variable, file = PEERS[peer]
    python = os.environ.get(variable)
    if not python or (peer, name) in ABSENT:
        return {}
    script = ROOT / "benchmarks" / "peers" / file
    command = [python, str(script), name, dtype, str(steps), str(folder)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        CONSOLE.print(f"{peer} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    return json.loads(done.stdout.strip().splitlines()[-1])


def _gemm(dtype: str) -> tuple[float, float]:
    """Gflop per wall and per CPU second of a bare product of the steps' size."""
    rng = np.random.default_rng(0)
    with precision(dtype):
        a, b = (jnp.asarray(rng.standard_normal(shape), dtype) for shape in ((500, 500), (500, 1000)))
        product = jit(lambda a, b: a @ b)
        return _fastest(lambda: jax.block_until_ready(product(a, b)), 2e-9 * 500 * 500 * 1000)


def _fastest(work: Callable[[], object], amount: float) -> tuple[float, float]:
    wall, cpu = [], []
    for _ in range(30):
        before = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - before[0])
        cpu.append(time.process_time() - before[1])
    return amount / min(wall), amount / min(cpu)


def _products(task: problems.Task, name: str) -> float:
    """Multiplications a step needs at least, with triangular and symmetric products at half price.

    Per latent: S phi and H over the rows, six halves of M^3; per kernel: phi and dKuf, Kuu's factor and its inverse.
    """
    m, b, d = task.inducing, task.batch, task.x.shape[1]
    latents = 10 if name == "digits" else 1
    return latents * (1.5 * m * m * b + 2.0 * m**3) + m * m * b + 1.3 * m**3 + 2 * m * (b + m) * d
