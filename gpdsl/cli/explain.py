"""`gpdsl explain`: print the plan for a model and its data: what is exact, what is sampled, and what a step costs."""

from __future__ import annotations

import argparse

from gpdsl.cli import options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Model, data and choices."""
    options.add_model(parser)
    options.add_data(parser)
    options.add_standardise(parser)
    options.add_choices(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    choices, model = options.choices_of(arguments), options.model_of(arguments)
    columns = options.columns_of(arguments, model.declarations)
    standardise = options.standardise_of(arguments)
    print(model.explain(arguments.data, columns=columns, standardise=standardise, **choices))
    return 0
