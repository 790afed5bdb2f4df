"""How far the values of the data spread and how large they are, element by element, as logarithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log

import numpy as np
import sympy as sp
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import lsmr

from gpdsl.errors import GpdslError
from gpdsl.language import model as m
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.translate import Environment, NeedsElements, Translator

LOOKED_AT = 10_000
"""Rows looked at, spread evenly over all of them."""


@dataclass(frozen=True)
class DataScales:
    """Inputs, outputs and constants that are points: [rows, *axes], NaN where nothing is observed.

    `centred` outputs are spread about a level that the model has a parameter for.
    """

    values: Mapping[str, np.ndarray]

    def column(self, name: str, place: int) -> float:
        """Logarithm of the standard deviation of one column of an argument, counted from 0."""
        return log_spread(self.columns(name)[:, place])

    def columns(self, name: str) -> np.ndarray:
        """All columns of an argument, [rows, columns]."""
        values = self.values[name]
        return values.reshape(len(values), -1)

    def measured(
        self, translator: Translator, expression: m.Expression, env: Environment
    ) -> tuple[float, float] | None:
        """Logarithms of spread and magnitude of a formula of data alone; None of any other."""
        try:
            formula = translator.scalar(expression, env)
        except (NeedsElements, GpdslError):
            return None
        given: dict[sp.Symbol, np.ndarray] = {}
        for symbol in formula.free_symbols:
            ref = translator.references[symbol]
            if ref.kind not in {"input", "output"} or not all(isinstance(p, int) for p in ref.positions):
                return None
            given[symbol] = self.element(ref.name, tuple(int(p) for p in ref.positions))
        found = np.asarray(evaluate(formula, given), float)
        return (log_spread(found), log_size(found)) if found.ndim else None

    def element(self, name: str, where: tuple[int, ...]) -> np.ndarray:
        """The values of one element, [rows]; places count from 1."""
        places: tuple[slice | int, ...] = (slice(None), *(p - 1 for p in where))
        return self.values[name][places]  # type: ignore[index]  # NumPy's stubs know no such tuples


def log_spread(values: np.ndarray) -> float:
    """Logarithm of a standard deviation; of the size where all values are equal."""
    known = values[np.isfinite(values)]
    if not known.size:
        return 0.0
    largest = float(np.max(np.abs(known)))
    with np.errstate(over="ignore"):  # then its size is told
        spread = float(np.std(known))  # NumPy takes the mean off first: large values with a small spread keep it
    return float(np.log(spread)) if spread > 1e-13 * largest and np.isfinite(spread) else log_size(values)


def log_size(values: np.ndarray) -> float:
    """Logarithm of a root mean square; 0 where all values are 0."""
    known = values[np.isfinite(values)]
    largest = float(np.max(np.abs(known))) if known.size else 0.0
    if largest == 0:
        return 0.0
    return float(np.log(largest) + 0.5 * np.log(np.mean((known / largest) ** 2)))


# --- How large one quantity is: a number in logarithms, and multiples of scales that are to be found -----------------


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
