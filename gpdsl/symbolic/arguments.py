"""A function of latents as one of few linear functions of them, over which it is integrated.

A function that reads f and g through f - g alone is one of a single Gaussian number, however many latents there are. Of
two arguments the first is the steeper one, along which a rule may be fine.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import sympy as sp

from gpdsl.symbolic.conditions import choose, condition, equal, less, less_equal
from gpdsl.symbolic.functions import log_ndtr, ndtr, sigmoid, softplus
from gpdsl.symbolic.gaussian import Linear, linear
from gpdsl.symbolic.kinks import CORNERS, bends, kinks
from gpdsl.symbolic.numeric import Budget, NotPolynomial, degree_bound
from gpdsl.symbolic.translate import Translator

# How steep a smooth function of one latent is: where to look closely, and where Gauss–Hermite quadrature is exact.
#
# That is so where the nearest singularity of the function in the complex plane is far away in units of the latent's
# standard deviation: the error of n nodes falls like exp(-2 distance sqrt(n)).

MOST_CENTRES = 4
"""Places around which something may be steep that are looked at closely."""

RADII = {
    softplus: math.pi,
    sigmoid: math.pi,
    sp.tanh: math.pi / 2,
    log_ndtr: 2.8,
    ndtr: 2.0,
    sp.exp: 4.5,
    sp.sin: 4.5,
    sp.cos: 4.5,
}
"""Distance from the real line of a function's nearest singularity; of those without one, what growth allows."""


def centres(expression: sp.Expr, latent: sp.Symbol) -> tuple[sp.Expr, ...]:
    """Linear functions of a latent that a function or a power is taken of: it may be steep where one is zero."""
    arguments = {arg for each in expression.atoms(sp.Function, sp.Pow) for arg in each.args if arg.has(latent)}
    found = dict[sp.Expr, None]()
    for argument in sorted(arguments, key=lambda e: (e.count_ops(), str(e))):
        slope = _slope(argument, latent)
        if slope is not None:
            found[sp.expand(argument / slope)] = None
    return tuple(found)[:MOST_CENTRES]


def widths(expression: sp.Expr, latent: sp.Symbol) -> list[tuple[sp.Expr, float]] | None:
    """Slopes with which a latent enters functions, and those functions' radii; None where something else is in it.

    Conditions and corners, which an integral is split at, do not count.
    """
    if not expression.has(latent) or expression == latent:
        return []
    found: list[tuple[sp.Expr, float]] = []
    radius = RADII.get(expression.func)
    if radius is not None:
        slope = _slope(expression.args[0], latent)
        return None if slope is None else [(slope, radius)]
    power = expression.is_Pow and expression.exp.is_integer and expression.exp.is_positive
    if not (expression.is_Add or expression.is_Mul or power or isinstance(expression, (choose, condition, *CORNERS))):
        return None
    for argument in expression.args:
        inside = widths(argument, latent)
        if inside is None:
            return None
        found += inside
    return found


def _slope(argument: sp.Expr, latent: sp.Symbol) -> sp.Expr | None:
    """Of what is linear in the latent."""
    try:
        return linear(argument, (latent,), Budget()).slopes.get(latent)
    except NotPolynomial:
        return None


MOST, MAX_DIRECTIONS = 2, 8
"""Arguments that are integrated over by quadrature, and directions of two latents that are looked at."""

Direction = tuple[sp.Expr, ...]
"""The slopes of a linear function in the latents."""


@dataclass(frozen=True)
class Integrand:
    """An expression in `symbols`, each of which stands for a linear function of latents.

    It is smooth outside of the zeros of `kinks`, linear functions of the symbols and floors of such; where these are
    None it may jump or bend elsewhere.
    """

    expression: sp.Expr
    arguments: tuple[tuple[sp.Symbol, sp.Expr], ...]
    latents: tuple[sp.Symbol, ...]
    kinks: tuple[sp.Expr, ...] | None = ()

    @property
    def symbols(self) -> tuple[sp.Symbol, ...]:
        """Of two, the steeper first."""
        return tuple(symbol for symbol, _ in self.arguments)

    @property
    def reduced(self) -> bool:
        """Whether a symbol stands for more than a latent."""
        return any(symbol != meaning for symbol, meaning in self.arguments)

    def plus(self, other: Integrand) -> Integrand:
        """The sum with another of the same arguments."""
        return _with_kinks(replace(self, expression=self.expression + other.expression))


def integrand_of(translator: Translator, expression: sp.Expr, latents: Sequence[sp.Symbol]) -> Integrand:
    """The expression in as few arguments as are found; in the latents where others than their symbols read them."""
    refs = [translator.references.get(symbol) for symbol in expression.free_symbols]
    read = any(ref is not None and ref.kind in {"external", "reduced"} for ref in refs)
    return _integrand_of(expression, tuple(latents), read)


@functools.lru_cache(maxsize=1024)
def _integrand_of(expression: sp.Expr, latents: tuple[sp.Symbol, ...], read: bool) -> Integrand:
    """Every prediction asks for the same again."""
    plain = Integrand(expression, tuple((f, f) for f in latents), latents)
    if len(latents) > 1 and not read:
        with suppress(NotPolynomial):  # too large to be looked through
            plain = min((plain, *_rotated(expression, latents)), key=_second)
    return _with_kinks(plain)


def _with_kinks(found: Integrand) -> Integrand:
    """With its kinks where it has few arguments, which are in order where it has none."""
    if len(found.arguments) > MOST:
        return replace(found, kinks=None)
    if bends(found.expression, found.symbols):
        return replace(found, kinks=kinks(found.expression, found.symbols))
    order = sorted(found.arguments, key=lambda each: -_steepness(found.expression, each[0]))
    return replace(found, arguments=tuple(order))


