"""How inference went and what it learnt: the bound against steps, inducing points, parameters and their priors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gpdsl.errors import GpdslError
from gpdsl.inference.problem import as_arrays
from gpdsl.kernels.functionals import every_point
from gpdsl.program.cache import precision
from gpdsl.results.fit import Fit
from gpdsl.results.pictures.rows import Seen
from gpdsl.results.pictures.style import canvas, element, elements, legend, scatter, thinned, title_of, wrapped
from gpdsl.results.summary import evidence_word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS, SHOWN = 12, 40
GRID = 1000


def bound(fit: Fit) -> Figure:
    """What was maximised against steps and seconds. Raises GpdslError where nothing was."""
    if len(fit.history) < 2:
        raise GpdslError("there were no steps: nothing was learnt that has no formula, so there is no bound to follow")
    step, value, seconds = fit.history.T
    figure, panels = canvas(1, 2, 4.2, 3.0, title_of(fit))
    for panel, along, label in zip(panels[0], (step, seconds), ("step", "seconds"), strict=True):
        panel.plot(along, value, lw=1.2)
        panel.set(xlabel=label, ylabel=f"{evidence_word(fit)} (nats)")
        rest = value[len(value) // 10 :]
        if np.ptp(rest) and np.ptp(value) > 20 * np.ptp(rest):  # the first steps would hide the others
            panel.set_ylim(rest.min() - 0.5 * np.ptp(rest), rest.max() + 0.1 * np.ptp(rest))
    return figure


def inducing(fit: Fit, seen: Seen | None) -> Figure:
    """Where inducing points ended: over two inputs, else input by input, above the data."""
    names = [n for n in fit.program.groups[0].inputs if n in fit.program.declarations.inputs] if fit.inducing else []
    if fit.choice.dense or not names or fit.choice.features:
        raise GpdslError("this posterior has no inducing points: it is over all rows, or over weights or fields")
    assert seen is not None
    found = _points(fit, names, seen)
    if len(found) == 2:
        figure, panels = canvas(1, 1, 5.0, 4.2, title_of(fit))
        (one, other), panel = found, panels[0, 0]
        if one.data is not None and other.data is not None:
            rows = thinned(len(one.data))
            scatter(panel, one.data[rows], other.data[rows], color="0.7", label="data")
        panel.plot(one.points, other.points, "x", color="C3", ms=5, label="inducing points")
        panel.set(xlabel=one.label, ylabel=other.label)
        legend(panel, loc="upper left", bbox_to_anchor=(1, 1))
        return figure
    figure, axes = wrapped(min(len(found), COLUMNS), 3.4 if len(found) > 1 else 7.0, 2.4, title_of(fit))
    for number, (panel, each) in enumerate(zip(axes, found, strict=False)):
        both = np.concatenate([each.points, each.data])
        bins = np.linspace(both.min(), both.max(), 41)
        panel.hist(each.data, bins.tolist(), color="0.8", label="data", density=True)
        panel.plot(each.points, np.zeros(len(each.points)), "|", color="C3", ms=12, label="inducing points")
        panel.set(xlabel=each.label, yticks=[])
        if number == 0:
            legend(panel)
    return figure


class _Along(NamedTuple):
    """One column of inducing points, and of the data."""

    label: str
    points: np.ndarray
    data: np.ndarray


def _points(fit: Fit, names: list[str], seen: Seen) -> list[_Along]:
    points, start, found = np.asarray(every_point(fit.inducing[0])), 0, []
    for name in names:
        shape = fit.program.translator.shape(fit.program.declarations.inputs[name].axes)
        width = int(np.prod(shape, dtype=int))
        own = fit.standardised.back(name, points[:, start : start + width].reshape(len(points), *shape))
        start += width
        for place in np.ndindex(*shape):
            column = next((c for c in seen.columns if (c.name, c.place) == (name, place)), None)
            if column is not None:
                found.append(_Along(column.label, element(own, place), column.values))
    return found


def parameters(fit: Fit) -> Figure:
    """Every learnt value, positive ones on a logarithmic axis, with 90% of its prior where it has one.

    They are point estimates: a prior is what is known of their uncertainty.
    """
    declared, held = fit.program.declarations.params, fit.program.parameters.held
    names = [name for name in fit.parameters if name not in held]
    if not names:
        raise GpdslError("the fit has no learnt parameters: nothing to draw of them")
    positive = [name for name in names if declared[name].positive]
    parts = [each for each in (positive, [name for name in names if name not in positive]) if each]
    rows = [list(_values(fit, part))[:SHOWN] for part in parts]
    figure, panels = canvas(1, len(parts), 4.4, 1.0 + 0.24 * max(map(len, rows)), title_of(fit))
    for panel, part, shown in zip(panels[0], parts, rows, strict=True):
        heights = -np.arange(len(shown))
        if part is positive:
            ends = [each.value if each.prior is None else each.prior for each in shown]
            _logarithmic(panel, np.concatenate([np.atleast_1d(each) for each in ends]))
        for height, (_, _, prior) in zip(heights, shown, strict=True):
            if prior is not None:
                panel.plot(prior, [height] * 2, color="0.75", lw=5, solid_capstyle="butt", zorder=1)
        panel.plot([each.value for each in shown], heights, "o", color="C0", ms=5, label="learnt", zorder=3)
        if any(each.prior is not None for each in shown):
            panel.plot([], [], color="0.75", lw=5, label="90% of the prior")
        panel.set_yticks(heights, [each.label for each in shown])
        panel.set_ylim(heights[-1] - 0.6, 0.6)
        panel.grid(axis="x", color="0.92")
    legend(panels[0, 0], loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure


def _logarithmic(panel: Axes, values: np.ndarray) -> None:
    """A logarithmic axis with a few numbers as people write them."""
    from matplotlib.ticker import LogLocator, NullLocator

    wide = values.max() > 100 * values.min()
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=8))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter("{x:g}")


class _Shown(NamedTuple):
    """One element of a parameter."""

    label: str
    value: float
    prior: np.ndarray | None


def _values(fit: Fit, names: list[str]) -> Iterator[_Shown]:
    for name in names:
        values = np.asarray(fit.parameters[name], float)
        for place, label in elements(fit, name, values.shape, SHOWN):
            yield _Shown(label, float(values[place]), _prior(fit, name, place))


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
