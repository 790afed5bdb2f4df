"""Sizes and inputs that the user leaves open: sizes of 2, and inputs over a range in which the latents vary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from gpdsl.language import model as m
from gpdsl.simulation.processes import falling_distances, processes_of

if TYPE_CHECKING:
    from gpdsl.simulation.world import World

DEFAULT_SIZE = 2
LARGEST_COUNT = 20

WIDTH, FAR_WIDTH = 10.0, 3.5
"""Range of an input in length-scales: 10 for one column, shrinking as 10 / D, but not below 3.5 / sqrt(D).

Two rows then differ by a few length-scales in all, whatever the number of columns: latents neither stay constant nor
become white noise.
"""


def letters(declarations: m.Declarations) -> Iterator[str]:
    """Every dimension letter of a model, in order of appearance; some several times."""
    tables = (declarations.inputs, declarations.outputs, declarations.consts, declarations.params, declarations.rows)
    axes = [axis for table in tables for each in table.values() for axis in each.axes]  # type: ignore[attr-defined]
    axes += [
        axis for table in (declarations.latents, declarations.lets) for each in table.values() for axis in each.axes
    ]  # type: ignore[attr-defined]
    labelled: list[m.Input | m.Output] = [*declarations.inputs.values(), *declarations.outputs.values()]
    axes += [each.label for each in labelled if each.label is not None]
    axes += [index.axis for index in declarations.indices.values()]
    axes += [axis for external in declarations.externals.values() for axis in external.result]
    return (axis.dimension for axis in axes if axis.size is None and axis.dimension is not None)


def draw_input(world: World, name: str) -> np.ndarray:
    """An input [rows, *axes] where none is given.

    An argument of a latent is uniform: from 0 when it is positive or a time, around 0 when it is real, over `WIDTH`
    length-scales of the latents' own kernels. Other inputs are standard normal, uniform between 0.5 and 1.5 when
    positive or times, and counts from 1 to 20.
    """
    declared, generator = world.declarations.inputs[name], world.generator(name)
    shape = (world.rows, *world.shape(declared.axes))
    users = [latent for latent in world.declarations.latents.values() if name in _seen_by(world, latent)]
    if declared.label is not None:
        return generator.integers(1, world.size(declared.label) + 1, size=shape).astype(float)
    if declared.kind == "count":
        return generator.integers(1, LARGEST_COUNT + 1, size=shape).astype(float)
    if not users:
        return generator.standard_normal(shape) if declared.kind == "real" else generator.uniform(0.5, 1.5, size=shape)
    width = np.exp(np.mean([np.log(_width(world, latent, name)) for latent in users], axis=0)).reshape(shape[1:])
    low = -0.5 * width if declared.kind == "real" else 0.0
    values = low + width * generator.uniform(size=shape)
    # one number per row: in order, as measurements along a line or in time usually come
    return values if declared.axes else np.sort(values)


def _seen_by(world: World, latent: m.Latent) -> list[str]:
    """The inputs at which a latent is looked at, as its arguments or in place of them."""
    return [name for functional in world.functionals[latent.name] for name in functional.at or latent.arguments]


def _width(world: World, latent: m.Latent, name: str) -> np.ndarray:
    """The range [columns] that suits one latent."""
    slot = next(
        names.index(name)
        for functional in world.functionals[latent.name]
        if name in (names := functional.at or latent.arguments)
    )
    sizes = [_columns(world, argument) for argument in latent.arguments]
    start = sum(sizes[:slot])
    distances = falling_distances(processes_of(world, latent)[0], sum(sizes), range(start, start + sizes[slot]))
    total = sum(sizes)
    return distances * max(WIDTH / total, FAR_WIDTH / np.sqrt(total))


def _columns(world: World, argument: str) -> int:
    return int(np.prod(world.shape(world.declarations.axes_of(argument))))
