"""Writing columns to a file that `read_table` takes back: whole or not at all, numbers to the last digit."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from gpdsl.data.times import texts_of
from gpdsl.errors import GpdslError
from gpdsl.replacing import replacing

Columns = Mapping[str, np.ndarray]


def write_table(columns: Columns, path: str | Path) -> None:
    """Write columns, each [rows], as .csv, .tsv, .parquet or .npz by the suffix. Raises GpdslError when it fails."""
    target = Path(path)
    check_format(path)
    write = FORMATS[target.suffix.lower()]
    try:
        with replacing(target, "wb") as file:
            write(columns, file)
    except OSError as problem:
        raise GpdslError(f"cannot write {path}: {problem.strerror}") from problem


def check_format(path: str | Path) -> None:
    """Raise GpdslError for a name whose suffix is none of the formats."""
    if Path(path).suffix.lower() not in FORMATS:
        raise GpdslError(f"cannot write {path}: expected a name ending in {', '.join(FORMATS)}")


def write_text(columns: Columns, file: IO[str], separator: str = ",") -> None:
    """Write columns as delimited text with their names on the first line; missing values are empty."""
    writer = csv.writer(file, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*map(_texts, columns.values()), strict=True))


def _texts(values: np.ndarray) -> Iterator[str]:
    for value in texts_of(values) if values.dtype.kind == "M" else values.tolist():
        if value is None or value != value:
            yield ""
        elif isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            yield str(int(value))
        else:
            yield repr(value) if isinstance(value, float) else str(value)


def _delimited(separator: str) -> Callable[[Columns, IO[bytes]], None]:
    def write(columns: Columns, file: IO[bytes]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        write_text(columns, text, separator)
        text.detach()  # with all of it written

    return write


def _parquet(columns: Columns, file: IO[bytes]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as problem:
        raise GpdslError("writing Parquet needs the package pyarrow: install gpdsl[data], or write .csv") from problem
    pq.write_table(pa.table({name: _plain(values) for name, values in columns.items()}), file)


def _plain(values: np.ndarray) -> Any:
    return values.tolist() if values.dtype == object else values


def _archive(columns: Columns, file: IO[bytes]) -> None:
    arrays: dict[str, Any] = {
        name: values.astype(str) if values.dtype == object else values for name, values in columns.items()
    }
    np.savez_compressed(file, **arrays)


FORMATS: Mapping[str, Callable[[Columns, IO[bytes]], None]] = {
    ".csv": _delimited(","),
    ".tsv": _delimited("\t"),
    ".parquet": _parquet,
    ".npz": _archive,
}
