"""Quadrature over one or two latents, split where the integrand jumps or bends: Gauss–Legendre between those places.

Over one latent the pieces are halved, where that is asked for, until what is steep inside of them is told apart.

With f = m + R z for standard normals z, a linear function of latents is one of z. Of two, the second is integrated
first, between where the functions vanish given the first; what is left bends where two of them cross or where one of
them reads the first alone, and is steep where the second hardly moves one of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.program.joint import Marginals, values_at
from gpdsl.program.program import Program
from gpdsl.program.rows import Scope
from gpdsl.symbolic.functions import floor
from gpdsl.symbolic.steepness import centres

REACH = 12.0
"""Standard deviations on both sides of the mean that are integrated over."""

PANELS, NODES = 6, 20
"""Pieces without kinks, and Gauss–Legendre nodes in each."""

STEPS, SMALL, UNIFORM = 16, 1.25, 8
"""Whole numbers on both sides that are told apart, the sd in steps beyond which they are not, nodes for a fraction."""

FINE_PANELS, FINE_NODES = 16, 10
"""The same where pieces are halved."""

AT_A_TIME, TURNS = 4, 12
"""How many pieces are halved before errors are looked at again, and how often: the least piece is 4e-4 sd wide."""

NEAR = (-1e-2, -1e-4, 0.0, 1e-4, 1e-2)
"""Further cuts around a centre, which no node may be near: standard deviations."""

STEEP = (-8.0, -3.0, 3.0, 8.0)
"""Further cuts around where the second latent decides, in units of how far it reaches."""


Line = tuple[Array, list[Array]]
"""A level and slopes in the normals."""


def split_integral(
    program: Program,
    latents: Sequence[sp.Symbol],
    q: Marginals,
    axes: tuple[str, ...],
    scope: Scope,
    kinks: Sequence[sp.Expr],
    expression: sp.Expr,
    given: Mapping[sp.Symbol, Array],
) -> Float[Array, "K rows *axes"]:
    """E[expression] over one or two latents, with some symbols given. The nodes move with the kinks."""
    steps = [kink for kink in kinks if isinstance(kink, floor)]
    whole = {step: sp.Dummy("whole", real=True) for step in steps}
    kinks = [kink.args[0] if kink in whole else kink for kink in kinks]
    expression = expression.xreplace(whole)

    def integrand(table: Mapping[sp.Symbol, Array]) -> Array:
        return jnp.asarray(program.evaluator(expression, scope, axes, {**table, **given}))

    def at(*normals: Array) -> dict[sp.Symbol, Array]:
        return values_at(program, latents, q, axes, normals)

    lines = _lines(program, latents, q, axes, scope, kinks)
    if steps:
        return _stepping(lines, whole[steps[0]], at, integrand)
    if len(latents) == 1:
        z, weights = _between([_crossing(level, slope) for level, (slope,) in lines])
        return jnp.sum(weights * integrand(at(z)), axis=0)

    def given_first(first: Array) -> Array:
        second, weights = _between([_crossing(level + a * first, b) for level, (a, b) in lines])
        return jnp.sum(weights * integrand(at(jnp.broadcast_to(first, second.shape), second)), axis=0)

    first, weights = _between(_outer_cuts(latents, kinks, lines))
    values = jax.lax.map(jax.checkpoint(given_first), first, batch_size=NODES)
    return jnp.sum(weights * values, axis=0)


def fine_integral(
    program: Program,
    latent: sp.Symbol,
    q: Marginals,
    axes: tuple[str, ...],
    scope: Scope,
    kinks: Sequence[sp.Expr],
    expression: sp.Expr,
    given: Mapping[sp.Symbol, Array],
) -> tuple[Float[Array, "K rows *axes"], Float[Array, "K rows *axes"]]:
    """E[expression] over one latent, however steep it is, and how wrong that may be. `kinks` have no steps.

    Pieces are chosen without derivatives: they are those of the integral over the chosen ones, which move with kinks.
    """

    def integrand(scope: Scope, q: Marginals, given: Mapping[sp.Symbol, Array], z: Array) -> Array:
        table = values_at(program, [latent], q, axes, [z])
        return jnp.asarray(program.evaluator(expression, scope, axes, {**table, **given}))

    still = jax.lax.stop_gradient
    parameters, latents, externals = still((dict(scope.parameters), scope.latents, dict(scope.externals)))
    held = Scope(parameters, scope.rows, latents, externals), still(q), {s: still(v) for s, v in given.items()}
    cuts = [_crossing(level, slope) for level, (slope,) in _lines(program, [latent], q, axes, scope, kinks)]
    for level, (slope,) in _lines(program, [latent], q, axes, scope, centres(expression, latent)):
        cuts += [still(_crossing(level, slope)) + distance for distance in NEAR]
    one = jnp.zeros((1,) * (1 + q.mean.ndim - 1 + len(axes)), q.mean.dtype)
    shape = jnp.broadcast_shapes(*[cut.shape for cut in cuts], integrand(*held, one).shape[1:])
    edges = _edges([jnp.broadcast_to(cut, shape) for cut in cuts] or [jnp.full(shape, REACH)], FINE_PANELS)
    pieces, left = _halved(lambda z: integrand(*held, z), still(edges))
    low, high = _ends(edges, *pieces)
    t, w = (each.reshape(-1, *(1,) * len(shape)) for each in np.polynomial.legendre.leggauss(FINE_NODES))

    def of_piece(ends: tuple[Array, Array]) -> Array:
        z = 0.5 * (ends[0] + ends[1]) + 0.5 * (ends[1] - ends[0]) * jnp.asarray(t, edges.dtype)
        weights = 0.5 * (ends[1] - ends[0]) * jnp.asarray(w, edges.dtype) * _density(z)
        return jnp.sum(weights * integrand(scope, q, given, z), axis=0)

    return jnp.sum(jax.lax.map(jax.checkpoint(of_piece), (low, high), batch_size=AT_A_TIME), axis=0), left


Pieces = tuple[Array, Array, Array]
"""Which two edges each lies between, and where it begins and ends there, from 0 to 1."""


def _halved(function: Callable[[Array], Array], edges: Array) -> tuple[Pieces, Array]:
    """Pieces between the edges, those halved again and again that are worst told by their nodes; and what is left.

    The error of a piece is taken to be that of leaving out the last two Legendre polynomials.
    """
    t, w = np.polynomial.legendre.leggauss(FINE_NODES)
    last = np.polynomial.legendre.legvander(t, FINE_NODES - 1)[:, -2:].T * w * (FINE_NODES - 0.5)
    first, shape = len(edges) - 1, edges.shape[1:]
    nodes = jnp.asarray(t, edges.dtype).reshape(-1, *(1,) * len(shape))

    def errors(pieces: Pieces) -> Array:
        low, high = _ends(edges, *pieces)
        half = 0.5 * (high - low)[:, None]
        z = 0.5 * (low + high)[:, None] + half * nodes
        values = function(z.reshape(-1, *shape)).reshape(z.shape) * _density(z)
        missing = jnp.abs(jnp.einsum("ln,pn...->pl...", jnp.asarray(last, edges.dtype), values))
        return half[:, 0] * jnp.sum(missing, axis=1)

    def turn(number: Array, known: tuple[Pieces, Array]) -> tuple[Pieces, Array]:
        pieces, error = known
        _, worst = jax.lax.top_k(jnp.moveaxis(error, 0, -1), AT_A_TIME)
        worst = jnp.moveaxis(worst, -1, 0)
        between, low, high = (jnp.take_along_axis(each, worst, axis=0) for each in pieces)
        middle = 0.5 * (low + high)
        halves = tuple(map(jnp.concatenate, ((between, between), (low, middle), (middle, high))))
        new = (*halves, errors(halves))  # type: ignore[arg-type]
        place = first + number * AT_A_TIME
        placed = [
            jax.lax.dynamic_update_slice_in_dim(
                jnp.put_along_axis(old, worst, each[:AT_A_TIME], axis=0, inplace=False), each[AT_A_TIME:], place, axis=0
            )
            for old, each in zip((*pieces, error), new, strict=True)
        ]
        return (placed[0], placed[1], placed[2]), placed[3]

    more = (AT_A_TIME * TURNS, *shape)
    between = jnp.broadcast_to(jnp.arange(first).reshape(-1, *(1,) * len(shape)), (first, *shape))
    whole = between, jnp.zeros((first, *shape), edges.dtype), jnp.ones((first, *shape), edges.dtype)
    padded = [jnp.concatenate([each, jnp.zeros(more, each.dtype)]) for each in (*whole, errors(whole))]
    pieces, error = jax.lax.fori_loop(0, TURNS, turn, ((padded[0], padded[1], padded[2]), padded[3]))
    return pieces, jnp.sum(error, axis=0)


def _ends(edges: Array, between: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Where pieces begin and end."""
    before, after = (jnp.take_along_axis(edges, between + k, axis=0) for k in (0, 1))
    return before + low * (after - before), before + high * (after - before)


