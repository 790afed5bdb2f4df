"""Numbers of kernel formulas in NumPy: parameters near their initial values, and matrices at given points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp

from gpdsl.language import model as m
from gpdsl.symbolic.conditions import DIGITS
from gpdsl.symbolic.functions import at_values, differentiated
from gpdsl.symbolic.kernel_formula import DISTANCE, Formula, Reduced, element_of
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.translate import Translator, axis_key

Numbers = Mapping[str, np.ndarray]
_REDUCE = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "logsumexp": lambda values, axis: np.logaddexp.reduce(values, axis=axis),
}

UNKNOWN_SIZE = 5
"""Columns of an input whose number data will say."""


class UnknownSizes(dict):
    """Sizes that data have not said yet; `asked` once one was needed."""

    asked = False

    def __missing__(self, name: str) -> int:
        self.asked = True
        return UNKNOWN_SIZE


def numbers_near(
    translator: Translator, formula: Formula, arguments: tuple[m.Expression, ...], rng: np.random.Generator | None
) -> dict[str, np.ndarray]:
    """The value of each argument, an array along the columns where it has that axis, and along those of `arrays`.

    Parameters have their initial values, or with `rng` random ones around them. Of a latent with indices it is the
    first element.
    """
    drawn: dict[sp.Symbol, float] = {}
    arrays = dict(formula.arrays)
    found = {}
    for name, argument in zip(formula.parameters, arguments, strict=True):
        along = arrays.get(name) or tuple(axis for axis in argument.axes if axis.name is None)
        first = {axis_key(axis): 1 for axis in argument.axes if axis.name is not None}
        shape = translator.shape(along)
        values = [
            _one(translator, translator.scalar(argument, first | _place(along, each)), rng, drawn)
            for each in np.ndindex(shape)
        ]
        found[name] = np.asarray(values).reshape(shape)
    return found


def _place(axes: tuple[m.Axis, ...], position: tuple[int, ...]) -> dict[str, int]:
    return {axis_key(axis): k + 1 for axis, k in zip(axes, position, strict=True)}


def _one(
    translator: Translator, value: sp.Expr, rng: np.random.Generator | None, drawn: dict[sp.Symbol, float]
) -> float:
    for symbol in sorted(value.free_symbols - set(drawn), key=str):
        drawn[symbol] = start_of(translator, symbol, rng)
    return float(evaluate(value, drawn))


def start_of(translator: Translator, symbol: sp.Symbol, rng: np.random.Generator | None = None) -> float:
    """The initial value of what a symbol stands for, or with `rng` a random one around it; 1 for what data will say."""
    ref = translator.references[symbol]
    if ref.kind != "param":
        return 1.0
    start = np.asarray(translator.declarations.params[ref.name].initial, float)
    if start.ndim:
        start = start[tuple(int(p) - 1 if isinstance(p, int) else 0 for p in ref.positions)]
    if rng is None:
        return float(start)
    param = translator.declarations.params[ref.name]
    if param.constraint == "positive":
        return float(start * np.exp(rng.normal()))
    if param.constraint == "unit":
        return float(rng.uniform(0.05, 0.95))
    inside = start + 0.5 * (np.abs(start) + 0.5) * rng.normal()
    low, high = param.lower, param.upper
    return float(start if low is not None or high is not None else inside)


def matrix(formula: Formula, numbers: Numbers, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The formula for every pair of the points a [n, D] and b [m, D], as it stands: slow and plain."""
    inside: Numbers = numbers
    if formula.arrays or formula.levels:
        numbers, inside, a, b = _at_levels(formula, numbers, a, b)
    first, second = a[:, None, :], b[None, :, :]
    shape = (a.shape[0], b.shape[0])
    if formula.radial:
        weights = evaluate(formula.weights, _Generic(numbers, {}))
        return at_distances(formula, numbers, np.sqrt(np.sum(weights * (first - second) ** 2, axis=-1)))
    wholes = dict(zip(formula.points, (first, second), strict=True))
    generic = _Generic(inside, wholes)
    reduced = {each.symbol: _reduced(each, generic, (*shape, a.shape[1])) for each in formula.reductions}
    elements = dict(zip((p.name for p in formula.points), (first, second), strict=True))
    return np.broadcast_to(evaluate(formula.expression, _Generic(numbers, reduced, elements)), shape)


def levels_at(formula: Formula, a: Any, b: Any) -> tuple[dict[str, Any], Any, Any]:
    """The levels of each pair of points, which are their last columns, and the points without these; of any arrays."""
    if not formula.levels:
        return {}, a, b
    first, second = (each.name for each in formula.levels)
    return {first: a[:, -1][:, None], second: b[:, -1][None, :]}, a[:, :-1], b[:, :-1]


