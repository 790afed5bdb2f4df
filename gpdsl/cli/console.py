"""What the command prints: errors to standard error, in colour on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpdsl.errors import GpdslError

if TYPE_CHECKING:
    from gpdsl.language.errors.base import Mistake
    from gpdsl.language.source import Source


import argparse

from gpdsl.cli.options import check_writable
from gpdsl.replacing import replacing


def print_error(error: GpdslError) -> None:
    """Print an error of the user's; errors with a code name their place themselves."""
    from gpdsl.language import ModelError, render_colour

    if isinstance(error, ModelError) and wants_colour():
        text = render_colour(error.source, error.diagnostics)
    else:
        text = str(error)
        if "error[" not in text.split("\n")[0]:
            text = f"error: {text}"
    print(text, file=sys.stderr)


def print_mistakes(source: Source, mistakes: Sequence[Mistake]) -> None:
    """Print warnings about a text as errors are printed."""
    from gpdsl.language import render_colour, render_plain

    print((render_colour if wants_colour() else render_plain)(source, mistakes), file=sys.stderr)


def wants_colour() -> bool:
    """Whether standard error is a terminal that should get colours."""
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


# --- Text that a command makes: to standard output, or to the file of `--out` ----------------------------------------


def add_out(parser: argparse.ArgumentParser, metavar: str) -> None:
    """`--out`."""
    parser.add_argument("--out", metavar=metavar, help="write to a file instead of standard output")


def show_or_write(text: str, path: str | None) -> None:
    """Print a text that ends with a newline, or write it to a file. Raises GpdslError when that cannot be done."""
    if path is None:
        sys.stdout.write(text)
        return
    check_writable("--out", path)
    try:
        with replacing(path) as file:
            file.write(text)
    except OSError as problem:
        raise GpdslError(f"--out {path}: {problem.strerror}") from problem
    print(f"written to {path}")
