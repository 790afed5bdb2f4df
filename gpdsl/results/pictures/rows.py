"""What a picture runs along: the columns of the inputs, the rows seen, and rows made for predicting on a grid."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gpdsl.data import Data
from gpdsl.data.times import as_data
from gpdsl.errors import GpdslError
from gpdsl.kernels.functionals import every_point
from gpdsl.kernels.interdomain import PATCHES
from gpdsl.language.inducing import EVERYWHERE, read_features
from gpdsl.language.model import reads_of
from gpdsl.results.fit import Fit
from gpdsl.results.pictures.style import element, plain, thinned
from gpdsl.results.prediction import Prediction
from gpdsl.results.table import predictable_outputs
from gpdsl.symbolic.dependence import inputs_behind

FEW, MANY = 12, 24
"""Distinct values of a column that tells groups apart: whole numbers of type real, and labels and counts."""


@dataclass(frozen=True, eq=False)
class Column:
    """One column of an input: `values` [rows] are those seen, times as numbers, labels as the numbers of `words`."""

    name: str
    place: tuple[int, ...]
    label: str
    values: np.ndarray
    kind: str
    words: tuple = ()

    @cached_property
    def distinct(self) -> np.ndarray:
        """Its values, each once, in order."""
        return np.unique(self.values)

    @property
    def grouping(self) -> bool:
        """Whether it may tell groups apart."""
        return (
            self.kind in {"real", "count", "label"}
            and 1 < len(self.distinct) <= (FEW if self.kind == "real" else MANY)
            and bool(np.all(self.distinct == np.rint(self.distinct)))
        )

    def follows(self, other: Column) -> bool:
        """Whether the value of another column determines its own."""
        pairs = np.unique(np.stack([other.values, self.values], axis=1), axis=0)
        return len(pairs) == len(other.distinct)

    def word(self, value: float) -> str:
        """What one of its values is called."""
        return plain(str(self.words[int(value) - 1])) if self.words else f"{value:g}"

    @cached_property
    def wide(self) -> bool:
        """Whether it goes over decades, so that its axis is logarithmic."""
        if self.kind not in {"real", "positive"} or self.distinct[0] <= 0:
            return False
        low, high = np.quantile(self.values, [0.1, 0.9])
        return bool(high > 100 * low)

    def grid(self, count: int, *, uneven: bool = False) -> np.ndarray:
        """So many values over its range; fewer of whole numbers, which stay whole; every label.

        Uneven: with random steps, since even ones beat with cycles that are shorter.
        """
        if self.kind == "label":
            return self.distinct
        if self.kind == "count" and np.ptp(self.distinct) < count:
            return np.arange(self.distinct[0], self.distinct[-1] + 1)
        found = (np.geomspace if self.wide else np.linspace)(self.distinct[0], self.distinct[-1], count)
        if uneven:
            halves = (found[:-1] + found[1:]) / 2
            found[1:-1] = np.random.default_rng(0).uniform(halves[:-1], halves[1:])
        return np.unique(np.rint(found)) if self.kind == "count" else found


def apart(columns: Sequence[Column]) -> Column | None:
    """Of two columns the one that tells groups apart, a label before whole numbers; None where none or either does."""
    labels = [each for each in columns if each.kind == "label"]
    found = [each for each in labels or columns if each.grouping]
    return found[0] if len(found) == 1 and len(labels) < 2 else None


@dataclass(frozen=True, eq=False)
class Seen:
    """The rows that a picture is of: those of the data, else those that the posterior remembers.

    `inputs` [rows, *axes] are in the units of the data, times and labels as numbers; `data` has the outputs.
    """

    fit: Fit
    inputs: Mapping[str, np.ndarray]
    data: Data | None
    names: tuple[str, ...] = ()
    """What the picture is of, where that was said."""
    places: dict[str, np.ndarray] = field(default_factory=dict)
    """Where the outputs of the part lie in their predictive distributions, once that was asked."""

    @property
    def rows(self) -> int:
        """How many."""
        return self.data.rows if self.data is not None else len(next(iter(self.inputs.values())))

    @property
    def levels(self) -> Mapping[str, tuple]:
        """The words of the labels of each index."""
        return self.fit.program.levels if self.data is None else self.data.every_level

    @cached_property
    def columns(self) -> list[Column]:
        """Columns of labels and of what latents are read at (of all inputs without latents) that vary.

        Where effects of groups are all there is, what is the same in all rows of a group tells nothing of its own.
        """
        main = read_at(self.fit, self.names)
        found = [each for each in self._every if each.name in main] or self._every
        labels = [each for each in found if each.kind == "label"]
        if len(labels) != 1 or _latents_read(self.fit):
            return found
        return [each for each in found if each is labels[0] or not each.follows(labels[0])]

    @cached_property
    def others(self) -> list[Column]:
        """The other columns that vary."""
        main = {each.name for each in self.columns}
        return [each for each in self._every if each.name not in main]

    @cached_property
    def _every(self) -> list[Column]:
        declared, found = self.fit.program.declarations.inputs, []
        for name, values in self.inputs.items():
            known = () if self.data is None else self.data.column_names.get(name, ())
            places = list(np.ndindex(*values.shape[1:]))
            for number, place in enumerate(places):
                own = f"{name}[{','.join(str(each + 1) for each in place)}]" if place else name
                label = known[number] if len(known) == len(places) else own
                column = np.asarray(element(values, place), float)
                own_words = declared[name].label
                words = () if own_words is None else self.levels[str(own_words.name)]
                found.append(Column(name, place, plain(label), column, declared[name].kind, words))
        return [each for each in found if len(each.distinct) > 1]

    @cached_property
    def part(self) -> tuple[Seen, Prediction]:
        """Some rows of the data, and what is predicted of them."""
        if self.data is None:
            raise GpdslError("this picture compares predictions with observed values: data=... or --data FILE")
        rows = thinned(self.rows, self.reach(CHECKED))
        return seen_of(self.fit, self.data.take(rows)), self.fit.predict_bound(self.data.take(rows), None, None)

    def reach(self, count: int, names: Sequence[str] = (), panels: int = 1) -> int:
        """So many rows; fewer where parameters are averaged over, as each row of an output is asked of each setting."""
        if self.fit.settings is None:
            return count
        outputs = sum(name in self.fit.program.declarations.outputs for name in names)
        return int(np.clip(SLOW // (len(self.fit.settings.each) * max(outputs, 1) * panels), 8, count))

    def typical(self, among: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """One row of medians (of some rows), of values that occur, of labels the most frequent: [1, *axes] by name."""
        rows, declared = slice(None) if among is None else among, self.fit.program.declarations.inputs
        found = {}
        for name, values in self.inputs.items():
            here = np.asarray(values[rows], float)
            if declared[name].kind == "label":
                levels, counts = np.unique(here, axis=0, return_counts=True)
                found[name] = levels[[counts.argmax()]]
            else:
                found[name] = np.quantile(here, 0.5, axis=0, method="nearest")[None]
        return found

    def reads_others(self, name: str) -> bool:
        """Whether a quantity is a function of other columns too."""
        behind = inputs_behind(self.fit.program.declarations, [name])
        return any(each.name in behind for each in self.others)

    def moved(
        self, base: Mapping[str, np.ndarray], columns: Sequence[Column], grid: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Every row of a base at every point of a grid [points, columns]: [points * rows, *axes], points first."""
        rows = len(next(iter(base.values())))
        found = {name: np.tile(values, (len(grid), *(1,) * (values.ndim - 1))) for name, values in base.items()}
        for column, values in zip(columns, grid.T, strict=True):
            element(found[column.name], column.place)[...] = np.repeat(values, rows)
        return found

    def predict(self, inputs: Mapping[str, np.ndarray]) -> Prediction:
        """At rows in the units of the data."""
        declared = self.fit.program.declarations.inputs
        return self.fit.predict(as_data(declared, self.fit.calendar, inputs, self.levels), {})

    def drawn(self, column: Column, values: np.ndarray) -> np.ndarray:
        """Values of a column as they are drawn: times as dates by the clock of their zone, labels by number."""
        if column.kind == "label":
            return values
        dates = as_data(self.fit.program.declarations.inputs, self.fit.calendar, {column.name: values}, {})[column.name]
        return np.array([each.replace(tzinfo=None) for each in dates]) if dates.dtype == object else dates

    def observed(self, name: str) -> np.ndarray | None:
        """What the data have of an output [rows, *axes], NaN where nothing; None where they have none of it."""
        if self.data is None or name not in self.data.outputs or not self.data.observed[name].any():
            return None
        return np.where(self.data.observed[name], self.data.outputs[name], np.nan)


