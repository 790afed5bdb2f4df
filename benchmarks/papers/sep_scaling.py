"""How expectation propagation grows with rows and devices: seconds of a sweep, of a visit to some rows, and memory.

Every measurement is a process of its own: `python benchmarks/papers/sep_scaling.py ROWS DEVICES`. The data are made up,
in the shape of the flight delays: eight columns, and whether a flight is late.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
DEVICES = (1, 2, 4)
SHARED_ROWS = 1_000_000
"""Rows that several devices share."""

SWEEPS_INDUCING, VISITS_INDUCING, VISITED, VISITS = 50, 200, 200, 20
REPEATS = {"sweep": 5, "visit": 10}
TEXT = """
input x : real[8]
output late : binary
param s2 : positive = 1
param ell : positive[8] = 3
latent f(x) ~ GP(0, s2 * RBF(ell))
late ~ Bernoulli(probit = f)
"""


def flights(rows: int) -> dict[str, np.ndarray]:
    """Eight standardised columns; delays go with the hour, and with distance on some days."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 8), dtype=np.float32)
    f = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.3 * x[:, 3]
    return {"x": x, "late": (f + 0.7 * rng.standard_normal(rows, dtype=np.float32) > 0).astype(np.int8)}


def problem_of(rows: int, devices: int, **given: Any) -> Any:
    """What `fit` hands to an engine."""
    import gpdsl
    from gpdsl.inference import infer
    from gpdsl.inference.driver import Engine

    found: list[Any] = []

    class Caught(Exception):
        pass

    def catch(problem: Any) -> Any:
        found.append(problem)
        raise Caught

    kept = infer.SEARCHES
    infer.SEARCHES = [(lambda *_: True, Engine("ep", catch))]
    try:
        gpdsl.compile(TEXT).fit(flights(rows), engine="ep", dtype="float32", devices=devices, **given)
    except Caught:
        pass
    finally:
        infer.SEARCHES = kept
    return found[0]


def measure(rows: int, devices: int) -> dict[str, float]:
    """Wall and processor seconds of a sweep, of a visit, the bytes of the sites, and the most memory in GiB."""
    import jax

    from gpdsl.inference.expectation_propagation import objective as minibatch, sites as sweep
    from gpdsl.inference.expectation_propagation.engine import tilted_of
    from gpdsl.inference.natural.profiled import outer_point, setting_of, start_sites
    from gpdsl.program.cache import jit, precision

    with precision("float32"):
        problem = problem_of(rows, devices, batch=0, inducing=SWEEPS_INDUCING)
        tilted, sites = tilted_of(problem), start_sites(problem)
        point = outer_point(problem, problem.parameters, problem.inducing)

        def once(point: Any, sites: Any, rows: Any, held: Any) -> Any:
            setting = setting_of(problem, point, held, rows)
            return sweep.sweep(tilted, sweep.visit_all(tilted, setting, sites), sites)

        given = point, sites, problem.rows, problem.inducing
        compiled = jit(once).lower(*given).compile()
        found = {"sites": float(sum(leaf.nbytes for leaf in jax.tree.leaves(sites)))}
        found["sweep wall"], found["sweep processor"] = fastest(
            lambda: jax.block_until_ready(compiled(*given)), REPEATS["sweep"]
        )
        if devices == 1:
            del problem, given, compiled, sites
            problem = problem_of(rows, 1, batch=VISITED, inducing=VISITS_INDUCING, steps=VISITS)
            run = minibatch.EpMinibatch(problem, tilted_of(problem))

            def visit() -> None:
                run.at, _ = run.compiled(*run._arguments(0))
                jax.block_until_ready(run.at.tied)

            visit()
            wall, processor = fastest(visit, REPEATS["visit"])
            found |= {"visit wall": wall / run.size, "visit processor": processor / run.size}
    found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return found


def fastest(function: Any, repeats: int) -> tuple[float, float]:
    """Least wall and processor seconds of some calls."""
    walls, processors = [], []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        function()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return min(walls), min(processors)


NAMES = ("sweep wall", "sweep processor", "visit wall", "visit processor", "sites", "memory")


def apart(rows: int, devices: int) -> list[float]:
    """`measure` in a process with so many CPU devices."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    environment["OPENBLAS_NUM_THREADS"] = "1"  # as in a fit, see `gpdsl.inference.watch`
    command = [sys.executable, str(Path(__file__).resolve()), str(rows), str(devices)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return [found.get(name, float("nan")) for name in NAMES]


def draw(by_rows: np.ndarray, by_devices: np.ndarray, path: Path) -> None:
    """Sweeps against rows, and against devices; the columns are those of `NAMES`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.4), width_ratios=[3, 2])
    rows, seconds = np.asarray(ROWS[: len(by_rows)], float), by_rows[:, 1]
    left.loglog(rows, seconds, "o-", color="#3465a4", label=f"a sweep over all rows, m = {SWEEPS_INDUCING}")
    left.loglog(rows, seconds[-1] * rows / rows[-1], ":", color="#3465a4", label="in proportion to the rows")
    left.loglog(rows, by_rows[:, 3], "s-", color="#cc4444", label=f"a visit to {VISITED} rows, m = {VISITS_INDUCING}")
    left.set(xlabel="rows", ylabel="processor seconds")
    right.plot(DEVICES, by_devices[:, 0], "o-", color="#3465a4", label=f"{SHARED_ROWS:,} rows, on the clock")
    right.plot(DEVICES, by_devices[:, 1], "s:", color="#3465a4", label="processor")
    right.set(xlabel="CPU devices, on two cores", ylabel="seconds of a sweep", xticks=DEVICES, ylim=(0, None))
    for panel in (left, right):
        panel.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT)]
    if hasattr(os, "sched_setaffinity"):  # a core for every device, as far as there are so many
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[2])])
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
