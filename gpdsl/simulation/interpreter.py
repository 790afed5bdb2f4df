"""Values of checked expressions, element by element, one number per row: the meaning of the language, in NumPy."""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logit

from gpdsl.data.errors import DataError
from gpdsl.language import model as m
from gpdsl.simulation.errors import TooLarge
from gpdsl.symbolic import functions
from gpdsl.symbolic.conditions import case_of
from gpdsl.symbolic.numeric import TABLE
from gpdsl.symbolic.translate import axis_key

# The language's operators, functions and reductions on NumPy arrays, by the name the checked tree has for them.

Value = Any
"""A number, or an array that broadcasts against the rows, [..., rows]."""

_PRIMITIVES = {word: each for word, each in functions.ELEMENTARY.items() if isinstance(each, type) and each in TABLE}

ELEMENTARY: Mapping[str, Callable[..., Value]] = {
    **{word: TABLE[each] for word, each in _PRIMITIVES.items()},
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "^": np.float_power,
    "pow": np.float_power,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "log2": np.log2,
    "log10": np.log10,
    "logit": logit,
    ">": np.greater,
    ">=": np.greater_equal,
    "!=": np.not_equal,
    "or": np.logical_or,
}


def _fold(function: Callable[[Value, Value], Value]) -> Callable[[Sequence[Value]], Value]:
    return lambda values: functools.reduce(function, values)


REDUCTIONS: Mapping[str, Callable[[Sequence[Value]], Value]] = {
    "sum": _fold(np.add),
    "prod": _fold(np.multiply),
    "mean": lambda values: functools.reduce(np.add, values) / len(values),
    "norm": lambda values: np.sqrt(functools.reduce(np.add, [np.square(value) for value in values])),
    "max": _fold(np.maximum),
    "min": _fold(np.minimum),
    "logsumexp": _fold(np.logaddexp),
}
"""Functions of all values along an axis."""


MAX_VISITS = 1_000_000
"""Operations that one simulation may take, each on all rows."""

LEVELS = 40
"""How many operations deep definitions are followed inside each other before the inner one is done first."""

Environment = Mapping[str, int]
"""The element of each axis, counted from 1, by `axis_key`."""

Key = tuple[str, str, tuple[int, ...]]
"""The sort (`let` or `output`), the name and the element of a quantity that is defined by others."""


