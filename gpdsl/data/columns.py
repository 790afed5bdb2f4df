"""Finding the columns of a quantity: an array of that name, or one column per element (`x1`, `x_1`, `x[1]`)."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import numpy as np

from gpdsl.data.errors import DataError, DifferentLengths, MissingColumn, WrongShape, WrongWidth, listed
from gpdsl.data.file_mistakes import UnclearColumns
from gpdsl.data.table import Table
from gpdsl.language.model import Axis, Declarations, Input, Output
from gpdsl.language.vocabulary import closest

LONGEST = 40
"""Characters of a name of the language that stands for a column."""
LONGEST_NUMBERS = 40
"""Characters of the numbers in the name of a column."""

Position = tuple[int, ...]
Size = int | None

STYLES: tuple[Callable[[str, Position], str], ...] = (
    lambda name, position: name + "_".join(map(str, position)),
    lambda name, position: name + "_" + "_".join(map(str, position)),
    lambda name, position: f"{name}[{','.join(map(str, position))}]",
)


@dataclass(frozen=True, eq=False)
class Found:
    """The values of one quantity, [rows, *shape], and the column each element came from, in row-major order.

    Elements without a column hold NaN and are called by the name a column would have.
    """

    name: str
    values: np.ndarray
    columns: tuple[str, ...]
    order: Callable[[], tuple[str, ...]] = tuple
    """The categories of the only column in their order, where they have one."""


def in_order_of(
    levels: Mapping[str, tuple], declarations: Declarations, founds: Mapping[str, Found]
) -> dict[str, Found]:
    """The same columns; categories have the order of `levels`, by index or by binary output, where these have any.

    A fit that begins at another one reads its parameters by place.
    """
    found = dict(founds)
    every: dict[str, Input | Output] = {**declarations.inputs, **declarations.outputs}
    for name, quantity in every.items():
        order = levels.get(name if quantity.label is None else quantity.label.name or "")
        if order and name in found:
            found[name] = replace(found[name], order=partial(tuple, [str(each) for each in order]))
    return found


@dataclass(frozen=True)
class Wanted:
    """What is looked for: an input or output, its axes with their sizes (None: as many as there are), its data name."""

    kind: str
    name: str
    axes: tuple[Axis, ...]
    sizes: tuple[Size, ...]
    column: str | Sequence[str]
    optional: bool = False
    why: str = ""
    said: bool = False
    """Whether the user has said which column it is."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """Whose the columns are that bear the name of a quantity, or were given to one."""

    def could_be(self, column: str) -> bool:
        """Whether a column is no other quantity's."""
        return self.owners.get(column, self.name) == self.name


def find(table: Table, wanted: Wanted) -> Found | None:
    """The values of a quantity, or None when it is optional and not there. Raises DataError when something is amiss."""
    if not isinstance(wanted.column, str):
        return _from_list(table, wanted, tuple(wanted.column))
    if wanted.axes:
        _refuse_unclear(table, wanted, wanted.column)
    if wanted.column in table.columns:
        column = wanted.column
        values = table.columns[column]
        missing_axis = values.ndim == len(wanted.axes) and all(size in (1, None) for size in wanted.sizes[-1:])
        extra_axis = values.ndim == len(wanted.axes) + 2 and values.shape[-1] == 1
        if missing_axis and wanted.axes:
            values = values[..., None]
        elif extra_axis:
            values = values[..., 0]
        fits = values.ndim == len(wanted.axes) + 1
        if fits and len(wanted.axes) == 1 and wanted.sizes[0] not in (None, values.shape[1]):
            raise _width(table, wanted, values.shape[1], [column])
        if not fits or any(size not in (None, n) for size, n in zip(wanted.sizes, values.shape[1:], strict=True)):
            raise DataError(_shape(wanted, table.columns[column]), source=table.source)
        if not wanted.axes or values.shape[1:] == (1,):
            return Found(wanted.name, values, (column,), partial(table.order, column))
        positions = product(*(range(1, n + 1) for n in values.shape[1:]))
        return Found(wanted.name, values, tuple(STYLES[-1](column, position) for position in positions))
    if wanted.axes:
        return _from_elements(table, wanted, wanted.column)
    if wanted.optional:
        return None
    raise _missing(table, wanted, f"a column `{wanted.column}`", wanted.column)


