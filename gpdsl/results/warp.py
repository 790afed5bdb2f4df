"""Outputs observed through a transform: their predictive distributions, means and variances.

Quantiles, and so medians, are exact: t^-1 of the quantile of t(y). Moments are integrals over the output itself, law by
law, and over the latents as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import sympy as sp

from gpdsl.results import expectation as ex
from gpdsl.results.cells import inverse
from gpdsl.results.conditional import mixed
from gpdsl.results.integrals import INTERVALS, Rule
from gpdsl.results.nodes import NEGLIGIBLE, smooth_nodes
from gpdsl.results.predictive import Predictive, ValuesOf
from gpdsl.results.windows import Window
from gpdsl.symbolic.curves import LINES, Line
from gpdsl.symbolic.densities import DENSITIES, Density
from gpdsl.symbolic.laws import Law, weights
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.stable import stable
from gpdsl.symbolic.terms import Warp

# Predictive distributions of outputs observed through a transform: those of the transform, taken back.
#
# Quantiles, and so medians, are exact: t^-1 of the quantile of t(y).


@dataclass(frozen=True, eq=False)
class Warped:
    """One observation of `warp` at the rows of `beliefs`, where `base` describes the transformed value."""

    beliefs: ex.Beliefs
    base: Predictive
    warp: Warp

    def mean(self) -> Array:
        """Mean of the output."""
        return warp_moments(self.base, self.warp, increasing=self.increasing)[0]

    def variance(self) -> Array:
        """Variance of the output."""
        return warp_moments(self.base, self.warp, increasing=self.increasing)[1]

    def quantile(self, p: float) -> Array:
        """Exact: the quantile of the transform taken back, or the opposite one when the transform decreases."""
        return self.back(self.base.quantile(p if self.increasing else 1.0 - p))

    def share(self, y: Array, *, above: bool, reached: bool) -> Array | None:
        """P(Y < y) or P(Y > y), or also Y = y where `reached`: of the transform, which may decrease."""
        line = LINES[self.warp.kind]
        inside = line.forward(line.inverse(np.asarray(y, float)))
        values = self._compiled()(np.broadcast_to(inside, self._shape))[0]
        return self.base.share(values, above=above == self.increasing, reached=reached)

    @property
    def nodes(self) -> int:
        """How many laws the distribution function is an average of."""
        return self.base.nodes

    def draw(self, values: ValuesOf, generator: np.random.Generator) -> Array:
        """Draws [count, rows, *keys] of the transform, taken back."""
        return self.back(self.base.draw(values, generator))

    @property
    def increasing(self) -> bool:
        """The direction proved, or that of the transform at the fitted parameters."""
        if self.warp.direction is not None:
            return self.warp.direction > 0
        line = LINES[self.warp.kind]
        at = self._compiled()
        ends = [at(np.full(self._shape, line.forward(np.asarray(v))))[0] for v in (-1.0, 1.0)]
        return bool(np.all(ends[1] > ends[0]))

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.beliefs.count, *self.base.sizes)

    def _compiled(self) -> Callable[[Array], tuple[Array, Array]]:
        """The transform and its slope at y [..., rows, *keys]."""
        warp, evaluator, keys = self.warp, self.beliefs.program.evaluator, self.base.keys

        def both(beliefs: ex.Beliefs, y: jnp.ndarray) -> tuple:
            given = {warp.symbol: y}
            value, slope = (evaluator(e, beliefs.scope(), keys, given) for e in (warp.value, warp.slope))
            return jnp.broadcast_to(value, y.shape), jnp.broadcast_to(slope, y.shape)

        compiled = self.beliefs.compile(("warp", warp.value, keys), both)

        def at(y: Array) -> tuple[Array, Array]:
            value, slope = compiled(jnp.asarray(y))
            return np.asarray(value), np.asarray(slope)

        return at

    def back(self, transformed: Array) -> Array:
        """The outputs [..., rows, *keys] whose transform has these values."""
        line, at = LINES[self.warp.kind], self._compiled()

        def function(v: Array) -> tuple[Array, Array]:
            value, slope = at(line.forward(v))
            return value, slope * np.exp(line.log_slope(v))

        found = inverse(function, np.asarray(transformed), increasing=self.increasing)
        return line.forward(found)


# Means and variances of outputs observed through a transform: integrals law by law, and over the latents as well.

COARSEST = 8
"""How many of the rule's intervals are one to begin with."""

