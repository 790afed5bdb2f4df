"""Seconds from starting `gpdsl fit` on boston to the end of its first optimisation step."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from report import ROOT, find_data, show, verdict

REPEATS = 3


def run() -> None:
    """Start the command afresh several times; the first progress line is printed after the first step."""
    paths = find_data("boston/train_1.csv")
    if paths is None:
        return
    seconds = [_first_step(paths[0]) for _ in range(REPEATS)]
    show("startup: `gpdsl fit boston` to the first step", ["run", "seconds"], list(enumerate(seconds, start=1)))
    verdict("seconds to the first step, median", float(np.median(seconds)), 6)


def _first_step(path: Path) -> float:
    command = [sys.executable, "-m", "gpdsl.cli", "fit", "boston", "--data", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    start = time.perf_counter()
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("step "):
                seconds = time.perf_counter() - start
                process.terminate()
                return seconds
    raise SystemExit(f"the command ended before its first step, with status {process.returncode}")
