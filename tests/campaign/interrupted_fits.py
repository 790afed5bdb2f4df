"""Fits of the command line, ended by Ctrl-C, SIGTERM or kill -9 at random moments: what was kept stays, and goes on.

Every other Ctrl-C or SIGTERM goes to the workers of an opaque function too. `raw` is a traceback, `hung` a process
that, with its workers, has not ended two minutes after the signal, `lost` a file that is gone, cannot be read or holds
a worse state than before, and `wrong` another exit code, or a fit that does not go on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

import gpdsl

NAME = "interrupted fits"
FITS = 300
"""Fits that are ended at scale 1."""

PATIENCE = 120.0
"""Seconds in which a process has to end after a signal that asks it to."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)

CHILD = """
import signal, sys
try:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from gpdsl.inference.watch import exit_code, loading, watching
except KeyboardInterrupt:
    sys.exit(130)  # the command has not begun
with watching(waits=False):
    try:
        with loading():
            from gpdsl.cli import main
            from gpdsl.results import checkpoint
        checkpoint.EVERY, checkpoint.SHARE = 0.5, 1e9
    except KeyboardInterrupt:
        sys.exit(exit_code())
    code = main(sys.argv[1:])
sys.exit(code)
"""
"""The command, which keeps its state more often than it does for users."""

MODEL = """model waves
input x : real
output n : count
param ell : positive = 3
param s2 : positive = 1
latent f(x) ~ GP(0, s2 * RBF(ell))
n ~ Poisson(exp(f))
"""
WITH_SOLVER = MODEL.replace(
    "n ~ Poisson(exp(f))", "external same(a: real) -> real\nlet g = same(f)\nn ~ Poisson(exp(g))"
)

CHOICES: tuple[tuple[str, ...], ...] = (
    ("steps=2000", "tolerance=0"),
    ("optimizer=lbfgs", "steps=20000", "tolerance=0"),
    ("optimizer=adam", "inducing=15", "batch=50", "steps=20000"),
    ("inducing=15", "batch=50", "steps=20000"),
    ("engine=ep", "steps=2000"),
    ("engine=qsgp", "features=20", "batch=50", "steps=20000"),
    ("optimizer=adam", "samples=4", "steps=20000"),
)
EXACT = 2
"""Of these, those before this place never end below what they have kept."""

OPAQUE = len(CHOICES) - 1
"""Of these, the one with an opaque function in worker processes."""

SOLVER = """
import gpdsl

@gpdsl.register_forward_model("same", executor="processes", workers=2)
def same(a):
    return 1 * a
"""

DONE = 0


def begun(folder: Path, number: int) -> subprocess.Popen[str]:
    """A fit that goes on from what there is in the folder."""
    sets = [part for choice in CHOICES[number % len(CHOICES)] for part in ("--set", choice)]
    sets += ["--forward", "s.py"] * (number % len(CHOICES) == OPAQUE)
    line = ["fit", "m.gpm", "--data", "d.csv", "--out", "m.gpfit", "--resume", "--quiet", *sets]
    environment = os.environ | {"PYTHONPATH": str(Path(gpdsl.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *line],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kept(folder: Path) -> gpdsl.Fit | None:
    """What is in the file of a folder, None where there is none. Raises GpdslError for what cannot be read."""
    path = folder / "m.gpfit"
    externals = {"same": lambda a: a} if (folder / "s.py").exists() else None
    return gpdsl.load_fit(path, externals) if path.exists() else None


def ended(folder: Path, number: int, rng: np.random.Generator, longest: float) -> str:
    """What comes of one fit: nothing, or what went wrong."""
    before, name = kept(folder), SIGNALS[number % len(SIGNALS)]
    process = begun(folder, number)
    try:
        process.wait(float(rng.uniform(0.0, longest)))
    except subprocess.TimeoutExpired:
        if number % 2 and name != signal.SIGKILL:  # as a terminal or a service does it, to workers too
            os.killpg(process.pid, name)
        else:
            process.send_signal(name)
    try:
        said = process.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "hung"
    if "Traceback" in said:
        sys.stderr.write(said)
        return "raw"
    try:
        after = kept(folder)
    except gpdsl.GpdslError as problem:
        sys.stderr.write(f"{problem}\n")
        return "lost"
    if before is not None and (after is None or (number % len(CHOICES) < EXACT and after.elbo < before.elbo - 1e-6)):
        return "lost"
    if process.returncode not in (DONE, 128 + name, -name):
        sys.stderr.write(f"exit code {process.returncode}: {said}\n")
        return "wrong"
    return ""


def run(scale: float, seed: int) -> dict[str, int]:
    """End fits; the counts."""
    counts = Counter[str](dict.fromkeys(("tried", "raw", "hung", "lost", "wrong"), 0))
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, 300)
    table = np.column_stack([x, rng.poisson(np.exp(np.sin(x)))])
    with tempfile.TemporaryDirectory() as root:
        folders = [Path(root) / str(number) for number in range(len(CHOICES))]
        for folder in folders:
            folder.mkdir()
            np.savetxt(folder / "d.csv", table, delimiter=",", header="x,n", comments="")
            (folder / "m.gpm").write_text(MODEL, encoding="utf-8")
        (folders[OPAQUE] / "m.gpm").write_text(WITH_SOLVER, encoding="utf-8")
        (folders[OPAQUE] / "s.py").write_text(SOLVER, encoding="utf-8")
        start = time.monotonic()
        process = begun(folders[0], 0)
        process.communicate()
        longest = max(2.0 * (time.monotonic() - start), 8.0)
        (folders[0] / "m.gpfit").unlink(missing_ok=True)
        for number in range(max(round(scale * FITS), 1)):
            counts["tried"] += 1
            found = ended(folders[number % len(CHOICES)], number, rng, longest)
            if found:
                counts[found] += 1
                sys.stderr.write(f"{number}: {SIGNALS[number % len(SIGNALS)].name}: {found}\n")
    return dict(counts)
