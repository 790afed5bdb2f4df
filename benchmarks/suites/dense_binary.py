"""Binary classes with a dense posterior beside GPflow's VGP and scikit-learn: seconds of a fit to the same bound.

`GPDSL_PEERS` names a Python that has scikit-learn, `GPDSL_PEERS_TF` one that has GPflow; who is absent is left out.
gpdsl's second fit counts, which finds its programs compiled; what it spends on tracing them again is counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from peers.binary import problem
from report import CONSOLE, ROOT, show, verdict

import gpdsl

SIZES = (300, 1000)
LIMIT = 300.0
PYTHONS = {"GPflow": "GPDSL_PEERS_TF", "scikit-learn": "GPDSL_PEERS"}

MODEL = """
input x : real[D]
output y : binary
param s2 : positive = 1
param ell : positive = 1
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Bernoulli(logit = f)
"""


def run() -> None:
    """The table."""
    rows = []
    for size in SIZES:
        ours = _ours(size)
        peers = {name: _process(name, size, ours["value"]) for name in PYTHONS}
        for name, found in {"gpdsl": ours, **peers}.items():
            if found:
                rows.append((size, name, found["seconds"], found["cpu"], found["value"]))
                if name != "gpdsl" and size == SIZES[-1]:
                    ratio = ours["seconds"] / found["seconds"]
                    verdict(f"{size} rows: share of the time of {name}", ratio, 0.5)
    note = f"GPflow stops within 0.1 nats of gpdsl's bound or after {LIMIT:.0f} s; scikit-learn has Laplace's evidence"
    show("binary classes, dense", ["rows", "library", "seconds", "CPU seconds", "bound"], rows, note)


def _ours(size: int) -> dict[str, float]:
    x, y = problem(size)
    for _ in range(2):
        begun = time.perf_counter(), time.process_time()
        fit = gpdsl.compile(MODEL).fit({"x": x, "y": y}, progress=False)
        seconds, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    return {"seconds": seconds, "cpu": cpu, "value": fit.elbo}


def _process(library: str, size: int, bound: float) -> dict[str, float]:
    """What a peer's process prints; nothing where the library is not to be had."""
    python = os.environ.get(PYTHONS[library])
    if not python:
        return {}
    script = ROOT / "benchmarks" / "peers" / "binary.py"
    command = [python, str(script), library, str(size), str(bound), str(LIMIT)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        CONSOLE.print(f"{library} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
