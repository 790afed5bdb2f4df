"""Inducing features that are not points alone: `fourier(50, over = [-5, 5])`, `points(30) + slopes(30)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from gpdsl.data import Data, DataError
from gpdsl.data.errors import OutsideFeatures
from gpdsl.errors import GpdslError
from gpdsl.kernels.form import count
from gpdsl.kernels.fourier import Unsuited
from gpdsl.kernels.functionals import Coefficients, Derivatives, Elementary, Functionals, Values, outline, stacked
from gpdsl.kernels.interdomain import basis
from gpdsl.language.checker.functionals import roughness
from gpdsl.language.inducing import Written, read_features
from gpdsl.program.groups import Group, columns_of
from gpdsl.program.program import Program
from gpdsl.symbolic.kernel_calculus import NoFeatures

ROOM = 0.05
"""Of the range of a column, left on either side of the rows where no bounds are given."""

Points = Float[np.ndarray, "n D"]


def featured(
    program: Program, group: Group, written: str, data: Data, points: Points, placed: Callable[[int], Points]
) -> Functionals:
    """The features of a group of latents that are written so; `placed` puts so many points among those of the rows.

    Raises ModelError for a kernel that has no such features, DataError for rows outside the bounds.
    """
    at: dict[int, Points] = {}
    found: list[Elementary] = []
    for part in read_features(written) or ():
        if part.family in {"points", "slopes"}:
            if part.count not in at:  # values and slopes at the same points
                at[part.count] = placed(part.count)
            where = at[part.count]
        else:
            where = _corners(group, part, data, points)
        found += _kind(program, group, part, where)
    return stacked(tuple(found))


def outline_of(program: Program, group: Group, written: str) -> list:
    """What kind of functionals they are, wherever they are."""
    width = columns_of(group, program.translator)
    somewhere = np.stack([np.zeros(width), np.ones(width)])
    parts = [_kind(program, group, part, somewhere) for part in read_features(written) or ()]
    return outline(stacked(tuple(each for part in parts for each in part)))


def _kind(program: Program, group: Group, part: Written, where: Points) -> list[Elementary]:
    """The functionals of one family at points, or between the corners of a box."""
    held: Any = where
    if part.family == "points":
        return [Values(held)]
    if part.family == "slopes":
        _refuse_rough(program, group)
        return [Derivatives(held, (column,)) for column in range(where.shape[1])]
    numbers: list[Any] = [np.ones(())] * count(group.form)

    def weights(corners: Any) -> Any:
        return basis(group.form, numbers, Coefficients(corners, part.family, part.count, 0)).weights

    try:
        (size,) = jax.eval_shape(weights, held).shape
    except Unsuited as why:
        mistake = NoFeatures(group.members[0].latent.kernel.span, group.names[0], part.family, str(why))
        raise program.translator.failure(mistake) from None
    return [Coefficients(held, part.family, part.count, size)]


def _refuse_rough(program: Program, group: Group) -> None:
    for member in group.members:
        found = roughness(member.latent.kernel, 1)
        if found is not None:
            mistake = NoFeatures(member.latent.kernel.span, member.latent.name, "slopes", found[1])
            raise program.translator.failure(mistake)


def _corners(group: Group, part: Written, data: Data, points: Points) -> Float[np.ndarray, "2 D"]:
    """The bounds as the fit knows the columns, or some room around the rows."""
    if not part.over:
        low, high = points.min(axis=0), points.max(axis=0)
        room = np.where(high > low, ROOM * (high - low), 1.0)
        return np.stack([low - room, high + room])
    width = points.shape[1]
    if len(part.over) not in {1, width}:
        names = ", ".join(group.inputs)
        raise GpdslError(
            f"{part}: expected bounds of each of the {width} column(s) of {names}, or one pair for all, "
            f"not {len(part.over)} pairs"
        )
    given = np.asarray(part.over if len(part.over) == width else part.over * width, float).T
    corners = given.copy()
    columns: list[str] = []
    for name in group.inputs:
        shape = data.inputs[name].shape[1:]
        size = int(np.prod(shape, dtype=int))
        own = slice(len(columns), len(columns) + size)
        corners[:, own] = data.standardised.into(name, given[:, own].reshape(2, *shape)).reshape(2, size)
        columns += [f"{name}[{k + 1}]" if shape else name for k in range(size)]
    outside = np.argwhere((points < corners[0]) | (points > corners[1]))
    if len(outside):
        where, column = outside[0]
        low, high = given[:, column]
        share = (points[where, column] - corners[0, column]) / (corners[1, column] - corners[0, column])
        value = low + share * (high - low)
        row = int(where) % data.rows + 1
        raise DataError(OutsideFeatures(columns[column], row, f"{value:.6g}", f"{low:g}", f"{high:g}", str(part)))
    return corners
