"""A fit as an xarray tree in the groups that ArviZ reads: posterior, posterior predictive, and the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.errors import GpdslError
from gpdsl.language.model import Axis
from gpdsl.results.named import check_draws
from gpdsl.results.table import predictable_outputs
from gpdsl.symbolic.reduced import field_quantities

if TYPE_CHECKING:
    from xarray import DataTree

    from gpdsl.results.fit import Fit

Variable = tuple[tuple[str, ...], np.ndarray]


def datatree(fit: Fit, data: Any, draws: int, seed: int) -> DataTree:
    """See `Fit.to_datatree`. Raises GpdslError where xarray is not installed."""
    try:
        import xarray as xr
    except ImportError as problem:
        raise GpdslError("to_datatree needs xarray: install gpdsl[xarray]") from problem
    seed = check_draws("to_datatree", draws, seed)
    declared = fit.program.declarations
    learnt = {name: _everywhere(values, draws) for name, values in fit.parameters.items()}
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
        groups["constant_data"] = {name: _named(fit, name, ("row",), each) for name, each in bound.inputs.items()}
    about = {"inference_library": "gpdsl", "model": declared.name, "elbo": fit.elbo, "message": fit.message}
    return xr.DataTree.from_dict({group: xr.Dataset(each, attrs=about) for group, each in groups.items()})


def _everywhere(values: np.ndarray, draws: int) -> np.ndarray:
    """A point estimate as draws that are all alike."""
    return np.broadcast_to(values, (1, draws, *np.shape(values)))


def _named(fit: Fit, name: str, lead: tuple[str, ...], values: np.ndarray) -> Variable:
    """An array with the names of its axes; those of bare sizes are called as ArviZ calls them."""
    axes: tuple[Axis, ...] = fit.program.declarations.axes_of(name)
    return (*lead, *(axis.name or f"{name}_dim_{place}" for place, axis in enumerate(axes))), values
