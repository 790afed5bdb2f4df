"""What JAX computes in a fork of a process in which it has begun may never end; gpdsl says so instead."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import gpdsl

ROOT = Path(__file__).resolve().parents[2]

MODEL = "model m\ninput x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)"

PROGRAM = """
import os, sys, warnings
import numpy as np
import gpdsl

warnings.simplefilter("ignore")  # of JAX about the fork
model = gpdsl.compile(sys.argv[2])
data = {"x": np.linspace(0, 1, 8), "y": np.linspace(0, 1, 8)}
asked = {"steps": 1, "diagnose": "no"}
fit = model.fit(data, **asked) if sys.argv[1] == "after" else None
if os.fork() == 0:
    for work in (lambda: model.fit(data, **asked), lambda: fit.predict(data)):
        try:
            work()
            print("done", flush=True)
        except gpdsl.GpdslError as error:
            print(error, flush=True)
        if fit is None:
            break
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_of_this_process_is_told_so() -> None:
    """As the slow test below, whose processes have to begin first."""
    model, data = gpdsl.compile(MODEL), {"x": np.linspace(0, 1, 8), "y": np.linspace(0, 1, 8)}
    fit = model.fit(data, steps=1, diagnose="no")
    here, there = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of JAX and of Python about the fork
        child = os.fork()
    if child == 0:
        try:
            for work in (lambda: model.fit(data, steps=1, diagnose="no"), lambda: fit.predict(data)):
                try:
                    work()
                    os.write(there, b"done\n")
                except gpdsl.GpdslError as error:
                    os.write(there, f"{error}\n".encode())
        finally:
            os._exit(0)
    os.close(there)
    said = b""
    while select.select([here], [], [], 60)[0] and (more := os.read(here, 4096)):
        said += more
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(here)
    lines = said.decode().splitlines()
    assert len(lines) == 2 and all("forked from one in which JAX had computed" in each for each in lines)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fit_after_a_fork_is_an_error_where_jax_has_begun(when: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", PROGRAM, when, MODEL]
    done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=240, check=False)
    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    if when == "before":
        assert said == ["done"]
    else:
        assert len(said) == 2 and all("forked from one in which JAX had computed" in each for each in said)
