"""Checked expressions → SymPy scalars: one symbol per value read, remembered with what it stands for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import sympy as sp

from gpdsl.language import model as m
from gpdsl.language.errors.base import Mistake, ModelError
from gpdsl.language.vocabulary import Span
from gpdsl.symbolic import conditions
from gpdsl.symbolic.errors import BeyondData, NoCase, NotReal, TooDeep, TooLarge
from gpdsl.symbolic.functions import ELEMENTARY, REDUCTIONS
from gpdsl.symbolic.readings import (
    OWN,
    PREFIXED,
    Covariance,
    DefineFirst,
    Element,
    Environment,
    ExternalUse,
    NeedsElements,
    Position,
    Reduced,
    Ref,
    axis_key,
    field_calls,
    gathered,
    is_level,
    level_of,
    reading,
    reduced,
    shifted,
    shown,
)

POSITIVE = ("positive", "unit")  # kinds of outputs above 0

NOWHERE: Environment = MappingProxyType({})

LEVELS = 40  # of operations to which definitions are followed inside each other before the inner one is done first


@dataclass(eq=False)
class Translator:
    """Translates the expressions of one model whose sizes are known.

    `references` says what each symbol produced so far stands for, `covariances` the matrices behind whitening symbols;
    `externals` lists the calls met, in an order in which they can be made: `traced` functions are not opaque.
    """

    declarations: m.Declarations
    sizes: Mapping[str, int]
    references: dict[sp.Symbol, Ref] = field(default_factory=dict)
    externals: dict[str, ExternalUse] = field(default_factory=dict)
    traced: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    covariances: dict[str, Covariance] = field(default_factory=dict)
    reduced: dict[str, Reduced] = field(default_factory=dict)
    _lets: dict[Element, sp.Expr] = field(default_factory=dict)
    _extents: dict[sp.Basic, tuple[int, int]] = field(default_factory=dict)
    _level: int = 0
    _visits: int = 0
    _deepest: int | None = None

    @cached_property
    def field_calls(self) -> Mapping[str, tuple[bool, ...]]:
        """Of each function of fields, which of its arguments are."""
        return field_calls(self.declarations) if self.declarations.fields else {}

    def size(self, axis: m.Axis) -> int:
        """Number of elements along an axis."""
        return axis.size if axis.size is not None else self.sizes[str(axis.dimension)]

    def shape(self, axes: tuple[m.Axis, ...]) -> tuple[int, ...]:
        """Sizes of several axes."""
        return tuple(self.size(a) for a in axes)

    def shape_at(self, ref: Ref) -> tuple[int, ...]:
        """Sizes of the axes that the positions of a reference stand along: levels of a latent are none of these."""
        return self.shape(self.declarations.axes_of(ref.name)[: len(ref.positions)])

    def symbol(self, ref: Ref, *, positive: bool = False) -> sp.Symbol:
        """The symbol of a value read; equal references give equal symbols."""
        places = ref.places if ref.at else ref.positions
        where = f"[{','.join(map(str, places))}]" if places else ""
        name = f"{ref.name}{where}" if ref.kind not in PREFIXED else f"{ref.kind}:{ref.name}{where}"
        if ref.reading != OWN:
            name = shown(self.declarations, ref.name, where, ref.reading)
        symbol = sp.Symbol(name, positive=True) if positive else sp.Symbol(name, real=True)
        self.references[symbol] = ref
        return symbol

    def output(self, name: str, positions: tuple[Position, ...]) -> sp.Symbol:
        """The symbol of an observed value."""
        return self.symbol(Ref("output", name, positions), positive=self.declarations.outputs[name].kind in POSITIVE)

    def scalar(self, expression: m.Expression, environment: Environment | None = None, what: str = "") -> sp.Expr:
        """One element of an expression. Axes not in `environment` stay generic, under their own names.

        Raises NeedsElements when there is no generic form, ModelError when the result is no real number, or too large:
        as a whole where it is told `what` this is.
        """
        self._visits = self._visits + 1 if self._level else 0
        self._level += 1
        try:
            found = self._scalar(expression, environment or {})
        finally:
            self._level -= 1
        return self.bounded(found, what, expression.span) if what else found

    def _scalar(self, expression: m.Expression, env: Environment) -> sp.Expr:
        match expression:
            case m.Number(value=value):
                return conditions.number(value)
            case m.IndexNumber(index=index):
                position = env.get(index, index)
                if isinstance(position, int):
                    return sp.Integer(position)
                if is_level(position):
                    return self.symbol(Ref("input", position[1:]), positive=True)
                return self.symbol(Ref("index", index, (position,)), positive=True)
            case m.Read():
                return self._read(expression, env)
            case m.Operation():
                return self._operation(expression, env)
            case m.Reduction():
                return self._reduction(expression, env)
            case m.FunctionCall(body=body):
                return self._scalar(body, env)
            case m.ExternalCall():
                positions = tuple(env.get(axis_key(a), axis_key(a)) for a in expression.axes)
                if (level := next(filter(is_level, positions), None)) is not None:
                    raise NeedsElements(str(level))
                use = self.external(expression.function, expression.arguments)
                return self.symbol(Ref("external", use.key, positions))
        raise TypeError(f"no translation for {type(expression).__name__}")

    def position(self, subscript: m.Subscript, env: Environment) -> Position:
        """Where a subscript points: an element, or the name of an axis that stays generic."""
        match subscript:
            case m.Fixed(position=element):
                return element
            case m.At(input=label):
                return level_of(label)
            case m.Whole(axis=axis):
                return self._along(axis, env)
            case m.Slice(axis=axis, start=start):
                position = env.get(axis_key(axis))
                if isinstance(position, int):
                    return position + start - 1
                raise NeedsElements(axis_key(axis))
            case m.IndexValue(index=index, offset=offset):
                return shifted(env.get(index, index), offset)
        raise TypeError(subscript)

    def _along(self, axis: m.Axis, env: Environment) -> Position:
        """Where an axis without a name stands: its own place, or that of an index of its size on the left side."""
        key = axis_key(axis)
        if key not in env and axis.name is None:
            indices = self.declarations.indices
            key = next((k for k in env if k in indices and m.same_axis(indices[k].axis, axis)), key)
        return env.get(key, key)

    def _read(self, read: m.Read, env: Environment) -> sp.Expr:
        d = self.declarations
        positions = tuple(self.position(s, env) for s in read.subscripts)
        for place, axis in zip(positions, d.axes_of(read.name), strict=True):
            if isinstance(place, int) and not 1 <= place <= self.size(axis):
                element = f"{read.name}[{', '.join(map(str, positions))}]"
                raise self.failure(BeyondData(read.span, element, axis.describe(), self.size(axis)))
        if read.name in d.latents and d.latents[read.name].levels:
            return self.value(read.name, positions, read.functional, env)
        level = next((k for k, each in enumerate(positions) if is_level(each)), None)
        if level is not None and (read.name in d.params or read.name in d.consts):
            positive = getattr(d.params.get(read.name), "positive", False)
            return self.symbol(gathered(read.name, positions), positive=positive)
        if read.name in d.lets:
            try:
                return self.let(read.name, positions)
            except NeedsElements as need:
                if not is_level(need.axis):
                    raise
        if level is not None:
            return self._by_level(read, level, str(positions[level]), env)
        if read.name in d.consts and all(isinstance(p, int) for p in positions):
            return conditions.element_of(d.consts[read.name].values, positions)
        if read.name in d.params:
            return self.symbol(Ref("param", read.name, positions), positive=d.params[read.name].positive)
        if read.name in d.indices:  # an argument of a latent
            return self.symbol(Ref("input", read.name), positive=True)
        if read.name in d.inputs:
            return self.symbol(Ref("input", read.name, positions), positive=d.inputs[read.name].kind == "positive")
        if read.name in d.outputs:
            return self.output(read.name, positions)
        if read.name in d.consts:
            return self.symbol(Ref("const", read.name, positions))
        return self.symbol(Ref("latent", read.name, positions, reading(self.functional(read.functional, env))))

    def _by_level(self, read: m.Read, place: int, level: str, env: Environment) -> sp.Expr:
        """What has no form that holds for all levels, or elements that are no array: one element for each level."""
        count, at = self.size(self.declarations.axes_of(read.name)[place]), level[1:]
        number, found = self.symbol(Ref("input", at), positive=True), sp.S.Zero
        for element in range(count, 0, -1):
            subscripts = (*read.subscripts[:place], m.Fixed(element), *read.subscripts[place + 1 :])
            own = self._read(replace(read, subscripts=subscripts), env)
            found = conditions.choose(conditions.equal(number, element), own, found) if element < count else own
        return self.bounded(found, f"`{read.name}` at the levels of `{at}`", read.span)

    def value(
        self, name: str, positions: tuple[Position, ...], functional: m.Functional = m.VALUE, env: Environment = NOWHERE
    ) -> sp.Symbol:
        """A functional of one element of a latent, by default its own value; at a level, where it is over an index."""
        latent = self.declarations.latents.get(name)
        if latent is None or not latent.levels:
            return self.symbol(Ref("latent", name, positions, reading(self.functional(functional, env))))
        own = len(latent.elements)
        levels = []
        for position in positions[own:]:
            if isinstance(position, str) and not is_level(position):
                raise NeedsElements(position)
            levels.append(position[1:] if isinstance(position, str) else str(position))
        placed = m.Functional(latent.at_levels(functional.at, tuple(levels)), functional.derivative)
        return self.symbol(Ref("latent", name, positions[:own], reading(self.functional(placed, env))))

    def functional(self, functional: m.Functional, env: Environment) -> m.Functional:
        """The functional with the columns it is differentiated along as numbers."""
        if not any(isinstance(each.column, m.IndexValue) for each in functional.derivative):
            return functional
        found = []
        for each in functional.derivative:
            column = each.column if isinstance(each.column, int) else self.position(each.column, env)
            if not isinstance(column, int):
                raise NeedsElements(column)
            found.append(m.Direction(each.argument, column))
        return m.Functional(functional.at, tuple(sorted(found, key=lambda each: (each.argument, each.column))))

    def let(self, name: str, positions: tuple[Position, ...]) -> sp.Expr:
        """One element of a `let`, with definitions by cases and recursion unrolled."""
        wanted = (name, positions)
        if wanted in self._lets:
            return self._lets[wanted]
        if self._deepest is not None:
            if self._level > self._deepest:
                raise DefineFirst(wanted)
            return self._define(wanted)
        pending, self._deepest = [wanted], self._level + LEVELS
        try:
            while pending:
                try:
                    self._define(pending[-1])
                    pending.pop()
                except DefineFirst as first:
                    pending.append(first.element)
        finally:
            self._deepest = None
        return self._lets[wanted]

    def _define(self, element: Element) -> sp.Expr:
        name, positions = element
        declared = self.declarations.lets[name]
        env = {axis_key(a): p for a, p in zip(declared.axes, positions, strict=True)}
        case = self._case(declared, env)
        shown = f"`{name}[{', '.join(map(str, positions))}]`" if positions else f"`{name}`"
        self._lets[element] = self.scalar(case.body, env, shown)
        return self._lets[element]

    def _case(self, declared: m.Let, env: Environment) -> m.Case:
        known: dict[str, int] = {}
        for index in conditions.decisive(declared):
            position = env[index]
            if not isinstance(position, int):
                raise NeedsElements(position)
            known[index] = position
        case = conditions.case_of(declared, known)
        if case is None:
            element = f"{declared.name}[{', '.join(map(str, env.values()))}]"
            raise self.failure(NoCase(declared.span, element))
        return case

    def bounded(self, expression: sp.Expr, what: str, span: Span) -> sp.Expr:
        """The expression itself. Raises ModelError, naming it `what`, when it is too large to work with."""
        size, depth = self.extent(expression)
        if size > conditions.MAX_OPERATIONS:
            raise self.failure(TooLarge(span, what, conditions.MAX_OPERATIONS))
        if depth > conditions.MAX_NESTING:
            raise self.failure(TooDeep(span, what, conditions.MAX_NESTING))
        return expression

    def extent(self, expression: sp.Basic) -> tuple[int, int]:
        """Number of operations and symbols in an expression, and how deep they nest.

        Parts that occur twice count twice, since SymPy walks them twice.
        """
        if expression not in self._extents:
            parts = [self.extent(a) for a in expression.args]
            size = 1 + sum(size for size, _ in parts)
            self._extents[expression] = size, 1 + max((depth for _, depth in parts), default=0)
        return self._extents[expression]

    def failure(self, mistake: Mistake) -> ModelError:
        """The error to raise for a mistake in this model's text."""
        return ModelError(self.declarations.source, (mistake,))

    def _operation(self, operation: m.Operation, env: Environment) -> sp.Expr:
        value = conditions.settled(ELEMENTARY[operation.operator](*[self.scalar(o, env) for o in operation.operands]))
        if not all(conditions.is_real(part) for part in (value, *value.args)):
            raise self.failure(NotReal(operation.span, "this"))
        return value

    def _reduction(self, reduction: m.Reduction, env: Environment) -> sp.Expr:
        if self.declarations.fields and (whole := reduced(self, reduction, env)) is not None:
            return whole
        what = f"`{reduction.operator}` over `{reduction.axis.describe()}`"
        count, key = self.size(reduction.axis), axis_key(reduction.axis)
        if count > conditions.MAX_TERMS:
            raise self.failure(TooLarge(reduction.span, what, conditions.MAX_TERMS))
        values, total = [], 0
        for i in range(1, count + 1):
            values.append(self.scalar(reduction.body, {**env, key: i}))
            total += self.extent(values[-1])[0]
            if total > conditions.MAX_OPERATIONS or self._visits > conditions.MAX_VISITS:
                raise self.failure(TooLarge(reduction.span, what, conditions.MAX_OPERATIONS))
        return REDUCTIONS[reduction.operator](*values)

    def elements(self, expression: m.Expression, env: Environment | None = None) -> tuple[sp.Expr, ...]:
        """Every element of an expression along its own axes, in row-major order."""
        keys = [axis_key(a) for a in expression.axes]
        ranges = [range(1, self.size(a) + 1) for a in expression.axes]
        return tuple(
            self.scalar(expression, {**(env or {}), **dict(zip(keys, positions, strict=True))})
            for positions in itertools.product(*ranges)
        )

    def external(
        self, function: str, arguments: tuple[m.Expression, ...], observed: tuple[str, ...] = ()
    ) -> ExternalUse:
        """The use of an opaque function with these arguments (outputs `observed` first, for a likelihood)."""
        d, fields = self.declarations, self.field_calls
        passed = [(self.shape(d.outputs[o].axes), self._output_elements(o)) for o in observed]
        passed += [(self.shape(a.axes), self.elements(a)) for a in arguments]
        for use in self.externals.values():
            if use.function == function and use.arguments == tuple(passed):
                return use
        result = () if observed else self.shape(d.externals[function].result)
        key = f"{function}#{len(self.externals) + 1}"
        whole = tuple(self._generic(each) for each in arguments) if fields else ()
        use = ExternalUse(key, function, tuple(passed), result, bool(observed), (*[None] * len(observed), *whole))
        self.externals[key] = use
        return use

    def _generic(self, expression: m.Expression) -> tuple[tuple[str, ...], sp.Expr] | None:
        """The keys of the axes of an expression and its formula along them, where there is one for all elements."""
        try:
            return tuple(map(axis_key, expression.axes)), self.scalar(expression)
        except NeedsElements:
            return None

    def _output_elements(self, name: str) -> tuple[sp.Expr, ...]:
        ranges = [range(1, n + 1) for n in self.shape(self.declarations.outputs[name].axes)]
        return tuple(self.symbol(Ref("output", name, p)) for p in itertools.product(*ranges))
