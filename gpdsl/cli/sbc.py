"""`gpdsl sbc`: simulate data from the priors again and again, fit them, and compare the posteriors with the truth."""

from __future__ import annotations

import argparse

from gpdsl.cli import options
from gpdsl.errors import GpdslError
from gpdsl.inference.watch import exit_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, how much is simulated, the choices of the fits, and where the results go."""
    options.add_model(parser)
    parser.add_argument(
        "--rows", metavar="N", type=int, help="rows of each data set (default 50, or those of --inputs)"
    )
    parser.add_argument("--runs", metavar="N", type=int, default=100, help="data sets (default 100)")
    parser.add_argument("--workers", metavar="N", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--points", metavar="N", type=int, default=5, help="rows that are looked at (default 5)")
    parser.add_argument("--inputs", metavar="FILE", help="take the inputs from this data file instead of drawing them")
    options.add_columns(parser)
    options.add_sizes(parser)
    options.add_choices(parser)
    parser.add_argument("--out", metavar="FILE.json", help="write all that was found, as JSON")
    parser.add_argument("--plot", metavar="FILE.png", help="draw distribution functions with their bands")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate; an interrupt from the keyboard keeps the runs that were made."""
    from gpdsl.calibration.sbc import sbc

    options.check_writable("--out", arguments.out)
    options.check_picture("--plot", arguments.plot)
    if arguments.inputs is not None and arguments.rows is not None:
        raise GpdslError("--rows: the rows are those of --inputs; leave one of them out")
    model = options.model_of(arguments)
    found = sbc(
        model,
        (50 if arguments.rows is None else arguments.rows) if arguments.inputs is None else arguments.inputs,
        runs=arguments.runs,
        workers=arguments.workers,
        points=arguments.points,
        sizes=options.sizes_of(arguments),
        columns=options.columns_of(arguments, model.declarations),
        progress=not arguments.quiet,
        **options.choices_of(arguments),
    )
    print(found.summary())
    if arguments.out:
        found.save(arguments.out)
        print(f"calibration saved as {arguments.out}")
    if arguments.plot:
        found.plot(arguments.plot)
        print(f"picture saved as {arguments.plot}")
    return exit_code() if found.interrupted else 0
