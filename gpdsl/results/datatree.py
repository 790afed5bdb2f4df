"""A fit as an xarray tree in the groups that ArviZ reads: posterior, predictive, log likelihood, and the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from gpdsl.data import Data
from gpdsl.data.times import words_of
from gpdsl.errors import GpdslError
from gpdsl.language.model import Axis
from gpdsl.program.cache import precision
from gpdsl.results.density import is_opaque, log_densities
from gpdsl.results.draws import Together
from gpdsl.results.named import check_draws
from gpdsl.results.table import default_names, predictable_outputs
from gpdsl.symbolic.reduced import field_quantities

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

    from gpdsl.results.fit import Fit
    from gpdsl.results.prediction import Prediction

Variable = tuple[tuple[str, ...], np.ndarray]


def datatree(fit: Fit, data: Any, draws: int, seed: int) -> DataTree:
    """See `Fit.to_datatree`. Raises GpdslError where xarray is not installed."""
    try:
        import xarray as xr
    except ImportError as problem:
        raise GpdslError("to_datatree needs xarray: install gpdsl[xarray]") from problem
    seed = check_draws("to_datatree", draws, seed)
    declared = fit.program.declarations
    learnt = _learnt(fit, draws, seed)
    groups = {"posterior": {name: _named(fit, name, ("chain", "draw"), each) for name, each in learnt.items()}}
    if data is not None:
        bound, prediction = fit.bind(data, None, outputs=False), fit.predict(data)
        fields = field_quantities(declared)

        def drawn(name: str) -> Variable:
            lead = ("chain", "draw") if name in fields else ("chain", "draw", "row")
            return _named(fit, name, lead, prediction.draws(name, draws, seed=seed)[None])

        groups["posterior"] |= {name: drawn(name) for name in (*declared.latents, *declared.lets)}
        groups["posterior_predictive"] = {name: drawn(name) for name in predictable_outputs(declared)}
        seen = {name: np.where(bound.observed[name], each, np.nan) for name, each in bound.outputs.items()}
        first = {name: 0 if declared.outputs[name].label is None else 1 for name in seen}  # draws number levels from 1
        groups["observed_data"] = {name: _named(fit, name, ("row",), each + first[name]) for name, each in seen.items()}
        if bound.observed and not (declared.rows or is_opaque(fit.program)):
            name = "rows" if len(seen) > 1 else next(iter(seen))
            values = _log_likelihood(fit, bound, prediction, draws, seed)
            groups["log_likelihood"] = {name: (("chain", "draw", "row"), values)}
        known = {**bound.inputs, **words_of(declared.inputs, bound.inputs, bound.every_level)}
        groups["constant_data"] = {name: _named(fit, name, ("row",), each) for name, each in known.items()}
    about = {"inference_library": "gpdsl", "model": declared.name, "elbo": fit.elbo, "message": fit.message}
    return xr.DataTree.from_dict({group: xr.Dataset(each, attrs=about) for group, each in groups.items()})


def _log_likelihood(
    fit: Fit, bound: Data, prediction: Prediction, draws: int, seed: int
) -> Float[np.ndarray, "1 draws rows"]:
    """log p(y_n | f_n) of each row at the draws of the posterior, of its outputs together; NaN of rows without any."""

    def at_draws(each: Prediction, count: int, seed: int) -> np.ndarray:
        drawn = Together(each.beliefs).draws(count, np.random.default_rng(seed))
        values = np.asarray(log_densities(each.beliefs, drawn.latents, {}))
        number, row = np.indices(drawn.component.shape)
        return values[number, drawn.component, row]

    with precision(fit.options.dtype):
        found = prediction.over_settings(draws, seed, at_draws)
    there = np.any([each.reshape(bound.rows, -1).any(axis=1) for each in bound.observed.values()], axis=0)
    return np.where(there, found - fit.standardised.log_jacobian(bound.observed), np.nan)[None]


def dataset_of(prediction: Prediction, names: Sequence[str] | None, quantiles: Sequence[float]) -> Dataset:
    """See `Prediction.to_xarray`. Raises GpdslError where xarray is not installed."""
    try:
        import xarray as xr
    except ImportError as problem:
        raise GpdslError("to_xarray needs xarray: install gpdsl[xarray]") from problem
    assert prediction.origin is not None
    fit, index = prediction.origin.fit, prediction.origin.index
    declared, found = fit.program.declarations, {}
    fields, coordinates = field_quantities(declared), dict[str, Any](_coordinates(prediction))
    for name in default_names(declared) if names is None else names:
        lead = () if name in fields else ("row",)
        output = declared.outputs.get(name)
        if output is not None and output.label is not None:
            dimensions, chances = _named(fit, name, lead, prediction.mean(name))
            level = output.label.name or f"{name}_level"
            found[f"{name}_p"] = (*dimensions, level), chances
            coordinates[level] = np.asarray(prediction.levels(name), dtype=object)
            found[f"{name}_label"] = dimensions, prediction.label(name)
            continue
        parts = {"mean": prediction.mean(name), "sd": np.sqrt(prediction.variance(name))}
        found |= {f"{name}_{part}": _named(fit, name, lead, values) for part, values in parts.items()}
        if quantiles:
            found[f"{name}_quantile"] = _named(fit, name, ("quantile", *lead), prediction.quantile(name, quantiles))
            coordinates["quantile"] = np.asarray(quantiles, float)
    if index is not None and len(index) == prediction.beliefs.count and getattr(index, "nlevels", 1) == 1:
        coordinates["row"] = np.asarray(index)
    return xr.Dataset(found, coordinates, {"model": declared.name})


def _coordinates(prediction: Prediction) -> Iterator[tuple[str, Variable]]:
    """The inputs of every row, times as dates, labels in words."""
    assert prediction.origin is not None
    for name, values in prediction.shown_inputs.items():
        yield name, _named(prediction.origin.fit, name, ("row",), values)


def _learnt(fit: Fit, draws: int, seed: int) -> dict[str, np.ndarray]:
    """Draws of the parameters: from their settings, or all alike."""
    if fit.settings is None:
        return {name: _everywhere(values, draws) for name, values in fit.parameters.items()}
    chosen = fit.settings.drawn(draws, np.random.default_rng(seed))
    return {
        name: np.stack([fit.settings.each[number].parameters[name] for number in chosen])[None]
        for name in fit.parameters
    }


def _everywhere(values: np.ndarray, draws: int) -> np.ndarray:
    """A point estimate as draws that are all alike."""
    return np.broadcast_to(values, (1, draws, *np.shape(values)))


def _named(fit: Fit, name: str, lead: tuple[str, ...], values: np.ndarray) -> Variable:
    """An array with the names of its axes; those of bare sizes are called as ArviZ calls them."""
    axes: tuple[Axis, ...] = fit.program.declarations.axes_of(name)
    return (*lead, *(axis.name or f"{name}_dim_{place}" for place, axis in enumerate(axes))), values
