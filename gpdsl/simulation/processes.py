"""Where the functionals of a latent are taken, and their covariance under its kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from gpdsl.kernels.canonical import canonical
from gpdsl.kernels.columns import Space
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.form import Form
from gpdsl.kernels.functionals import Derivatives, Functionals, Values, stacked
from gpdsl.language import model as m
from gpdsl.symbolic.translate import Translator, axis_key

if TYPE_CHECKING:
    from gpdsl.simulation.world import World


def points_of(world: World, latent: m.Latent, functional: m.Functional) -> np.ndarray:
    """The points [rows, columns] at which a functional looks at a latent: its arguments side by side."""
    names = functional.at or latent.arguments
    return np.concatenate([_argument(world, name).reshape(world.rows, -1) for name in names], axis=1)


def _argument(world: World, name: str) -> np.ndarray:
    if name in world.declarations.latents:
        return world.latent(name, m.VALUE)
    return world.quantity(name)


@dataclass(frozen=True, eq=False)
class Process:
    """One element of a latent: its kernel with numbers in it. Elements with equal `key` differ in `scale` only."""

    form: Form
    scale: float
    arguments: tuple[np.ndarray, ...]

    @property
    def key(self) -> tuple[bytes, ...]:
        """What the covariance depends on besides the scale."""
        return tuple(argument.tobytes() for argument in self.arguments)

    def covariance(self, a: Functionals, b: Functionals | None = None) -> np.ndarray:
        """The covariance of functionals at unit scale."""
        return np.asarray(covariance(self.form, [jnp.asarray(each) for each in self.arguments], a, b))


def processes_of(world: World, latent: m.Latent) -> list[Process]:
    """Every element of a latent, in row-major order."""
    kernel = canonical(latent.kernel, Space.of(Translator(world.declarations, world.sizes), latent))
    keys, found = [axis_key(axis) for axis in latent.axes], []
    for element in world.positions(latent.axes):
        env = dict(zip(keys, element, strict=True))
        scale = np.prod([world.value(factor, env) for factor in kernel.factors])
        arguments = tuple(_fixed(world, argument, env) for argument in kernel.arguments)
        found.append(Process(kernel.form, float(scale), arguments))
    return found


def functionals_at(
    world: World, latent: m.Latent, asked: Sequence[m.Functional], points: Sequence[np.ndarray]
) -> Functionals:
    """Functionals of the model, each at all rows, as those of the kernels, whose columns count from 0."""
    sizes = [int(np.prod(world.shape(world.declarations.columns_of(name)))) for name in latent.arguments]
    parts: list[Values | Derivatives] = []
    for functional, place in zip(asked, points, strict=True):
        columns = tuple(sum(sizes[: each.argument]) + int(str(each.column)) - 1 for each in functional.derivative)
        parts.append(Derivatives(jnp.asarray(place), columns) if columns else Values(jnp.asarray(place)))
    return stacked(tuple(parts))


def _fixed(world: World, expression: m.Expression, env: Mapping[str, int]) -> np.ndarray:
    """A kernel argument: one number, or one per column of the input."""
    rest = tuple(axis for axis in expression.axes if axis_key(axis) not in env)
    keys = [axis_key(axis) for axis in rest]
    values = [
        float(world.value(expression, {**env, **dict(zip(keys, element, strict=True))}))
        for element in world.positions(rest)
    ]
    return np.asarray(values).reshape(world.shape(rest))


def falling_distances(process: Process, columns: int, among: range) -> np.ndarray:
    """The distance along each of some input columns at which the covariance falls to exp(-1/2) of its start.

    That is the length-scale of an RBF, and a meaningful one for any kernel that falls at all; 1 for one that does not.
    """
    distances = np.geomspace(1e-4, 1e6, 401)
    found = []
    for column in among:
        points = np.ones((len(distances), columns))
        points[:, column] += distances
        values = process.covariance(Values(jnp.ones((1, columns))), Values(jnp.asarray(points)))[0]
        fallen = values < np.exp(-0.5) * values[0]
        place = int(np.argmax(fallen))
        found.append(distances[place] if fallen.any() and place > 0 else 1.0)
    return np.asarray(found)