SETTLED = 1e-6
"""Halving intervals ends where no sum changes by more of its size: what is left then is about the square of it."""

ENDS = {"real": float(np.exp(690.0)), "positive": 690.0, "unit": 36.0}
"""Where numbers end: |y|, log y, or log odds."""

TINY = -700.0
"""Logarithm of the probability beyond where a law whose tail is light is not looked at."""

FAR = ((620.0, 680.0), (300.0, 330.0), (100.0, 110.0), (30.0, 33.0), (10.0, 11.0))
"""Logarithms of |y|, between two of which a tail's fall is measured: the farthest where its density is a number."""

GROWS = 1.4
"""A tail whose fall grows by so much from one pair to the next is lighter than any power."""

SOUND, PLACES = 1e-8, 4
"""How much probability of a law may be lost, and how often by both of its halves: where rounding loses it, all do."""

Array = np.ndarray
Values = Mapping[sp.Symbol, Array]


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and variances [n] of laws side by side; `order` is the power of |y| from which on there are none."""

    mean: Array
    variance: Array
    order: Array


@dataclass(frozen=True, eq=False)
class Plain:
    """Outputs whose transform has a plain law inside of a window, arrays [n]; `given` is what the transform reads."""

    warp: Warp
    window: Window
    given: Values
    increasing: bool

    def moments(self, found: Moments, mass: Array, places: Array, part: float = 1.0) -> Moments:
        """Those of the output, given that its transform is in the window; `found` and `mass` are by one rule.

        Laws whose probability does not come out as one have a steep place that the rule stepped over: they are
        mixtures of two halves, in each of which that place takes more of the probability. `part` is that of this law.
        """
        poor = (part * np.abs(mass - 1.0) > SOUND) & (found.order > 1.0) & (places > 0)
        if part < SOUND or not poor.any():
            return found
        half, few = np.full(poor.sum(), np.log(0.5)), self._only(poor)
        middle = few.window.at(half, half)
        windows = replace(few.window, upper=middle), replace(few.window, lower=middle)
        sides = [(each, *each.integrated()) for each in (replace(few, window=window) for window in windows)]
        left = places[poor] - np.all([part * np.abs(m - 1.0) > 2 * SOUND for _, _, m in sides], axis=0)
        parts = [each.moments(known, m, left, part / 2) for each, known, m in sides]
        for whole, mended in zip(vars(found).values(), vars(_mixed([np.exp(half)] * 2, parts)).values(), strict=True):
            whole[poor] = mended
        return found

    def integrated(self) -> tuple[Moments, Array]:
        """Moments by one rule, and the probability that it finds, which is one."""
        split, width, ends, far = self._places()
        centre = self._line.forward(split)
        rule = Rule(split, centre, np.stack([-width, width]), np.abs(ends - split), far)
        beyond, order = np.zeros((3, len(split))), np.full(len(split), np.inf)
        for side, bounded in zip((-1.0, 1.0), np.isfinite(ends), strict=True):
            if not bounded.all():
                more, power = self._beyond(side, centre)
                beyond += np.where(bounded, 0.0, more)
                order = np.where(bounded, order, np.minimum(order, power))
        sums = self._within(rule, beyond) + beyond
        mean = sums[1] / sums[0]
        return Moments(centre + mean, sums[2] / sums[0] - mean**2, order), sums[0]

    def _within(self, rule: Rule, beyond: Array) -> Array:
        """The three sums [3, n], between numbers' ends, by intervals that are halved until the sums settle."""
        interval, rows = COARSEST, np.arange(rule.split.size)
        found = interval * self._sums(rule, np.arange(0, INTERVALS + 1, interval))
        while interval > 1 and rows.size:
            interval //= 2
            added = self._only(rows)._sums(rule.only(rows), np.arange(interval, INTERVALS, 2 * interval))
            before, found[:, rows] = found[:, rows], found[:, rows] / 2 + interval * added
            sums = found[:, rows]
            size = np.stack([sums[0], np.sqrt(sums[0] * sums[2]), sums[2]])
            settled = np.all(np.abs(sums - before) <= SETTLED * size, axis=0)
            rows = rows[~settled | (np.abs((sums + beyond[:, rows])[0] - 1.0) > SOUND)]
        return found

    def _only(self, rows: Array) -> Plain:
        """Some of the laws: places, or which of them."""
        window = self.window
        arguments = {name: each[rows] for name, each in window.arguments.items()}
        given = {symbol: each[rows] for symbol, each in self.given.items()}
        return replace(self, window=Window(window.name, arguments, window.lower[rows], window.upper[rows]), given=given)

    def at(self, transformed: Array) -> Moments:
        """Of the one output with this transform."""
        finite = np.where(np.isfinite(transformed), transformed, 0.0)
        place = self._line.forward(inverse(self._transform, finite, increasing=self.increasing))
        return Moments(place, np.zeros_like(place), np.full(place.shape, np.inf))

    def _sums(self, rule: Rule, points: Array) -> Array:
        """Sums [3, n] over both sides of shares times the powers 0, 1 and 2 of the distance from the centre."""
        total = np.zeros((3, rule.split.size))
        for v, weight in rule.at(points):
            log_share = np.log(weight) + self._log_density(v)
            away = self._line.forward(v) - rule.centre
            log_away = np.log(np.abs(away))
            parts = [np.exp(log_share), np.sign(away) * np.exp(log_share + log_away), np.exp(log_share + 2 * log_away)]
            total += [np.sum(np.where(np.isfinite(each), each, 0.0), axis=0) for each in parts]
        return total

    @property
    def _line(self) -> Line:
        return LINES[self.warp.kind]

    def _transform(self, v: Array) -> tuple[Array, Array]:
        """t and its slope where the output is `forward(v)`."""
        table = {**self.given, self.warp.symbol: self._line.forward(v)}
        value, slope = evaluate(sp.Tuple(self.warp.value, self.warp.slope), table)
        return np.broadcast_to(value, v.shape), np.broadcast_to(slope, v.shape) * np.exp(self._line.log_slope(v))

    def _log_density(self, v: Array) -> Array:
        """Over v."""
        formula, names = _formula(self.warp, DENSITIES[self.window.name], tuple(self.window.arguments))
        table = {names[name]: value for name, value in self.window.arguments.items()}
        found = evaluate(formula, {**self.given, **table, self.warp.symbol: self._line.forward(v)})
        found = found - self.window.log_width + self._line.log_slope(v)
        return np.where(np.isnan(found), -np.inf, found)

    def _places(self) -> tuple[Array, Array, Array, Array]:
        """What splits the range of v, the width there, the ends of its range, and where to stop before them."""
        window, limit, size = self.window, ENDS[self.warp.kind], len(self.window.log_width)
        shares = [window.at(np.log(p), np.log1p(-p)) for p in (0.25, 0.5, 0.75)]
        if window.name == "Laplace":
            kink = window.arguments["mean"]
            shares[1] = np.where((window.lower < kink) & (kink < window.upper), kink, shares[1])
        tails = [window.at(np.full(size, p), np.full(size, q)) for p, q in ((TINY, 0.0), (0.0, TINY))]
        bounds = [np.where(np.isfinite(each), each, shares[1]) for each in (window.lower, window.upper)]
        places = inverse(self._transform, np.stack([*shares, *tails, *bounds]), increasing=self.increasing)
        places = places if self.increasing else places[[2, 1, 0, 4, 3, 6, 5]]
        split, width = places[1], np.maximum(places[2] - places[0], 1e-9 * np.maximum(1.0, np.abs(places[1])))
        finite = np.isfinite([window.lower, window.upper])[:: 1 if self.increasing else -1]
        ends, far = [], []
        for side, last, known, bound in zip((-1.0, 1.0), places[3:5], finite, places[5:], strict=True):
            ends.append(np.where(known & (np.abs(bound) < limit), bound, side * np.inf))
            log_size = np.log(np.abs(self._line.forward(last)))
            negligible = self._log_density(last[None])[0] + 3 * np.maximum(log_size, 0.0) < TINY / 4
            far.append(np.where(negligible & (np.abs(last) < limit) & (side * (last - split) > 0), last, side * limit))
        return split, width, np.stack(ends), np.stack(far)

    def _beyond(self, side: float, centre: Array) -> tuple[Array, Array]:
        """What lies beyond all numbers adds to the three sums, and the power from which on there is no moment."""
        orders = np.arange(3.0)[:, None]
        if self.warp.kind == "unit" or (self.warp.kind == "positive" and side < 0):
            v = np.full(centre.shape, side * ENDS[self.warp.kind])
            below = self.window.share(self._transform(v)[0])
            mass = 1.0 - below if (side > 0) == self.increasing else below
            return mass * (self._line.forward(v) - centre) ** orders, np.full(centre.shape, np.inf)
        power = self._power(side)
        last = self._heights(side, np.full((1, len(centre)), ENDS["positive"]))
        rest = np.exp(last + orders * ENDS["positive"]) / (power - orders)
        return np.where((power > orders) & np.isfinite(rest), rest, 0.0) * side**orders, power

    def _heights(self, side: float, far: Array) -> Array:
        """Log density over log |y|."""
        return self._log_density(far) if self.warp.kind == "positive" else self._log_density(side * np.exp(far)) + far

    def _power(self, side: float) -> Array:
        """By which the density falls over log |y|: infinite where it falls faster than any, before numbers end."""
        power, found = np.full(len(self.window.log_width), np.inf), np.zeros(len(self.window.log_width), int)
        for near, far in FAR:
            low, high = self._heights(side, np.array([[near], [far]]) * np.ones(len(power)))
            fall = (low - high) / (far - near)
            known = np.isfinite(fall)
            lighter = known & (found == 1) & (power > np.maximum(2.0, GROWS * fall))
            power = np.where(known & (found == 0), fall, np.where(lighter, np.inf, power))
            found = found + known
        return power


