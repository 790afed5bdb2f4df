"""What every peer's side of the minibatch benchmark does alike: minibatches, the timing of steps, the row printed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import numpy as np
import svgp_problems as problems

SKIPPED = 10
"""First steps left out of the times: they trace or compile."""


def start_inputs(task: problems.Task, dtype: str) -> np.ndarray:
    """Inducing inputs to start from: some of the rows, the same for every peer."""
    return task.x[np.random.default_rng(0).choice(len(task.x), task.inducing, replace=False)].astype(dtype)


def minibatches(task: problems.Task, steps: int) -> Iterator[np.ndarray]:
    """Row numbers, epoch after epoch without replacement."""
    rng, order = np.random.default_rng(1), np.zeros(0, int)
    for _ in range(steps):
        if len(order) < task.batch:
            order = rng.permutation(len(task.x))
        yield order[: task.batch]
        order = order[task.batch :]


def timed(batches: Iterator[np.ndarray], step: Callable[[np.ndarray], object], begun: tuple[float, float]) -> dict:
    """Seconds of a step, wall and CPU, and of everything since `begun`; `step` returns when it is done."""
    wall, cpu = [], []
    for index in batches:
        before = time.perf_counter(), time.process_time()
        step(index)
        wall.append(time.perf_counter() - before[0])
        cpu.append(time.process_time() - before[1])
    return {
        "wall": float(np.median(wall[SKIPPED:])),
        "cpu": float(np.median(cpu[SKIPPED:])),
        "total": time.perf_counter() - begun[0],
        "total_cpu": time.process_time() - begun[1],
    }


def now() -> tuple[float, float]:
    """Wall and CPU clock."""
    return time.perf_counter(), time.process_time()


def printed(row: dict, nlpd: float) -> None:
    """The one line that the benchmark reads."""
    print(json.dumps(row | {"nlpd": nlpd}))
