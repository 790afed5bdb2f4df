"""Draws from a distribution: by the samplers of predictions, or where only a formula is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import sympy as sp
from scipy.special import expit, log_expit

from gpdsl.data.errors import DataError
from gpdsl.language import model as m
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.lowering.table import evaluate
from gpdsl.program.cache import precision
from gpdsl.results import conditional
from gpdsl.simulation.errors import ImpossibleArgument, NotPositiveDefinite, NoValue
from gpdsl.simulation.interpreter import Environment, Interpreter
from gpdsl.symbolic.laws import LISTED, Law, log_probabilities
from gpdsl.symbolic.translate import axis_key

if TYPE_CHECKING:
    from gpdsl.simulation.world import World


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
    world: Interpreter, param: m.Param, call: m.DistributionCall, generator: np.random.Generator
) -> np.ndarray:
    """A draw [*axes] from a Dirichlet along the last axis: gamma variates that share their sum."""
    concentration = call.arguments["concentration"]
    keys = [axis_key(axis) for axis in param.axes]
    shapes = [
        float(np.ravel(world.value(concentration, dict(zip(keys, element, strict=True))))[0])
        for element in world.positions(param.axes)
    ]
    drawn = generator.gamma(shapes).reshape([world.size(axis) for axis in param.axes])
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


# Draws where only a formula is known: of a log density, by its numerical distribution function; of a transform.

FALL = 40.0
"""How far below its maximum a log density is followed: what lies outside has a probability near exp(-FALL)."""

COARSE, FINE, ZOOMS, BISECTIONS = 801, 2001, 25, 100
LARGEST_COUNT = 1 << 16
Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Line:
    """How the real line is mapped onto the values of an output, and the log of the slope of that map."""

    onto: Function
    log_slope: Function


LINES: Mapping[str, Line] = {
    "real": Line(lambda u: u, lambda u: np.zeros_like(u)),
    "positive": Line(np.exp, lambda u: u),
    "unit": Line(expit, lambda u: log_expit(u) + log_expit(-u)),
}


def draw_by_formula(
    world: World,
    output: m.Output,
    element: tuple[int, ...],
    formulas: tuple[m.Expression, m.Expression | None],
    env: Mapping[str, int],
    generator: np.random.Generator,
) -> np.ndarray:
    """A draw [rows] of an output element from the log density, normalised or not, of a transform of it (or itself)."""
    log_density = _along(world, output, element, formulas[0], env)
    if formulas[1] is not None:
        log_density = _with_slope(log_density, _along(world, output, element, formulas[1], env))
    uniform = generator.random(world.rows)
    with np.errstate(all="ignore"):
        if output.kind in ("count", "binary", "label", "ordinal"):
            drawn = _discrete(world, output, log_density, uniform)
        else:
            line = LINES[output.kind]
            drawn = line.onto(_continuous(lambda u: log_density(line.onto(u)) + line.log_slope(u), uniform, world.rows))
    return _found(world, output, drawn, "its density is zero or no number wherever it was looked at")


def solve(
    world: World,
    output: m.Output,
    element: tuple[int, ...],
    transform: m.Expression,
    env: Mapping[str, int],
    target: np.ndarray,
) -> np.ndarray:
    """The values [rows] of an output element at which a monotone transform of it equals `target`, by bisection."""
    function, onto = _along(world, output, element, transform, env), LINES[output.kind].onto
    with np.errstate(all="ignore"):
        found = onto(_inverse(lambda u: function(onto(u)), target))
    return _found(world, output, found, "its transform does not reach the value drawn on the left side")


def _along(
    world: World, output: m.Output, element: tuple[int, ...], formula: m.Expression, env: Mapping[str, int]
) -> Function:
    """A formula as a function of the values of an output element, [grid, rows] to [grid, rows]."""
    key = ("output", output.name, element)

    def function(values: np.ndarray) -> np.ndarray:
        return np.broadcast_to(world.hypothetically(key, values).value(formula, env), values.shape)

    return function


def _with_slope(log_density: Function, transform: Function) -> Function:
    """The density of y from that of t(y): times |t'(y)|, by central differences."""

    def function(values: np.ndarray) -> np.ndarray:
        step = 1e-6 * np.maximum(np.abs(values), 1e-3)
        slope = (transform(values + step) - transform(values - step)) / (2 * step)
        return log_density(values) + np.log(np.abs(slope))

    return function


def _found(world: World, output: m.Output, drawn: np.ndarray, what: str) -> np.ndarray:
    bad = ~np.isfinite(drawn)
    if bad.any():
        raise DataError(NoValue(output.name, what, int(np.argmax(bad)) + 1), source=world.declarations.source.name)
    return drawn


def _spread(points: int, rows: int) -> np.ndarray:
    """Points [points, rows] of either sign, dense around zero, up to about 1e8."""
    return np.broadcast_to(1e-3 * np.sinh(np.linspace(-26.0, 26.0, points))[:, None], (points, rows))


