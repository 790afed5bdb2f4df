"""How large one quantity is: a number in logarithms, and multiples of scales that are to be found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, log

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import lsmr

NOISE = log(0.3)
"""Logarithm of the share of an output's spread that its noise is taken to have."""

Unknown = tuple[str, tuple[int, ...]]
"""A parameter or latent, and which element."""


@dataclass(frozen=True)
class Size:
    """The logarithm of a scale: `constant` and multiples of unknown ones.

    `number`: a number of the model, which has the unit of whatever it is added to. `reals` are the parameters of
    either sign in it, `latent` says whether there is a latent, and `level` whether a parameter sets its level. `spread`
    is what an output is worth beside a level, where `constant` is its magnitude.
    """

    constant: float = 0.0
    unknown: Mapping[Unknown, float] = field(default_factory=dict)
    number: bool = False
    reals: frozenset[str] = frozenset()
    latent: bool = False
    level: bool = False
    spread: float | None = None

    def times(self, other: Size, power: float = 1.0) -> Size:
        """The size of a product with a power of another quantity."""
        keys = {**self.unknown, **other.unknown}
        return Size(
            self.constant + power * other.constant,
            {k: self.unknown.get(k, 0.0) + power * other.unknown.get(k, 0.0) for k in keys},
            self.number and other.number,
            self.reals | other.reals,
            self.latent or other.latent,
            self.level or other.level,
        )

    def beside(self, level: bool) -> Size:
        """As a term of a sum: an output is as large as its spread where a level is taken off it."""
        return Size(self.spread) if level and self.spread is not None else self


NO_UNIT = Size()


def number_size(value: float, unitless: bool = False) -> Size:
    """The size of a number of the model; zero has any, `unitless` ones have no unit whatever they are added to."""
    if value == 0 or not isfinite(value):
        return Size(number=True)
    return Size(log(abs(value)), number=not unitless)


def solved(equations: Sequence[Size]) -> dict[Unknown, float]:
    """Logarithms of all scales that appear in equations, each of which says that a size is one."""
    names = {unknown: place for place, unknown in enumerate({k: 0 for e in equations for k in e.unknown})}
    if not names:
        return {}
    rows = [row for row, each in enumerate(equations) for _ in each.unknown]
    columns = [names[k] for each in equations for k in each.unknown]
    values = [v for each in equations for v in each.unknown.values()]
    matrix = csr_matrix((values, (rows, columns)), (len(equations), len(names)))
    right = -np.asarray([each.constant for each in equations])
    if len(names) <= 200:
        found = np.linalg.lstsq(matrix.toarray(), right, rcond=1e-9)[0]
    else:
        found = lsmr(matrix, right, atol=1e-12, btol=1e-12, maxiter=1000)[0]
    return {unknown: float(found[place]) for unknown, place in names.items()}
