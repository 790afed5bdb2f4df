"""Draws from a distribution as the checked model writes it, one number per row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.language import model as m
from gpdsl.results.outputs import SAMPLERS
from gpdsl.simulation.errors import ImpossibleArgument
from gpdsl.simulation.interpreter import Interpreter


def arguments_of(world: Interpreter, call: m.DistributionCall, env: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The arguments of a distribution that are one number per row, [rows]."""
    values = {name: world.value(argument, env) for name, argument in call.arguments.items()}
    return {name: np.array(np.broadcast_to(value, world.rows), float) for name, value in values.items()}


def draw(
    world: Interpreter, name: str, call: m.DistributionCall, env: Mapping[str, int], generator: np.random.Generator
) -> np.ndarray:
    """A draw [rows] from a distribution of one number. Raises DataError, naming the row, where it has none."""
    values = arguments_of(world, call, env)
    with np.errstate(all="ignore"):
        try:
            drawn = np.asarray(SAMPLERS[call.name](generator, values), float)
        except ValueError:
            drawn = np.full(world.rows, np.nan)
    return finite(world, name, call.name, values, drawn)


def finite(
    world: Interpreter, name: str, distribution: str, values: Mapping[str, np.ndarray], drawn: np.ndarray
) -> np.ndarray:
    """The draws themselves, all finite. Raises DataError, naming the row, where they are not."""
    bad = ~np.isfinite(drawn)
    if not bad.any():
        return drawn
    row = _culprit(values, bad)
    shown = ", ".join(f"{argument} = {value[row]:.4g}" for argument, value in values.items())
    raise DataError(ImpossibleArgument(name, distribution, shown, row + 1), source=world.declarations.source.name)


def _culprit(values: Mapping[str, np.ndarray], bad: np.ndarray) -> int:
    """The row to show: one with an argument that is no number, else with the smallest argument."""
    stacked = np.stack(list(values.values())) if values else np.zeros((1, len(bad)))
    odd = ~np.isfinite(stacked).all(axis=0)
    if odd.any():
        return int(np.argmax(odd))
    return int(np.argmin(stacked.min(axis=0))) if bad.all() else int(np.argmax(bad))