def read_at(fit: Fit, names: Sequence[str]) -> set[str]:
    """What the named latents are functions of; where others are named, what some latent is read at, and labels."""
    latents, inputs = fit.program.declarations.latents, set(fit.program.declarations.inputs)
    if names and all(name in latents for name in names):
        indices = fit.program.declarations.indices
        own = {argument for name in names for argument in latents[name].arguments if argument not in indices}
        if own <= inputs:
            return own | {read.name for name in names for read in reads_of(latents[name].mean)} & inputs
    labels = {each.name for each in fit.program.declarations.inputs.values() if each.label is not None}
    found = _latents_read(fit)
    if not found:  # effects of groups alone: other inputs enter by formulas
        found = inputs_behind(fit.program.declarations, names or predictable_outputs(fit.program.declarations))
    return (found | labels) & inputs


def _latents_read(fit: Fit) -> set[str]:
    """The inputs that latents are read at, but for labels."""
    found = {name for group in fit.program.groups for name in group.inputs}
    for group in fit.program.groups:
        found |= {at for reading in group.readings.basis for functional, _ in reading for at in functional.at}
    return {each.name for each in fit.program.declarations.inputs.values() if each.label is None} & found


def seen_of(fit: Fit, data: Any, names: Sequence[str] = ()) -> Seen:
    """The rows of the data, or those that the posterior keeps. Raises GpdslError where it keeps too little."""
    if data is not None:
        bound = data if isinstance(data, Data) else fit.bind(data, None, outputs=False)
        return Seen(fit, bound.inputs, bound, tuple(names))
    declared, groups = fit.program.declarations.inputs, fit.program.groups
    parts = read_features(fit.choice.of(groups[0].names[0]).features) or ()
    if not fit.inducing or any(part.family in (*EVERYWHERE, PATCHES) for part in parts):
        raise GpdslError("the posterior does not say where the rows were: data=... or --data FILE")
    names = groups[0].inputs
    others = [name for name in declared if name not in names]
    if others:
        raise GpdslError(f"plot needs data for the other inputs ({', '.join(others)}): data=... or --data FILE")
    points, found, start = np.asarray(every_point(fit.inducing[0])), {}, 0
    for name in names:
        if name not in declared:  # an index, at whose values the rows read the latent
            points, start = points[points[:, start] == points[0, start]], start + 1
            continue
        shape = fit.program.translator.shape(declared[name].axes)
        width = int(np.prod(shape, dtype=int))
        values = points[:, start : start + width].reshape(len(points), *shape)
        found[name], start = fit.standardised.back(name, values), start + width
    return Seen(fit, found, None)


