"""A fit as an xarray tree in the groups that ArviZ reads: draws of its posterior, and the data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from gpdsl.data import Data
from gpdsl.data.times import words_of
from gpdsl.errors import needed
from gpdsl.language.model import Axis
from gpdsl.program.cache import precision
from gpdsl.results.density import is_opaque, log_densities
from gpdsl.results.draws import Together
from gpdsl.results.levels import in_levels, in_words
from gpdsl.results.named import check_draws
from gpdsl.results.table import apart_from, default_names, predictable_outputs
from gpdsl.symbolic.readings import field_quantities

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

    from gpdsl.results.fit import Fit
    from gpdsl.results.prediction import Prediction
    from gpdsl.results.settings import Settings

Variable = tuple[tuple[str, ...], np.ndarray]


def datatree(fit: Fit, data: Any, draws: int, seed: int) -> DataTree:
    """See `Fit.to_datatree`. Raises GpdslError where xarray is not installed."""
    xr = needed("xarray", "to_datatree", "xarray")
    seed = check_draws("to_datatree", draws, seed)
    declared = fit.program.declarations
    drawing = _Drawing(fit, draws, seed, whole=data is None)
    learnt = drawing.parameters()
    groups = {"posterior": {name: _named(fit, name, ("chain", "draw"), each) for name, each in learnt.items()}}
    groups["sample_stats"] = {name: (("chain", "draw"), each) for name, each in drawing.statistics().items()}
    if data is not None:
        prediction = fit.predict(bound := fit.bind(data, None, outputs=False))
        fields = field_quantities(declared)

        def drawn(name: str) -> Variable:
            lead = ("chain", "draw") if name in fields else ("chain", "draw", "row")
            return _named(fit, name, lead, drawing.of(prediction, lambda p, count, own: p.draws(name, count, own)))

        groups["posterior"] |= {name: drawn(name) for name in (*declared.latents, *declared.lets)}
        groups["posterior_predictive"] = {name: drawn(name) for name in predictable_outputs(declared)}
        seen = {name: np.where(bound.observed[name], each, np.nan) for name, each in bound.outputs.items()}
        first = {name: 0 if declared.outputs[name].label is None else 1 for name in seen}  # draws number levels from 1
        told = {name: in_levels(fit.program, name, each + first[name]) for name, each in seen.items()}
        groups["observed_data"] = {name: _named(fit, name, ("row",), each) for name, each in told.items()}
        if bound.observed and not (declared.rows or is_opaque(fit.program)):
            name = "rows" if len(seen) > 1 else next(iter(seen))
            values = _log_likelihood(fit, bound, prediction, drawing)
            groups["log_likelihood"] = {name: (("chain", "draw", "row"), values)}
        known = {**bound.inputs, **words_of(declared.inputs, bound.inputs, bound.every_level)}
        groups["constant_data"] = {name: _named(fit, name, ("row",), each) for name, each in known.items()}
    about = {"inference_library": "gpdsl", "model": declared.name, "elbo": fit.elbo, "message": fit.message}
    coordinates = drawing.coordinates()
    found = {group: xr.Dataset(each, attrs=about) for group, each in groups.items()}
    numbered = {
        group: each.assign_coords(_numbers(fit, each.sizes) | (coordinates if "draw" in each.dims else {}))
        for group, each in found.items()
    }
    return xr.DataTree.from_dict(numbered)


def _numbers(fit: Fit, sizes: Mapping[Hashable, int]) -> dict[Hashable, np.ndarray]:
    """Of each dimension, which plots of ArviZ ask for: those of an index as the model has them, others from 0."""
    numbers = {}
    for name, size in sizes.items():
        index = fit.program.declarations.indices.get(str(name))
        levels = None if index is None else index.levels or range(1, size + 1)
        numbers[name] = np.asarray(range(size) if levels is None or len(levels) != size else levels)
    return numbers


@dataclass(frozen=True)
class _Drawing:
    """How draws stand in chains: as they were made, where the posterior is Markov chains, else `draws` in one.

    Of chains there are draws of latents of some of the draws of parameters alone; `whole` asks for all, without them.
    """

    fit: Fit
    draws: int
    seed: int
    whole: bool

    @cached_property
    def _chains(self) -> Settings | None:
        settings = self.fit.settings
        return settings if settings is not None and len(settings.kept) else None

    @cached_property
    def _numbers(self) -> Int[np.ndarray, " draws"]:
        """Of the settings that draws are from, where there are no chains."""
        if self.fit.settings is None:
            return np.zeros(self.draws, int)
        return self.fit.settings.drawn(self.draws, np.random.default_rng(self.seed))

    def coordinates(self) -> dict[str, np.ndarray]:
        """Numbers of chains and draws."""
        if self._chains is None:
            return {"chain": np.arange(1), "draw": np.arange(self.draws)}
        chains, draws = self._chains.statistics["lp"].shape
        return {"chain": np.arange(chains), "draw": np.arange(draws) if self.whole else self._chains.kept}

    def _of_chains(self, values: Shaped[np.ndarray, "chains draws *axes"]) -> Shaped[np.ndarray, "chains kept *axes"]:
        assert self._chains is not None
        return values if self.whole else values[:, self._chains.kept]

    def parameters(self) -> dict[str, np.ndarray]:
        """Their draws; a value that nothing is known of but itself stands in every draw."""
        fit, settings = self.fit, self.fit.settings
        if settings is None or (self._chains and not settings.chains):
            shape = tuple(len(each) for each in self.coordinates().values())
            return {
                name: np.broadcast_to(values, (*shape, *np.shape(values))) for name, values in fit.parameters.items()
            }
        if self._chains:
            return {name: self._of_chains(settings.chains[name]) for name in fit.parameters}
        each = [setting.parameters for setting in settings.each]
        return {name: np.stack([each[number][name] for number in self._numbers])[None] for name in fit.parameters}

    def statistics(self) -> dict[str, np.ndarray]:
        """What the sampler says; without one, which setting of the parameters draws are from, and its log weight."""
        if self._chains is not None:
            found = {name: self._of_chains(each) for name, each in self._chains.statistics.items()}
            return found | {"diverging": found["diverging"].astype(bool)}
        weights = np.ones(1) if self.fit.settings is None else self.fit.settings.weights
        return {"setting": self._numbers[None], "log_weight": np.log(weights)[self._numbers][None]}

    def of(
        self, prediction: Prediction, draw: Callable[[Prediction, int, int], np.ndarray]
    ) -> Shaped[np.ndarray, "chains draws *axes"]:
        """`draw(prediction, count, seed)`, of what every draw of the chains says."""
        if self._chains is None:
            return prediction.over_settings(self.draws, self.seed, draw)[None]
        found = prediction.of_each(self.seed, draw)
        return found.reshape(-1, len(self._chains.kept), *found.shape[1:])


def _log_likelihood(
    fit: Fit, bound: Data, prediction: Prediction, drawing: _Drawing
) -> Float[np.ndarray, "chains draws rows"]:
    """log p(y_n | f_n) of each row at the draws of the posterior, of its outputs together; NaN of rows without any."""

    def at_draws(each: Prediction, count: int, seed: int) -> np.ndarray:
        drawn = Together(each.beliefs).draws(count, np.random.default_rng(seed))
        values = np.asarray(log_densities(each.beliefs, drawn.latents, {}))
        number, row = np.indices(drawn.component.shape)
        return values[number, drawn.component, row]

    with precision(fit.options.dtype):
        found = drawing.of(prediction, at_draws)
    return np.where(bound.observed_rows, found - fit.standardised.log_jacobian(bound.observed), np.nan)


def dataset_of(prediction: Prediction, names: Sequence[str] | None, quantiles: Sequence[float]) -> Dataset:
    """See `Prediction.to_xarray`. Raises GpdslError where xarray is not installed."""
    xr = needed("xarray", "to_xarray", "xarray")
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
        if len(quantiles):
            ends = prediction.quantile(name, quantiles)
            if output is not None and output.kind == "binary":
                ends = in_words(prediction.levels(name), ends)
            found[f"{name}_quantile"] = _named(fit, name, ("quantile", *lead), ends)
            coordinates["quantile"] = np.asarray(quantiles, float)
    if index is not None and len(index) == prediction.beliefs.count and getattr(index, "nlevels", 1) == 1:
        coordinates["row"] = np.asarray(index)
    dataset = xr.Dataset(found, apart_from(found, coordinates), {"model": declared.name})
    for part in (f"{name}_{part}" for name in prediction.without_unit for part in ("mean", "sd", "quantile")):
        if part in found:
            dataset[part].attrs["units"] = "standardised"
    return dataset


def _coordinates(prediction: Prediction) -> Iterator[tuple[str, Variable]]:
    """The inputs of every row, times as dates, labels in words."""
    assert prediction.origin is not None
    for name, values in prediction.shown_inputs.items():
        yield name, _named(prediction.origin.fit, name, ("row",), values)


def _named(fit: Fit, name: str, lead: tuple[str, ...], values: np.ndarray) -> Variable:
    """An array with the names of its axes; those of bare sizes are called as ArviZ calls them."""
    axes: tuple[Axis, ...] = fit.program.declarations.axes_of(name)
    return (*lead, *(axis.name or f"{name}_dim_{place}" for place, axis in enumerate(axes))), values