def _second(found: Integrand) -> tuple[int, float]:
    """How many arguments there are, and how steep the second is."""
    steep = sorted(_steepness(found.expression, symbol) for symbol in found.symbols)
    return len(steep), steep[0] if len(steep) == MOST else 0.0


def _steepness(expression: sp.Expr, symbol: sp.Symbol) -> float:
    """The largest slope over the distance of a singularity, where slopes that are no numbers count as one.

    So does all of it where it is not known: what is known to be steeper is rather integrated over finely.
    """
    found = widths(expression, symbol)
    if found is None:
        return 1.0
    return max(((abs(float(s)) if s.is_number else 1.0) / radius for s, radius in found), default=0.0)


def _rotated(expression: sp.Expr, latents: tuple[sp.Symbol, ...]) -> list[Integrand]:
    """The expression in other arguments: fewer, or of two latents one direction in place of one of them."""
    found: list[list[Direction]] = []
    most = MOST if len(latents) > MOST else MAX_DIRECTIONS

    def note(part: Linear) -> sp.Expr:
        direction = tuple(part.slopes.get(f, sp.Integer(0)) for f in latents)
        same = next((known for known in found if _parallel(known[0], direction)), None)
        if same is None and len(found) == most:
            raise NotPolynomial
        if same is None and any(direction):
            found.append([direction])
        elif same is not None and direction not in same:
            same.append(direction)
        return part.constant

    budget = Budget()
    _rebuilt(expression, latents, note, budget)
    classes = [_representative(each) for each in found]
    if len(classes) < len(latents):
        bases = [tuple(classes)]
    else:
        one, none = sp.Integer(1), sp.Integer(0)
        mixed = [each for each in classes if none not in each] if len(latents) == MOST else []
        bases = [(each, (none, one)) for each in mixed if each[0].is_number]
    return [each for base in bases if (each := _written(expression, latents, base, budget)) is not None]


def _written(
    expression: sp.Expr, latents: tuple[sp.Symbol, ...], base: Sequence[Direction], budget: Budget
) -> Integrand | None:
    """The expression in the arguments along the directions of the base."""
    meanings = [sp.Add(*[slope * f for slope, f in zip(each, latents, strict=True)]) for each in base]
    symbols = [each if each in latents else sp.Symbol(f"along({each})", real=True) for each in meanings]

    def replaced(part: Linear) -> sp.Expr:
        shares = _shares(tuple(part.slopes.get(f, sp.Integer(0)) for f in latents), base)
        if shares is None:
            raise NotPolynomial
        return part.constant + sp.Add(*[share * s for share, s in zip(shares, symbols, strict=True)])

    try:
        new = _rebuilt(expression, latents, replaced, budget)
    except NotPolynomial:
        return None
    return Integrand(new, tuple(zip(symbols, meanings, strict=True)), latents)


def _rebuilt(
    expression: sp.Expr, latents: tuple[sp.Symbol, ...], replaced: Callable[[Linear], sp.Expr], budget: Budget
) -> sp.Expr:
    """The expression with every largest part that is linear in the latents replaced; a sum is two, linear and not."""
    if expression.free_symbols.isdisjoint(latents):
        return expression
    budget.spend(1)
    if degree_bound(expression, latents) <= 1:
        return replaced(linear(expression, latents, budget))
    if isinstance(expression, (less, less_equal, equal)):
        left, right = expression.args
        return expression.func(_rebuilt(left - right, latents, replaced, budget), sp.Integer(0))
    rest = list(expression.args)
    if expression.is_Add:
        straight = [each for each in rest if degree_bound(each, latents) <= 1]
        rest = [each for each in rest if each not in straight] + ([sp.Add(*straight)] if straight else [])
    return expression.func(*[_rebuilt(each, latents, replaced, budget) for each in rest])


def _parallel(a: Direction, b: Direction) -> bool:
    pivot = next((k for k, slope in enumerate(a) if slope != 0), 0)
    return all(sp.expand(a[pivot] * b[k] - b[pivot] * a[k]) == 0 for k in range(len(a)))


def _representative(same: Sequence[Direction]) -> Direction:
    """A direction of which the others are multiples. Raises NotPolynomial where that divides by what may be zero."""
    pivot = next(k for k, slope in enumerate(same[0]) if slope != 0)
    unit = tuple(sp.cancel(slope / same[0][pivot]) for slope in same[0])
    for candidate in (unit, *same):
        if _safe(candidate) and all(_shares(each, [candidate]) is not None for each in same):
            return candidate
    raise NotPolynomial


def _shares(direction: Direction, base: Sequence[Direction]) -> Direction | None:
    """What to multiply the base with for a direction; None where that divides by what may be zero.

    Of a base of several, one is parallel to the direction, or the second is that of the last of two latents.
    """
    for place, each in enumerate(base):
        if _parallel(each, direction):
            pivot = next(k for k, slope in enumerate(each) if slope != 0)
            share = sp.cancel(direction[pivot] / each[pivot])
            shares = [share if k == place else sp.Integer(0) for k in range(len(base))]
            return tuple(shares) if _safe(shares) else None
    if len(direction) != MOST or len(base) != MOST:
        return None
    share = direction[0] / base[0][0]
    shares = [share, sp.expand(direction[1] - share * base[0][1])]
    return tuple(shares) if _safe(shares) else None


def _safe(numbers: Sequence[sp.Expr]) -> bool:
    return all(sp.denom(each).is_nonzero for each in numbers)
