"""Quantiles: exact inversion of a distribution function that is a weighted sum, and of any quantity of the model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from scipy.special import ndtr, ndtri

from gpdsl.errors import GpdslError, quoted
from gpdsl.program.cache import jit
from gpdsl.program.kept import reused
from gpdsl.program.rows import Rows
from gpdsl.results.cells import inverse
from gpdsl.results.expectation import FEW, Beliefs
from gpdsl.results.integrals import Quantity
from gpdsl.results.nodes import joint_weights, nodes_of
from gpdsl.results.slopes import Smooth
from gpdsl.symbolic.conditions import choose
from gpdsl.symbolic.functions import floor
from gpdsl.symbolic.laws import Law

STEPS, CLOSE = 250, 1e-14
"""Of a search for a quantile, and how wide it leaves the bracket, in units of the place itself."""

WIDENINGS = 200

NEARBY = 1e-3
"""Of a bracket's width: how far apart the slope of a distribution function is taken."""

AT_ONCE = 1 << 19
"""Rows times beliefs of which quantiles are searched for together."""

Array = np.ndarray


def probabilities_of(name: str, probabilities: float | Sequence[float]) -> np.ndarray:
    """Those of the quantiles that are asked for, at least one. Raises GpdslError where there is no such quantile."""
    try:
        several = np.atleast_1d(np.asarray(probabilities, dtype=float))
    except (TypeError, ValueError, OverflowError):
        several = np.array([np.nan])
    if several.ndim > 1 or not (several.size and np.all((several > 0) & (several < 1))):
        raise GpdslError(
            f"quantile of `{name}`: probabilities must lie strictly between 0 and 1, got {quoted(probabilities)[:60]}"
        )
    return several


def invert(
    cdf: Callable[[Array], Array],
    probability: float,
    low: Array,
    high: Array,
    *,
    discrete: bool = False,
    rough: Callable[[Array], Array] | None = None,
) -> np.ndarray:
    """Smallest y with cdf(y) >= probability, elementwise, from a bracket that is widened as needed.

    Discrete distributions live on the whole numbers, and so does the search. A `rough` function that is near, and takes
    less time, is inverted first, to begin nearby.
    """
    low, high = np.array(low, float), np.array(high, float)
    width, known = high - low, None
    if rough is not None:
        guess = invert(rough, probability, low, high, discrete=discrete)
        low, high, known = (guess, guess, None) if discrete else _nearby(cdf, rough, probability, guess, width)
    if discrete:
        low, high = np.floor(low) - 1.0, np.ceil(high) + 0.0  # no -0.0
    lacking, beyond = (cdf(low) - probability, cdf(high) - probability) if known is None else known
    first = np.maximum(high - low, CLOSE * np.maximum(np.abs(low), np.abs(high)))
    for doubled in range(WIDENINGS):
        short, long = beyond < 0, lacking >= 0
        if not (short.any() or long.any()):
            break
        more, (ends, at_ends) = first * 2.0**doubled, ((low, high), (lacking, beyond))
        width = np.maximum(width, more)
        low, high = np.where(short, ends[1], ends[0]), np.where(long, ends[0], ends[1])
        lacking, beyond = np.where(short, at_ends[1], at_ends[0]), np.where(long, at_ends[0], at_ends[1])
        if short.any():
            high = np.where(short, high + more, high)
            beyond = cdf(high) - probability
        if long.any():
            low = np.where(long, low - more, low)
            lacking = cdf(low) - probability
    if not discrete:
        return _root(cdf, probability, (low, high), (lacking, beyond), CLOSE * width)
    for _ in range(STEPS):
        middle = np.floor(0.5 * (low + high))
        if np.all((middle <= low) | (middle >= high)):
            break
        below = cdf(middle) < probability
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


