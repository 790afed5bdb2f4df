"""Quantities against one input: mean and 90% band, or the probability of each level; observed values as points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.results.pictures.rows import Column, Quantity, Seen, apart, quantity
from gpdsl.results.pictures.style import (
    canvas,
    colours,
    element,
    elements,
    inches,
    legend,
    plain,
    scatter,
    share,
    table,
    thinned,
    title_of,
    unit_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

GRID, FINEST, OPAQUE_GRID = 200, 1000, 60
ELEMENTS, PANELS, WORDS = 8, 24, 24
NARROW = 5.0
"""Inches of a panel in which few numbers of many digits have room."""
ASIDE = 0.15
"""How far observed values stand from the middle of their label."""


def curves(seen: Seen, names: Sequence[str]) -> Figure:
    """One panel per name over the range of the input; at the data's own rows where other inputs vary too."""
    (column,) = seen.columns
    rows, along, alike = _rows(seen, column, np.arange(seen.rows))
    prediction = seen.predict(rows)
    figure, panels = canvas(len(names), 1, 8.0, 2.6, title_of(seen.fit))
    for panel, name in zip(panels[:, 0], names, strict=True):
        joined = alike or not seen.reads_others(name)
        one(panel, seen, quantity(seen, prediction, name), column, along, joined=joined)
        observed(panel, seen, name, column, np.arange(seen.rows))
        finish(panel, seen, name, column, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def groups(seen: Seen, names: Sequence[str]) -> Figure:
    """A small panel for each group that a label or few whole numbers tell apart, all with the same axes."""
    group = apart(seen.columns)
    assert group is not None
    along = next(each for each in seen.columns if each is not group)
    levels = group.distinct[: PANELS if len(names) == 1 else 4]
    said = "" if len(levels) == len(group.distinct) else f" (the first {len(levels)} of {len(group.distinct)} groups)"
    members = [np.flatnonzero(group.values == level) for level in levels]
    made = [_rows(seen, along, mine) for mine in members]
    for (rows, _, _), level in zip(made, levels, strict=True):
        element(rows[group.name], group.place)[...] = level
    prediction = seen.predict({name: np.concatenate([rows[name] for rows, _, _ in made]) for name in seen.inputs})
    ends = np.cumsum([0, *(len(at) for _, at, _ in made)])
    figure, panels = table(len(names), len(levels), f"{title_of(seen.fit)}{said}")
    for name, line in zip(names, panels, strict=True):
        whole, free = quantity(seen, prediction, name), not seen.reads_others(name)
        for number, panel in enumerate(line):
            (_, at, alike), part = made[number], whole.at(slice(ends[number], ends[number + 1]))
            one(panel, seen, part, along, at, joined=alike or free)
            observed(panel, seen, name, along, members[number])
            finish(panel, seen, name, along, legends=number == 0)
            panel.set_title(f"{group.label} = {group.word(levels[number])}", fontsize=9)
    share(panels)
    return figure


def _rows(seen: Seen, column: Column, among: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, bool]:
    """A grid over the column, and whether all else is alike in it.

    Where other inputs (an exposure) differ among the rows of the data, some of these in order instead of a grid.
    """
    finest = np.clip(len(np.unique(column.values[among])), GRID, FINEST)  # cycles are as short as rows can tell
    grid = OPAQUE_GRID if seen.fit.program.opaque else int(finest)
    if not any(np.ptp(each.values[among]) for each in seen.others):
        along = column.grid(grid)
        return seen.moved(seen.typical(among), [column], along[:, None]), along, True
    chosen = among[thinned(len(among), grid)]
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
        for number, colour in enumerate(colours(len(shown.levels), ordered=shown.ordered)):
            panel.plot(at, shown.centre[:, number], color=colour, label=plain(str(shown.levels[number])), **line)
        panel.set_ylim(-0.1, 1.05)
        return
    parts = elements(seen.fit, shown.name, shown.centre.shape[1:], ELEMENTS)
    for number, ((place, label), colour) in enumerate(zip(parts, colours(len(parts)), strict=True)):
        said = label if shown.kind == "binary" else f"{label}: mean" if place else "mean"
        panel.plot(at, element(shown.centre, place), color=colour, label=said, **line)
        if shown.band is not None:
            low, high = (element(each, place) for each in shown.band)
            named = "" if number else "90% band"
            if apart:
                panel.vlines(at, low, high, color=colour, label=named, lw=1.5 if joined else 0.8)
            else:
                panel.fill_between(
                    at, low, high, alpha=0.25 if len(parts) < 4 else 0.12, color=colour, label=named, lw=0
                )
    left = int(np.prod(shown.centre.shape[1:], dtype=int)) - len(parts)
    if left > 0:
        panel.plot([], [], " ", label=f"and {left} more")


def observed(panel: Axes, seen: Seen, name: str, column: Column, rows: np.ndarray) -> None:
    """The observed values of some rows, in the colours of their elements; those of a label as ticks below."""
    values = seen.observed(name)
    if values is None:
        return
    rows = rows[thinned(len(rows))]
    output = seen.fit.program.declarations.outputs[name]
    aside = ASIDE if column.kind == "label" else 0.0  # the bar of a prediction would hide them
    at = seen.drawn(column, column.values[rows] + aside)
    flat = values[rows].reshape(len(rows), -1)
    if output.label is not None:
        count = seen.fit.program.translator.size(output.label)
        for number, colour in enumerate(colours(count, ordered=output.kind == "ordinal")):
            chosen = flat[:, 0] == number
            panel.plot(at[chosen], np.full(chosen.sum(), -0.05), "|", color=colour, ms=7, rasterized=len(rows) > 1000)
        return
    shown = min(flat.shape[1], ELEMENTS)
    for number, colour in enumerate(colours(shown) if shown > 1 else ["0.3"]):
        scatter(panel, at, flat[:, number], color=colour, zorder=1, label="observed" if number == 0 else None)


def axis_of(axis: Axis, column: Column) -> None:
    """An axis with the name of a column, and numbers, dates or words that do not run into each other."""
    from matplotlib.axis import XAxis
    from matplotlib.dates import ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    axis.set_label_text(column.label)
    if column.kind == "label":
        shown = column.distinct[:: -(-len(column.distinct) // WORDS)]
        axis.set_ticks(shown, [column.word(each) for each in shown], fontsize=8)
        axis.set_tick_params(labelrotation=45 if isinstance(axis, XAxis) else 0)
    elif column.kind == "time":
        axis.set_major_formatter(ConciseDateFormatter(axis.get_major_locator()))
    elif column.kind == "count" or np.abs(column.distinct[[0, -1]]).max() >= 1e4:
        few = isinstance(axis, XAxis) and inches(axis.axes) < NARROW
        axis.set_major_locator(MaxNLocator(3 if few else 5, integer=column.kind == "count"))


def finish(panel: Axes, seen: Seen, name: str, column: Column, *, legends: bool = True, **where: Any) -> None:
    """Labels of the axes, dates that do not overlap, and a legend."""
    output = seen.fit.program.declarations.outputs.get(name)
    axis_of(panel.xaxis, column)
    chance = output is not None and (output.label is not None or output.kind == "binary")
    panel.set_ylabel(plain(f"probability of {name}" if chance else f"{name}{unit_of(seen.fit, name)}"))
    panel.margins(x=0.01)
    if legends:
        legend(panel, **where)
