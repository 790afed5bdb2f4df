"""What a fitted model offers to other tools: its predictions and its predictive density, as functions of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpdsl.data.times import as_data
from gpdsl.errors import GpdslError
from gpdsl.forward.server import Offered
from gpdsl.language import model as m
from gpdsl.results.fit import Fit
from gpdsl.results.levels import levels_at
from gpdsl.results.table import predictable_outputs
from gpdsl.symbolic.readings import field_quantities

LOG_DENSITY = "log_density"


def offered(fit: Fit, names: Sequence[str] | None = None) -> dict[str, Offered]:
    """Functions by name: `NAME` gives means and standard deviations of a quantity, `log_density` that of the outputs.

    The inputs are those of the model, one vector each, in declared order; `log_density` takes the outputs after them,
    a label as the number of its level, from 1, and gives log p(outputs | inputs, training data). A time is a number in
    its unit since the first of the fit. `names` are outputs, lets and latents; by default all that can be predicted.
    Raises GpdslError for a name the model does not have.
    """
    declared = fit.program.declarations
    known = [*predictable_outputs(declared), *declared.lets, *declared.latents]
    wrong = [name for name in names or () if name not in known]
    if wrong:
        raise GpdslError(f"`{wrong[0]}` cannot be predicted; the model has {', '.join(known)}")
    found = {name: _quantity(fit, name) for name in (names or known)}
    if not names:
        found[LOG_DENSITY] = _log_density(fit)
    return found


def _shape(fit: Fit, axes: tuple[m.Axis, ...]) -> tuple[int, ...]:
    return tuple(fit.program.translator.shape(axes))


def _sizes(fit: Fit, declared: Sequence[m.Input | m.Output]) -> tuple[int, ...]:
    return tuple(int(np.prod(_shape(fit, each.axes), dtype=int)) for each in declared)


def _columns(fit: Fit, declared: Sequence[m.Input | m.Output], rows: np.ndarray) -> dict[str, Any]:
    """Rows of numbers as the data they stand for."""
    parts = np.split(rows, np.cumsum(_sizes(fit, declared))[:-1], axis=1)
    found: dict[str, Any] = {}
    for each, part in zip(declared, parts, strict=True):
        values = part.reshape(len(rows), *_shape(fit, each.axes))
        found[each.name] = _levels(fit, each, values) if each.label else values
    return as_data(fit.program.declarations.inputs, fit.calendar, found, {})


def _levels(fit: Fit, output: m.Input | m.Output, numbers: np.ndarray) -> np.ndarray:
    assert output.label is not None
    levels = levels_at(fit.program, output.label)
    places = np.rint(numbers).astype(int)
    if not np.all((places == numbers) & (places >= 1) & (places <= len(levels))):
        raise GpdslError(f"`{output.name}` is the number of a level, from 1 to {len(levels)}")
    return np.asarray(levels, dtype=object)[places - 1]


def _quantity(fit: Fit, name: str) -> Offered:
    """Means and standard deviations of one quantity."""
    declared = fit.program.declarations
    inputs = list(declared.inputs.values())

    def evaluate(rows: np.ndarray) -> np.ndarray:
        prediction = fit.predict(_columns(fit, inputs, rows), columns={})
        moments = [prediction.mean(name), np.sqrt(prediction.variance(name))]
        if name in field_quantities(declared):
            moments = [np.broadcast_to(each, (len(rows), *each.shape)) for each in moments]
        return np.concatenate([np.reshape(each, (len(rows), -1)) for each in moments], axis=1)

    output = declared.outputs.get(name)
    axes = declared.axes_of(name)
    levels = () if output is None or output.label is None else (output.label,)
    size = int(np.prod(_shape(fit, (*axes, *levels)), dtype=int))
    return Offered(_sizes(fit, inputs), (size, size), evaluate, tuple(each.kind for each in inputs))


def _log_density(fit: Fit) -> Offered:
    declared = fit.program.declarations
    both: list[m.Input | m.Output] = [*declared.inputs.values(), *declared.outputs.values()]

    def evaluate(rows: np.ndarray) -> np.ndarray:
        return fit.log_predictive_density(_columns(fit, both, rows), columns={})[:, None]

    return Offered(_sizes(fit, both), (1,), evaluate, tuple(each.kind for each in both))
