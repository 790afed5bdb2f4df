"""Running the Python files named with `--forward`: the one place where a command runs code of the user's."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from gpdsl.errors import GpdslError, described
from gpdsl.inference.watch import loading


def run_forward_files(names: Sequence[str]) -> None:
    """Run each file, or import each module, so that it registers its functions.

    Raises GpdslError for one that is not there, and for one that fails, with the line at which it does.
    """
    if names:
        with loading():
            import jax  # noqa: F401  most of them use it, and a signal while it is loaded may be lost
    for name in names:
        is_file = name.endswith(".py")
        if is_file and not Path(name).is_file():
            raise GpdslError(f"--forward {name}: no such file")
        try:
            if is_file:
                runpy.run_path(name, run_name="gpdsl_forward")
            else:
                _import(name)
        except GpdslError:
            raise
        except Exception as problem:
            raise GpdslError(f"--forward {name}: {_described(name, problem)}") from problem


def _import(name: str) -> None:
    """Import a module, also from the current folder, as `python -m` does."""
    sys.path.insert(0, "")
    try:
        import_module(name)
    finally:
        sys.path.remove("")


def _described(name: str, problem: Exception) -> str:
    text = described(problem)
    lines = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == name]
    return f"{text} (line {lines[-1]})" if lines else text
