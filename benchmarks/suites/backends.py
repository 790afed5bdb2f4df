"""Where opaque functions run: what each place adds to a batch, and how much faster two workers are than one."""

from __future__ import annotations

import concurrent.futures
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
from report import show, verdict

import gpdsl
from gpdsl.forward import ForwardModel, evaluate

ROWS, REPEATS = 1000, 30
SLOW_ROWS, SLOW_SECONDS, ROUNDS = 400, 0.005, 3
RANDOM = np.random.default_rng(0)
DEPTH, SPEED = RANDOM.uniform(1, 2, (ROWS, 4)), RANDOM.uniform(1, 2, (ROWS, 4))

SERVER = """
import sys, time, umbridge
class Model(umbridge.Model):
    def get_input_sizes(self, config): return [4, 4]
    def get_output_sizes(self, config): return [4]
    def supports_evaluate(self): return True
    def __call__(self, parameters, config):
        time.sleep(config.get("seconds", 0.0))
        return [[a / b for a, b in zip(*parameters)]]
umbridge.serve_models([Model("ratio")], int(sys.argv[1]), max_workers=int(sys.argv[2]))
"""


def ratio(depth: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """As good as nothing to do, of a row or of all."""
    return depth / speed


def slow_ratio(depth: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Five milliseconds a row."""
    time.sleep(SLOW_SECONDS)
    return depth / speed


def run() -> None:
    """Two tables."""
    overhead()
    throughput()


def overhead() -> None:
    """Milliseconds of a batch of 1000 rows of a function that does next to nothing."""
    rows, medians = [], {}
    for name, model in _places(ratio, 2):
        times = [_seconds(model, ROWS) for _ in range(REPEATS + 3)][3:]
        medians[name] = 1e3 * float(np.median(times))
        rows.append((name, medians[name], 1e3 * min(times)))
    show(f"a batch of {ROWS} rows of a function that does nothing: ms", ["where", "median", "least"], rows)
    for name in ("in process", "in process, row by row", "processes", "processes, row by row"):
        verdict(f"ms of overhead, {name}", medians[name], 3.0)


def throughput() -> None:
    """Rows a second of a function that takes 5 ms a row, by one worker and by two: medians of several rounds."""
    rates: dict[str, list[float]] = {}
    for workers in (1, 2):
        for name, model in _places(slow_ratio, workers, rowwise=True):
            _seconds(model, 2 * workers)
            rates.setdefault(name, []).append(
                float(np.median([SLOW_ROWS / _seconds(model, SLOW_ROWS) for _ in range(ROUNDS)]))
            )
    rows = [(name, one, two, two / one) for name, (one, two) in rates.items()]
    show("5 ms a row: rows a second", ["where", "1 worker", "2 workers", "ratio"], rows)
    one, two = rates["processes, row by row"]
    verdict("processes, throughput of two workers relative to one", two / one, 1.8, least=True)


def _seconds(model: ForwardModel, rows: int) -> float:
    begun = time.perf_counter()
    found = evaluate(model, [DEPTH[:rows], SPEED[:rows]], (4,))
    seconds = time.perf_counter() - begun
    np.testing.assert_array_equal(found.values, (DEPTH / SPEED)[:rows])
    return seconds


def _places(function: Callable[..., Any], workers: int, *, rowwise: bool = False) -> Iterator[tuple[str, ForwardModel]]:
    """Every place a function can run at."""
    if not rowwise:
        yield "in process", gpdsl.opaque(function)
        yield "in process, row by row", gpdsl.opaque(function, vectorized=False)
        yield "processes", gpdsl.opaque(function, executor="processes", workers=workers)
    one_by_one: dict[str, Any] = {"vectorized": False, "workers": workers}
    yield "threads, row by row", gpdsl.opaque(function, executor="threads", **one_by_one)
    yield "processes, row by row", gpdsl.opaque(function, executor="processes", **one_by_one)
    with concurrent.futures.ThreadPoolExecutor(workers) as own:
        yield "ThreadPoolExecutor, row by row", gpdsl.opaque(function, executor=own, **one_by_one)
    if find_spec("distributed") is not None:
        model = gpdsl.opaque(function, executor="dask", **one_by_one)
        yield "Dask, row by row", model
        model.executor.close()  # type: ignore[attr-defined]
    if find_spec("umbridge") is not None:
        with _server(workers) as url:
            config = {"seconds": SLOW_SECONDS if function is slow_ratio else 0.0}
            yield "UM-Bridge", gpdsl.umbridge(url, "ratio", config=config, workers=workers)


@contextmanager
def _server(workers: int) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", SERVER, str(port), str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(10)
