"""Columns that a model does not name are not looked at: they may hold anything, in every kind of table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gpdsl.data import DataError, bind, read_table
from tests.data import models

DAY = dt.date(2024, 1, 5)
ODD: dict[str, list] = {
    "when": [DAY, None],
    "parts": [[1, 2], None],
    "more": [{"a": 1}, {"a": 2}],
    "span": [dt.timedelta(1), None],
}
NEEDED = {"x": [1.0, 2.0], "y": [3.0, 4.0]}


def archive(folder: Path) -> Path:
    objects = np.array([{"a": 1}, None], dtype=object)
    np.savez(folder / "d.npz", **NEEDED, one=np.array(3), spans=np.zeros(2, "m8[s]"), objects=objects)  # type: ignore[arg-type]
    return folder / "d.npz"


def folder_of(folder: Path) -> Path:
    for name, values in {**NEEDED, "text": ["a", "b"]}.items():
        np.save(folder / f"{name}.npy", values)
    return folder


def text(folder: Path) -> Path:
    (folder / "d.csv").write_text('when,when,x,y\n2024-01-05,"[1, 2]",1,3\n,b,2,4\n')
    return folder / "d.csv"


def parquet(folder: Path) -> Path:
    pl.DataFrame({**ODD, **NEEDED}).write_parquet(folder / "d.parquet")
    return folder / "d.parquet"


SOURCES: dict[str, Callable[[Path], object]] = {
    "dictionary": lambda _: {**ODD, "one": 3, "complex": [1j, 2], "ragged": [[1], [2, 3]], **NEEDED},
    "pandas": lambda _: pd.DataFrame({**ODD, "mixed": [1, "a"], "range": pd.interval_range(0, 2), **NEEDED}),
    "pandas, two of a name": lambda _: pd.DataFrame([[1, 2, 1, 3], [1, 2, 2, 4]], columns=["a", "a", "x", "y"]),
    "polars": lambda _: pl.DataFrame({**ODD, **NEEDED}),
    "pyarrow": lambda _: pl.DataFrame({**ODD, **NEEDED}).to_arrow(),
    "pyarrow, two of a name": lambda _: pa.table([[1, 2], [3, 4], [5, 6], [3, 4]], names=["x", "a", "a", "y"]),
    "csv": text,
    "parquet": parquet,
    "npz": archive,
    "folder": folder_of,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_columns_that_no_model_names_may_hold_anything(kind: str, tmp_path: Path) -> None:
    source = SOURCES[kind](tmp_path)
    data = bind(models.REAL, source)
    assert (data.inputs["x"].tolist(), data.outputs["y"].tolist()) == ([1, 2], [3, 4])
    table = read_table(source)
    assert table.rows == 2
    odd = [name for name in table.columns if name not in NEEDED]
    assert odd
    # ... but they are known by name, and judged where a model names them
    with pytest.raises(DataError, match=r"did you mean the column `y`") as caught:
        bind(models.REAL, source, columns={"y": "Y"})
    assert "D101" in str(caught.value)
    if kind != "folder":
        with pytest.raises(DataError, match=r"error\[D(110|122|131|146)\]"):
            bind(models.REAL, source, columns={"y": odd[-1]})


def test_a_frame_that_is_not_read_yet_says_so() -> None:
    with pytest.raises(DataError, match="data of type `LazyFrame` are not a table"):
        bind(models.REAL, pl.DataFrame(NEEDED).lazy())


FRAMES: dict[str, Callable[[dict], object]] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "dictionary of series": lambda columns: {name: pl.Series(name, values) for name, values in columns.items()},
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize(
    ("declared", "values", "expected"),
    [
        (models.REAL, [1.5, None], [1.5, np.nan]),
        (models.COUNT, [3, None], [3, np.nan]),
        (models.BINARY, [True, None], [1, np.nan]),
        (models.label('{"b", "a"}'), ["a", None], [1, np.nan]),
    ],
)
def test_what_is_missing_in_a_frame_is_not_observed(kind: str, declared: object, values: list, expected: list) -> None:
    data = bind(declared, FRAMES[kind]({"x": [1, 2], "y": values}))  # type: ignore[arg-type]
    np.testing.assert_array_equal(np.where(data.observed["y"], data.outputs["y"], np.nan), expected)


NULLABLE: dict[str, object] = {
    "Int64": pd.array([4, None, 7], dtype="Int64"),
    "Float64": pd.array([4, None, 7], dtype="Float64"),
    "int64[pyarrow]": pd.array([4, None, 7], dtype="int64[pyarrow]"),
    "objects": pd.Series([4, pd.NA, 7], dtype=object),
    "categories": pd.Categorical([4, None, 7]),
    "decimals": pa.chunked_array([[4, None, 7]], pa.decimal128(4, 1)),
    "arrow": pa.array([4, None, 7]),
}


@pytest.mark.parametrize("kind", NULLABLE)
def test_numbers_of_every_type(kind: str) -> None:
    source = {"x": [1, 2, 3], "y": NULLABLE[kind]}
    data = bind(models.REAL, source)
    np.testing.assert_array_equal(np.where(data.observed["y"], data.outputs["y"], np.nan), [4, np.nan, 7])
    assert bind(models.label(), source).levels["c"] == (4, 7)


LABELS: dict[str, object] = {
    "string": pd.DataFrame({"x": [1, 2, 3], "y": pd.array(["v", None, "u"], dtype="string")}),
    "string[pyarrow]": pd.DataFrame({"x": [1, 2, 3], "y": pd.array(["v", None, "u"], dtype="string[pyarrow]")}),
    "pandas categories": pd.DataFrame({"x": [1, 2, 3], "y": pd.Categorical(["v", None, "u"])}),
    "polars categories": pl.DataFrame({"x": [1, 2, 3], "y": pl.Series(["v", None, "u"], dtype=pl.Categorical)}),
    "polars enum": pl.DataFrame({"x": [1, 2, 3], "y": pl.Series(["v", None, "u"], dtype=pl.Enum(["u", "v", "w"]))}),
    "arrow dictionary": pa.table({"x": [1, 2, 3], "y": pa.array(["v", None, "u"]).dictionary_encode()}),
}


@pytest.mark.parametrize("kind", LABELS)
def test_categories_are_labels(kind: str) -> None:
    data = bind(models.label(), LABELS[kind])
    assert data.levels["c"] == ("u", "v")
    np.testing.assert_array_equal(np.where(data.observed["y"], data.outputs["y"], np.nan), [1, np.nan, 0])


def test_dates_as_labels_are_texts() -> None:
    data = bind(models.label(), {"x": [1, 2, 3], "y": [DAY, None, dt.datetime(2024, 1, 4, 12)]})
    assert data.levels["c"] == ("2024-01-04T12:00:00", "2024-01-05")


def test_a_vector_takes_the_numbered_columns_only() -> None:
    frame = pl.DataFrame({"x1": [1, 2], "xtra": [[1], [2]], "x2": [3, 4], "y": [0, 1], "when": [DAY, DAY]})
    assert bind(models.vector(), frame).inputs["x"].tolist() == [[1, 3], [2, 4]]
    with pytest.raises(DataError, match="column `x3`, since there is `x4`"):
        bind(models.vector(), frame.with_columns(x4=pl.lit("a")))


def test_columns_in_another_encoding_are_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes("x,y,Größe\n1,3,groß\n2,4,klein\n".encode("latin-1"))
    assert bind(models.REAL, path).outputs["y"].tolist() == [3, 4]
    with pytest.raises(DataError, match="`Gr��e` is no column of numbers or text: it is not UTF-8 text"):
        bind(models.REAL, path, columns={"y": "Gr��e"})
    path.write_bytes("x,y\n1,3\n2,4\n".encode("utf-16"))
    with pytest.raises(DataError, match="the file cannot be read: it is not UTF-8 text"):
        bind(models.REAL, path)
