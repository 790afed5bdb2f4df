"""Special functions in JAX: tails of distributions, and logarithms of gamma functions that nearly cancel."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, erfc, gammainc, gammaincc, gammaln
from jaxtyping import Array, Float

# Logarithms that counts need, in JAX: differences of log gamma functions that nearly cancel, multiples of log(0).

LARGE = 16.0
"""From here on Stirling's series with its terms below is exact to the last digit."""

STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


def _correction(x: Array) -> Array:
    """log Gamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2 for large x."""
    step = 1.0 / (x * x)
    total = jnp.zeros_like(x)
    for coefficient in reversed(STIRLING):
        total = total * step + coefficient
    return total / x


def times_log(y: Array | float, x: Array | float) -> Array:
    """y log(x), elementwise; 0 where y is 0, with no slope there."""
    return y * jnp.log(jnp.where(jnp.asarray(y) == 0, 1.0, x))


def log_rising(x: Array | float, n: Array | float) -> Array:
    """log Gamma(x + n) - log Gamma(x) for positive x and n from 0, elementwise: the log of x (x+1) ... (x+n-1).

    A negative binomial of large dispersion and a Student's t of many degrees of freedom need it: there the two log
    gammas agree to more digits than there are.
    """
    dtype = jnp.result_type(x, n, 0.0)
    x, n = jnp.asarray(x, dtype), jnp.asarray(n, dtype)
    near = x < LARGE
    small, large = jnp.where(near, x, 1.0), jnp.where(near, LARGE, x)
    far = (large - 0.5) * jnp.log1p(n / large) + n * (jnp.log(large + n) - 1) + _correction(large + n)
    return jnp.where(near, gammaln(small + n) - gammaln(small), far - _correction(large))


def log_beta(a: Array | float, b: Array | float) -> Array:
    """log of the beta function of positive numbers, elementwise."""
    dtype = jnp.result_type(a, b, 0.0)
    a, b = jnp.asarray(a, dtype), jnp.asarray(b, dtype)
    less, more = jnp.where(a < b, a, b), jnp.where(a < b, b, a)
    near = less < LARGE
    small, large, beside = jnp.where(near, less, 1.0), jnp.where(near, LARGE, less), jnp.where(near, LARGE, more)
    both = HALF_LOG_2_PI - 0.5 * jnp.log(beside) + _correction(large) + _correction(beside)
    both -= _correction(large + beside) + (large - 0.5) * jnp.log1p(beside / large) + beside * jnp.log1p(large / beside)
    return jnp.where(near, gammaln(small) - log_rising(more, small), both)


# --- The quantile function of a gamma distribution, differentiable in its shape --------------------------------------


ROUNDS = 4
"""Halley's steps from the Wilson-Hilferty start: two would do in the middle of the distribution."""


@jax.custom_jvp
def gamma_quantile(shape: Float[Array, "..."], normal: Float[Array, "..."]) -> Float[Array, "..."]:
    """The gamma variate, of rate 1 and shape 1 at least, with the same probability below it as a standard normal.

    The derivative is that of a draw with its probability held (an implicit reparameterisation); in `normal` there is
    none. For a shape `a` below 1, the quantile of a + 1 times u^(1/a), u uniform, is a draw.
    """
    probability = jax.scipy.special.ndtr(normal)
    start = shape * (1.0 - 1.0 / (9.0 * shape) + normal / (3.0 * jnp.sqrt(shape))) ** 3

    def step(_: Any, x: Array) -> Array:
        density = jnp.exp((shape - 1.0) * jnp.log(x) - x - gammaln(shape))
        newton = (gammainc(shape, x) - probability) / jnp.maximum(density, jnp.finfo(x.dtype).tiny)
        curved = jnp.clip(0.5 * newton * ((shape - 1.0) / x - 1.0), -0.5, 0.5)
        return jnp.clip(x - newton / (1.0 - curved), 0.2 * x, 5.0 * x)

    return jax.lax.fori_loop(0, ROUNDS, step, jnp.maximum(start, 1e-3 * shape))


@gamma_quantile.defjvp
def _gamma_quantile_jvp(at: Any, along: Any) -> tuple[Array, Array]:
    x = gamma_quantile(*at)
    slope = jax.lax.random_gamma_grad(jnp.broadcast_to(at[0], x.shape), x)
    return x, slope * along[0]


# Logarithms of tail probabilities in JAX: finite, with finite derivatives, far out in both tails.

LOG_2 = 0.6931471805599453
LOG_ROOT_2_PI = 0.9189385332046727

FRACTION = 20.0
"""Levels of the continued fractions; where they are used, each gains a digit or more."""

DEVIATIONS = 20.0
"""So many standard deviations from the mean the incomplete gamma functions are found from their fractions."""

LOW = {"float32": -10.0, "float64": -20.0}
"""Below this the normal distribution function comes from its asymptotic series, whose eighth term is then nothing."""

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


