"""E[exp(linear) * polynomial] of Gaussians where a linear function w of them lies between two bounds.

With q = w - b the distance from a bound b, each latent is its mean given w = b, plus a multiple of q, plus a rest that
is independent of w. The polynomial is written in q and the rests, and of w beyond b, u = (b - E[w]) / sd(w) > 0,

    E[q^k where q > 0] = sd^k phi(u) R_k(u),      R_k as `functions.mills`,

which keeps all digits however far out b lies. A bound on the other side of the mean cuts off what lies beyond it from
the whole. So the expectation is that of the whole, if the mean is inside, and an edge for each bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sympy as sp

from gpdsl.symbolic.conditions import both, choose, less, opposite
from gpdsl.symbolic.functions import divisor, mills, ndtr
from gpdsl.symbolic.gaussian import Linear, Moments, Tilted, linear, mean_about, moment_of
from gpdsl.symbolic.polynomials import Budget, NotPolynomial, expand_about
from gpdsl.symbolic.regions import Region


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