def _shape(wanted: Wanted, values: np.ndarray) -> WrongShape:
    pairs = zip(wanted.axes, wanted.sizes, strict=True)
    sizes = ["rows", *(axis.describe() if size is None else str(size) for axis, size in pairs)]
    return WrongShape(wanted.name, f"[{', '.join(map(str, values.shape))}]", f"[{', '.join(sizes)}]")


def _from_list(table: Table, wanted: Wanted, columns: tuple[str, ...]) -> Found | None:
    """Columns the user listed, one per element."""
    absent = [column for column in columns if column not in table.columns]
    if absent and wanted.optional:
        return None
    if absent:
        raise _missing(table, wanted, f"a column `{absent[0]}`", absent[0])
    if len(wanted.axes) != 1 or wanted.sizes[0] not in (None, len(columns)):
        expected = 1 if not wanted.axes else wanted.sizes[0] or len(columns)
        raise _width(table, wanted, len(columns), columns, expected)
    return Found(wanted.name, _stack(table, wanted, columns, (len(columns),)), columns)


def _from_elements(table: Table, wanted: Wanted, column: str) -> Found | None:
    """One column per element, in the first style that names element 1."""
    ones = (1,) * len(wanted.axes)
    style = next((each for each in STYLES if each(column, ones) in table.columns), None)
    if style is None and wanted.optional:
        style = next((each for each in STYLES if _any_element(table, wanted, column, each)), None)
        if style is None:
            return None
    if style is None:
        first = STYLES[0](column, ones)
        raise _missing(table, wanted, f"an array `{column}` or columns `{first}`, ...", first)
    shape = tuple(_extent(table, wanted, column, style, axis) for axis in range(len(wanted.axes)))
    _refuse_gap(table, wanted, column, style, shape)
    names = tuple(style(column, position) for position in product(*(range(1, n + 1) for n in shape)))
    absent = [name for name in names if name not in table.columns]
    if absent and not wanted.optional:
        raise _missing(table, wanted, f"a column `{absent[0]}`", absent[0])
    return Found(wanted.name, _stack(table, wanted, names, shape), names)


def _numbered(table: Table, wanted: Wanted, column: str, style: Callable[[str, Position], str]) -> list[Position]:
    """The positions that columns of a style are named by, also those that no element can have."""
    found = []
    for name in table.columns:
        if name.startswith(column) and wanted.could_be(name) and len(name) < len(column) + LONGEST_NUMBERS:
            position = tuple(int(digits) for digits in re.findall("[0-9]+", name[len(column) :]))
            if len(position) == len(wanted.axes) and style(column, position) == name:
                found.append(position)
    return found


def _refuse_unclear(table: Table, wanted: Wanted, column: str) -> None:
    """Raise DataError where the columns of a quantity are named in two ways, or numbered from 0."""
    named = {style: sorted(_numbered(table, wanted, column, style)) for style in STYLES}
    ways = [style(column, positions[0]) for style, positions in named.items() if positions]
    ways += [column] if column in table.columns else []
    if len(ways) > 1 and not (wanted.said and column in table.columns):
        raise _unclear(table, wanted, f"both `{ways[-1]}` and `{ways[0]}` could be")
    for style, positions in named.items():
        if positions and 0 in positions[0] and column not in table.columns:
            raise _unclear(table, wanted, f"`{style(column, positions[0])}` is there, but elements are counted from 1")


def _unclear(table: Table, wanted: Wanted, reason: str) -> DataError:
    return DataError(UnclearColumns(wanted.kind, wanted.name, reason), source=table.source)


def _refuse_gap(
    table: Table, wanted: Wanted, column: str, style: Callable[[str, Position], str], shape: Position
) -> None:
    """Raise DataError where an axis takes as many columns as there are, and one of them is missing."""
    for position in _numbered(table, wanted, column, style):
        for axis, (number, count) in enumerate(zip(position, shape, strict=True)):
            if wanted.sizes[axis] is None and number > count:
                absent = style(column, (*(1,) * axis, count + 1, *(1,) * (len(shape) - axis - 1)))
                there = style(column, position)
                raise _missing(table, wanted, f"a column `{absent}`, since there is `{there}`", absent)


def _any_element(table: Table, wanted: Wanted, column: str, style: Callable[[str, Position], str]) -> bool:
    shape = [size or 1 for size in wanted.sizes]
    return any(style(column, position) in table.columns for position in product(*(range(1, n + 1) for n in shape)))


