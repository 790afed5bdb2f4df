"""Signals from the first moment of a command on: one line and 130 or 143, whatever is being loaded when they come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpdsl

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM)

MODEL = """model waves
input x : real
output y : real
param ell : positive = 3
latent f(x) ~ GP(0, RBF(ell))
y ~ Normal(f, 0.1)
"""
CHOICES = ("--set", "steps=1000000", "--set", "tolerance=0")
FIT = ("fit", "m.gpm", "--data", "d.csv", "--out", "m.gpfit", "--quiet", *CHOICES)

# The command; a signal comes when the module named first has just begun to be loaded.
CHILD = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
module, number = sys.argv[1], int(sys.argv[2])

class Now:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            signal.raise_signal(number)

sys.meta_path.insert(0, Now())
from gpdsl.cli import main
sys.exit(main(sys.argv[3:]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.gpm").write_text(MODEL)
    rows = "".join(f"{0.1 * n},{(n % 7) / 7}\n" for n in range(60))
    (tmp_path / "d.csv").write_text("x,y\n" + rows)
    return tmp_path


def command(folder: Path, *line: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *line], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def waits_with_signals(process: subprocess.Popen[str]) -> bool:
    """Whether the process has taken over SIGTERM, which Python itself leaves alone."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("module", ["lark", "numpy", pytest.param("jaxlib.xla_client", marks=pytest.mark.slow)])
def test_a_signal_while_modules_are_loaded(module: str, number: signal.Signals, folder: Path) -> None:
    printed, errors = (process := command(folder, "-c", CHILD, module, str(int(number)), *FIT)).communicate(timeout=120)
    assert (process.returncode, printed, errors) == (128 + number, "", "interrupted\n")
    assert not (folder / "m.gpfit").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at /proc")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("delay", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0])
def test_a_signal_at_any_moment(delay: float, number: signal.Signals, folder: Path) -> None:
    """`delay` seconds after the command has begun; what is saved can be read."""
    process = command(folder, "-m", "gpdsl", *FIT)
    while not waits_with_signals(process):
        assert process.poll() is None
        time.sleep(0.005)
    time.sleep(delay)
    process.send_signal(number)
    printed, errors = process.communicate(timeout=120)
    if process.returncode in (0, -number) and delay > 1.0:  # a quick machine has ended before, or is about to
        assert not gpdsl.load_fit(folder / "m.gpfit").interrupted
        return
    assert process.returncode == 128 + number, errors
    if (folder / "m.gpfit").exists():
        assert gpdsl.load_fit(folder / "m.gpfit").interrupted
        assert errors.endswith("interrupted: the best state so far is saved as m.gpfit\n")
    else:
        assert (printed, errors) == ("", "interrupted\n")


def test_signals_are_taken_over_before_anything_heavy_is_loaded() -> None:
    code = """
import sys
from gpdsl.inference import watch
def stop(only):
    print(sorted(sys.modules.keys() & {"lark", "sympy", "numpy", "jax", "gpdsl.language"}))
    raise KeyboardInterrupt
import gpdsl.cli
gpdsl.cli.make_parser = stop
sys.exit(gpdsl.cli.main([]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "[]\n", "interrupted\n")
