"""One draw of everything a model declares: parameters, row variables, latents layer by layer, outputs one by one."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.errors import GpdslError
from gpdsl.forward import ForwardModel, call
from gpdsl.forward.registry import per_field
from gpdsl.kernels.combined import FINE
from gpdsl.kernels.functionals import Values
from gpdsl.language import model as m
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.program.parameters import make_parameters as starting_values
from gpdsl.simulation.distributions import draw, draw_by_formula, draw_factor, draw_simplex, draw_vector, solve
from gpdsl.simulation.errors import OpaqueDensity, WrongRequest
from gpdsl.simulation.interpreter import Interpreter, Key, Value
from gpdsl.simulation.processes import JointDraws, functionals_at, functionals_of, own_values, points_of, processes_of
from gpdsl.symbolic.conditions import HOLDS
from gpdsl.symbolic.readings import field_calls, split_levels
from gpdsl.symbolic.translate import Translator, axis_key

# Draws of outputs: the statement that observes an element, its distribution, the inverse of what is on its left.


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


STEP = 1e-4
"""Of the spread of an input column: the step of the central differences that differentiate a mean function."""


class World(Interpreter):
    """Quantities drawn when first read, each with random numbers of its own, so that their order does not matter."""

    def __init__(
        self,
        declarations: m.Declarations,
        sizes: Mapping[str, int],
        rows: int,
        inputs: Mapping[str, np.ndarray],
        parameters: Mapping[str, np.ndarray],
        externals: Mapping[str, ForwardModel],
        seed: int,
    ) -> None:
        super().__init__(declarations, sizes, rows)
        self.inputs = inputs
        self.parameters = parameters
        self.externals = externals
        self.seed = seed
        self.functionals = functionals_of(self)
        self.field_calls = field_calls(declarations) if declarations.fields else {}
        self.latents: dict[tuple[str, m.Functional], np.ndarray] = {}
        self.row_variables: dict[str, np.ndarray] = {}
        self._vectors: dict[str, np.ndarray] = {}
        self._results: dict[tuple[str, tuple[bytes, ...]], np.ndarray] = {}

    def generator(self, name: str, element: tuple[int, ...] = ()) -> np.random.Generator:
        """The random numbers of one element of a quantity."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode()), *element])

    def hypothetically(self, key: Key, values: Value) -> World:
        """The same world, but for the value of one output; what depends on outputs is computed anew."""
        other = copy.copy(self)
        other.known, other._level, other._deepest = {key: values}, 0, None
        return other

    def with_inputs(self, inputs: Mapping[str, np.ndarray]) -> World:
        """The same world at other inputs: for mean functions, which read nothing that is drawn."""
        other = copy.copy(self)
        other.inputs, other.known, other._level, other._deepest = inputs, {}, 0, None
        return other

    def quantity(self, name: str) -> np.ndarray:
        """See `Interpreter.quantity`."""
        d = self.declarations
        if name in d.consts:
            return np.broadcast_to(np.asarray(d.consts[name].values), self.shape(d.consts[name].axes))
        if name in d.params:
            return self.parameters[name]
        if name in d.rows:
            return self._row_variable(d.rows[name])
        return self.inputs[name]

    def shape(self, axes: tuple[m.Axis, ...]) -> tuple[int, ...]:
        """Sizes of several axes."""
        return tuple(self.size(axis) for axis in axes)

    def _row_variable(self, declared: m.Row) -> np.ndarray:
        if declared.name not in self.row_variables:
            keys = [axis_key(axis) for axis in declared.axes]
            parts = []
            for element in self.positions(declared.axes):
                env = dict(zip(keys, element, strict=True))
                parts.append(
                    draw(self, declared.name, declared.distribution, env, self.generator(declared.name, element))
                )
            shape = (self.rows, *self.shape(declared.axes))
            self.row_variables[declared.name] = np.stack(parts, axis=-1).reshape(shape)
        return self.row_variables[declared.name]

    def external(self, function: str, arguments: list[np.ndarray]) -> np.ndarray:
        """See `Interpreter.external`; called once for equal arguments."""
        key = function, tuple(each.tobytes() for each in arguments)
        if key not in self._results:
            shape = self.shape(self.declarations.externals[function].result)
            if self.declarations.fields:
                self._results[key] = self._of_field(function, arguments, shape)
            else:
                self._results[key] = call(self.externals[function], arguments, shape, data_rows=self.rows)
        return self._results[key]

    def _of_field(self, function: str, arguments: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        """One call with what is the same in every row as it is, and the rows of everything else."""
        rows = self.field_calls[function]
        passed = [(each if has else each[0])[None] for each, has in zip(arguments, rows, strict=True)]
        expected = (self.rows, *shape) if any(rows) else shape
        found = call(per_field(self.externals[function], rows), passed, expected)[0]
        return found if any(rows) else np.broadcast_to(found, (self.rows, *shape))

    def draw_output(self, name: str, element: tuple[int, ...]) -> np.ndarray:
        """A draw [rows] of one element of an output; NaN for an element that nothing observes. Labels count from 1."""
        for observation in self.declarations.observations:
            env = _environment(observation, name, element)
            if env is not None:
                return _draw(self, observation, name, element, env)
        return np.full(self.rows, np.nan)

    def vector(self, output: m.Output, call: m.DistributionCall) -> np.ndarray:
        """All elements of an output that are drawn together, [rows, elements]."""
        if output.name not in self._vectors:
            self._vectors[output.name] = draw_vector(self, output, call, self.generator(output.name))
        return self._vectors[output.name]

    def latent(self, name: str, functional: m.Functional) -> np.ndarray:
        """See `Interpreter.latent`; all functionals of the latent are drawn together."""
        if (name, functional) not in self.latents:
            self._draw_latent(self.declarations.latents[name])
        return self.latents[name, functional]

    def _draw_latent(self, latent: m.Latent) -> None:
        if latent.over is not None:
            self._draw_field(latent, latent.over)
            return
        asked = self.functionals[latent.name]
        at = functionals_at(self, latent, asked, [points_of(self, latent, functional) for functional in asked])
        draws = JointDraws(latent.name, self.declarations.source.name, at)
        keys, drawn = [axis_key(axis) for axis in latent.axes], []
        for element, process in zip(self.positions(latent.axes), processes_of(self, latent), strict=True):
            env = dict(zip(keys, element, strict=True))
            mean = np.concatenate([self._mean_at(latent, functional, env) for functional in asked])
            drawn.append(mean + draws.draw(process, self.generator(latent.name, element)))
        together = np.stack(drawn, axis=-1)
        for place, functional in enumerate(asked):
            block = together[place * self.rows : (place + 1) * self.rows]
            self.latents[latent.name, functional] = block.reshape(self.rows, *self.shape(latent.axes))

    def _draw_field(self, latent: m.Latent, over: m.Axis) -> None:
        """One draw at the points, which every row reads."""
        count, keys, drawn = self.size(over), [axis_key(axis) for axis in latent.axes], []
        tables = [np.asarray(self.quantity(name), float).reshape(count, -1) for name in latent.arguments]
        draws = JointDraws(latent.name, self.declarations.source.name, Values(jnp.asarray(np.concatenate(tables, 1))))
        for element, process in zip(self.positions(latent.axes), processes_of(self, latent), strict=True):
            env = dict(zip(keys, element, strict=True))
            places = ({**env, axis_key(over): k} for k in range(1, count + 1))
            mean = np.asarray([float(np.ravel(self.value(latent.mean, place))[0]) for place in places])
            drawn.append(mean + draws.draw(process, self.generator(latent.name, element)))
        values = np.stack(drawn).reshape(*self.shape(latent.values))
        self.latents[latent.name, m.VALUE] = np.broadcast_to(values, (self.rows, *values.shape))

    def own_value(self, latent: m.Latent) -> np.ndarray:
        """A latent at the row's own inputs, [rows, *axes], at every level of the indices among its arguments."""
        values = [self.latent(latent.name, functional) for functional in own_values(self, latent)]
        return np.stack(values, axis=-1).reshape(*values[0].shape, *self.shape(latent.levels))

    def _mean_at(self, latent: m.Latent, functional: m.Functional, env: Mapping[str, int]) -> np.ndarray:
        """The mean of a functional, at its own level of the indices among the arguments."""
        _, levels = split_levels(self.declarations, latent.name, functional.at)
        places = list(self.positions(latent.levels))
        keys = [axis_key(axis) for axis in latent.levels]
        columns = [np.full(self.rows, int(each)) if m.is_number(each) else self.inputs[each] for each in levels]
        found = np.zeros(self.rows)
        for place in places:
            here = np.all([column == own for column, own in zip(columns, place, strict=True)], axis=0)
            if np.any(here):
                value = self._mean(latent, functional, {**env, **dict(zip(keys, place, strict=True))})
                found = np.where(here, value, found)
        return found

    def _mean(self, latent: m.Latent, functional: m.Functional, env: Mapping[str, int]) -> np.ndarray:
        """The mean of a functional, [rows]: derivatives by central differences, integrals by a Gauss rule."""
        if functional.integrated:
            (own,) = latent.arguments
            low, high = np.moveaxis(points_of(self, latent, functional), 1, 0)
            places = [self.with_inputs({**self.inputs, own: (low + high) / 2 + t * (high - low)}) for t in FINE[0]]
            values = [np.broadcast_to(place.value(latent.mean, env), self.rows) for place in places]
            return (high - low) * np.tensordot(FINE[1], np.stack(values), axes=1)
        if functional.derivative:
            first, rest = functional.derivative[0], m.Functional(functional.at, functional.derivative[1:])
            name, column = (functional.at or latent.arguments)[first.argument], int(str(first.column))
            above, high = self._moved(name, column, STEP)
            below, low = self._moved(name, column, -STEP)
            return (above._mean(latent, rest, env) - below._mean(latent, rest, env)) / (high - low)
        inputs = dict(self.inputs)
        for own, other in zip(latent.arguments, functional.at, strict=False):
            if own in inputs and other in inputs:
                inputs[own] = self.inputs[other]
        place = self.with_inputs(inputs) if functional.at else self
        return np.broadcast_to(place.value(latent.mean, env), self.rows)

    def _moved(self, name: str, column: int, step: float) -> tuple[World, float]:
        """The world with one input column moved, and by how much."""
        columns = np.array(self.inputs[name], dtype=float).reshape(self.rows, -1)
        change = step * (float(np.std(columns[:, column - 1])) or 1.0)
        columns[:, column - 1] += change
        return self.with_inputs({**self.inputs, name: columns.reshape(self.inputs[name].shape)}), change


# Parameters of a simulation: as given, else drawn from their priors when asked for, else where a fit would start.

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
    """A draw from the prior inside the parameter's domain, by rejection of each element; ordered ones are sorted."""
    assert param.prior is not None
    keys = [axis_key(axis) for axis in param.axes]
    generator = world.generator(param.name)
    many = world.with_inputs({})
    many.rows = TRIES
    if param.prior.name == "Dirichlet":
        return draw_simplex(many, param, param.prior, generator)
    if param.prior.name == "LKJ":
        return draw_factor(many, param, param.prior, generator)
    drawn = [
        draw(many, param.name, param.prior, dict(zip(keys, element, strict=True)), generator)
        for element in world.positions(param.axes)
    ]
    values = np.stack(drawn, axis=-1).reshape(TRIES, *world.shape(param.axes))
    low, high = m.interval(param)
    outside = ~((values > low) & (values < high))
    values = np.take_along_axis(values, np.argsort(outside, axis=0, kind="stable"), axis=0)
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
