"""How large the quantities of a model are in the units of its data: dimensional analysis by linear equations.

What is added has one unit; units of products multiply; an exponential takes a number without a unit; a length-scale
has the unit of its column, and the variance of a latent that of its square. In logarithms each such rule is a linear
equation between the scales of parameters and latents, and those of the data are known. Its least-squares solution of
least norm moves by a constant when units change, so that starts made of it are the same in any units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, log

import numpy as np

from gpdsl.language import model as m
from gpdsl.symbolic.conditions import case_of
from gpdsl.symbolic.data_scales import NO_UNIT, NOISE, DataScales, Size, Unknown, log_size
from gpdsl.symbolic.translate import Environment, NeedsElements, Translator, axis_key

MAX_VISITS = 100_000
"""Expressions looked at: of larger models nothing is said."""

MAX_DEPTH = 200
"""Definitions followed inside each other."""

LINEAR = {"neg", "abs", "floor"}
ADDED = {"+", "-", "min", "max"}
ROOTS = {"sqrt": 0.5}
LOGARITHMS = {"log", "log2", "log10"}
LEVELLED = {*LOGARITHMS, "softplus", "logit", "probit"}
"""Functions that give a number without a unit whatever the size of their argument."""


class Unsized(Exception):
    """Nothing is known of the size of this expression."""


@dataclass
class Scales:
    """The equations of one model, and what else reading it shows.

    `loadings` are parameters of either sign that multiply a latent, `frequencies` those of spectral mixtures, `places`
    those that say where something happens along a column; `lengths` are length-scales and periods, and `cyclic` says
    whether a kernel has a period or frequencies, or a formula a sine. `local` are the
    arguments of the kernel or density by formula that is being read, `centre` the mean of the latent's first column.
    `unitless`: numbers have no unit, as in the formula of a density, where 1 + z^2 says that z has none.
    """

    translator: Translator
    data: DataScales
    known: Mapping[str, np.ndarray]
    equations: list[Size] = field(default_factory=list)
    loadings: set[str] = field(default_factory=set)
    frequencies: set[str] = field(default_factory=set)
    lengths: set[str] = field(default_factory=set)
    cyclic: bool = False
    places: dict[str, float] = field(default_factory=dict)
    local: dict[str, Size] = field(default_factory=dict)
    centre: float = 0.0
    unitless: bool = False
    gathered: set[tuple[str, int]] = field(default_factory=set)
    """Axes of parameters of which the first element stands for all: which ones are read, only rows tell."""
    _lets: dict[Unknown, Size | None] = field(default_factory=dict)
    _visits: int = 0
    _depth: int = 0

    @property
    def sizes(self) -> Mapping[str, int]:
        """The dimensions that data have bound."""
        return self.translator.sizes

    # --- equations --------------------------------------------------------------------------------------------

    def equal(self, a: Size, b: Size) -> None:
        """Two quantities have one scale."""
        difference = a.times(b, -1.0)
        if any(difference.unknown.values()):
            self.equations.append(difference)

    # --- expressions ------------------------------------------------------------------------------------------

    def size(self, expression: m.Expression, env: Environment) -> Size:
        """The size of one element. Raises Unsized where nothing is known of it, or of too large models."""
        self._visits += 1
        if self._visits > MAX_VISITS:
            raise Unsized
        match expression:
            case m.Number(value=value):
                return self._number(float(value))
            case m.IndexNumber(index=index):
                position = env.get(index)
                return self._number(float(position)) if isinstance(position, int) else Size(number=True)
            case m.Read():
                return self._read(expression, env)
            case m.Operation():
                return self._operation(expression, env)
            case m.FunctionCall(body=body):
                return self.size(body, env)
            case m.Local(name=name) if name in self.local:
                return self.local[name]
            case m.Reduction(operator=operator, axis=axis) if axis.size is None and axis.dimension not in self.sizes:
                return self._reduced(operator, [self.size(expression.body, env)])  # over the columns of a kernel
            case m.Reduction(operator=operator):
                parts = [self.sized(expression.body, each) for each in self.along((expression.axis,), env)]
                return self._reduced(operator, [part for part in parts if part is not None])
        raise Unsized

    def sized(self, expression: m.Expression, env: Environment) -> Size | None:
        """The size of one element; None where nothing is known of it."""
        try:
            return self.size(expression, env)
        except Unsized:
            return None

    def elements(self, argument: m.Expression, env: Environment) -> list[Size]:
        """The sizes of all elements of an argument, as far as they are known."""
        found = [self.sized(argument, each) for each in self.over(argument, env)]
        return [each for each in found if each is not None]

    def by_formula(
        self,
        body: m.Expression,
        known: Mapping[str, Size],
        arguments: Mapping[str, m.Expression],
        env: Environment,
        unitless: bool = False,
    ) -> Size:
        """The size of a definition's formula with these arguments; those of several elements are all alike."""
        local = dict(known)
        for name, argument in arguments.items():
            found = self.elements(argument, env)
            for each in found:
                self.equal(each, found[0])
            if found:
                local[name] = found[0]
        before, self.local, self.unitless = self.local, local, unitless
        try:
            return self.size(body, env)
        finally:
            self.local, self.unitless = before, False

    def along(self, axes: Iterable[m.Axis], env: Environment) -> list[Environment]:
        """Every element along some axes."""
        found = [env]
        for axis in axes:
            count = self.translator.size(axis)
            found = [{**each, axis_key(axis): i} for each in found for i in range(1, count + 1)]
            if len(found) > MAX_VISITS:
                raise Unsized
        return found

    def over(self, expression: m.Expression, env: Environment) -> list[Environment]:
        """Every element of an expression."""
        return self.along([axis for axis in expression.axes if axis_key(axis) not in env], env)

    def positions(self, subscripts: Iterable[m.Subscript], env: Environment) -> tuple[int, ...]:
        """Where subscripts point. Raises Unsized where that is no single element."""
        try:
            found = tuple(
                1 if isinstance(each, m.At | m.Level) else self.translator.position(each, env) for each in subscripts
            )
        except NeedsElements as error:
            raise Unsized from error
        numbers = tuple(each for each in found if isinstance(each, int))
        if len(numbers) < len(found):
            raise Unsized
        return numbers

    def _read(self, read: m.Read, env: Environment) -> Size:
        d, name = self.translator.declarations, read.name
        where = self.positions(read.subscripts, env)
        self.gathered |= {(name, k) for k, each in enumerate(read.subscripts) if isinstance(each, m.At)}
        if name in d.lets:
            return self._let(name, where)
        if name in d.params:
            return self._param(d.params[name], where)
        if name in d.consts:
            values = np.asarray(d.consts[name].values, float)
            return self._number(float(values[tuple(p - 1 for p in where)] if values.ndim else values))
        if name in d.rows:
            return Size(latent=True)
        if name in d.latents:
            params = [d.params[each.name] for each in m.reads_of(d.latents[name].mean) if each.name in d.params]
            level = any(param.constraint == "real" for param in params)
            found = Size(unknown={(name, where): 1.0}, latent=True, level=level)
            if read.functional.integrated:
                ends = [each for each in read.functional.at if each in d.inputs]
                return found.times(Size(self.data.column(ends[-1], 0)), 1.0) if ends else found
            for direction in read.functional.derivative:
                argument = d.latents[name].arguments[direction.argument]
                column = direction.column if isinstance(direction.column, int) else 1
                found = found.times(Size(self.data.column(argument, column - 1)), -1.0)
            return found
        return Size(log_size(self.data.element(name, where)))

    def _number(self, value: float) -> Size:
        # The size of a number of the model; zero has any, `unitless` ones have no unit whatever they are added to.
        if value == 0 or not isfinite(value):
            return Size(number=True)
        return Size(log(abs(value)), number=not self.unitless)

    def _param(self, param: m.Param, where: tuple[int, ...]) -> Size:
        if param.constraint in {"unit", "simplex", "correlation_factor"}:
            return NO_UNIT
        level = param.constraint != "positive"
        if param.name in self.known:
            values = self.known[param.name]
            return replace(self._number(float(values[tuple(p - 1 for p in where)])), level=level)
        reals = frozenset((param.name,)) if level else frozenset()
        return Size(unknown={(param.name, where): 1.0}, reals=reals, level=level)

    def _let(self, name: str, where: tuple[int, ...]) -> Size:
        key = name, where
        if key not in self._lets:
            declared = self.translator.declarations.lets[name]
            env = {axis_key(a): p for a, p in zip(declared.axes, where, strict=True)}
            case = case_of(declared, env)
            self._depth += 1
            self._lets[key] = None
            if case is not None and self._depth < MAX_DEPTH:
                self._lets[key] = self.sized(case.body, env)
            self._depth -= 1
        found = self._lets[key]
        if found is None:
            raise Unsized
        return found

    def _operation(self, operation: m.Operation, env: Environment) -> Size:
        operator, operands = operation.operator, operation.operands
        if operator in ADDED:
            sizes = [self.sized(each, env) for each in operands]
            return self._sum([each for each in sizes if each is not None])
        if operator == "if":
            branches = [self.sized(each, env) for each in operands[1:]]
            return self._sum([each for each in branches if each is not None])
        self.cyclic |= operator in {"sin", "cos"}
        inside = [self.size(each, env) for each in operands]
        if operator in {"*", "/"}:
            return self._product(inside[0], inside[1], 1.0 if operator == "*" else -1.0)
        if operator in {"^", "pow"}:
            exponent = operands[1]
            if not isinstance(exponent, m.Number):
                if self.unitless:
                    return self._without_unit(inside[0])
                raise Unsized
            return Size().times(inside[0], float(exponent.value))
        if operator in LINEAR:
            return inside[0]
        if operator in ROOTS:
            return Size().times(inside[0], ROOTS[operator])
        if operator in (LOGARITHMS if self.unitless else LEVELLED):
            return replace(NO_UNIT, latent=inside[0].latent)
        return self._without_unit(inside[0])

    def _without_unit(self, size: Size) -> Size:
        self.equal(size, NO_UNIT)
        return replace(NO_UNIT, latent=size.latent)

    def _product(self, a: Size, b: Size, power: float) -> Size:
        if b.latent:
            self.loadings |= a.reals
        if a.latent:
            self.loadings |= b.reals
        return a.times(b, power)

    def _sum(self, sizes: list[Size]) -> Size:
        """Terms of a sum have one scale, but for numbers, which have any."""
        if not sizes:
            raise Unsized
        level = any(each.level for each in sizes)
        observed = [each for each in sizes if each.spread is not None]
        sizes = [each.beside(level) for each in sizes]
        with_units = [each for each in sizes if not each.number]
        if not with_units:
            return Size(number=True, level=level)
        first = next((each for each in with_units if each.unknown), with_units[0])
        for each in with_units:
            if each is not first:
                self.equal(each, first)
        if observed and (level or len(with_units) > 1):
            return Size(observed[0].beside(level).constant + NOISE)
        reals = frozenset().union(*(each.reals for each in with_units))
        return replace(first, reals=reals, latent=any(each.latent for each in with_units), level=level)

    def _reduced(self, operator: str, sizes: list[Size]) -> Size:
        if operator == "prod":
            found = Size(number=True)
            for each in sizes:
                found = self._product(found, each, 1.0)
            return found
        total = self._sum(sizes)
        if operator == "logsumexp":
            self.equal(total, NO_UNIT)
        return total
