"""Codes with zeros before them, periods in Parquet, and truths that later data spell otherwise."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gpdsl
from gpdsl import GpdslError, GpdslWarning
from gpdsl.cli.draft import draft
from gpdsl.data import bind, read_table
from gpdsl.data.convert import is_code
from gpdsl.data.looks import look, warn_of_spellings
from gpdsl.program.standardise import standardise
from tests.data import models

SITES = gpdsl.compile("""model sites
index s in 1..S
input site : label[s]
output y : real
param a[s] : real ~ Normal(0, 1)
y ~ Normal(a[site], 1)
""").declarations

CODES = ["01", "1", "007", "01"]


def every_road(frame: pd.DataFrame, folder: Path) -> list[Any]:
    """The same rows in all containers."""
    frame.to_csv(folder / "d.csv", index=False)
    frame.to_csv(folder / "d.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "d.parquet")
    columns = {name: frame[name].tolist() for name in frame}
    return [frame, columns, pa.table(columns), *(folder / f"d.{each}" for each in ("csv", "tsv", "parquet"))]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("01", True),
        (" 007 ", True),
        ("00", True),
        ("0", False),
        ("0.5", False),
        ("10", False),
        ("01a", False),
        ("9007199254740993", True),  # 2^53 + 1
        ("9007199254740992", False),
        ("1" * 5000, True),
        ("٠١", False),
    ],
)
def test_digits_with_a_zero_that_no_number_needs(text: str, code: bool) -> None:
    assert is_code(text) is code


def test_labels_keep_their_zeros_in_every_container(tmp_path: Path) -> None:
    for source in every_road(pd.DataFrame({"site": CODES, "y": [1.0, 2.0, 3.0, 4.0]}), tmp_path):
        data = bind(SITES, source)
        assert data.levels == {"s": ("01", "1", "007")}
        assert data.inputs["site"].tolist() == [1, 2, 3, 1]


def test_numbers_with_more_digits_than_a_float_are_labels_too(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("site,y\n1000000000000000001,1\n1000000000000000002,2\n12,3\n")
    data = bind(SITES, tmp_path / "d.csv")
    assert data.levels == {"s": ("12", "1000000000000000001", "1000000000000000002")}


def test_later_rows_without_such_zeros_have_the_same_levels(tmp_path: Path) -> None:
    (tmp_path / "later.csv").write_text("site\n1\n1\n")  # numbers, by themselves
    later = bind(
        SITES, tmp_path / "later.csv", sizes={"S": 3}, levels={"s": ("01", "1", "007")}, outputs_required=False
    )
    assert later.inputs["site"].tolist() == [2, 2]


def test_missing_codes_are_missing(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("k,x\n01,1\n,2\nNA,3\n")
    assert read_table(tmp_path / "d.csv").columns["k"].tolist() == ["01", None, None]


def test_codes_as_numbers_are_doubted_in_every_container(tmp_path: Path) -> None:
    for source in every_road(pd.DataFrame({"x": ["03", "1", "007"], "y": [1.0, 2.0, 3.0]}), tmp_path):
        with pytest.warns(GpdslWarning, match=r"`x`: `03` in row 1 is read as the number 3.*`x : label\[s\]`"):
            data = bind(models.REAL, source)
        assert data.inputs["x"].ravel().tolist() == [3.0, 1.0, 7.0]


def test_zeros_of_plain_numbers_are_no_codes(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,y\n0,0.25\n0.5,0\n10,00.5\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bind(models.REAL, tmp_path / "d.csv").outputs["y"].tolist() == [0.25, 0.0, 0.5]


def test_a_draft_takes_codes_for_words(tmp_path: Path) -> None:
    rows = [f"{zip_code},{k % 7},{k * 1.5 % 3}" for k, zip_code in enumerate(["00120101", "02139", "94110"] * 8)]
    (tmp_path / "d.csv").write_text("zip,x,y\n" + "\n".join(rows) + "\n")
    table = read_table(tmp_path / "d.csv")
    assert look(table, "zip").kind == "text"
    assert "input zip : label[each_zip]" in " ".join(draft(table, "d", "y").text.split())


def test_codes_that_could_all_be_days_of_early_years_are_words(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("day,code\n20120101,00120101\n20120203,00120203\n20120204,00120204\n")
    table = read_table(tmp_path / "d.csv")
    assert look(table, "day").kind == "time" and look(table, "code").kind == "text"


def test_periods_of_a_parquet_file_are_times(tmp_path: Path) -> None:
    months = pd.period_range("2020-11", periods=4, freq="M")
    weeks = pd.PeriodIndex(["2020-01-06", None, "2020-01-20", "2020-01-27"], freq="W")
    frame = pd.DataFrame({"m": months, "w": weeks, "y": [1.0, 2.0, 3.0, 4.0]})
    frame.to_parquet(tmp_path / "d.parquet")
    for source in (frame, tmp_path / "d.parquet", pq.read_table(tmp_path / "d.parquet")):
        columns = read_table(source).columns
        assert columns["m"].tolist() == [each.to_timestamp().to_pydatetime() for each in months]
        assert columns["w"].tolist() == [None if each is pd.NaT else each.to_timestamp() for each in weeks]


def test_periods_that_arrow_keeps_as_numbers_are_times(tmp_path: Path) -> None:
    """As a process reads them that has not imported pandas."""
    about = {b"ARROW:extension:name": b"pandas.period", b"ARROW:extension:metadata": b'{"freq": "Q-DEC"}'}
    schema = pa.schema([pa.field("q", pa.int64(), metadata=about)])
    table = pa.table({"q": pa.array([200, None, 201])}, schema=schema)
    assert [each and (each.year, each.month) for each in read_table(table).columns["q"]] == [(2020, 1), None, (2020, 4)]


@pytest.mark.parametrize(
    ("levels", "later", "expected"),
    [
        ((0, 1), ["True", "False"], [2, 1]),
        ((0, 1), ["TRUE", "true"], [2, 2]),
        (("0", "1"), ["true", "false"], [2, 1]),
        ((0, 1), [True, False], [2, 1]),
        (("False", "True"), [0, 1], [1, 2]),
        (("False", "True"), ["1", "0"], [2, 1]),
        ((False, True), ["FALSE", "1"], [1, 2]),
        (("FALSE", "TRUE"), [True, False], [2, 1]),
    ],
)
def test_truths_of_later_rows_are_those_of_the_fit(levels: tuple, later: list, expected: list[int]) -> None:
    data = bind(SITES, {"site": later}, sizes={"S": 2}, levels={"s": levels}, outputs_required=False)
    assert data.inputs["site"].tolist() == expected
    assert data.unseen == {"s": ()}


@pytest.mark.parametrize("levels", [(1, 2), (0, 1, 2), (1,), ("0", "1", "True")])
def test_numbers_that_are_no_truths_are_not_taken_for_them(levels: tuple) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = bind(SITES, {"site": ["False"]}, sizes={"S": len(levels)}, levels={"s": levels}, outputs_required=False)
    assert data.unseen == {"s": ("False",)}


@pytest.mark.parametrize(
    ("levels", "later", "unseen"),
    [((1,), ["True"], ("True",)), (("True",), [1, True], ()), ((0, 1), ["True", "maybe"], ("True", "maybe"))],
)
def test_truths_are_told_from_counts_and_from_other_words(levels: tuple, later: list, unseen: tuple) -> None:
    """A 1 alone may count, and a word beside truths makes words of them; missing ones stay missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = bind(SITES, {"site": later}, sizes={"S": len(levels)}, levels={"s": levels}, outputs_required=False)
    assert data.unseen == {"s": unseen}


