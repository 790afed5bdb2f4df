"""Draws of outputs: the statement that observes an element, its distribution, the inverse of what is on its left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.language import model as m
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.simulation.distributions import draw
from gpdsl.simulation.errors import OpaqueDensity
from gpdsl.simulation.formulas import draw_by_formula, solve
from gpdsl.symbolic.cases import HOLDS

if TYPE_CHECKING:
    from gpdsl.simulation.world import World


def draw_element(world: World, name: str, element: tuple[int, ...]) -> np.ndarray:
    """A draw [rows] of one element of an output; NaN for an element that nothing observes. Labels count from 1."""
    for observation in world.declarations.observations:
        env = _environment(observation, name, element)
        if env is not None:
            return _draw(world, observation, name, element, env)
    return np.full(world.rows, np.nan)


def _environment(observation: m.Observation, name: str, element: tuple[int, ...]) -> dict[str, int] | None:
    """The indices of a statement when it observes this element; None when it does not."""
    if name not in observation.outputs:
        return None
    env: dict[str, int] = {}
    for subscript, position in zip(observation.subscripts, element, strict=False):
        match subscript:
            case m.Fixed(position=fixed) if fixed != position:
                return None
            case m.IndexValue(index=index):
                env[index] = position
    for guard in observation.guards:
        if guard.operator != "all" and not HOLDS[guard.operator](env[guard.index], guard.value):
            return None
    return env


def _draw(
    world: World, observation: m.Observation, name: str, element: tuple[int, ...], env: Mapping[str, int]
) -> np.ndarray:
    call, declared = observation.distribution, world.declarations.outputs[name]
    if call.external:
        raise DataError(OpaqueDensity(name, call.name), source=world.declarations.source.name)
    generator = world.generator(name, element)
    if call.log_density is not None:
        formulas = (call.log_density, observation.transform)
        return draw_by_formula(world, declared, element, formulas, env, generator)
    if DISTRIBUTIONS[call.name].support == "vector":
        return world.vector(declared, call)[:, element[0] - 1]
    shown = name if observation.transform is None else f"the left side of `{name}`"
    drawn = draw(world, shown, call, env, generator)
    if observation.transform is None:
        return drawn
    return solve(world, declared, element, observation.transform, env, drawn)