def _extent(table: Table, wanted: Wanted, column: str, style: Callable[[str, Position], str], axis: int) -> int:
    """Length of an axis: the declared size, which the columns must not exceed, or as many as follow one another."""
    ones = [1] * len(wanted.axes)

    def there(number: int) -> bool:
        name = style(column, (*ones[:axis], number, *ones[axis + 1 :]))
        return name in table.columns and wanted.could_be(name)

    size = wanted.sizes[axis]
    count = 0 if size is None else size
    while there(count + 1):
        count += 1
    if size is not None and count > size:
        names = [style(column, (*ones[:axis], n, *ones[axis + 1 :])) for n in (1, count)]
        raise _width(table, wanted, count, [f"{names[0]}` to `{names[1]}"], size)
    return count


def _stack(table: Table, wanted: Wanted, names: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    """The named columns side by side, [rows, *shape]; one of text makes all of them objects."""
    there = [(name, table.columns[name]) for name in names if name in table.columns]
    rows = there[0][1].shape[0]
    for name, values in there:
        if values.ndim != 1:
            raise DataError(WrongShape(name, str(list(values.shape)), "[rows]"), source=table.source)
        if values.shape[0] != rows:
            problem = DifferentLengths(name, values.shape[0], there[0][0], rows)
            raise DataError(problem, source=table.source)
    parts = [table.columns.get(name, np.full(rows, np.nan)) for name in names]
    if any(part.dtype == object for part in parts):
        parts = [part.astype(object) for part in parts]
    return np.stack(parts, axis=-1).reshape(rows, *shape)


def _missing(table: Table, wanted: Wanted, words: str, column: str) -> DataError:
    others = [name for name in table.columns if re.sub(r"\d", "", name) != re.sub(r"\d", "", column)]  # not x1 for x10
    suggestion = closest(column, others) if not wanted.axes else ""
    columns = listed(f"`{name}`" for name in table.columns) or "none"
    argument = (
        f"{wanted.name}={suggestion}" if suggestion.isidentifier() else shlex.quote(f"{wanted.name}={suggestion}")
    )
    return DataError(MissingColumn(wanted.kind, wanted.name, words, columns, suggestion, argument), source=table.source)


def _width(table: Table, wanted: Wanted, found: int, columns: Sequence[str], expected: int | None = None) -> DataError:
    needed = expected if expected is not None else wanted.sizes[0] or 1
    names = listed(f"`{name}`" for name in columns)
    return DataError(WrongWidth(wanted.name, found, needed, names, wanted.why), source=table.source)


def spelt(column: str) -> str:
    """The name by which a model finds a column whose own is none of the language, as `mean radius` by `mean_radius`."""
    name = re.sub(r"\W+", "_", unicodedata.normalize("NFC", column))[:LONGEST].strip("_") or "column"
    return name if name[0].isalpha() else f"x_{name}"


def places(
    table: Table, names: Iterable[str], said: Mapping[str, str | Sequence[str]], kept: Mapping[str, str | Sequence[str]]
) -> dict[str, str | Sequence[str]]:
    """The data name of each name of a model: the one that is said or, where the data have it, that an earlier fit kept.

    Otherwise it is the name itself, or the one column that is spelt so, where `index_` is for a column `index`, a word
    of the language. A frame that was made of an array numbers its columns.
    """
    names = list(names)
    found: dict[str, str | Sequence[str]] = {}
    for name in names:
        if name in said:
            found[name] = said[name]
        elif name in kept and (name not in table.columns or _there(table, kept[name])):
            found[name] = kept[name]
        else:
            found[name] = name if name in table.columns else _like(table, name, names, said)
    return {name: str(place) if isinstance(place, int) else place for name, place in found.items()}


def _like(table: Table, name: str, names: Sequence[str], said: Mapping[str, str | Sequence[str]]) -> str:
    """The one column that is spelt as a name, or the name."""
    free = [column for column in table.columns if column not in said.values()]
    stem = name.removesuffix("_")
    for meant in (name, *([stem] if stem not in names else [])):
        like = [column for column in free if spelt(column) == meant]
        if len(like) == 1:
            return like[0]
    return name


def _there(table: Table, place: str | Sequence[str]) -> bool:
    """Whether a table has a column, or all of some."""
    return all(str(each) in table.columns for each in ([place] if isinstance(place, str | int) else place))
