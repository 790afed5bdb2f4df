"""Quadrature over one or two arguments, split where the integrand jumps or bends: Gauss–Legendre between those places.

The arguments are linear functions of latents, and so of standard normals z behind them. Of two, the second is
integrated first, between where kinks vanish given the first; what is left bends where two of them cross or where one of
them reads the first alone, and is steep where the second hardly moves one of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.program.joint import Marginals, Table, deviation, lower_root, moment_values
from gpdsl.program.program import Program
from gpdsl.program.rows import Scope
from gpdsl.symbolic.arguments import Integrand
from gpdsl.symbolic.expectations import Correlated, correlated, root_symbol
from gpdsl.symbolic.functions import floor
from gpdsl.symbolic.gaussian import joint_moments_of

# The joint Gaussian law of what an integral is over: latents, or linear functions of them.


@dataclass(frozen=True)
class Gaussian:
    """Joint Gaussians of some symbols, row by row: mean_i + sum_j root_ij z_j for independent standard normals z.

    Entries of the root that are zero are left out.
    """

    symbols: tuple[sp.Symbol, ...]
    means: Sequence[Array]
    root: Sequence[Mapping[int, Array]]

    def values(self, normals: Sequence[Array | None]) -> dict[sp.Symbol, Array]:
        """Values of the symbols at normals, those that are None at zero."""
        found = {}
        for symbol, mean, row in zip(self.symbols, self.means, self.root, strict=True):
            found[symbol] = mean + sum(entry * z for j, entry in row.items() if (z := normals[j]) is not None)
        return found

    def still(self) -> Gaussian:
        """Without derivatives."""
        means, root = jax.lax.stop_gradient((list(self.means), list(self.root)))
        return Gaussian(self.symbols, means, root)


def gaussian_of(program: Program, latents: Sequence[sp.Symbol], q: Marginals, axes: tuple[str, ...]) -> Gaussian:
    """The law of readings under the marginals."""
    moments, known = joint_moments_of(latents), moment_values(program, latents, q, axes)
    places = {s: place for place, s in enumerate(latents)}
    root = {s: {place: deviation(known[moments.variance[s]])} for s, place in places.items()}
    for symbols, table in _dependent(program, latents, q, known):
        for i, s in enumerate(symbols):
            root[s] = {places[t]: table[i][j] for j, t in enumerate(symbols[: i + 1])}
    return Gaussian(tuple(latents), [known[moments.mean[s]] for s in latents], list(root.values()))


def gaussian_along(symbols: Sequence[sp.Symbol], lines: Sequence[tuple[Array, list[Array]]]) -> Gaussian:
    """The law of linear functions of standard normals, each of a level and slopes, as one of as many normals."""
    slopes = [s for _, s in lines]
    covariance = [[jnp.asarray(sum(a * b for a, b in zip(s, t, strict=True))) for t in slopes] for s in slopes]
    root = [dict(enumerate(row)) for row in lower_root(covariance)]
    return Gaussian(tuple(symbols), [level for level, _ in lines], root)


def _dependent(
    program: Program, latents: Sequence[sp.Symbol], q: Marginals, known: Mapping[sp.Symbol, Array]
) -> list[tuple[Correlated, Table]]:
    """The sets of reads that are not independent of each other, with the roots of their covariances."""
    if q.covariance is None:
        sets = correlated(program.translator, latents)
        tables = [[[root_symbol(s, t) for t in each[: i + 1]] for i, s in enumerate(each)] for each in sets]
        roots = [[[known[entry] for entry in row] for row in table] for table in tables]
        return list(zip(sets, roots, strict=True))
    if len(latents) < 2:
        return []
    moments = joint_moments_of(latents)
    return [(tuple(latents), lower_root([[known[moments.symbol(s, t)] for t in latents] for s in latents]))]


REACH = 12.0
"""Standard deviations on both sides of the mean that are integrated over."""

REACH_SINGLE = 7.5
"""The same in single precision, where a pole beyond it overflows: 6e-14 of the probability lies there."""

PANELS, NODES = 6, 20
"""Pieces without kinks, and Gauss–Legendre nodes in each."""

STEPS, SMALL, UNIFORM = 16, 1.25, 8
"""Whole numbers on both sides that are told apart, the sd in steps beyond which they are not, nodes for a fraction."""

STEEP = (-8.0, -3.0, 3.0, 8.0)
"""Further cuts around where the second argument decides, in units of how far it reaches."""


Rule = tuple[Float[np.ndarray, "nodes arguments"], Float[np.ndarray, " nodes"]]
"""Nodes of standard normals, and weights."""

Line = tuple[Array, list[Array]]
"""A level and slopes in the normals."""


@dataclass(frozen=True, eq=False)
class Integral:
    """E[expression] over the arguments of its integrand under their law, with `given` values of other symbols.

    Where `beside` has nodes and weights, a second argument is integrated over by these wherever a value is asked for.
    """

    program: Program
    law: Gaussian
    axes: tuple[str, ...]
    scope: Scope
    expression: sp.Expr
    kinks: Sequence[sp.Expr] = ()
    given: Mapping[sp.Symbol, Array] = field(default_factory=dict)
    beside: Rule | None = None

    @property
    def symbols(self) -> tuple[sp.Symbol, ...]:
        """What is integrated over."""
        return self.law.symbols

    def at(self, *normals: Array) -> Array:
        """Values of the expression at standard normals behind the arguments, whose first axis leads."""
        if self.beside is None:
            return self.integrand(self.values(*normals))
        (first,), (nodes, weights) = normals, self.beside

        @jax.checkpoint
        def value(node: Array) -> Array:
            second, weight = node
            return weight * self.integrand(self.values(first, jnp.broadcast_to(second, first.shape)))

        start, *others = jnp.asarray(np.stack([nodes[:, 0], weights], axis=1), first.dtype)
        return jax.lax.scan(lambda total, node: (total + value(node), None), value(start), jnp.stack(others))[0]

    def values(self, *normals: Array) -> dict[sp.Symbol, Array]:
        """The arguments there; in single precision those at `REACH_SINGLE` beyond that."""
        single = self.law.means[0].dtype == jnp.float32
        return self.law.values([jnp.clip(z, -REACH_SINGLE, REACH_SINGLE) if single else z for z in normals])

    def integrand(self, table: Mapping[sp.Symbol, Array]) -> Array:
        """The expression at values of the arguments."""
        return jnp.asarray(self.program.evaluator(self.expression, self.scope, self.axes, {**table, **self.given}))

    def column(self, numbers: Float[np.ndarray, " nodes *K"]) -> Float[Array, "nodes *rest"]:
        """Numbers along the first axis of what leads, or as well along the one of components."""
        mean = self.law.means[0]
        return jnp.asarray(numbers, mean.dtype).reshape(*numbers.shape, *(1,) * (mean.ndim + 1 - numbers.ndim))

    def by_rule(self, nodes: Float[np.ndarray, "nodes arguments"], weights: Float[np.ndarray, " nodes"]) -> Array:
        """The sum over nodes of standard normals."""
        values = self.at(*map(self.column, nodes.T))
        return jnp.tensordot(jnp.asarray(weights, values.dtype), values, axes=1)

    def lines(self, functions: Sequence[sp.Expr]) -> list[Line]:
        """Linear functions of the arguments as ones of standard normals."""
        count = len(self.symbols)
        one = jnp.ones((), self.law.means[0].dtype)
        units = [None, *range(count)]
        tables = [self.law.values([one if j == unit else None for j in range(count)]) for unit in units]
        found = []
        for function in functions:
            level, *moved = (
                jnp.asarray(self.program.evaluator(function, self.scope, self.axes, table)) for table in tables
            )
            found.append((level, [each - level for each in moved]))
        return found


def integral_of(
    program: Program,
    integrand: Integrand,
    q: Marginals,
    axes: tuple[str, ...],
    scope: Scope,
    given: Mapping[sp.Symbol, Array] = MappingProxyType({}),
) -> Integral:
    """The expectation of an integrand under the marginals `q`."""
    law = gaussian_of(program, integrand.latents, q, axes)
    whole = Integral(program, law, axes, scope, integrand.expression, integrand.kinks or (), given)
    if integrand.symbols == integrand.latents:
        return whole
    return replace(whole, law=gaussian_along(integrand.symbols, whole.lines([each for _, each in integrand.arguments])))


def gauss_hermite(dimension: int, count: int) -> Rule:
    """A product rule."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    grids = np.meshgrid(*[x] * dimension, indexing="ij")
    weights = np.meshgrid(*[w / w.sum()] * dimension, indexing="ij")
    return np.stack([g.ravel() for g in grids], axis=1), np.prod([g.ravel() for g in weights], axis=0)


