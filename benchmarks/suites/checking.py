"""Seconds of `gpdsl check`: every zoo model from a cold start and warm, and generated models of growing length."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
from report import ROOT, show, verdict

from gpdsl.language import ModelError, compile_text

REPEATS = 5
LENGTHS = (250, 500, 1000, 2000, 4000)


def run() -> None:
    """Three tables: the zoo, long models without and with mistakes, and how the time of these grows."""
    rows = [
        (path.stem, *_spread(lambda p=path: _cold(p)), *_spread(lambda p=path: _warm(p.read_text()))) for path in _zoo()
    ]
    columns = ["model", "cold, least", "cold, median", "warm, least", "warm, median"]
    show(f"checking the zoo: seconds of {REPEATS} runs", columns, rows)
    verdict("seconds from a cold start, slowest median", max(row[2] for row in rows), 1.5)
    verdict("seconds warm, slowest median", max(row[4] for row in rows), 0.5)
    texts = _long_models()
    for name in ("right", "wrong", "many_outputs", "syntax_mistakes"):
        make = getattr(texts, name)
        spent = [_spread(lambda n=n, make=make: _warm(make(n)))[0] for n in LENGTHS]
        table = [(n, s, 1e3 * s / n) for n, s in zip(LENGTHS, spent, strict=True)]
        show(f"checking generated models: {name}", ["lines", "seconds", "ms per line"], table)
        verdict("seconds for 2000 lines", spent[LENGTHS.index(2000)], 5.0)
        slope = np.polyfit(np.log(LENGTHS), np.log(spent), 1)[0]
        verdict("growth: seconds ~ lines^k, k", float(slope), 1.25)


def _zoo() -> list[Path]:
    return sorted((ROOT / "models").glob("*.gpm"))


def _spread(measure: Callable[[], float]) -> tuple[float, float]:
    """The least and the median of several runs."""
    found = [measure() for _ in range(REPEATS)]
    return min(found), float(np.median(found))


def _warm(text: str) -> float:
    start = time.perf_counter()
    try:
        compile_text(text)
    except ModelError as error:
        str(error)
    return time.perf_counter() - start


def _cold(path: Path) -> float:
    command = [sys.executable, "-m", "gpdsl.cli", "check", str(path)]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return time.perf_counter() - start


def _long_models() -> ModuleType:
    """The generator that the tests use."""
    place = ROOT / "tests" / "language" / "long_models.py"
    spec = importlib.util.spec_from_file_location("long_models", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
