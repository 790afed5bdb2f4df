"""E[expression] under Gaussians where it has a formula: smooth ones by one rule, conditions on latents by regions.

What data decide gives the expectation of each branch where it holds. A condition that compares a linear function of
latents with a threshold cuts their space into two half-spaces; |f|, max and min are such conditions too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from gpdsl.symbolic.conditions import both, choose, less, opposite
from gpdsl.symbolic.functions import divisor, log_ndtr, log_ndtr_interval, logsumexp, mills, ndtr
from gpdsl.symbolic.gaussian import (
    Linear,
    Moments,
    Tilted,
    linear,
    mean_about,
    moment_of,
    parts_of,
    pull_exponentials,
    tilted_mean,
)
from gpdsl.symbolic.kinks import EVERYWHERE, Region, half_space, undecided, without_corners
from gpdsl.symbolic.numeric import MAX_PRODUCTS, Budget, NotPolynomial, expand_about

# E[exp(linear) * polynomial] of Gaussians where a linear function w of them lies between two bounds.
#
# With q = w - b the distance from a bound b, each latent is its mean given w = b, plus a multiple of q, plus a rest
# that is independent of w. The polynomial is written in q and the rests, and of w beyond b, u = (b - E[w]) / sd(w) > 0,
#
#     E[q^k where q > 0] = sd^k phi(u) R_k(u),      R_k as `functions.mills`,
#
# which keeps all digits however far out b lies. A bound on the other side of the mean cuts off what lies beyond it from
# the whole. So the expectation is that of the whole, if the mean is inside, and an edge for each bound.


@dataclass(frozen=True)
class _Along:
    """The tilted latents along a linear function w of them: its mean and sd, and their regression on it."""

    tilted: Tilted
    mean: sp.Expr
    sd: sp.Expr
    slopes: Mapping[sp.Symbol, sp.Expr]
    moments: Moments

    def given(self, f: sp.Symbol, w: sp.Expr) -> sp.Expr:
        """The mean of a latent where w has this value."""
        return self.tilted.centres[f] + self.slopes[f] * (w - self.mean)

    def left(self, f: sp.Symbol, g: sp.Symbol) -> sp.Expr:
        """The covariance that w leaves open."""
        return self.moments.between(f, g) - self.slopes[f] * self.slopes[g] * self.sd**2


def truncated_mean(exponent: Linear, polynomial: sp.Expr, region: Region, moments: Moments, budget: Budget) -> sp.Expr:
    """E[exp(exponent) * polynomial in the region]. Raises NotPolynomial for several directions."""
    if len(region.directions) > 1:
        raise NotPolynomial
    (direction,) = region.directions
    low, high = region.interval(direction)
    along = _along(exponent, polynomial, direction, moments, budget)
    u = {bound: (bound - along.mean) / along.sd for bound in (low, high) if bound is not None}
    if not along.tilted.log_mass.free_symbols and polynomial.free_symbols.isdisjoint(along.slopes) and len(u) == 1:
        (single,) = u.values()
        return sp.exp(along.tilted.log_mass) * polynomial * ndtr(single if low is None else -single)
    within = [less(u[low], sp.Integer(0))] if low is not None else []
    within += [opposite(less(u[high], sp.Integer(0)))] if high is not None else []
    inside = within[0] if len(within) == 1 else both(*within)
    whole = sp.exp(along.tilted.log_mass) * mean_about(polynomial, along.tilted.centres, moments, budget)
    edges = [_edge(low, u[low], polynomial, along, budget)] if low is not None else []
    edges += [-_edge(high, u[high], polynomial, along, budget)] if high is not None else []
    return choose(inside, whole, sp.Integer(0)) + sp.Add(*edges)


def _along(exponent: Linear, polynomial: sp.Expr, direction: sp.Expr, moments: Moments, budget: Budget) -> _Along:
    names = {*exponent.slopes, *polynomial.free_symbols, *direction.free_symbols} & set(moments.mean)
    latents = tuple(sorted(names, key=lambda f: (f.name, str(f))))
    tilted, weights = Tilted.of(exponent, latents, moments), linear(direction, latents, budget).slopes
    shared = {f: sp.Add(*[a * moments.between(f, g) for g, a in weights.items()]) for f in latents}
    variance = divisor(sp.Add(*[a * shared[f] for f, a in weights.items()]))
    mean = sp.Add(*[a * tilted.centres[f] for f, a in weights.items()])
    slopes = {f: sp.Integer(1) if f == direction else shared[f] / variance for f in latents}
    return _Along(tilted, mean, sp.sqrt(variance), slopes, moments)


def _edge(bound: sp.Expr, u: sp.Expr, polynomial: sp.Expr, along: _Along, budget: Budget) -> sp.Expr:
    """What lies above a bound, or less what lies below where that is the smaller part."""
    side = 1 - 2 * less(u, sp.Integer(0))
    beyond, total = side * u, []
    for power, coefficient in _about(bound, polynomial, along, budget):
        total.append(coefficient * (side if power % 2 == 0 else 1) * along.sd**power * mills(power, beyond))
    return sp.exp(along.tilted.log_mass - u**2 / 2) / sp.sqrt(2 * sp.pi) * sp.Add(*total)


def _about(bound: sp.Expr, polynomial: sp.Expr, along: _Along, budget: Budget) -> list[tuple[int, sp.Expr]]:
    """The polynomial's mean given q = w - bound, as powers of q with their coefficients."""
    q = sp.Dummy("q", real=True)
    rests = {f: sp.Dummy(f"rest({f.name})", real=True) for f in along.slopes if along.slopes[f] != 1}
    moved = {f: along.given(f, bound) + a * q + rests.get(f, 0) for f, a in along.slopes.items()}
    moved |= {f: bound + q for f in along.slopes if f not in rests}
    left = _rests(along, rests)
    found: dict[int, list[sp.Expr]] = {}
    zeros = dict.fromkeys((q, *rests.values()), sp.Integer(0))
    for monomial, coefficient in expand_about(polynomial.xreplace(moved), zeros, budget).items():
        powers = dict(monomial)
        power = powers.pop(q, 0)
        mean = moment_of((), tuple(powers.items()), left, budget) if sum(powers.values()) % 2 == 0 else 0
        found.setdefault(power, []).append(coefficient * mean)
    return [(power, sp.Add(*each)) for power, each in sorted(found.items())]


