"""Predictions as columns, `y_mean`, `y_sd`, `y_q0.05`, `t[1]_mean`, `y_label`, `y_p[4]`: for frames and CSV files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from gpdsl.data.convert import order_of
from gpdsl.data.errors import listed
from gpdsl.data.table import moment_in, moment_of
from gpdsl.data.times import texts_of
from gpdsl.data.values import as_numbers
from gpdsl.errors import GpdslError, GpdslWarning, needed, preformatted, printable
from gpdsl.language.calls import spoken
from gpdsl.language.model import Declarations
from gpdsl.results.levels import in_words
from gpdsl.symbolic.readings import field_quantities

if TYPE_CHECKING:
    from pandas import DataFrame

    from gpdsl.results.prediction import Prediction


SHOWN_ROWS, SHOWN_NAMES = 8, 6
"""Rows and quantities of a prediction in a notebook."""


def frame_of(prediction: Prediction, names: Iterable[str] | None, quantiles: Sequence[float]) -> DataFrame:
    """See `Prediction.to_frame`. Raises GpdslError where pandas is not installed."""
    pd = needed("pandas", "to_frame", "data")
    declarations = prediction.beliefs.program.declarations
    names = default_names(declarations) if names is None else list(names)
    table = table_of(prediction, declarations, names, quantiles)
    table = {name: values.tolist() if values.dtype == object else values for name, values in table.items()}
    frame, index = pd.DataFrame(table), None if prediction.origin is None else prediction.origin.index
    if marked := [name for name in names if name in prediction.without_unit]:
        frame.attrs["standardised"] = marked
    return frame.set_axis(index) if isinstance(index, pd.Index) and len(index) == len(frame) else frame


def html_of(prediction: Prediction) -> str | None:
    """The first rows as a table in HTML: nothing in it is markup. None where that would call opaque functions."""
    return None if prediction.beliefs.simulations else preformatted(repr(prediction)) + _table(prediction)


def _table(whole: Prediction) -> str:
    prediction = whole.first_rows(slice(0, SHOWN_ROWS))
    declarations = prediction.beliefs.program.declarations
    table = table_of(prediction, declarations, default_names(declarations)[:SHOWN_NAMES], ())
    marked = [name for name in table if re.sub(r"(\[[\d,]+\])?_(mean|sd)$", "", name) in prediction.without_unit]
    lines = [
        ("th", [f"{name} (standardised)" if name in marked else name for name in table]),
        *(("td", cells) for cells in zip(*(texts(column, 5) for column in table.values()), strict=True)),
    ]
    rows = ("".join(f"<{kind}>{escape(printable(cell))}</{kind}>" for cell in cells) for kind, cells in lines)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def texts(values: np.ndarray, digits: int = 10) -> Iterator[str]:
    """A column as it is written."""
    if values.dtype.kind == "M" or (values.dtype == object and all(isinstance(each, date) for each in values)):
        return iter(texts_of(values))
    if values.dtype.kind == "f":
        return (f"{value:.{digits}g}" for value in values.tolist())
    return (str(value) for value in values.tolist())


def default_names(declarations: Declarations) -> list[str]:
    """Outputs and lets; not the outputs of an opaque likelihood, from which nothing can be drawn. Latents if none.

    Nor what is the same in every row, where there is anything else.
    """
    fields = field_quantities(declarations)
    return [*predictable_outputs(declarations), *(name for name in declarations.lets if name not in fields)] or list(
        declarations.latents
    )


def predictable_outputs(declarations: Declarations) -> list[str]:
    """Outputs but those of an opaque likelihood."""
    opaque = {name for each in declarations.observations if each.distribution.external for name in each.outputs}
    return [name for name in declarations.outputs if name not in opaque]


def table_of(
    prediction: Any, declarations: Declarations, names: Iterable[str], quantiles: Sequence[float]
) -> dict[str, np.ndarray]:
    """Columns of numbers (text for labels), each [rows], for every element of every name; after labels and times.

    Of a field, and of what is computed from fields alone, the rows are its points. Raises GpdslError for such names
    beside others.
    """
    fields, names = field_quantities(declarations), list(names)
    apart = [name for name in names if name in fields]
    if apart and len(apart) < len(names):
        raise GpdslError(f"`{apart[0]}` is the same in every row: ask for it alone, and get one row for each point")
    table: dict[str, np.ndarray] = {}
    for name in names:
        output = declarations.outputs.get(name)
        if output is not None and output.label is not None:
            table |= _label_columns(prediction, name)
        else:
            binary = output is not None and output.kind == "binary"
            table |= _number_columns(prediction, name, quantiles, by_point=name in fields, binary=binary)
    if len({len(values) for values in table.values()}) > 1:
        raise GpdslError(f"{', '.join(names)} have different numbers of points: ask for one after the other")
    return table if apart else apart_from(table, _input_columns({**prediction.labels, **prediction.times})) | table


def apart_from(predicted: Iterable[str], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by their names, and `input y_mean` where something predicted has that name."""
    taken = set(predicted)
    return {f"input {name}" if name in taken else name: values for name, values in inputs.items()}


