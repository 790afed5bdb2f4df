"""Quantities against one input, as curves and bands, or over two, as colours and regions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.language.model import Declarations
from gpdsl.results.fit import Fit
from gpdsl.results.levels import levels_of
from gpdsl.results.pictures import style
from gpdsl.results.pictures.rows import Column, Quantity, Seen, apart, mean_or_median, quantity
from gpdsl.results.prediction import Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


# Quantities against one input: mean and 90% band, or the probability of each level; observed values as points.

GRID, FINEST, OPAQUE_GRID = 200, 1000, 60
CURVES, MOST_PANELS, WORDS = 8, 24, 3
NARROW = 5.0
"""Inches of a panel in which few numbers of many digits have room."""
ASIDE = 0.15
"""How far observed values stand from the middle of their label."""


def curves(seen: Seen, names: Sequence[str]) -> Figure:
    """One panel per name over the range of the input; at the data's own rows where other inputs vary too."""
    (column,) = seen.columns
    rows, along, alike = _rows(seen, column, np.arange(seen.rows), seen.reach(FINEST, names))
    prediction = seen.predict(rows)
    figure, panels = style.canvas(len(names), 1, 8.0, 2.6, style.title_of(seen.fit))
    for panel, name in zip(panels[:, 0], names, strict=True):
        joined = alike or not seen.reads_others(name)
        one(panel, seen, quantity(seen, prediction, name), column, along, joined=joined)
        observed(panel, seen, name, column, np.arange(seen.rows))
        finish(panel, seen, name, column)
    return figure


def groups(seen: Seen, names: Sequence[str]) -> Figure:
    """A small panel for each group that a label or few whole numbers tell apart, all with the same axes."""
    group = apart(seen.columns)
    assert group is not None
    along = next(each for each in seen.columns if each is not group)
    levels = group.distinct[: MOST_PANELS if len(names) == 1 else 4]
    said = "" if len(levels) == len(group.distinct) else f" (the first {len(levels)} of {len(group.distinct)} groups)"
    members = [np.flatnonzero(group.values == level) for level in levels]
    most = seen.reach(FINEST, names, len(levels))
    made = [_rows(seen, along, mine, most) for mine in members]
    for (rows, _, _), level in zip(made, levels, strict=True):
        style.element(rows[group.name], group.place)[...] = level
    prediction = seen.predict({name: np.concatenate([rows[name] for rows, _, _ in made]) for name in seen.inputs})
    ends = np.cumsum([0, *(len(at) for _, at, _ in made)])
    figure, panels = style.table(len(names), len(levels), f"{style.title_of(seen.fit)}{said}")
    for name, line in zip(names, panels, strict=True):
        whole, free = quantity(seen, prediction, name), not seen.reads_others(name)
        for number, panel in enumerate(line):
            (_, at, alike), part = made[number], whole.at(slice(ends[number], ends[number + 1]))
            one(panel, seen, part, along, at, joined=alike or free)
            observed(panel, seen, name, along, members[number])
            finish(panel, seen, name, along, legends=number == style.abreast(panel) - 1)
            panel.set_title(f"{group.label} = {group.word(levels[number])}", fontsize=9)
    style.share(panels)
    return figure


def _rows(seen: Seen, column: Column, among: np.ndarray, most: int) -> tuple[dict[str, np.ndarray], np.ndarray, bool]:
    """A grid over the column of so many points, and whether all else is alike in it.

    Where other inputs (an exposure) differ among the rows of the data, some of these in order instead of a grid.
    """
    finest = np.clip(len(column.distinct), GRID, FINEST)  # cycles are as short as all rows, of other groups too, tell
    grid = OPAQUE_GRID if seen.fit.program.opaque else min(int(finest), most)
    if not any(np.ptp(each.values[among]) for each in seen.others):
        along = column.grid(grid, uneven=len(column.distinct) > FINEST)
        return seen.moved(seen.typical(among), [column], along[:, None]), along, True
    chosen = among[style.thinned(len(among), grid)]
    chosen = chosen[np.argsort(column.values[chosen], kind="stable")]
    return {name: np.array(values[chosen]) for name, values in seen.inputs.items()}, column.values[chosen], False


