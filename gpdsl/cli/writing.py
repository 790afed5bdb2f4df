"""Text that a command makes: to standard output, or to the file of `--out`."""

from __future__ import annotations

import argparse
import sys

from gpdsl.cli.options import check_writable
from gpdsl.errors import GpdslError
from gpdsl.replacing import replacing


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
