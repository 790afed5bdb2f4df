"""Linear functionals of a Gaussian process: values, derivatives, their linear combinations; many make an array.

Every array of functionals comes down to values and derivatives at points, and to coefficients of families of features
(`interdomain`); `blocks` says how.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
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


Elementary = Values | Derivatives | Coefficients


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
    return jnp.concatenate([elementary.points for block in blocks(functionals) for _, elementary in block])


def outline(functionals: Functionals) -> list:
    """What kind of functionals these are, in lists, words and numbers; `from_outline` puts the points back."""
    match functionals:
        case Values():
            return ["values"]
        case Derivatives(columns=columns):
            return ["derivatives", list(columns)]
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
        case ["coefficients", family, count, size]:
            return Coefficients(next(points), family, count, size)
        case ["combination", weights, parts]:
            return Combination(tuple(from_outline(part, points) for part in parts), tuple(weights))
        case ["stacked", parts]:
            return Stacked(tuple(from_outline(part, points) for part in parts))
    raise ValueError(f"unknown functionals {shape!r}")
