"""`gpdsl plot`: a picture of a saved fit, as .png, .pdf or .svg."""

from __future__ import annotations

import argparse

from gpdsl.cli.options import check_picture
from gpdsl.cli.report import add_seen, seen

KINDS = (
    "curves",
    "groups",
    "maps",
    "partial",
    "fields",
    "residuals",
    "calibration",
    "rootogram",
    "bound",
    "inducing",
    "embedding",
    "parameters",
)
"""Those of `Fit.plot`, by name: its module takes a second to load, which a command that completes has not."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The fit, the rows, what is drawn of them, and the picture."""
    add_seen(parser, "the rows that are shown, with outputs where they are known")
    parser.add_argument("--kind", choices=KINDS, help="another picture than the one that suits the model")
    parser.add_argument("--name", metavar="NAME", action="append", help="an output, let or latent (all that suit)")
    parser.add_argument("--out", metavar="FILE.png", required=True, help="the picture: .png, .pdf or .svg")


def run(arguments: argparse.Namespace) -> int:
    """Draw the picture."""
    check_picture("--out", arguments.out)
    fit, data = seen(arguments)
    fit.plot(data, arguments.name, arguments.out, kind=arguments.kind)
    print(f"written to {arguments.out}")
    return 0