def one(panel: Axes, seen: Seen, shown: Quantity, column: Column, along: np.ndarray, *, joined: bool = True) -> None:
    """What is known of one quantity at values of a column: curves with bands.

    A point with a bar for each label, and for each row where rows differ in more than this column.
    """
    apart = column.kind == "label" or not joined
    line: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 4.0 if joined else 2.5} if apart else {}
    at = seen.drawn(column, along)
    if shown.levels:
        for number, colour in enumerate(style.colours(len(shown.levels), ordered=shown.ordered)):
            panel.plot(at, shown.centre[:, number], color=colour, label=style.plain(str(shown.levels[number])), **line)
        panel.set_ylim(-0.1, 1.05)
        return
    parts = style.elements(seen.fit, shown.name, shown.centre.shape[1:], CURVES)
    for number, ((place, label), colour) in enumerate(zip(parts, style.colours(len(parts)), strict=True)):
        said = label if shown.kind == "binary" else f"{label}: mean" if place else "mean"
        panel.plot(at, style.element(shown.centre, place), color=colour, label=said, **line)
        if shown.band is not None:
            low, high = (style.element(each, place) for each in shown.band)
            named = "" if number else shown.within
            if apart:
                panel.vlines(at, low, high, color=colour, label=named, lw=1.5 if joined else 0.8)
            else:
                panel.fill_between(
                    at, low, high, alpha=0.25 if len(parts) < 4 else 0.12, color=colour, label=named, lw=0
                )


def observed(panel: Axes, seen: Seen, name: str, column: Column, rows: np.ndarray) -> None:
    """The observed values of some rows, in the colours of their elements; those of a label as ticks below."""
    values = seen.observed(name)
    if values is None:
        return
    rows = rows[style.thinned(len(rows))]
    output = seen.fit.program.declarations.outputs[name]
    aside = ASIDE if column.kind == "label" else 0.0  # the bar of a prediction would hide them
    at = seen.drawn(column, column.values[rows] + aside)
    flat = values[rows].reshape(len(rows), -1)
    if output.label is not None:
        count = seen.fit.program.translator.size(output.label)
        for number, colour in enumerate(style.colours(count, ordered=output.kind == "ordinal")):
            chosen = flat[:, 0] == number
            panel.plot(at[chosen], np.full(chosen.sum(), -0.05), "|", color=colour, ms=7, rasterized=len(rows) > 1000)
        return
    shown = min(flat.shape[1], CURVES)
    for number, colour in enumerate(style.colours(shown) if shown > 1 else [style.ink(0.7)]):
        style.scatter(panel, at, flat[:, number], color=colour, zorder=1, label="observed" if number == 0 else None)


