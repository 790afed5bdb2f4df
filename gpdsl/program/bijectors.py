"""Bijections between unconstrained numbers and the domains of parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

SIMPLEX_ERROR = 1e-6
"""By how much the elements of a simplex that a user writes may fail to add up to 1; they are scaled."""


@dataclass(frozen=True)
class Bijector:
    """A map from unconstrained numbers onto a domain, its inverse (of NumPy or JAX arrays), and a test of membership.

    `vector` maps act along the last axis, whose length the inverse may shorten, or two of them. `units`: of `in_units`.
    """

    forward: Callable[[Array], Array]
    inverse: Callable[[Any], Any]
    contains: Callable[[np.ndarray], bool]
    domain: str
    vector: bool = False
    units: np.ndarray | None = None


def _of(values: Any) -> Any:
    """The library whose arrays these are."""
    return jnp if isinstance(values, jax.Array) else np


def _simplex(u: Array) -> Array:
    """Softmax of the numbers and a zero: the additive log-ratio map, a bijection of R^(k-1) onto the open simplex."""
    return jax.nn.softmax(jnp.concatenate([u, jnp.zeros_like(u[..., :1])], axis=-1), axis=-1)


def _ordered(u: Array) -> Array:
    """The first number, then positive steps exp(u)."""
    return _of(u).cumsum(_of(u).concatenate([u[..., :1], _of(u).exp(u[..., 1:])], axis=-1), axis=-1)


def _factor(u: Array) -> Array:
    """Rows on the unit sphere: tanh of each number is a share of what the entries before it leave of length 1.

    Lewandowski, Kurowicka and Joe (2009): the shares are partial correlations.
    """
    size = int((1 + np.sqrt(1 + 8 * u.shape[-1])) / 2)
    shares = jnp.zeros((*u.shape[:-1], size, size), u.dtype).at[..., *np.tril_indices(size, -1)].set(jnp.tanh(u))
    left = jnp.cumprod(jnp.sqrt(1.0 - shares**2), axis=-1)
    before = jnp.concatenate([jnp.ones_like(left[..., :1]), left[..., :-1]], axis=-1)
    return jnp.tril((shares + jnp.eye(size, dtype=u.dtype)) * before)


def _of_factor(c: Any) -> Any:
    """The numbers of a factor."""
    numpy, below = _of(c), np.tril_indices(c.shape[-1], -1)
    left = 1.0 - numpy.cumsum(c**2, axis=-1) + c**2
    return numpy.arctanh((c / numpy.sqrt(numpy.maximum(left, 1e-300)))[..., *below])


def _is_factor(c: np.ndarray) -> bool:
    lower = c.ndim > 1 and c.shape[-1] == c.shape[-2] and not np.any(np.triu(c, 1))
    lengths = np.abs(np.sum(c**2, axis=-1) - 1) <= SIMPLEX_ERROR
    return bool(lower and np.all(lengths) and np.all(np.diagonal(c, axis1=-2, axis2=-1) > 0))


def _is_simplex(c: np.ndarray) -> bool:
    return bool(np.all(c > 0) and np.all(np.abs(c.sum(axis=-1) - 1) <= SIMPLEX_ERROR))


BIJECTORS: dict[str, Bijector] = {
    "real": Bijector(lambda u: u, lambda c: c, lambda c: bool(np.all(np.isfinite(c))), "finite numbers"),
    "positive": Bijector(
        lambda u: _of(u).exp(u),
        lambda c: _of(c).log(c),
        lambda c: bool(np.all((c > 0) & np.isfinite(c))),
        "numbers above 0",
    ),
    "unit": Bijector(
        jax.nn.sigmoid,
        lambda c: _of(c).log(c) - _of(c).log1p(-c),
        lambda c: bool(np.all((c > 0) & (c < 1))),
        "numbers strictly between 0 and 1",
    ),
    "simplex": Bijector(
        _simplex,
        lambda c: _of(c).log(c[..., :-1]) - _of(c).log(c[..., -1:]),
        _is_simplex,
        "positive numbers that add up to 1 along the last axis",
        vector=True,
    ),
    "correlation_factor": Bijector(
        _factor,
        _of_factor,
        _is_factor,
        "a lower triangular matrix with a positive diagonal and rows of length 1",
        vector=True,
    ),
    "ordered": Bijector(
        _ordered,
        lambda c: _of(c).concatenate([c[..., :1], _of(c).log(_of(c).diff(c, axis=-1))], axis=-1),
        lambda c: bool(np.all(np.isfinite(c)) and np.all(np.diff(c, axis=-1) > 0)),
        "finite numbers that increase along the last axis",
        vector=True,
    ),
}
"""The bijector of each constraint without bounds."""


def bijector(constraint: str, lower: float | None = None, upper: float | None = None) -> Bijector:
    """The bijector of a constraint, narrowed by bounds, which are never attained."""
    if lower is None and upper is None:
        return BIJECTORS[constraint]
    if constraint == "positive" and lower is None:
        lower = 0.0
    if lower is not None and upper is not None:
        return _between(lower, upper)
    return _above(lower) if lower is not None else _below(upper or 0.0)


def in_units(bijector: Bijector, units: np.ndarray) -> Bijector:
    """The same domain, from numbers that count units: an elementwise bijector of a scaled argument."""

    def of(u: Any) -> np.ndarray:
        return units.astype(u.dtype)

    scaled = replace(bijector, units=units, forward=lambda u: bijector.forward(u * of(u)))
    return replace(scaled, inverse=lambda c: bijector.inverse(c) / of(c))


def _between(lower: float, upper: float) -> Bijector:
    width = upper - lower
    return Bijector(
        lambda u: lower + width * jax.nn.sigmoid(u),
        lambda c: _of(c).log(c - lower) - _of(c).log(upper - c),
        lambda c: bool(np.all((c > lower) & (c < upper))),
        f"numbers strictly between {lower:g} and {upper:g}",
    )


def _above(lower: float) -> Bijector:
    return Bijector(
        lambda u: lower + _of(u).exp(u),
        lambda c: _of(c).log(c - lower),
        lambda c: bool(np.all((c > lower) & np.isfinite(c))),
        f"numbers above {lower:g}",
    )


def _below(upper: float) -> Bijector:
    return Bijector(
        lambda u: upper - _of(u).exp(u),
        lambda c: _of(c).log(upper - c),
        lambda c: bool(np.all((c < upper) & np.isfinite(c))),
        f"numbers below {upper:g}",
    )
