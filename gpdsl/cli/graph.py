"""`gpdsl graph`: a model as a graphical model with plates, drawn as SVG or described for Graphviz."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpdsl.cli.options import add_model, add_out, model_of, show_or_write
from gpdsl.errors import GpdslError

OTHER = frozenset({".png", ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".eps", ".ps"})
"""Forms of pictures that are not drawn, but that Graphviz makes."""
FORMS = {".svg": "svg", ".dot": "dot", ".gv": "dot"}
"""What is drawn, by the ending of a name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, and the form of the drawing."""
    add_model(parser)
    parser.add_argument(
        "--format", choices=("svg", "dot"), help="svg: a drawing (default); dot: for Graphviz (default for --out *.dot)"
    )
    add_out(parser, "FILE")


def run(arguments: argparse.Namespace) -> int:
    """Print or write the drawing."""
    suffix = "" if arguments.out is None else Path(arguments.out).suffix.lower()
    if suffix in OTHER:
        stem = Path(arguments.out).with_suffix("")
        raise GpdslError(
            f"--out {arguments.out}: graphs are drawn as SVG, or described for Graphviz: write --out {stem}.svg, or "
            f"--out {stem}.dot and then dot -T{suffix[1:]} {stem}.dot -o {arguments.out}"
        )
    if suffix and suffix not in FORMS and arguments.format is None:
        raise GpdslError(
            f"--out {arguments.out}: expected a name ending in {', '.join(FORMS)}; for another one say --format"
        )
    form = arguments.format or FORMS.get(suffix, "svg")
    show_or_write(model_of(arguments).graph(form), arguments.out)
    return 0
