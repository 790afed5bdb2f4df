"""Anything column-like to an array: float64 where it holds numbers, otherwise object with text, dates and None."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gpdsl.data.errors import DataError, shown
from gpdsl.data.file_mistakes import MissingPackage, NotAColumn, TooManyDigits, Unreadable
from gpdsl.data.table import Columns, Table, as_datetimes, moment_of, refuse_beyond_memory, source_name, stays_on_disk
from gpdsl.errors import described, quoted

MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none"})
NUMBER_KINDS = "biuf"
READINGS = {
    marks: re.compile(rf"(?=.*\d)[+-]?([1-9]\d{{0,2}}({thousands}\d{{3}})+|\d*)({decimals}\d+)?(e[+-]?\d+)?", re.I)
    for marks, thousands, decimals in (((",", "."), ",", r"\."), ((".", ","), r"\.", ","))
}
"""Numbers by what stands between their thousands and before their decimals: `1,234.5`, and `1.234,5`."""
MOST_DIGITS = 15
"""Up to which each whole number is a float of its own."""
MINUS = "\u2212"
"""The sign of typesetters."""
TRUTHS = ("False", "True")
"""Categories of truths, in their order."""


def number_of(text: str) -> float | None:
    """The number a text stands for, NaN for the usual words for missing; None when it is other text."""
    if text.strip().lower() in MISSING_WORDS:
        return float("nan")
    try:
        return _number(text.replace(MINUS, "-"))
    except ValueError:
        return None


def limit_of(text: str) -> str:
    """The limit of a value that lies below or above one, as laboratories write `<0.05`; nothing of other texts."""
    found = re.fullmatch(r"\s*[<>≤≥]=?\s*(\S+)\s*", text)
    number = number_of(found[1]) if found else None
    return found[1] if found and number is not None and np.isfinite(number) else ""


def readings(text: str) -> dict[tuple[str, str], str]:
    """A number as Python writes it, by the marks of thousands and decimals that it may have: two ways for `1,500`."""
    text = text.strip()
    found = {marks for marks, pattern in READINGS.items() if pattern.fullmatch(text)}
    return {marks: text.replace(marks[0], "").replace(marks[1], ".") for marks in READINGS if marks in found}


def _number(text: str) -> float:
    """A number as people write it: Python also takes `1_000`, and the digits of every script."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def is_code(text: str) -> bool:
    """Whether digits are more likely a name: with a zero first that no number needs, `007`, or too many for a float."""
    text = text.strip()
    if not (text.isascii() and text.isdigit()):
        return False
    if text[0] == "0":
        return len(text) > 1
    return len(text) > MOST_DIGITS and (float(text) == np.inf or int(float(text)) != int(text))


def from_texts(values: Sequence[str]) -> np.ndarray:
    """A column of a text file: float64 when every entry is a number or missing, otherwise object (None: missing).

    Numbers with zeros before them, or more digits than a float, stay text, as that of `007` in a data frame is: labels
    keep them.
    """
    if not any(map(is_code, values)):
        try:
            return np.array([_number(value) for value in values])
        except ValueError:
            numbers = [number_of(value) for value in values]
        if None not in numbers:
            return np.array(numbers, dtype=np.float64)
    kept = [None if value.strip().lower() in MISSING_WORDS else value.strip() for value in values]
    return np.array(kept, dtype=object)


