"""What all pictures share: figures with room for their panels, names and colours of elements, and few enough points."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.errors import GpdslError, printable
from gpdsl.replacing import written
from gpdsl.results.named import located

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpdsl.results.fit import Fit

POINTS = 5000
"""Rows of data that are drawn as points: a random part of more, always the same one."""

TITLE = 11
"""Points of the letters of a figure's title."""

RASTER = 1000
"""Points above which a vector format holds them as an image."""

FORMATS = (".png", ".pdf", ".svg")


def verify_matplotlib() -> None:
    """Raise GpdslError where matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise GpdslError("plots need matplotlib: install it with `pip install gpdsl[plot]`")


def canvas(rows: int, columns: int, width: float, height: float, title: str = "") -> tuple[Figure, np.ndarray]:
    """A figure and its panels [rows, columns], each so many inches. Raises GpdslError where matplotlib is missing."""
    verify_matplotlib()

    from gpdsl.results.pictures.figure import Picture

    figure = Picture(figsize=(width * columns, height * rows + 0.3 * bool(title)), layout="constrained")
    if title:
        figure.suptitle(plain(title), fontsize=TITLE)
    panels = figure.subplots(rows, columns, squeeze=False)
    for panel in panels.flat:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def wrapped(count: int, width: float, height: float, title: str = "", most: int = 4) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels, at most so many side by side; places that are left over stay empty."""
    columns = max(min(most, count), 1)
    if count > columns:
        columns = min(range(2, columns + 1), key=lambda each: (-count % each, -each))
    figure, panels = canvas(-(-count // columns), columns, width, height, title)
    for panel in panels.flat[count:]:
        panel.remove()
    return figure, list(panels.flat[:count])


def table(rows: int, columns: int, title: str) -> tuple[Figure, np.ndarray]:
    """Small panels [rows, columns]; one row is wrapped."""
    if rows > 1:
        figure, found = canvas(rows, columns, 3.2, 2.5, title)
    else:
        figure, panels = wrapped(columns, 3.2, 2.5, title)
        found = np.empty((1, columns), dtype=object)
        found[0] = panels
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + LEGEND, height)
    return figure, found


def abreast(panel: Axes) -> int:
    """How many panels stand side by side, the last of which has the legend of all."""
    place = panel.get_subplotspec()
    assert place is not None
    return int(place.get_gridspec().ncols)


LETTER, KEY = 0.6 / 72, 1.8
"""Inches that a letter is wide, for each point of its size, and that the words of a legend may take."""

LEGEND = 1.2
"""Inches beside small panels for their legend."""


def inches(panel: Axes) -> float:
    """The width of the place of a panel."""
    figure = panel.get_figure(root=True)
    assert figure is not None
    return float(figure.get_size_inches()[0] / abreast(panel))


def folded(figure: Figure) -> Figure:
    """Titles and labels that are longer than what they stand at go on in another line; the figure grows for its own."""
    width, height = figure.get_size_inches()
    for panel in figure.axes:
        if (place := panel.get_subplotspec()) is None:  # a bar of colours
            continue
        rows, columns = place.get_gridspec().get_geometry()
        across, up = 0.7 * width / columns, 0.7 * height / rows  # numbers and labels take the rest
        for text, inches in ((panel.title, across), (panel.xaxis.label, across), (panel.yaxis.label, up)):
            text.set_text(fold(text.get_text(), inches, float(text.get_fontsize())))
        for text in () if (key := panel.get_legend()) is None else key.get_texts():
            text.set_text(fold(text.get_text(), KEY, float(text.get_fontsize())))
    before = figure.get_suptitle()
    if before:
        after = fold(before, width, TITLE)
        figure.suptitle(after, fontsize=TITLE)
        figure.set_size_inches(width, height + 0.2 * (after.count("\n") - before.count("\n")))
    return figure


def fold(text: str, inches: float, size: float) -> str:
    """Text in lines that are no wider."""
    letters = max(int(0.95 * inches / (LETTER * size)), 8)
    return "\n".join(textwrap.fill(line, letters) for line in text.split("\n"))


def share(panels: np.ndarray) -> None:
    """Panels of a row have one vertical axis."""
    for line in panels:
        for panel in line[1:]:
            panel.sharey(line[0])
        line[0].autoscale(axis="y")


def plain(text: str) -> str:
    """A user's text: a dollar sign begins no formula, and nothing moves."""
    return printable(text).replace("$", r"\$")


def title_of(fit: Fit) -> str:
    """What the model is called."""
    return fit.program.declarations.title or fit.program.declarations.name


def unit_of(fit: Fit, name: str) -> str:
    """Words for the unit of a quantity that has not that of an output, where outputs were standardised."""
    outputs, known = fit.program.declarations.outputs, located(fit.program, fit.standardised).sds
    return " (standardised)" if name not in {*outputs, *known} and {*outputs} & {*known} else ""


def thinned(count: int, most: int = POINTS) -> np.ndarray:
    """Numbers of rows in order: all, or a random part."""
    return np.arange(count) if count <= most else np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def scatter(panel: Axes, x: Any, y: Any, **looks: Any) -> None:
    """Points; many of them as an image."""
    size = 5.0 if len(x) <= 100 else 4.0 if len(x) <= 1000 else 2.0
    panel.plot(x, y, ".", **({"ms": size, "mew": 0, "rasterized": len(x) > RASTER} | looks))


def elements(fit: Fit, name: str, shape: Sequence[int], most: int) -> list[tuple[tuple[int, ...], str]]:
    """The first elements of a quantity and what they are called: `y[2]`, `f[c=4]` where an index has levels."""
    program = fit.program
    axes = [str(axis.name) for axis in program.declarations.axes_of(name)]

    def subscript(axis: str, number: int) -> str:
        declared = program.declarations.indices.get(axis)
        levels = program.levels.get(axis) or (declared and declared.levels)
        return f"{axis}={levels[number]}" if levels else str(number + 1)

    def named(place: tuple[int, ...]) -> str:
        inside = ", ".join(subscript(*each) for each in zip(axes, place, strict=True))
        return plain(f"{name}[{inside}]" if inside else name)

    return [(place, named(place)) for place in _first(np.ndindex(*shape), most)]


def _first(places: Iterator[tuple[int, ...]], most: int) -> Iterator[tuple[int, ...]]:
    return (place for _, place in zip(range(most), places, strict=False))


def element(values: np.ndarray, place: tuple[int, ...]) -> np.ndarray:
    """One element of [rows, *axes] in all rows."""
    at: Any = (slice(None), *place)
    found: np.ndarray = values[at]
    return found


COLOURS = ["#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"]
"""Ten that those who see few colours can tell apart as well (Petroff 2021)."""


def colours(count: int, *, ordered: bool = False) -> list[Any]:
    """Colours that can be told apart; of levels in order, from dark to light."""
    from matplotlib import colormaps

    if ordered:
        return [colormaps["viridis"](each) for each in np.linspace(0.0, 0.9, count)]
    if count <= len(COLOURS):
        return [*COLOURS[:count]]
    return [colormaps["tab20"](each % 20) for each in range(count)]


def ink(strength: float) -> Any:
    """The colour of texts, so strong: grey on white, and on black in a dark style."""
    from matplotlib import rcParams
    from matplotlib.colors import to_rgba

    return to_rgba(rcParams["text.color"], strength)


BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
"""Where a legend hides nothing."""


def legend(panel: Axes, left: int = 0, **where: Any) -> None:
    """A legend beside a panel where something has a label; it says how many elements are left out."""
    if left > 0:
        panel.plot([], [], " ", label=f"and {left} more")
    if panel.get_legend_handles_labels()[0]:
        found = panel.legend(**({"frameon": False, "fontsize": 8} | BESIDE | where))
        for each in found.get_lines():
            if each.get_marker() == ".":  # of many points, too small to be seen alone
                each.set_markersize(6.0)


def unshown(shape: Sequence[int], most: int) -> int:
    """How many elements are more than are shown."""
    return max(int(np.prod(shape, dtype=int)) - most, 0)


def save(figure: Figure, path: Path) -> None:
    """Write a figure. Raises GpdslError for names of no known kind and where nothing can be written."""
    kind = path.suffix.lower().removeprefix(".") or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        raise GpdslError(f"cannot draw {path}: expected a name ending in {', '.join(FORMATS)}")
    with written(path, "wb") as file:
        figure.savefig(file, format=kind, dpi=150)
