"""Draws from a distribution as the checked model writes it, one number per row, by the samplers of predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import sympy as sp

from gpdsl.data.errors import DataError
from gpdsl.language import model as m
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.lowering.table import evaluate
from gpdsl.program.cache import precision
from gpdsl.results import conditional
from gpdsl.simulation.errors import ImpossibleArgument, NotPositiveDefinite
from gpdsl.simulation.interpreter import Environment, Interpreter
from gpdsl.symbolic.laws import Law, log_probabilities
from gpdsl.symbolic.likelihoods import LISTED
from gpdsl.symbolic.translate import axis_key

MOST = 6
"""Arguments shown in a message."""

OUTSIDE: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "real": lambda values: np.zeros(values.shape, bool),
    "positive": lambda values: values <= 0,
    "unit": lambda values: (values < 0) | (values > 1),
    "count": lambda values: (values < 0) | (values != np.floor(values)),
}
"""Where an argument lies outside its domain."""


def law_of(world: Interpreter, call: m.DistributionCall, env: Environment) -> Law:
    """The law of one element, its arguments [rows]; those with one value per level or component are tuples."""
    held = {each.name: each.per for each in DISTRIBUTIONS[call.name].parameters}
    arguments: dict[str, np.ndarray | tuple[np.ndarray, ...]] = {}
    for name, expression in call.arguments.items():
        more = [axis for axis in expression.axes if axis_key(axis) not in env] if held.get(name) in LISTED else []
        keys = [axis_key(axis) for axis in more]
        values = [
            _on_rows(world, expression, {**env, **dict(zip(keys, element, strict=True))})
            for element in world.positions(tuple(more))
        ]
        arguments[name] = tuple(values) if more else values[0]
    listed = tuple(value for name, value in arguments.items() if name.startswith("weights["))
    return Law(
        call.name,
        {"weights": listed} if listed else arguments,
        tuple(law_of(world, each, env) for each in call.components),
    )


def _on_rows(world: Interpreter, expression: m.Expression, env: Environment) -> np.ndarray:
    return np.array(np.broadcast_to(world.value(expression, env), world.rows), float)


def draw(
    world: Interpreter, name: str, call: m.DistributionCall, env: Environment, generator: np.random.Generator
) -> np.ndarray:
    """A draw [rows] from a distribution; levels count from 1. Raises DataError, naming the row, where it has none."""
    law = law_of(world, call, env)
    with np.errstate(all="ignore"):
        try:
            drawn = _level(law, generator) if law.levels else np.asarray(conditional.draw(law, generator), float)
        except ValueError:  # NumPy refuses a whole array for one impossible argument
            drawn = np.full(world.rows, np.nan)
    return _finite(world, name, law, drawn)


def _level(law: Law, generator: np.random.Generator) -> np.ndarray:
    leaves = law.leaves()
    symbols = [sp.Symbol(f"argument{place}", real=True) for place in range(len(leaves))]
    table = dict(zip(symbols, leaves, strict=True))
    with precision("float64"):
        log_chances = [evaluate(each, table.__getitem__) for each in log_probabilities(law.filled(symbols))]
        chances = np.stack([np.broadcast_to(np.asarray(each, float), len(leaves[0])) for each in log_chances], axis=-1)
    drawn = conditional.draw_categorical(generator, np.nan_to_num(chances, nan=0.0)) + 1.0
    return np.where(np.isnan(chances).any(axis=-1), np.nan, drawn)


def _finite(world: Interpreter, name: str, law: Law, drawn: np.ndarray) -> np.ndarray:
    """The draws themselves, all finite. Raises DataError, naming the row, where they are not."""
    bad = ~np.isfinite(drawn)
    if not bad.any():
        return drawn
    arguments = list(_named(law))
    wrong = [~np.isfinite(value) | OUTSIDE[domain](value) for _, domain, value in arguments]
    row = int(np.argmax(np.any(wrong, axis=0) if np.any(wrong) else bad))
    blamed = [each for each, mask in zip(arguments, wrong, strict=True) if mask[row]] or arguments
    shown = ", ".join(f"{argument} = {value[row]:.4g}" for argument, _, value in blamed[:MOST])
    raise DataError(ImpossibleArgument(name, law.name, shown, row + 1), source=world.declarations.source.name)


def _named(law: Law, of: str = "") -> Iterator[tuple[str, str, np.ndarray]]:
    """Every argument as a message calls it, its domain, and its values; components are counted."""
    domains = {each.name: each.domain for each in DISTRIBUTIONS[law.name].parameters}
    for name, value in law.arguments.items():
        for place, each in enumerate(value if isinstance(value, tuple) else (value,), 1):
            yield f"{name}[{place}]{of}" if isinstance(value, tuple) else f"{name}{of}", domains[name], each
    for place, component in enumerate(law.components, 1):
        which = f" of component {place}" if len(law.components) > 1 else f" of `{component.name}`"
        yield from _named(component, which)


# Draws of a whole vector: `MultivariateNormal`, whose elements are drawn together, `Dirichlet` and `LKJ`.

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
