"""Many inputs: how a quantity changes along each of them, the others held at their medians or averaged over rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpdsl.results.pictures.curves import finish, one
from gpdsl.results.pictures.quantity import Quantity, quantity
from gpdsl.results.pictures.rows import Seen
from gpdsl.results.pictures.style import share, table, thinned, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID, TIME_GRID, OPAQUE_GRID, TRIED, PANELS, SEVERAL = 30, 200, 8, 64, 12, 4
AVERAGED, RUG = 30, 200
"""Rows of the data that are averaged over, and whose places are marked."""


def partial(seen: Seen, names: Sequence[str], others: str) -> Figure:
    """A panel for each input, those along which the first quantity changes most, with the same vertical axes.

    Held: mean and 90% band at the medians of the others. Averaged: the mean over some rows of the data, and a band
    that 90% of them lie in.
    """
    averaged, every = others == "averaged", [*seen.columns, *seen.others]
    tried, chosen = every[:TRIED], thinned(seen.rows, AVERAGED)
    base = {name: values[chosen] for name, values in seen.inputs.items()} if averaged else seen.typical()
    counts = {"time": TIME_GRID} if not seen.fit.program.opaque else {}  # along which there are seasons
    coarse = OPAQUE_GRID if seen.fit.program.opaque else GRID
    grids = [column.grid(counts.get(column.kind, coarse)) for column in tried]
    made = [seen.moved(base, [column], grid[:, None]) for column, grid in zip(tried, grids, strict=True)]
    prediction = seen.predict({name: np.concatenate([each[name] for each in made]) for name in base})
    count = len(chosen) if averaged else 1
    ends = np.cumsum([0, *(count * len(grid) for grid in grids)])

    def along(whole: Quantity, number: int) -> Quantity:
        part = whole.at(slice(ends[number], ends[number + 1]))
        return part.averaged(count) if averaged else part

    found = [quantity(seen, prediction, name) for name in names]
    effects = [np.ptp(along(found[0], number).centre, axis=0).max() for number in range(len(tried))]
    order = np.argsort(effects)[::-1][: PANELS if len(names) == 1 else SEVERAL]
    how = "averaged over rows" if averaged else "at their medians"
    part = f"{len(order)} of {len(every)} inputs, the " if len(order) < len(every) else ""
    figure, panels = table(len(names), len(order), f"{title_of(seen.fit)}\n{part}others {how}")
    for whole, line in zip(found, panels, strict=True):
        for place, number in enumerate(order):
            column, panel = tried[number], line[place]
            one(panel, seen, along(whole, number), column, grids[number])
            marks = seen.drawn(column, column.values[thinned(seen.rows, RUG)])
            where = panel.get_xaxis_transform()
            panel.plot(marks, np.full(len(marks), 0.01), "|", color="0.4", ms=4, alpha=0.5, transform=where)
            finish(panel, seen, whole.name, column, legends=place == 0)
    share(panels)
    return figure
