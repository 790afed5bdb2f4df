"""How inference went and what it learnt: the bound against steps, inducing points, parameters and their priors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gpdsl.errors import GpdslError
from gpdsl.inference.problem import as_arrays
from gpdsl.kernels.functionals import Functionals, every_point
from gpdsl.language.model import interval
from gpdsl.program.cache import precision
from gpdsl.results.fit import Fit
from gpdsl.results.pictures import style
from gpdsl.results.pictures.maps import axis_of
from gpdsl.results.pictures.rows import Column, Seen
from gpdsl.results.summary import estimate, evidence_word, in_data_units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS, SHOWN = 12, 40
GRID = 1000
SMALL = 0.1
"""Nats below which a change of the bound is not worth a picture."""
ENDS = (0.05, 0.95)
FAR = 7.0
"""Of the logarithm of a value: an interval that is wider says no more."""
NORMAL = 1.645
"""Standard deviations of a normal distribution on either side of its middle that hold 90%."""


def bound(fit: Fit) -> Figure:
    """What was maximised against steps and seconds. Raises GpdslError where nothing was."""
    if not len(fit.history):
        raise GpdslError("there were no steps: nothing was learnt that has no formula, so there is no bound to follow")
    if len(fit.history) < 2:
        raise GpdslError("the bound was noted at one step alone, so there is nothing to follow: take more steps")
    from matplotlib.ticker import MaxNLocator

    step, value, seconds = fit.history.T
    figure, panels = style.canvas(1, 2, 4.2, 3.0, style.title_of(fit))
    for panel, along, label in zip(panels[0], (step, seconds), ("step", "seconds"), strict=True):
        panel.plot(along, value, lw=1.2)
        panel.set(xlabel=label, ylabel=f"{evidence_word(fit)} (nats)")
        rest = value[len(value) // 10 :]
        panel.ticklabel_format(axis="y", useOffset=False)
        if along is step:
            panel.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        if np.ptp(value) < SMALL:  # digits that nobody asks for
            panel.set_ylim(value[-1] - SMALL, value[-1] + SMALL)
        elif np.ptp(rest) and np.ptp(value) > 20 * np.ptp(rest):  # the first steps would hide the others
            panel.set_ylim(rest.min() - 0.5 * np.ptp(rest), rest.max() + 0.1 * np.ptp(rest))
    return figure


def inducing(fit: Fit, seen: Seen | None) -> Figure:
    """Where inducing points ended: over two inputs, else input by input, above the data."""
    asked = [fit.choice.of(group.names[0]) for group in fit.program.groups if fit.inducing]
    place = next((p for p, each in enumerate(asked) if not (each.dense or each.features)), 0)
    inputs = fit.program.groups[place].inputs if fit.inducing else ()
    names = [name for name in inputs if name in fit.program.declarations.inputs]
    if not names or asked[place].dense or asked[place].features:
        raise GpdslError("this posterior has no inducing points: it is over all rows, or over weights or fields")
    assert seen is not None
    found = _points(fit, fit.inducing[place], names, seen)
    if len(found) == 2:
        figure, panels = style.canvas(1, 1, 5.0, 4.2, style.title_of(fit))
        panel, rows = panels[0, 0], style.thinned(seen.rows)
        data, points = zip(
            *((seen.drawn(c, c.values[rows]), seen.drawn(c, points)) for c, points in found), strict=True
        )
        if seen.data is not None:
            style.scatter(panel, *data, color=style.ink(0.3), label="data")
        panel.plot(*points, "x", color="C3", ms=5, label="inducing points")
        for axis, (column, _) in zip((panel.xaxis, panel.yaxis), found, strict=True):
            axis_of(axis, column)
        style.legend(panel)
        return figure
    figure, axes = style.wrapped(min(len(found), COLUMNS), 3.4 if len(found) > 1 else 7.0, 2.4, style.title_of(fit))
    for panel, (column, points) in zip(axes, found, strict=False):
        if seen.data is not None:
            edges = replace(column, values=np.concatenate([points, column.values])).grid(41)
            high, _ = np.histogram(column.values, edges)
            panel.stairs(high, seen.drawn(column, edges), fill=True, color=style.ink(0.2), label="data")
        panel.plot(seen.drawn(column, points), np.zeros(len(points)), "|", color="C3", ms=12, label="inducing points")
        axis_of(panel.xaxis, column)
        panel.set_yticks([])
    style.legend(axes[style.abreast(axes[0]) - 1])
    return figure


def embedding(fit: Fit, data: Any, name: str) -> Figure:
    """Where a variable puts the rows: over the two of its coordinates that tell most apart, or one above the other.

    Bars are 90% intervals. A coordinate tells rows apart as far as their means differ.
    """
    found = fit.row_variables(data)[name]
    places = list(np.ndindex(found.mean.shape[1:]))
    spread = [float(np.std(style.element(found.mean, place))) for place in places]
    shown = style.thinned(len(found.mean))
    figure, panels = style.canvas(1, 1, 5.0, 4.2, style.title_of(fit))
    panel, looks = panels[0, 0], {"fmt": "o", "ms": 3, "elinewidth": 0.5, "ecolor": style.ink(0.3)}
    chosen = sorted(np.argsort(spread)[::-1][:2])
    means, bars = ([style.element(each, places[i])[shown] for i in chosen] for each in (found.mean, NORMAL * found.sd))
    labels = [style.plain(f"{name}{[number + 1 for number in places[i]] or ''}") for i in chosen]
    if len(chosen) == 1:
        panel.errorbar(shown + 1, means[0], bars[0], **looks)
        panel.set(xlabel="row", ylabel=labels[0])
        return figure
    panel.errorbar(means[0], means[1], bars[1], bars[0], **looks)
    more = f" of {len(places)} coordinates" if len(places) > 2 else ""
    panel.set(xlabel=f"{labels[0]}{more}", ylabel=labels[1])
    return figure


def _points(fit: Fit, inducing: Functionals, names: list[str], seen: Seen) -> list[tuple[Column, np.ndarray]]:
    """Columns, with where inducing points are in each."""
    points, start, found = np.asarray(every_point(inducing)), 0, []
    for name in names:
        shape = fit.program.translator.shape(fit.program.declarations.inputs[name].axes)
        width = int(np.prod(shape, dtype=int))
        own = fit.standardised.back(name, points[:, start : start + width].reshape(len(points), *shape))
        start += width
        for place in np.ndindex(*shape):
            column = next((c for c in seen.columns if (c.name, c.place) == (name, place)), None)
            if column is not None:
                found.append((column, style.element(own, place)))
    return found


def parameters(fit: Fit) -> Figure:
    """Every learnt value with its 90% interval, positive ones on a logarithmic axis, and 90% of its prior.

    Values are in the units of the data where the model tells them. Intervals are those of the posterior where
    parameters are averaged over, else by standard errors; the data may leave a parameter open, which then has none.
    """
    declared, held = fit.program.declarations.params, fit.program.parameters.held
    names = [name for name in fit.parameters if name not in held]
    if not names:
        raise GpdslError("the fit has no learnt parameters: nothing to draw of them")
    positive = [name for name in names if declared[name].positive]
    parts = [each for each in (positive, [name for name in names if name not in positive]) if each]
    rows = [list(_values(fit, part))[:SHOWN] for part in parts]
    figure, panels = style.canvas(1, len(parts), 4.4, 1.0 + 0.24 * max(map(len, rows)), style.title_of(fit))
    said = "90% of the posterior" if fit.settings is not None else "90% by its standard error"
    for panel, part, shown in zip(panels[0], parts, rows, strict=True):
        heights = -np.arange(len(shown))
        if part is positive:
            _logarithmic(panel, np.concatenate([each.ends for each in shown]))
        for height, each in zip(heights, shown, strict=True):
            if each.prior is not None:
                panel.plot(each.prior, [height] * 2, color=style.ink(0.15), lw=6, solid_capstyle="butt", zorder=1)
            if each.interval is not None:
                panel.plot(each.interval, [height] * 2, color="C0", lw=1.5, zorder=2)
        panel.plot([each.value for each in shown], heights, "o", color="C0", ms=5, label="learnt", zorder=3)
        if any(each.interval is not None for each in shown):
            panel.plot([], [], color="C0", lw=1.5, label=said)
        if any(each.prior is not None for each in shown):
            panel.plot([], [], color=style.ink(0.15), lw=6, label="90% of the prior")
        panel.set_yticks(heights, [each.label for each in shown])
        panel.set_ylim(heights[-1] - 0.6, 0.6)
        panel.grid(axis="x", color=style.ink(0.08))
    style.legend(max(panels[0], key=lambda each: len(each.get_legend_handles_labels()[0])), **ABOVE)
    return figure


ABOVE: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 3, "handlelength": 1.2}


def _logarithmic(panel: Axes, values: np.ndarray) -> None:
    """A logarithmic axis with a few numbers as people write them; a plain one where values are near each other."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    if values.max() < 5 * values.min():
        panel.xaxis.set_major_locator(MaxNLocator(5))
        return
    decades = np.log10(values.max() / values.min())
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2 else (1.0, 2.0, 5.0), numticks=6))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter("{x:g}")