@pytest.mark.parametrize(
    ("new", "known", "meant"),
    [
        ("TRUE ", ("0", "1"), "1"),
        ("1.0", (1, 2), "1"),
        (" new  York", ("New York",), "New York"),
        ("2020-01-02T00:00", ("2020-01-02",), "2020-01-02"),
        ("1.5", (1, 2), None),
        ("inf", (1, 2), None),
        ("false", ("1", "2"), None),
    ],
)
def test_levels_that_look_like_known_ones(new: str, known: tuple, meant: str | None) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warn_of_spellings("site", [new], known)
    assert [str(each.message).rpartition("did you mean ")[2] for each in said] == (
        [] if meant is None else [f"{meant}?"]
    )


CURVE_TEXT = """model curve
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(f, 1)
"""
CURVE = gpdsl.compile(CURVE_TEXT).declarations


@pytest.mark.parametrize(
    ("said", "names"), [("true", {"x", "y"}), ("x, y", {"x", "y"}), ("x", {"x"}), ("False", set())]
)
def test_standardise_as_text_means_what_it_does_on_the_command_line(said: str, names: set[str]) -> None:
    data = bind(CURVE, {"x": [1.0, 2.0, 4.0], "y": [3.0, 1.0, 2.0]})
    assert {*standardise(CURVE, data, said).standardised.sds} == names


def test_a_quantity_may_be_called_as_a_word_of_the_command_line_is() -> None:
    declarations = gpdsl.compile(CURVE_TEXT.replace("x :", "true :").replace("f(x)", "f(true)")).declarations
    data = bind(declarations, {"true": [1.0, 2.0, 4.0], "y": [3.0, 1.0, 2.0]})
    assert {*standardise(declarations, data, "true").standardised.sds} == {"true"}


def test_a_text_that_names_nothing_is_refused() -> None:
    with pytest.raises(GpdslError, match="no input or output `z`"):
        standardise(CURVE, bind(CURVE, {"x": [1.0, 2.0], "y": [3.0, 1.0]}), "x,z")
