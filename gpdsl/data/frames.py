"""Data frames of every library that narwhals knows, Parquet and NumPy archives; each imported only when met."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gpdsl.data.convert import from_object
from gpdsl.data.errors import DataError
from gpdsl.data.file_mistakes import MissingPackage, NotAColumn, Unreadable
from gpdsl.data.memory import refuse_beyond_memory
from gpdsl.data.table import Columns, Table, source_name
from gpdsl.errors import described, quoted

DATES = ("datetime64", "datetime", "date", "period")
"""What pandas infers of an index of times."""


def read_frame(frame: Any) -> Table | None:
    """A frame of pandas, Polars, pyarrow and others; None for what is none."""
    import narwhals.stable.v2 as nw

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
    return Table(
        Columns(
            names, lambda place: from_object(names[place], whole[:, single.index(place)].to_native(), "data"), "data"
        )
    )


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

    def read(place: int) -> np.ndarray:
        name = names[place]
        try:
            refuse_beyond_memory(max(8 * file.metadata.num_rows, _bytes(file.metadata, name)), source)
            return from_object(name, file.read(columns=[name])[name], source)
        except (OSError, pa.ArrowException) as problem:
            raise DataError(Unreadable(f"its column `{quoted(name)}` is damaged"), source=source) from problem

    return Table(Columns(names, read, source), source)


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
            return from_object(names[place], _member(archive, names[place], source), source)

    return Table(Columns(names, read, source), source)


@contextmanager
def _archive(path: Path, source: str) -> Iterator[Any]:
    """An open archive."""
    try:
        with path.open("rb") as file:  # which NumPy leaves open where the archive is damaged
            archive = np.load(file, allow_pickle=False)
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
