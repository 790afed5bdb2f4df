"""Input columns that number the levels of a `Coregion` kernel: whole numbers from 1 to the size of its matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpdsl.data.columns import Found
from gpdsl.data.errors import DataMistake, shown
from gpdsl.data.level_mistakes import LevelOutside
from gpdsl.language import model as m


@dataclass(frozen=True)
class LevelColumn:
    """An input, or one of its columns (from 0), and the axis of the levels."""

    name: str
    column: int
    axis: m.Axis
    latent: str


def level_columns(declarations: m.Declarations) -> Iterator[LevelColumn]:
    """Every column that a `Coregion` of the model looks at."""
    for latent in declarations.latents.values():
        for call in _coregions(latent.kernel):
            own = {axis.name for axis in latent.axes}
            axis = next(a for a in call.arguments["kappa"].axes if a.name is None or a.name not in own)
            name, column = _column(call, latent)
            if name in declarations.inputs:
                yield LevelColumn(name, column, axis, latent.name)


def _column(call: m.KernelCall, latent: m.Latent) -> tuple[str, int]:
    """The argument that a call looks at, and which of its columns."""
    if not call.on or not isinstance(call.on[0], m.Read):
        return latent.arguments[0], 0
    fixed = [each.position - 1 for each in call.on[0].subscripts if isinstance(each, m.Fixed)]
    return call.on[0].name, fixed[0] if fixed else 0


def _coregions(kernel: m.Kernel) -> Iterator[m.KernelCall]:
    match kernel:
        case m.KernelCall(name="Coregion"):
            yield kernel
        case m.KernelScale(kernel=inner):
            yield from _coregions(inner)
        case m.KernelSum(terms=inside) | m.KernelProduct(factors=inside) | m.KernelCall(kernels=inside):
            for each in inside:
                yield from _coregions(each)


def wrong_level(column: LevelColumn, found: Found, values: np.ndarray, size: int) -> DataMistake | None:
    """The first value that is no whole number from 1 to `size`."""
    numbers = values.reshape(values.shape[0], -1)[:, column.column]
    if numbers.dtype == object:  # text, which has been reported
        return None
    wrong = np.flatnonzero(np.isfinite(numbers) & ((numbers != np.round(numbers)) | (numbers < 1) | (numbers > size)))
    if not wrong.size:
        return None
    row = int(wrong[0])
    name = found.columns[min(column.column, len(found.columns) - 1)]
    return LevelOutside(name, row + 1, shown(float(numbers[row])), column.latent, size)
