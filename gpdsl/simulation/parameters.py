"""Parameters of a simulation: as given, else drawn from their priors when asked for, else where a fit would start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.errors import GpdslError
from gpdsl.language import model as m
from gpdsl.program.parameters import make_parameters as starting_values
from gpdsl.simulation.distributions import draw
from gpdsl.simulation.errors import WrongRequest
from gpdsl.simulation.vectors import draw_factor, draw_simplex
from gpdsl.symbolic.translate import Translator, axis_key

if TYPE_CHECKING:
    from gpdsl.simulation.world import World

TRIES = 1000
"""Draws from a prior before giving up on one inside the parameter's domain."""


def make_parameters(world: World, given: Mapping[str, Any], drawn: bool) -> dict[str, np.ndarray]:
    """Every parameter, [*axes]. Raises GpdslError for a value outside its domain or of the wrong shape."""
    declarations = world.declarations
    translator = Translator(declarations, world.sizes)
    starting = starting_values(translator, initial=given)
    values = {name: np.asarray({**starting.initial, **starting.held}[name], float) for name in declarations.params}
    world.parameters = values
    for name, param in declarations.params.items():
        if drawn and param.prior is not None and name not in given:
            values[name] = _from_prior(world, translator, param)
    return values


def _from_prior(world: World, translator: Translator, param: m.Param) -> np.ndarray:
    """A draw from the prior inside the parameter's domain, by rejection; ordered ones are sorted draws."""
    assert param.prior is not None
    keys = [axis_key(axis) for axis in param.axes]
    generator = world.generator(param.name)
    many = world.with_inputs({})
    many.rows = TRIES
    if param.prior.name == "Dirichlet":
        return draw_simplex(many, param, param.prior, generator, 1)[0]
    if param.prior.name == "LKJ":
        return draw_factor(many, param, param.prior, generator)
    drawn = [
        draw(many, param.name, param.prior, dict(zip(keys, element, strict=True)), generator)
        for element in world.positions(param.axes)
    ]
    values = np.stack(drawn, axis=-1).reshape(TRIES, *world.shape(param.axes))
    if param.constraint == "ordered":
        values = np.sort(values, axis=-1)
    for value in values:
        if _inside(translator, param, value):
            return value
    what = f"a draw of `{param.name}` from its prior"
    raise DataError(
        WrongRequest(what, f"never {param.constraint} in {TRIES} tries", "a prior on the parameter's own domain"),
        source=world.declarations.source.name,
    )


def _inside(translator: Translator, param: m.Param, value: np.ndarray) -> bool:
    try:
        starting_values(translator, initial={param.name: value})
    except GpdslError:
        return False
    return True
