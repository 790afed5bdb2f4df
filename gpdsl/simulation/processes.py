"""Where the functionals of a latent are taken, and their covariance under its kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from gpdsl.kernels.canonical import canonical
from gpdsl.kernels.columns import Space
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Derivatives, Values, stacked
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


def covariance_of(
    world: World,
    latent: m.Latent,
    env: Mapping[str, int],
    functionals: Sequence[m.Functional],
    points: Sequence[np.ndarray],
) -> np.ndarray:
    """The covariance of one element of a latent under all functionals at all rows."""
    asked = [_asked(world, latent, functional, place) for functional, place in zip(functionals, points, strict=True)]
    return _covariance(world, latent, env, asked)


def _asked(world: World, latent: m.Latent, functional: m.Functional, points: np.ndarray) -> Values | Derivatives:
    """A functional of the model as one of the kernels, whose columns count from 0 along all arguments."""
    if not functional.derivative:
        return Values(jnp.asarray(points))
    sizes = [int(np.prod(world.shape(world.declarations.axes_of(name)))) for name in latent.arguments]
    columns = tuple(sum(sizes[: each.argument]) + int(str(each.column)) - 1 for each in functional.derivative)
    return Derivatives(jnp.asarray(points), columns)


def _covariance(
    world: World,
    latent: m.Latent,
    env: Mapping[str, int],
    a: Sequence[Values | Derivatives],
    b: Sequence[Values | Derivatives] | None = None,
) -> np.ndarray:
    kernel = canonical(latent.kernel, Space.of(Translator(world.declarations, world.sizes), latent))
    scale = np.prod([world.value(factor, env) for factor in kernel.factors])
    arguments = [jnp.asarray(_fixed(world, argument, env)) for argument in kernel.arguments]
    others = None if b is None else stacked(tuple(b))
    return float(scale) * np.asarray(covariance(kernel.form, arguments, stacked(tuple(a)), others))


def _fixed(world: World, expression: m.Expression, env: Mapping[str, int]) -> np.ndarray:
    """A kernel argument: one number, or one per column of the input."""
    rest = tuple(axis for axis in expression.axes if axis_key(axis) not in env)
    keys = [axis_key(axis) for axis in rest]
    values = [
        float(world.value(expression, {**env, **dict(zip(keys, element, strict=True))}))
        for element in world.positions(rest)
    ]
    return np.asarray(values).reshape(world.shape(rest))


def falling_distances(world: World, latent: m.Latent, env: Mapping[str, int], columns: int, among: range) -> np.ndarray:
    """The distance along each of some input columns at which the covariance falls to exp(-1/2) of its start.

    That is the length-scale of an RBF, and a meaningful one for any kernel that falls at all; 1 for one that does not.
    """
    distances = np.geomspace(1e-4, 1e6, 401)
    found = []
    for column in among:
        points = np.ones((len(distances), columns))
        points[:, column] += distances
        values = _covariance(world, latent, env, [Values(jnp.ones((1, columns)))], [Values(jnp.asarray(points))])[0]
        fallen = values < np.exp(-0.5) * values[0]
        place = int(np.argmax(fallen))
        found.append(distances[place] if fallen.any() and place > 0 else 1.0)
    return np.asarray(found)
