"""`gpdsl explain`: print the plan for a model and its data: what is exact, what is sampled, and what a step costs."""

from __future__ import annotations

import argparse

from gpdsl.cli.options import (
    add_choices,
    add_data,
    add_model,
    add_standardise,
    choices_of,
    columns_of,
    model_of,
    standardise_of,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Model, data and choices."""
    add_model(parser)
    add_data(parser)
    add_standardise(parser)
    add_choices(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    choices, model = choices_of(arguments), model_of(arguments)
    columns = columns_of(arguments, model.declarations)
    standardise = standardise_of(arguments)
    print(model.explain(arguments.data, columns=columns, standardise=standardise, **choices))
    return 0
