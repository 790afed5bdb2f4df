"""What the tests compile is compiled quickly: most of it runs once, and compiling is most of their time.

The slow tests run programs of gpdsl that are compiled as users have them.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax._src.interpreters import mlir

from tests.numbers import REVERSED, WATCH
from tests.selection import ANEW, FOLDER, Seen
from tests.shapes import check_shapes, next_module

QUICK = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
"""The first two are for JAX without gpdsl, and the second saves most. A program is compiled in one part: in up to 32,
as XLA does by itself, takes a quarter more processor time, and the other cores are busy with tests of their own."""


FORGET_AFTER, MOST_MAPPED = 12, 25_000
"""Modules of tests after which a process forgets what it has compiled, as it would grow to eight gigabytes, and regions
of memory beyond which it does so before: Linux allows 65,530, each program takes some, and the next one is a crash."""

OBJECTS = 100_000
"""New objects after which Python looks for garbage: after 700, as it would, took an eighth of the tests' time."""

_MODULES = itertools.count(1)

one_context = functools.cache(getattr(mlir, "make_ir_context", object))
"""What programs are lowered in. JAX makes it anew for each: to load its dialects took a twelfth of the tests' time."""

if "not slow" in sys.argv or os.environ.get("GPDSL_TESTS") == "core":
    os.environ["GPDSL_TESTS"] = "core"  # for the workers
    check_shapes()  # before other files of this name import what is to be checked
    mlir.make_ir_context = one_context
    gc.set_threshold(OBJECTS, 20, 20)


@pytest.fixture(autouse=True, scope="module")
def _forget() -> Iterator[None]:
    """What earlier modules left behind slows no later one: looking through it for garbage takes a second each time.

    Shapes are looked at anew.
    """
    next_module()
    yield
    due = next(_MODULES) % FORGET_AFTER == 0 or _mapped() > MOST_MAPPED
    if due and (jax := sys.modules.get("jax")):
        if kept := sys.modules.get("gpdsl.program.kept"):
            kept.forget()
        jax.clear_caches()
        one_context.cache_clear()
        gc.unfreeze()
        gc.collect()
    gc.freeze()


def _mapped() -> int:
    """Regions of memory that the process has mapped; 0 where the system does not tell."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            return sum(1 for _ in maps)
    except OSError:
        return 0


_SEEDS: dict[str, list[tuple[np.random.Generator, Any]]] = {}


@pytest.fixture(autouse=True)
def _numbers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Those that a test is given are those of before (`tests/numbers.py`), whichever tests have drawn before it."""
    module = request.module
    if module.__name__ not in _SEEDS:
        generators = [each for each in vars(module).values() if isinstance(each, np.random.Generator)]
        _SEEDS[module.__name__] = [(each, each.bit_generator.state) for each in generators]
    for generator, state in _SEEDS[module.__name__]:
        generator.bit_generator.state = state
    yield
    if wrong := WATCH.said():
        pytest.fail(f"numbers have changed (python -m tests.numbers):\n{wrong}", pytrace=False)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    module, _, test = item.nodeid.partition("::")
    slow = item.get_closest_marker("slow") is not None  # and was not there when numbers were written
    WATCH.turn(module, "" if slow else test.partition("[")[0])
    yield


def pytest_sessionfinish() -> None:
    WATCH.leave()


@pytest.fixture(autouse=True)
def _unregistered() -> Iterator[None]:
    """A distribution that a test registers ends with it."""
    yield
    if registered := sys.modules.get("gpdsl.distributions"):
        for name in set(registered.DISTRIBUTIONS) - set(registered.BUILT_IN):
            registered.enter(name, None, None, None)


SLOW_CASES = Path(__file__).with_name("slow_cases.txt")
"""Tests of more than half a second that run no line of gpdsl which no other quick test runs (`tests/selection.py`)."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, but where they are to be chosen anew. A warning is an error in quick ones: slow ones call peers."""
    if os.environ.get(REVERSED):
        items.reverse()
    slow = set() if os.environ.get(ANEW) else set(SLOW_CASES.read_text().splitlines())
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
        elif item.get_closest_marker("slow") is None:
            # the second is of whatever happens to be collected then, as connections that another test has left open
            for rest in ("gpdsl.GpdslWarning", "pytest.PytestUnraisableExceptionWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"default::{rest}"), append=False)
            item.add_marker(pytest.mark.filterwarnings("error"), append=False)


def pytest_configure(config: pytest.Config) -> None:
    """Ask for it before JAX is imported, unless somebody has asked for something; worker processes inherit it."""
    if (folder := os.environ.get(FOLDER)) and hasattr(config, "workerinput"):
        config.pluginmanager.register(Seen(Path(folder)))
    if config.getoption("markexpr") == "not slow":
        os.environ.setdefault("GPDSL_BRIEF", "1")
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # where all cores test, threads that wait spin
    os.environ.setdefault("GPDSL_TRACE", "1")  # tests change constants, of which names of kept programs know nothing
    if "XLA_FLAGS" not in os.environ and not hasattr(config, "workerinput"):
        os.environ["XLA_FLAGS"] = QUICK if _known(QUICK) else " ".join(filter(_known, QUICK.split()))


def _known(flags: str) -> bool:
    """Whether this version of XLA knows the flags: at one that it does not know it ends the process.

    That of jaxlib 0.12 has one way to compile fusions, and no flag for the other.
    """
    program = "import jax; jax.numpy.zeros(1)"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True).returncode == 0
