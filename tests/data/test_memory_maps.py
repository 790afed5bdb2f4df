"""Memory maps stay on disk: what is bound is the map itself, checked some rows at a time."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.data import DataError, bind, read_table
from gpdsl.data.bound import spreads
from gpdsl.program.program import make_program, make_rows
from gpdsl.program.standardise import standardise

TEXT = "input x : real[D]\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n"
ROWS, COLUMNS = 200_000, 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two columns, `x` in single precision."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(ROWS, COLUMNS)).astype(np.float32))
    np.save(tmp_path / "y.npy", rng.normal(size=ROWS))
    return tmp_path


def test_a_folder_is_a_table_that_stays_on_disk(folder: Path) -> None:
    """The map arrives in the rows of a program as it is; outputs are in memory."""
    declarations = gpdsl.compile(TEXT).declarations
    data = bind(declarations, folder)
    assert isinstance(data.inputs["x"], np.memmap) and data.inputs["x"].dtype == np.float32
    assert data.rows == ROWS and data.sizes == {"D": COLUMNS}
    rows = make_rows(make_program(declarations, data.sizes, {}, {}), data)
    assert isinstance(rows.inputs["x"], np.memmap)
    assert not isinstance(rows.outputs["y"], np.memmap)


def test_binding_takes_a_fraction_of_the_memory(folder: Path) -> None:
    """Checks of every value included: the peak stays below half of what the inputs take on disk."""
    declarations = gpdsl.compile(TEXT).declarations
    bind(declarations, {"x": np.zeros((2, COLUMNS)) + [[0], [1]], "y": np.zeros(2)})
    y = np.zeros(ROWS)
    x = np.load(folder / "x.npy", mmap_mode="r")
    tracemalloc.start()
    bind(declarations, {"x": x, "y": y})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    own = 4 * y.nbytes  # values, a copy, and what is observed
    assert peak - own < x.nbytes / 2


def test_a_value_that_is_not_finite_is_found_wherever_it_is(folder: Path) -> None:
    """With its row among all rows."""
    x = np.load(folder / "x.npy", mmap_mode="r+")
    x[150_000, 3] = np.nan
    x.flush()
    with pytest.raises(DataError, match="150001"):
        bind(gpdsl.compile(TEXT).declarations, folder)


def test_spreads_are_those_of_the_whole(folder: Path) -> None:
    """Added up piece by piece."""
    data = bind(gpdsl.compile(TEXT).declarations, folder)
    np.testing.assert_allclose(spreads(data)["x"], np.asarray(data.inputs["x"], float).std(axis=0), rtol=1e-6)


def test_standardised_maps_stay_on_disk(folder: Path) -> None:
    """By numbers of the whole, with little of it in memory; the user's file is as it was."""
    declarations = gpdsl.compile(TEXT).declarations
    data = bind(declarations, folder)
    before = np.array(data.inputs["x"][:3])
    tracemalloc.start()
    try:
        done = standardise(declarations, data, "x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(done.inputs["x"], np.memmap) and peak < 0.75 * done.inputs["x"].nbytes * 2
    values = np.asarray(data.inputs["x"], float)
    np.testing.assert_allclose(done.inputs["x"], (values - values.mean(axis=0)) / values.std(axis=0), atol=1e-9)
    np.testing.assert_array_equal(data.inputs["x"][:3], before)
    assert done.take(slice(5)).inputs["x"].shape == (5, COLUMNS)


def test_folders_that_are_no_tables(tmp_path: Path) -> None:
    """Nothing in them, objects, files that are no arrays; but dates are columns."""
    with pytest.raises(DataError, match=r"without \.npy files"):
        read_table(tmp_path)
    np.save(tmp_path / "x.npy", np.array(["a", None], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"x\.npy is no plain NumPy array"):
        bind(gpdsl.compile(TEXT).declarations, tmp_path)
    np.save(tmp_path / "x.npy", np.array(["a", "b"]))
    with pytest.raises(DataError, match=r"x\.npy holds no numbers"):
        bind(gpdsl.compile(TEXT).declarations, tmp_path)
    np.save(tmp_path / "x.npy", np.array(["2024-01-05", "2024-01-07"], "M8[D]"))
    np.save(tmp_path / "y.npy", np.zeros(2))
    timed = gpdsl.compile(TEXT.replace("x : real[D]", "x : time")).declarations
    assert bind(timed, tmp_path).inputs["x"].tolist() == [0, 2]


@pytest.mark.parametrize("sums", ["running", pytest.param("sampled", marks=pytest.mark.slow)])
def test_a_fit_of_maps_is_that_of_arrays(folder: Path, sums: str) -> None:
    """The rows of every step are read from disk, and are the same rows."""
    text = TEXT.replace("RBF(1)", "RBF(4)").replace("0.1", "1")
    maps = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y")}
    arrays = {name: np.asarray(values) for name, values in maps.items()}
    options = {"engine": "qsgp", "features": 200, "batch": 50, "steps": 12, "feature_sums": sums}
    one, other = (gpdsl.compile(text).fit(d, **options) for d in (maps, arrays))
    np.testing.assert_allclose(one.history[:, :2], other.history[:, :2], rtol=1e-5)  # the rest is time