def _lines(
    program: Program,
    latents: Sequence[sp.Symbol],
    q: Marginals,
    axes: tuple[str, ...],
    scope: Scope,
    functions: Sequence[sp.Expr],
) -> list[Line]:
    """Linear functions of latents as ones of standard normals."""
    units = np.eye(len(latents), dtype=q.mean.dtype).reshape(len(latents), -1, *(1,) * (q.mean.ndim + len(axes)))
    normals = [[jnp.zeros_like(each) for each in units[0]], *[list(map(jnp.asarray, unit)) for unit in units]]
    tables = [values_at(program, latents, q, axes, each) for each in normals]
    found = []
    for function in functions:
        level, *moved = [jnp.asarray(program.evaluator(function, scope, axes, table))[0] for table in tables]
        found.append((level, [each - level for each in moved]))
    return found


def _stepping(
    lines: Sequence[Line],
    whole: sp.Symbol,
    at: Callable[[Array], dict[sp.Symbol, Array]],
    integrand: Callable[[Mapping[sp.Symbol, Array]], Array],
) -> Array:
    """With a symbol for the largest whole number below the last line: split there, or where steps are small, smoothed.

    Of a line as wide as `SMALL` steps the fraction u is uniform and independent of z up to exp(-2 pi^2 SMALL^2).
    """
    *others, (level, (slope,)) = lines
    cuts, wide = [_crossing(a, b) for a, (b,) in others], jnp.abs(slope) > SMALL
    first = jax.lax.stop_gradient(jnp.floor(level))
    near = jnp.where(wide, SMALL, slope)
    numbers = [first + k for k in range(-STEPS, STEPS + 1)]
    z, weights = _between([*cuts, *[_crossing(level - number, near) for number in numbers]])
    split = jnp.sum(weights * integrand({**at(z), whole: jnp.floor(level + near * z)}), axis=0)
    z, weights = _between([*cuts, jnp.full_like(level, REACH)])
    t, shares = np.polynomial.legendre.leggauss(UNIFORM)
    value = sum(
        0.5 * share * integrand({**at(z), whole: level + slope * z - 0.5 * (1.0 + u)})
        for u, share in zip(t.tolist(), shares.tolist(), strict=True)
    )
    return jnp.where(wide, jnp.sum(weights * value, axis=0), split)


