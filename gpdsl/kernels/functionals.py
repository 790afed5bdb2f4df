"""Linear functionals of a Gaussian process: values, derivatives, integrals, their combinations; many make an array.

Every array of functionals comes down to values and derivatives at points, integrals over intervals (`integrals`), and
coefficients of families of features (`interdomain`); `blocks` says how.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Values:
    """f(x_1), ..., f(x_n): the process evaluated at `points` [n, D]."""

    points: Float[Array, "n D"]

    def __len__(self) -> int:
        return self.points.shape[-2]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Derivatives:
    """The process differentiated along each of `columns` (from 0) in turn, at `points` [n, D]."""

    points: Float[Array, "n D"]
    columns: tuple[int, ...] = field(metadata={"static": True})

    def __len__(self) -> int:
        return self.points.shape[-2]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Integrals:
    """The integrals of a process of one input from each `lower` end [n, 1] to the `upper` one, which may lie below."""

    lower: Float[Array, "n 1"]
    upper: Float[Array, "n 1"]

    def __len__(self) -> int:
        return self.lower.shape[-2]

    @property
    def points(self) -> Float[Array, "m 1"]:
        """Both ends, and some points between."""
        return jnp.concatenate(
            [self.lower + share * (self.upper - self.lower) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Coefficients:
    """`size` features of a family, `count` of it along each column: not at points, but between `points` [2, D].

    These are the corners of a box, or whatever else [n, D] tells the family where it is.
    """

    points: Float[Array, "n D"]
    family: str = field(metadata={"static": True})
    count: int = field(metadata={"static": True})
    size: int = field(metadata={"static": True})

    def __len__(self) -> int:
        return self.size


Elementary = Values | Derivatives | Integrals | Coefficients


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Combination:
    """Sums weights[k] * parts[k], element by element: f(a_1) - f(b_1), ..., f(a_n) - f(b_n)."""

    parts: tuple[Elementary, ...]
    weights: tuple[float, ...] = field(metadata={"static": True})

    def __len__(self) -> int:
        return len(self.parts[0])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stacked:
    """Several arrays of functionals of one process, one after the other."""

    parts: tuple[Elementary | Combination, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))


Functionals = Elementary | Combination | Stacked
"""Every kind of functional `covariance` understands."""

Block = tuple[tuple[float, Elementary], ...]


def blocks(functionals: Functionals) -> tuple[Block, ...]:
    """The arrays stacked in one, each as a weighted sum of elementary functionals."""
    match functionals:
        case Stacked(parts=parts):
            return tuple(block for part in parts for block in blocks(part))
        case Combination(parts=elementary, weights=weights):
            return (tuple(zip(weights, elementary, strict=True)),)
    return (((1.0, functionals),),)


def stacked(parts: tuple[Elementary | Combination, ...]) -> Functionals:
    """Several arrays as one; a single one stays itself."""
    return parts[0] if len(parts) == 1 else Stacked(parts)


def every_point(functionals: Functionals) -> Float[Array, "n D"]:
    """All points at which the process is looked at, and where its coefficients are."""
    if isinstance(functionals, Values):
        return functionals.points
    points = [elementary.points for block in blocks(functionals) for _, elementary in block]
    on_host = all(isinstance(each, np.ndarray) for each in points)
    return (np if on_host else jnp).concatenate(points)  # type: ignore[no-any-return]


def outline(functionals: Functionals) -> list:
    """What kind of functionals these are, in lists, words and numbers; `from_outline` puts the points back."""
    match functionals:
        case Values():
            return ["values"]
        case Derivatives(columns=columns):
            return ["derivatives", list(columns)]
        case Integrals():
            return ["integrals"]
        case Coefficients(family=family, count=count, size=size):
            return ["coefficients", family, count, size]
        case Combination(parts=parts, weights=weights):
            return ["combination", list(weights), [outline(part) for part in parts]]
        case Stacked(parts=parts):
            return ["stacked", [outline(part) for part in parts]]
    raise TypeError(functionals)


def from_outline(shape: list, points: Iterator[Any]) -> Any:
    """Functionals of the kind that `outline` told, at the points in the order of the tree's leaves.

    Raises ValueError when nothing of this kind is known.
    """
    match shape:
        case ["values"]:
            return Values(next(points))
        case ["derivatives", columns]:
            return Derivatives(next(points), tuple(columns))
        case ["integrals"]:
            return Integrals(next(points), next(points))
        case ["coefficients", family, count, size]:
            return Coefficients(next(points), family, count, size)
        case ["combination", weights, parts]:
            return Combination(tuple(from_outline(part, points) for part in parts), tuple(weights))
        case ["stacked", parts]:
            return Stacked(tuple(from_outline(part, points) for part in parts))
    raise ValueError(f"unknown functionals {shape!r}")


# Squared distances between the rows of two arrays.

Points = Float[Array, "n D"]
OtherPoints = Float[Array, "m D"]
DIRECT_COLUMNS = 4
"""Up to this many columns squared distances are summed difference by difference: exact, and no slower."""

EXPANDED_COLUMNS = 32
"""Up to this many columns all of a squared distance is one product; beyond, a product twice as wide would cost more."""


ROUNDINGS = 8.0
"""Of the last place, in a sum of as many products."""


def squared_distance(a: Points, b: OtherPoints, ell: Float[Array, "D"] | None = None) -> Float[Array, "n m"]:
    """Squared Euclidean distances between rows, in units of a length-scale for each column where these are given.

    Through one matrix product when there are many columns. When `b` is `a` itself, distances from a point to itself are
    exactly zero; otherwise length-scales divide the product's `a` alone: their gradient needs none in `b`.
    """
    columns = a.shape[-1]
    few = columns <= DIRECT_COLUMNS or a.shape[0] == b.shape[0] == 1
    if ell is not None and (few or (b is a and columns > EXPANDED_COLUMNS)):
        origin = jax.lax.stop_gradient(b[0])  # far from zero, quotients would round away what points differ in
        scaled = (a - origin) / ell
        return squared_distance(scaled, scaled if b is a else (b - origin) / ell)
    if few:
        return sum(jnp.square(a[:, None, d] - b[None, :, d]) for d in range(columns))  # type: ignore[return-value]
    if columns > EXPANDED_COLUMNS:
        return _among(a) if b is a else _between(a, b, ell)
    distances = _expanded(a, b, ell)
    if b is not a:
        return distances
    place = jnp.arange(len(a))
    return jnp.where(place[:, None] == place[None, :], 0.0, distances)


def _centred(a: Points, b: OtherPoints) -> tuple[Points, OtherPoints]:
    """Distances are translation invariant; centring keeps the cancellation small.

    About one of the points first, which is exact: XLA computes a mean in every loop that reads it, and means far from
    zero that differ by a rounding are more than what is left of the points can bear.
    """
    origin = jax.lax.stop_gradient(jnp.sum(b[:1], axis=0))
    a, b = a - origin, b - origin
    centre = jnp.mean(b, axis=0)
    return a - centre, b - centre


def _expanded(a: Points, b: OtherPoints, ell: Float[Array, "D"] | None) -> Float[Array, "n m"]:
    """sum_d w_d (a_d - b_d)^2 as one product, of [-2 w a, w a^2 1, w] with [b, 1, b^2], w = ell^-2.

    Length-scales are in the left factor alone, and their gradient takes one product. Loops over matrices that add what
    differs by row and by column to a product are not vectorised on CPUs: exponentials of them take twice as long. What
    is squared is taken a few roundings too small, so that points which are equal have a distance of exactly zero.
    """
    from_a, from_b = _centred(a, b)
    less = 1.0 - ROUNDINGS * float(jnp.finfo(from_a.dtype).eps)
    weights = jnp.ones_like(from_a) if ell is None else jnp.broadcast_to(1.0 / (ell * ell), from_a.shape)
    weighted = from_a * weights
    squares = jnp.sum(weighted * from_a, axis=1, keepdims=True)
    left = jnp.concatenate([-2.0 * weighted, less * squares, less * weights], axis=1)
    right = jnp.concatenate([from_b, jnp.ones_like(from_b[:, :1]), jnp.square(from_b)], axis=1)
    return jnp.maximum(left @ right.T, 0.0)


def _between(a: Points, b: OtherPoints, ell: Float[Array, "D"] | None) -> Float[Array, "n m"]:
    """The same of many columns."""
    weights: Array | float = 1.0 if ell is None else 1.0 / (ell * ell)
    from_a, from_b = _centred(a, b)
    weighted = from_a * weights
    squares = jnp.sum(weighted * from_a, axis=1)[:, None] + jnp.sum(from_b * from_b * weights, axis=1)[None, :]
    return jnp.maximum(squares - 2.0 * weighted @ from_b.T, 0.0)


@jax.custom_jvp
def _among(points: Points) -> Float[Array, "n n"]:
    """Squared distances between points; their gradient by one product, since they do not ask which point is first."""
    centred, _ = _centred(points, points)
    squares = jnp.sum(jnp.square(centred), axis=1)
    distances = jnp.maximum(squares[:, None] + squares[None, :] - 2.0 * centred @ centred.T, 0.0)
    return jnp.where(jnp.eye(len(points), dtype=bool), 0.0, distances)


@_among.defjvp
def _among_jvp(primals: tuple[Points], tangents: tuple[Points]) -> tuple[Array, Array]:
    (points,), (moves,) = primals, tangents
    centred, _ = _centred(points, points)
    product, each = moves @ centred.T, jnp.sum(moves * centred, axis=1)
    return _among(points), 2.0 * (each[:, None] + each[None, :] - product - product.T)
