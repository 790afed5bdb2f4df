"""Kernels by formula in SymPy: a covariance of two points, or of the distance between them when it depends on no more.

A formula is translated once, for a generic column of its points: what it sums over the columns stays one `Reduced`,
however many columns there are. A formula that depends on a weighted distance only is rewritten in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import sympy as sp

from gpdsl.language import model as m
from gpdsl.language.vocabulary import Span
from gpdsl.symbolic.errors import BeyondData, NoVariance
from gpdsl.symbolic.functions import absolute, at_values, expanded
from gpdsl.symbolic.translate import Environment, NeedsElements, Translator, axis_key

DISTANCE = sp.Symbol("r", nonnegative=True)
_DIFFERENCE = sp.Symbol("a - b", real=True)
MAX_SIMPLIFIED = 300
"""Formulas with more operations than this are used as they are written."""
MOST_OPERATIONS = 3000
"""Quotients that grow larger than this are not looked at any further for their limit."""


@dataclass(frozen=True)
class Reduced:
    """A sum (or another reduction) over the columns of the points; `body` is its generic element."""

    symbol: sp.Symbol
    operator: str
    body: sp.Expr


@dataclass(frozen=True)
class Gathered:
    """An element of an array in a formula: at the level of a point, or at a number; `None` runs along the columns."""

    symbol: sp.Symbol
    array: str
    positions: tuple[str | int | None, ...]


@dataclass(frozen=True)
class Formula:
    """A covariance by formula, without its numbers.

    `points` are the generic elements of the two points, empty when `expression` depends on `DISTANCE` alone: the root
    of the sum over columns of `weights` times the squared difference. `parameters` are the symbols of its numbers, in
    the order of the arguments; element `k` of a vector is the symbol `name[k]`.

    `levels` are the values of an index at the two points, which are then the last column of either; `arrays` are the
    parameters read by them, with their axes, and `gathered` what is read, also where the levels change places or meet.
    """

    expression: sp.Expr
    points: tuple[sp.Symbol, ...]
    reductions: tuple[Reduced, ...]
    parameters: tuple[str, ...]
    weights: sp.Expr = sp.Integer(1)
    levels: tuple[sp.Symbol, ...] = ()
    arrays: tuple[tuple[str, tuple[m.Axis, ...]], ...] = ()
    gathered: tuple[Gathered, ...] = ()

    def at_levels(self, expression: sp.Expr, levels: Mapping[sp.Symbol, sp.Symbol]) -> sp.Expr:
        """An expression of the formula where each level stands for another one."""
        names = {old.name: new.name for old, new in levels.items()}
        known = {(each.array, each.positions): each.symbol for each in self.gathered}
        pairs: dict[sp.Symbol, sp.Symbol] = dict(levels)
        for each in self.gathered:
            moved = tuple(names.get(p, p) if isinstance(p, str) else p for p in each.positions)
            pairs[each.symbol] = known[each.array, moved]
        return expression.subs(pairs, simultaneous=True)

    def swapped(self, expression: sp.Expr) -> sp.Expr:
        """An expression of the formula with its levels in each other's places."""
        return self.at_levels(expression, dict(zip(self.levels, self.levels[::-1], strict=True)))

    def met(self, expression: sp.Expr) -> sp.Expr:
        """An expression of the formula where both points are at the level of the first."""
        return self.at_levels(expression, {self.levels[1]: self.levels[0]}) if self.levels else expression

    def by_level(self) -> frozenset[sp.Symbol]:
        """The symbols that depend on the levels."""
        told = {each.symbol for each in self.gathered if any(isinstance(p, str) for p in each.positions)}
        return frozenset({*self.levels, *told})

    @property
    def radial(self) -> bool:
        """Whether it depends on the distance alone."""
        return not self.points


def element(symbol: sp.Symbol, position: int) -> sp.Symbol:
    """Element `position`, counted from 1, of a generic symbol."""
    return sp.Symbol(f"{symbol.name}[{position}]", **symbol.assumptions0)


def element_of(symbol: sp.Symbol) -> tuple[str, int | None]:
    """The name and the element that a symbol stands for; None for a generic one."""
    name, bracket, rest = symbol.name.partition("[")
    return (name, int(rest[:-1])) if bracket and rest[:-1].isdigit() else (symbol.name, None)


