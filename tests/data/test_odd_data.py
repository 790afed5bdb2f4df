"""Odd data: values, arrays and files that are nearly or hardly data end in an error with the cause."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gpdsl.data import DataError, bind, read_table, table as memory
from gpdsl.data.bound import moments
from gpdsl.data.files import write_table
from gpdsl.errors import GpdslWarning
from gpdsl.language import compile_text
from tests.data import models


@pytest.mark.parametrize("text", ["1_000", "٣", "１２"])
def test_numbers_are_those_that_people_write(text: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(f"x,y\n1,2\n2,{text}\n", encoding="utf-8")
    for source in (tmp_path / "d.csv", {"x": [1, 2], "y": ["2", text]}):
        with pytest.raises(DataError, match=f"column `y`, row 2: `{text}` is not a number"):
            bind(models.REAL, source)


@pytest.mark.parametrize("values", [["4", "inf"], [4, np.inf], [4.0, -np.inf]])
def test_infinite_labels_are_refused(values: list, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,y\n" + "".join(f"{k},{v}\n" for k, v in enumerate(values)), encoding="utf-8")
    with pytest.raises(DataError, match="row 2: the output is -?inf"):
        bind(models.label(), tmp_path / "d.csv")
    if not isinstance(values[0], str):
        with pytest.raises(DataError, match="row 2: the output is -?inf"):
            bind(models.label(), {"x": [1, 2], "y": values})


def test_labels_that_rounding_would_merge_are_refused() -> None:
    values = [2**53 + 1, 2**53]
    with pytest.raises(DataError, match=r"row 1: `9.0072e\+15` is beyond what the 64 bits of a number hold"):
        bind(models.label(), {"x": [1, 2], "y": values})
    assert len(bind(models.label(), {"x": [1, 2], "y": list(map(str, values))}).levels["c"]) == 2


def test_masked_arrays_are_missing_where_they_are_masked() -> None:
    hidden = [False, True, False]
    y = np.ma.MaskedArray([1, 2, 3], mask=hidden)
    data = bind(models.REAL, {"x": [1, 2, 3], "y": y})
    assert data.observed["y"].tolist() == [True, False, True]
    words = np.ma.MaskedArray(["a", "b", "a"], mask=hidden)
    data = bind(models.label(), {"x": [1, 2, 3], "y": words})
    assert (data.levels["c"], data.observed["y"].tolist()) == (("a",), [True, False, True])
    mixed = np.ma.MaskedArray(np.array([1, None, 3], dtype=object), mask=[True, False, False])
    assert bind(models.REAL, {"x": [1, 2, 3], "y": mixed}).observed["y"].tolist() == [False, False, True]
    odd = {
        "it is a single MaskedConstant": np.ma.masked,
        "its type is complex128": np.ma.MaskedArray([1j, 2, 3], mask=hidden),
        r"its type is \[\('a', '<i8'\)\]": np.ma.MaskedArray(np.zeros(3, [("a", int)]), mask=[(True,)] * 3),
    }
    for reason, values in odd.items():
        with pytest.raises(DataError, match=f"`y` is no column of numbers or text: {reason}"):
            bind(models.REAL, {"x": [1, 2, 3], "y": values})


class Unwilling:
    """An object that makes no array of itself."""

    def __array__(self, *arguments: object, **options: object) -> np.ndarray:
        raise RuntimeError("\x1b[31mno")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([1, 10**400], "row 2: `1000.*…` is beyond what the 64 bits"),
        ([1, 10**5000], "row 2: `.* without words.*` is beyond what the 64 bits"),
        (["a", 10**5000], "row 2: `.* without words.*` is beyond what the 64 bits"),
        (np.array([[1, 2], [3, 10**400]], dtype=object), "row 2: `1000"),
        ([1 + 1j, 2], "its type is complex128"),
        (np.array([1 + 1j, None], dtype=object), "one of its entries is a complex"),
        (np.array([np.complex64(1j), None], dtype=object), "one of its entries is a complex"),
        (Unwilling(), "RuntimeError: �.31mno"),
        ({1, 2}, "it is a single set"),
        (np.broadcast_to(1.0, (10**14,)), r"error\[D126\]: its columns take about 7.45e\+05 GiB in memory"),
        (np.zeros((2, 0)), "shape"),
        (np.zeros((1,) * 30), "shape"),
    ],
)
def test_values_that_are_no_column_say_why(values: object, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        bind(models.REAL, {"x": [1, 2], "y": values})


def npz_of(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def header(shape: str, kind: str = "<f8") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no array", "it is a file of the archive that holds no array"),
        (header("(3,)"), "EOF|buffer"),
        (header("(1000000000000000,)"), "Unable to allocate|EOF"),
        (header("(99999999999999999999999999999,)"), "Error"),
        (header("(-3,)"), "Error"),
        (header("(((((("), "Error"),
        (header("(2,)", "|O"), "it is an array of Python objects"),
        (header("(2,)", "<m8[ns]") + bytes(16), "its type is timedelta64"),
    ],
)
def test_members_of_archives_that_are_no_arrays_are_named(content: bytes, reason: str, tmp_path: Path) -> None:
    path = npz_of(tmp_path / "d.npz", {"x.npy": header("(2,)") + bytes(16), "y.npy": content})
    with pytest.raises(DataError, match=f"`y` is no column of numbers or text: .*({reason})"):
        bind(models.REAL, path)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "y.npy").write_bytes(content)
    np.save(folder / "x.npy", np.arange(2.0))
    with pytest.raises(DataError, match="y.npy"):
        bind(models.REAL, folder)


def test_what_does_not_fit_into_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"x": np.zeros(40_000), "y": np.zeros(40_000)}
    paths = [tmp_path / f"d.{kind}" for kind in ("csv", "npz", "parquet")]
    for path in paths:
        write_table(columns, path)
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "free_memory", lambda: 2.5e5)
    for source in [*paths, columns | {"y": np.zeros(80_000)}]:
        with pytest.raises(DataError, match=r"error\[D126\]: its columns take about 0.00\d* GiB in memory"):
            bind(models.REAL, source)
    monkeypatch.setattr(memory, "free_memory", lambda: 1e8)
    assert [read_table(path).rows for path in paths] == [40_000] * 3


def test_the_system_says_what_memory_is_free() -> None:
    assert 2**24 < memory.free_memory() < 2**60


def test_times_that_are_masked_or_beyond_the_calendar_are_no_numbers() -> None:
    days = np.array(["2024-01-05", "2024-01-06"], "M8[D]")
    masked = np.ma.masked_array(days, [False, True])
    with pytest.raises(DataError, match="column `t`, row 2: the input is missing"):
        bind(models.TIME, {"t": masked, "y": [1, 2]})
    for year in (-20000, 12000):
        far = np.array(["2024-01-05", f"{year}-01-06"], "M8[D]")
        with pytest.raises(DataError, match=f"column `t`, row 2: `{year}-01-06` is no date"):
            bind(models.TIME, {"t": far, "y": [1, 2]})
        with pytest.raises(DataError, match="column `x`, row [12]: .* not a number"):
            bind(models.REAL, {"x": far, "y": [1, 2]})


def test_other_bytes_are_not_called_objects_to_be_trusted(tmp_path: Path) -> None:
    (tmp_path / "d.npz").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match="it is no archive of plain NumPy arrays"):
        bind(models.REAL, tmp_path / "d.npz")


def test_devices_and_pipes_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.csv"):
        with pytest.raises(DataError, match="it is a device or a pipe, not a file"):
            read_table(tmp_path / name)
    for odd in (tmp_path / ("n" * 300 + ".csv"), "a\0b.csv", tmp_path / "pipe.csv" / "below.csv"):
        with pytest.raises(DataError, match="the file cannot be read"):
            read_table(odd)


def test_a_batch_of_arrow_is_a_table() -> None:
    pa = pytest.importorskip("pyarrow")
    batch = pa.RecordBatch.from_pydict({"x": [0.0, 1.0], "y": ["a", None]})
    found = read_table(batch)
    np.testing.assert_array_equal(found.columns["x"], [0.0, 1.0])
    assert found.columns["y"].tolist() == ["a", None]


def test_intervals_of_pandas_are_words_in_their_order() -> None:
    pd = pytest.importorskip("pandas")
    cut = pd.cut([0.5, 12.0, 3.0], [0, 2, 10, 20])
    for data in ({"age": cut}, pd.DataFrame({"age": cut})):
        found = read_table(data)
        assert found.columns["age"].tolist() == ["(0, 2]", "(10, 20]", "(2, 10]"]
        assert found.order("age") == ("(0, 2]", "(2, 10]", "(10, 20]")


def test_none_among_words_of_a_text_file_is_told_to_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("x,pain\n1,None\n2,mild\n3,none\n")
    with pytest.warns(GpdslWarning, match=r"d\.csv: `pain` is missing where it says None, in 2 of 3 rows"):
        assert read_table(path).columns["pain"].tolist() == [None, "mild", None]


def test_empty_labels_are_missing_as_in_a_file() -> None:
    labels = np.array(["a", "", "b ", "  ", "none"])
    for given in (labels, labels.astype(object), labels.tolist(), labels.astype("S")):
        assert read_table({"y": given}).columns["y"].tolist() == ["a", None, "b", None, "none"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", [1e-310, 1e-200, 1e160, 1e300, 1e307])
def test_columns_of_any_size_have_a_spread(unit: float) -> None:
    values = np.array([[1.0, 0.1, 1.0], [2.0, 0.1, 1.0], [17.0, 0.1, 2.0]])
    scales = np.array([unit, 1.0, 1.0])
    mean, sd = moments(values * scales)
    np.testing.assert_allclose(mean, np.mean(values, axis=0) * scales, rtol=1e-4)  # numbers of 1e-310 have few digits
    np.testing.assert_allclose(sd, np.std(values, axis=0) * [unit, 0.0, 1.0], rtol=1e-4)


def test_durations_and_constant_words_are_told_as_such_and_accents_are_one_letter() -> None:
    with pytest.raises(DataError, match="(?s)its type is timedelta64.*durations are numbers once a unit is said"):
        bind(models.REAL, {"x": np.arange(3).astype("m8[h]"), "y": [1.0, 2.0, 3.0]})
    text = "index s in 1..S\ninput größe : label[s]\noutput y : real\nparam a[s] : real ~ Normal(0, 1)\n"
    model = compile_text(text + "y ~ Normal(a[größe], 1)")
    with pytest.raises(DataError, match="column `gro\u0308ße` is `low` in every row"):
        bind(model, {"gro\u0308ße": ["low", "low"], "y": [1.0, 2.0]})
