"""Conditions on latents as half-spaces: a linear function of them below a threshold; what conjunctions of those bound.

Comparisons of monotone functions of a linear function are undone (exp(f) < c where f < log c), |f| < c and f^2 < c are
two half-spaces. Conditions that only mean the same up to the boundary, of probability zero, count as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import sympy as sp

from gpdsl.symbolic import functions as f
from gpdsl.symbolic.conditions import both, choose, condition, equal, less, less_equal, opposite
from gpdsl.symbolic.gaussian import linear
from gpdsl.symbolic.numeric import Budget, NotPolynomial

CORNERS = (f.absolute, f.maximum, f.minimum)

MOST = 4
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
    if not isinstance(expression, CORNERS) or len(arguments) > MOST:
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
