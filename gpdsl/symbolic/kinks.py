"""Conditions on latents: as half-spaces, and where an expression jumps or bends: zeros of linear functions of them.

Comparisons of monotone functions of a linear function are undone (exp(f) < c where f < log c), |f| < c and f^2 < c are
two half-spaces. Conditions that only mean the same up to the boundary, of probability zero, count as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import sympy as sp

from gpdsl.errors import GpdslError
from gpdsl.symbolic import functions as f
from gpdsl.symbolic.conditions import both, choose, condition, equal, less, less_equal, opposite
from gpdsl.symbolic.counts import Array
from gpdsl.symbolic.curves import LINES, Line
from gpdsl.symbolic.functions import floor
from gpdsl.symbolic.gaussian import linear, parts_of, pull_exponentials
from gpdsl.symbolic.numeric import Budget, NotPolynomial, evaluate, expand_about
from gpdsl.symbolic.stable import stable

CORNERS = (f.absolute, f.maximum, f.minimum)

MOST_ARGUMENTS = 4
"""Arguments of `max` and `min` that are compared with each other."""


@dataclass(frozen=True)
class Region:
    """Intersection of half-spaces: for each linear function of latents the thresholds above which and below which."""

    above: Mapping[sp.Expr, tuple[sp.Expr, ...]] = field(default_factory=dict)
    below: Mapping[sp.Expr, tuple[sp.Expr, ...]] = field(default_factory=dict)

    @property
    def directions(self) -> tuple[sp.Expr, ...]:
        """The linear functions that are bounded."""
        return tuple(dict.fromkeys((*self.above, *self.below)))

    def split(self, half: sp.Expr) -> tuple[Region | None, Region | None]:
        """The parts where a half-space holds and where it does not; None for a part that is empty by its numbers."""
        direction, threshold = half.args
        lows, highs = self.above.get(direction, ()), self.below.get(direction, ())
        inside = Region(self.above, {**self.below, direction: (*highs, threshold)})
        outside = Region({**self.above, direction: (*lows, threshold)}, self.below)
        return (
            None if any((threshold - low).is_nonpositive for low in lows) else inside,
            None if any((threshold - high).is_nonnegative for high in highs) else outside,
        )

    def interval(self, direction: sp.Expr) -> tuple[sp.Expr | None, sp.Expr | None]:
        """The lower and the upper bound of a linear function, equal where thresholds contradict each other."""
        lows, highs = self.above.get(direction, ()), self.below.get(direction, ())
        low = None if not lows else lows[0] if len(lows) == 1 else _extreme(lows, f.maximum)
        high = None if not highs else highs[0] if len(highs) == 1 else _extreme(highs, f.minimum)
        if low is None or high is None or (high - low).is_nonnegative:
            return low, high
        return low, f.maximum(low, high)


EVERYWHERE = Region()


def _extreme(values: Sequence[sp.Expr], function: Callable[..., sp.Expr]) -> sp.Expr:
    """The largest or smallest, known where they are numbers."""
    if all(value.is_number for value in values):
        return (max if function is f.maximum else min)(values)
    return function(*values)


def without_corners(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> sp.Expr:
    """The expression with |a|, max and min of latents as conditionals."""
    if not expression.has(*CORNERS) or expression.free_symbols.isdisjoint(latents):
        return expression
    arguments = [without_corners(each, latents) for each in expression.args]
    if not isinstance(expression, CORNERS) or len(arguments) > MOST_ARGUMENTS:
        return expression.func(*arguments)
    found, *others = arguments
    if isinstance(expression, f.absolute):
        return choose(less(found, sp.Integer(0)), -found, found)
    for each in others:
        larger = less(found, each) if isinstance(expression, f.maximum) else less(each, found)
        found = choose(larger, each, found)
    return found


def undecided(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> sp.Expr | None:
    """A comparison with latents and no conditional inside; None where there is none."""
    if not expression.has(condition):
        return None
    found = [e for e in expression.atoms(less, less_equal, equal) if not e.free_symbols.isdisjoint(latents)]
    plain = [e for e in found if not e.has(choose)]
    return min(plain, key=lambda e: (e.count_ops(), str(e))) if plain else None


def half_space(comparison: sp.Expr, latents: Sequence[sp.Symbol], budget: Budget) -> sp.Expr:
    """A comparison as `less(direction, threshold)`, or as a condition made of such. Raises NotPolynomial for others."""
    if isinstance(comparison, equal):
        return sp.Integer(0)
    difference = comparison.args[0] - comparison.args[1]
    undone = _undone(difference, latents)
    if undone is not None:
        return undone
    found = linear(difference, latents, budget)
    slopes = {g: slope for g, slope in found.slopes.items() if slope != 0}
    leading = slopes[min(slopes, key=lambda g: g.name)] if slopes else None
    if leading is None:
        raise NotPolynomial
    known = leading.is_positive or leading.is_negative
    scale = leading if known else sp.Integer(1)
    direction = sp.Add(*[slope / scale * g for g, slope in slopes.items()])
    threshold, flip = -found.constant / scale, bool(scale.is_negative)
    if not known and direction.could_extract_minus_sign():
        direction, threshold, flip = -direction, -threshold, True
    return opposite(less(direction, threshold)) if flip else less(direction, threshold)


INVERSES: Mapping[type, Callable[[sp.Expr], sp.Expr]] = {
    sp.exp: sp.log,
    f.softplus: lambda c: c + f.log1mexp(c),
    f.sigmoid: lambda c: sp.log(c) - f.log1p(-c),
    f.ndtr: f.ndtri,
}
"""Increasing functions and their inverses; their values are positive, of the last two below 1."""

PROPORTIONS = (f.sigmoid, f.ndtr)


def _undone(difference: sp.Expr, latents: Sequence[sp.Symbol]) -> sp.Expr | None:
    """difference < 0, where it is a multiple of a function that can be undone, and what reads no latent."""
    constant, rest = difference.as_independent(*latents, as_Add=True)
    factor, function = rest.as_independent(*latents, as_Add=False)
    if not (factor.is_positive or factor.is_negative):
        return None
    below = _below(function, -constant / factor)
    return below if below is None or factor.is_positive else opposite(below)


def _below(function: sp.Expr, value: sp.Expr) -> sp.Expr | None:
    """function < value."""
    if isinstance(function, sp.Pow) and function.exp == 2:
        root = sp.sqrt(value if value.is_nonnegative else f.maximum(value, sp.Integer(0)))
        return both(less(function.base, root), less(-root, function.base))
    if function.func not in INVERSES:
        return None
    inside = less(function.args[0], INVERSES[function.func](value))
    if not value.is_positive:
        inside = both(less(sp.Integer(0), value), inside)
    if isinstance(function, PROPORTIONS):
        inside = opposite(both(less(value, sp.Integer(1)), opposite(inside)))
    return inside


# Where an expression jumps or bends as a function of latents: zeros of linear functions of them, if only there.

MOST = 12
"""Places that an integral is split at."""

CROSSINGS, BISECTIONS = 4, 60
"""Places where what is not linear in the output may change its sign, and how they are found."""

FURTHEST, TRIED = 18.0, 644
"""Up to which asinh of an output these are looked for, and at how many points."""


def bends(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> bool:
    """Whether it has conditions on latents, corners or steps."""
    if not expression.has(condition, floor, *CORNERS):
        return False
    found = expression.atoms(condition, floor, *CORNERS)
    return any(not each.free_symbols.isdisjoint(latents) for each in found)


def kinks(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> tuple[sp.Expr, ...] | None:
    """Linear functions of latents outside of whose zeros the expression is smooth; None where there are others.

    There may be more than needed: both branches of a condition inside of a comparison count. A `floor` of a linear
    function of one latent, which steps at whole numbers, counts as it is.
    """
    plain, budget = without_corners(expression, latents), Budget()
    steps = [each for each in plain.atoms(floor, *CORNERS) if not each.free_symbols.isdisjoint(latents)]
    if steps:
        return (steps[0],) if len(steps) == 1 and _stepping(plain, steps[0], latents, budget) else None
    pending, found = _comparisons(plain, latents), dict[sp.Expr, None]()
    try:
        while pending:
            budget.spend(1)
            each = pending.pop()
            inner = [e for e in each.atoms(choose) if not e.free_symbols.isdisjoint(latents)]
            if inner:
                outermost = max(inner, key=lambda e: e.count_ops())
                branches = [each.xreplace({outermost: branch}) for branch in outermost.args[1:]]
                pending += [own for own in branches if not own.free_symbols.isdisjoint(latents)]  # others are decided
                continue
            simple = half_space(each, latents, budget)
            if simple == each:
                found[each.args[0] - each.args[1]] = None
            else:
                pending += _comparisons(simple, latents)
    except NotPolynomial:
        return None
    return tuple(found) if len(found) <= MOST else None


def differences(expression: sp.Expr, symbols: Sequence[sp.Symbol]) -> tuple[sp.Expr, ...]:
    """What is zero where its conditions change or corners are, linear or not; conditions inside of these apart."""
    found = _comparisons(without_corners(expression, symbols), symbols)
    return tuple(dict.fromkeys(each.args[0] - each.args[1] for each in found if not each.has(choose)))[:MOST]


def _comparisons(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> list[sp.Expr]:
    found = expression.atoms(less, less_equal, equal)
    return sorted((e for e in found if not e.free_symbols.isdisjoint(latents)), key=str)


def _stepping(expression: sp.Expr, step: sp.Expr, latents: Sequence[sp.Symbol], budget: Budget) -> bool:
    """Whether it is polynomial × exp(linear) in one latent and its step, as what averages over steps has to be."""
    whole = sp.Dummy("whole", real=True)
    inside = pull_exponentials(expression.xreplace({step: whole}))
    try:
        linear(step.args[0], latents, budget)
        for term in sp.Add.make_args(inside):
            for _, polynomial in parts_of(term, (*latents, whole), budget):
                expand_about(polynomial, dict.fromkeys((*latents, whole), sp.Integer(0)), budget)
    except NotPolynomial:
        return False
    return isinstance(step, floor) and len(latents) == 1


def terms_of(log_density: sp.Expr, symbol: sp.Symbol) -> list[sp.Expr]:
    """What a log density is where one term of each sum, whose logarithm it has, is by far the largest."""
    pending, found = [log_density], list[sp.Expr]()
    while pending and len(pending) + len(found) <= MOST:
        each = pending.pop(0)
        parts = {part: part.as_coeff_Mul() for part in sp.Add.make_args(each)}
        choices = ((part, factor, _choices(sum_)) for part, (factor, sum_) in parts.items() if sum_.has(symbol))
        part, factor, terms = next((choice for choice in choices if choice[1] > 0 and choice[2]), (None, None, ()))
        pending += [each - part + factor * term for term in terms]
        found += [] if terms else [each]
    return found + pending


def _choices(value: sp.Expr) -> tuple[sp.Expr, ...]:
    """The terms of a sum by its logarithm, by theirs."""
    if isinstance(value, f.logsumexp):
        return value.args
    if isinstance(value, f.softplus):
        return (sp.Integer(0), value.args[0])
    if isinstance(value, sp.log) and value.args[0].is_Add:
        return tuple(stable(sp.log(term)) for term in value.args[0].args)
    return value.args[1:] if isinstance(value, choose) and value.has(f.logsumexp, f.softplus, sp.log) else ()


def cuts_of(log_density: sp.Expr, symbol: sp.Symbol, known: Mapping[sp.Symbol, Array], size: int, kind: str) -> Array:
    """Where a log density jumps or bends in the output, [cuts, n] for values [n] of its other symbols, n = `size`."""
    levels = kinks(log_density, (symbol,)) if kind in LINES and bends(log_density, (symbol,)) else ()
    found = [np.zeros((0, size))]
    for each in differences(log_density, (symbol,)) if levels is None else levels:

        def level(y: Array, each: sp.Expr = each) -> Array:
            return np.broadcast_to(evaluate(each, {**known, symbol: y}), y.shape)

        with np.errstate(all="ignore"):
            if levels is None:
                found.append(_crossings(level, LINES[kind], size))
            else:
                start, step = level(np.zeros(size)), level(np.ones(size))
                found.append((start / (start - step))[None])
    return np.concatenate(found)


def _crossings(level: Callable[[Array], Array], line: Line, size: int) -> Array:
    """The first zeros of what is not linear, as far as points between which it changes its sign tell; else NaN."""
    grid = np.sinh(np.linspace(-FURTHEST, FURTHEST, TRIED))[:, None] * np.ones(size)
    signs = np.sign(level(line.forward(grid)))
    first = np.argsort(signs[:-1] * signs[1:] >= 0, axis=0, kind="stable")[:CROSSINGS]
    low, high = (np.take_along_axis(grid, first + k, axis=0) for k in (0, 1))
    left, right = (np.sign(level(line.forward(each))) for each in (low, high))
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        same = np.sign(level(line.forward(middle))) == left
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.where(left * right < 0, line.forward(high), np.nan)


# Conditions on latents at which a value jumps: there a derivative through the samples misses what the boundary does.
#
# E[if f > t then a else b] moves with the mean of f although both branches are constant. Quadrature and pathwise
# gradients see neither; values with score-function gradients do.

MAX_OPERATIONS = 500
"""Beyond this the two branches are not compared at the boundary, and count as different."""


def jumps(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> tuple[sp.Expr, ...]:
    """The conditions on latents whose branches differ at the boundary, and the steps of `floor`."""
    if not expression.has(choose, floor):
        return ()
    found = sorted((*expression.atoms(choose), *expression.atoms(floor)), key=str)
    deciding = [each for each in found if not each.args[0].free_symbols.isdisjoint(latents)]
    return tuple(each.args[0] for each in deciding if isinstance(each, floor) or not _continuous(each, latents))


def refuse_quadrature(expectations: str) -> None:
    """Raises GpdslError when quadrature was asked for, whose error at a jump does not vanish."""
    if expectations == "quadrature":
        raise GpdslError("quadrature is inexact where a condition on a latent makes a jump; use expectations = auto")


def _continuous(conditional: sp.Expr, latents: Sequence[sp.Symbol]) -> bool:
    """Whether both branches surely agree where the condition changes: it is linear in one latent of its own."""
    holds, then, otherwise = conditional.args
    while isinstance(holds, opposite):
        holds = holds.args[0]
    if not isinstance(holds, less | less_equal) or conditional.count_ops() > MAX_OPERATIONS:
        return False
    difference = holds.args[0] - holds.args[1]
    inside = sorted(difference.free_symbols.intersection(latents), key=lambda f: f.name)
    slope = difference.diff(inside[0]) if difference.is_Add or difference.is_Mul or difference.is_Symbol else sp.S.Zero
    if slope == 0 or not slope.free_symbols.isdisjoint(latents) or difference.has(condition):
        return False
    boundary = inside[0] - difference / slope
    there = {inside[0]: sp.expand(boundary)}
    return sp.expand(then.xreplace(there) - otherwise.xreplace(there)) == 0
