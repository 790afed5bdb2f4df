"""Jacobians of opaque functions that come with a gradient, by one call of it for every number that they return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from gpdsl.forward import ForwardModel, evaluate
from gpdsl.program.program import Program
from gpdsl.symbolic.translate import ExternalUse


@dataclass(frozen=True)
class Flattened:
    """A gradient whose parts, one for each argument, are put behind each other; made of values that can travel."""

    function: Any
    vectorized: bool

    def __call__(self, *arguments: Any) -> np.ndarray:
        parts = self.function(*arguments)
        parts = parts if isinstance(parts, (tuple, list)) else (parts,)
        lead = (len(np.asarray(arguments[-1])),) if self.vectorized else ()
        return np.concatenate([np.asarray(part, float).reshape(*lead, -1) for part in parts], axis=-1)


def has_slopes(program: Program) -> bool:
    """Whether every opaque function gives a gradient, and none is called with another's results."""
    uses = program.uses()
    own = {use.key for use in uses}
    free = all(not own & _read(program, use) for use in uses)
    return bool(uses) and free and all(program.externals[use.function].gradient is not None for use in uses)


def _read(program: Program, use: ExternalUse) -> set[str]:
    """Keys of the opaque calls whose results are passed to this one."""
    symbols = {s for _, elements in use.arguments for e in elements for s in e.free_symbols}
    references = [program.translator.references[symbol] for symbol in symbols]
    return {ref.name for ref in references if ref.kind == "external"}


def point_cost(program: Program) -> int:
    """Evaluations that one point of one row takes: of every function, and of its gradient for each of its numbers."""
    slopes = has_slopes(program)
    return sum(1 + slopes * math.prod(use.result) for use in program.uses())


def jacobian(
    model: ForwardModel, use: ExternalUse, arguments: Sequence[np.ndarray], data_rows: int
) -> list[Float[np.ndarray, "rows values *dims"]]:
    """Derivatives of all values in every argument, each [rows, *dims]; NaN in rows where the gradient failed.

    Raises ForwardModelError as calls of the function do.
    """
    shapes = [shape for shape, _ in use.arguments]
    sizes = [math.prod(shape) for shape in shapes]
    names = (*model.arguments, "sensitivity")
    pulling = replace(model, function=Flattened(model.gradient, model.vectorized), arguments=names, cache=None)
    rows, found = len(arguments[0]), []
    for place in np.ndindex(*use.result):
        sensitivity = np.zeros((rows, *use.result))
        sensitivity[(slice(None), *place)] = 1.0
        found.append(evaluate(pulling, [*arguments, sensitivity], (sum(sizes),), data_rows=data_rows).values)
    whole = np.stack(found, axis=1)
    parts = np.split(whole, np.cumsum(sizes)[:-1], axis=2)
    return [part.reshape(rows, len(found), *shape) for part, shape in zip(parts, shapes, strict=True)]
