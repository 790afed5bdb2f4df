"""Draws of outputs that read other outputs: first what is read, at the same drawn latents, then the output itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import sympy as sp

from gpdsl.program.program import Program
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Position

DRAWS = 4096
"""Draws from which means, variances and quantiles are found where no formula is known."""

Array = np.ndarray
Values = Callable[[sp.Expr, tuple[str, ...], dict[sp.Symbol, Array]], Array]
DrawOne = Callable[[ObservationTerms, Callable[[sp.Expr], Array]], Array]


@dataclass(frozen=True, eq=False)
class Ancestral:
    """One set of draws, [count, rows, *axes] of each output.

    `values(expression, keys, given)` evaluates at the drawn latents, where `given` are drawn outputs; `one` draws a
    single statement from its conditional law. Each statement is drawn once, so that all outputs belong together.
    """

    program: Program
    values: Values
    one: DrawOne
    drawn: dict[tuple[str, tuple[Position, ...]], Array] = field(default_factory=dict)

    def draw(self, o: ObservationTerms) -> Array:
        """Draws of what one statement observes. Recursion ends: the checker refuses cycles."""
        key = (o.outputs[0], o.positions)
        if key not in self.drawn:
            given = {self._symbol(o, read): self._read(*read, o.axes) for read in o.reads}
            self.drawn[key] = self.one(o, lambda expression: self.values(expression, o.axes, given))
        return self.drawn[key]

    def _symbol(self, o: ObservationTerms, read: tuple[str, tuple[Position, ...]]) -> sp.Symbol:
        references = self.program.translator.references
        for symbol in o.log_density.free_symbols:
            ref = references[symbol]
            if ref.kind == "output" and (ref.name, ref.positions) == read:
                return symbol
        raise KeyError(read)

    def _read(self, name: str, positions: tuple[Position, ...], keys: tuple[str, ...]) -> Array:
        """Drawn values of what is read, [count, rows, *keys] with axes of length one where it does not vary."""
        values = self._element(name, positions) if self._fixed(positions) else self._whole(name, positions)
        kept = [p for p in positions if isinstance(p, str)]
        order = [kept.index(k) for k in keys if k in kept]
        values = np.transpose(values, (0, 1, *(2 + i for i in order)))
        sizes = iter(values.shape[2:])
        return values.reshape(*values.shape[:2], *(next(sizes) if k in kept else 1 for k in keys))

    @staticmethod
    def _fixed(positions: tuple[Position, ...]) -> bool:
        return all(isinstance(p, int) for p in positions)

    def _element(self, name: str, positions: tuple[Position, ...]) -> Array:
        """One element, from the one statement that observes it."""
        for o in self.program.observations:
            if o.outputs == (name,) and o.law is not None and o.law.vector:
                return self.draw(o)[picks(positions)]
            pairs = list(zip(o.positions, positions, strict=True)) if o.outputs == (name,) else None
            if pairs is not None and all(isinstance(own, str) or own == at for own, at in pairs):
                return self.draw(o)[picks(tuple(at for own, at in pairs if isinstance(own, str)))]
        raise KeyError(name)

    def _whole(self, name: str, positions: tuple[Position, ...]) -> Array:
        """All elements along the generic positions."""
        shape = self.program.translator.shape(self.program.declarations.outputs[name].axes)
        full: Array | None = None
        for o in self.program.observations:
            if o.outputs == (name,):
                values = self.draw(o)
                full = np.full((*values.shape[:2], *shape), np.nan) if full is None else full
                full[picks(o.positions)] = values
        assert full is not None
        return full[picks(positions)]


def picks(positions: tuple[Position, ...]) -> tuple:
    """The index of some elements in [draws, rows, *axes]."""
    return (Ellipsis, *(slice(None) if isinstance(p, str) else p - 1 for p in positions))


def put_together(pieces: Sequence[tuple[tuple[Position, ...], np.ndarray]], shape: tuple[int, ...]) -> np.ndarray:
    """Fill [..., rows, *shape] from parts along fixed and free positions; what nothing observes stays NaN."""
    free = sum(isinstance(p, str) for p in pieces[0][0])
    lead = pieces[0][1].shape[: pieces[0][1].ndim - free]
    result = np.full((*lead, *shape), np.nan)
    for positions, values in pieces:
        result[picks(positions)] = values
    return result
