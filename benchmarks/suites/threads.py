"""Threads of the linear algebra library: a factor and an inverse on one and on all cores, idle and beside work.

The work beside is one process a core that multiplies matrices on one thread: what another fit or a notebook does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
from report import show
from threadpoolctl import threadpool_limits

from gpdsl.inference.exact.evidence import solve

SIZES = (100, 200, 300, 500, 700, 1000, 1400, 2000, 3000)
BUSY = "import numpy as np; a = np.random.rand(400, 400)\nwhile True: a @ a"


def run() -> None:
    """The table."""
    idle = {size: _both(size) for size in SIZES}
    cores = os.cpu_count() or 1
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    others = [subprocess.Popen([sys.executable, "-c", BUSY], env=environment) for _ in range(cores)]
    try:
        time.sleep(1.0)
        busy = {size: _both(size) for size in SIZES}
    finally:
        for other in others:
            other.kill()
    rows = [(size, *idle[size], *busy[size]) for size in SIZES]
    columns = ["rows", "idle, one", "idle, all", "busy, one", "busy, all"]
    show(f"milliseconds of a factor and an inverse, on one thread and on all {cores}", columns, rows)


def _both(size: int) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(size, size)) / size**0.5
    signal, z = root @ root.T, rng.normal(size=size)
    return _milliseconds(signal, z, 1), _milliseconds(signal, z, None)


def _milliseconds(signal: np.ndarray, z: np.ndarray, threads: int | None) -> float:
    repeats, found = max(5, int(40 * (500 / len(z)) ** 2)), []
    with threadpool_limits(limits=threads, user_api="blas"):
        solve(signal, z)  # type: ignore[arg-type]
        for _ in range(min(repeats, 60)):
            start = time.perf_counter()
            solve(signal, z)  # type: ignore[arg-type]
            found.append(time.perf_counter() - start)
    return 1e3 * float(np.median(found))