def split_integral(integral: Integral) -> Float[Array, "K rows *axes"]:
    """An integral over one or two arguments, split at its kinks. The nodes move with them."""
    steps = [kink for kink in integral.kinks if isinstance(kink, floor)]
    whole = {step: sp.Dummy("whole", real=True) for step in steps}
    kinks = [kink.args[0] if kink in whole else kink for kink in integral.kinks]
    integral = replace(integral, kinks=kinks, expression=integral.expression.xreplace(whole))
    lines = integral.lines(kinks)
    if steps:
        return _stepping(integral, lines, whole[steps[0]])
    if len(integral.symbols) == 1:
        z, weights = _between([crossing(level, slope) for level, (slope,) in lines])
        return jnp.sum(weights * integral.at(z), axis=0)

    def given_first(first: Array) -> Array:
        second, weights = _between([crossing(level + a * first, b) for level, (a, b) in lines])
        return jnp.sum(weights * integral.at(jnp.broadcast_to(first, second.shape), second), axis=0)

    first, weights = _between(_outer_cuts(integral.symbols, kinks, lines))
    values = jax.lax.map(jax.checkpoint(given_first), first, batch_size=NODES)
    return jnp.sum(weights * values, axis=0)


def _stepping(integral: Integral, lines: Sequence[Line], whole: sp.Symbol) -> Array:
    """With a symbol for the largest whole number below the last line: split there, or where steps are small, smoothed.

    Of a line as wide as `SMALL` steps the fraction u is uniform and independent of z up to exp(-2 pi^2 SMALL^2).
    """
    *others, (level, (slope,)) = lines
    at, integrand = integral.values, integral.integrand
    cuts, wide = [crossing(a, b) for a, (b,) in others], jnp.abs(slope) > SMALL
    first = jax.lax.stop_gradient(jnp.floor(level))
    near = jnp.where(wide, SMALL, slope)
    numbers = [first + k for k in range(-STEPS, STEPS + 1)]
    z, weights = _between([*cuts, *[crossing(level - number, near) for number in numbers]])
    split = jnp.sum(weights * integrand({**at(z), whole: jnp.floor(level + near * z)}), axis=0)
    z, weights = _between([*cuts, jnp.full_like(level, REACH)])
    t, shares = np.polynomial.legendre.leggauss(UNIFORM)
    value = sum(
        0.5 * share * integrand({**at(z), whole: level + slope * z - 0.5 * (1.0 + u)})
        for u, share in zip(t.tolist(), shares.tolist(), strict=True)
    )
    return jnp.where(wide, jnp.sum(weights * value, axis=0), split)