def _at_levels(
    formula: Formula, numbers: Numbers, a: np.ndarray, b: np.ndarray
) -> tuple[Numbers, Numbers, np.ndarray, np.ndarray]:
    """The numbers of each pair of points, those for sums over columns, and the points without their last column."""
    levels, a, b = levels_at(formula, a, b)
    found = elements_read(formula, numbers, levels)
    pairs = {each.symbol.name for each in formula.gathered if None not in each.positions} | set(levels)
    return found, {name: v[..., None] if name in pairs and np.ndim(v) else v for name, v in found.items()}, a, b


def at_distances(formula: Formula, numbers: Numbers, distances: np.ndarray) -> np.ndarray:
    """A formula of the distance at these ones, weighted as its points' columns are."""
    # Two equal points are looked at just beside each other: what the formula tends to is its value there.
    places = {DISTANCE: np.where(distances > 0, distances, 1e-9)}
    return np.broadcast_to(evaluate(formula.expression, _Generic(numbers, places)), np.shape(distances))


def _reduced(each: Reduced, values: Mapping[sp.Symbol, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    return _REDUCE[each.operator](np.broadcast_to(evaluate(each.body, values), shape), axis=-1)  # type: ignore[operator]


class _Generic(dict):
    """Values of symbols: places first, then elements of the points, then the numbers."""

    def __init__(
        self,
        numbers: Numbers,
        places: Mapping[sp.Symbol, np.ndarray],
        elements: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        super().__init__(places)
        self.numbers = numbers
        self.elements = elements or {}

    def __missing__(self, symbol: sp.Symbol) -> np.ndarray:
        name, position = element_of(symbol)
        if name in self.elements:
            return self.elements[name][..., 0 if position is None else position - 1]
        return self.numbers[name] if position is None else self.numbers[name][..., position - 1]


# Numbers: the elements of arrays that a formula reads, at the levels of its points. For NumPy and JAX alike.


def elements_read(formula: Formula, numbers: Mapping[str, Any], levels: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a formula with what it gathers in the place of its arrays, [..., columns] where it has these.

    `levels` are the values of the index at the points, from 1, in shapes that broadcast against each other; between two
    levels the nearer one counts.
    """
    arrays = dict(formula.arrays)
    found = {name: value for name, value in numbers.items() if name not in arrays}
    found |= {name: level.round() for name, level in levels.items()}
    for each in formula.gathered:
        array = numbers[each.array]
        places = [
            slice(None) if p is None else p - 1 if isinstance(p, int) else _at_level(levels[p], array.shape[k])
            for k, p in enumerate(each.positions)
        ]
        found[each.symbol.name] = array[tuple(places)]
    return found


def _at_level(level: Any, count: int) -> Any:
    return (level.round().astype(int) - 1).clip(0, count - 1)


# How often a process can be differentiated (mean-square), from its covariance as a function of the distance.
#
# k(r) = c0 + c1 r + c2 r^2 + ... has n derivatives when the first 2n of the terms have even powers (Stein 1999, 2.4).

MOST_DERIVATIVES = 3
MOST_OPERATIONS = 400
_NEAR, _NEARER = sp.Rational(1, 10**8), sp.Rational(1, 10**16)


def smoothness(profile: sp.Expr, distance: sp.Symbol) -> int | None:
    """How many derivatives the process has, up to `MOST_DERIVATIVES`; None when the formula does not tell.

    Its derivatives near zero are looked at with many digits and arbitrary parameters, in place of a symbolic limit,
    whose search may not end. What depends on the value of a parameter, as that of an exponent, is not told.
    """
    if _learnt_power(profile, distance):
        return None
    numbers = {
        symbol: sp.Rational(2 * i + 7, 2 * i + 5) for i, symbol in enumerate(sorted(profile.free_symbols, key=str))
    }
    slope = at_values(profile, {symbol: number for symbol, number in numbers.items() if symbol != distance})
    for order in range(1, 2 * MOST_DERIVATIVES + 1):
        found = differentiated(slope, distance)
        if found is None or sp.count_ops(found) > MOST_OPERATIONS * order:
            return None
        slope = found
        near, nearer = (_number(slope, distance, at) for at in (_NEAR, _NEARER))
        if near is None or nearer is None:
            return None
        settled = abs(near - nearer) <= 1e-5 * (1 + abs(nearer)) or abs(nearer) < 0.1 * abs(near)
        if not settled:  # it grows without bound; between the two, as for r^2.01, it is not decided
            return (order - 1) // 2 if abs(nearer) > 1.5 * abs(near) else None
        if order % 2 and abs(nearer) > 1e-5:
            return (order - 1) // 2
    return MOST_DERIVATIVES


def _learnt_power(profile: sp.Expr, distance: sp.Symbol) -> bool:
    """Whether a power of something that vanishes at distance zero has a parameter in it."""
    return any(
        power.exp.free_symbols and distance in power.base.free_symbols and power.base.subs(distance, 0) == 0
        for power in profile.atoms(sp.Pow)
    )


def _number(expression: sp.Expr, distance: sp.Symbol, at: sp.Rational) -> float | None:
    value = at_values(expression, {distance: at}).evalf(DIGITS)
    return float(value) if value.is_Float or value.is_Rational else None
