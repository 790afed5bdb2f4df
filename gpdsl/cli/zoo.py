"""`gpdsl zoo`: list the models shipped with the package, print one, or copy it to a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpdsl.cli.options import check_writable
from gpdsl.errors import GpdslError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, and where to copy it."""
    parser.add_argument("name", metavar="ZOO_MODEL", nargs="?", help="print this model")
    parser.add_argument("--out", metavar="FILE.gpm", help="write the model to a file that does not exist yet")


def run(arguments: argparse.Namespace) -> int:
    """List or show."""
    import gpdsl

    if arguments.name is None:
        print_zoo()
        return 0
    text = gpdsl.zoo_text(arguments.name)
    if arguments.out is None:
        print(text, end="")
        return 0
    check_writable("--out", arguments.out)
    try:
        # "x": a model the user has edited is never overwritten.
        with Path(arguments.out).open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        raise GpdslError(f"--out {arguments.out}: {problem.strerror}") from problem
    print(f"written to {arguments.out}")
    return 0


def print_zoo() -> None:
    """The models with their titles."""
    import gpdsl

    names = gpdsl.zoo_names()
    width = max(map(len, names), default=0)
    for name in names:
        print(f"{name:<{width}}  {gpdsl.zoo(name).title}")
