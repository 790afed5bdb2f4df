"""`gpdsl report`: a saved fit as one web page, with its model, data, pictures and what to look at next."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpdsl.cli.options import add_columns, add_forward, check_writable, columns_of

if TYPE_CHECKING:
    from gpdsl.data import Data
    from gpdsl.results.fit import Fit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The fit, the data it is compared with, and the page."""
    add_seen(parser, "the rows to compare with; without them some parts are left out")
    parser.add_argument("--out", metavar="FILE.html", required=True, help="the page")


def add_seen(parser: argparse.ArgumentParser, rows: str) -> None:
    """A saved fit, and rows that it is looked at beside."""
    parser.add_argument("fit", metavar="FILE.gpfit")
    add_forward(parser)
    parser.add_argument("--data", metavar="FILE", help=f"{rows}; .csv, .tsv, .parquet or .npz")
    add_columns(parser)


def seen(arguments: argparse.Namespace) -> tuple[Fit, Data | None]:
    """The fit, and the rows by its columns."""
    import gpdsl
    from gpdsl.cli.options import run_forward_files

    run_forward_files(arguments.forward)
    fit = gpdsl.load_fit(arguments.fit)
    columns = {**fit.columns, **columns_of(arguments, fit.model.declarations)}
    return fit, None if arguments.data is None else fit.bind(arguments.data, columns, outputs=False)


def run(arguments: argparse.Namespace) -> int:
    """Write the page."""
    check_writable("--out", arguments.out)

    from gpdsl.results.report import write_report

    fit, data = seen(arguments)
    write_report(fit, Path(arguments.out), data)
    print(f"written to {arguments.out}")
    return 0