class _DefineFirst(Exception):
    """Another quantity has to be computed before this one, or Python's stack would overflow."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.key = key


class Interpreter(ABC):
    """Evaluates expressions of a model whose sizes are known. Subclasses say what the quantities are.

    Values broadcast against the rows: numbers, [rows], or [grid, rows] where an output has hypothetical values.
    """

    def __init__(self, declarations: m.Declarations, sizes: Mapping[str, int], rows: int) -> None:
        self.declarations = declarations
        self.sizes = sizes
        self.rows = rows
        self.known: dict[Key, Value] = {}
        self.drawn: dict[Key, Value] = {}
        self._level = 0
        self._visits = 0
        self._deepest: int | None = None

    def size(self, axis: m.Axis) -> int:
        """Number of elements along an axis."""
        return axis.size if axis.size is not None else self.sizes[str(axis.dimension)]

    def positions(self, axes: tuple[m.Axis, ...]) -> Iterator[tuple[int, ...]]:
        """Every element along some axes, in row-major order."""
        return itertools.product(*(range(1, self.size(axis) + 1) for axis in axes))

    def array(self, expression: m.Expression, environment: Environment) -> np.ndarray:
        """All elements of an expression along those of its axes that have no element yet, [rows, *axes]."""
        axes = tuple(axis for axis in expression.axes if axis_key(axis) not in environment)
        keys = [axis_key(axis) for axis in axes]
        parts = [
            np.broadcast_to(self.value(expression, {**environment, **dict(zip(keys, place, strict=True))}), self.rows)
            for place in self.positions(axes)
        ]
        shape = tuple(self.size(axis) for axis in axes)
        return np.stack(parts, axis=-1).reshape(self.rows, *shape).astype(float)

    def value(self, expression: m.Expression, environment: Environment) -> Value:
        """One element of an expression; every axis of it must have its element in `environment`."""
        self._visits += 1
        if self._visits > MAX_VISITS:
            raise DataError(TooLarge(MAX_VISITS), source=self.declarations.source.name)
        self._level += 1
        try:
            return self._value(expression, environment)
        finally:
            self._level -= 1

    def _value(self, expression: m.Expression, env: Environment) -> Value:
        match expression:
            case m.Number(value=number):
                return float(number)
            case m.IndexNumber(index=index):
                return float(env[index])
            case m.Read():
                return self._read(expression, env)
            case m.Operation(operator=operator, operands=operands):
                return ELEMENTARY[operator](*[self.value(each, env) for each in operands])
            case m.Reduction(operator=operator, axis=axis, body=body):
                key = axis_key(axis)
                return REDUCTIONS[operator](
                    [self.value(body, {**env, key: element}) for (element,) in self.positions((axis,))]
                )
            case m.FunctionCall(body=body):
                return self.value(body, env)
            case m.ExternalCall(function=function, arguments=arguments, axes=axes):
                passed = [self.array(each, {}) for each in arguments]
                return _element(self.external(function, passed), tuple(env[axis_key(axis)] for axis in axes))
        raise TypeError(f"no value for {type(expression).__name__}")

    def _read(self, read: m.Read, env: Environment) -> Value:
        d, name = self.declarations, read.name
        if name in d.indices:  # an argument of a latent
            return float(env[name])
        own = read.subscripts[: len(d.latents[name].elements)] if name in d.latents else read.subscripts
        if any(isinstance(each, m.At) for each in own):
            return self._gathered(read, env)
        if name in d.latents:
            return _element(self.latent(name, self.located(read, env)), tuple(_position(each, env) for each in own))
        element = tuple(_position(each, env) for each in read.subscripts)
        if name in d.lets or name in d.outputs:
            return self.defined(("let" if name in d.lets else "output", name, element))
        return _element(self.quantity(name), element)

    def located(self, read: m.Read, env: Environment) -> m.Functional:
        """The functional of a read of a latent, with its columns and its levels as numbers."""
        latent, found = self.declarations.latents[read.name], resolved(read.functional, env)
        levels = read.subscripts[len(latent.elements) :]
        chosen = tuple(each.input if isinstance(each, m.At) else str(_position(each, env)) for each in levels)
        return replace(found, at=latent.at_levels(found.at, chosen))

    def _gathered(self, read: m.Read, env: Environment) -> Value:
        """What is read at each row's levels: of what is no array of numbers, the row's among those of each level."""
        d, at = self.declarations, [isinstance(each, m.At) for each in read.subscripts]
        rows = [self.quantity(each.input).astype(int) - 1 for each in read.subscripts if isinstance(each, m.At)]
        if read.name in d.params or read.name in d.consts:
            levels = iter(rows)
            return self.quantity(read.name)[
                tuple(next(levels) if k else _position(s, env) - 1 for k, s in zip(at, read.subscripts, strict=True))
            ]
        place = at.index(True)
        found = np.zeros(rows[0].shape)
        for level in np.unique(rows[0]).tolist():
            subscripts = (*read.subscripts[:place], m.Fixed(level + 1), *read.subscripts[place + 1 :])
            found = np.where(rows[0] == level, self._read(replace(read, subscripts=subscripts), env), found)
        return found

    def defined(self, key: Key) -> Value:
        """A `let` or an output, which other quantities define: computed when first read, however deep the recursion."""
        table = self.drawn if key[0] == "output" else self.known
        if key in self.known:
            return self.known[key]
        if key in table:
            return table[key]
        if self._deepest is not None:
            if self._level > self._deepest:
                raise _DefineFirst(key)
            table[key] = self._define(key)
            return table[key]
        self._define_all(key)
        return table[key]

    def _define_all(self, key: Key) -> None:
        """Define a quantity after those it needs, by a list of our own instead of Python's stack."""
        pending, self._deepest = [key], self._level + LEVELS
        try:
            while pending:
                try:
                    table = self.drawn if pending[-1][0] == "output" else self.known
                    table[pending[-1]] = self._define(pending[-1])
                    pending.pop()
                except _DefineFirst as first:
                    if len(pending) > MAX_VISITS // LEVELS:
                        raise DataError(TooLarge(MAX_VISITS), source=self.declarations.source.name) from None
                    pending.append(first.key)
        finally:
            self._deepest = None

    def _define(self, key: Key) -> Value:
        sort, name, element = key
        if sort == "output":
            return self.draw_output(name, element)
        declared = self.declarations.lets[name]
        env = {axis_key(axis): each for axis, each in zip(declared.axes, element, strict=True)}
        case = case_of(declared, env)
        return np.nan if case is None else self.value(case.body, env)

    @abstractmethod
    def quantity(self, name: str) -> np.ndarray:
        """A constant or parameter, [*axes]; an input or row variable, [rows, *axes]."""

    @abstractmethod
    def latent(self, name: str, functional: m.Functional) -> np.ndarray:
        """What a functional makes of a latent at the rows, [rows, *axes]."""

    @abstractmethod
    def external(self, function: str, arguments: list[np.ndarray]) -> np.ndarray:
        """The result of an opaque function, [rows, *dims]."""

    @abstractmethod
    def draw_output(self, name: str, element: tuple[int, ...]) -> Any:
        """A draw of one element of an output, [rows]."""


def _element(values: np.ndarray, element: tuple[int, ...]) -> Value:
    """One element, counted from 1 along the last axes; what is left are the rows, if there are any."""
    index: tuple[Any, ...] = (..., *(each - 1 for each in element))
    return values[index]


def resolved(functional: m.Functional, env: Environment) -> m.Functional:
    """A functional with the columns of its derivatives as numbers."""
    if not functional.derivative:
        return functional
    directions = [
        replace(each, column=_position(each.column, env)) if isinstance(each.column, m.IndexValue) else each
        for each in functional.derivative
    ]
    return m.Functional(functional.at, tuple(sorted(directions, key=lambda each: (each.argument, each.column))))


def _position(subscript: m.Subscript, env: Environment) -> int:
    match subscript:
        case m.Fixed(position=element):
            return element
        case m.Whole(axis=axis):
            return env[axis_key(axis)]
        case m.IndexValue(index=index, offset=offset):
            return env[index] + offset
        case m.Slice(axis=axis, start=start):
            return env[axis_key(axis)] + start - 1
    raise TypeError(subscript)
