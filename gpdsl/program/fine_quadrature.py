"""Quadrature over one argument that may be steep: pieces are halved until what is steep inside of them is told apart.

Where the trapezoidal rule and its every other node agree nothing is steep, and it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Bool, Float

from gpdsl.program.program import Program
from gpdsl.program.quadrature import REACH, Integral, Rule, crossing, density, edges_of, gauss_hermite
from gpdsl.program.rows import Scope
from gpdsl.symbolic.arguments import Integrand, centres, widths
from gpdsl.symbolic.expectations import latents_in

FINE_PANELS, FINE_NODES = 16, 10
"""Pieces at first, and Gauss–Legendre nodes in each."""

FEW_BESIDE, PART = 33, 3
"""Nodes along a second argument that tell where pieces along the first are halved: so many are enough, of more a part,
which is another one for each rule."""

AT_A_TIME, TURNS = 4, 12
"""How many pieces are halved before errors are looked at again, and how often: the least piece is 4e-4 sd wide."""

FINE_COUNT = (FINE_PANELS + AT_A_TIME * TURNS) * FINE_NODES
"""Nodes along the first argument, in the end."""

NEAR = (-1e-1, -3e-3, -1e-4, 0.0, 1e-4, 3e-3, 1e-1)
"""Further cuts around a centre, which no node may be near: standard deviations."""

EVEN_NODES, AGREE = 193, 1e-6
"""Of the trapezoidal rule, and how far it may be off, relatively: every other node alone, or all of them as told by
half, a quarter and an eighth of them."""

FALLING = 0.05, 0.1
"""Shares of an error that are left by twice as many nodes, at most, the last time and before: of a function that bends
where a node stands a quarter is."""


def may_be_steep(
    program: Program,
    integrand: Integrand,
    axes: tuple[str, ...],
    scope: Scope,
    widest: Float[Array | np.ndarray, "1 1 latents"],
    near: float,
) -> bool:
    """Whether a singularity may be nearer than so many standard deviations of its only argument; untraced.

    Latents have variances as `widest` says, at most.
    """
    ((symbol, meaning),) = integrand.arguments
    found = widths(integrand.expression, symbol)
    if found is None:
        return True
    evaluator, sd = program.evaluator, np.zeros(())
    for latent in latents_in(program.translator, meaning):
        share = evaluator(sp.diff(meaning, latent), scope, axes)
        sd = sd + np.abs(share) * np.asarray(evaluator.of_latent(latent, widest, axes))
    slopes = [np.abs(evaluator(slope, scope, axes)) for slope, _ in found]
    return not all(bool(np.all(s * sd * near <= radius)) for s, (_, radius) in zip(slopes, found, strict=True))


def fine_integral(integral: Integral) -> tuple[Float[Array, "K rows *axes"], Float[Array, "K rows *axes"]]:
    """An integral however steep the first argument is, and how wrong that may be. Its kinks are no steps.

    Pieces are chosen without derivatives: they are those of the integral over the chosen ones, which move with kinks.
    Of many nodes beside, some are enough to choose them.
    """
    still, scope = jax.lax.stop_gradient, integral.scope
    parameters, latents, externals = still((dict(scope.parameters), scope.latents, dict(scope.externals)))
    known = Scope(parameters, scope.rows, latents, externals)
    given = {s: still(v) for s, v in integral.given.items()}
    count = 0 if integral.beside is None else len(integral.beside[1])
    few = gauss_hermite(1, min(count, max(count // PART, FEW_BESIDE))) if count else None
    held = replace(integral, scope=known, law=integral.law.still(), given=given, beside=few)
    cuts = [crossing(level, slope) for level, (slope, *_) in integral.lines(integral.kinks)]
    for level, (slope, *_) in integral.lines(_centres(integral)):
        cuts += [still(crossing(level, slope)) + distance for distance in NEAR]
    one = integral.column(np.zeros(1))
    shape = jnp.broadcast_shapes(*[cut.shape for cut in cuts], held.at(one).shape[1:])
    edges = edges_of([jnp.broadcast_to(cut, shape) for cut in cuts] or [jnp.full(shape, REACH)], FINE_PANELS)
    pieces, left = _halved(held.at, still(edges))
    low, high = _ends(edges, *pieces)
    t, w = (each.reshape(-1, *(1,) * len(shape)) for each in np.polynomial.legendre.leggauss(FINE_NODES))

    def of_piece(ends: tuple[Array, Array]) -> Array:
        z = 0.5 * (ends[0] + ends[1]) + 0.5 * (ends[1] - ends[0]) * jnp.asarray(t, edges.dtype)
        weights = 0.5 * (ends[1] - ends[0]) * jnp.asarray(w, edges.dtype) * density(z)
        return jnp.sum(weights * integral.at(z), axis=0)

    return jnp.sum(jax.lax.map(jax.checkpoint(of_piece), (low, high), batch_size=AT_A_TIME), axis=0), left


def _centres(integral: Integral) -> tuple[sp.Expr, ...]:
    """Where to look closely along the first argument, for whatever value of another."""
    first, *others = integral.symbols
    return tuple(each for each in centres(integral.expression, first) if each.free_symbols.isdisjoint(others))


def fine_nodes(function: Callable[[Array], Array], cuts: Sequence[Array]) -> tuple[Array, Array]:
    """Nodes and weights on the line of pieces that are fine for a function times the standard normal density.

    Both are [nodes, *shape] where the cuts, the function and its argument after the first axis are of that shape. No
    derivatives are taken of where they are.
    """
    edges = jax.lax.stop_gradient(edges_of(cuts, FINE_PANELS))
    pieces, _ = _halved(function, edges)
    low, high = (end[:, None] for end in _ends(edges, *pieces))
    t, w = np.polynomial.legendre.leggauss(FINE_NODES)
    lead = (-1, *(1,) * (edges.ndim - 1))
    z = 0.5 * (low + high) + 0.5 * (high - low) * jnp.asarray(t.reshape(lead), edges.dtype)
    weights = 0.5 * (high - low) * jnp.asarray(w.reshape(lead), edges.dtype)
    return z.reshape(-1, *edges.shape[1:]), weights.reshape(-1, *edges.shape[1:])


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
        values = function(z.reshape(-1, *shape)).reshape(z.shape) * density(z)
        missing = jnp.abs(jnp.einsum("ln,pn...->pl...", jnp.asarray(last, edges.dtype), values))
        return half[:, 0] * jnp.sum(missing, axis=1)

    def turn(number: Array, known: tuple[Pieces, Array]) -> tuple[Pieces, Array]:
        pieces, error = known
        chosen, rest = [], error
        for _ in range(AT_A_TIME):  # not `top_k` and scatters, which bring the rows of all devices to each
            chosen.append(places == jnp.argmax(rest, axis=0))
            rest = jnp.where(chosen[-1], -1.0, rest)
        between, low, high = (
            jnp.stack([jnp.sum(jnp.where(one, each, 0), axis=0, dtype=each.dtype) for one in chosen]) for each in pieces
        )
        middle = 0.5 * (low + high)
        halves = tuple(map(jnp.concatenate, ((between, between), (low, middle), (middle, high))))
        new = (*halves, errors(halves))  # type: ignore[arg-type]
        placed = []
        for old, each in zip((*pieces, error), new, strict=True):
            for one, first_half in zip(chosen, each[:AT_A_TIME], strict=True):
                old = jnp.where(one, first_half, old)
            place = first + number * AT_A_TIME
            placed.append(jax.lax.dynamic_update_slice_in_dim(old, each[AT_A_TIME:], place, axis=0))
        return (placed[0], placed[1], placed[2]), placed[3]

    more = (AT_A_TIME * TURNS, *shape)
    places = jnp.arange(first + more[0]).reshape(-1, *(1,) * len(shape))
    between = jnp.broadcast_to(jnp.arange(first).reshape(-1, *(1,) * len(shape)), (first, *shape))
    whole = between, jnp.zeros((first, *shape), edges.dtype), jnp.ones((first, *shape), edges.dtype)
    padded = [jnp.concatenate([each, jnp.zeros(more, each.dtype)]) for each in (*whole, errors(whole))]
    pieces, error = jax.lax.fori_loop(0, TURNS, turn, ((padded[0], padded[1], padded[2]), padded[3]))
    return pieces, jnp.sum(error, axis=0)


def _ends(edges: Array, between: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Where pieces begin and end."""
    before, after = (jnp.take_along_axis(edges, between + k, axis=0) for k in (0, 1))
    return before + low * (after - before), before + high * (after - before)