def _number_columns(
    prediction: Any, name: str, quantiles: Sequence[float], *, by_point: bool = False, binary: bool = False
) -> dict[str, np.ndarray]:
    parts = {"mean": prediction.mean(name)}
    with warnings.catch_warnings():
        if np.isnan(parts["mean"]).any():  # what has no mean has no variance, and that is said already
            warnings.filterwarnings("ignore", f"`{re.escape(name)}` has no variance", GpdslWarning)
        parts["sd"] = np.sqrt(prediction.variance(name))
    if len(quantiles):
        ends = prediction.quantile(name, quantiles)
        ends = in_words(prediction.levels(name), ends) if binary else ends
        parts |= {f"q{float(p):g}": values for p, values in zip(quantiles, ends, strict=True)}
    if by_point:  # the last axis numbers the points; a number computed from a field is a table of one row
        parts = {part: np.moveaxis(np.atleast_1d(values), -1, 0) for part, values in parts.items()}
    columns: dict[str, np.ndarray] = {}
    for position in np.ndindex(*np.shape(parts["mean"])[1:]):
        element = name + subscript(each + 1 for each in position)
        columns |= {f"{element}_{part}": np.asarray(values)[(slice(None), *position)] for part, values in parts.items()}
    return columns


def _input_columns(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The dates and the labels that rows are of."""
    return {
        name + subscript(each + 1 for each in position): values[(slice(None), *position)]
        for name, values in inputs.items()
        for position in np.ndindex(*values.shape[1:])
    }


def _label_columns(prediction: Any, name: str) -> dict[str, np.ndarray]:
    """The most probable level and the probability of each."""
    labels, chances = np.asarray(prediction.label(name)), np.asarray(prediction.mean(name))
    columns: dict[str, np.ndarray] = {}
    for position in np.ndindex(*labels.shape[1:]):
        element = name + subscript(each + 1 for each in position)
        columns[f"{element}_label"] = labels[(slice(None), *position)]
        for number, level in enumerate(prediction.levels(name)):
            columns[f"{element}_p[{level}]"] = chances[(slice(None), *position, number)]
    return columns


def subscript(position: Iterable[int]) -> str:
    """`[1,2]` after a name; nothing of a number alone."""
    inside = ",".join(map(str, position))
    return f"[{inside}]" if inside else ""


# Sums, means and extremes over rows, of all rows or of groups of them, from draws of all rows together.

OVER_ROWS: Mapping[str, Callable[..., np.ndarray]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


FEW = 6
"""Groups whose totals are shown by themselves."""


@spoken
@dataclass(frozen=True, eq=False)
class Total(np.lib.mixins.NDArrayOperatorsMixin):
    """One number of all rows, or of each group; `groups` are their names in order, None without any.

    Groups by several columns have tuples for names, as `total["May", "north"]`; `by` are the names of columns.
    """

    draws: Float[np.ndarray, "draws *groups_and_axes"]
    groups: np.ndarray | None = None
    by: tuple[str, ...] = ()
    drawn: str = ""
    """Of which prediction, with which seed: other draws do not belong to these."""

    @property
    def mean(self) -> np.ndarray:
        """Of the draws, [*groups, *axes]."""
        return np.mean(self.draws, axis=0)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of the draws; that of `mean` is smaller by the root of their number."""
        return np.std(self.draws, axis=0)

    def quantile(self, probabilities: Any) -> np.ndarray:
        """Quantiles of the draws, several in front. Raises GpdslError for probabilities outside of 0 to 1."""
        try:
            asked = np.asarray(probabilities, float)
        except (TypeError, ValueError, OverflowError):
            asked = np.asarray(np.nan)
        if asked.ndim > 1 or not (asked.size and np.all((asked >= 0) & (asked <= 1))):
            raise GpdslError(f"quantile: expected probabilities from 0 to 1, got {str(probabilities)[:60]}")
        return np.quantile(np.asarray(self.draws, float), asked, axis=0)

    def interval(self, level: float = 0.9) -> np.ndarray:
        """The central interval of so much probability, [2, *groups, *axes]."""
        return self.quantile(ends_of(level))

    def __getitem__(self, group: Any) -> Total:
        """That of one group, by its name."""
        names, asked = [] if self.groups is None else self.groups.tolist(), group
        if self.groups is not None and self.groups.dtype.kind == "M":
            asked = moment_in(group) if isinstance(group, str) else moment_of(group)
        if isinstance(asked, np.ndarray) or asked not in names:
            raise GpdslError(f"total: {group!r} is no group; expected one of {listed(names) or 'none, without `by`'}")
        return Total(self.draws[:, names.index(asked)], drawn=self.drawn)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise GpdslError("total: this is a distribution, neither true nor false; `(a > b).mean` is the probability")

    def __float__(self) -> float:
        raise GpdslError("total: this is a distribution and no number; take its `mean`, `quantile(0.9)` or `draws`")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise GpdslError("total: this is a distribution and no array; take its `mean`, `quantile(0.9)` or `draws`")

    def __array_ufunc__(self, function: np.ufunc, method: str, *given: Any, **options: Any) -> Total:
        """Draw by draw, of totals from the same draws and of numbers: `1 - a / b`, `np.log(a)`; the mean of `a > 3` is
        a probability. Raises GpdslError for a total whose draws do not belong to these, and for what is no number.
        """
        if method != "__call__" or options or function.nout > 1 or function.signature:
            raise GpdslError("total: expected an operation such as `a - b`, or a function such as np.log")
        for each in given:
            if not isinstance(each, Total):
                if isinstance(each, bool) or not isinstance(each, int | float | np.number):
                    raise GpdslError(
                        f"total: expected another total or a number, got {str(each)[:60]}; of more take `draws`"
                    )
            elif each.draws.shape != self.draws.shape or np.any(np.asarray(each.groups) != self.groups):
                raise GpdslError("total: expected another total of as many draws and of the same groups and axes")
            elif each.drawn != self.drawn:
                raise GpdslError(
                    "total: draws of two predictions, or with two seeds, do not belong together; predict all rows at "
                    "once and take groups of these, as in `total = fit.predict(rows).total(name, by=...)`"
                )
        try:
            draws = function(*(each.draws if isinstance(each, Total) else float(each) for each in given))
        except TypeError:  # as of & and ~, which take conditions
            raise GpdslError(f"total: {function.__name__} is for conditions, as `(a > 1) & (b > 1)`") from None
        return Total(draws, self.groups, self.by, self.drawn)

    def to_frame(self, quantiles: float | Sequence[float] = (0.05, 0.95)) -> DataFrame:
        """A pandas frame with one row for each group: `mean`, `sd`, `q0.05` and so on; elements as `mean[1]`."""
        pd = needed("pandas", "to_frame", "data")
        ends = [(p, self.quantile(p)) for p in np.atleast_1d(quantiles)]
        parts = {"mean": self.mean, "sd": self.sd, **{f"q{float(p):g}": end for p, end in ends}}
        if self.groups is None:
            parts = {part: np.asarray(values)[None] for part, values in parts.items()}
        columns = {
            part + subscript(each + 1 for each in position): values[(slice(None), *position)]
            for position in np.ndindex(*parts["mean"].shape[1:])
            for part, values in parts.items()
        }
        index = None if self.groups is None else pd.Index(self.groups, name=self.by[0] if self.by else "group")
        if self.groups is not None and isinstance(self.groups[0], tuple):
            index = pd.MultiIndex.from_tuples(self.groups.tolist(), names=self.by or None)
        return pd.DataFrame(columns, index=index)

    def __repr__(self) -> str:
        groups = "" if self.groups is None else f": {len(self.groups)} groups"
        begun = f"<gpdsl total of {len(self.draws)} draws"
        if np.size(self.mean) > FEW or np.ndim(self.mean) > 1:
            return f"{begun}{groups or f' of {np.size(self.mean)} elements'}>"
        low, high = map(np.ravel, self.interval())
        names = range(1, len(low) + 1) if self.groups is None else map(str, self.groups.tolist())
        told = [f"{mean:.5g} ({a:.5g} to {b:.5g})" for mean, a, b in zip(np.ravel(self.mean), low, high, strict=True)]
        named = told if np.ndim(self.mean) == 0 else [f"{n}: {each}" for n, each in zip(names, told, strict=True)]
        return f"{begun}, mean and 90%: {', '.join(named)}>"


def ends_of(level: float) -> list[float]:
    """The probabilities at the ends of a central interval. Raises GpdslError for a level that is none."""
    if not isinstance(level, int | float | np.number) or not 0 < level < 1:
        raise GpdslError(f"interval: expected a level between 0 and 1, got {level!r}")
    return [0.5 - 0.5 * float(level), 0.5 + 0.5 * float(level)]


def total_of(prediction: Prediction, name: str, by: Any, how: str, count: int, seed: int) -> Total:
    """What `how` makes of the rows of each draw; of those with equal values of `by` where that is given."""
    if how not in OVER_ROWS:
        raise GpdslError(f"total: how = {how!r}; expected one of {', '.join(OVER_ROWS)}")
    declared = prediction.beliefs.program.declarations
    if name in field_quantities(declared) or (name in declared.outputs and declared.outputs[name].label is not None):
        raise GpdslError(f"total of `{name}`: a label or a field has no {how} over rows")
    named, draws, reduce = several_columns(prediction, by), prediction.draws(name, count, seed), OVER_ROWS[how]
    drawn = f"{prediction.mark} {seed}"
    if by is None:
        return Total(reduce(draws, axis=1), drawn=drawn)
    columns = [*named.values()] or [_numbered(prediction, by)]
    groups, number = grouped(columns) if len(columns) > 1 else columns[0]
    found = [reduce(draws[:, number == place], axis=1) for place in range(len(groups))]
    return Total(np.stack(found, axis=1), groups, tuple(named) or (by,) * isinstance(by, str), drawn)


Numbered = tuple[np.ndarray, np.ndarray]
"""The groups in order, and the number of each row's."""


def several_columns(prediction: Prediction, by: Any) -> dict[str, Numbered]:
    """The columns that a list names, or that a frame has, by name; none where `by` is a group for each row.

    A list of words of as many as there are rows is such groups, unless each of them names a column.
    """
    if is_frame(by):
        return {str(name): _numbered(prediction, by[name]) for name in by.columns}
    if not isinstance(by, list | tuple) or not by or not all(isinstance(each, str) for each in by):
        return {}
    if len(by) == prediction.beliefs.count and any(_column(prediction, each) is None for each in by):
        return {}
    return {name: _numbered(prediction, name) for name in by}


def grouped(columns: Sequence[Numbered]) -> Numbered:
    """The tuples that rows of some columns have, in order, and the number of the tuple of each row."""
    places, number = np.unique(np.stack([number for _, number in columns], axis=1), axis=0, return_inverse=True)
    levels = [list(level) if level.dtype.kind == "M" else level.tolist() for level, _ in columns]
    groups = np.empty(len(places), object)
    groups[:] = [tuple(level[i] for level, i in zip(levels, place, strict=True)) for place in places]
    return groups, number.ravel()


def is_frame(by: Any) -> bool:
    """Whether it is a table of several columns, of pandas or Polars."""
    return hasattr(by, "columns") and hasattr(by, "__getitem__")


def _column(prediction: Prediction, name: str) -> Any:
    """An input, or a column of the rows that were predicted; None where there is none of this name."""
    origin = prediction.origin
    if origin is None:
        return None
    return prediction.shown_inputs[name] if name in origin.data.inputs else column_of(origin.table, name)


def _numbered(prediction: Prediction, by: Any) -> Numbered:
    """Groups in the order of their categories where these have one, as numbers where they are texts of such."""
    if isinstance(by, str):
        column = _column(prediction, by)
        if column is None:
            raise GpdslError(
                f"total: by = {by!r} is no input of the model, and no column of rows in memory; "
                f"pass the column itself, by = data[{by!r}], or a group for each of {prediction.beliefs.count} rows"
            )
        by = column
    try:
        labels = np.asarray(by)
    except ValueError:  # rows of different lengths
        labels = np.empty(len(by), object)
        labels[:] = by
    if labels.shape != (prediction.beliefs.count,) or any(np.ndim(each) for each in labels.tolist()):
        raise GpdslError(
            f"total: `by` has the shape {labels.shape}; expected a group for each of {prediction.beliefs.count} rows, "
            "or names of columns"
        )
    labels = labels.astype("M8[us]") if labels.dtype.kind == "M" else labels  # of nanoseconds NumPy makes numbers
    # NaN and NaT differ from themselves, and of pandas.NA nobody knows
    if np.ma.is_masked(by) or any(each is None or str(each == each) != "True" for each in labels.ravel()):
        raise GpdslError("total: `by` has rows without a group; leave these rows out, or name their group")
    groups, number = np.unique(labels, return_inverse=True)
    names, order = [str(each) for each in groups], order_of(by, "by")
    keys: Sequence[Any] = [order.index(name) for name in names] if {*names} <= {*order} else ()
    keys = keys or (as_numbers(tuple(names)) if labels.dtype.kind in "OU" else ())
    if not keys:
        return groups, number
    places = np.argsort(keys)
    return groups[places], np.argsort(places)[number]


def column_of(table: Any, name: str) -> Any:
    """A column of a dictionary, or of a frame of pandas, Polars or Arrow; None where there is none of this name."""
    names = table if isinstance(table, Mapping) else getattr(table, "column_names", getattr(table, "columns", ()))
    return table[name] if name in list(names) else None