def _rests(along: _Along, rests: Mapping[sp.Symbol, sp.Symbol]) -> Moments:
    """Moments of what w leaves open."""
    variance = {r: along.left(f, f) for f, r in rests.items()}
    pairs = [(f, g) for f in rests for g in rests if f != g]
    covariance = {frozenset((rests[f], rests[g])): along.left(f, g) for f, g in pairs}
    return Moments({}, variance, covariance)  # type: ignore[arg-type]


BRANCH = MAX_PRODUCTS // 64
"""What each branching on a condition takes of the budget: conditions that multiply are soon left to quadrature."""


def expectation(expression: sp.Expr, latents: Sequence[sp.Symbol], moments: Moments) -> sp.Expr | None:
    """E[expression] as a formula in the latents' means and variances.

    None when it is outside the closed family, or inside it but too large to be worth writing out.
    """
    budget = Budget()
    try:
        return _over(without_corners(expression, latents), tuple(latents), moments, EVERYWHERE, budget)
    except NotPolynomial:
        return None


def probit_expectation(expression: sp.Expr, latents: Sequence[sp.Symbol], moments: Moments) -> sp.Expr | None:
    """E[c Phi(w)] of a w that is linear in the latents, Phi(E[w] / sqrt(1 + Var[w])), and of an interval between two.

    Phi(w) is how probable it is that w is above a standard normal number, which only makes w wider. The intervals are
    those of `log_ndtr_interval` between such functions with the same slopes. None of all else.
    """
    factor, rest = expression.as_independent(*latents, as_Add=False)
    inside = rest.args[0] if isinstance(rest, sp.exp) else rest
    if not isinstance(inside, (log_ndtr, log_ndtr_interval) if isinstance(rest, sp.exp) else ndtr):
        return None
    wider = _wider(inside.args, latents, moments)
    if wider is None:
        return None
    return factor * (ndtr(wider[0]) if len(wider) == 1 else sp.exp(log_ndtr_interval(*wider)))


