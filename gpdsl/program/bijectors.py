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

    `vector` maps act along the last axis, whose length the inverse may shorten. `units` are those of `in_units`.
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