def _continuous(log_density: Function, uniform: np.ndarray, rows: int) -> np.ndarray:
    """Inversion of the distribution function of a density on the real line, [rows]."""

    def at(values: np.ndarray) -> np.ndarray:
        found = log_density(values)
        return np.where(np.isnan(found), -np.inf, found)

    mode, height = _mode(at, rows)
    below = _reach(at, mode, height, -1.0)
    above = _reach(at, mode, height, 1.0)
    # distances from the mode that are dense near it and reach into heavy tails: scale * sinh(t)
    scale = np.minimum(below[0], above[0])
    ends = -np.arcsinh(below[1] / scale), np.arcsinh(above[1] / scale)
    t = ends[0] + (ends[1] - ends[0]) * np.linspace(0.0, 1.0, FINE)[:, None]
    values = mode + scale * np.sinh(t)
    weight = np.exp(at(values) - height) * np.cosh(t)
    steps = 0.5 * (weight[1:] + weight[:-1])
    cumulative = np.concatenate([np.zeros((1, rows)), np.cumsum(steps, axis=0)])
    wanted = uniform * cumulative[-1]
    place = np.clip(np.sum(cumulative <= wanted, axis=0) - 1, 0, FINE - 2)
    row = np.arange(rows)
    part = (wanted - cumulative[place, row]) / steps[place, row]
    drawn = values[place, row] + part * (values[place + 1, row] - values[place, row])
    return np.where(np.isfinite(height), drawn, np.nan)


def _mode(at: Function, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Where a density is largest, and its logarithm there: the best point of a grid, zoomed in on."""
    grid = _spread(COARSE, rows)
    row = np.arange(rows)
    for _ in range(ZOOMS):
        best = np.clip(np.argmax(at(grid), axis=0), 1, len(grid) - 2)
        low, high = grid[best - 1, row], grid[best + 1, row]
        grid = low + (high - low) * np.linspace(0.0, 1.0, 41)[:, None]
    heights = at(grid)
    best = np.argmax(heights, axis=0)
    return grid[best, row], heights[best, row]


def _reach(at: Function, mode: np.ndarray, height: np.ndarray, sign: float) -> tuple[np.ndarray, np.ndarray]:
    """Distances from the mode at which the log density has fallen by 1/2, and by `FALL` for good."""
    distances = 2.0 ** np.arange(-60.0, 80.0, 0.5)[:, None]
    distances = np.where(distances > 1e-13 * np.abs(mode), distances, np.inf)
    fall = height - at(mode + sign * distances)
    fallen = np.where(np.isfinite(distances), fall, 0.0)
    first = np.argmax(fallen > 0.5, axis=0)
    last = len(fallen) - 1 - np.argmax((fallen < FALL)[::-1], axis=0)
    row = np.arange(len(mode))
    outer = distances[np.minimum(last + 1, len(distances) - 1), row]
    return distances[first, row], outer


def _discrete(world: World, output: m.Output, log_density: Function, uniform: np.ndarray) -> np.ndarray:
    """Inversion over whole numbers: the levels of a label, 0 and 1, or counts as far as they are probable."""
    first = 1 if output.label is not None else 0
    count = 2 if output.label is None else world.size(output.label)
    if output.kind != "count":
        return first + _invert_whole(log_density, first, count, uniform)[0]
    count = 256
    while True:
        drawn, settled = _invert_whole(log_density, 0, count, uniform)
        if settled or count >= LARGEST_COUNT:
            return drawn if settled else np.full_like(drawn, np.nan)
        count *= 4


def _invert_whole(log_density: Function, first: int, count: int, uniform: np.ndarray) -> tuple[np.ndarray, bool]:
    values = np.broadcast_to(np.arange(first, first + count, dtype=float)[:, None], (count, len(uniform)))
    logs = log_density(values)
    logs = np.where(np.isnan(logs), -np.inf, logs)
    height = logs.max(axis=0)
    cumulative = np.cumsum(np.exp(logs - height), axis=0)
    drawn = np.sum(cumulative <= uniform * cumulative[-1], axis=0).astype(float)
    settled = bool(np.all((logs[-1] < height - FALL) & (np.argmax(logs, axis=0) < count - 1)))
    return np.where(np.isfinite(height), drawn, np.nan), settled


def _inverse(function: Function, target: np.ndarray) -> np.ndarray:
    """Where a monotone function takes the values `target`, [rows]; outside its domain it is no number."""
    rows = len(target)
    grid = np.array(_spread(COARSE, rows))
    values = function(grid)
    inside = np.isfinite(values)
    first = np.argmax(inside, axis=0)
    last = len(grid) - 1 - np.argmax(inside[::-1], axis=0)
    row = np.arange(rows)
    rising = values[last, row] >= values[first, row]
    passed = np.where(inside, np.where(rising, values >= target, values <= target), False)
    beyond = np.arange(len(grid))[:, None] > last
    upper = np.argmax(passed | beyond, axis=0)
    reached = (passed | beyond).any(axis=0) & (upper > 0)
    low, high = grid[upper - 1, row], grid[upper, row]
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        value = function(middle[None])[0]
        over = np.where(
            np.isfinite(value), np.where(rising, value >= target, value <= target), middle > grid[first, row]
        )
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    settled = np.isfinite(function(low[None])[0]) | np.isfinite(function(high[None])[0])
    return np.where(reached & settled & inside.any(axis=0), 0.5 * (low + high), np.nan)