def column_of(name: str, values: object, source: str) -> np.ndarray:
    """A column: a sequence, an array with rows first, or a series of a data frame. Raises DataError for anything else.

    A memory map of numbers is left where it is; masked entries are missing.
    """
    if stays_on_disk(values):
        return values  # type: ignore[return-value]
    if not isinstance(values, np.ndarray | list | tuple):
        values = _from_series(values)
    try:
        array = np.asarray(values.data if isinstance(values, np.ma.MaskedArray) else values)
        if array.dtype.kind in "US" and not isinstance(values, np.ndarray):  # in which NumPy writes "nan" for NaN
            array = np.asarray(values, dtype=object)
    except Exception as problem:  # objects may make arrays of themselves in their own way
        reason = described(problem)
        raise _not_a_column(
            name, "its rows have different lengths" if "inhomogeneous" in reason else reason, source
        ) from problem
    if array.ndim == 0:
        raise _not_a_column(name, f"it is a single {type(values).__name__}", source)
    refuse_beyond_memory(8 * array.size, source)
    if array.dtype.kind in NUMBER_KINDS:
        with np.errstate(over="ignore"):  # of longer floats: what is infinite is found later
            array = array.astype(np.float64)
    elif array.dtype.kind in "USO":
        array = array.astype(object)
    elif array.dtype.kind == "M":
        if isinstance(values, np.ma.MaskedArray):
            array = np.where(np.ma.getmaskarray(values), np.array("NaT", array.dtype), array)
        return as_datetimes(array)
    else:
        raise _not_a_column(name, f"its type is {array.dtype}", source)
    if isinstance(values, np.ma.MaskedArray):
        array[np.ma.getmaskarray(values)] = np.nan
    return array if array.dtype != object else _from_mixed(name, array, source)


def _from_series(values: object) -> object:
    """A series of any data frame as an array of numbers or a list; anything else as it is."""
    import narwhals.stable.v2 as nw

    series = nw.from_native(values, series_only=True, pass_through=True)  # type: ignore[call-overload]
    if not isinstance(series, nw.Series):
        return values.to_pylist() if hasattr(values, "to_pylist") else values  # an array of pyarrow is no series
    if series.dtype.is_float():
        return series.cast(nw.Float64).to_numpy()
    numbers = series.dtype.is_integer() or series.dtype == nw.Boolean
    return series.to_numpy() if numbers and not series.null_count() else series.to_list()


def order_of(values: Any, name: str) -> tuple[str, ...]:
    """The categories of a column, or of a frame of one, in their order, as text: of an ordered categorical, or an enum.

    Of truths they are False and True. None where they have no order. Raises DataError of this name where pieces of it
    have several.
    """
    import narwhals.stable.v2 as nw

    columns: Any = getattr(values, "columns", ())
    values = values[columns[0]] if len(columns) == 1 else values
    if hasattr(getattr(values, "dtype", None), "pyarrow_dtype"):  # of pandas, which keeps an array of Arrow
        values = getattr(values, "array", values).__arrow_array__()
    series = nw.from_native(values, series_only=True, pass_through=True)
    categories: Sequence[Any]
    if _are_truths(series):
        categories = TRUTHS
    elif isinstance(series, nw.Series) and isinstance(series.dtype, nw.Enum):
        categories = series.dtype.categories
    elif getattr(getattr(values, "type", None), "ordered", False):
        categories = _one_order([each.dictionary.to_pylist() for each in getattr(values, "chunks", [values])], name)
    else:  # of pandas, without its series
        categories = getattr(values, "categories", ()) if getattr(values, "ordered", False) is True else ()
    return tuple(str(_text_of(each)) for each in categories)


def _are_truths(values: Any) -> bool:
    """Whether a series of narwhals, an array of NumPy or Arrow, or a list holds truths alone; None is missing."""
    kind = getattr(values, "dtype", getattr(values, "type", None))
    if kind is None and isinstance(values, list | tuple):
        return bool(values) and all(each is None or isinstance(each, bool | np.bool_) for each in values)
    return str(kind).lower() in {"bool", "boolean"}


def _one_order(pieces: Sequence[Sequence[Any]], name: str) -> Sequence[Any]:
    """The one order that the ordered dictionaries of all pieces of an array have. Raises DataError for several."""
    after: dict[Any, set[Any]] = {each: set() for piece in pieces for each in piece}
    for first, second in (pair for piece in pieces for pair in pairwise(piece)):
        after[second].add(first)
    with suppress(CycleError):
        order = [*TopologicalSorter(after).static_order()]
        if all(first in after[second] for first, second in pairwise(order)):
            return order
    told = [*dict.fromkeys(", ".join(map(str, piece)) for piece in pieces)][:3]
    reason = f"the ordered dictionaries of its pieces make no one order: {quoted('; '.join(told))}"
    raise DataError(NotAColumn(name, reason, "give all pieces one dictionary, or text and the levels in the model"))