def _wider(places: Sequence[sp.Expr], latents: Sequence[sp.Symbol], moments: Moments) -> list[sp.Expr] | None:
    """E[w] / sqrt(1 + Var[w]) of each w; None where they are not linear in the latents with the same slopes."""
    slopes = [{f: sp.diff(place, f) for f in latents} for place in places]
    if any(slope.has(*latents) for slope in slopes[0].values()) or slopes[0] != slopes[-1]:
        return None
    each = slopes[0]
    variance = sp.Add(*[each[f] * each[g] * moments.between(f, g) for f in latents for g in latents])
    return [place.xreplace(dict(moments.mean)) / sp.sqrt(1 + variance) for place in places]


def smooth_pieces(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> list[tuple[sp.Expr, Region]] | None:
    """An expression by regions without conditions in them; None where data decide, or where it has no such form."""
    budget, found = Budget(), list[tuple[sp.Expr, Region]]()
    pending = [(without_corners(expression, latents), EVERYWHERE)]
    try:
        while pending:
            part, region = pending.pop()
            condition = undecided(part, latents)
            if condition is None:
                found.append((part, region))
                continue
            budget.spend(BRANCH)
            simple = half_space(condition, latents, budget)
            if simple != condition:
                pending.append((part.xreplace({condition: simple}), region))
            else:
                pending += _sides(part, condition, region)
    except NotPolynomial:
        return None
    return None if any(part.has(choose) for part, _ in found) else found


def _sides(expression: sp.Expr, half: sp.Expr, region: Region) -> list[tuple[sp.Expr, Region]]:
    """What is left of an expression where a half-space holds and where not, unless it is empty."""
    sides = zip((1, 0), region.split(half), strict=True)
    return [(expression.xreplace({half: sp.Integer(holds)}), side) for holds, side in sides if side is not None]


def _over(
    expression: sp.Expr, latents: tuple[sp.Symbol, ...], moments: Moments, region: Region, budget: Budget
) -> sp.Expr:
    """E[expression where the latents are in the region]."""
    decided = _conditional(expression, latents)
    if decided is not None:
        budget.spend(BRANCH)
        branches = [pull_exponentials(expression.xreplace({decided: sp.Integer(holds)})) for holds in (1, 0)]
        return choose(decided, *[_over(branch, latents, moments, region, budget) for branch in branches])
    if expression.is_Add:
        return sp.Add(*[_over(term, latents, moments, region, budget) for term in expression.args])
    condition = undecided(expression, latents)
    if condition is None:
        parts = parts_of(expression, latents, budget) if expression != 0 else []
        return sp.Add(*[_mean(exponent, polynomial, moments, region, budget) for exponent, polynomial in parts])
    budget.spend(BRANCH)
    simple = half_space(condition, latents, budget)
    if simple != condition:
        new = pull_exponentials(expression.xreplace({condition: simple}))
        return _over(new, latents, moments, region, budget)
    sides = _sides(expression, condition, region)
    return sp.Add(*[_over(pull_exponentials(part), latents, moments, side, budget) for part, side in sides])


def _mean(exponent: Linear, polynomial: sp.Expr, moments: Moments, region: Region, budget: Budget) -> sp.Expr:
    if region is EVERYWHERE:
        return tilted_mean(exponent, polynomial, moments, budget)
    return truncated_mean(exponent, polynomial, region, moments, budget)


def _conditional(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> sp.Expr | None:
    """The condition of the outermost conditional that data decide, with latents in a branch."""
    if not expression.has(choose):
        return None
    found = [e for e in expression.atoms(choose) if not e.free_symbols.isdisjoint(latents)]
    decided = [e for e in found if e.args[0].free_symbols.isdisjoint(latents)]
    return max(decided, key=lambda e: (e.count_ops(), str(e))).args[0] if decided else None


# Normalisers of tilted distributions in closed form: log of the integral of p(y|f)^alpha N(f | m, V) over f.
#
# Three likelihoods have one. A probit, Phi(a'f + b), gives Phi((a'm + b) / sqrt(1 + a'Va)) for alpha = 1 (SEP, eq. 3).
# A density whose logarithm is quadratic in one latent, with slope g at the mean m and curvature -c, gives
#
#     alpha log p(y|m) + alpha^2 g^2 v / (2 (1 + alpha c v)) - log(1 + alpha c v) / 2,
#
# written about the mean, so that large observations cost no digits. Where it is so in pieces, between thresholds (a
# step, a kink, Laplace noise), each adds to that the logarithm of the probability of its interval under the Gaussian
# that its quadratic makes of N(m, V), of mean m + alpha g v / (1 + alpha c v) and variance v / (1 + alpha c v).


POWER = sp.Symbol("power", positive=True)
"""The power alpha of power expectation propagation."""


def tilted_normaliser(
    log_density: sp.Expr, latents: Sequence[sp.Symbol], moments: Moments, power: float
) -> sp.Expr | None:
    """The closed form, in the symbols of `moments` and `POWER`; None where none is known."""
    constant = sp.Add(*[part for part in sp.Add.make_args(log_density) if not part.has(*latents)])
    rest = log_density - constant
    found = _probit(rest, latents, moments) if power == 1.0 else None
    if found is None and len(latents) == 1:
        found = _quadratic(rest, latents[0], moments)
    return None if found is None else POWER * constant + found


def _probit(rest: sp.Expr, latents: Sequence[sp.Symbol], moments: Moments) -> sp.Expr | None:
    if not isinstance(rest, log_ndtr):
        return None
    wider = _wider(rest.args, latents, moments)
    return None if wider is None else log_ndtr(wider[0])


def _quadratic(rest: sp.Expr, f: sp.Symbol, moments: Moments) -> sp.Expr | None:
    pieces = smooth_pieces(rest, (f,))
    if pieces is None or any(not piece.is_polynomial(f) or sp.degree(piece, f) > 2 for piece, _ in pieces):
        return None
    if any(region.directions not in ((), (f,)) for _, region in pieces):
        return None
    found = [_piece(piece, *region.interval(f), f, moments) for piece, region in pieces]
    return found[0] if len(found) == 1 else logsumexp(*found)


def _piece(rest: sp.Expr, low: sp.Expr | None, high: sp.Expr | None, f: sp.Symbol, moments: Moments) -> sp.Expr:
    """What a quadratic between two bounds contributes."""
    slope = sp.diff(rest, f)
    curvature = -sp.diff(slope, f)
    variance, at = moments.variance[f], {f: moments.mean[f]}
    wider, pull = 1 + POWER * curvature * variance, POWER * slope.xreplace(at)
    whole = POWER * rest.xreplace(at) + pull**2 * variance / (2 * wider) - sp.log(wider) / 2
    mean, sd = moments.mean[f] + pull * variance / wider, sp.sqrt(variance / wider)
    if low is None or high is None:
        side = (mean - low) / sd if low is not None else (high - mean) / sd if high is not None else None
        return whole if side is None else whole + log_ndtr(side)
    return whole + log_ndtr_interval((low - mean) / sd, (high - mean) / sd)
