"""Logarithms of tail probabilities in JAX: finite, with finite derivatives, far out in both tails."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, gammainc, gammaincc, gammaln
from jax.scipy.special import log_ndtr as jax_log_ndtr
from jaxtyping import Array

from gpdsl.lowering.gammas import log_beta, log_rising

LOG_2 = 0.6931471805599453

FRACTION = 20.0
"""Levels of the continued fractions; where they are used, each gains a digit or more."""

DEVIATIONS = 20.0
"""So many standard deviations from the mean the incomplete gamma functions are found from their fractions."""

FAR = 3.0
"""Beyond this Student's distribution function is found from a continued fraction, within it from the centre."""


def _promoted(*values: Array | float) -> list[Array]:
    """Arrays of one floating dtype; a plain number takes that of the others."""
    dtype = jnp.result_type(*values, 0.0)
    return [jnp.asarray(value, dtype) for value in values]


def log1mexp(x: Array | float) -> Array:
    """log(1 - exp(-x)) for x > 0 (Maechler 2012); a rounded zero counts as the smallest number."""
    (x,) = _promoted(x)
    x = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    near = x < LOG_2
    small, large = jnp.where(near, x, LOG_2), jnp.where(near, LOG_2, x)
    return jnp.where(near, jnp.log(-jnp.expm1(-small)), jnp.log1p(-jnp.exp(-large)))


def log_difference(larger: Array | float, smaller: Array | float) -> Array:
    """log(exp(larger) - exp(smaller))."""
    larger, smaller = _promoted(larger, smaller)
    return larger + log1mexp(larger - smaller)


def log_ndtr_interval(lower: Array | float, upper: Array | float) -> Array:
    """log(Phi(upper) - Phi(lower)): taken in the lower tail, to which the interval is reflected when need be."""
    lower, upper = _promoted(lower, upper)
    flip = lower + upper > 0
    a, b = jnp.where(flip, -upper, lower), jnp.where(flip, -lower, upper)
    return log_difference(jax_log_ndtr(b), jax_log_ndtr(a))


def _fraction(level: Callable[[Array, Array], Array], like: Array, levels: float = FRACTION) -> Array:
    """A continued fraction from its end: `level(k, what follows)` for k from `levels` down to 1."""

    def deepen(following: Array, k: Array) -> tuple[Array, None]:
        return level(k, following), None

    return jax.lax.scan(deepen, jnp.zeros_like(like), jnp.arange(levels, 0.0, -1.0, dtype=like.dtype))[0]


def log_gamma_cdf(shape: Array | float, x: Array | float) -> Array:
    """log of the regularised lower incomplete gamma function; its continued fraction where it is small."""
    shape, x = jnp.broadcast_arrays(*_promoted(shape, x))
    x = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    edge = jnp.maximum(0.5 * (shape + 1), shape - DEVIATIONS * jnp.sqrt(shape))
    near = x < edge
    safe, small = jnp.where(near, edge, x), jnp.where(near, x, 0.5 * edge)
    fraction = _fraction(lambda k, rest: k * small / (shape + k - small + rest), small)
    tail = shape * jnp.log(small) - small - gammaln(shape) - jnp.log(shape - small + fraction)
    return jnp.where(near, tail, jnp.log(gammainc(shape, safe)))


def log_gamma_sf(shape: Array | float, x: Array | float) -> Array:
    """log of the regularised upper incomplete gamma function; its continued fraction where it is small."""
    shape, x = jnp.broadcast_arrays(*_promoted(shape, x))
    x = jnp.maximum(x, 0.0)
    edge = 30.0 + jnp.minimum(3.0 * shape, shape + DEVIATIONS * jnp.sqrt(shape))
    far = x > edge
    safe, beyond = jnp.where(far, shape, x), jnp.where(far, x, edge)
    fraction = _fraction(lambda k, rest: k * (shape - k) / (beyond + 2 * k + 1 - shape + rest), beyond)
    tail = shape * jnp.log(beyond) - beyond - gammaln(shape) - jnp.log(beyond + 1 - shape + fraction)
    return jnp.where(far, tail, jnp.log(gammaincc(shape, safe)))


def log_student_cdf(df: Array | float, z: Array | float) -> Array:
    """log of Student's distribution function; no derivative with respect to `df`, which `symbolic.laws` sees to."""
    df, z = jnp.broadcast_arrays(*_promoted(df, z))
    return _log_student_cdf(jax.lax.stop_gradient(df), z)


@jax.custom_jvp
def _log_student_cdf(df: Array, z: Array) -> Array:
    near = jnp.abs(z) < FAR
    inside = jnp.where(near, z, 1.0) ** 2
    within = betainc(jnp.full_like(df, 0.5), df / 2, inside / (df + inside))
    centre = jnp.log1p(jnp.sign(z) * within) - LOG_2
    tail = _log_student_tail(df, jnp.where(near, FAR, jnp.abs(z)))
    return jnp.where(near, centre, jnp.where(z < 0, tail, jnp.log1p(-jnp.exp(tail))))


def _log_student_tail(df: Array, z: Array) -> Array:
    """log P(T > z) far out: the continued fraction of the incomplete beta function (DLMF 8.17.22)."""
    a, b = df / 2, 0.5
    log_ratio = 2 * jnp.log(z) - jnp.log(df)
    x = jax.nn.sigmoid(-log_ratio)

    def two_levels(m: Array, following: Array) -> Array:
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)) / (1 + following)
        return -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1)) / (1 + even)

    fraction = _fraction(two_levels, x, 2 * FRACTION)
    power = -a * jax.nn.softplus(log_ratio) - b * jax.nn.softplus(-log_ratio)
    return power - LOG_2 - jnp.log(a) - log_beta(a, b) - jnp.log1p(fraction)


@_log_student_cdf.defjvp
def _log_student_slope(values: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """Density over distribution function: the derivative of the incomplete beta function is infinite at z = 0."""
    df, z = values
    value = _log_student_cdf(df, z)
    normaliser = log_rising(df / 2, 0.5) - 0.5 * jnp.log(df * jnp.pi)
    log_density = normaliser - (df + 1) / 2 * jnp.log1p(z**2 / df)
    return value, jnp.exp(log_density - value) * tangents[1]
