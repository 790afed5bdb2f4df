"""Checked kernels as SymPy expressions in the coordinates of two points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeAlias

import sympy as sp

from gpdsl.language import model as m
from gpdsl.symbolic.functions import REDUCTIONS, absolute, sigmoid
from gpdsl.symbolic.kernel_formula import DISTANCE, Formula, element_of, formula_of
from gpdsl.symbolic.translate import NeedsElements, Translator, axis_key

# The kernels of the table as formulas in the coordinates of two points, which analysis needs.

Coordinates = Sequence[sp.Expr]
Argument: TypeAlias = sp.Expr | Sequence
"""One number, one per column, or nested lists for a parameter that is an array."""


class level_covariance(sp.Function):
    """The entry of a Coregion matrix for two levels."""

    nargs = 2
    is_real = True


class patch_mean(sp.Function):
    """The mean over patches of two images."""

    is_real = True


def _each(value: Argument, columns: int) -> list[sp.Expr]:
    return list(value) if isinstance(value, Sequence) else [value] * columns


def _square(a: Coordinates, b: Coordinates, ell: Argument) -> sp.Expr:
    return sp.Add(*[(x - y) ** 2 / e**2 for x, y, e in zip(a, b, _each(ell, len(a)), strict=True)])


def _inner(a: Coordinates, b: Coordinates, ell: Argument) -> sp.Expr:
    return sp.Add(*[x * y / e**2 for x, y, e in zip(a, b, _each(ell, len(a)), strict=True)])


def _rbf(a: Coordinates, b: Coordinates, ell: Argument) -> sp.Expr:
    return sp.exp(-_square(a, b, ell) / 2)


def _matern(times: int) -> Callable[..., sp.Expr]:
    def kernel(a: Coordinates, b: Coordinates, ell: Argument) -> sp.Expr:
        u = sp.sqrt((2 * times + 1) * _square(a, b, ell))
        return [1, 1 + u, 1 + u + u**2 / 3][times] * sp.exp(-u)

    return kernel


def _rational_quadratic(a: Coordinates, b: Coordinates, ell: Argument, alpha: sp.Expr) -> sp.Expr:
    return (1 + _square(a, b, ell) / (2 * alpha)) ** -alpha


def _periodic(a: Coordinates, b: Coordinates, ell: Argument, period: sp.Expr) -> sp.Expr:
    waves = [sp.sin(sp.pi * (x - y) / period) ** 2 / e**2 for x, y, e in zip(a, b, _each(ell, len(a)), strict=True)]
    return sp.exp(-2 * sp.Add(*waves))


def _cosine(a: Coordinates, b: Coordinates, period: sp.Expr) -> sp.Expr:
    return sp.cos(2 * sp.pi * sp.Add(*[x - y for x, y in zip(a, b, strict=True)]) / period)


def _polynomial(a: Coordinates, b: Coordinates, degree: sp.Expr, offset: sp.Expr, ell: Argument) -> sp.Expr:
    return (offset + _inner(a, b, ell)) ** degree


def _arc_cosine(a: Coordinates, b: Coordinates, order: sp.Expr, weight: Argument, bias: sp.Expr) -> sp.Expr:
    def product(p: Coordinates, q: Coordinates) -> sp.Expr:
        return sp.Add(*[w * x * y for x, y, w in zip(p, q, _each(weight, len(a)), strict=True)]) + bias

    size = sp.sqrt(product(a, a) * product(b, b))
    cosine = product(a, b) / size
    sine, rest = sp.sqrt(1 - cosine**2), sp.pi - sp.acos(cosine)
    shapes = [rest, sine + rest * cosine, 3 * sine * cosine + rest * (1 + 2 * cosine**2)]
    return size**order * shapes[int(order)] / sp.pi


def _spectral_mixture(a: Coordinates, b: Coordinates, weights: Argument, means: Argument, sds: Argument) -> sp.Expr:
    total = sp.Integer(0)
    for weight, mean, sd in zip(weights, means, sds, strict=True):  # type: ignore[arg-type, var-annotated]
        columns = zip(a, b, _each(mean, len(a)), _each(sd, len(a)), strict=True)
        waves = [
            sp.exp(-2 * sp.pi**2 * s**2 * (x - y) ** 2) * sp.cos(2 * sp.pi * m * (x - y)) for x, y, m, s in columns
        ]
        total += weight * sp.Mul(*waves)
    return total


def _white(a: Coordinates, b: Coordinates) -> sp.Expr:
    return sp.Mul(*[sp.KroneckerDelta(x, y) for x, y in zip(a, b, strict=True)])


def change(x: sp.Expr, at: sp.Expr, width: sp.Expr) -> sp.Expr:
    """The sigmoid that turns a kernel on."""
    return sigmoid((x - at) / width)


FORMULAS: Mapping[str, Callable[..., sp.Expr]] = {
    "RBF": _rbf,
    "Matern12": _matern(0),
    "Matern32": _matern(1),
    "Matern52": _matern(2),
    "RationalQuadratic": _rational_quadratic,
    "Periodic": _periodic,
    "Cosine": _cosine,
    "Linear": _inner,
    "Polynomial": _polynomial,
    "ArcCosine": _arc_cosine,
    "SpectralMixture": _spectral_mixture,
    "Coregion": lambda a, b, W, kappa: level_covariance(a[0], b[0]),
    "Constant": lambda a, b: sp.Integer(1),
    "Same": _white,
    "White": _white,
}
"""Every kernel of the table but those made of others."""


MOST_COORDINATES = 2


@dataclass(frozen=True)
class Pair:
    """The coordinates of two points."""

    a: tuple[sp.Symbol, ...]
    b: tuple[sp.Symbol, ...]


@dataclass(frozen=True)
class Found:
    """A kernel in the coordinates of `pair`.

    `columns` is how many columns its input has. `plain` says that it sees them as they are, at most selected; `whole`
    that all its parts see the same ones.
    """

    expression: sp.Expr
    pair: Pair
    columns: int
    plain: bool
    whole: bool


@dataclass
class _State:
    """Coordinates given out so far, by what the kernel sees."""

    translator: Translator
    latent: m.Latent
    seen: dict[str, tuple[tuple[sp.Expr, ...], tuple[sp.Expr, ...], int]] = field(default_factory=dict)
    plain: bool = True


def expression_of(kernel: m.Kernel, translator: Translator, latent: m.Latent) -> Found:
    """The kernel written out, its table entries by their formulas. Raises ModelError when it does not fit."""
    state = _State(translator, latent)
    expression = _kernel(kernel, state)
    a = tuple(symbol for first, _, _ in state.seen.values() for symbol in first)
    b = tuple(symbol for _, second, _ in state.seen.values() for symbol in second)
    columns = sum(count for _, _, count in state.seen.values()) or 1
    if not a:  # a constant
        a, b = (sp.Symbol("a", real=True),), (sp.Symbol("b", real=True),)
    return Found(expression, Pair(a, b), columns, state.plain, len(state.seen) <= 1)  # type: ignore[arg-type]


def _kernel(kernel: m.Kernel, state: _State) -> sp.Expr:
    match kernel:
        case m.KernelScale(factor=factor, kernel=inner):
            return _number(factor, state) * _kernel(inner, state)
        case m.KernelSum(terms=terms):
            return sp.Add(*[_kernel(each, state) for each in terms])
        case m.KernelProduct(factors=factors):
            return sp.Mul(*[_kernel(each, state) for each in factors])
        case m.KernelCall(name="ChangePoint"):
            return _change_point(kernel, state)
        case m.KernelCall(name="Patch"):
            a, b, _ = _coordinates(kernel, state)
            return patch_mean(*a, *b)
        case m.KernelCall(name="Constant"):
            return sp.Integer(1)
        case m.KernelCall(name=name, arguments=arguments):
            a, b, _ = _coordinates(kernel, state)
            given = {key: _argument(each, state, len(a)) for key, each in arguments.items()}
            return FORMULAS[name](a, b, **given)
        case m.KernelFormula():
            return _formula(kernel, state)
    raise TypeError(f"not a kernel: {type(kernel).__name__}")


def _coordinates(
    kernel: m.KernelCall | m.KernelFormula, state: _State, least: int = 1
) -> tuple[tuple[sp.Expr, ...], tuple[sp.Expr, ...], int]:
    """The coordinates that a call sees; calls that see the same columns share them."""
    own = {axis_key(axis) for axis in state.latent.axes}
    if kernel.on:
        axes = [[axis for axis in each.axes if axis_key(axis) not in own] for each in kernel.on]
        key = ", ".join(_key(each) for each in kernel.on)
        state.plain = state.plain and all(isinstance(each, m.Read) for each in kernel.on)
    else:
        axes = [list(state.translator.declarations.columns_of(name)) for name in state.latent.arguments]
        key = ", ".join(f"{name}[*]" if each else name for name, each in zip(state.latent.arguments, axes, strict=True))
    count = sum(reduce(lambda n, size: n * size, state.translator.shape(tuple(each)), 1) for each in axes)
    if key not in state.seen:
        mark = "" if not state.seen else f"_{len(state.seen) + 1}"
        shown = max(least, min(count, MOST_COORDINATES))
        marks = [mark] if shown == 1 else [f"{i}{mark}" for i in range(1, shown + 1)]
        a, b = (tuple(sp.Symbol(f"{letter}{each}", real=True) for each in marks) for letter in "ab")
        state.seen[key] = a, b, count
    return state.seen[key]


def _key(expression: m.Expression) -> str:
    """The same text for the same columns."""
    if isinstance(expression, m.Read):
        inside = [
            str(s.position) if isinstance(s, m.Fixed) else f"{s.start}.." if isinstance(s, m.Slice) else "*"
            for s in expression.subscripts
        ]
        return f"{expression.name}[{', '.join(inside)}]" if inside else expression.name
    return f"{expression.span.line}:{expression.span.column}"


def _number(expression: m.Expression, state: _State) -> sp.Expr:
    try:
        return state.translator.scalar(expression)
    except NeedsElements:
        return sp.Symbol(f"value at {expression.span.line}:{expression.span.column}", real=True)


def _argument(expression: m.Expression, state: _State, coordinates: int) -> sp.Expr | Sequence:
    """A number; one for each coordinate; or nested lists of an array."""
    own = {axis_key(axis) for axis in state.latent.axes}
    axes = [axis for axis in expression.axes if axis_key(axis) not in own]
    return _nested(expression, axes, {}, state, coordinates)


def _nested(
    expression: m.Expression, axes: list[m.Axis], env: dict[str, int], state: _State, coordinates: int
) -> sp.Expr | Sequence:
    if not axes:
        return state.translator.scalar(expression, env)
    size = state.translator.size(axes[0])
    last = len(axes) == 1 and axes[0].name is None
    count = min(size, coordinates) if last else size
    key = axis_key(axes[0])
    each = [_nested(expression, axes[1:], {**env, key: i}, state, coordinates) for i in range(1, count + 1)]
    return each + each[-1:] * (coordinates - count) if last else each


def _change_point(kernel: m.KernelCall, state: _State) -> sp.Expr:
    before, after = (_kernel(each, state) for each in kernel.kernels)
    a, b, _ = _coordinates(kernel, state)
    at, width = _number(kernel.arguments["at"], state), _number(kernel.arguments["width"], state)
    first, second = sigmoid((a[0] - at) / width), sigmoid((b[0] - at) / width)
    return (1 - first) * (1 - second) * before + first * second * after


def _formula(kernel: m.KernelFormula, state: _State) -> sp.Expr:
    points = replace(kernel, on=kernel.on[:-1]) if kernel.levels else kernel
    a, b, columns = _coordinates(points, state)
    formula, arguments = formula_of(kernel, state.translator, columns)
    expression = written_out(formula, a, b)
    names = dict(zip(formula.parameters, arguments, strict=True))
    if kernel.levels:
        first, second, _ = _coordinates(replace(kernel, on=kernel.on[-1:]), state)
        levels = dict(zip(kernel.levels, (first[0], second[0]), strict=True))
        expression = expression.subs(_by_level(formula, levels), simultaneous=True)
    pairs = {}
    for symbol in expression.free_symbols - {*a, *b}:
        name, position = element_of(symbol)
        if name in names:
            value = _argument(names[name], state, len(a))
            pairs[symbol] = value[(position or 1) - 1] if isinstance(value, Sequence) else value
    return expression.subs(pairs, simultaneous=True).replace(absolute, sp.Abs)


def _by_level(formula: Formula, levels: Mapping[str, sp.Expr]) -> dict[sp.Symbol, sp.Expr]:
    """What is gathered as functions of the levels, and the levels themselves."""
    found = {symbol: levels[symbol.name] for symbol in formula.levels}
    for each in formula.gathered:
        places = [levels[p] if isinstance(p, str) else sp.Integer(p) for p in each.positions if p is not None]
        if any(isinstance(p, str) for p in each.positions):
            function = sp.Function(each.array.removesuffix("()"), **each.symbol.assumptions0)
            found[each.symbol] = function(*places)
    return found


def written_out(formula: Formula, a: Sequence[sp.Expr], b: Sequence[sp.Expr]) -> sp.Expr:
    """A formula in explicit coordinates; what its points have beyond those counts as the last of them."""
    if formula.radial:
        squares = [_at(formula.weights, i) * (x - y) ** 2 for i, (x, y) in enumerate(zip(a, b, strict=True), 1)]
        return formula.expression.subs(DISTANCE, sp.sqrt(sp.Add(*squares)))
    first, second = formula.points
    pairs: dict[sp.Symbol, sp.Expr] = {}
    for each in formula.reductions:
        terms = [
            _at(each.body, i, {first, second}).subs({first: x, second: y}, simultaneous=True)
            for i, (x, y) in enumerate(zip(a, b, strict=True), 1)
        ]
        pairs[each.symbol] = REDUCTIONS[each.operator](*terms)
    for symbol in formula.expression.free_symbols:
        name, position = element_of(symbol)
        for point, coordinates in ((first, a), (second, b)):
            if name == point.name:
                pairs[symbol] = coordinates[min((position or 1), len(coordinates)) - 1]
    return formula.expression.subs(pairs, simultaneous=True)


def _at(expression: sp.Expr, position: int, apart: set[sp.Symbol] | None = None) -> sp.Expr:
    """A generic element at one column: its numbers get that column's names."""
    pairs = {
        symbol: sp.Symbol(f"{symbol.name}[{position}]", **symbol.assumptions0)
        for symbol in expression.free_symbols - (apart or set())
        if element_of(symbol)[1] is None
    }
    return expression.subs(pairs, simultaneous=True)
