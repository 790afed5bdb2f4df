"""`gpdsl report`: a saved fit as one web page, with its model, data, pictures and what to look at next."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpdsl.cli.options import add_columns, add_forward, check_writable, columns_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The fit, the data it is compared with, and the page."""
    parser.add_argument("fit", metavar="FILE.gpfit")
    add_forward(parser)
    parser.add_argument(
        "--data", metavar="FILE", help=".csv, .tsv, .parquet or .npz; without it some parts are left out"
    )
    add_columns(parser)
    parser.add_argument("--out", metavar="FILE.html", required=True, help="the page")


def run(arguments: argparse.Namespace) -> int:
    """Write the page."""
    check_writable("--out", arguments.out)

    import gpdsl
    from gpdsl.cli.options import run_forward_files
    from gpdsl.results.report.report import write_report

    run_forward_files(arguments.forward)
    fit = gpdsl.load_fit(arguments.fit)
    columns = {**fit.columns, **columns_of(arguments, fit.model.declarations)}
    data = None if arguments.data is None else fit.bind(arguments.data, columns, outputs=False)
    write_report(fit, Path(arguments.out), data)
    print(f"written to {arguments.out}")
    return 0
