"""`gpdsl latex`: a model as the equations a paper would print."""

from __future__ import annotations

import argparse

from gpdsl.cli.options import add_model, add_out, model_of, show_or_write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, and the form of the text."""
    add_model(parser)
    parser.add_argument("--standalone", action="store_true", help="a whole document instead of a part of one")
    add_out(parser, "FILE.tex")


def run(arguments: argparse.Namespace) -> int:
    """Print or write the equations."""
    text = model_of(arguments).latex(standalone=arguments.standalone)
    show_or_write(text, arguments.out)
    return 0
