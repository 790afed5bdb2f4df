"""Logarithms of tail probabilities in JAX: finite, with finite derivatives, far out in both tails."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, gammainc, gammaincc, gammaln
from jax.scipy.special import log_ndtr as jax_log_ndtr
from jaxtyping import Array

LOG_2 = 0.6931471805599453
SERIES = 54
"""Halving as often leaves nothing in double precision."""

FRACTION = 20.0
"""Levels of the continued fraction; so far out, each gains a digit or more."""


def _promoted(*values: Array | float) -> list[Array]:
    """Arrays of one floating dtype; a plain number takes that of the others."""
    dtype = jnp.result_type(*values, 0.0)
    return [jnp.asarray(value, dtype) for value in values]


def log1mexp(x: Array | float) -> Array:
    """log(1 - exp(-x)) for x > 0 (Maechler 2012); a rounded zero counts as the smallest number."""
    (x,) = _promoted(x)
    x = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    small, large = jnp.minimum(x, LOG_2), jnp.maximum(x, LOG_2)
    return jnp.where(x < LOG_2, jnp.log(-jnp.expm1(-small)), jnp.log1p(-jnp.exp(-large)))


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


def log_gamma_cdf(shape: Array | float, x: Array | float) -> Array:
    """log of the regularised lower incomplete gamma function; its power series where it underflows."""
    shape, x = jnp.broadcast_arrays(*_promoted(shape, x))
    x = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    near = x < 0.5 * (shape + 1)
    safe = jnp.where(near, shape + 1, x)
    # sum_k x^k / ((s + 1) ... (s + k)); x < (s + 1) / 2 makes each term less than half the one before
    small = jnp.where(near, x, 0.0)

    def add(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], None]:
        total, term = carry
        term = term * small / (shape + k)
        return (total + term, term), None

    terms = jnp.arange(1.0, SERIES, dtype=x.dtype)
    (series, _), _ = jax.lax.scan(add, (jnp.ones_like(x), jnp.ones_like(x)), terms)
    tail = shape * jnp.log(x) - x - gammaln(shape + 1) + jnp.log(series)
    return jnp.where(near, tail, jnp.log(gammainc(shape, safe)))


def log_gamma_sf(shape: Array | float, x: Array | float) -> Array:
    """log of the regularised upper incomplete gamma function; its continued fraction where it is small."""
    shape, x = jnp.broadcast_arrays(*_promoted(shape, x))
    x = jnp.maximum(x, 0.0)
    far = x > 30.0 + 3.0 * shape
    safe = jnp.where(far, shape, x)
    beyond = jnp.where(far, x, 30.0 + 4.0 * shape)
    # modified Lentz is not needed this far out: the fraction evaluated from its tail converges in a few terms

    def deepen(fraction: Array, k: Array) -> tuple[Array, None]:
        return k * (shape - k) / (beyond + 2 * k + 1 - shape + fraction), None

    fraction, _ = jax.lax.scan(deepen, jnp.zeros_like(x), jnp.arange(FRACTION, 0.0, -1.0, dtype=x.dtype))
    tail = shape * jnp.log(beyond) - beyond - gammaln(shape) - jnp.log(beyond + 1 - shape + fraction)
    return jnp.where(far, tail, jnp.log(gammaincc(shape, safe)))


def log_student_cdf(df: Array | float, z: Array | float) -> Array:
    """log of Student's distribution function; no derivative with respect to `df`, which `symbolic.laws` sees to."""
    df, z = jnp.broadcast_arrays(*_promoted(df, z))
    return _log_student_cdf(jax.lax.stop_gradient(df), z)


@jax.custom_jvp
def _log_student_cdf(df: Array, z: Array) -> Array:
    tail = 0.5 * betainc(df / 2, jnp.full_like(df, 0.5), df / (df + z**2))
    return jnp.where(z < 0, jnp.log(tail), jnp.log1p(-tail))


@_log_student_cdf.defjvp
def _log_student_slope(values: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """Density over distribution function: the derivative of the incomplete beta function is infinite at z = 0."""
    df, z = values
    value = _log_student_cdf(df, z)
    normaliser = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * jnp.log(df * jnp.pi)
    log_density = normaliser - (df + 1) / 2 * jnp.log1p(z**2 / df)
    return value, jnp.exp(log_density - value) * tangents[1]
