"""How far the values of the data spread and how large they are, element by element, as logarithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import sympy as sp

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

    def spread(self, name: str, where: tuple[int, ...]) -> float:
        """Logarithm of the standard deviation of one element."""
        return log_spread(self._element(name, where))

    def magnitude(self, name: str, where: tuple[int, ...]) -> float:
        """Logarithm of the root mean square of one element."""
        return log_size(self._element(name, where))

    def column(self, name: str, place: int) -> float:
        """Logarithm of the standard deviation of one column of an argument, counted from 0."""
        return log_spread(self.columns(name)[:, place])

    def centre(self, name: str, place: int) -> float:
        """The mean of one column."""
        return float(np.mean(self.columns(name)[:, place]))

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
            given[symbol] = self._element(ref.name, tuple(int(p) for p in ref.positions))
        found = np.asarray(evaluate(formula, given), float)
        return (log_spread(found), log_size(found)) if found.ndim else None

    def _element(self, name: str, where: tuple[int, ...]) -> np.ndarray:
        places: tuple[slice | int, ...] = (slice(None), *(p - 1 for p in where))
        return self.values[name][places]  # type: ignore[index]  # NumPy's stubs know no such tuples


def log_spread(values: np.ndarray) -> float:
    """Logarithm of a standard deviation; of the size where all values are equal."""
    known = values[np.isfinite(values)]
    if not known.size:
        return 0.0
    largest = float(np.max(np.abs(known)))
    spread = float(np.std(known))  # NumPy takes the mean off first: large values with a small spread keep it
    return float(np.log(spread)) if spread > 1e-13 * largest and np.isfinite(spread) else log_size(values)


def log_size(values: np.ndarray) -> float:
    """Logarithm of a root mean square; 0 where all values are 0."""
    known = values[np.isfinite(values)]
    largest = float(np.max(np.abs(known))) if known.size else 0.0
    if largest == 0:
        return 0.0
    return float(np.log(largest) + 0.5 * np.log(np.mean((known / largest) ** 2)))