@jax.custom_jvp
def log_ndtr(x: Array | float) -> Array:
    """log Phi(x), from one complementary error function, where JAX's own needs six error functions of two kinds."""
    (x,) = _promoted(x)
    far, near, deep = _apart(x)
    half = 0.5 * erfc(jnp.abs(near) * 0.5**0.5)
    inside = jnp.where(x > 0, jnp.log1p(-half), jnp.log(half))
    return jnp.where(far, jnp.log(_normal_series(deep) / -deep) - 0.5 * deep**2 - LOG_ROOT_2_PI, inside)


@log_ndtr.defjvp
def _log_ndtr_slope(values: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """Density over distribution function; far out their ratio is that of -x and the series."""
    (x,) = _promoted(values[0])
    value, (far, near, deep) = log_ndtr(x), _apart(x)
    inside = jnp.exp(-0.5 * near**2 - LOG_ROOT_2_PI - jnp.where(far, 0.0, value))
    return value, jnp.where(far, -deep / _normal_series(deep), inside) * tangents[0]


def _apart(x: Array) -> tuple[Array, Array, Array]:
    """Whether x is far out, and x where it is not and where it is, the edge elsewhere."""
    low = LOW[x.dtype.name]
    far = x < low
    return far, jnp.where(far, low, x), jnp.where(far, x, low)


def _normal_series(x: Array) -> Array:
    """-x Phi(x) / phi(x) far out: 1 - 1/x^2 + 3/x^4 - 15/x^6 + ... (Abramowitz and Stegun 26.2.12)."""
    inverse, total = x**-2, jnp.ones_like(x)
    for odd in range(13, 0, -2):
        total = 1.0 - odd * inverse * total
    return total


def log_ndtr_interval(lower: Array | float, upper: Array | float) -> Array:
    """log(Phi(upper) - Phi(lower)): taken in the lower tail, to which the interval is reflected when need be.

    That of an empty interval is -inf, and its derivatives are zero: it stands among others in sums of exponentials.
    """
    lower, upper = jnp.broadcast_arrays(*_promoted(lower, upper))
    empty = upper <= lower
    upper = jnp.where(empty, lower + 1.0, upper)
    flip = lower + upper > 0
    a, b = jnp.where(flip, -upper, lower), jnp.where(flip, -lower, upper)
    larger, smaller = log_ndtr(jnp.stack([b, a]))
    return jnp.where(empty, -jnp.inf, log_difference(larger, smaller))


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


# --- mills -----------------------------------------------------------------------------------------------------------


NEAR = 2.0
"""Below this the moments come from the lowest by recurrence; above, where that cancels, from a continued fraction."""

LEVELS = 60
"""Of the continued fraction: at `NEAR` the last is nothing to double precision."""

LARGEST = 1e18
"""Whose square is finite in single precision."""

ASYMPTOTIC = {"float32": 8.0, "float64": 16.0}
"""Beyond this Mills' ratio comes from its asymptotic series."""


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def mills(order: int, x: Array) -> Array:
    """R_k(x), the integral over y > 0 of y^k exp(-y^2 / 2 - x y), for x from 0 and a whole k.

    E[(z - x)^k where z > x] = phi(x) R_k(x) for a standard normal z; R_0 = (1 - Phi(x)) / phi(x).
    """
    lowest = _ratio(x)
    if order == 0:
        return lowest
    near = x < NEAR
    small, large = jnp.where(near, x, 0.0), jnp.where(near, NEAR, jnp.minimum(x, LARGEST))
    return jnp.where(near, _upwards(order, small, lowest), _downwards(order, large, lowest))


@mills.defjvp
def _mills_jvp(order: int, at: tuple[Any], along: tuple[Any]) -> tuple[Array, Array]:
    """dR_k/dx = -R_{k+1}."""
    return mills(order, at[0]), -mills(order + 1, at[0]) * along[0]


def _ratio(x: Array) -> Array:
    far = x > ASYMPTOTIC[x.dtype.name]
    near, deep = jnp.where(far, 1.0, x), jnp.where(far, x, ASYMPTOTIC[x.dtype.name])
    inverse, series = deep**-2, jnp.ones_like(deep)
    for odd in range(17, 0, -2):  # 1 - 1/x^2 + 3/x^4 - ... (Abramowitz and Stegun 26.2.12)
        series = 1.0 - odd * inverse * series
    inside = math.sqrt(0.5 * math.pi) * jnp.exp(0.5 * near**2) * erfc(near * math.sqrt(0.5))
    return jnp.where(far, series / deep, inside)


def _upwards(order: int, x: Array, lowest: Array) -> Array:
    """R_{k+1} = k R_{k-1} - x R_k, from R_1 = 1 - x R_0."""
    before, found = lowest, 1.0 - x * lowest
    for k in range(1, order):
        before, found = found, k * before - x * found
    return found


def _downwards(order: int, x: Array, lowest: Array) -> Array:
    """The same recurrence from far above, as ratios R_k / R_{k-1} = k / (x + R_{k+1} / R_k)."""
    ratio = 0.5 * (jnp.sqrt(x**2 + 4.0 * (order + LEVELS)) - x)

    def deeper(step: int, ratio: Array) -> Array:
        return (order + LEVELS - step) / (x + ratio)

    ratio = jax.lax.fori_loop(1, LEVELS, deeper, ratio)
    found = lowest
    for k in range(order, 0, -1):
        ratio = k / (x + ratio)
        found = found * ratio
    return found
