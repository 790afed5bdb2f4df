"""`gpdsl graph`: a model as a graphical model with plates, drawn as SVG or described for Graphviz."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpdsl.cli.options import add_model, model_of
from gpdsl.cli.writing import add_out, show_or_write

HELP = "draw a model as a graph with plates"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, and the form of the drawing."""
    add_model(parser)
    parser.add_argument(
        "--format", choices=("svg", "dot"), help="svg: a drawing (default); dot: for Graphviz (default for --out *.dot)"
    )
    add_out(parser, "FILE")


def run(arguments: argparse.Namespace) -> int:
    """Print or write the drawing."""
    named_dot = arguments.out is not None and Path(arguments.out).suffix in {".dot", ".gv"}
    form = arguments.format or ("dot" if named_dot else "svg")
    show_or_write(model_of(arguments).graph(form), arguments.out)
    return 0
