"""Data frames and binary files: pandas, Parquet and NumPy archives, each imported only when met."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from gpdsl.data.convert import from_object
from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import DuplicateColumn, MissingPackage, NotAColumn, Unreadable
from gpdsl.data.memory import refuse_beyond_memory
from gpdsl.data.table import Table, source_name
from gpdsl.errors import described, quoted


def is_frame(source: object) -> bool:
    """Whether an object is a pandas DataFrame, told without importing pandas."""
    kind = type(source)
    return kind.__name__ == "DataFrame" and kind.__module__.split(".")[0] == "pandas"


def read_frame(frame: Any) -> Table:
    """A pandas DataFrame; categories become their labels, missing values NaN or None."""
    names = [str(name) for name in frame.columns]
    refuse_duplicates(names, "data")
    series = (frame.iloc[:, place] for place in range(len(names)))
    return Table({name: _from_series(name, values) for name, values in zip(names, series, strict=True)})


def _from_series(name: str, series: Any) -> np.ndarray:
    if series.dtype.kind in "biuf" and not series.hasnans:
        return series.to_numpy(dtype=np.float64)
    missing = series.isna().to_numpy()
    values = series.astype(object).to_numpy(copy=True)
    values[missing] = None
    return from_object(name, values, "data")


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
        about = file.metadata
        groups = sum(about.row_group(k).total_byte_size for k in range(about.num_row_groups))
        refuse_beyond_memory(max(8 * about.num_rows * about.num_columns, groups), source)
        table = file.read()
    except (OSError, pa.ArrowException) as problem:
        raise DataError(Unreadable("it is no complete Parquet file"), source=source) from problem
    refuse_duplicates(table.column_names, source)
    return Table({name: from_object(name, _unpacked(table[name]), source) for name in table.column_names}, source)


def _unpacked(column: Any) -> np.ndarray:
    """A column of pyarrow as NumPy: numbers without nulls directly, the rest as Python objects."""
    if column.null_count == 0 and str(column.type).startswith(("int", "uint", "float", "double", "bool")):
        return column.to_numpy()
    values = np.empty(len(column), dtype=object)
    values[:] = column.to_pylist()
    return values


def read_npz(path: Path) -> Table:
    """A NumPy archive of arrays, rows first; arrays of Python objects are refused."""
    source = source_name(path)
    try:
        with path.open("rb") as file:  # which NumPy leaves open where the archive is damaged
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError(Unreadable("it is one array, not an archive of arrays with names"), source=source)
            members: Any = archive.zip
            refuse_beyond_memory(sum(each.file_size for each in members.infolist()), source)
            arrays = {name: _member(archive, name, source) for name in archive.files}
    except (OSError, EOFError, zipfile.BadZipFile) as problem:
        raise DataError(Unreadable("it is no archive of plain NumPy arrays"), source=source) from problem
    return Table({name: from_object(name, values, source) for name, values in arrays.items() if values.ndim}, source)


def _member(archive: Any, name: str, source: str) -> np.ndarray:
    """An array of an archive, which may hold other files and objects too. Raises DataError for those."""
    try:
        values = archive[name]
    except Exception as problem:  # bytes that are no array, or one of Python objects
        reason = "it is an array of Python objects" if "Object arrays" in str(problem) else described(problem)
        raise DataError(NotAColumn(quoted(name), reason), source=source) from problem
    if not isinstance(values, np.ndarray):
        raise DataError(NotAColumn(quoted(name), "it is a file of the archive that holds no array"), source=source)
    return values


def refuse_duplicates(names: Iterable[str], source: str) -> None:
    """Raise DataError when two columns share a name."""
    places: dict[str, int] = {}
    for place, name in enumerate(names, 1):
        if name and name in places:
            raise DataError(DuplicateColumn(name, places[name], place), source=source)
        places[name] = place
