"""Does the model suit its data: calibration, randomised quantile residuals, and rootograms of counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy
from scipy.special import ndtri

from gpdsl.errors import GpdslError
from gpdsl.results.pictures import style
from gpdsl.results.pictures.rows import Seen, mean_or_median
from gpdsl.results.prediction import Prediction
from gpdsl.results.scored import DRAWS, places_drawn
from gpdsl.results.table import predictable_outputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS, ELEMENTS = 10, 6
LEVELS = np.linspace(0.02, 0.98, 49)
FURTHEST = 1e-12


def residuals(seen: Seen, names: Sequence[str]) -> Figure:
    """Of each output: residuals against the mean, and their quantiles against those of a standard normal."""
    _, prediction = seen.part
    figure, panels = style.canvas(len(names), 2, 4.2, 3.1, style.title_of(seen.fit))
    for name, (left, right) in zip(names, panels, strict=True):
        found = ndtri(np.clip(places_in(seen, name), FURTHEST, 1 - FURTHEST))
        output = seen.fit.program.declarations.outputs[name]
        centre = prediction.mean(name).max(axis=-1) if output.label else mean_or_median(prediction, name)
        shown = style.elements(seen.fit, name, found.shape[1:], ELEMENTS)
        for (place, label), colour in zip(shown, style.colours(len(shown)), strict=True):
            own = style.element(found, place)
            style.scatter(left, style.element(centre, place), own, color=colour)
            ordered = np.sort(own[np.isfinite(own)])
            normal = ndtri((np.arange(len(ordered)) + 0.5) / max(len(ordered), 1))
            style.scatter(right, normal, ordered, color=colour, label=label if len(shown) > 1 else None)
        for height in (-1.96, 0, 1.96):
            left.axhline(height, color=style.ink(0.4), lw=0.8, ls="-" if height == 0 else "--")
        right.axline((0, 0), slope=1, color=style.ink(0.4), lw=0.8)
        what = "probability of the likeliest level" if output.label else "predicted mean"
        left.set(xlabel=style.plain(f"{name}: {what}"), ylabel="quantile residual")
        right.set(xlabel="standard normal quantile", ylabel="quantile residual")
        style.legend(right, style.unshown(found.shape[1:], ELEMENTS))
    return figure


def calibration(seen: Seen, names: Sequence[str]) -> Figure:
    """Of each output, how often the data lie in central intervals, or how often what has a probability happens."""
    part, prediction = seen.part
    figure, axes = style.wrapped(len(names), 4.0 + style.LEGEND, 3.6, style.title_of(seen.fit), most=3)
    for axis, name in zip(axes, names, strict=True):
        output, values = seen.fit.program.declarations.outputs[name], _values(part, name)
        axis.plot([0, 1], [0, 1], color=style.ink(0.4), lw=0.8)
        if output.label is not None or output.kind == "binary":
            _reliability(axis, prediction, name, values)
            continue
        found = places_in(seen, name)
        count = int(np.isfinite(found).sum(axis=0).min()) if found.size else 0
        low, high = (scipy.stats.binom.ppf(p, max(count, 1), LEVELS) / max(count, 1) for p in (0.025, 0.975))
        axis.fill_between(LEVELS, low, high, color=style.ink(0.1), lw=0, label="95% of samples of this size")
        shown = style.elements(seen.fit, name, found.shape[1:], ELEMENTS)
        for (place, label), colour in zip(shown, style.colours(len(shown)), strict=True):
            away = 2 * np.abs(style.element(found, place) - 0.5)
            away = away[np.isfinite(away)]
            axis.plot(LEVELS, [np.mean(away <= level) for level in LEVELS], color=colour, label=label)
        axis.set(xlabel="probability of a central interval", ylabel="share of the data inside")
        style.legend(axis, style.unshown(found.shape[1:], ELEMENTS))
    return figure


def _reliability(axis: Axes, prediction: Prediction, name: str, values: np.ndarray) -> None:
    """How often what has a probability happens, with 95% intervals; of labels one line for each level."""
    chances, known = prediction.mean(name), np.isfinite(values)
    output = prediction.beliefs.program.declarations.outputs[name]
    if output.label is None:
        lines = [(style.plain(f"{name} = {prediction.levels(name)[1]}"), chances[known], values[known] == 1)]
    else:
        levels = enumerate(prediction.levels(name))
        lines = [(style.plain(str(level)), chances[known][:, n], values[known] == n) for n, level in levels]
    for (label, chance, happened), colour in zip(
        lines, style.colours(len(lines), ordered=output.kind == "ordinal"), strict=True
    ):
        bins = np.minimum((chance * BINS).astype(int), BINS - 1)
        full = [each for each in range(BINS) if np.any(bins == each)]
        x = np.array([chance[bins == each].mean() for each in full])
        count = np.array([np.sum(bins == each) for each in full])
        y = np.array([happened[bins == each].mean() for each in full])
        spread = 1.96 * np.sqrt(np.maximum(y * (1 - y), 0.25 / count) / count)
        ends = [np.minimum(spread, y), np.minimum(spread, 1 - y)]
        axis.errorbar(x, y, yerr=ends, color=colour, marker="o", ms=3, lw=1, elinewidth=0.8, label=label)
    axis.plot([], [], "|", color=style.ink(0.6), label="95% interval")
    axis.set(xlabel="predicted probability", ylabel="share of the data")
    style.legend(axis)


def rootogram(seen: Seen, names: Sequence[str]) -> Figure:
    """Of each output that counts: square roots of how often each count is expected, and the data hanging from it.

    A bar that ends above or below zero shows too few or too many of a count (Kleiber and Zeileis 2016).
    """
    from matplotlib.ticker import MaxNLocator

    part, prediction = seen.part
    figure, axes = style.wrapped(len(names), 5.0 + style.LEGEND, 3.2, style.title_of(seen.fit), most=2)
    for axis, name in zip(axes, names, strict=True):
        values = _values(part, name)
        known = np.isfinite(values)
        drawn = prediction.sample(name, DRAWS)[:, known]
        most = int(max(values[known].max(), np.quantile(drawn, 0.999)))
        least = int(min(values[known].min(), np.quantile(drawn, 0.001)))
        least = 0 if 4 * least < most else least
        width = -(-(most + 1 - least) // 40)
        edges = np.arange(least, most + 1 + width, width) - 0.5
        expected = np.sqrt(np.histogram(drawn, edges)[0] / DRAWS)
        met = np.sqrt(np.histogram(values[known], edges)[0])
        centre = (edges[:-1] + edges[1:]) / 2
        axis.bar(centre, met, width * 0.85, bottom=expected - met, color=style.ink(0.25), label="observed")
        axis.plot(centre, expected, "o-", ms=3, color="C3", label="expected")
        axis.axhline(0, color=style.ink(1.0), lw=0.8)
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set(xlabel=style.plain(name), ylabel="root of the number of rows")
        style.legend(axis)
    return figure


def places_in(seen: Seen, name: str) -> np.ndarray:
    """Where observed values of some rows lie in their predictive distributions [rows, *axes]; NaN of none."""
    if name not in seen.places:
        part, prediction = seen.part
        seen.places[name] = places_drawn(prediction, name, _values(part, name))
    return seen.places[name]


def outputs_seen(seen: Seen) -> list[str]:
    """The outputs with a distribution of which the data have values."""
    return [n for n in predictable_outputs(seen.fit.program.declarations) if seen.observed(n) is not None]


def _values(seen: Seen, name: str) -> np.ndarray:
    values = seen.observed(name)
    if values is None:
        raise GpdslError(f"the data have no value of `{name}`: pass data with a column of it")
    return values