def quick_integral(integral: Integral) -> tuple[Float[Array, "K rows *axes"], Bool[Array, ""]]:
    """An integral over one argument without kinks, and whether that is right where it may be steep.

    Where the error falls as fast as that of a function without steps does, the square of the share that is left is once
    more. Where it may be steep at several places steps can hide, and every other node has to be enough.
    """
    values = _even_values(integral)
    every, half, quarter, eighth = (step * jnp.sum(values[::step], axis=0) for step in (1, 2, 4, 8))
    size, none = jnp.sum(jnp.abs(values), axis=0), jnp.finfo(values.dtype).tiny
    last, before, first = jnp.abs(every - half), jnp.abs(half - quarter), jnp.abs(quarter - eighth)
    share, share_before = last / jnp.maximum(before, none), before / jnp.maximum(first, none)
    right = last <= AGREE * size
    if len(_centres(integral)) < 2:
        falling = (share <= FALLING[0]) & (share_before <= FALLING[1])
        right |= falling & (last * share**2 <= AGREE * size)
    return every, jnp.all(right)


def quick_of_two(
    integral: Integral, counts: Sequence[int]
) -> tuple[Float[Array, "rules K rows *axes"], Bool[Array, ""]]:
    """An integral over two arguments by rules of so many nodes along each, and whether the first two are right."""
    found = jnp.stack([integral.by_rule(*gauss_hermite(2, count)) for count in counts])
    size = jnp.maximum(jnp.abs(found[0]), jnp.abs(found[1]))
    return found, jnp.all(jnp.abs(found[0] - found[1]) <= AGREE * size)


