"""Fits of the command line, ended by Ctrl-C, SIGTERM or kill -9 at random moments: what was kept stays, and goes on.

`raw` is a traceback, `hung` a process that has not ended two minutes after Ctrl-C or SIGTERM, `lost` a file that is
gone, cannot be read or holds a worse state than before, and `wrong` another exit code, or a fit that does not go on.
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
    from gpdsl.results import checkpoint
    checkpoint.EVERY, checkpoint.SHARE = 0.5, 1e9
    from gpdsl.cli import main
except BaseException:
    sys.exit(130)  # Python is still being loaded
sys.exit(main(sys.argv[1:]))
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

CHOICES: tuple[tuple[str, ...], ...] = (
    ("steps=2000", "tolerance=0"),
    ("optimizer=lbfgs", "steps=20000", "tolerance=0"),
    ("optimizer=adam", "inducing=15", "batch=50", "steps=20000"),
    ("inducing=15", "batch=50", "steps=20000"),
    ("engine=ep", "steps=2000"),
)
EXACT = 2
"""Of these, those before this place never end below what they have kept."""

DONE = 0


def begun(folder: Path, number: int) -> subprocess.Popen[str]:
    """A fit that goes on from what there is in the folder."""
    sets = [part for choice in CHOICES[number % len(CHOICES)] for part in ("--set", choice)]
    line = ["fit", "m.gpm", "--data", "d.csv", "--out", "m.gpfit", "--resume", "--quiet", *sets]
    environment = os.environ | {"PYTHONPATH": str(Path(gpdsl.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *line],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def kept(folder: Path) -> gpdsl.Fit | None:
    """What is in the file of a folder, None where there is none. Raises GpdslError for what cannot be read."""
    return gpdsl.load_fit(folder / "m.gpfit") if (folder / "m.gpfit").exists() else None


def ended(folder: Path, number: int, rng: np.random.Generator, longest: float) -> str:
    """What comes of one fit: nothing, or what went wrong."""
    before, name = kept(folder), SIGNALS[number % len(SIGNALS)]
    process = begun(folder, number)
    try:
        process.wait(float(rng.uniform(0.0, longest)))
    except subprocess.TimeoutExpired:
        process.send_signal(name)
    try:
        said = process.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        process.kill()
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
