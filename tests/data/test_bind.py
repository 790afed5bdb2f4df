"""Binding: the right columns, in the right shape, coded as the program wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from gpdsl.data import DataError, Table, bind, read_table
from gpdsl.errors import GpdslWarning
from gpdsl.language import compile_text
from tests.data import models

NAN = float("nan")


def test_a_dictionary() -> None:
    data = bind(models.REAL, {"x": [1, 2, 3], "y": [4.0, 5.0, 6.0], "unused": ["a", "b", "c"]})
    assert data.rows == 3
    assert data.inputs["x"].dtype == data.outputs["y"].dtype == np.float64
    np.testing.assert_array_equal(data.outputs["y"], [4, 5, 6])
    np.testing.assert_array_equal(data.observed["y"], [True, True, True])
    assert data.column_names == {"x": ("x",), "y": ("y",)}


@pytest.mark.parametrize("style", ["x{}", "x_{}", "x[{}]"])
def test_a_vector_from_columns(style: str) -> None:
    columns = {style.format(i): [i, i + 1] for i in (1, 2, 3)} | {"y": [0, 1]}
    data = bind(models.vector(), columns)
    np.testing.assert_array_equal(data.inputs["x"], [[1, 2, 3], [2, 3, 4]])
    assert data.sizes == {"D": 3}
    assert data.column_names["x"] == tuple(style.format(i) for i in (1, 2, 3))


def test_a_vector_from_an_array_or_one_column() -> None:
    wide = bind(models.vector(), {"x": [[1, 2], [3, 4]], "y": [0, 1]})
    assert wide.inputs["x"].shape == (2, 2)
    assert wide.column_names["x"] == ("x[1]", "x[2]")
    narrow = bind(models.vector(), {"x": [1, 3], "y": [0, 1]})
    assert narrow.inputs["x"].shape == (2, 1)
    assert narrow.sizes == {"D": 1}


def test_columns_are_counted_in_order_without_gaps() -> None:
    columns = {"x1": [1, 2], "x2": [3, 4], "y": [0, 1]}
    assert bind(models.vector(), columns).sizes == {"D": 2}
    with pytest.raises(DataError, match=r"column `x10`\n.*the columns are `x1`, `y`; say which"):
        bind(models.REAL, {"x1": [1, 2], "y": [0, 1]}, columns={"x": "x10"})
    with pytest.raises(DataError, match=r"error\[D101\].* a column `x3`, since there is `x4`"):
        bind(models.vector(), {**columns, "x4": [5, 6]})
    assert bind(models.vector("2"), {**columns, "x4": [5, 6]}).inputs["x"].shape == (2, 2)
    chosen = bind(models.vector(), {**columns, "x4": [5, 6]}, columns={"x": ["x1", "x2"]})
    assert chosen.sizes == {"D": 2}


def test_columns_of_another_quantity_are_no_elements() -> None:
    text = (
        "model m\ninput x : real[D]\ninput x3 : real\noutput y : real\n"
        "latent f(x, x3) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n"
    )
    data = bind(compile_text(text), {f"x{k}": [k, 2 * k] for k in (1, 2, 3)} | {"y": [0, 1]})
    assert data.sizes == {"D": 2}


@pytest.mark.parametrize("names", [["x", "x1", "x2"], ["x", "x_1"], ["x1", "x2", "x_1"], ["x[1]", "x1"], ["x0", "x1"]])
def test_columns_that_could_be_meant_in_two_ways_are_refused(names: list[str]) -> None:
    table = {name: [k, 2 * k] for k, name in enumerate(names, 1)} | {"y": [0, 1]}
    for size in ("D", "1"):
        with pytest.raises(DataError, match=r"error\[D128\]: it is not clear which columns are input `x`"):
            bind(models.vector(size), table)
    assert bind(models.vector(), table, columns={"x": names}).sizes == {"D": len(names)}
    if "x" in names:
        assert bind(models.vector(), table, columns={"x": "x"}).sizes == {"D": 1}
        assert bind(models.REAL, table).inputs["x"].tolist() == [1, 2]


def test_a_scalar_from_an_array_of_one_column() -> None:
    data = bind(models.REAL, {"x": [[1], [2]], "y": np.array([[3.0], [4.0]])})
    assert data.inputs["x"].shape == data.outputs["y"].shape == (2,)


def test_mapped_names() -> None:
    data = bind(models.vector(), {"age": [1, 2], "size": [3, 5], "n": [0, 1]}, columns={"x": ["age", "size"], "y": "n"})
    np.testing.assert_array_equal(data.inputs["x"], [[1, 3], [2, 5]])
    assert data.column_names == {"x": ("age", "size"), "y": ("n",)}


def test_missing_outputs_are_not_observed() -> None:
    data = bind(models.several("2"), {"x": [1, 2], "t1": [1.0, NAN], "t2": [NAN, 3.0]})
    np.testing.assert_array_equal(data.outputs["t"], [[1, 0], [0, 3]])
    np.testing.assert_array_equal(data.observed["t"], [[True, False], [False, True]])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, 1], [0, 1, 1]),
        ([-1, 1, -1], [0, 1, 0]),
        ([True, False, True], [1, 0, 1]),
        (["yes", "No", "YES"], [1, 0, 1]),
        (["true", "false", "1"], [1, 0, 1]),
        ([-1, -1, -1], [0, 0, 0]),
        ([1, 1, 1], [1, 1, 1]),
    ],
)
def test_binary(values: list[object], expected: list[int]) -> None:
    np.testing.assert_array_equal(bind(models.BINARY, {"x": [1, 2, 3], "y": values}).outputs["y"], expected)


@pytest.mark.parametrize(
    ("values", "levels", "expected"),
    [
        (["no", "yes", None], ("no", "yes"), [0, 1, 0]),
        (["Y", "n", "n"], ("n", "Y"), [1, 0, 0]),
        (["True", "False", "True"], ("False", "True"), [1, 0, 1]),
        (["t", "f", "f"], ("f", "t"), [1, 0, 0]),
        (["nein", "ja", "ja"], ("ja", "nein"), [1, 0, 0]),
        (["f", "m", "m"], ("f", "m"), [0, 1, 1]),
        (["-1", "1", None], (-1, 1), [0, 1, 0]),
        ([-1, -1, -1], (-1, 1), [0, 0, 0]),
        ([-1, 1, NAN], (-1, 1), [0, 1, 0]),
        (["0", "1", "1"], None, [0, 1, 1]),
        ([True, False, None], None, [1, 0, 0]),
        (["no", "yes", "Yes"], None, [0, 1, 1]),
        (["no", "1", "1"], None, [0, 1, 1]),
        (["no", "n", "no"], None, [0, 0, 0]),
        (["yes", "yes", None], ("no", "yes"), [1, 1, 0]),
        (["False"] * 3, ("False", "True"), [0, 0, 0]),
        (["Y"] * 3, ("N", "Y"), [1, 1, 1]),
        ([1, 1, 1], None, [1, 1, 1]),
    ],
)
def test_the_two_values_of_a_binary_output_are_kept(values: list[object], levels: Any, expected: list[int]) -> None:
    data = bind(models.BINARY, {"x": [1, 2, 3], "y": values})
    assert data.levels.get("y") == levels
    np.testing.assert_array_equal(data.outputs["y"], expected)


def test_labels_found_in_the_data_are_sorted_and_counted() -> None:
    data = bind(models.label(), {"x": [1, 2, 3, 4], "y": ["b", "a", None, "c"]})
    np.testing.assert_array_equal(data.outputs["y"], [1, 0, 0, 2])
    np.testing.assert_array_equal(data.observed["y"], [True, True, False, True])
    assert data.levels == {"c": ("a", "b", "c")}
    assert data.sizes["C"] == 3


def test_whole_numbers_as_labels_are_whole() -> None:
    levels = bind(models.label(), {"x": [1, 2], "y": [7.0, 4.0]}).levels["c"]
    assert levels == (4, 7)
    assert all(isinstance(level, int) for level in levels)


@pytest.mark.parametrize(
    ("index", "values"), [("1..3", [1, 3, 2]), ("{4, 7, 9}", [4, 9, 7]), ('{"4", "9", "7"}', [4, 9, 7])]
)
def test_declared_labels_become_numbers_from_zero(index: str, values: list[int]) -> None:
    data = bind(models.label(index), {"x": [1, 2, 3], "y": values})
    ordered = [1, 2, 3] if index == "1..3" else [4, 7, 9]
    order = {"1": 0} if index.startswith('{"') else {}
    expected = [0, 1, 2] if order else [ordered.index(value) for value in values]
    np.testing.assert_array_equal(data.outputs["y"], expected)


def test_texts_that_are_numbers_have_an_order() -> None:
    data = bind(models.ORDINAL, {"x": [1, 2, 3], "y": ["10", "9", "11"]})
    assert data.levels["c"] == ("9", "10", "11")
    np.testing.assert_array_equal(data.outputs["y"], [1, 0, 2])
    for same_twice in (["1", "1.0", "2"], ["9", "10", "ten"]):
        with pytest.raises(DataError, match="D161"):
            bind(models.ORDINAL, {"x": [1, 2, 3], "y": same_twice})


@pytest.mark.parametrize("values", [[0, 1, 1], ["0", "1", "1"], ["no", "yes", "yes"], [0.0, NAN, NAN]])
def test_zero_is_neither_minus_one_nor_one(values: list[object]) -> None:
    with pytest.raises(DataError, match="D115.*`0`, where -1 and 1 are its two values"):
        bind(models.BINARY, {"x": [1, 2, 3], "y": values}, sizes={}, levels={"y": (-1, 1)})
    kept = bind(models.BINARY, {"x": [1, 2, 3], "y": [1, -1, -1]}, sizes={}, levels={"y": (-1, 1)})
    np.testing.assert_array_equal(kept.outputs["y"], [1, 0, 0])


def test_an_old_fit_brings_its_sizes_and_levels() -> None:
    old = bind(models.label(), {"x": [1, 2, 3], "y": ["a", "b", "c"]})
    new = bind(models.label(), {"x": [5, 5], "y": ["c", "c"]}, sizes=old.sizes, levels=old.levels)
    np.testing.assert_array_equal(new.outputs["y"], [2, 2])
    assert (new.sizes, new.levels) == (old.sizes, old.levels)


def test_predicting_needs_no_outputs() -> None:
    data = bind(models.several(), {"x": [1.0, 1.0]}, sizes={"P": 2}, outputs_required=False)
    assert (data.rows, dict(data.outputs), data.sizes) == (2, {}, {"P": 2})


def test_predicting_takes_the_outputs_that_are_there() -> None:
    data = bind(models.several("2"), {"x": [1.0, 2.0], "t2": [3.0, NAN]}, sizes={}, outputs_required=False)
    np.testing.assert_array_equal(data.observed["t"], [[False, True], [False, False]])


def test_one_row_is_not_called_constant() -> None:
    assert bind(models.REAL, {"x": [1], "y": [2]}).rows == 1


def test_some_columns_of_an_input_may_be_constant() -> None:
    table = {"x": np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]), "y": [2, 3, 4]}
    with pytest.warns(GpdslWarning, match=r"1 of the 2 columns of input `x` never vary \(`x\[2\]` is 5\)"):
        assert bind(models.vector(), table).rows == 3


def test_an_input_no_latent_depends_on_may_be_constant() -> None:
    text = (
        "model m\ninput x : real\ninput a : real\noutput y : count\n"
        "latent f(x) ~ GP(0, RBF(1))\ny ~ Poisson(a * exp(f))\n"
    )
    data = bind(models.compile_text(text), {"x": [1, 2], "a": [3, 3], "y": [1, 2]})
    np.testing.assert_array_equal(data.inputs["a"], [3, 3])


def test_a_list_in_the_model_binds_a_size() -> None:
    text = (
        "model m\nindex p in 1..P\nconst a[p] = [1, 2, 3]\ninput x : real\noutput y : real\n"
        "latent f[p](x) ~ GP(0, RBF(1))\ny ~ Normal(sum(p, a[p] * f[p]), 0.1)\n"
    )
    assert bind(models.compile_text(text), {"x": [1, 2], "y": [1, 2]}).sizes == {"P": 3}


def test_taking_rows() -> None:
    data = bind(models.several("2"), {"x": [1, 2, 3], "t": [[1, 2], [3, 4], [5, 6]]})
    part = data.take(np.array([2, 0]))
    assert part.rows == 2
    np.testing.assert_array_equal(part.outputs["t"], [[5, 6], [1, 2]])
    assert data.take(slice(0, 1)).rows == 1


def test_the_arrays_of_the_user_stay_as_they_are() -> None:
    values = np.array([1.0, NAN, 3.0])
    bind(models.REAL, {"x": [1, 2, 3], "y": values})
    np.testing.assert_array_equal(values, [1.0, NAN, 3.0])


def test_a_table_is_taken_as_it_is() -> None:
    table = read_table({"x": [1, 2], "y": [3, 4]})
    assert read_table(table) is table
    np.testing.assert_array_equal(bind(models.REAL, table).outputs["y"], [3, 4])


def test_the_same_table_by_every_road(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5], "y": [1.0, NAN, 3.0], "s": ["a", None, "b"], "b": [True, False, True]})
    frame["k"] = pd.Categorical(["u", "v", "u"])
    frame["i"] = pd.array([1, None, 3], dtype="Int64")
    frame.to_csv(tmp_path / "d.csv", index=False)
    frame.to_parquet(tmp_path / "d.parquet")
    frame.to_csv(tmp_path / "d.tsv", index=False, sep="\t")
    tables = [read_table(frame), read_table(tmp_path / "d.parquet"), read_table(str(tmp_path / "d.csv"))]
    tables.append(read_table(tmp_path / "d.tsv"))
    for table in tables:
        assert list(table.columns) == list(frame.columns)
        np.testing.assert_array_equal(table.columns["x"], [1.5, 2.5, 3.5])
        np.testing.assert_array_equal(table.columns["y"], [1.0, NAN, 3.0])
        np.testing.assert_array_equal(table.columns["i"], [1.0, NAN, 3.0])
        assert table.columns["s"].tolist() == ["a", None, "b"]
        assert table.columns["k"].tolist() == ["u", "v", "u"]


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.eye(3, dtype=np.float32), labels=np.array([4, 7, 9]), note=np.array("one text"))
    table = read_table(tmp_path / "d.npz")
    assert set(table.columns) == {"x", "labels", "note"}
    data = bind(models.vector(), table, columns={"y": "labels"})
    assert data.inputs["x"].dtype == np.float64
    assert data.sizes == {"D": 3}


def test_arrays_of_objects_in_an_archive_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="`x` is no column of numbers or text: it is an array of Python objects"):
        bind(models.REAL, tmp_path / "d.npz")


def test_quoted_fields_and_blank_lines_keep_line_numbers(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text('\ufeffx,"y, in m"\n1,2\n\n"3",4\n5,bad\n', encoding="utf-8")
    table = read_table(path)
    assert isinstance(table, Table)
    assert [table.line(row) for row in (1, 2, 3)] == [2, 4, 5]
    with pytest.raises(DataError, match=r"d\.csv:5: .* row 3: `bad`"):
        bind(models.REAL, table, columns={"y": "y, in m"})


def test_a_large_file_is_read_in_seconds(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=(20_000, 3)).round(6)
    path = tmp_path / "d.csv"
    np.savetxt(path, numbers, delimiter=",", header="x1,x2,y", comments="", fmt="%.6f")
    data = bind(models.vector(), path)
    np.testing.assert_array_equal(data.inputs["x"], numbers[:, :2])


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=3),
        st.lists(st.none() | st.floats() | st.text(max_size=3) | st.booleans(), max_size=4),
        max_size=4,
    )
)
def test_any_dictionary_gives_data_or_a_data_error(source: dict[str, list[object]]) -> None:
    try:
        data = bind(models.COUNT, source)
    except DataError as error:
        assert str(error)
    else:
        assert (data.outputs["y"] >= 0).all()


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_file_gives_a_table_or_a_data_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "d.csv"
    path.write_bytes(content)
    try:
        assert all(values.ndim == 1 for values in read_table(path).columns.values())
    except DataError as error:
        assert str(error)


def test_an_input_of_labels_with_one_missing_is_not_called_constant() -> None:
    text = "index s in 1..S\ninput site : label[s]\noutput y : real\nlatent f(site) ~ GP(0, Same())\ny ~ Normal(f, 1)"
    data = {"site": np.array(["u", "v", None, "w"], object), "y": np.zeros(4)}
    with pytest.raises(DataError) as caught:
        bind(compile_text(text), data)
    assert [each.code for each in caught.value.mistakes] == ["D111"]
