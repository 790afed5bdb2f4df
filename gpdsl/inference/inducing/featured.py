"""Inducing features that are not points alone: `fourier(50, over = [-5, 5])`, `points(30) + slopes(30)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpy.lib.stride_tricks import sliding_window_view

from gpdsl.data import Data, DataError
from gpdsl.data.errors import OutsideFeatures
from gpdsl.errors import GpdslError
from gpdsl.kernels.covariance import basis
from gpdsl.kernels.fourier import Unsuited
from gpdsl.kernels.functionals import Coefficients, Derivatives, Elementary, Functionals, Values, outline, stacked
from gpdsl.kernels.interdomain import PATCHES, images_of
from gpdsl.language.checker.roughness import roughness
from gpdsl.language.inducing import Written, read_features
from gpdsl.program.groups import Group, columns_of, reads_of
from gpdsl.program.program import Program
from gpdsl.symbolic.kernel_calculus import NoFeatures
from gpdsl.symbolic.translate import axis_key

ROOM = 0.05
"""Of the range of a column, left on either side of the rows where no bounds are given."""

SAMPLED = 50_000
"""Patches of the rows, at random, among which inducing ones are looked for."""

Points = Float[np.ndarray, "n D"]
Centres = Callable[[Points, int], Points]
"""So many centres of points, or all distinct points where these are fewer."""


def featured(
    program: Program,
    group: Group,
    written: str,
    data: Data,
    points: Points,
    centres: Centres,
    rng: np.random.Generator,
) -> Functionals:
    """The features of a group of latents that are written so, among the points of the rows.

    Raises ModelError for a kernel that has no such features, DataError for rows outside the bounds.
    """
    if any(functional.integrated for each in group.readings.basis for functional, _ in each):
        raise _integrated(program, group, written)
    at: dict[int, Points] = {}
    found: list[Elementary] = []
    for part in read_features(written) or ():
        if part.family in {"points", "slopes"}:
            if part.count not in at:  # values and slopes at the same points
                at[part.count] = centres(points, part.count)
            where = at[part.count]
        elif part.family == PATCHES:
            where = _patches(group, part, points, centres, rng)
        else:
            where = _corners(group, part, data, points)
        found += _kind(program, group, part, where)
    return stacked(tuple(found))


def _integrated(program: Program, group: Group, written: str) -> GpdslError:
    """What to raise for features of a latent of which integrals are read."""
    latent = group.members[0].latent
    reads = (each for each in reads_of(program.declarations) if each.name in group.names)
    own = [(each.span, each.name) for each in reads if each.functional.integrated]
    span, name = min(own, key=lambda each: each[0].line) if own else (latent.span, latent.name)
    why = "covariances of integrals with features are not known"
    remedy = f"give a number of inducing points instead: `infer vi: inducing {name} = 50`"
    return program.translator.failure(NoFeatures(span, name, written, why, remedy))


def outline_of(program: Program, group: Group, written: str) -> list:
    """What kind of functionals they are, wherever they are."""
    width = columns_of(group, program.translator)

    def somewhere(part: Written) -> Points:
        return np.linspace(0.0, 1.0, part.count if part.family == PATCHES else 2)[:, None] * np.ones(width)

    parts = [_kind(program, group, part, somewhere(part)) for part in read_features(written) or ()]
    return outline(stacked(tuple(each for part in parts for each in part)))


def _kind(program: Program, group: Group, part: Written, where: Points) -> list[Elementary]:
    """The functionals of one family at points, or between the corners of a box."""
    held: Any = where
    if part.family == "points":
        return [Values(held)]
    if part.family == "slopes":
        _refuse_rough(program, group)
        return [Derivatives(held, (column,)) for column in range(where.shape[1])]
    numbers = _numbers(program, group)

    def weights(corners: Any) -> Any:
        return basis(group.form, numbers, Coefficients(corners, part.family, part.count, 0)).weights

    try:
        (size,) = jax.eval_shape(weights, held).shape
    except Unsuited as why:
        mistake = NoFeatures(group.members[0].latent.kernel.span, group.names[0], part.family, str(why))
        raise program.translator.failure(mistake) from None
    return [Coefficients(held, part.family, part.count, size)]


def _numbers(program: Program, group: Group) -> list[Any]:
    """Parameters of a kernel of the group, as many and of the shapes that it has."""
    found = []
    for each in zip(*[member.kernel.arguments for member in group.members], strict=True):
        own = [
            [axis for axis in argument.axes if axis_key(axis) not in map(axis_key, member.latent.axes)]
            for argument, member in zip(each, group.members, strict=True)
        ]
        widest = max(own, key=len)
        found.append(np.ones(program.translator.shape(tuple(widest))))
    return found


def _refuse_rough(program: Program, group: Group) -> None:
    for member in group.members:
        found = roughness(member.latent.kernel, 1)
        if found is not None:
            mistake = NoFeatures(member.latent.kernel.span, member.latent.name, "slopes", found[1])
            raise program.translator.failure(mistake)


def _patches(
    group: Group, part: Written, points: Points, centres: Centres, rng: np.random.Generator
) -> Float[np.ndarray, "M D"]:
    """Images of which the patch at the top left is a centre of the patches of the rows; the rest of them is blank.

    Where kernels differ in the size of their patches, the smaller one is the corner of the larger one.
    """
    where = np.zeros((part.count, points.shape[1]))
    for form, columns in sorted(images_of(group.form, points.shape[1]), key=lambda each: np.prod(each[0].patch)):
        images = points[:, columns].reshape(len(points), *form.image)
        every = sliding_window_view(images, form.patch, axis=(1, 2))
        at = [rng.integers(size, size=SAMPLED) for size in every.shape[:3]]
        found = centres(every[at[0], at[1], at[2]].reshape(SAMPLED, -1), part.count)
        if len(found) < part.count:
            raise GpdslError(f"{part}: the images have {len(found)} different patches; ask for at most so many")
        where[:, columns.reshape(form.image)[: form.patch[0], : form.patch[1]].ravel()] = found
    return where


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
        if name not in data.inputs:  # an index among the arguments
            columns.append(name)
            continue
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
