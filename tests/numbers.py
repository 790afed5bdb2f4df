"""Numbers that the core tests are given against those of before: what a test does not look at is looked at here.

A test compares what it is about, and often loosely. Beside it, each number that a core test is given by what users have
in hand, a fit, its predictions, its criticism (`WATCHED`), is one of those that the same module of tests was given when
tests/golden/numbers.jsonl was written, whatever the order and whichever tests run. What changes the inside alone leaves
them as they are. What changes the mathematics does not: `python -m tests.numbers [tests/FILE ...]` then writes those of
some modules anew, or in half an hour those of all. See before that which of them are others. A test that was not there
when its module was written is not compared until then.

The file holds what rounding leaves alone: the tests run twice for it, the second time with older instructions of the
processor, and what has another number then is left out in that module, as what tells the time or draws anew is. Other
versions of JAX come in by `record FOLDER` and `fold FOLDER ...`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "golden" / "numbers.jsonl"

RECORD = "GPDSL_NUMBERS"
"""The environment variable that names the folder where numbers are left, in place of being compared."""

TOLERANCE, STABLE = 2e-3, 1e-4
"""How far from a number of before one may be, by the size of what it stands for, and one on another processor."""

NOTHING = 1e-9
"""What may be rounding of zero."""

MANY = 60
"""Numbers of one function in one module, beyond which a wrong one could hardly be told from them."""

DEPTH = 4
"""Of records within records that are looked through."""

WATCHED = {
    "gpdsl.inference.infer": ("infer",),
    "gpdsl.results.criticised": ("Criticised",),
    "gpdsl.results.fit": ("Fit",),
    "gpdsl.results.fitting": ("fit_model",),
    "gpdsl.results.functions": ("DrawnFunction",),
    "gpdsl.results.prediction": ("Prediction",),
    "gpdsl.results.score": ("nlpd", "rmse", "sse", "crps", "error_rate"),
    "gpdsl.results.scored": ("Scored",),
    "gpdsl.results.table": ("Total",),
}
"""What users have in hand: functions, and classes of which all public methods are watched."""

INSIDE = ("at_rows", "densities_at_rows", "beliefs", "bind", "predicting", "weight_space")
"""Methods of a fit for other rooms."""

REVERSED = "GPDSL_NUMBERS_REVERSED"
"""The environment variable that has the tests of a module run in the other order: some may share a generator."""

ELSEWHERE = {"OPENBLAS_CORETYPE": "Nehalem", "PYTHONHASHSEED": "7", REVERSED: "1"}
"""What makes the same machine another one, beside the instructions that XLA may use."""

Number = tuple[float, float, int]
"""Of an array: a weighted sum of its elements, the root of their squares' mean, and how many are finite."""

Numbers = dict[str, dict[str, list[Number]]]
"""By module of tests and by function and place in what it returns; the name of each test that ran has none."""