def formula_of(
    kernel: m.KernelFormula, translator: Translator, columns: int
) -> tuple[Formula, tuple[m.Expression, ...]]:
    """The formula of a kernel over `columns` columns, and the expressions of its parameters in order.

    Raises ModelError when it has no finite value where its points meet.
    """
    inner = _Inside(kernel, translator, columns)
    expression = translator.bounded(inner.scalar(kernel.body), f"`{kernel.name}`", kernel.body.span)
    points = tuple(inner.points.values())
    of_points = (points, tuple(inner.reductions)) if len(kernel.points) == 2 else ((), ())
    found = Formula(
        expression,
        *of_points,
        tuple(inner.parameters),
        levels=tuple(inner.levels.values()),
        arrays=tuple(inner.arrays.items()),
        gathered=inner.everywhere(),
    )
    if translator.extent(expression)[0] <= MAX_SIMPLIFIED:
        found = found if found.radial else _in_distance(found)
        found = _scaled(found) if found.radial else found
    return found, tuple(inner.parameters.values())


class _Inside(Translator):
    """Translates a formula whose points and parameters are `Local`."""

    def __init__(self, kernel: m.KernelFormula, outer: Translator, columns: int) -> None:
        super().__init__(outer.declarations, {**outer.sizes, "columns": columns})
        self.outer = outer
        self.kernel = kernel
        self.columns = columns
        self.axis = _columns_axis(kernel)
        self.points = {n: sp.Symbol(n, real=True) for n in kernel.points} if len(kernel.points) == 2 else {}
        self.parameters: dict[str, m.Expression] = dict(kernel.arguments)
        self.levels = {n: sp.Symbol(n, integer=True, positive=True) for n in kernel.levels}
        self.arrays: dict[str, tuple[m.Axis, ...]] = dict(kernel.arrays)
        self.gathered: dict[tuple[str, tuple[str | int | None, ...]], Gathered] = {}
        self.reductions: list[Reduced] = []
        self._positive: dict[str, bool] = {}

    def _scalar(self, expression: m.Expression, env: Environment) -> sp.Expr:
        match expression:
            case m.Number(value=math.pi):
                return sp.pi
            case m.Local(name=name) if name in self.levels:
                return self.levels[name]
            case m.Local(name=name, subscripts=subscripts) if name in self.arrays:
                return self._element(name, subscripts, env)
            case m.Local(name=name, subscripts=subscripts):
                return self._at(self._symbol(name), subscripts, env)
            case m.Reduction(axis=axis) if self.axis is not None and m.same_axis(axis, self.axis):
                if axis_key(axis) not in env:
                    return self._over_columns(expression, env)
        return super()._scalar(expression, env)

    def _read(self, read: m.Read, env: Environment) -> sp.Expr:
        """A quantity of the model inside the formula is one more parameter; read by an index, as a whole."""
        if any(isinstance(each, m.Level | m.IndexValue) for each in read.subscripts):
            axes = self.declarations.axes_of(read.name)
            every = tuple(m.IndexValue(axis.name) if axis.name is not None else m.Whole(axis) for axis in axes)
            name = f"{read.name}()"
            self.parameters.setdefault(name, m.Read(read.span, axes, read.name, every))
            self.arrays.setdefault(name, axes)
            return self._element(name, read.subscripts, env)
        name = f"{read.name}({', '.join(map(_shown, read.subscripts))})" if read.subscripts else read.name
        self.parameters.setdefault(name, read)
        wholes = tuple(s for s in read.subscripts if isinstance(s, m.Whole))
        return self._at(self._symbol(name), wholes, env)

    def _symbol(self, name: str) -> sp.Symbol:
        if name in self.kernel.points:
            return self.points.get(name, DISTANCE)
        if name not in self._positive:
            self._positive[name] = _is_positive(self.outer, self.parameters[name])
        return sp.Symbol(name, positive=True) if self._positive[name] else sp.Symbol(name, real=True)

    def _element(self, name: str, subscripts: tuple[m.Subscript, ...], env: Environment) -> sp.Expr:
        """An element of an array: at a level, a number or along the columns."""
        positions: list[str | int | None] = []
        for subscript, axis in zip(subscripts, self.arrays[name], strict=True):
            place = subscript.name if isinstance(subscript, m.Level) else self.position(subscript, env)
            positions.append(place if isinstance(place, int) or isinstance(subscript, m.Level) else None)
            if isinstance(place, int) and place > self.size(axis):
                shown, where = f"{name.removesuffix('()')}[{place}]", axis.describe()
                raise self.failure(BeyondData(self.kernel.span, shown, where, self.size(axis)))
        return self._gathered(name, tuple(positions)).symbol

    def _gathered(self, name: str, positions: tuple[str | int | None, ...]) -> Gathered:
        if (name, positions) not in self.gathered:
            shown = ", ".join("*" if each is None else str(each) for each in positions)
            symbol = sp.Symbol(f"{name.removesuffix('()')}({shown})", **self._symbol(name).assumptions0)
            self.gathered[name, positions] = Gathered(symbol, name, positions)
        return self.gathered[name, positions]

    def everywhere(self) -> tuple[Gathered, ...]:
        """All that is gathered, also with the levels in each other's places and both at the same."""
        levels = tuple(self.levels)
        if levels:
            first, second = levels
            for moved in ({first: second, second: first}, {second: first}, {first: second}):
                for name, positions in list(self.gathered):
                    self._gathered(name, tuple(moved.get(p, p) if isinstance(p, str) else p for p in positions))
        return tuple(self.gathered.values())

    def _at(self, symbol: sp.Symbol, subscripts: tuple[m.Subscript, ...], env: Environment) -> sp.Expr:
        if not subscripts:
            return symbol
        position = self.position(subscripts[0], env)
        if not isinstance(position, int):
            return symbol
        if position > self.columns:
            shown = f"{symbol.name}[{position}]"
            raise self.failure(BeyondData(self.kernel.span, shown, "the columns of the input", self.columns))
        return element(symbol, position)

    def _over_columns(self, reduction: m.Reduction, env: Environment) -> sp.Expr:
        try:
            body = self.scalar(reduction.body, env)
        except NeedsElements:
            return self._reduction(reduction, env)
        match reduction.operator:
            case "norm":
                return sp.sqrt(self._reduced("sum", body**2))
            case "mean":
                return self._reduced("sum", body) / self.size(reduction.axis)
        return self._reduced(reduction.operator, body)

    def _reduced(self, operator: str, body: sp.Expr) -> sp.Expr:
        for each in self.reductions:
            if (each.operator, each.body) == (operator, body):
                return each.symbol
        nonnegative = body.is_nonnegative and operator != "logsumexp"
        assumption = {"nonnegative": True} if nonnegative else {"real": True}
        symbol = sp.Symbol(f"{operator}#{len(self.reductions) + 1}", **assumption)
        self.reductions.append(Reduced(symbol, operator, body))
        return symbol