def axis_of(axis: Axis, column: Column) -> None:
    """An axis with the name of a column, and numbers, dates or words that do not run into each other."""
    from matplotlib.axis import XAxis
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    axis.set_label_text(column.label)
    few = isinstance(axis, XAxis) and style.inches(axis.axes) < NARROW
    if column.kind == "label":
        shown = column.distinct[:: -(-len(column.distinct) // int(WORDS * style.inches(axis.axes)))]
        turned: dict[str, Any] = (
            {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if isinstance(axis, XAxis) else {}
        )
        axis.set_ticks(shown, [column.word(each) for each in shown], fontsize=8, **turned)
    elif column.kind == "time":
        if few:
            axis.set_major_locator(AutoDateLocator(minticks=2, maxticks=4))
        axis.set_major_formatter(ConciseDateFormatter(axis.get_major_locator()))
    elif column.wide:
        axis.axes.set(**{"xscale" if isinstance(axis, XAxis) else "yscale": "log"})
    elif column.kind == "count" or np.abs(column.distinct[[0, -1]]).max() >= 1e4:
        axis.set_major_locator(MaxNLocator(3 if few else 5, integer=column.kind == "count"))


def finish(panel: Axes, seen: Seen, name: str, column: Column, *, legends: bool = True) -> None:
    """Labels of the axes, dates that do not overlap, and a legend."""
    program = seen.fit.program
    output = program.declarations.outputs.get(name)
    axis_of(panel.xaxis, column)
    said, left = f"{name}{style.unit_of(seen.fit, name)}", 0
    if output is not None and (output.label is not None or output.kind == "binary"):
        said = f"probability of {name}" + (f" = {levels_of(program, name)[1]}" if output.label is None else "")
    panel.set_ylabel(style.plain(said))
    panel.margins(x=0.05 if column.kind == "label" else 0.01)
    if legends:
        if output is None or output.label is None:
            left = style.unshown(program.translator.shape(program.declarations.axes_of(name)), CURVES)
        style.legend(panel, left)


# Quantities over two inputs: mean and standard deviation as colours, regions of the most probable class.

SIDE, OPAQUE_SIDE = 40, 12
SOME, PANELS, RINGS = 8, 12, 600
"""Panels of one name among several, and of all; rows that are drawn as rings."""


@dataclass(frozen=True)
class _Panel:
    """One map: `values` [vertical, horizontal], and what the points on it have, if anything."""

    label: str
    values: np.ndarray
    points: np.ndarray | None = None
    chance: bool = False
    spread: bool = False


def maps(seen: Seen, names: Sequence[str]) -> Figure:
    """Two panels for each element, its mean and its standard deviation; one for what has probabilities."""
    side = OPAQUE_SIDE if seen.fit.program.opaque else SIDE
    across, up = (column.grid(side) for column in seen.columns)
    grid = np.stack([each.ravel() for each in np.meshgrid(across, up)], axis=1)
    prediction = seen.predict(seen.moved(seen.typical(), seen.columns, grid))
    shape = (len(up), len(across))
    every = [_panels(seen, prediction, name, shape) for name in names]
    most, count = PANELS if len(names) == 1 else SOME, sum(map(len, every))
    panels = [panel for each in every for panel in each[:most]][:PANELS]
    held = f" ({', '.join(each.label for each in seen.others)} at the median)" if seen.others else ""
    part = "" if count == len(panels) else f" ({len(panels)} of {count} panels; ask for others by names=...)"
    placed, beside = _placed(panels)
    figure, axes = style.canvas(len(placed) // beside, beside, 4.0, 3.3, f"{style.title_of(seen.fit)}{held}{part}")
    for panel, axis in zip(placed, axes.flat, strict=True):
        if panel is None:
            axis.remove()
        else:
            _draw(figure, axis, seen, panel, across, up)
    if beside > 1 and placed[1] is None and (key := axes[0, 0].get_legend()) is not None:
        key.set_in_layout(False)  # it stands in the place beside, which is empty
    return figure


def _placed(panels: list[_Panel]) -> tuple[list[_Panel | None], int]:
    """Panels in the order of their places, None where one is empty, and how many stand side by side.

    A mean and its deviation stand together: what has no deviation has a line of its own, but among few.
    """
    count = len(panels)
    if count in (1, 3) or not any(each.spread for each in panels):
        beside = min(count, 3)
        return [*panels, *[None] * (-count % beside)], beside
    if count % 4 == 0 and all(each.spread for each in panels[1::2]):
        return [*panels], 4 if count > 4 else 2
    found: list[_Panel | None] = []
    for number, panel in enumerate(panels):
        if not panel.spread and len(found) % 2:
            found.append(None)
        found.append(panel)
        if number == count - 1 and len(found) % 2:
            found.append(None)
    return found, 2


def _panels(seen: Seen, prediction: Prediction, name: str, shape: tuple[int, int]) -> list[_Panel]:
    output, values = seen.fit.program.declarations.outputs.get(name), seen.observed(name)
    if output is not None and output.label is not None:
        chances = prediction.mean(name)
        chances = chances.reshape(*shape, -1, chances.shape[-1])[:, :, 0]
        levels = None if values is None else values.reshape(len(values), -1)[:, 0]
        return [_Panel(name, chances, levels)]
    centre = mean_or_median(prediction, name)
    binary = output is not None and output.kind == "binary"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spread = None if binary else np.sqrt(prediction.variance(name))
    found = []
    for place, label in style.elements(seen.fit, name, centre.shape[1:], centre.size):
        points = None if values is None else style.element(values, place)
        what = f"{label}{style.unit_of(seen.fit, name)}"
        if binary:
            what = f"probability of {label} = {style.plain(str(prediction.levels(name)[1]))}"
        found.append(_Panel(what, style.element(centre, place).reshape(shape), points, chance=binary))
        if spread is not None and np.all(np.isfinite(spread)):
            found.append(
                _Panel(f"{label}: standard deviation", style.element(spread, place).reshape(shape), spread=True)
            )
    return found


def _draw(figure: Figure, axis: Axes, seen: Seen, panel: _Panel, across: np.ndarray, up: np.ndarray) -> None:
    from matplotlib.colors import Normalize

    rows = style.thinned(seen.rows, 2 * style.RASTER if panel.points is None else RINGS)
    first, second = (seen.drawn(column, column.values[rows]) for column in seen.columns)
    horizontal, vertical = map(seen.drawn, seen.columns, (across, up))
    axis.set_title(panel.label, fontsize=10)
    for ends, along, column in ((horizontal, axis.xaxis, seen.columns[0]), (vertical, axis.yaxis, seen.columns[1])):
        along.update_units(ends)  # dates are drawn as such
        axis_of(along, column)
    looks: dict[str, Any] = {"s": 22 if len(rows) <= 300 else 8, "lw": 0.6, "rasterized": len(rows) > style.RASTER}
    if panel.values.ndim == 3:
        _regions(axis, seen, panel, horizontal, vertical, (first, second, rows), looks)
        return
    values = np.full(len(rows), np.nan) if panel.points is None else panel.points[rows]
    both = np.concatenate([panel.values.ravel(), values[np.isfinite(values)]])
    norm = Normalize(0, 1) if panel.chance else Normalize(*_ends(both))
    table = "cividis" if panel.spread else "RdBu_r" if panel.chance else "viridis"
    mesh = axis.pcolormesh(
        horizontal, vertical, panel.values, cmap=table, norm=norm, shading="nearest", rasterized=True
    )
    figure.colorbar(mesh, ax=axis, pad=0.02)
    if panel.chance and panel.values.min() < 0.5 < panel.values.max():
        axis.contour(horizontal, vertical, panel.values, levels=[0.5], colors="k", linewidths=1)
    if panel.points is not None:
        known = np.isfinite(values)
        axis.scatter(first[known], second[known], c=values[known], cmap=table, norm=norm, edgecolors="w", **looks)
    else:
        axis.plot(first, second, ".", ms=2, color="w", alpha=0.6, mew=0, rasterized=len(rows) > style.RASTER)


def _ends(values: np.ndarray) -> tuple[float, float]:
    """Where colours begin and end; around what does not vary but by rounding, so that it is of one colour."""
    low, high = np.quantile(values, [0.002, 0.998]).tolist()
    size = max(abs(low), abs(high))
    away = 0.1 * (size or 1.0)
    return (low, high) if high - low > 1e-6 * size else (low - away, high + away)


def _regions(
    axis: Axes, seen: Seen, panel: _Panel, horizontal: Any, vertical: Any, points: tuple, looks: dict[str, Any]
) -> None:
    """The most probable class in its colour, paler where it is less certain; data in the colours of their classes."""
    from matplotlib.colors import to_rgb

    output = seen.fit.program.declarations.outputs[panel.label]
    count = panel.values.shape[-1]
    table = np.array([to_rgb(each) for each in style.colours(count, ordered=output.kind == "ordinal")])
    sure = np.clip((panel.values.max(axis=-1, keepdims=True) - 1 / count) / (1 - 1 / count), 0, 1)
    shown = 1 - (0.15 + 0.55 * sure) * (1 - table[np.argmax(panel.values, axis=-1)])
    axis.pcolormesh(horizontal, vertical, shown, shading="nearest", rasterized=True)
    axis.set_title(f"most probable {panel.label}", fontsize=10)
    first, second, rows = points
    for number, level in enumerate(levels_of(seen.fit.program, panel.label)):
        mine = np.zeros(len(rows), bool) if panel.points is None else panel.points[rows] == number
        axis.scatter(
            first[mine], second[mine], color=table[number], edgecolors="w", label=style.plain(str(level)), **looks
        )
    style.legend(axis)


# Fields: latents over points of their own, against one coordinate, over two, or point by point.


def fields(fit: Fit, names: Sequence[str]) -> Figure:
    """Mean and 90% band of each field along its points; of points in the plane, means and standard deviations."""
    declared, shape = fit.program.declarations, fit.program.translator.shape
    row = {each.name: np.ones((1, *shape(each.axes))) for each in declared.inputs.values()}  # fields read none of it
    seen = Seen(fit, row, None)
    prediction = seen.predict(row)
    coordinates = {name: _coordinates(declared, name) for name in names}
    plane = {name: points.shape[1] == 2 for name, points in coordinates.items()}
    panels = [(name, what) for name in names for what in (("mean", "standard deviation") if plane[name] else ("",))]
    figure, axes = style.wrapped(len(panels), 4.0 if any(plane.values()) else 7.0, 3.2, style.title_of(fit), most=2)
    for axis, (name, what) in zip(axes, panels, strict=True):
        points = coordinates[name]
        if not plane[name]:
            found = quantity(seen, prediction, name)
            _line(axis, points, found.centre, found.band)
            axis.set_ylabel(style.plain(name))
            axis.set_xlabel(declared.latents[name].arguments[0] if points.shape[1] == 1 else "number of the point")
            continue
        values = prediction.mean(name) if what == "mean" else np.sqrt(prediction.variance(name))
        drawn = _map(axis, points, values.reshape(-1, len(points))[0], "viridis" if what == "mean" else "cividis")
        figure.colorbar(drawn, ax=axis, pad=0.02)
        axis.set_title(style.plain(f"{name}: {what}"), fontsize=10)
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
