"""`gpdsl info`: what a model declares and what it wants of its data, as JSON or as tables."""

from __future__ import annotations

import argparse
import json

from gpdsl.cli.options import add_model, model_of
from gpdsl.cli.writing import add_out, show_or_write
from gpdsl.errors import GpdslError

HELP = "list what a model declares and what it wants of its data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, and the form of the list."""
    add_model(parser)
    parser.add_argument("--table", action="store_true", help="tables to read instead of JSON")
    add_out(parser, "FILE.json")


def run(arguments: argparse.Namespace) -> int:
    """Print or write the list."""
    if arguments.table and arguments.out is not None:
        raise GpdslError("--table is for reading and --out writes JSON: give one of them")
    information = model_of(arguments).info()
    if arguments.table:
        from gpdsl.cli.info_table import print_tables

        print_tables(information)
    else:
        show_or_write(json.dumps(information, indent=2, ensure_ascii=False) + "\n", arguments.out)
    return 0
