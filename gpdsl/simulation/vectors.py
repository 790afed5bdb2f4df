"""Draws of a whole vector: `MultivariateNormal`, whose elements are drawn together, `Dirichlet` and `LKJ`."""

from __future__ import annotations

import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.language import model as m
from gpdsl.simulation.errors import NotPositiveDefinite
from gpdsl.simulation.interpreter import Interpreter
from gpdsl.symbolic.translate import axis_key

JITTER = 1e-10


def draw_vector(
    world: Interpreter, output: m.Output, call: m.DistributionCall, generator: np.random.Generator
) -> np.ndarray:
    """A draw [rows, elements] of N(mean, S), or N(mean, W W' + diag(sd^2)); the matrices may differ between rows."""
    (axis,) = output.axes
    count = world.size(axis)
    mean = np.broadcast_to(_own_first(world, call.arguments["mean"], axis).reshape(world.rows, -1), (world.rows, count))
    if "factor" in call.arguments:
        factor = _own_first(world, call.arguments["factor"], axis)
        drawn = np.einsum("npk,nk->np", factor, generator.standard_normal((world.rows, factor.shape[2])))
        if "sd" in call.arguments:
            sd = _own_first(world, call.arguments["sd"], axis).reshape(world.rows, -1)
            drawn = drawn + sd * generator.standard_normal((world.rows, count))
        return mean + drawn
    covariance = _own_first(world, call.arguments["covariance"], axis)
    scale = np.trace(covariance, axis1=1, axis2=2)[:, None, None] / count
    try:
        root = np.linalg.cholesky(covariance + JITTER * scale * np.eye(count))
    except np.linalg.LinAlgError as problem:
        raise DataError(NotPositiveDefinite(output.name), source=world.declarations.source.name) from problem
    return mean + np.einsum("npk,nk->np", root, generator.standard_normal((world.rows, count)))


def _own_first(world: Interpreter, expression: m.Expression, own: m.Axis) -> np.ndarray:
    """All elements, [rows, ...], the axis of the output first."""
    values = world.array(expression, {})
    keys = [axis_key(axis) for axis in expression.axes]
    return np.moveaxis(values, 1 + keys.index(axis_key(own)), 1) if axis_key(own) in keys else values


def draw_simplex(
    world: Interpreter, param: m.Param, call: m.DistributionCall, generator: np.random.Generator, count: int
) -> np.ndarray:
    """`count` draws [count, *axes] from a Dirichlet along the last axis: gamma variates that share their sum."""
    concentration = call.arguments["concentration"]
    keys = [axis_key(axis) for axis in param.axes]
    shapes = [
        float(np.ravel(world.value(concentration, dict(zip(keys, element, strict=True))))[0])
        for element in world.positions(param.axes)
    ]
    drawn = generator.gamma(np.broadcast_to(shapes, (count, len(shapes))))
    drawn = drawn.reshape(count, *(world.size(axis) for axis in param.axes))
    return drawn / drawn.sum(axis=-1, keepdims=True)


def draw_factor(
    world: Interpreter, param: m.Param, call: m.DistributionCall, generator: np.random.Generator
) -> np.ndarray:
    """Factors of correlation matrices from LKJ: the entries of a row before its diagonal one are in a ball."""
    eta = float(np.ravel(world.value(call.arguments["eta"], {}))[0])
    shape = tuple(world.size(axis) for axis in param.axes)
    found = np.zeros(shape)
    found[..., 0, 0] = 1.0
    for k in range(1, shape[-1]):
        squared = generator.beta(0.5 * k, eta + 0.5 * (shape[-1] - 1 - k), shape[:-2])
        direction = generator.standard_normal((*shape[:-2], k))
        direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
        found[..., k, :k] = np.sqrt(squared)[..., None] * direction
        found[..., k, k] = np.sqrt(1.0 - squared)
    return found
