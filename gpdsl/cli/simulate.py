"""`gpdsl simulate`: draw a data set from a model's own prior, to try a model before there are data."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from gpdsl.cli import options
from gpdsl.inference.watch import honour_interrupts

if TYPE_CHECKING:
    from gpdsl.simulation.simulate import Simulation


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument(
        "--set",
        metavar="PARAM=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="value of a parameter; commas separate an array's (default: its initial value)",
    )
    parser.add_argument("--draw-parameters", action="store_true", help="draw parameters that have priors from them")


def run(arguments: argparse.Namespace) -> int:
    """Draw and write."""
    from gpdsl.data.write import check_format, write_text

    for option, path in (("--out", arguments.out), ("--truth", arguments.truth)):
        if path is not None:
            options.check_writable(option, path)
            check_format(path)
    parameters = {
        name: options.numbers_of("--set", name, text)
        for name, text in options.pairs("--set", arguments.settings).items()
    }
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
