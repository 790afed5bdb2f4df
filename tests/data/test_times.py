"""Times as inputs: what is taken for one, from when on it counts, in which unit, and in which zone it comes back."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest

from gpdsl.data import Calendar, DataError, bind, read_table
from gpdsl.data.looks import look
from gpdsl.data.table import moment_in
from gpdsl.data.times import texts_of
from gpdsl.errors import GpdslError
from tests.data import models

BERLIN = ZoneInfo("Europe/Berlin")
DATES = [dt.date(2024, 3, 30), dt.date(2024, 3, 31), dt.date(2024, 4, 1)]
MIDNIGHTS = [dt.datetime(each.year, each.month, each.day) for each in DATES]
ISO = [each.isoformat() for each in DATES]

WITHOUT_ZONE: dict[str, object] = {
    "dates": DATES,
    "datetimes": MIDNIGHTS,
    "texts": ISO,
    "numpy, days": np.array(ISO, "M8[D]"),
    "numpy, nanoseconds": np.array(ISO, "M8[ns]"),
    "list of numpy": list(np.array(ISO, "M8[D]")),
    "objects": np.array(MIDNIGHTS, dtype=object),
    "pandas": pd.Series(pd.to_datetime(ISO)),
    "pandas, dates": pd.Series(DATES),
    "pandas index": pd.to_datetime(ISO),
    "pandas periods": pd.Series(pd.period_range("2024-03-30", periods=3, freq="D")),
    "pandas, arrow": pd.Series(MIDNIGHTS, dtype="timestamp[us][pyarrow]"),
    "polars": pl.Series(MIDNIGHTS),
    "polars dates": pl.Series(DATES),
    "arrow": pl.Series(DATES).to_arrow(),
}


@pytest.mark.parametrize("number", [1e300, -1e7, float("nan")])
def test_numbers_of_no_moment_are_said_to_be_none(number: float) -> None:
    with pytest.raises(GpdslError, match="in weeks since 2024-03-30, is before the year 2 or after 9998"):
        Calendar("2024-03-30", {}).moments(np.array([0.0, number]), "week")


@pytest.mark.parametrize("kind", WITHOUT_ZONE)
def test_days_since_the_first(kind: str) -> None:
    data = bind(models.TIME, {"t": WITHOUT_ZONE[kind], "y": [1, 2, 3]})
    assert data.inputs["t"].tolist() == [0, 1, 2]
    assert data.calendar == Calendar("2024-03-30T00:00:00.000000", {"t": ""})
    assert texts_of(data.calendar.dates("t", data.moments["t"])) == ISO


WITH_ZONE: dict[str, object] = {
    "datetimes": [each.replace(tzinfo=BERLIN) for each in MIDNIGHTS],
    "pandas": pd.Series(pd.to_datetime(ISO).tz_localize("Europe/Berlin")),
    "pandas index": pd.to_datetime(ISO).tz_localize("Europe/Berlin"),
    "pandas array": pd.array(pd.to_datetime(ISO).tz_localize("Europe/Berlin")),
    "polars": pl.Series(MIDNIGHTS).dt.replace_time_zone("Europe/Berlin"),
    "arrow": pl.Series(MIDNIGHTS).dt.replace_time_zone("Europe/Berlin").to_arrow(),
}


@pytest.mark.parametrize("kind", WITH_ZONE)
def test_a_day_has_24_hours_where_clocks_change(kind: str) -> None:
    data = bind(models.TIME, {"t": WITH_ZONE[kind], "y": [1, 2, 3]})
    np.testing.assert_allclose(data.inputs["t"], [0, 1, 1 + 23 / 24], rtol=1e-15)
    assert data.calendar is not None and data.calendar.zones == {"t": "Europe/Berlin"}
    back = data.calendar.dates("t", data.moments["t"])
    assert [each.isoformat() for each in back] == [f"{day}T00:00:00+0{1 + (day > ISO[1])}:00" for day in ISO]
    assert list(back) == WITH_ZONE["datetimes"]


@pytest.mark.parametrize(
    ("texts", "hours", "zone"),
    [
        (["2024-01-05T14:30+02:00", "2024-01-05 15:30:00.5+02:00"], 1 + 0.5 / 3600, "+02:00"),
        (["2024-01-05T14:30-03:30", "2024-01-05T19:00Z"], 1.0, "UTC"),
        (["2024-01", "2024-02"], 31 * 24, ""),
        (["2024Q1", "2024-Q2"], 91 * 24, ""),
        (["2024-01-01/2024-01-07", " 2024-01-08/2024-01-14 "], 7 * 24, ""),
        (["1815-06-18", "1815-06-19"], 24, ""),
    ],
)
def test_texts(texts: list[str], hours: float, zone: str) -> None:
    data = bind(models.timed("time(per = hour)"), {"t": texts, "y": [1, 2]})
    np.testing.assert_allclose(data.inputs["t"], [0, hours], rtol=1e-15)
    assert data.calendar is not None and data.calendar.zones == {"t": zone}


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("second", 259200), ("minute", 4320), ("hour", 72), ("day", 3), ("week", 3 / 7), ("year", 3 / 365.25)],
)
def test_units(unit: str, expected: float) -> None:
    data = bind(models.timed(f"time(per = {unit})"), {"t": ["2024-02-27", "2024-03-01"], "y": [1, 2]})
    np.testing.assert_allclose(data.inputs["t"], [0, expected], rtol=1e-15)
    assert data.calendar is not None
    np.testing.assert_array_equal(data.calendar.moments(data.inputs["t"], unit), data.moments["t"])


def test_whole_numbers_are_years_where_that_is_the_unit() -> None:
    years = models.timed("time(per = year)")
    data = bind(years, {"t": [1990, 1994], "y": [1, 2]})
    assert data.moments["t"].astype("M8[D]").astype(str).tolist() == ["1990-01-01", "1994-01-01"]
    np.testing.assert_allclose(data.inputs["t"], [0, 4], atol=1e-15)
    for wrong in (1990.5, 0, 1e9):
        with pytest.raises(DataError, match=r"is no date or time\n.*whole numbers that are years `time\(per = year\)`"):
            bind(years, {"t": [1990, wrong], "y": [1, 2]})


def test_dates_are_told_to_pandas_as_the_whole_column_has_them() -> None:
    for texts, told in (
        (["1/2/2024 9:05 pm", "1/13/2024 8:00 AM"], "%m/%d/%Y %I:%M %p"),
        (["1.2.24", "2.2.24"], "%d.%m.%y"),
    ):
        with pytest.raises(DataError, match=f'row 1.*is no date or time\n.*format="{told}"'):
            bind(models.timed("time(per = day)"), {"t": texts, "y": [1, 2]})


def test_whole_numbers_that_spell_days() -> None:
    """As 20240229 does; every one of a column, so that no number is taken for a date that is none."""
    data = bind(models.timed("time(per = day)"), {"t": [20240227, 20240301], "y": [1, 2]})
    np.testing.assert_allclose(data.inputs["t"], [0, 3])
    with pytest.raises(DataError, match="row 2.*is no date or time"):
        bind(models.timed("time(per = day)"), {"t": [20240227, 20240230], "y": [1, 2]})
    table = read_table({"t": [20240227.0, 20240301.0], "n": [20240227.0, 20249901.0]})
    assert [look(table, name).kind for name in table.columns] == ["time", "number"]


def test_other_rows_count_from_the_same_origin() -> None:
    old = bind(models.TIME, {"t": ISO, "y": [1, 2, 3]})
    new = bind(models.TIME, {"t": ["2024-03-29"], "y": [1]}, sizes={}, calendar=old.calendar)
    assert (new.inputs["t"].tolist(), new.calendar) == ([-1], old.calendar)


def test_all_times_of_a_model_count_from_the_first() -> None:
    text = "model m\ninput a : time\ninput b : time(per = hour)\noutput y : real\n"
    both = models.compile_text(text + "latent f(a, b) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n")
    zoned = [each.replace(tzinfo=BERLIN) for each in MIDNIGHTS]
    data = bind(both, {"a": ISO, "b": zoned, "y": [1, 2, 3]})
    np.testing.assert_allclose(data.inputs["b"], [0, 24, 47])
    np.testing.assert_allclose(data.inputs["a"], [1 / 24, 25 / 24, 49 / 24])
    assert data.calendar is not None and data.calendar.zones == {"a": "", "b": "Europe/Berlin"}


def test_times_have_a_zone_or_none_as_those_of_the_fit() -> None:
    plain = bind(models.TIME, {"t": ISO, "y": [1, 2, 3]})
    zoned = bind(models.TIME, {"t": WITH_ZONE["pandas"], "y": [1, 2, 3]})
    for old, values, words in (
        (plain, ["2024-01-01", "2024-01-02T00:00Z"], "row 2: the time has a time zone, unlike those of the fit"),
        (zoned, ISO[:2], "row 1: the time has no time zone, unlike those of the fit: `Europe/Berlin`"),
    ):
        with pytest.raises(DataError, match=words):
            bind(models.TIME, {"t": values, "y": [1, 2]}, sizes={}, calendar=old.calendar)
    other = bind(models.TIME, {"t": ["2024-04-01T22:00Z"], "y": [1]}, sizes={}, calendar=zoned.calendar)
    assert other.calendar is not None
    assert other.calendar.dates("t", other.moments["t"])[0].isoformat() == "2024-04-02T00:00:00+02:00"


def test_a_vector_of_times_and_a_part_of_the_rows() -> None:
    data = bind(models.timed("time[D]"), pl.DataFrame({"t1": DATES, "t2": DATES[::-1], "y": [1, 2, 3]}))
    assert data.inputs["t"].tolist() == [[0, 2], [1, 1], [2, 0]]
    part = data.take(np.array([2]))
    assert str(part.moments["t"][0, 1]) == "2024-03-30T00:00:00.000000"
    assert (
        data.digests["t"] != bind(models.timed("time[D]"), {"t": [[d, d] for d in DATES], "y": [1, 2, 3]}).digests["t"]
    )


def test_the_same_days_of_another_year_are_other_data() -> None:
    digests = [bind(models.TIME, {"t": [f"{y}-01-01", f"{y}-01-02"], "y": [1, 2]}).digests["t"] for y in (2022, 2023)]
    assert digests[0] != digests[1]


def test_dates_and_numbers_together_are_no_column() -> None:
    with pytest.raises(
        DataError, match="`t` is no column of numbers or text: some entries are dates, and one is a int"
    ):
        bind(models.TIME, {"t": [DATES[0], 3], "y": [1, 2]})
    with pytest.raises(DataError, match="column `t`, row 2: the input is missing"):
        bind(models.TIME, {"t": pd.Series([pd.Timestamp("2024-01-01"), pd.NaT]), "y": [1, 2]})


def test_an_index_with_a_name_is_a_column() -> None:
    index = pd.MultiIndex.from_arrays([DATES, [1, 2, 3], [0, 0, 0]], names=["t", "y", None])
    frame = pd.DataFrame({"y": [3, 4, 5]}, index=index)
    data = bind(models.TIME, frame)
    assert (data.inputs["t"].tolist(), data.outputs["y"].tolist()) == ([0, 1, 2], [3, 4, 5])
    assert frame.index is index and list(frame) == ["y"]
    series = pd.DataFrame({"y": [3, 4]}, index=pd.to_datetime(ISO[:2]).rename("day"))
    assert bind(models.TIME, series, columns={"t": "day"}).inputs["t"].tolist() == [0, 1]


def test_an_index_of_dates_without_a_name_is_a_column_called_index() -> None:
    series = pd.DataFrame({"y": [3, 4]}, index=pd.to_datetime(ISO[:2]))
    assert bind(models.TIME, series, columns={"t": "index"}).inputs["t"].tolist() == [0, 1]
    with pytest.raises(DataError, match="the columns are `index`, `y`; say which holds `t`"):
        bind(models.TIME, series)


def test_the_word_is_free_for_names() -> None:
    text = "model m\ninput time : time\noutput hour : real\nlatent f(time) ~ GP(0, RBF(1))\nhour ~ Normal(f, 0.1)\n"
    assert bind(models.compile_text(text), {"time": ISO, "hour": [1, 2, 3]}).inputs["time"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("text", ["2024/1/5", "2024.01.05", " 2024/01/05 ", "5.1.2024", "05.01.2024 "])
def test_days_with_the_year_first_are_read_whatever_separates_them(text: str) -> None:
    assert moment_in(text) == dt.datetime(2024, 1, 5)
    assert moment_in("2024/1/5 14:30") == dt.datetime(2024, 1, 5, 14, 30)
    assert moment_in("2024/13/5") is None


def test_dates_that_do_not_say_the_month_are_left_out_of_a_first_model(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("day,y\n" + "".join(f"{k:02}/02/2024,{k * 1.5}\n" for k in range(1, 20)))
    found = look(read_table(str(path)), "day")
    assert found.kind == "none" and "such as 01/02/2024, have the day first" in found.reason
    found = look(read_table({"day": [f"{n % 12 + 1:02}/{n % 11 + 1:02}/2024" for n in range(12)]}), "day")
    assert "such as 01/01/2024, do not say which number is the month" in found.reason