def _shown(subscript: m.Subscript) -> str:
    return str(subscript.position) if isinstance(subscript, m.Fixed) else "*"


def _columns_axis(kernel: m.KernelFormula) -> m.Axis | None:
    """The axis of the points in the body, when they have several columns."""
    points = (p for p in m.every_part(kernel.body) if isinstance(p, m.Local) and p.name in kernel.points)
    return next((each.axis for point in points for each in point.subscripts if isinstance(each, m.Whole)), None)


def _is_positive(translator: Translator, expression: m.Expression) -> bool:
    try:
        return bool(translator.scalar(expression).is_positive)
    except NeedsElements:
        return False


def _in_distance(formula: Formula) -> Formula:
    """The same formula in the distance, when it depends on nothing else; otherwise itself."""
    a, b = formula.points
    free = formula.expression.free_symbols
    touched = any(isinstance(s, sp.Symbol) and element_of(s)[0] in (a.name, b.name) for s in free)
    if not formula.reductions:
        weight: sp.Expr = sp.Integer(1)
        inside = _of_difference(formula.expression, a, b) if free <= _generic(formula, free) else None
        if inside is None or inside.subs(_DIFFERENCE, -_DIFFERENCE) != inside:
            return formula
        expression = inside.subs(_DIFFERENCE, DISTANCE)
    elif len(formula.reductions) == 1 and formula.reductions[0].operator == "sum" and not touched:
        only = formula.reductions[0]
        inside = _of_difference(only.body, a, b)
        if inside is None:
            return formula
        weight = expanded(inside / _DIFFERENCE**2)
        one_for_all = not weight.free_symbols & {_DIFFERENCE, *formula.by_level()}
        if not one_for_all or not (weight.is_nonnegative or (1 / weight).is_nonnegative):
            return formula
        expression = formula.expression.subs(only.symbol, DISTANCE**2)
    else:
        return formula
    return replace(formula, expression=expression, points=(), reductions=(), weights=weight)


