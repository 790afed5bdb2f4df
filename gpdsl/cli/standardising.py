"""`--standardise`: inputs and outputs with mean 0 and standard deviation 1, by numbers that the fit remembers."""

from __future__ import annotations

import argparse
from typing import Any

from gpdsl.errors import GpdslError

FORM = "expected NAME or NAME=MEAN,SD, NAME an input or output of the model"


def add_standardise(parser: argparse.ArgumentParser) -> None:
    """`--standardise`, alone for all that can be, or with a name, and more than once."""
    parser.add_argument(
        "--standardise",
        metavar="NAME[=MEAN,SD]",
        nargs="?",
        const="",
        action="append",
        default=[],
        help="fit this input or output less its mean and over its standard deviation; without a name, all that can be",
    )


def standardise_of(arguments: argparse.Namespace) -> Any:
    """What `Model.fit(standardise=...)` takes."""
    if arguments.standardise and arguments.data is None:
        raise GpdslError("--standardise: there are no data to standardise; name them with --data")
    named = [text for text in arguments.standardise if text]
    if named and len(named) < len(arguments.standardise):
        raise GpdslError("--standardise without a name takes all that can be: leave the others out")
    return dict(map(_parts, named)) or (True if arguments.standardise else None)


def _parts(text: str) -> tuple[str, tuple[float, float] | None]:
    name, equals, numbers = text.partition("=")
    if not equals:
        return name, None
    try:
        mean, sd = (float(number) for number in numbers.split(","))
    except ValueError as problem:
        raise GpdslError(f"--standardise {text}: {FORM}") from problem
    return name, (mean, sd)
