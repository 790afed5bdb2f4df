"""Where opaque functions run: what each place adds to a batch, and how much faster two workers are than one."""

from __future__ import annotations

import concurrent.futures
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
from report import show, verdict

import gpdsl
from gpdsl.forward import ForwardModel, evaluate

ROWS, REPEATS = 1000, 30
SLOW_ROWS, SLOW_SECONDS, ROUNDS = 400, 0.005, 5
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
    with ExitStack() as stack:
        for name, model in _places(stack, ratio, 2):
            times = [_seconds(model, ROWS) for _ in range(REPEATS + 3)][3:]
            medians[name] = 1e3 * float(np.median(times))
            rows.append((name, medians[name], 1e3 * min(times)))
    show(f"a batch of {ROWS} rows of a function that does nothing: ms", ["where", "median", "least"], rows)
    for name in ("in process", "in process, row by row", "processes", "processes, row by row"):
        verdict(f"ms of overhead, {name}", medians[name], 3.0)


def throughput() -> None:
    """Rows a second of a function that takes 5 ms a row, by one worker and by two, in turns: medians."""
    rows, ratios = [], {}
    with ExitStack() as stack:
        pairs = zip(*[_places(stack, slow_ratio, workers, rowwise=True) for workers in (1, 2)], strict=True)
        for (name, one), (_, two) in pairs:
            seconds: dict[int, list[float]] = {1: [], 2: []}
            for _ in range(ROUNDS + 1):
                for workers, model in ((1, one), (2, two)):
                    seconds[workers].append(_seconds(model, SLOW_ROWS))
            rates = [SLOW_ROWS / float(np.median(seconds[workers][1:])) for workers in (1, 2)]
            ratios[name] = rates[1] / rates[0]
            rows.append((name, *rates, ratios[name]))
    show("5 ms a row: rows a second", ["where", "1 worker", "2 workers", "ratio"], rows)
    verdict("processes, throughput of two workers relative to one", ratios["processes, row by row"], 1.8, least=True)


def _seconds(model: ForwardModel, rows: int) -> float:
    begun = time.perf_counter()
    found = evaluate(model, [DEPTH[:rows], SPEED[:rows]], (4,))
    seconds = time.perf_counter() - begun
    np.testing.assert_array_equal(found.values, (DEPTH / SPEED)[:rows])
    return seconds


def _places(
    stack: ExitStack, function: Callable[..., Any], workers: int, *, rowwise: bool = False
) -> Iterator[tuple[str, ForwardModel]]:
    """Every place a function can run at, open as long as the stack is."""
    if not rowwise:
        yield "in process", gpdsl.opaque(function)
        yield "in process, row by row", gpdsl.opaque(function, vectorized=False)
        yield "processes", gpdsl.opaque(function, executor="processes", workers=workers)
    one_by_one: dict[str, Any] = {"vectorized": False, "workers": workers}
    yield "threads, row by row", gpdsl.opaque(function, executor="threads", **one_by_one)
    yield "processes, row by row", gpdsl.opaque(function, executor="processes", **one_by_one)
    own = stack.enter_context(concurrent.futures.ThreadPoolExecutor(workers))
    yield "ThreadPoolExecutor, row by row", gpdsl.opaque(function, executor=own, **one_by_one)
    if find_spec("distributed") is not None:
        model = gpdsl.opaque(function, executor="dask", **one_by_one)
        stack.callback(model.executor.close)  # type: ignore[attr-defined]
        yield "Dask, row by row", model
    if find_spec("umbridge") is not None:
        url = stack.enter_context(_server(workers))
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
