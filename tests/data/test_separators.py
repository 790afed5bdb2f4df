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
    [('x,y\n"1,500",2.5\n', "1500", "1.500"), ("x;y\n1,234;2,512\n2,000;3,001\n", "1234", "1.234")],
)
def test_what_may_be_thousands_is_told_both_ways(tmp_path: Path, text: str, whole: str, pointed: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)\n")
    with pytest.raises(gpdsl.GpdslError, match=f"write `{whole}`; or `{re.escape(pointed)}` if the comma"):
        model.fit(path)