def of_two(
    integral: Integral, counts: Sequence[int], beside: Sequence[Rule] = ()
) -> tuple[Float[Array, "rules K rows *axes"], Array]:
    """An integral over two arguments by rules of so many nodes along each, and how wrong all of them may be besides.

    Where the first two of the rules do not agree, the first argument is integrated over finely, the second by as many
    nodes, or by rules of its own.
    """
    found, agree = quick_of_two(integral, counts)

    def finely() -> tuple[Array, Array]:
        rules = beside or [gauss_hermite(1, count) for count in counts]
        values, left = zip(*[fine_integral(replace(integral, beside=rule)) for rule in rules], strict=True)
        return jnp.broadcast_to(jnp.stack(values), found.shape), jnp.broadcast_to(left[0], found.shape[1:])

    return jax.lax.cond(agree, lambda: (found, jnp.zeros_like(found[0])), finely)


def even_integral(integral: Integral) -> Float[Array, "K rows *axes"]:
    """An integral over one argument where nothing is steep, by the trapezoidal rule."""
    return jnp.sum(_even_values(integral), axis=0)


def even_rule(count: int = EVEN_NODES) -> Rule:
    """The trapezoidal rule over a standard normal."""
    nodes = np.linspace(-REACH, REACH, count)
    weights = np.exp(-0.5 * nodes**2)
    return nodes[:, None], weights / weights.sum()


def _even_values(integral: Integral) -> Float[Array, "nodes K rows *axes"]:
    """What a trapezoidal rule adds up: its error is exp(-2 pi d / step) for a singularity d sds away.

    A node stands where something may be steep, so that no spike hides between them.
    """
    z = integral.column(even_rule()[0][:, 0])
    step = 2 * REACH / (EVEN_NODES - 1)
    for level, (slope, *_) in integral.lines(_centres(integral)[:1]):
        z = z + jnp.remainder(crossing(level, slope), 2 * step)
    return integral.at(z) * density(z) * step