@functools.lru_cache(maxsize=64)
def _formula(warp: Warp, law: Density, arguments: tuple[str, ...]) -> tuple[sp.Expr, dict[str, sp.Symbol]]:
    """Log density of the output under a plain law of its transform, and the symbols of the law's arguments."""
    names = {each: sp.Symbol(f"{each} of the law", real=True) for each in arguments}
    density = law.log_density(warp.value, names)
    return stable(density + sp.expand_log(warp.log_slope())), names


def law_moments(warp: Warp, law: Law, given: Values, *, increasing: bool) -> Moments:
    """Of the output whose transform has this law, arguments and what is given [n]."""
    if law.name == "Mixture":
        parts = [law_moments(warp, each, given, increasing=increasing) for each in law.components]
        return _mixed(list(weights(law)), parts)
    inner = law.components[0] if law.components else law
    size = np.shape(inner.leaves()[0])
    bounds = [np.broadcast_to(law.arguments.get(n, e), size) for n, e in (("lower", -np.inf), ("upper", np.inf))]
    plain = Plain(warp, Window(inner.name, inner.arguments, bounds[0], bounds[1]), given, increasing)
    found = plain.moments(*plain.integrated(), np.full(size, PLACES))
    if law.name != "Censored":
        return found
    window = plain.window
    shares = [np.exp(window.log_width), np.exp(window.under), np.exp(window.over)]
    return _mixed(shares, [found, *(plain.at(bound) for bound in bounds)])


