"""Data bound to a model: arrays in declared order, the sizes that were free, and the numbers that standardise."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gpdsl.data.columns import Found
from gpdsl.data.errors import CannotStandardise, DataError, DataMistake, SizesDisagree, UnboundSize, listed, shown
from gpdsl.data.file_mistakes import LevelOutside
from gpdsl.data.table import pieces, stays_on_disk
from gpdsl.data.times import Calendar
from gpdsl.language import model as m
from gpdsl.language.model import Axis, Const, Declarations, Param

# The numbers that standardise data, kept with the fit, and what they do to values on their way in and out.

Numbers = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Standardised:
    """Mean and standard deviation of inputs and outputs by name, of the shape of one row; other names stay as they are.

    A fit knows `(value - mean) / sd`; what users give and get is in the units of their data.
    """

    means: Numbers = field(default_factory=dict)
    sds: Numbers = field(default_factory=dict)

    def into(self, name: str, values: np.ndarray) -> np.ndarray:
        """Values [..., *axes] of the data as the fit knows them."""
        return (values - self.means[name]) / self.sds[name] if name in self.sds else values

    def back(self, name: str, values: np.ndarray) -> np.ndarray:
        """Values [..., *axes] of the fit in the units of the data."""
        return self.means[name] + self.sds[name] * values if name in self.sds else values

    def widened(self, name: str, spreads: np.ndarray, power: int = 1) -> np.ndarray:
        """Standard deviations, or with `power` 2 variances, in the units of the data."""
        return self.sds[name] ** power * spreads if name in self.sds else spreads

    def applied(self, data: Data) -> Data:
        """Bound data as the fit knows them; a memory map becomes one of a temporary file, some rows at a time."""
        if not self.sds:
            return data
        inputs = {
            n: self._on_disk(n, values) if stays_on_disk(values) else self.into(n, values)
            for n, values in data.inputs.items()
        }
        outputs = {n: np.where(data.observed[n], self.into(n, values), 0.0) for n, values in data.outputs.items()}
        return replace(data, inputs=inputs, outputs=outputs, standardised=self)

    def removed(self, data: Data) -> Data:
        """Bound data as the fit knows them, in their own units again; memory maps of the fit are read."""
        inputs = {n: self.back(n, np.asarray(v)) if n in self.sds else v for n, v in data.inputs.items()}
        outputs = {n: np.where(data.observed[n], self.back(n, v), 0.0) for n, v in data.outputs.items()}
        return replace(data, inputs=inputs, outputs=outputs, standardised=Standardised()) if self.sds else data

    def _on_disk(self, name: str, values: np.ndarray) -> np.ndarray:
        if name not in self.sds:
            return values
        with tempfile.TemporaryFile() as file:
            found = np.memmap(file, np.float64, "w+", shape=values.shape)
        for start, piece in pieces(values):
            found[start : start + len(piece)] = self.into(name, piece)
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """The numbers by the names they have in a file."""
        means = {f"standardised.mean.{name}": values for name, values in self.means.items()}
        return means | {f"standardised.sd.{name}": values for name, values in self.sds.items()}

    @classmethod
    def from_arrays(cls, arrays: Numbers) -> Standardised:
        """The numbers in a file; there are none where nothing was standardised."""

        def named(kind: str) -> dict[str, np.ndarray]:
            begin = f"standardised.{kind}."
            return {name.removeprefix(begin): values for name, values in arrays.items() if name.startswith(begin)}

        return cls(named("mean"), named("sd"))

    def covariance(self, name: str, values: np.ndarray) -> np.ndarray:
        """Covariances [rows, *axes, rows, *axes] in the units of the data."""
        if name not in self.sds:
            return values
        sd = self.sds[name]
        return sd.reshape(*sd.shape, 1, *(1 for _ in sd.shape)) * sd * values

    def log_jacobian(self, observed: Mapping[str, np.ndarray]) -> np.ndarray | float:
        """Of every row, by how much the log density of its observed outputs is above that in the units of the data."""
        logs = [np.where(known, np.log(self.sds[n]), 0.0) for n, known in observed.items() if n in self.sds]
        return sum(each.reshape(len(each), -1).sum(axis=1) for each in logs)


@dataclass(frozen=True, eq=False)
class Data:
    """The arrays of one model, float64, first axis the rows.

    `inputs[name]` is [rows] or [rows, *axes]; a memory map of numbers keeps its type and stays on disk.
    `outputs[name]` is [rows, *axes]: binary as 0 and 1, a label as its
    number from 0; 0 where `observed[name]`, of the same shape, is false. `sizes` binds dimension letters, `levels`
    gives the labels of an index in order; `column_names` are the names the user gave, for messages. `moments` are the
    times that numbers among the inputs stand for, and `calendar` tells from when on these count. `standardised` are
    the numbers behind the values of inputs and outputs that are not in the user's units. `unseen` are the levels of
    each index that an earlier fit does not know; their numbers follow those of `levels`.
    """

    rows: int
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    observed: Mapping[str, np.ndarray]
    sizes: Mapping[str, int]
    levels: Mapping[str, tuple]
    column_names: Mapping[str, tuple[str, ...]]
    source: str = "data"
    moments: Mapping[str, np.ndarray] = field(default_factory=dict)
    calendar: Calendar | None = None
    standardised: Standardised = field(default_factory=Standardised)
    unseen: Mapping[str, tuple] = field(default_factory=dict)

    @cached_property
    def digests(self) -> dict[str, str]:
        """What tells the values of each input and output, as they are fitted, from others."""
        found = {
            name: _digest(self.moments[name].astype(np.int64) if name in self.moments else values)
            for name, values in self.inputs.items()
        }
        for name, values in self.outputs.items():
            found[name] = _digest(np.where(self.observed[name], values, np.nan), str(self.levels))
        return found

    @cached_property
    def observed_rows(self) -> np.ndarray:
        """Whether anything is observed in each row [rows]."""
        return np.any([each.reshape(self.rows, -1).any(axis=1) for each in self.observed.values()], axis=0)

    @cached_property
    def telling(self) -> int:
        """Rows that have a value of an output; all where these are under a fourth, since work at the others counts."""
        told = int(np.sum(self.observed_rows))
        return told if 4 * told >= self.rows else self.rows

    @property
    def every_level(self) -> dict[str, tuple]:
        """The words that numbers of labels stand for, by index."""
        return {index: (*words, *self.unseen.get(index, ())) for index, words in self.levels.items()}

    def take(self, index: np.ndarray | slice) -> Data:
        """The same with some of the rows, by number from 0 or as a slice."""
        inputs, outputs, observed, moments = (
            {name: values[index] for name, values in table.items()}
            for table in (self.inputs, self.outputs, self.observed, self.moments)
        )
        rows = len(np.arange(self.rows)[index])
        return replace(self, rows=rows, inputs=inputs, outputs=outputs, observed=observed, moments=moments)


def _digest(values: np.ndarray, beside: str = "") -> str:
    """SHA-256 of an array, as float64 whatever it is kept in."""
    found = hashlib.sha256(f"{values.shape} {beside}".encode())
    for _, piece in pieces(values):
        found.update(np.ascontiguousarray(piece, np.float64).data)
    return found.hexdigest()


# Free sizes: which number each dimension letter stands for, learnt from the arrays as they are found.


class Sizes:
    """Letter by letter: given by an earlier fit, written out as a list in the model, or learnt from data."""

    def __init__(self, declarations: Declarations, given: Mapping[str, int], source: str) -> None:
        self._declarations = declarations
        self._source = source
        self._sizes = dict(given)
        self._origin = dict.fromkeys(given, "the earlier fit")
        # `const a[p] = [1, 2, 3]` says that `p` has three values.
        lists: list[Const | Param] = [*self._declarations.consts.values(), *self._declarations.params.values()]
        for declared in lists:
            values = declared.values if isinstance(declared, Const) else declared.initial
            for axis in declared.axes:
                if not isinstance(values, tuple):
                    break
                self.learn(declared.name, (axis,), (len(values),))
                values = values[0] if values else 0.0

    def of(self, axis: Axis) -> int | None:
        """The size of an axis, None while it is unknown."""
        return axis.size if axis.dimension is None else self._sizes.get(axis.dimension)

    def why(self, axes: tuple[Axis, ...]) -> str:
        """What the size of the first axis comes from, to end a sentence about what was expected."""
        letter = axes[0].dimension if axes else None
        origin = self._origin.get(letter) if letter is not None else None
        return "the model" if origin is None else origin

    def learn(self, name: str, axes: tuple[Axis, ...], shape: tuple[int, ...]) -> None:
        """Take the sizes of what was found under a name. Raises DataError when a letter already means another size."""
        for axis, size in zip(axes, shape, strict=True):
            letter = axis.dimension
            if letter is None:
                continue
            known = self._sizes.setdefault(letter, size)
            if known != size:
                problem = SizesDisagree(letter, name, size, self._origin[letter], known)
                raise DataError(problem, source=self._source)
            self._origin.setdefault(letter, f"`{name}`")

    def bound(self) -> dict[str, int]:
        """Every letter of the model and its size. Raises DataError for one nothing determines."""
        users: dict[str, list[str]] = {}
        for name, axes in self._declarations.quantities():
            for axis in axes:
                if axis.dimension is not None:
                    users.setdefault(axis.dimension, []).append(name)
        loose = [
            UnboundSize(letter, listed(dict.fromkeys(f"`{name}`" for name in names)))
            for letter, names in users.items()
            if letter not in self._sizes
        ]
        if loose:
            raise DataError(*loose, source=self._source)
        return {letter: self._sizes[letter] for letter in users} | self._sizes


# The mean and standard deviation of the columns of bound data.


def spreads(data: Data) -> dict[str, tuple[float, ...]]:
    """The standard deviation of each column of each input."""
    return {name: tuple(map(float, moments(values)[1].ravel())) for name, values in data.inputs.items()}


LOST = 1e-150
"""Spread below which its square is lost, as is that of one above the inverse."""


def moments(values: np.ndarray, observed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the observed values of each column, [*axes]; NaN and 0 without any.

    Piece by piece: the spread within each about its own mean, and that of their means. It is 0 of equal values only.
    """
    counts, means, variances, least, most = [], [], [], [], []
    for start, piece in pieces(values):
        known = np.ones(piece.shape, bool) if observed is None else observed[start : start + len(piece)]
        numbers, count = np.asarray(piece, np.float64), known.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):  # looked at below
            mean = np.sum(numbers, axis=0, where=known) / np.maximum(count, 1)
            variances.append(np.sum((numbers - mean) ** 2, axis=0, where=known) / np.maximum(count, 1))
        counts.append(count)
        means.append(mean)
        least.append(np.min(numbers, axis=0, where=known, initial=np.inf))
        most.append(np.max(numbers, axis=0, where=known, initial=-np.inf))
    total, low, high = np.sum(counts, axis=0), np.min(least, axis=0), np.max(most, axis=0)
    share = np.asarray(counts) / np.maximum(total, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        centre = np.where(total > 0, np.sum(share * means, axis=0), np.nan)
        spread = np.sqrt(np.sum(share * (np.asarray(variances) + (np.asarray(means) - centre) ** 2), axis=0))
    lost = (low < high) & ~((spread > LOST) & (spread < 1 / LOST))
    if lost.any():  # its square is no number of float64
        unit = np.where(lost, np.maximum(-low, high), 1.0)
        centre, spread = moments(values / unit, observed)
        return centre * unit, spread * unit
    return centre, np.where(low < high, spread, 0.0)


def learn(data: Data, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of an input or output. Raises DataError for a column that has no spread, of which nothing is left."""
    of_output = name in data.outputs
    mean, sd = moments(data.outputs[name], data.observed[name]) if of_output else moments(data.inputs[name])
    wrong = np.flatnonzero(~((sd > 0) & np.isfinite(sd)).ravel())
    if wrong.size:
        value, names = float(mean.ravel()[wrong[0]]), data.column_names[name]
        constant = "missing" if np.isnan(value) else shown(value)
        raise DataError(CannotStandardise(names[min(wrong[0], len(names) - 1)], constant), source=data.source)
    return mean, sd


# Input columns that number the levels of a `Coregion` kernel: whole numbers from 1 to the size of its matrix.


@dataclass(frozen=True)
class LevelColumn:
    """An input, or one of its columns (from 0), and the axis of the levels."""

    name: str
    column: int
    axis: m.Axis
    latent: str


def level_columns(declarations: m.Declarations) -> Iterator[LevelColumn]:
    """Every column that a `Coregion` of the model looks at."""
    for latent in declarations.latents.values():
        for call in m.every_kernel(latent.kernel):
            if not (isinstance(call, m.KernelCall) and call.name == "Coregion"):
                continue
            own = {axis.name for axis in latent.axes}
            axis = next(a for a in call.arguments["kappa"].axes if a.name is None or a.name not in own)
            name, column = _column(call, latent)
            if name in declarations.inputs:
                yield LevelColumn(name, column, axis, latent.name)


def _column(call: m.KernelCall, latent: m.Latent) -> tuple[str, int]:
    """The argument that a call looks at, and which of its columns."""
    if not call.on or not isinstance(call.on[0], m.Read):
        return latent.arguments[0], 0
    fixed = [each.position - 1 for each in call.on[0].subscripts if isinstance(each, m.Fixed)]
    return call.on[0].name, fixed[0] if fixed else 0


def wrong_level(column: LevelColumn, found: Found, values: np.ndarray, size: int) -> DataMistake | None:
    """The first value that is no whole number from 1 to `size`."""
    numbers = values.reshape(values.shape[0], -1)[:, column.column]
    if numbers.dtype == object:  # text, which has been reported
        return None
    wrong = np.flatnonzero(np.isfinite(numbers) & ((numbers != np.round(numbers)) | (numbers < 1) | (numbers > size)))
    if not wrong.size:
        return None
    row = int(wrong[0])
    name = found.columns[min(column.column, len(found.columns) - 1)]
    return LevelOutside(name, row + 1, shown(float(numbers[row])), column.latent, size)
