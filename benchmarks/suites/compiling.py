"""Seconds of compilation of every zoo model's default fit, each in a new process and without a cache of programs.

CPU seconds: what a machine that does nothing else takes at most, since compilation hardly uses two cores at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
from report import ROOT, show, verdict

import gpdsl

ROWS = {"airline": 300}
"""Where a model needs more rows than most."""

MOST = 3.0


def run() -> None:
    """One row for every model that can be fitted."""
    rows = [(name, *_measured(name)) for name in gpdsl.zoo_names()]
    columns = ["model", "compiling, CPU s", "programs", "whole fit, CPU s"]
    show("compilation of the zoo: 60 simulated rows, 30 steps, no cache", columns, rows)
    verdict(
        "CPU seconds of compilation, the slowest model", max((row[1] for row in rows if row[2]), default=np.nan), MOST
    )


def _measured(name: str) -> tuple[float, int, float]:
    places = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
    environment = {**os.environ, "GPDSL_CACHE_DIR": "off", "PYTHONPATH": places}
    command = [sys.executable, __file__, name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return float("nan"), 0, float("nan")  # not a model that is fitted
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found["compiling"], found["programs"], found["fit"]


def _one(name: str) -> dict[str, float]:
    """Compile and fit one model in this process."""
    import jax._src.compiler as compiler

    spent: list[float] = []
    original = compiler.compile_or_get_cached

    def timed(*arguments, **keywords):  # type: ignore[no-untyped-def]
        start = time.process_time()
        found = original(*arguments, **keywords)
        spent.append(time.process_time() - start)
        return found

    compiler.compile_or_get_cached = timed
    model = gpdsl.compile((ROOT / "models" / f"{name}.gpm").read_text())
    drawn = model.sample_prior(rows=ROWS.get(name, 60), seed=1)
    spent.clear()
    start = time.process_time()
    model.fit(dict(drawn.data), steps=30, progress=False)
    return {"compiling": sum(spent), "programs": len(spent), "fit": time.process_time() - start}


if __name__ == "__main__":
    print(json.dumps(_one(sys.argv[1])))
