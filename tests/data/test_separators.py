"""Text files as they are written elsewhere: divided by semicolons or tabs, numbers with a comma."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpdsl
from gpdsl.data import read_table

ROWS = ["ort;Länge, m;tag;n", "Köln;1,5;2024-01-05;12", "Bonn;-0,25;2024-01-06;7", "Trier;;2024-01-07;1"]
GERMAN = "\n".join([*ROWS, "Mainz;1,5e3;2024-01-08;0\n"])


@pytest.mark.parametrize("mark", [";", "\t"])
def test_numbers_with_a_comma_are_read_as_pandas_reads_them(mark: str, tmp_path: Path) -> None:
    text = GERMAN.replace(";", mark)
    path = tmp_path / "d.csv"
    path.write_text(text, encoding="utf-8")
    expected = pd.read_csv(StringIO(text), sep=mark, decimal=",")
    table = read_table(path)
    assert list(table.columns) == list(expected.columns)
    for name in ("Länge, m", "n"):
        np.testing.assert_array_equal(table.columns[name], expected[name].to_numpy(float))
    assert table.columns["ort"].tolist() == ["Köln", "Bonn", "Trier", "Mainz"]


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("a;b\n1,5;2.5\n2,5;3\n", ["1,5", "2,5"]),  # another number has a point: the comma is something else
        ("a;b\n1,234;2\n2,345;3\n", ["1,234", "2,345"]),  # thousands
        ('a,b\n"1,5",2\n"2,5",3\n', ["1,5", "2,5"]),  # commas divide the columns
        ("a;b\n1,5;2\nabout 2,5;3\n", ["1,5", "about 2,5"]),
        ('a,b\n"1.234,5",2\n"2.500,5",3\n', ["1.234,5", "2.500,5"]),
        ("a;b\n1.23.4;2,5\n2.5.6;3\n", ["1.23.4", "2.5.6"]),
    ],
)
def test_commas_that_may_mean_something_else_stay_text(text: str, held: list[str], tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(text)
    assert read_table(tmp_path / "d.csv").columns["a"].tolist() == held


def test_the_separator_divides_the_first_two_lines_alike(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("speed, m/s;y\n1.5;2\n2.5;3\n")
    table = read_table(tmp_path / "d.csv")
    assert list(table.columns) == ["speed, m/s", "y"] and table.columns["speed, m/s"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("text", "whole", "pointed"),
    [('x,y\n"1,500",2\n', "1500", "1.500"), ("x;y\n1,234;2,512\n2,000;3,001\n", "1234", "1.234")],
)
def test_what_may_be_thousands_is_told_both_ways(tmp_path: Path, text: str, whole: str, pointed: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)\n")
    with pytest.raises(gpdsl.GpdslError, match=f"write `{whole}`; or `{re.escape(pointed)}` if the comma"):
        model.fit(path)


NUMBERS = ["stadt{0}a b{0}n", "Köln{0}1.234,5{0}1.500", "Bonn{0}-12.345,25{0}2.000", "Trier{0}7{0}900"]


@pytest.mark.parametrize("mark", [";", "\t", "|"])
@pytest.mark.parametrize("english", [False, True])
def test_thousands_are_read_as_pandas_reads_them(mark: str, english: bool, tmp_path: Path) -> None:
    text = "\n".join(NUMBERS).format(mark) + "\n"
    text = text.translate(str.maketrans(",.", ".,")) if english else text
    (tmp_path / "d.csv").write_text(text, encoding="utf-8")
    decimal, thousands = ".," if english else ",."
    expected = pd.read_csv(StringIO(text), sep=mark, decimal=decimal, thousands=thousands)
    table = read_table(tmp_path / "d.csv")
    for name in ("a b", "n"):  # a column of whole thousands alone is told by the other
        np.testing.assert_array_equal(table.columns[name], expected[name].to_numpy(float))
    assert table.columns["a b"].tolist() == [1234.5, -12345.25, 7.0]


def test_a_point_stays_one_where_nothing_tells_of_thousands(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a;b;c\n1.234;0.5;1,250\n2.345;3;1,125\n")
    table = read_table(tmp_path / "d.csv")
    assert table.columns["a"].tolist() == [1.234, 2.345] and table.columns["c"].tolist() == [1250.0, 1125.0]
    (tmp_path / "d.csv").write_text("a;b\n1.234;2,345\n2.345;3,456\n")  # either may be thousands
    table = read_table(tmp_path / "d.csv")
    assert table.columns["a"].tolist() == [1.234, 2.345] and table.columns["b"].tolist() == ["2,345", "3,456"]


@pytest.mark.parametrize("said", ["sep=;", '"sep=;"', "SEP=;", "\ufeffsep=;"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_first_line_may_say_what_divides_columns(said: str, end: str, tmp_path: Path) -> None:
    text = end.join([said, "a, in m;b", "1;2", "3;x", "4;5", ""])
    (tmp_path / "d.csv").write_bytes(text.encode())
    table = read_table(tmp_path / "d.csv")
    assert list(table.columns) == ["a, in m", "b"] and table.columns["a, in m"].tolist() == [1.0, 3.0, 4.0]
    assert table.line(2) == 4  # of the file
    (tmp_path / "d.csv").write_bytes(text.replace("3;x", "3").encode())
    with pytest.raises(gpdsl.GpdslError, match=r"d\.csv:4: .*row 2 has 1 field"):
        read_table(tmp_path / "d.csv")


@pytest.mark.parametrize("line", ["{} {} {}", "  {:8}  {:>6} {:>6}  ", "{}|{}|{}", "| {} | {} | {} |"])
def test_blanks_and_bars_divide_columns(line: str, tmp_path: Path) -> None:
    rows = [("day", "x", "y"), ("2024-01-05", "1.5", "NA"), ("2024-01-06", "-2", "3"), ('"a b"', "4", "5")]
    (tmp_path / "d.txt").write_text("\n".join(line.format(*row) for row in rows) + "\n")
    table = read_table(tmp_path / "d.txt")
    assert [name for name in table.columns if name != "index"] == ["day", "x", "y"]
    assert table.columns["x"].tolist() == [1.5, -2.0, 4.0] and table.columns["day"].tolist()[2] == "a b"
    np.testing.assert_array_equal(table.columns["y"], [np.nan, 3.0, 5.0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("day x y\n2024-01-05 10:00 1 2\n", "the first into 3 fields and the next into 4"),
        ("# from the shop\n# of 2024\na,b\n1,2\n3,4\n5,6\n", "has 1 field, but most others have 2"),
    ],
)
def test_lines_that_divide_unalike_are_told(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(gpdsl.GpdslError, match=said):
        read_table(tmp_path / "d.csv")


@pytest.mark.parametrize("text", ["full name\nJohn Smith\n", "a value\n3\n", "x\n3 4\n"])
def test_a_column_with_blanks_is_one(text: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(text)
    assert list(read_table(tmp_path / "d.csv").columns) == [text.splitlines()[0]]


def test_the_minus_sign_of_typesetters_is_one(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,b\n\u22121.5,2\n2,x\n", encoding="utf-8")
    assert read_table(tmp_path / "d.csv").columns["a"].tolist() == [-1.5, 2.0]