def _from_mixed(name: str, array: np.ndarray, source: str) -> np.ndarray:
    """Text, numbers and None together: numbers if all are, else text. Digits given as text stay text; dates dates."""
    flat = [_entry(value) for value in array.ravel().tolist()]
    wrong = next((value for value in flat if not _is_scalar(value)), None)
    if wrong is not None:
        raise _not_a_column(name, f"one of its entries is a {type(wrong).__name__}", source)
    if any(isinstance(value, datetime) for value in flat):
        other = next((value for value in flat if not isinstance(value, datetime | None)), None)
        if other is not None:
            raise _not_a_column(name, f"some entries are dates, and one is a {type(other).__name__}", source)
        dates = np.empty(len(flat), dtype=object)
        dates[:] = flat
        return dates.reshape(array.shape)
    words = any(isinstance(value, str | bytes) for value in flat)
    kept: list[Any] = []
    for value in flat:
        try:
            kept.append(_text_of(value) if words else np.nan if value is None else float(value))
        except (OverflowError, ValueError) as problem:
            row = len(kept) // (array.size // len(array)) + 1
            raise DataError(TooManyDigits(name, row, shown(value)), source=source) from problem
    return np.array(kept, dtype=object if words else np.float64).reshape(array.shape)


def _entry(value: Any) -> Any:
    """An entry in plain Python: None for what pandas calls missing, the moments at which dates and periods begin."""
    if isinstance(value, float):
        return None if np.isnan(value) else value
    if isinstance(value, str | int | None):
        return value
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, Decimal):
        return float(value)
    if type(value).__name__ == "Interval":  # of pandas.cut
        return str(value)
    moment = moment_of(value)
    return value if moment is None else moment


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | bytes | bool | int | float | datetime | np.integer | np.floating | np.bool_ | None)


def _text_of(value: object) -> str | None:
    """Text without the blanks around it, as in a file; None where nothing is left.

    The words for missing are those of files: Python has None and NaN, so that "none" can be a label.
    """
    if value is None or value != value:  # NaN is the one value that differs from itself
        return None
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip() or None


def _not_a_column(name: str, reason: str, source: str) -> DataError:
    if "timedelta" in reason.lower():
        return DataError(NotAColumn(name, reason, DURATIONS), source=source)
    return DataError(NotAColumn(name, reason), source=source)


DURATIONS = "durations are numbers once a unit is said: divide the column, as by numpy.timedelta64(1, 'h')"


# Data frames of every library that narwhals knows, Parquet and NumPy archives; each imported only when met.

DATES = ("datetime64", "datetime", "date", "period")
"""What pandas infers of an index of times."""


def read_frame(frame: Any) -> Table | None:
    """A frame of pandas, Polars, pyarrow and others; None for what is none."""
    import narwhals.stable.v2 as nw

    if type(frame).__name__ == "RecordBatch" and hasattr(frame, "__arrow_c_array__"):
        import pyarrow as pa

        frame = pa.Table.from_batches([frame])
    if not nw.dependencies.is_into_dataframe(frame):
        return None
    if hasattr(frame, "reset_index"):  # of pandas, whose index has the dates of a series, and may have a name
        dates = (
            getattr(frame.index, "inferred_type", "") in DATES and frame.index.name is None
        )  # becomes a column `index`
        frame = frame.reset_index(
            None if dates else [name for name in frame.index.names if name is not None and name not in frame]
        )
    own = frame.column_names if hasattr(frame, "column_names") else frame.columns
    names = [str(name) for name in own]
    counts = Counter(names)
    single = [place for place, name in enumerate(names) if counts[name] == 1]
    if len(single) < len(names):  # narwhals takes no frame in which two columns share a name
        frame = frame.iloc[:, single] if hasattr(frame, "iloc") else frame.select(single)
    whole = nw.from_native(frame, eager_only=True)

    def column(place: int) -> Any:
        found = whole[:, single.index(place)].to_native()
        return (
            _as_periods(found, frame.schema.field(single.index(place)), "data") if hasattr(found, "chunks") else found
        )

    columns = Columns(names, lambda place: column_of(names[place], column(place), "data"), "data")
    return Table(columns, order=lambda name: order_of(column(names.index(name)), name))


