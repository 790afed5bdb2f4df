"""Saved fits: `gpdsl predict` rows with one, `plot` and `report` it, `serve` it to other tools."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from gpdsl.cli.options import (
    add_columns,
    add_data,
    add_forward,
    check_picture,
    check_writable,
    columns_of,
    run_forward_files,
)
from gpdsl.data.errors import listed
from gpdsl.errors import GpdslError
from gpdsl.inference.watch import honour_interrupts, loading
from gpdsl.replacing import written

if TYPE_CHECKING:
    from gpdsl.data import Data
    from gpdsl.results.fit import Fit


def _fit_of(arguments: argparse.Namespace) -> Fit:
    """The fit the command line names. Runs the `--forward` files first."""
    import gpdsl

    run_forward_files(arguments.forward)
    return gpdsl.load_fit(arguments.fit)


# --- predict ---------------------------------------------------------------------------------------------------------


SUFFIXES = (".csv", ".txt", "")
"""What the name of a file of CSV ends in."""


def add_predict(parser: argparse.ArgumentParser) -> None:
    """The fit, the rows, what to predict, and where it goes."""
    parser.add_argument("fit", metavar="FILE.gpfit")
    add_forward(parser)
    add_data(parser)
    parser.add_argument("--out", metavar="FILE.csv", help="write here instead of printing")
    parser.add_argument(
        "--names", metavar="A,B", help="latents, lets and outputs to predict (default: outputs and lets)"
    )
    parser.add_argument("--quantiles", metavar="P,Q", help="also these quantiles, as in 0.05,0.95")
    parser.add_argument(
        "--log-density", action="store_true", help="also the log predictive density of the outputs in the data"
    )
    parser.add_argument(
        "--evaluations",
        metavar="N",
        help="call opaque functions for no more rows than this; half of it is for the log density, where that is asked",
    )


def run_predict(arguments: argparse.Namespace) -> int:
    """`gpdsl predict`: what a saved fit says about other rows, as a table of means, deviations and quantiles.

    Predict and write the table.
    """
    check_writable("--out", out := arguments.out)
    if out is not None and Path(out).suffix.lower() not in SUFFIXES:
        raise GpdslError(f"--out {out}: predictions are CSV: expected a name ending in .csv or .txt, or in nothing")
    quantiles, evaluations = _quantiles(arguments.quantiles), _evaluations(arguments)

    with loading():
        from gpdsl.results.table import default_names, table_of

    with redirect_stdout(sys.stderr):  # what opaque functions print is no part of the table
        fit = _fit_of(arguments)
        renamed = {**fit.columns, **columns_of(arguments, fit.model.declarations)}
        names = arguments.names.split(",") if arguments.names else default_names(fit.model.declarations)
        prediction = fit.predict(arguments.data, columns=renamed, evaluations=evaluations)
        table = table_of(prediction, fit.model.declarations, names, quantiles)
        if arguments.log_density:
            table["log_density"] = fit.log_predictive_density(arguments.data, columns=renamed, evaluations=evaluations)
    honour_interrupts()  # JAX may have lost one
    write_table(table, arguments.out)
    if marked := [name for name in names if name in prediction.without_unit]:
        what = f"{listed(f'`{name}`' for name in marked)} {'is' if len(marked) == 1 else 'are'} in standard deviations"
        print(f"note: {what}: the data were standardised, and nothing tells the unit", file=sys.stderr)
    return 0


def _evaluations(arguments: argparse.Namespace) -> int | None:
    """The budget of the table, and of the log density if there is one."""
    text, parts = arguments.evaluations, 1 + arguments.log_density
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:18]) >= parts):
        raise GpdslError(f"--evaluations {text}: expected a whole number of at least {parts}")
    return int(text[:18]) // parts


def _quantiles(text: str | None) -> list[float]:
    if text is None:
        return []
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError as problem:
        raise GpdslError(f"--quantiles {text}: expected numbers separated by commas, as in 0.05,0.95") from problem
    if not all(0 < each < 1 for each in found):
        raise GpdslError(f"--quantiles {text}: a quantile lies between 0 and 1, both excluded")
    return found


# Predictions written as CSV, to a file or to standard output.


def write_table(table: Mapping[str, np.ndarray], path: str | None) -> None:
    """Write CSV to a file, whole or not at all, or to standard output. Raises GpdslError when that fails."""
    if path is None:
        _write(table, sys.stdout)
        return
    with written(path) as file:
        _write(table, file)


def _write(table: Mapping[str, np.ndarray], file: IO[str]) -> None:
    from gpdsl.results.table import texts

    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*map(texts, table.values()), strict=True))


# --- plot ------------------------------------------------------------------------------------------------------------


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


def add_plot(parser: argparse.ArgumentParser) -> None:
    """The fit, the rows, what is drawn of them, and the picture."""
    add_seen(parser, "the rows that are shown, with outputs where they are known")
    parser.add_argument("--kind", choices=KINDS, help="another picture than the one that suits the model")
    parser.add_argument("--name", metavar="NAME", action="append", help="an output, let or latent (all that suit)")
    parser.add_argument("--out", metavar="FILE.png", required=True, help="the picture: .png, .pdf or .svg")


def run_plot(arguments: argparse.Namespace) -> int:
    """`gpdsl plot`: a picture of a saved fit, as .png, .pdf or .svg.

    Draw the picture.
    """
    check_picture("--out", arguments.out)
    fit, data = seen(arguments)
    fit.plot(data, arguments.name, arguments.out, kind=arguments.kind)
    print(f"written to {arguments.out}")
    return 0


# --- report ----------------------------------------------------------------------------------------------------------


def add_report(parser: argparse.ArgumentParser) -> None:
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
    fit = _fit_of(arguments)
    columns = {**fit.columns, **columns_of(arguments, fit.model.declarations)}
    return fit, None if arguments.data is None else fit.bind(arguments.data, columns, outputs=False)


def run_report(arguments: argparse.Namespace) -> int:
    """`gpdsl report`: a saved fit as one web page, with its model, data, pictures and what to look at next.

    Write the page.
    """
    check_writable("--out", arguments.out)

    from gpdsl.results.report import write_report

    fit, data = seen(arguments)
    write_report(fit, Path(arguments.out), data)
    print(f"written to {arguments.out}")
    return 0


# --- serve -----------------------------------------------------------------------------------------------------------


def add_serve(parser: argparse.ArgumentParser) -> None:
    """The fit, what to offer, and where to listen."""
    parser.add_argument("fit", metavar="FILE.gpfit")
    add_forward(parser)
    parser.add_argument("--names", metavar="A,B", help="outputs, lets and latents to offer (default: all)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=4242, help="port to listen on, 0 for any (default: 4242)")


def run_serve(arguments: argparse.Namespace) -> int:
    """`gpdsl serve`: offer a saved fit to other tools, as a server that speaks the UM-Bridge protocol.

    Serve until Ctrl-C.
    """
    if not 0 <= arguments.port <= 65535:
        raise GpdslError(f"--port {arguments.port}: expected a number from 0 to 65535")
    names = None if arguments.names is None else arguments.names.split(",")

    with loading():
        from gpdsl.forward.server import make_server
        from gpdsl.results.serving import offered

    models = offered(_fit_of(arguments), names)
    with make_server(models, arguments.host, arguments.port) as server:
        host, port = server.server_address[:2]
        print(f"serving {', '.join(models)} at http://{host!s}:{port}; Ctrl-C ends", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")
    return 0
