"""Plots of fits with one-dimensional inputs: posterior mean and 90% band against the input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.data.times import as_data
from gpdsl.errors import GpdslError
from gpdsl.kernels.functionals import every_point
from gpdsl.replacing import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpdsl.results.fit import Fit
    from gpdsl.results.prediction import Prediction

BAND = (0.05, 0.95)
GRID = 400


def plot_fit(fit: Fit, data: Any = None, names: list[str] | None = None, path: str | Path | None = None) -> Figure:
    """One panel per name (outputs and lets by default), over the range of the input; observed outputs as points.

    `data` are the rows to show (needed when the fit is not dense). The figure is also written to `path` when given.
    Raises GpdslError for a model whose latents have more than one input column, and when matplotlib is missing.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise GpdslError("plots need matplotlib: install it with `pip install gpdsl[plot]`") from error
    del matplotlib
    d = fit.program.declarations
    if d.fields:
        raise GpdslError(
            "plot shows quantities against an input, and fields are over points of their own; plot "
            f"fit.predict(...).mean('{d.fields[0].name}') against these"
        )
    names = names or [*d.lets, *(o for o in d.outputs if d.outputs[o].label is None)] or list(d.latents)
    bound = None if data is None else fit.bind(data, None, outputs=False)
    variable, positions = _single_input(fit, bound)
    grid = np.linspace(positions.min(), positions.max(), GRID)
    figure = Figure(figsize=(8.0, 2.8 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 1, squeeze=False)[:, 0]
    rows, grid = _rows_for(fit, bound, variable, grid)
    prediction = fit.predict(as_data(d.inputs, fit.calendar, rows), {})
    grid, positions = (_drawn(fit, variable, each) for each in (grid, positions))
    for panel, name in zip(panels, names, strict=True):
        _panel(panel, prediction, name, grid)
        if bound is not None and name in bound.outputs and bound.observed[name].any():
            _points(panel, bound, name, positions)
        panel.set_xlabel(variable)
        panel.legend(loc="best", frameon=False, fontsize=8)
    figure.suptitle(d.title or d.name)
    if path is not None:
        _save(figure, Path(path))
    return figure


def _drawn(fit: Fit, variable: str, numbers: np.ndarray) -> np.ndarray:
    """Values of the input as they are drawn: times as dates, by the clock of their zone."""
    dates = as_data(fit.program.declarations.inputs, fit.calendar, {variable: numbers})[variable]
    return np.array([each.replace(tzinfo=None) for each in dates]) if dates.dtype == object else dates


def _save(figure: Figure, path: Path) -> None:
    kind = path.suffix.lower().removeprefix(".") or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        raise GpdslError(f"cannot draw {path}: expected a name ending in .png, .pdf or .svg")
    try:
        with replacing(path, "wb") as file:
            figure.savefig(file, format=kind, dpi=150)
    except OSError as problem:
        raise GpdslError(f"cannot write {path}: {problem.strerror}") from problem


def _single_input(fit: Fit, bound: Any) -> tuple[str, np.ndarray]:
    arguments = {a for g in fit.program.groups for a in g.inputs}
    if not fit.inducing and bound is None:
        raise GpdslError("a posterior over weights does not say where the rows were: pass data=... to plot")
    single = [name for name in arguments if not fit.program.declarations.inputs[name].axes]
    seen = np.asarray(every_point(fit.inducing[0])) if fit.inducing else np.zeros((0, len(single)))
    if len(arguments) == 1 and seen.shape[1] == 1:
        name = arguments.pop()
        if bound is None:
            return name, fit.standardised.back(name, seen[:, 0])
        return name, bound.inputs[name].reshape(bound.rows, -1)[:, 0]
    raise GpdslError(
        "plot shows models whose latents have one input column; for others, predict on the rows of interest and plot "
        "those"
    )


def _rows_for(fit: Fit, bound: Any, variable: str, grid: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A grid over the input; when other inputs enter (an exposure), the data's own rows in order instead."""
    others = [n for n in fit.program.declarations.inputs if n != variable]
    if not others:
        return {variable: grid}, grid
    if bound is None:
        raise GpdslError(f"plot needs data for the other inputs of the model ({', '.join(others)}): pass data=...")
    order = np.argsort(bound.inputs[variable].reshape(-1))
    return {n: v[order] for n, v in bound.inputs.items()}, bound.inputs[variable].reshape(-1)[order]


def _panel(panel: Axes, prediction: Prediction, name: str, grid: np.ndarray) -> None:
    mean = prediction.mean(name).reshape(grid.size, -1)
    low, high = (b.reshape(grid.size, -1) for b in prediction.quantile(name, BAND))
    for i in range(mean.shape[1]):
        label = name if mean.shape[1] == 1 else f"{name}[{i + 1}]"
        (line,) = panel.plot(grid, mean[:, i], label=f"{label}: mean")
        panel.fill_between(
            grid, low[:, i], high[:, i], alpha=0.25, color=line.get_color(), label="90% band" if i == 0 else None, lw=0
        )
    panel.set_ylabel(name)


def _points(panel: Axes, bound: Any, name: str, positions: np.ndarray) -> None:
    values = np.where(bound.observed[name], bound.outputs[name], np.nan).reshape(bound.rows, -1)
    for i in range(values.shape[1]):
        panel.plot(positions, values[:, i], ".", ms=3, color="0.3", label="observed" if i == 0 else None, zorder=1)