def read_parquet(path: Path) -> Table:
    """A Parquet file, read by pyarrow. Raises DataError when pyarrow is absent or the file is none."""
    source = source_name(path)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as problem:
        raise DataError(MissingPackage("reading Parquet", "pyarrow"), source=source) from problem
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as problem:
        raise DataError(Unreadable("it is no complete Parquet file"), source=source) from problem
    names = file.schema_arrow.names

    def column(name: str) -> Any:
        try:
            refuse_beyond_memory(max(8 * file.metadata.num_rows, _bytes(file.metadata, name)), source)
            return _as_periods(file.read(columns=[name])[name], file.schema_arrow.field(name), source)
        except (OSError, pa.ArrowException) as problem:
            raise DataError(Unreadable(f"its column `{quoted(name)}` is damaged"), source=source) from problem

    def order(name: str) -> tuple[str, ...]:
        kind = file.schema_arrow.field(name).type
        return order_of(column(name), name) if getattr(kind, "ordered", False) or str(kind) == "bool" else ()

    columns = Columns(names, lambda place: column_of(names[place], column(names[place]), source), source)
    return Table(columns, source, order=order)


def _as_periods(column: Any, about: Any, source: str) -> Any:
    """Periods of pandas, which Arrow keeps as the numbers of these; any other column as it is."""
    said = about.metadata or {}
    kind, more = said.get(b"ARROW:extension:name"), said.get(b"ARROW:extension:metadata", b"{}")
    frequency = getattr(about.type, "freq", None)  # where pandas has told Arrow of them
    if kind == b"pandas.period":
        frequency = json.loads(more).get("freq")
    if frequency is None:
        return column
    try:
        import pandas as pd
    except ImportError as problem:
        raise DataError(
            MissingPackage(f"reading the periods of `{quoted(about.name)}`", "pandas"), source=source
        ) from problem
    numbers = [chunk.storage if hasattr(chunk, "storage") else chunk for chunk in column.chunks]
    known = [each for chunk in numbers for each in chunk.to_pylist()]
    return [None if each is None else pd.Period(ordinal=each, freq=frequency) for each in known]


def _bytes(about: Any, name: str) -> int:
    """Bytes that a column of a Parquet file has when it is unpacked."""
    chunks = (about.row_group(k).column(c) for k in range(about.num_row_groups) for c in range(about.num_columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] == name)


def read_npz(path: Path) -> Table:
    """A NumPy archive of arrays, rows first; arrays of Python objects are refused."""
    source = source_name(path)
    with _archive(path, source) as archive:
        names = list(archive.files)

    def read(place: int) -> np.ndarray:
        with _archive(path, source) as archive:
            return column_of(names[place], _member(archive, names[place], source), source)

    return Table(Columns(names, read, source), source)


@contextmanager
def _archive(path: Path, source: str) -> Iterator[Any]:
    """An open archive."""
    try:
        with path.open("rb") as file:  # which NumPy leaves open where the archive is damaged
            try:
                archive = np.load(file, allow_pickle=False)
            except ValueError as problem:  # other bytes, which NumPy takes for pickled ones, to be trusted
                raise zipfile.BadZipFile from problem
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError(Unreadable("it is one array, not an archive of arrays with names"), source=source)
            yield archive
    except (OSError, EOFError, zipfile.BadZipFile) as problem:
        raise DataError(Unreadable("it is no archive of plain NumPy arrays"), source=source) from problem


def _member(archive: Any, name: str, source: str) -> np.ndarray:
    """An array of an archive, which may hold other files and objects too. Raises DataError for those."""
    sizes = {each.filename: each.file_size for each in archive.zip.infolist()}
    refuse_beyond_memory(sizes.get(f"{name}.npy", sizes.get(name, 0)), source)
    try:
        values = archive[name]
    except Exception as problem:  # bytes that are no array, or one of Python objects
        reason = "it is an array of Python objects" if "Object arrays" in str(problem) else described(problem)
        raise DataError(NotAColumn(quoted(name), reason), source=source) from problem
    if not isinstance(values, np.ndarray):
        raise DataError(NotAColumn(quoted(name), "it is a file of the archive that holds no array"), source=source)
    return values
