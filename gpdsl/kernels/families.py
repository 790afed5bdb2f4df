"""Kernels of the table with more structure than a distance: arc-cosine, spectral mixture, coregion, sigmoids."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

Points = Float[Array, "n D"]
OtherPoints = Float[Array, "m D"]
Parameter = Float[Array, "..."]
SMALLEST = 1e-30


def arc_cosine(a: Points, b: OtherPoints, weight: Parameter, bias: Parameter, order: int) -> Float[Array, "n m"]:
    """Cho and Saul (2009): E[h(w'x) h(w'x')] for h(z) = z^order where z > 0, weights and bias Gaussian.

    k = |x|^order |x'|^order J(theta) / pi, in the inner product sum(weight x x') + bias.
    """
    inner = (weight * a) @ b.T + bias
    lengths = jnp.sqrt(_squared_length(a, weight, bias)[:, None] * _squared_length(b, weight, bias)[None, :])
    cosine = jnp.clip(inner / lengths, -1.0, 1.0)
    if b is a:
        cosine = jnp.where(jnp.eye(a.shape[0], dtype=bool), 1.0, cosine)
    squared_sine = 1.0 - cosine * cosine
    # At equal points the angle has no derivative; what multiplies it there vanishes, but for order 0, which has a kink.
    apart = squared_sine > SMALLEST
    sine = jnp.sqrt(jnp.where(apart, squared_sine, 1.0))
    opposite = jnp.where(cosine < 0, jnp.pi, 0.0)
    angle = jnp.where(apart, jnp.arctan2(sine, cosine), opposite)
    sine = jnp.where(apart, sine, 0.0)
    rest = jnp.pi - angle
    return lengths**order * arc_cosine_of_angle(order, rest, sine, cosine) / jnp.pi


def arc_cosine_of_angle(order: int, rest: Any, sine: Any, cosine: Any) -> Any:
    """J, of pi less the angle and of its sine and cosine: arrays of NumPy or of JAX."""
    match order:
        case 0:
            return rest
        case 1:
            return sine + rest * cosine
    return 3.0 * sine * cosine + rest * (1.0 + 2.0 * cosine * cosine)


def arc_cosine_variance(a: Points, weight: Parameter, bias: Parameter, order: int) -> Float[Array, "n"]:
    """|x|^(2 order) times 1, 1 or 3."""
    return (3.0 if order == 2 else 1.0) * _squared_length(a, weight, bias) ** order


def _squared_length(a: Points, weight: Parameter, bias: Parameter) -> Float[Array, "n"]:
    return jnp.sum(weight * a * a, axis=1) + bias


def spectral_mixture(
    a: Points, b: OtherPoints, weights: Float[Array, "Q"], means: Parameter, sds: Parameter
) -> Float[Array, "n m"]:
    """Wilson and Adams (2013): sum_q w_q prod_d exp(-2 pi^2 s_qd^2 t_d^2) cos(2 pi m_qd t_d), t = x - x'."""
    components, columns = weights.shape[0], a.shape[1]
    means, sds = _per_column(means, components, columns), _per_column(sds, components, columns)
    total = jnp.zeros((a.shape[0], b.shape[0]), a.dtype)
    differences = [a[:, None, d] - b[None, :, d] for d in range(columns)]
    for q in range(components):
        decay = sum(jnp.square(sds[q, d] * differences[d]) for d in range(columns))
        wave = weights[q]
        for d in range(columns):
            wave = wave * jnp.cos(2.0 * jnp.pi * means[q, d] * differences[d])
        total = total + wave * jnp.exp(-2.0 * jnp.pi**2 * decay)
    return total


def _per_column(values: Parameter, components: int, columns: int) -> Float[Array, "Q D"]:
    return jnp.broadcast_to(values[:, None] if values.ndim == 1 else values, (components, columns))


def spectral_mixture_variance(
    a: Points, weights: Float[Array, "Q"], means: Parameter, sds: Parameter
) -> Float[Array, "n"]:
    """The sum of the weights."""
    return jnp.broadcast_to(jnp.sum(weights), a.shape[:1])


def coregion(a: Points, b: OtherPoints, W: Float[Array, "P R"], kappa: Float[Array, "P"]) -> Float[Array, "n m"]:
    """B = W W' + diag(kappa) between levels numbered from 1; a point between two levels belongs to the nearer one."""
    between = W @ W.T + jnp.diag(kappa)
    return between[level(a, kappa)[:, None], level(b, kappa)[None, :]]


def coregion_variance(a: Points, W: Float[Array, "P R"], kappa: Float[Array, "P"]) -> Float[Array, "n"]:
    """The diagonal of B at each point's level."""
    return (jnp.sum(W * W, axis=1) + kappa)[level(a, kappa)]


def level(points: Points, kappa: Float[Array, "P"]) -> Array:
    """The level of each point, counted from 0."""
    return jnp.clip(jnp.round(points[:, 0]).astype(int) - 1, 0, kappa.shape[0] - 1)


def same(a: Points, b: OtherPoints) -> Float[Array, "n m"]:
    """1 where all columns are equal, else 0: points at different levels have nothing to do with each other."""
    equal = [a[:, None, d] == b[None, :, d] for d in range(a.shape[1])]
    return functools.reduce(jnp.logical_and, equal).astype(a.dtype)


def before(a: Points, b: OtherPoints, at: Parameter, width: Parameter) -> Float[Array, "n m"]:
    """(1 - s(x)) (1 - s(x')), s the sigmoid of (x - at) / width: what weighs the kernel before a change."""
    return _half(a, at, width, -1.0)[:, None] * _half(b, at, width, -1.0)[None, :]


def after(a: Points, b: OtherPoints, at: Parameter, width: Parameter) -> Float[Array, "n m"]:
    """s(x) s(x'): what weighs the kernel after a change."""
    return _half(a, at, width, 1.0)[:, None] * _half(b, at, width, 1.0)[None, :]


def before_variance(a: Points, at: Parameter, width: Parameter) -> Float[Array, "n"]:
    """(1 - s(x))^2."""
    return _half(a, at, width, -1.0) ** 2


def after_variance(a: Points, at: Parameter, width: Parameter) -> Float[Array, "n"]:
    """s(x)^2."""
    return _half(a, at, width, 1.0) ** 2


def _half(points: Points, at: Parameter, width: Parameter, sign: float) -> Float[Array, "n"]:
    return 1.0 / (1.0 + jnp.exp(-jnp.clip(sign * (points[:, 0] - at) / width, -80.0, 80.0)))