# What a picture shows of one quantity: its centre and a band, or the probabilities of its levels.

BAND = (0.05, 0.95)

CHECKED, SLOW = 2000, 25_000
"""Rows that are compared with predictions; rows times settings of the parameters that take some ten seconds."""


@dataclass(frozen=True, eq=False)
class Quantity:
    """`centre` is [rows, *axes], or [rows, levels] where there are `levels`; `band` is [2, rows, *axes], or nothing.

    `kind` is that of an output: binary ones and labels have probabilities, and no band.
    """

    name: str
    kind: str
    centre: np.ndarray
    band: np.ndarray | None = None
    levels: tuple = ()
    within: str = "90% band"

    @property
    def ordered(self) -> bool:
        """Whether the levels are in order."""
        return self.kind == "ordinal"

    def at(self, rows: slice) -> Quantity:
        """In some rows."""
        return replace(self, centre=self.centre[rows], band=None if self.band is None else self.band[:, rows])

    def averaged(self, count: int) -> Quantity:
        """Over each `count` rows that follow one another; the band is where 90% of them lie."""
        apart = self.centre.reshape(-1, count, *self.centre.shape[1:])
        band = None if self.levels else np.quantile(apart, BAND, axis=1)
        return replace(self, centre=apart.mean(axis=1), band=band, within="90% of rows")


def quantity(seen: Seen, prediction: Prediction, name: str, *, banded: bool = True) -> Quantity:
    """What a prediction says of a name: mean (median where some row has no mean) and 90% band."""
    output = seen.fit.program.declarations.outputs.get(name)
    kind = "" if output is None else output.kind
    if output is not None and output.label is not None:
        chances = prediction.mean(name)
        first = chances.reshape(len(chances), -1, chances.shape[-1])[:, 0]
        return Quantity(name, kind, first, levels=prediction.levels(name))
    centre = mean_or_median(prediction, name)
    band = None if kind == "binary" or not banded else np.asarray(prediction.quantile(name, BAND))
    return Quantity(name, kind, centre, band)


def mean_or_median(prediction: Prediction, name: str) -> np.ndarray:
    """Means, or medians where some row has no mean."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = prediction.mean(name)
    return found if np.all(np.isfinite(found)) else prediction.quantile(name, 0.5)