def _scaled(formula: Formula) -> Formula:
    """The same formula with length-scales taken into the distance, where they cost once per row and not per pair."""
    expression, weights = formula.expression, formula.weights
    for symbol in sorted(expression.free_symbols - {DISTANCE, *formula.by_level()}, key=str):
        if not symbol.is_positive:
            continue
        for factor in (symbol, 1 / symbol):
            inside = expression.subs(DISTANCE, factor * DISTANCE)
            if symbol not in inside.free_symbols:
                expression, weights = inside, weights / factor**2
                break
    return replace(formula, expression=expression, weights=weights)


def _generic(formula: Formula, free: set[sp.Basic]) -> set[sp.Basic]:
    """Symbols that are not single elements of the points."""
    names = {p.name for p in formula.points}
    return {s for s in free if isinstance(s, sp.Symbol) and (s in formula.points or element_of(s)[0] not in names)}


def _of_difference(expression: sp.Expr, a: sp.Symbol, b: sp.Symbol) -> sp.Expr | None:
    shifted = expression.replace(absolute, sp.Abs).subs(a, b + _DIFFERENCE)
    if b in shifted.free_symbols:
        shifted = expanded(shifted)
    return None if b in shifted.free_symbols else shifted


def at_zero(expression: sp.Expr) -> sp.Expr | None:
    """The limit of an expression as the distance goes to zero, or None when there is none that is finite.

    A few applications of l'Hôpital's rule, and no more: a limit that SymPy would search for may take for ever.
    """
    zero = {DISTANCE: sp.Integer(0)}
    value = at_values(expression, zero)
    if _finite(value):
        return value
    above, below = sp.fraction(sp.together(expression))
    for _ in range(6):
        if sp.count_ops(above) + sp.count_ops(below) > MOST_OPERATIONS:
            return None
        top, bottom = at_values(above, zero), at_values(below, zero)
        if not _finite(top) or not _finite(bottom):
            return None
        if bottom != 0:
            return top / bottom
        if top != 0:
            return None
        above, below = sp.diff(above, DISTANCE), sp.diff(below, DISTANCE)
    return None


def _finite(value: sp.Expr) -> bool:
    return not value.has(sp.nan, sp.zoo, sp.oo, -sp.oo)


def diagonal(formula: Formula) -> sp.Expr | None:
    """The variance: the formula where its points meet, in the first of them; None when it is not finite there."""
    expression = formula.met(formula.expression)
    return at_zero(expression) if formula.radial else _meeting(formula, expression)


def _meeting(formula: Formula, expression: sp.Expr) -> sp.Expr | None:
    a, b = formula.points
    pairs: dict[sp.Symbol, sp.Expr] = {b: a}
    for symbol in expression.free_symbols:
        name, position = element_of(symbol)
        if name == b.name and position is not None:
            pairs[symbol] = element(a, position)
    for each in formula.reductions:
        if formula.met(each.body).subs(b, a) == 0 and each.operator == "sum":
            pairs[each.symbol] = sp.Integer(0)
    value = expression.subs(pairs, simultaneous=True)
    return value if _finite(value) else None


def require_variance(formula: Formula, name: str, span: Span, translator: Translator) -> sp.Expr:
    """`diagonal`, or else the error that it is not finite."""
    value = diagonal(formula)
    if value is None:
        where = "at distance 0" if formula.radial else "where its two points are the same"
        raise translator.failure(NoVariance(span, name, where))
    return value
