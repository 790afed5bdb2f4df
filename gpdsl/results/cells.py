"""Logarithms of integrals over standard normals, in cells that are halved until they agree, or around modes.

Unlike a rule around a mode, cells over one or two normals find several narrow peaks, and take jumps and bends at their
ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from gpdsl.program.quadrature import gauss_hermite

REACH, PANELS, NODES = 12.0, 8, 12
"""Standard deviations on both sides at first, cells, and Gauss–Legendre nodes in each."""

DOUBLINGS = 60
"""How often the reach is doubled at most, and a bracket."""

HALVINGS, ENOUGH, UNSEEN = 45, 1e-11, 1e-2
"""How often a cell is halved; the change, of the integral, that ends it; in logarithms, that of a peak inside."""

NEGLIGIBLE = -40.0
"""Logarithm of what of an integral is left alone."""

LogFunction = Callable[[Int[np.ndarray, "n"], Float[np.ndarray, "n nodes J"]], Float[np.ndarray, "n nodes"]]
"""Of the numbers of rows, and of normals there."""

Line = tuple[np.ndarray, np.ndarray]
"""Level [rows] and slopes [rows, J] in the normals of what is zero where the function jumps or bends."""


def log_mean(
    function: LogFunction, lines: Sequence[Line], rows: int, count: int, enough: float = ENOUGH
) -> Float[np.ndarray, "rows"]:
    """log E[exp(function)] over `count` normals, one or two, of a function that is known to `enough` digits."""
    if count == 1:
        return _integrated(function, _stacked([_crossing(a, b[:, 0]) for a, b in lines], rows), enough)

    def given_first(chosen: np.ndarray, first: np.ndarray) -> np.ndarray:
        row, at = np.repeat(chosen, first.shape[1]), first.reshape(-1)

        def inner(places: np.ndarray, second: np.ndarray) -> np.ndarray:
            known = np.broadcast_to(at[places, None, None], second.shape)
            return function(row[places], np.concatenate([known, second], axis=-1))

        cuts = [_crossing(a[row] + b[row, 0] * at, b[row, 1]) for a, b in lines]
        return _integrated(inner, _stacked(cuts, len(row)), enough).reshape(first.shape[:2])

    cuts = [_crossing(a, b[:, 0]) for a, b in lines]
    for i, (a, b) in enumerate(lines):
        for c, d in lines[:i]:
            cuts.append(_crossing(a * d[:, 1] - c * b[:, 1], b[:, 0] * d[:, 1] - d[:, 0] * b[:, 1]))
    return _integrated(given_first, _stacked(cuts, rows), enough)


def _crossing(level: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Where a line is zero; infinity where it is nowhere."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.nan_to_num(-level / slope, nan=np.inf, posinf=np.inf, neginf=np.inf)


def _stacked(cuts: Sequence[np.ndarray], rows: int) -> Float[np.ndarray, "rows cuts"]:
    return np.stack(cuts, axis=1) if cuts else np.empty((rows, 0))


@np.errstate(invalid="ignore", divide="ignore")  # zeros, and the difference of two zeros' logarithms
def _integrated(
    function: LogFunction, cuts: Float[np.ndarray, "rows cuts"], enough: float
) -> Float[np.ndarray, "rows"]:
    """log of the integral of exp(function) under a standard normal, in cells between cuts."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    outside = (nodes[0] + 1) / (nodes[1] - nodes[0])  # from the last node to the end, in steps between nodes

    def of(row: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of cells, and what they may be: anything where the highest node lies inside."""
        half = 0.5 * (high - low)
        z = (low + high)[:, None] / 2 + half[:, None] * nodes
        values = _weighted(function, row, z)
        highest, top = np.argmax(values, axis=1), values.max(axis=1)
        beside = np.where(highest == 0, values[:, 1], values[:, -2])
        most = np.where(np.isfinite(beside), top + outside * (top - beside), top) + np.log(2 * half)
        inside = (highest > 0) & (highest < NODES - 1) & np.isfinite(top)
        some = np.exp(values - np.where(np.isfinite(top), top, 0.0)[:, None]) @ weights
        return top + np.log(half * some), np.where(inside, np.inf, most)

    edges = _edges(function, cuts)
    row, column = np.nonzero(np.diff(edges, axis=1) > 0)
    low, high = edges[row, column], edges[row, column + 1]
    whole, most = of(row, low, high)
    total = np.full(len(edges), -np.inf)
    reference = total.copy()
    np.logaddexp.at(reference, row, whole)
    some = ~(most - reference[row] < NEGLIGIBLE)
    row, low, high, whole, most = (each[some] for each in (row, low, high, whole, most))
    for turn in range(HALVINGS):
        middle = 0.5 * (low + high)
        halves, most_of_each = of(np.tile(row, 2), np.append(low, middle), np.append(middle, high))
        parts = np.logaddexp(*np.split(halves, 2))
        reference = total.copy()
        np.logaddexp.at(reference, row, parts)
        known = reference[row]
        open_ = _open(whole - known, parts - known, most - known, enough) & (turn < HALVINGS - 1)
        np.logaddexp.at(total, row[~open_], parts[~open_])
        twice = np.tile(open_, 2)
        low, high = np.append(low, middle)[twice], np.append(middle, high)[twice]
        row, whole, most = np.tile(row, 2)[twice], halves[twice], most_of_each[twice]
        if not len(row):
            break
    return total - 0.5 * math.log(2 * math.pi)


def _weighted(function: LogFunction, row: np.ndarray, z: Float[np.ndarray, "n nodes"]) -> Float[np.ndarray, "n nodes"]:
    """The logarithm of what is integrated over z, but for a constant."""
    values = function(row, z[..., None]) - 0.5 * z**2
    return np.where(np.isnan(values), -np.inf, values)


def _edges(function: LogFunction, cuts: Float[np.ndarray, "rows cuts"]) -> Float[np.ndarray, "rows edges"]:
    """Ends of cells of each row, in order: the reach is doubled for as long as there is something at its ends."""
    even = np.broadcast_to(np.linspace(-REACH, REACH, PANELS + 1), (len(cuts), PANELS + 1))
    row, reaches, parts = np.arange(len(cuts)), np.full(len(cuts), REACH), [even]
    between = np.linspace(-REACH, REACH, NODES)  # as many as in a cell, for one program
    values = _weighted(function, row, np.broadcast_to(between, (len(row), NODES)))
    highest = values.max(axis=1)
    for _ in range(DOUBLINGS):
        row = row[~(np.maximum(values[:, 0], values[:, -1]) - highest[row] < NEGLIGIBLE)]
        if not len(row):
            break
        reaches[row] *= 2
        parts.append(np.clip(reaches[row[0]] * np.array([-1.0, 1.0]), -reaches[:, None], reaches[:, None]))
        between[[0, -1]] *= 2
        values = _weighted(function, row, np.broadcast_to(between, (len(row), NODES)))
        highest[row] = np.maximum(highest[row], values.max(axis=1))
    return np.sort(np.concatenate([*parts, np.clip(cuts, -reaches[:, None], reaches[:, None])], axis=1), axis=1)


def _open(whole: np.ndarray, parts: np.ndarray, most: np.ndarray, enough: float) -> np.ndarray:
    """Whether cells need halving, by what they are of the integral, and by what they may be: a narrow peak."""
    with np.errstate(invalid="ignore", over="ignore"):
        changed = np.abs(np.exp(np.minimum(whole, 50.0)) - np.exp(np.minimum(parts, 50.0))) > enough
        peak = ~(most < NEGLIGIBLE) & (np.abs(whole - parts) > UNSEEN)
    return np.nan_to_num(changed) | peak


# Around modes of the integrand, as JAX computes them for many rows.

NEWTON_STEPS = 30
STEP_LENGTHS = tuple(0.25**k for k in range(8))
ADAPTIVE_NODES, FEWER = 24, 17
"""Nodes along each of two latents, and of a rule that has to agree."""

MODES, WIDER, FLATTEST = 16, 1.2, 0.3
"""Places that modes are looked for from; how much wider samples lie than there; least curvature, 1 without outputs."""

RowFunction = Callable[[Float[Array, "rows J"]], Float[Array, "rows"]]
"""Logarithms at standard normals: a row's depends on its own alone."""


def gradients(function: RowFunction, values: Array) -> tuple[Array, Array, Array]:
    """Value [rows], gradient [rows, J] and Hessian [rows, J, J]; rows do not interact."""
    gradient = jax.grad(lambda v: jnp.sum(function(v)))
    directions = jnp.eye(values.shape[1], dtype=values.dtype)

    def along(direction: Array) -> Array:
        return jax.jvp(gradient, (values,), (jnp.broadcast_to(direction, values.shape),))[1]

    return function(values), gradient(values), jnp.stack([along(d) for d in directions], axis=-1)


def around_mode(row: RowFunction, start: Array) -> Float[Array, "2 rows"]:
    """log E[exp(row(z))] for standard normals z, one node at a time to spare memory."""
    centre, width = _mode(row, start)

    def at_node(carry: None, node: tuple[Array, Array]) -> tuple[None, Array]:
        z, log_weight = node
        at = centre + width * z
        log_q = jnp.sum(jnp.log(width) - 0.5 * at**2, axis=1)
        return None, row(at) + log_q + 0.5 * jnp.sum(z**2) + log_weight

    found = []
    for count in (ADAPTIVE_NODES, FEWER):
        nodes, weights = gauss_hermite(start.shape[1], count)
        _, values = jax.lax.scan(at_node, None, (jnp.asarray(nodes), jnp.log(jnp.asarray(weights))))
        found.append(logsumexp(values, axis=0))
    return jnp.stack(found)


def _mode(function: RowFunction, start: Array) -> tuple[Array, Array]:
    """Mode of function(z) + log N(z; 0, I) by damped Newton steps, and the curvature's standard deviation."""

    def slope_and_curvature(z: Array) -> tuple[Array, Array]:
        _, slope, hessian = gradients(function, z)
        return slope - z, 1.0 + jnp.maximum(-jnp.diagonal(hessian, axis1=1, axis2=2), 0.0)

    def step(_: int, z: Array) -> Array:
        slope, curvature = slope_and_curvature(z)
        return _uphill(function, z, slope / curvature)

    mode = jax.lax.fori_loop(0, NEWTON_STEPS, step, start)
    return mode, 1.0 / jnp.sqrt(slope_and_curvature(mode)[1])


def _uphill(function: RowFunction, z: Array, along: Array) -> Float[Array, "rows J"]:
    """The best of several steps for function(z) + log N(z; 0, I), each a quarter of the one before."""

    def target(at: Array) -> Array:
        return function(at) - 0.5 * jnp.sum(at**2, axis=1)

    best, here = z, target(z)
    for scale in STEP_LENGTHS:
        trial = z + scale * along
        there = target(trial)
        better = jnp.isfinite(there) & (there > here)
        best, here = jnp.where(better[:, None], trial, best), jnp.where(better, there, here)
    return best


def _highest(function: RowFunction, start: Array) -> tuple[Float[Array, "rows J"], Float[Array, "rows J J"]]:
    """The same by all of the curvature, with a root of a covariance that is like it."""

    def curvature(hessian: Array) -> tuple[Array, Array]:
        values, vectors = jnp.linalg.eigh(jnp.eye(start.shape[1]) - jnp.nan_to_num(hessian))
        return jnp.maximum(jnp.abs(values), FLATTEST), vectors

    def step(_: int, z: Array) -> Array:
        slope, hessian = gradients(function, z)[1:]
        values, vectors = curvature(hessian)
        along = jnp.einsum("nij,nj,nkj,nk->ni", vectors, 1.0 / values, vectors, slope - z)
        return _uphill(function, z, along)

    mode = jax.lax.fori_loop(0, NEWTON_STEPS // 2, step, start)
    values, vectors = curvature(gradients(function, mode)[2])
    return mode, WIDER * vectors / jnp.sqrt(values)[:, None, :]


def around_modes(
    row: RowFunction, rows: int, starts: Float[Array, "A J"], normals: Float[Array, "S J"]
) -> tuple[Float[Array, "rows"], Float[Array, "rows"]]:
    """log E[exp(row(z))] for standard normals z, and its standard error, by samples of a mixture of Gaussians.

    They lie around the modes that are found from the likeliest of each part of `starts`; one is that of z itself,
    which bounds the weights of all of them.
    """
    size, count = len(starts) // MODES, starts.shape[1]

    def everywhere(z: Array) -> Array:
        return jnp.broadcast_to(z, (rows, count))

    def likeliest(some: Array) -> Array:
        return some[jnp.argmax(jnp.nan_to_num(jax.lax.map(lambda z: row(everywhere(z)), some), nan=-jnp.inf), axis=0)]

    found = jax.lax.map(lambda some: _highest(row, likeliest(some)), starts.reshape(MODES, size, count))
    whole = everywhere(jnp.zeros(count)), jnp.broadcast_to(jnp.eye(count), (rows, count, count))
    modes, roots = (jnp.concatenate([a, b[None]]) for a, b in zip(found, whole, strict=True))
    inverses, sizes = jnp.linalg.inv(roots), jnp.linalg.slogdet(roots)[1]

    def log_mixture(z: Array) -> Array:
        apart = jnp.einsum("cnij,cnj->cni", inverses, z - modes)
        return logsumexp(-0.5 * jnp.sum(apart**2, axis=2) - sizes, axis=0) - math.log(MODES + 1)

    def of(component: tuple[Array, Array, Array]) -> Array:
        mode, root, some = component

        def weight(normal: Array) -> Array:
            z = mode + root @ normal
            return jnp.nan_to_num(row(z), nan=-jnp.inf) - 0.5 * jnp.sum(z**2, axis=1) - log_mixture(z)

        return jax.lax.map(weight, some)

    each = len(normals) // (MODES + 1)
    parts = normals[: each * (MODES + 1)].reshape(MODES + 1, each, count)
    weights = jax.lax.map(of, (modes, roots, parts)).reshape(-1, rows)
    mean = logsumexp(weights, axis=0) - math.log(len(weights))
    return mean, jnp.sqrt(jnp.mean(jnp.expm1(weights - mean) ** 2, axis=0) / len(weights))


# Inverses of strictly monotone functions, for many values at once: Newton's method inside a shrinking bracket.

Function = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Values and slopes at y, elementwise."""

ITERATIONS = 120


def inverse(function: Function, target: np.ndarray, *, increasing: bool = True) -> np.ndarray:
    """y with function(y) = target, elementwise.

    The bracket starts at -1 and 1 and doubles until it holds the target. A target beyond every value of the function,
    or one that needs |y| above 2^60, gives the end of the bracket. Newton steps that leave the bracket are
    replaced by bisection, and so is each third one while Newton's method is not closing in.
    """
    sign = 1.0 if increasing else -1.0
    target = np.asarray(target, float)

    def excess(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = function(y)
        return sign * (np.asarray(value, float) - target), sign * np.asarray(slope, float)

    low, high = _bracket(lambda y: excess(y)[0], target.shape)
    at = 0.5 * (low + high)
    for turn in range(ITERATIONS):
        with np.errstate(all="ignore"):
            value, slope = excess(at)
            low, high = np.where(value < 0, at, low), np.where(value >= 0, at, high)
            step = at - value / slope
            middle = 0.5 * (low + high)
            good = np.isfinite(step) & (step >= low) & (step <= high)  # at the root the step is none
            following = np.where(good, step, middle)
            done = np.abs(following - at) <= 4 * np.finfo(float).eps * np.maximum(np.abs(at), 1e-300)
        if np.all(done | (high - low <= 4 * np.finfo(float).eps * np.abs(at))):
            return following
        slow = turn % 3 == 2
        at = np.where(done, following, np.where(slow & ~_near(following, at, low, high), middle, following))
    return at


def _near(following: np.ndarray, at: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether Newton's method is closing in: its step is far smaller than the bracket."""
    return np.abs(following - at) < 1e-3 * (high - low)


def _bracket(excess: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.full(shape, -1.0), np.full(shape, 1.0)
    with np.errstate(all="ignore"):
        for _ in range(DOUBLINGS):
            above, below = excess(low) > 0, excess(high) < 0
            if not (above.any() or below.any()):
                break
            low, high = np.where(above, 2 * low, low), np.where(below, 2 * high, high)
    return low, high
