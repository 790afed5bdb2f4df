"""`gpdsl fit`: fit a model to data, print the summary, save the fit and draw it."""

from __future__ import annotations

import argparse
import sys

from gpdsl.cli import options
from gpdsl.errors import GpdslError
from gpdsl.inference.watch import exit_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Model, data, choices, and where the results go."""
    options.add_model(parser)
    options.add_data(parser)
    options.add_standardise(parser)
    options.add_choices(parser)
    parser.add_argument("--start", metavar="FILE.gpfit", help="begin where this saved fit ended")
    parser.add_argument("--out", metavar="FILE.gpfit", help="save the fit, and while it goes on its best state")
    parser.add_argument("--resume", action="store_true", help="go on from what is saved in --out, if anything is")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the fit: curves, maps or effects, as suits it")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Fit; an interrupt from the keyboard, or a fault of an opaque function, keeps and saves the best state so far."""
    from gpdsl import ForwardModelError, load_fit

    options.check_writable("--out", arguments.out)
    options.check_picture("--plot", arguments.plot)
    choices, model = options.choices_of(arguments), options.model_of(arguments)
    columns = options.columns_of(arguments, model.declarations)
    standardise = options.standardise_of(arguments)
    start = None if arguments.start is None else load_fit(arguments.start)
    if arguments.resume and not arguments.out:
        raise GpdslError("--resume goes on from what is saved: name the file with --out")
    choices |= {"checkpoint": arguments.out, "resume": arguments.resume, "standardise": standardise}
    try:
        fit = model.fit(arguments.data, columns=columns, progress=not arguments.quiet, start=start, **choices)
    except GpdslError as error:
        if error.fit is not None and not isinstance(error, ForwardModelError):  # it cannot be saved, but told
            print(error.fit.summary())
        elif error.fit is not None and arguments.out:
            kept = f"the state before is saved as {arguments.out}: go on with --start {arguments.out}"
            print(kept, file=sys.stderr)
        raise
    print(fit.summary())
    if arguments.out:
        print(f"fit saved as {arguments.out}")
    if arguments.plot:
        fit.plot(arguments.data, path=arguments.plot)
        print(f"picture saved as {arguments.plot}")
    if fit.interrupted:
        kept = (
            f"the best state so far is saved as {arguments.out}" if arguments.out else "nothing is saved without --out"
        )
        print(f"interrupted: {kept}", file=sys.stderr)
        return exit_code()
    return 0
