"""Columns whose names are none of the language are found by what they become in it; a fit keeps what it was told."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.data import DataError, bind, read_table
from tests.data import models

LINE = "input mean_radius : real\noutput y : real\nlatent f(mean_radius) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n"
MODEL = models.compile_text("model m\n" + LINE)
R, Y = [1.0, 2.0, 4.0], [0.5, 0.1, 0.3]


@pytest.mark.parametrize("column", ["mean radius", "mean.radius", "mean-radius", "mean radius ", "(mean radius)"])
def test_a_name_stands_for_the_column_that_is_spelt_so(column: str) -> None:
    assert bind(MODEL, {column: R, "y": Y}).inputs["mean_radius"].tolist() == R


def test_a_column_of_the_name_itself_comes_first() -> None:
    assert bind(MODEL, {"mean radius": [7.0, 8, 9], "mean_radius": R, "y": Y}).inputs["mean_radius"].tolist() == R


def test_two_columns_that_could_be_meant_are_refused() -> None:
    with pytest.raises(DataError, match="no column for input `mean_radius`"):
        bind(MODEL, {"mean radius": R, "mean.radius": R, "y": Y})


def test_a_word_of_the_language_with_a_dash_behind() -> None:
    text = "model m\ninput index_ : time\noutput y : real\nlatent f(index_) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n"
    assert bind(models.compile_text(text), {"index": ["2024-01-01"] * 2 + ["2024-01-03"], "y": Y}).rows == 3


def test_a_first_column_without_a_name_is_the_index(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(",co2\n1958-03-29,316.1\n1958-04-05,317.3\n")
    assert list(read_table(tmp_path / "d.csv").columns) == ["index", "co2"]
    (tmp_path / "d.csv").write_text(",index\n1,2\n")
    assert list(read_table(tmp_path / "d.csv").columns) == ["index"]


def test_predictions_take_the_columns_of_the_fit_or_the_names_of_the_model() -> None:
    fit = gpdsl.compile(LINE).fit({"Größe (cm)": R, "y": Y}, columns={"mean_radius": "Größe (cm)"}, diagnose="no")
    told = fit.predict({"Größe (cm)": [3.0]}).mean("f")
    for rows in ({"mean_radius": [3.0]}, {"mean_radius": [9.0], "Größe (cm)": [3.0]}):
        np.testing.assert_array_equal(fit.predict(rows).mean("f"), told)
    with pytest.raises(DataError, match="expected a column `Größe \\(cm\\)`"):
        fit.predict({"x": [3.0]})


SITES = models.compile_text(
    "model m\nindex s in 1..S\ninput site : label[s]\noutput y : real\nparam a[s] : real ~ Normal(0, 1)\n"
    "y ~ Normal(a[site], 0.1)\n"
)


@pytest.mark.parametrize("known", [("Paris", "Rome"), (1, 2)])
def test_a_new_level_that_looks_like_a_known_one_is_warned_of(known: tuple) -> None:
    known_rows = bind(SITES, {"site": list(known), "y": [1.0, 2.0]})
    for new in (" paris", "PARIS") if known[0] == "Paris" else ("01", "1.0"):
        with pytest.warns(gpdsl.GpdslWarning, match=f"`site`: {new.strip()} is no level .* did you mean {known[0]}?"):
            bind(SITES, {"site": [new], "y": [1.0]}, sizes=known_rows.sizes, levels=known_rows.levels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in ({"site": ["Oslo"]}, {"site": [known[1]]}, {"site": [3]}):
            bind(SITES, {**rows, "y": [1.0]}, sizes=known_rows.sizes, levels=known_rows.levels)


def test_a_year_may_be_a_text() -> None:
    text = "model m\ninput t : time(per = year)\noutput y : real\nlatent f(t) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n"
    years = bind(models.compile_text(text), {"t": ["1935", "1936", "1938"], "y": Y}).inputs["t"]
    np.testing.assert_allclose(np.diff(years), [1, 2], atol=0.01)