def split_count(integrand: Integrand) -> int:
    """At how many nodes."""
    symbols, kinks = integrand.symbols, integrand.kinks or ()
    inner = (PANELS + len(kinks)) * NODES
    if any(isinstance(kink, floor) for kink in kinks):
        return (1 + UNIFORM) * inner + 2 * STEPS * NODES
    if len(symbols) == 1:
        return inner
    steep = sum(len(STEEP) for kink in kinks if symbols[1] in kink.free_symbols)
    return (PANELS + len(kinks) + steep + math.comb(len(kinks), 2)) * NODES * inner


def crossing(level: Array, slope: Array) -> Array:
    """Where a line is zero, far out where it is nowhere."""
    flat = jnp.abs(slope) * REACH < jnp.abs(level)
    inside = -level / jnp.where(flat | (slope == 0), 1.0, slope)
    return jnp.where(flat | (slope == 0), REACH, inside)


def _outer_cuts(symbols: Sequence[sp.Symbol], kinks: Sequence[sp.Expr], lines: Sequence[Line]) -> list[Array]:
    """Where the integral over the second normal jumps, bends or is steep, as values of the first."""
    cuts = []
    for kink, (level, (a, b)) in zip(kinks, lines, strict=True):
        middle = crossing(level, a)
        cuts.append(middle)
        if symbols[1] in kink.free_symbols:
            width = jnp.abs(b) / jnp.maximum(jnp.abs(a), jnp.abs(b) / REACH + float(jnp.finfo(a.dtype).tiny) ** 0.5)
            cuts += [middle + reach * width for reach in STEEP]
    for (level, (a, b)), (other, (c, d)) in itertools.combinations(lines, 2):
        cuts.append(crossing(level * d - other * b, a * d - c * b))
    return cuts


def _rule() -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre in t with x = (3 t - t^3) / 2: dense at the ends, where powers of what vanishes are rough."""
    t, weights = np.polynomial.legendre.leggauss(NODES)
    return 0.5 * (3.0 * t - t**3), 1.5 * (1.0 - t**2) * weights


def edges_of(cuts: Sequence[Array], panels: int) -> Array:
    """The cuts among the ends of even panels, in order, along a new leading axis."""
    ends = jnp.stack(jnp.broadcast_arrays(*[jnp.clip(cut, -REACH, REACH) for cut in cuts]))
    even = jnp.asarray(np.linspace(-REACH, REACH, panels + 1), ends.dtype).reshape(-1, *(1,) * (ends.ndim - 1))
    return jnp.sort(jnp.concatenate([jnp.broadcast_to(even, (panels + 1, *ends.shape[1:])), ends]), axis=0)


def density(z: Array) -> Array:
    """Of a standard normal."""
    return jnp.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)


def _between(cuts: Sequence[Array]) -> tuple[Array, Array]:
    """Nodes along a new leading axis, and their weights under a standard normal, of the pieces between the cuts."""
    edges = edges_of(cuts, PANELS)
    x, w = (jnp.asarray(each, edges.dtype).reshape(-1, *(1,) * edges.ndim) for each in _rule())
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * (edges[1:] - edges[:-1])
    z = middle + half * x
    weights = half * w * density(z)
    return z.reshape(-1, *z.shape[2:]), weights.reshape(-1, *z.shape[2:])
