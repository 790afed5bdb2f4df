"""Fields: latents over points of their own, against one coordinate, over two, or point by point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.language.model import Declarations
from gpdsl.results.fit import Fit
from gpdsl.results.pictures.quantity import quantity
from gpdsl.results.pictures.rows import Seen
from gpdsl.results.pictures.style import plain, title_of, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def fields(fit: Fit, names: Sequence[str]) -> Figure:
    """Mean and 90% band of each field along its points; of points in the plane, means and standard deviations."""
    declared, shape = fit.program.declarations, fit.program.translator.shape
    row = {each.name: np.ones((1, *shape(each.axes))) for each in declared.inputs.values()}  # fields read none of it
    seen = Seen(fit, row, None)
    prediction = seen.predict(row)
    coordinates = {name: _coordinates(declared, name) for name in names}
    plane = {name: points.shape[1] == 2 for name, points in coordinates.items()}
    panels = [(name, what) for name in names for what in (("mean", "standard deviation") if plane[name] else ("",))]
    figure, axes = wrapped(len(panels), 4.0 if any(plane.values()) else 7.0, 3.2, title_of(fit), most=2)
    for axis, (name, what) in zip(axes, panels, strict=True):
        points = coordinates[name]
        if not plane[name]:
            found = quantity(seen, prediction, name)
            _line(axis, points, found.centre, found.band)
            axis.set_ylabel(plain(name))
            axis.set_xlabel(declared.latents[name].arguments[0] if points.shape[1] == 1 else "number of the point")
            continue
        values = prediction.mean(name) if what == "mean" else np.sqrt(prediction.variance(name))
        drawn = _map(axis, points, values.reshape(-1, len(points))[0], "viridis" if what == "mean" else "cividis")
        figure.colorbar(drawn, ax=axis, pad=0.02)
        axis.set_title(plain(f"{name}: {what}"), fontsize=10)
        axis.set_aspect("equal", adjustable="datalim")
    return figure


def _coordinates(declared: Declarations, name: str) -> np.ndarray:
    """The points of a field, [points, coordinates]."""
    found = [np.asarray(declared.consts[each].values, float) for each in declared.latents[name].arguments]
    return np.concatenate([each.reshape(len(each), -1) for each in found], axis=1)


def _map(axis: Axes, points: np.ndarray, values: np.ndarray, colours: str) -> Any:
    """Cells where the points are a lattice, else the points."""
    first, second = np.unique(points[:, 0]), np.unique(points[:, 1])
    if len(first) * len(second) != len(points):
        return axis.scatter(points[:, 0], points[:, 1], c=values, s=36, cmap=colours)
    cells = values[np.lexsort((points[:, 0], points[:, 1]))].reshape(len(second), len(first))
    return axis.pcolormesh(first, second, cells, cmap=colours, shading="nearest", rasterized=True)


def _line(axis: Axes, points: np.ndarray, centre: np.ndarray, band: np.ndarray | None) -> None:
    along = points[:, 0] if points.shape[1] == 1 else np.arange(1, len(points) + 1)
    order = np.argsort(along)
    for number, values in enumerate(centre.reshape(-1, len(points))):
        (line,) = axis.plot(along[order], values[order])
        if band is not None:
            low, high = (each.reshape(-1, len(points))[number][order] for each in band)
            axis.fill_between(along[order], low, high, color=line.get_color(), alpha=0.25, lw=0)
