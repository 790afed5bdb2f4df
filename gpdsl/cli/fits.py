"""Models and data: `gpdsl explain` tells how one would be fitted, `fit` fits, `simulate` and `sbc` draw from it."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from gpdsl.cli import options
from gpdsl.errors import GpdslError
from gpdsl.inference.watch import exit_code, honour_interrupts

if TYPE_CHECKING:
    from gpdsl.simulation.simulate import Simulation


# --- explain ---------------------------------------------------------------------------------------------------------


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Model, data and choices."""
    options.add_model(parser)
    options.add_data(parser)
    options.add_standardise(parser)
    options.add_choices(parser)


def run_explain(arguments: argparse.Namespace) -> int:
    """`gpdsl explain`: print the plan for a model and its data: what is exact, what is sampled, and what a step costs.

    Print the plan.
    """
    choices, model = options.choices_of(arguments), options.model_of(arguments)
    columns = options.columns_of(arguments, model.declarations)
    standardise = options.standardise_of(arguments)
    print(model.explain(arguments.data, columns=columns, standardise=standardise, **choices))
    return 0


# --- fit -------------------------------------------------------------------------------------------------------------


def add_fit(parser: argparse.ArgumentParser) -> None:
    """Model, data, choices, and where the results go."""
    add_explain(parser)
    parser.add_argument("--start", metavar="FILE.gpfit", help="begin where this saved fit ended")
    parser.add_argument("--out", metavar="FILE.gpfit", help="save the fit, and while it goes on its best state")
    parser.add_argument("--resume", action="store_true", help="go on from what is saved in --out, if anything is")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the fit: curves, maps or effects, as suits it")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run_fit(arguments: argparse.Namespace) -> int:
    """`gpdsl fit`: fit a model to data, print the summary, save the fit and draw it.

    Fit; an interrupt from the keyboard, or a fault of an opaque function, keeps and saves the best state so far.
    """
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


# --- simulate --------------------------------------------------------------------------------------------------------


def add_simulate(parser: argparse.ArgumentParser) -> None:
    """The model, how much data, what is given, and where the data go."""
    options.add_model(parser)
    parser.add_argument("--rows", metavar="N", type=int, help="rows to draw (default 200, or those of --inputs)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="same seed, same data (default 0)")
    parser.add_argument("--out", metavar="FILE", help="write here (.csv, .tsv, .parquet, .npz) instead of printing")
    parser.add_argument(
        "--truth", metavar="FILE", help="also write the latents, row variables and lets behind the data"
    )
    parser.add_argument("--inputs", metavar="FILE", help="take the inputs from this data file instead of drawing them")
    options.add_columns(parser)
    options.add_sizes(parser)
    what = "value of a parameter; commas separate an array's (default: its initial value)"
    options.add_several(parser, "--set", "PARAM=VALUE", what, dest="settings")
    parser.add_argument("--draw-parameters", action="store_true", help="draw parameters that have priors from them")


def run_simulate(arguments: argparse.Namespace) -> int:
    """`gpdsl simulate`: draw a data set from a model's own prior, to try a model before there are data.

    Draw and write.
    """
    from gpdsl.data.files import check_format, write_text

    for option, path in (("--out", arguments.out), ("--truth", arguments.truth)):
        if path is not None:
            options.check_writable(option, path)
            check_format(path)
    parameters = {
        name: options.numbers_of("--set", name, text)
        for name, text in options.pairs("--set", arguments.settings).items()
    }
    with redirect_stdout(sys.stderr):  # what opaque functions print is no part of the data
        model = options.model_of(arguments)
        drawn = model.sample_prior(
            arguments.inputs,
            rows=arguments.rows,
            seed=arguments.seed,
            parameters=parameters,
            draw_parameters=arguments.draw_parameters,
            sizes=options.sizes_of(arguments),
            columns=options.columns_of(arguments, model.declarations),
        )
    honour_interrupts()  # JAX may have lost one
    if arguments.out is None:
        write_text(drawn.table(), sys.stdout)
    else:
        drawn.save(arguments.out)
    if arguments.truth is not None:
        drawn.save_truth(arguments.truth)
    for line in _notes(arguments, drawn):
        print(line, file=sys.stderr)
    return 0


def _notes(arguments: argparse.Namespace, drawn: Simulation) -> list[str]:
    """What was chosen for the user, and where the results are."""
    notes = []
    if drawn.assumed:
        chosen = ", ".join(f"{letter} = {size}" for letter, size in drawn.assumed.items())
        example = next(iter(drawn.assumed))
        notes.append(f"sizes the model leaves open: {chosen}; choose others as in --size {example}=3")
    if drawn.drawn:
        names = ", ".join(f"`{name}`" for name in drawn.drawn)
        notes.append(f"drawn inputs: {names}, over a few length-scales; give your own by --inputs FILE")
    if drawn.parameters:
        notes.append(
            "parameters: " + ", ".join(f"{name} = {_short(value)}" for name, value in drawn.parameters.items())
        )
    for option, path in (("data", arguments.out), ("truth", arguments.truth)):
        if path is not None:
            notes.append(f"{option} written to {path}")
    return notes


def _short(value: Any) -> str:
    flat = [f"{each:.4g}" for each in value.ravel()[:6].tolist()]
    return flat[0] if value.ndim == 0 else f"[{', '.join(flat)}{', ...' if value.size > 6 else ''}]"


# --- sbc -------------------------------------------------------------------------------------------------------------


def add_sbc(parser: argparse.ArgumentParser) -> None:
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


def run_sbc(arguments: argparse.Namespace) -> int:
    """`gpdsl sbc`: simulate data from the priors again and again, fit them, and compare the posteriors with the truth.

    Calibrate; an interrupt from the keyboard keeps the runs that were made.
    """
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