def _mixed(shares: list[Array], parts: list[Moments]) -> Moments:
    """Of a mixture; parts without a share do not count."""
    mean, variance = mixed(shares, [(part.mean, part.variance) for part in parts])
    orders = [np.where(share > 0, part.order, np.inf) for share, part in zip(shares, parts, strict=True)]
    return Moments(mean, variance, np.min(orders, axis=0))


# Means and variances of outputs observed through a transform, over the latents as well: mixtures over their nodes.

AT_ONCE, SLIGHT = 8192, 1e-6
"""For how many laws moments are computed together, and how far beyond an order they are said to exist."""

UNSEEN, DOMINANT = 1e-22, 1e-4
"""Weights that no moment may come from, and the part of it that must not."""


def warp_moments(base: Predictive, warp: Warp, *, increasing: bool) -> tuple[Array, Array]:
    """Mean and variance [rows, *keys] of outputs whose transform `base` describes, over the latents as well.

    Both are NaN where there is no mean; the variance is infinite where there is none but a mean.
    """
    law, given, shares = _at_nodes(base, warp)
    count, found = len(shares), []
    total = base.beliefs.count * int(np.prod(base.sizes))
    size = max(1, AT_ONCE // count)
    for start in range(0, total, size):
        part = slice(start, start + size)
        rows = min(size, total - start)
        one = law.map(lambda leaf: leaf[:, part].reshape(-1))  # noqa: B023
        with np.errstate(all="ignore"):
            under = law_moments(warp, one, {s: v[:, part].reshape(-1) for s, v in given.items()}, increasing=increasing)
            each = Moments(*(a.reshape(count, rows) for a in (under.mean, under.variance, under.order)))
            found.append(_over_latents(each, shares[:, None]))
    mean, variance = (
        np.concatenate(each).reshape(base.beliefs.count, *base.sizes) for each in zip(*found, strict=True)
    )
    return mean, variance


def _over_latents(each: Moments, shares: Array) -> tuple[Array, Array]:
    """Mean and variance [n] of the mixture over nodes [nodes, n]; what has no chance to be seen does not count."""
    none, wide = each.order <= 1 + SLIGHT, each.order <= 2 + SLIGHT
    first, second = np.where(none, 0.0, each.mean), np.where(wide, 0.0, each.variance)
    mean = np.sum(shares * first, axis=0)
    spread = shares * (second + np.where(none, 0.0, (first - mean) ** 2))
    lost = np.sum(shares * none, axis=0) > NEGLIGIBLE
    lost |= _from_nowhere(shares * np.abs(first), shares)
    infinite = (np.sum(shares * wide, axis=0) > NEGLIGIBLE) | _from_nowhere(spread, shares)
    variance = np.where(infinite, np.inf, np.sum(spread, axis=0))
    return np.where(lost, np.nan, mean), np.where(lost, np.nan, variance)


def _from_nowhere(parts: Array, shares: Array) -> Array:
    """Whether a sum is made by nodes so far out that it grows with them."""
    unseen = np.where(shares < UNSEEN, parts, 0.0).sum(axis=0)
    return ~np.isfinite(parts).all(axis=0) | (unseen > DOMINANT * parts.sum(axis=0))


def _at_nodes(base: Predictive, warp: Warp) -> tuple[Law, dict[sp.Symbol, Array], Array]:
    """The law of the transform and what the transform reads, at nodes of the latents [nodes, rows * keys]."""
    beliefs, own = base.beliefs, (warp.value.free_symbols | warp.slope.free_symbols) - {warp.symbol}
    read = {f"read {place}": symbol for place, symbol in enumerate(sorted(own, key=lambda each: each.name))}
    exact = base.normal
    leaves = {} if exact is not None else base.leaves()
    values, nodes = smooth_nodes(beliefs, {**leaves, **read}, base.keys)
    shares = (nodes[:, None] * beliefs.weights[None, :]).reshape(-1)
    shape = (len(nodes), len(beliefs.weights), beliefs.count, *base.sizes)

    def flat(value: Array) -> Array:
        return np.broadcast_to(np.asarray(value, float), shape).reshape(len(shares), -1)

    given = {symbol: flat(np.asarray(values[name])) for name, symbol in read.items()}
    if exact is not None:
        return Law("Normal", {"mean": flat(exact[0]), "sd": flat(np.sqrt(exact[1]))}), given, shares
    return base.law.filled(flat(np.asarray(values[name])) for name in leaves), given, shares