def numbers_of(value: Any, place: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Number]]:
    """Those of all arrays in what a function returns, with where they stand; traced ones have none."""
    if isinstance(value, (float, int, np.ndarray, np.generic)) or type(value).__name__ == "ArrayImpl":
        array = np.asarray(value)
        if array.dtype.kind in "biuf" and np.isfinite(array).any():
            yield place, _number(array)
    elif depth and isinstance(value, Mapping):
        for name, each in value.items():
            if isinstance(name, str):
                yield from numbers_of(each, f"{place}.{name}", depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for k, each in enumerate(value[:20]):  # a look of a diagnosis has a name
            yield from numbers_of(each, f"{place}.{getattr(each, 'name', k)}", depth - 1)
    elif depth and _is_record(value):
        for field in dataclasses.fields(value):
            if field.name not in LEFT_OUT:
                yield from numbers_of(getattr(value, field.name, None), f"{place}.{field.name}", depth - 1)


def _is_record(value: Any) -> bool:
    kind = type(value)
    return dataclasses.is_dataclass(kind) and kind.__module__.startswith(ROOMS) and kind.__name__ not in LEFT_OUT


ROOMS = ("gpdsl.inference", "gpdsl.results")
LEFT_OUT = frozenset({"seconds", "compile_seconds", "history", "fit", "Program", "Options", "Choice", "Monitor"})
"""Fields of records, and records, without numbers of their own, or that tell the time."""


def _number(array: np.ndarray) -> Number:
    flat = np.asarray(array, float).ravel()
    finite = np.isfinite(flat)
    flat = flat[finite] if not finite.all() else flat
    weights = 1.0 + 0.5 * np.cos(1.0 + np.arange(flat.size))
    with np.errstate(over="ignore", under="ignore"):
        return float(weights @ flat) / math.sqrt(flat.size), float(np.sqrt(np.mean(flat * flat))), flat.size


def alike(a: Number, b: Number, tolerance: float) -> bool:
    """Whether two numbers are the same but for rounding."""
    room = tolerance * max(a[1], b[1])
    sums = abs(a[0] - b[0]) <= room * math.sqrt(a[2]) + NOTHING
    return a[2] == b[2] and sums and abs(a[1] - b[1]) <= room + NOTHING


class Watch:
    """What the functions that a module of tests calls return."""

    def __init__(self) -> None:
        self.folder = os.environ.get(RECORD, "")
        self.seen: Numbers = collections.defaultdict(lambda: collections.defaultdict(list))
        self.module, self.known, self.wrong = "", dict[str, list[Number]](), list[str]()

    def turn(self, module: str, test: str) -> None:
        """From here on it is another test that calls."""
        self.module, known = module, kept().get(module, {})
        self.known = known if test in known and not self.folder else {}
        if self.folder and test:
            self.seen[module].setdefault(test, [])

    def look(self, name: str, value: Any) -> None:
        """At what a function returns: keep it, or compare it."""
        for place, number in numbers_of(value):
            if self.folder:
                add(self.seen[self.module][name + place], number)
            elif (before := self.known.get(name + place)) and not any(alike(number, b, TOLERANCE) for b in before):
                self.wrong.append(f"{name + place} is {number}, and was one of {before[:5]}")

    def said(self) -> str:
        """What is new since the last time, in words."""
        wrong, self.wrong = self.wrong, []
        more = f"\n{len(wrong) - 5} more" if len(wrong) > 5 else ""
        return "\n".join(wrong[:5]) + more

    def leave(self) -> None:
        """Write what was seen."""
        if self.folder:
            name = os.environ.get("PYTEST_XDIST_WORKER", "main")
            Path(self.folder, f"{name}.json").write_text(json.dumps(self.seen))


WATCH = Watch()


@functools.cache
def kept() -> Numbers:
    """Those of before."""
    if not KEPT.exists():
        return {}
    return dict(json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines())


def watched(function: Callable[..., Any], wrapped: Callable[..., Any]) -> Callable[..., Any]:
    """What stands for a function; if it is in users' hands, what it returns is looked at."""
    first, *inner = function.__qualname__.split(".")
    method = inner[0] if inner else ""
    hidden = len(inner) > 1 or method in INSIDE or (method.startswith("_") and method != "__call__")
    if first not in WATCHED.get(function.__module__, ()) or hidden:
        return wrapped
    name = f"{function.__module__.removeprefix('gpdsl.')}.{function.__qualname__}"

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        result = wrapped(*arguments, **named)
        WATCH.look(name, result)
        return result

    return wrapper


def add(numbers: list[Number], number: Number) -> None:
    """Unless there is one like it, or there are many already."""
    if len(numbers) <= MANY and not any(alike(number, each, STABLE / 10) for each in numbers):
        numbers.append(number)


def read(folder: Path) -> Numbers:
    """What all workers have left."""
    numbers: Numbers = {}
    for file in sorted(folder.glob("*.json")):
        for module, found in json.loads(file.read_text()).items():
            numbers.setdefault(module, {}).update(found)
    return numbers


def folded(runs: Iterable[Numbers]) -> Numbers:
    """Of the first, what all runs agree on."""
    first, *others = runs
    agreed = {module: dict(_agreed(found, [o.get(module, {}) for o in others])) for module, found in first.items()}
    return {module: found for module, found in agreed.items() if any(found.values())}


def _agreed(
    found: dict[str, list[Number]], others: list[dict[str, list[Number]]]
) -> Iterator[tuple[str, list[Number]]]:
    for name, numbers in sorted(found.items()):
        same = (_within(numbers, o.get(name, [])) and _within(o.get(name, []), numbers) for o in others)
        if len(numbers) <= MANY and all(same):
            yield name, numbers


def _within(some: list[Number], others: list[Number]) -> bool:
    return all(any(alike(a, b, STABLE) for b in others) for a in some)


def write(numbers: Numbers) -> None:
    """A line for each module."""
    lines = [json.dumps([module, _short(found)], separators=(",", ":")) for module, found in sorted(numbers.items())]
    KEPT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _short(found: dict[str, list[Number]]) -> dict[str, list[Number]]:
    return {name: [(float(f"{a:.6g}"), float(f"{b:.6g}"), n) for a, b, n in each] for name, each in found.items()}


def record(folder: Path, files: list[str], *, older: bool = False) -> None:
    """Run the core tests of some files, all without any, and leave their numbers in a folder."""
    from tests.conftest import QUICK

    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-n", "2", "--dist", "loadfile", *files]
    other = ELSEWHERE | {"XLA_FLAGS": f"{QUICK} --xla_cpu_max_isa=SSE4_2"} if older else {}
    subprocess.run(command, cwd=ROOT, env=os.environ | {RECORD: str(folder)} | other, check=False)


def main(*words: str) -> None:
    """Write the numbers of some files of tests, or of all."""
    match words:
        case ["record", folder, *files]:
            record(Path(folder).resolve(), files)
        case ["elsewhere", folder, *files]:
            record(Path(folder).resolve(), files, older=True)
        case ["fold", *folders]:
            write(folded(map(read, map(Path, folders))))
        case files:
            with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
                record(Path(here), list(files))
                record(Path(there), list(files), older=True)
                others = {module: found for module, found in kept().items() if files and module not in files}
                write(others | folded(map(read, (Path(here), Path(there)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