def split_count(latents: Sequence[sp.Symbol], kinks: Sequence[sp.Expr]) -> int:
    """At how many nodes."""
    inner = (PANELS + len(kinks)) * NODES
    if any(isinstance(kink, floor) for kink in kinks):
        return inner + (2 * STEPS + UNIFORM * PANELS) * NODES
    if len(latents) == 1:
        return inner
    steep = sum(len(STEEP) for kink in kinks if latents[1] in kink.free_symbols)
    return (PANELS + len(kinks) + steep + math.comb(len(kinks), 2)) * NODES * inner


def _crossing(level: Array, slope: Array) -> Array:
    """Where a line is zero, far out where it is nowhere."""
    flat = jnp.abs(slope) * REACH < jnp.abs(level)
    inside = -level / jnp.where(flat | (slope == 0), 1.0, slope)
    return jnp.where(flat | (slope == 0), REACH, inside)


def _outer_cuts(latents: Sequence[sp.Symbol], kinks: Sequence[sp.Expr], lines: Sequence[Line]) -> list[Array]:
    """Where the integral over the second normal jumps, bends or is steep, as values of the first."""
    cuts = []
    for kink, (level, (a, b)) in zip(kinks, lines, strict=True):
        middle = _crossing(level, a)
        cuts.append(middle)
        if latents[1] in kink.free_symbols:
            width = jnp.abs(b) / jnp.maximum(jnp.abs(a), jnp.abs(b) / REACH + float(jnp.finfo(a.dtype).tiny) ** 0.5)
            cuts += [middle + reach * width for reach in STEEP]
    for (level, (a, b)), (other, (c, d)) in itertools.combinations(lines, 2):
        cuts.append(_crossing(level * d - other * b, a * d - c * b))
    return cuts


def _rule() -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre in t with x = (3 t - t^3) / 2: dense at the ends, where powers of what vanishes are rough."""
    t, weights = np.polynomial.legendre.leggauss(NODES)
    return 0.5 * (3.0 * t - t**3), 1.5 * (1.0 - t**2) * weights


def _edges(cuts: Sequence[Array], panels: int) -> Array:
    """The cuts among the ends of even panels, in order, along a new leading axis."""
    ends = jnp.stack(jnp.broadcast_arrays(*[jnp.clip(cut, -REACH, REACH) for cut in cuts]))
    even = jnp.asarray(np.linspace(-REACH, REACH, panels + 1), ends.dtype).reshape(-1, *(1,) * (ends.ndim - 1))
    return jnp.sort(jnp.concatenate([jnp.broadcast_to(even, (panels + 1, *ends.shape[1:])), ends]), axis=0)


def _density(z: Array) -> Array:
    return jnp.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)


def _between(cuts: Sequence[Array]) -> tuple[Array, Array]:
    """Nodes along a new leading axis, and their weights under a standard normal, of the pieces between the cuts."""
    edges = _edges(cuts, PANELS)
    x, w = (jnp.asarray(each, edges.dtype).reshape(-1, *(1,) * edges.ndim) for each in _rule())
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * (edges[1:] - edges[:-1])
    z = middle + half * x
    weights = half * w * _density(z)
    return z.reshape(-1, *z.shape[2:]), weights.reshape(-1, *z.shape[2:])