class _Shown(NamedTuple):
    """One element of a parameter."""

    label: str
    value: float
    interval: np.ndarray | None
    prior: np.ndarray | None

    @property
    def ends(self) -> np.ndarray:
        """What is drawn of it."""
        there = [each for each in (np.array([self.value]), self.interval, self.prior) if each is not None]
        return np.concatenate(there)


def _values(fit: Fit, names: list[str]) -> Iterator[_Shown]:
    for name in names:
        values = np.asarray(estimate(fit, name), float)
        factors = np.broadcast_to(in_data_units(fit, name), values.shape)
        for place, label in style.elements(fit, name, values.shape, SHOWN):
            factor, unit = float(factors[place]), ""
            if not np.isfinite(factor):
                factor, unit = 1.0, " (standardised)" if fit.standardised.sds else ""
            ends = (_interval(fit, name, place), _prior(fit, name, place))
            interval, prior = (None if each is None else factor * each for each in ends)
            yield _Shown(f"{label}{unit}", factor * float(values[place]), interval, prior)


def _interval(fit: Fit, name: str, place: tuple[int, ...]) -> np.ndarray | None:
    """Where 90% of what is believed of one element lies; None where nothing is known of it.

    A standard error is one of the logarithm of a positive value, of the value of another, which keeps to its bounds.
    """
    param = fit.program.declarations.params[name]
    if fit.settings is not None:
        return np.array([np.asarray(fit.settings.quantile(name, p))[place] for p in ENDS])
    error = float(np.broadcast_to(fit.standard_errors.get(name, np.nan), np.shape(fit.parameters[name]))[place])
    if not np.isfinite(error):
        return None
    value, away = float(np.asarray(fit.parameters[name])[place]), NORMAL * error * np.array([-1.0, 1.0])
    if param.positive:
        return np.asarray(value * np.exp(np.clip(away / value, -FAR, FAR)))
    return np.asarray(np.clip(value + away, *interval(param)))


