"""Fits of daily series: dates go in, forecasts come back beside their dates, whatever way the fit has taken between."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest

import gpdsl
from gpdsl.cli import main
from gpdsl.results import persistence
from gpdsl.results.fit import Fit
from gpdsl.results.serving import offered

TEXT = "model daily\ninput t : time(per = week)\noutput y : real\nlatent f(t) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.3)\n"
MODEL = gpdsl.compile(TEXT)
DAYS = pd.date_range("2024-03-01", periods=40, tz="Europe/Berlin")
LATER = pd.date_range("2024-04-08", periods=4, tz="Europe/Berlin")
Y = np.sin(np.arange(40) / 5)


@pytest.fixture(scope="module")
def fit() -> Fit:
    return MODEL.fit(pd.DataFrame({"t": DAYS, "y": Y, "note": [["any"]] * 40}))


def dense(new: np.ndarray) -> np.ndarray:
    """The mean of an exact GP at hours since the first row, written out."""
    hours = (DAYS.tz_convert("UTC") - DAYS[0]).total_seconds().to_numpy() / 3600
    covariance = lambda a, b: np.exp(-0.5 * ((a[:, None] - b) / (7 * 24)) ** 2)  # noqa: E731
    return covariance(new, hours) @ np.linalg.solve(covariance(hours, hours) + 0.09 * np.eye(40), Y)


def test_forecasts_are_those_of_a_gp_of_hours(fit: Fit, tmp_path: Path) -> None:
    """Also of a fit that was saved, and of rows in another zone; clocks change on 31 March."""
    expected = dense(38 * 24 - 1 + 24 * np.arange(4.0))
    fit.save(tmp_path / "a.gpfit")
    loaded = gpdsl.load_fit(tmp_path / "a.gpfit")
    assert loaded.calendar == fit.calendar
    for each in (fit, loaded):
        for rows in ({"t": LATER}, {"t": LATER.tz_convert("Asia/Tokyo")}, pl.DataFrame({"t": LATER.to_pydatetime()})):
            prediction = each.predict(rows)
            np.testing.assert_allclose(prediction.mean("f"), expected, rtol=1e-6)
            assert list(prediction.times["t"]) == list(LATER)
            assert prediction.times["t"][0].tzinfo == ZoneInfo("Europe/Berlin")


def test_frames_have_the_dates(fit: Fit) -> None:
    prediction = fit.predict(pd.DataFrame({"t": LATER}))
    frame = prediction.to_frame()
    assert list(frame.columns) == ["t", "y_mean", "y_sd", "y_q0.05", "y_q0.95"]
    assert str(frame["t"].dt.tz) == "Europe/Berlin"
    assert "<td>2024-04-08T00:00:00+02:00</td>" in (prediction._repr_html_() or "")
    plain = MODEL.fit({"t": DAYS.tz_localize(None), "y": Y}).predict({"t": ["2024-04-09", "2024-04-08"]})
    assert plain.to_frame()["t"].dt.day.tolist() == [9, 8]


def test_the_summary_says_what_is_counted_since_when(fit: Fit) -> None:
    assert "\n  times       `t` in weeks since 2024-03-01T00:00:00+01:00 (Europe/Berlin)\n" in fit.summary()
    assert (
        "\n  times       `t` in weeks since 2024-03-01\n" in MODEL.fit({"t": DAYS.tz_localize(None), "y": Y}).summary()
    )


def test_another_fit_goes_on_in_the_calendar_of_the_first(fit: Fit) -> None:
    """Its inducing points and its posterior are where its own origin puts them."""
    more = {"t": DAYS[20:], "y": Y[20:]}
    assert MODEL.fit(more, steps=1).calendar != fit.calendar
    assert MODEL.fit(more, start=fit, steps=1).calendar == fit.calendar


def test_a_server_takes_numbers_since_the_first_time(fit: Fit) -> None:
    weeks = np.array([[5.0], [5.5]])
    np.testing.assert_allclose(offered(fit)["f"].evaluate(weeks)[:, 0], dense(7 * 24 * weeks[:, 0]), rtol=1e-6)
    both = np.array([[5.0, 0.1]])
    row = {"t": [DAYS[0] + pd.Timedelta(weeks=5)], "y": [0.1]}
    np.testing.assert_allclose(offered(fit)["log_density"].evaluate(both)[0], fit.log_predictive_density(row))


def test_a_picture_has_dates_along_its_axis(fit: Fit) -> None:
    figure = fit.plot({"t": DAYS, "y": Y}, names=["y"])
    axis = figure.axes[0].xaxis
    assert type(axis.get_major_locator()).__name__ == "AutoDateLocator"
    points = figure.axes[0].lines[-1].get_xdata()
    assert str(points[0]).startswith("2024-03-01") and str(points[0]).endswith("00:00:00")


@pytest.mark.parametrize(
    "kept",
    [
        None,
        {"origin": "2024-02-29T23:00:00.000000", "zones": {}},
        {"origin": "2024-02-29T23:00:00.000000", "zones": {"t": "../../etc/passwd"}},
        {"origin": "2024-02-29T23:00:00.000000", "zones": {"t": 3}},
        {"origin": "2024-02-29", "zones": {"t": "UTC"}},
        {"origin": "NaT", "zones": {"t": "UTC"}},
        {"origin": 3.5, "zones": {"t": "UTC"}},
        {"zones": {"t": "UTC"}},
    ],
)
def test_a_calendar_that_no_fit_has_is_damage(kept: object, fit: Fit, tmp_path: Path) -> None:
    header, arrays = persistence.header_of(fit), persistence.arrays_of(fit)
    header = {name: value for name, value in header.items() if name != "calendar"}
    text = json.dumps(header if kept is None else header | {"calendar": kept})
    blob = persistence.save(arrays, {"gpdsl": text, "sha256": persistence.checksum(text, arrays)})
    (tmp_path / "a.gpfit").write_bytes(blob)
    with pytest.raises(gpdsl.GpdslError, match="a.gpfit is damaged"):
        gpdsl.load_fit(tmp_path / "a.gpfit")


def test_a_zone_that_this_machine_does_not_know(fit: Fit) -> None:
    assert fit.calendar is not None
    odd = replace(fit, calendar=replace(fit.calendar, zones={"t": "Mars/Olympus"}))
    prediction = odd.predict({"t": LATER})
    with pytest.raises(gpdsl.GpdslError, match="the time zone `Mars/Olympus` is not known here; pip install tzdata"):
        _ = prediction.times


def test_drawn_data_have_dates(tmp_path: Path) -> None:
    drawn = MODEL.sample_prior(rows=30, seed=3)
    assert drawn.data["t"].dtype == np.dtype("M8[us]")
    drawn.save(tmp_path / "d.csv")
    drawn.save(tmp_path / "d.parquet")
    known = MODEL.fit(drawn.data, steps=1)
    for name in ("d.csv", "d.parquet"):
        again = MODEL.fit(tmp_path / name, steps=1)
        assert (again.calendar, again.digests) == (known.calendar, known.digests)
    assert list(MODEL.sample_prior({"t": LATER}).data["t"]) == list(LATER)


def test_the_commands_take_and_write_dates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("daily.gpm").write_text(TEXT)
    days = [f"{each:%Y-%m-%d}" for each in DAYS]
    Path("d.csv").write_text("date,y,odd\n" + "".join(f"{day},{y},[1\n" for day, y in zip(days, Y, strict=True)))
    Path("new.csv").write_text("date\n2024-04-10\n2024-04-11\n")
    assert main(["check", "daily.gpm", "--data", "d.csv", "--column", "t=date", "--pedantic"]) == 0
    assert main(["fit", "daily.gpm", "--data", "d.csv", "--column", "t=date", "--quiet", "--out", "a.gpfit"]) == 0
    capsys.readouterr()
    assert main(["predict", "a.gpfit", "--data", "new.csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "t,y_mean,y_sd"
    assert [line.split(",")[0] for line in lines[1:]] == ["2024-04-10", "2024-04-11"]
    plain = MODEL.fit({"t": days, "y": Y}).predict({"t": ["2024-04-10", "2024-04-11"]}).mean("y")
    np.testing.assert_allclose([float(line.split(",")[1]) for line in lines[1:]], plain, rtol=1e-8)
    Path("real.gpm").write_text(TEXT.replace("time(per = week)", "real"))
    assert main(["check", "real.gpm", "--data", "d.csv", "--column", "t=date"]) == 1
    printed = capsys.readouterr()
    assert "declare an input `time` to count days since the first" in printed.out + printed.err


def test_conditions_compare_times_with_texts(fit: Fit, tmp_path: Path) -> None:
    fit.save(tmp_path / "t.gpfit")
    for known in (fit, gpdsl.load_fit(tmp_path / "t.gpfit")):
        prediction = known.predict({"t": LATER})
        np.testing.assert_array_equal(prediction.probability('t > "2024-04-09T00:00+02:00"'), [0, 0, 1, 1])
        np.testing.assert_array_equal(prediction.probability('"2024-04-08T22:00Z" == t'), [0, 1, 0, 0])
        both = prediction.probability('y > 0 and t <= "2024-04-08T00:00+02:00"')
        assert both[0] == pytest.approx(prediction.probability("y > 0")[0], abs=0.05) and not both[1:].any()
    for wrong, said in {"2024-04-09": "has no time zone, unlike those of the fit", "soon": "`soon` is no date"}.items():
        with pytest.raises(gpdsl.GpdslError, match=f"`t` is compared with {wrong}.*{said}"):
            prediction.probability(f't > "{wrong}"')
    with pytest.raises(gpdsl.GpdslError, match='2024-04-09 is a difference of numbers; a time stands in quotes, "2024'):
        prediction.probability("t > 2024-04-09")


@pytest.mark.parametrize("unit", ["ns", "us", "D"])
def test_totals_by_times_are_found_by_times(unit: str) -> None:
    days = np.array(["2024-01-01", "2024-01-02"], "M8[D]").repeat(3)
    fit = gpdsl.compile(TEXT.replace("week", "day")).fit({"t": days.astype("M8[us]"), "y": np.arange(6.0)}, steps=1)
    total = fit.predict({"t": days.astype("M8[us]")}).total("f", by=days.astype(f"M8[{unit}]"))
    for second in ("2024-01-02", np.datetime64("2024-01-02"), pd.Timestamp("2024-01-02"), date(2024, 1, 2)):
        np.testing.assert_array_equal(total[second].draws, total.draws[:, 1])
    assert "2024-01-02" in repr(total)
    with pytest.raises(gpdsl.GpdslError, match="'soon' is no group"):
        total["soon"]
