"""Jacobians of opaque functions that come with a gradient, by one call of it for every number that they return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from gpdsl.forward import ForwardModel, ForwardModelError, Policy, evaluate
from gpdsl.forward.errors import describe_row
from gpdsl.forward.mistakes import WrongGradient
from gpdsl.program.program import Program
from gpdsl.symbolic.translate import ExternalUse

STEPS = (1e-3, 1e-5)
"""Steps of the differences that a gradient is checked against, relative to the arguments: the second if need be."""

DISAGREES = 0.1
"""Relative difference between a gradient and differences of the function that no rounding and no curvature explains."""


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
    pulling = _pulling(model)
    rows, found = len(arguments[0]), []
    for place in np.ndindex(*use.result):
        sensitivity = np.zeros((rows, *use.result))
        sensitivity[(slice(None), *place)] = 1.0
        found.append(evaluate(pulling, [*arguments, sensitivity], (sum(sizes),), data_rows=data_rows).values)
    whole = np.stack(found, axis=1)
    parts = np.split(whole, np.cumsum(sizes)[:-1], axis=2)
    return [part.reshape(rows, len(found), *shape) for part, shape in zip(parts, shapes, strict=True)]


def _pulling(model: ForwardModel) -> ForwardModel:
    """The gradient as a function to be called: of the arguments and a sensitivity, all parts behind each other."""
    names = (*model.arguments, "sensitivity")
    return replace(model, function=Flattened(model.gradient, model.vectorized), arguments=names, cache=None)


def check_gradient(model: ForwardModel, use: ExternalUse, arguments: Sequence[np.ndarray]) -> None:
    """Raise ForwardModelError where a gradient is wrong in every row: along one random direction, for one sensitivity.

    It takes three calls for these rows, five where the first differences disagree; one that fails ends the check.
    """
    rng, tolerant = np.random.default_rng(0), replace(model, policy=Policy(0, "penalise"))
    along = [rng.standard_normal(a.shape) * np.where(a == 0.0, 1.0, np.abs(a)) for a in arguments]
    sensitivity = rng.standard_normal((len(arguments[0]), *use.result))
    by_row = lambda values: np.asarray(values).reshape(len(sensitivity), -1).sum(axis=1)  # noqa: E731

    def values(of: ForwardModel, at: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        found = evaluate(of, at, shape)
        of.account.penalised -= int(found.failed.sum())
        return found.values

    width = sum(math.prod(shape) for shape, _ in use.arguments)
    pulled = values(_pulling(tolerant), [*arguments, sensitivity], (width,))
    said = by_row(pulled * np.concatenate([each.reshape(len(each), -1) for each in along], axis=1))
    wrong = np.ones(len(said), bool)
    found = said
    for step in STEPS:
        ends = [
            values(tolerant, [a + sign * step * each for a, each in zip(arguments, along, strict=True)], use.result)
            for sign in (1.0, -1.0)
        ]
        found = by_row(sensitivity * (ends[0] - ends[1])) / (2.0 * step)
        rounding = 1e-9 * by_row(np.abs(sensitivity * ends[0])) / step
        wrong &= np.abs(said - found) > DISAGREES * np.maximum(np.abs(said), np.abs(found)) + rounding
        if not wrong.all():  # so are comparisons with what failed
            return
    names = model.arguments or [f"argument {place}" for place in range(1, len(arguments) + 1)]
    shown = describe_row(names, arguments, 0)
    raise ForwardModelError(WrongGradient(model.name, "row 1 of the data", shown, f"{said[0]:.4g}", f"{found[0]:.4g}"))
