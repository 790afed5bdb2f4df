"""Where the functionals of a latent are taken, and their covariance under its kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.form import canonical
from gpdsl.kernels.functionals import Values
from gpdsl.language import model as m
from gpdsl.program.precision import precision
from gpdsl.symbolic.translate import axis_key

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
    del functionals
    return _covariance(world, latent, env, np.concatenate(points))


def _covariance(
    world: World, latent: m.Latent, env: Mapping[str, int], a: np.ndarray, b: np.ndarray | None = None
) -> np.ndarray:
    kernel = canonical(latent.kernel)
    scale = np.prod([world.value(factor, env) for factor in kernel.factors])
    arguments = [_fixed(world, argument, env) for argument in kernel.arguments]
    with precision("float64"):
        others = None if b is None else Values(jnp.asarray(b))
        values = covariance(kernel.form, [jnp.asarray(each) for each in arguments], Values(jnp.asarray(a)), others)
        return float(scale) * np.asarray(values)


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
        values = _covariance(world, latent, env, np.ones((1, columns)), points)[0]
        fallen = values < np.exp(-0.5) * values[0]
        place = int(np.argmax(fallen))
        found.append(distances[place] if fallen.any() and place > 0 else 1.0)
    return np.asarray(found)
