"""Where the functionals of a latent are taken, and their covariance under its kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.kernels.columns import Space, canonical
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.form import Form
from gpdsl.kernels.functionals import Derivatives, Functionals, Integrals, Values, stacked
from gpdsl.language import model as m
from gpdsl.simulation.errors import NotPositiveDefinite, TooManyPoints
from gpdsl.simulation.interpreter import Interpreter, resolved
from gpdsl.symbolic.readings import reading, shown as as_read
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
    if m.is_number(name):
        return np.full(world.rows, float(name))
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
    parts: list[Values | Derivatives | Integrals] = []
    for functional, place in zip(asked, points, strict=True):
        if functional.integrated:
            parts.append(Integrals(jnp.asarray(place[:, :1]), jnp.asarray(place[:, 1:])))
            continue
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


# Joint draws of a latent: all its functionals at all rows, by a factor of their covariance matrix.

MAX_POINTS = 5000
"""Rows times functionals of one latent: the factor takes n^3 / 3 operations and 8 n^2 bytes."""

JITTERS = tuple(10.0**power for power in range(-10, -4))
"""Relative to the mean variance: far below any noise that data could show."""


class JointDraws:
    """Draws of one latent's elements; elements with the same covariance up to scale share its factor."""

    def __init__(self, latent: str, source: str, functionals: Functionals) -> None:
        if len(functionals) > MAX_POINTS:
            raise DataError(TooManyPoints(latent, len(functionals), MAX_POINTS), source=source)
        self.latent = latent
        self.source = source
        self.functionals = functionals
        self._factors: dict[tuple[bytes, ...], np.ndarray] = {}

    def draw(self, process: Process, generator: np.random.Generator) -> np.ndarray:
        """One draw [functionals] around zero."""
        if process.key not in self._factors:
            # only the latest is kept: a factor of thousands of rows is large, and equal ones follow one another
            self._factors = {process.key: self._factor(process.covariance(self.functionals))}
        if not process.scale >= 0:
            raise DataError(NotPositiveDefinite(self.latent), source=self.source)
        return np.sqrt(process.scale) * self._factors[process.key] @ generator.standard_normal(len(self.functionals))

    def _factor(self, covariance: np.ndarray) -> np.ndarray:
        if not np.isfinite(covariance).all():
            raise DataError(NotPositiveDefinite(self.latent), source=self.source)
        scale = max(float(np.mean(np.diag(covariance))), np.finfo(float).tiny)
        for jitter in JITTERS:
            try:
                return np.linalg.cholesky(covariance + jitter * scale * np.eye(len(covariance)))
            except np.linalg.LinAlgError:
                continue
        raise DataError(NotPositiveDefinite(self.latent), source=self.source)


# What the model asks of each latent: every functional read anywhere, so that all of them are drawn jointly.


def functionals_of(interpreter: Interpreter) -> dict[str, tuple[m.Functional, ...]]:
    """The functionals of each latent, its value at the row's own inputs first."""
    declarations = interpreter.declarations
    found = {name: dict.fromkeys(own_values(interpreter, each)) for name, each in declarations.latents.items()}
    for read in m.reads_of(*_expressions(declarations)):
        if read.name in found:
            found[read.name] |= dict.fromkeys(_written_out(interpreter, read))
    return {name: tuple(functionals) for name, functionals in found.items()}


def own_values(interpreter: Interpreter, latent: m.Latent) -> list[m.Functional]:
    """The value at the row's own inputs; at every level, where an index is among the arguments."""
    places = interpreter.positions(latent.levels)
    return [m.Functional(latent.at_levels((), tuple(map(str, place)))) for place in places]


def shown(declarations: m.Declarations, name: str, functional: m.Functional) -> str:
    """A functional as the model writes it: `f(a)`, `D(f, x[1])`."""
    return as_read(declarations, name, "", reading(functional))


def _written_out(interpreter: Interpreter, read: m.Read) -> Iterator[m.Functional]:
    """A derivative along `x[d]` for every value of `d`, and a value at every level that the subscripts run over."""
    functional, latent = read.functional, interpreter.declarations.latents[read.name]
    indices = [each.column.index for each in functional.derivative if isinstance(each.column, m.IndexValue)]
    axes = tuple(interpreter.declarations.indices[index].axis for index in indices)
    levels = read.subscripts[len(latent.elements) :]
    running = [axis for each, axis in zip(levels, latent.levels, strict=True) if isinstance(each, m.IndexValue)]
    for element in interpreter.positions(axes):
        numbered = resolved(functional, dict(zip(indices, element, strict=True)))
        for place in interpreter.positions(tuple(running)):
            numbers = iter(place)
            chosen = tuple(_level(each, numbers) for each in levels)
            yield replace(numbered, at=latent.at_levels(numbered.at, chosen))


def _level(subscript: m.Subscript, running: Iterator[int]) -> str:
    match subscript:
        case m.At(input=label):
            return label
        case m.Fixed(position=position):
            return str(position)
    return str(next(running))


def _expressions(declarations: m.Declarations) -> Iterator[m.Expression]:
    for let in declarations.lets.values():
        yield from (case.body for case in let.cases)
    for latent in declarations.latents.values():
        yield latent.mean
    for observation in declarations.observations:
        yield from observation.distribution.expressions()
        if observation.transform is not None:
            yield observation.transform


# Sizes and inputs that the user leaves open: sizes of 2, and inputs over a range in which the latents vary.

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
    axes += [each.label for each in declarations.labelled if each.label is not None]
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


def intervals_drawn(world: World, given: Collection[str]) -> dict[str, np.ndarray]:
    """The inputs that are drawn as both ends of an interval, with the lower one before the upper one."""
    found: dict[str, np.ndarray] = {}
    for functionals in world.functionals.values():
        for functional in functionals:
            ends = [name for name in functional.at if name in world.inputs and name not in given]
            if functional.integrated and len(ends) == 2:
                found |= dict(zip(ends, np.sort([world.inputs[name] for name in ends], axis=0), strict=True))
    return found


def _seen_by(world: World, latent: m.Latent) -> list[str]:
    """The inputs at which a latent is looked at, as its arguments or in place of them."""
    return [name for functional in world.functionals[latent.name] for name in functional.at or latent.arguments]


def _width(world: World, latent: m.Latent, name: str) -> np.ndarray:
    """The range [columns] that suits one latent."""
    slot = next(
        0 if functional.integrated else names.index(name)
        for functional in world.functionals[latent.name]
        if name in (names := functional.at or latent.arguments)
    )
    sizes = [int(np.prod(world.shape(world.declarations.axes_of(argument)))) for argument in latent.arguments]
    start = sum(sizes[:slot])
    distances = falling_distances(processes_of(world, latent)[0], sum(sizes), range(start, start + sizes[slot]))
    total = sum(sizes)
    return distances * max(WIDTH / total, FAR_WIDTH / np.sqrt(total))