def _prior(fit: Fit, name: str, place: tuple[int, ...]) -> np.ndarray | None:
    """Where 90% of the prior of one element lies, the others at their values; None without a prior of it alone."""
    param = fit.program.declarations.params[name]
    if param.prior is None or param.constraint in {"simplex", "ordered"}:
        return None
    value = abs(float(np.asarray(fit.parameters[name])[place])) or 1.0
    far = np.geomspace(1e-6, 1e4, GRID) * max(value, 1e-6)
    grid = far if param.positive else np.concatenate([-far[::-1], far])
    low, high = (-np.inf if param.lower is None else param.lower), (np.inf if param.upper is None else param.upper)
    grid = grid[(grid > low) & (grid < min(high, 1.0 if param.constraint == "unit" else np.inf))]
    with precision(fit.options.dtype):
        known = as_arrays(dict(fit.parameters), fit.options.dtype)

        def density(at: jax.Array) -> jax.Array:
            return jnp.asarray(fit.program.log_prior(known | {name: jnp.asarray(known[name]).at[place].set(at)}))

        log = np.asarray(jax.vmap(density)(jnp.asarray(grid, known[name].dtype)), float)
    if not np.isfinite(log).any():
        return None
    weight = np.exp(log - np.nanmax(log))
    mass = np.concatenate([[0.0], np.cumsum((weight[1:] + weight[:-1]) / 2 * np.diff(grid))])
    return np.interp([0.05, 0.95], mass / mass[-1], grid) if mass[-1] > 0 else None