def _nearby(
    cdf: Callable[[Array], Array], rough: Callable[[Array], Array], probability: float, guess: Array, width: Array
) -> tuple[Array, Array, tuple[Array, Array]]:
    """A bracket that most likely holds the place, and what is missing, or too much, at its ends.

    It goes from a guess by twice a step of Newton's, with the rough slope.
    """
    beside, at_guess = NEARBY * width, cdf(guess) - probability
    with np.errstate(divide="ignore", invalid="ignore"):
        step = -4.0 * beside * at_guess / (rough(guess + beside) - rough(guess - beside))
    step = np.clip(np.where(np.isfinite(step), step, width), -width, width)
    at_other, up = cdf(guess + step) - probability, step > 0
    low, high = guess + np.minimum(step, 0.0), guess + np.maximum(step, 0.0)
    return low, high, (np.where(up, at_guess, at_other), np.where(up, at_other, at_guess))


def _root(
    cdf: Callable[[Array], Array],
    probability: float,
    ends: tuple[Array, Array],
    at_ends: tuple[Array, Array],
    least: Array,
) -> Array:
    """Where a distribution function reaches a probability between two places, elementwise; Chandrupatla (1997).

    A parabola in the function's value through the last three places says where to look next, if it is straight enough
    there; else that is half-way. The bracket is [a, b] or [b, a], with the newest place a; c is the one before. Of a
    first bracket that long tails have made wide, the place itself may be far below the rounding: there the probability
    between the ends says whether the search is over, and `least` how far apart they may be. It is over, too, where the
    function is the probability but for rounding.
    """
    (a, b), (at_a, at_b) = ends, at_ends
    nothing, tiny, rounding = CLOSE * probability, np.finfo(float).tiny, 4 * np.finfo(float).eps * probability
    place = np.where((a < 0) & (b > 0), 0.0, _half_way(a, b, least))
    for _ in range(STEPS):
        value = cdf(place) - probability
        same = (value >= 0) == (at_a >= 0)
        c, at_c = np.where(same, a, b), np.where(same, at_a, at_b)
        b, at_b = np.where(same, b, a), np.where(same, at_b, at_a)
        a, at_a = place, value
        width = np.abs(b - a)
        near = np.where(np.abs(at_b - at_a) <= nothing, least, tiny) + CLOSE * np.abs(a)
        over = (width <= 2 * near) | (np.abs(at_a) <= rounding)
        if over.all():
            break
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            xi, phi = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
            bent = at_a / (at_b - at_a) * at_c / (at_b - at_c)
            bent += (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
            straight = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
            step = np.where(np.abs(at_a) <= nothing, least, 0.0) + CLOSE * np.abs(a)
            place = a + np.minimum(np.maximum(bent, step / width), 1.0) * (b - a)
        inside = straight & (place > np.minimum(a, b)) & (place < np.maximum(a, b))
        place = np.where(over, a, np.where(inside, place, _half_way(a, b, least)))
    return np.where(at_a >= -rounding, a, b)


def _half_way(a: Array, b: Array, least: Array) -> Array:
    """Between two places; by their orders of magnitude where these differ, down to `least` at first."""
    small, large = np.minimum(np.abs(a), np.abs(b)), np.maximum(np.abs(a), np.abs(b))
    small = np.maximum(small, np.where(large > 8 * least, least, np.finfo(float).tiny))
    apart = (np.sign(a) * np.sign(b) >= 0) & (large > 8 * small)
    return np.where(apart, np.sign(a + b) * np.sqrt(small) * np.sqrt(large), 0.5 * a + 0.5 * b)


class Around(NamedTuple):
    """An average of smooth laws, about where it is and how wide: what all of its quantiles have in common."""

    smooth: Smooth
    centre: Array
    spread: Array

    def quantile(self, probability: float) -> np.ndarray:
        """Shaped as the centre."""
        smooth, centre, spread = self.smooth, np.ravel(self.centre), np.ravel(self.spread)
        found, settled = smooth.quantile(probability, centre, spread)
        left = np.flatnonzero(~settled)
        if len(left):
            some, ends = smooth.part(left), (centre[left] - 4 * spread[left], centre[left] + 4 * spread[left])
            rough = None if some.thinned is None else some.thinned.cdf
            found[left] = invert(some.cdf, probability, *ends, rough=rough)
        return found.reshape(np.shape(self.centre))


def of_normals(mean: Array, variance: Array, weights: Array) -> Around:
    """The average sum_k w_k N(mean_k, variance_k); `mean` and `variance` are [K, ...]."""
    mean, variance, pi = np.asarray(mean), np.asarray(variance), np.asarray(weights)
    centre = np.tensordot(pi, mean, axes=1)
    spread = np.sqrt(np.tensordot(pi, variance + (mean - centre) ** 2, axes=1))
    law = Law("Normal", {"mean": mean, "sd": np.maximum(np.sqrt(variance), np.finfo(float).tiny)})
    smooth = Smooth.of(law, pi, centre.shape)
    assert smooth is not None
    return Around(smooth, centre, spread)


def weighted_quantile(values: Array, weights: Array, probability: float, *, smooth: bool = False) -> np.ndarray:
    """Quantile along the first axis of weighted values: the smallest that reaches `probability`.

    `smooth` says that the values are nodes of a continuous function: then the quantile lies between two of them, found
    by linear interpolation of the distribution function at the middle of each step.
    """
    order = np.argsort(values, axis=0)
    ranked = np.take_along_axis(values, order, axis=0)
    spread = np.broadcast_to(weights.reshape(-1, *(1,) * (values.ndim - 1)), values.shape)
    spread = np.take_along_axis(spread, order, axis=0)
    reached = np.cumsum(spread, axis=0) - (0.5 * spread if smooth else 0.0)
    enough = np.concatenate([reached[:-1] >= probability - 1e-12, np.ones_like(reached[:1], bool)])
    last = np.argmax(enough, axis=0)[None]
    found = np.take_along_axis(ranked, last, axis=0)[0]
    if not smooth:
        return found
    first = np.maximum(last - 1, 0)
    low, high = (np.take_along_axis(reached, at, axis=0)[0] for at in (first, last))
    share = np.clip((probability - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    below = np.take_along_axis(ranked, first, axis=0)[0]
    return below + share * (found - below)


def weighted_share(values: Array, weights: Array, at: np.ndarray) -> np.ndarray:
    """The distribution function of nodes with weights, whose inverse is `weighted_quantile(..., smooth=True)`."""
    found = np.empty(at.shape)
    for place in np.ndindex(at.shape):
        own = values[(slice(None), *place)]
        order = np.argsort(own)
        reached = np.cumsum(weights[order]) - 0.5 * weights[order]
        found[place] = np.interp(at[place], own[order], reached, left=0.0, right=1.0)
    return found


class Monotone(NamedTuple):
    """A quantity that rises, or falls, with one Gaussian argument: its mean and sd [..., components, rows, *keys]."""

    mean: Array
    sd: Array
    function: Callable[[Array], tuple[jnp.ndarray, jnp.ndarray]]
    """Its values and slopes, elementwise."""
    rising: bool


def monotone_of(
    beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...], compiled: Callable | None = None
) -> Monotone | None:
    """The quantity as a function of its one argument, where it is known to rise or to fall with it.

    `compiled` is that of the beliefs, or of several about the same rows.
    """
    compiled, quantity = compiled or beliefs.compile, Quantity(beliefs, expression, keys)
    integrand = quantity.integrand
    if len(integrand.arguments) != 1 or quantity.opaque:
        return None
    (symbol,) = integrand.symbols
    slope = sp.diff(integrand.expression, symbol)
    if not (slope.is_positive or slope.is_negative):
        return None

    def moments(known: Beliefs) -> tuple[jnp.ndarray, jnp.ndarray]:
        law = known.integral(integrand, keys).law
        return law.means[0], law.root[0][0]

    def values(known: Beliefs, at: jnp.ndarray) -> tuple[jnp.ndarray, jnp.ndarray]:
        return sloped(lambda each: known.integral(integrand, keys).integrand({symbol: each}), at)

    mean, sd = compiled(("argument", expression, keys), moments)()
    function = compiled(("monotone", expression, keys), values)
    return Monotone(np.asarray(mean), np.asarray(sd), function, slope.is_positive)


def sloped(function: Callable[[jnp.ndarray], jnp.ndarray], at: Array | jnp.ndarray) -> tuple[jnp.ndarray, jnp.ndarray]:
    """Values and slopes of an elementwise function."""
    point = jnp.asarray(at)
    value, slope = jax.jvp(function, (point,), (jnp.ones_like(point),))
    return value, slope


def where_reached(
    function: Callable[[Array], tuple[jnp.ndarray, jnp.ndarray]], target: Array, *, rising: bool
) -> np.ndarray:
    """Where an elementwise function that rises, or falls, has these values."""

    def at_numbers(at: Array) -> tuple[Array, Array]:
        value, slope = function(at)
        return np.asarray(value, float), np.asarray(slope, float)

    return inverse(at_numbers, target, increasing=rising)


def _compile_together(each: Sequence[Beliefs], key: Hashable, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(beliefs, ...)` [beliefs, ...] of beliefs about the same rows, by one call: see `Beliefs.compile`.

    Other arguments have the beliefs first, too.
    """
    first, shell = each[0], each[0].shell()

    def build() -> Callable[..., Any]:
        def one(rows: Rows, arrays: tuple[Any, Any], *others: Any) -> Any:
            return function(shell.about(arrays[0], rows, arrays[1]), *others)

        def all_of(rows: Rows, arrays: tuple[Any, Any], *others: Any) -> Any:
            return jax.vmap(partial(one, rows))(arrays, *others)

        return jit(all_of, brief=first.count <= FEW)

    place = first.program.known_by, "together", key, first.count, len(first.weights), first.seed
    arrays = jax.tree.map(lambda *a: jnp.stack(a), *((known.parameters, known.marginals) for known in each))
    return partial(reused(place, build), first.rows, arrays)


def quantile_over(
    each: Sequence[Beliefs], weights: Array, expression: sp.Expr, keys: tuple[str, ...], p: float
) -> np.ndarray | None:
    """The quantile under a mixture of several beliefs about the same rows; None of what is not known to be monotone."""
    size, count = max(1, AT_ONCE // len(each)), each[0].count
    if count > size:
        some = [[known.part(slice(at, at + size)) for known in each] for at in range(0, count, size)]
        found = [q for part in some if (q := quantile_over(part, weights, expression, keys, p)) is not None]
        return np.concatenate(found) if found else None
    known = monotone_of(each[0], expression, keys, partial(_compile_together, each))
    if known is None:
        return None
    deviate = ndtri(p if known.rising else 1.0 - p)
    at = known.mean + known.sd * deviate
    ends = np.stack([np.asarray(known.function(end)[0]) for end in (at.min(axis=1), at.max(axis=1))])
    joint = np.asarray(weights)[:, None] * np.stack([some.weights for some in each])

    def cdf(y: Array) -> Array:
        at = where_reached(known.function, np.broadcast_to(y, (len(each), *y.shape)), rising=known.rising)
        away = (at[:, None] - known.mean) / np.maximum(known.sd, np.finfo(float).tiny)
        return np.tensordot(joint, ndtr(away if known.rising else -away), axes=2)

    low, high = ends.min(axis=(0, 1)), ends.max(axis=(0, 1))
    return low if np.array_equal(low, high) else invert(cdf, p, low - 1e-9 * (high - low), high)


def quantile_of(
    beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...], p: float, known: dict[Any, Any]
) -> np.ndarray:
    """The quantile of a quantity that is no output, [rows, *keys]: exact for a monotone function of one latent.

    What other quantiles need too is `known` from the first on.
    """
    if expression not in known:
        known[expression] = monotone_of(beliefs, expression, keys) or nodes_of(beliefs, {"value": expression}, keys)
    found = known[expression]
    if isinstance(found, Monotone):
        at = of_normals(found.mean, found.sd**2, beliefs.weights).quantile(p if found.rising else 1.0 - p)
        return np.asarray(found.function(at)[0])
    values, weights = found
    nodes = np.asarray(values["value"])
    joint = joint_weights(weights, beliefs)
    smooth = not expression.has(choose, floor)
    return weighted_quantile(nodes.reshape(-1, *nodes.shape[2:]), joint.reshape(-1), p, smooth=smooth)
