"""`gpdsl predict`: what a saved fit says about other rows, as a table of means, deviations and quantiles."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from gpdsl.cli.options import add_data, add_forward, check_writable, columns_of
from gpdsl.data.errors import listed
from gpdsl.errors import GpdslError
from gpdsl.inference.watch import honour_interrupts
from gpdsl.replacing import replacing
from gpdsl.results.table import texts

SUFFIXES = (".csv", ".txt", "")
"""What the name of a file of CSV ends in."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(arguments: argparse.Namespace) -> int:
    """Predict and write the table."""
    _check_out(arguments.out)
    quantiles, evaluations = _quantiles(arguments.quantiles), _evaluations(arguments)

    import gpdsl
    from gpdsl.cli.options import run_forward_files
    from gpdsl.results.table import default_names, table_of

    run_forward_files(arguments.forward)
    fit = gpdsl.load_fit(arguments.fit)
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


def _check_out(path: str | None) -> None:
    """Raise GpdslError for a file that could not be written, or whose name promises something else than CSV."""
    check_writable("--out", path)
    if path is not None and Path(path).suffix.lower() not in SUFFIXES:
        raise GpdslError(f"--out {path}: predictions are CSV: expected a name ending in .csv or .txt, or in nothing")


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
    try:
        with replacing(path) as file:
            _write(table, file)
    except OSError as problem:
        raise GpdslError(f"cannot write {path}: {problem.strerror}") from problem


def _write(table: Mapping[str, np.ndarray], file: IO[str]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*map(texts, table.values()), strict=True))
