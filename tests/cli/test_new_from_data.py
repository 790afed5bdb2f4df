"""`gpdsl new --data`: the model follows from what the columns look like, is in the canonical layout, and is fitted."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.cli import main
from gpdsl.cli.draft import draft
from gpdsl.cli.hints import clock_of
from gpdsl.data import read_table
from gpdsl.data.looks import dispersion, look, output_kind

ROWS = 60
rng = np.random.default_rng(0)
X = np.linspace(0, 10, ROWS)
AREA = 5000 + 800 * rng.standard_normal(ROWS)
CURVE = np.sin(X / 2) + (AREA - 5000) / 1600


def table(path: str, columns: Mapping[str, Sequence[Any]]) -> str:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def dates(step: timedelta, count: int = ROWS) -> list[str]:
    return [(datetime(2024, 1, 1) + n * step).isoformat() for n in range(count)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


MESSY = {
    "id": range(1, ROWS + 1),
    "day": dates(timedelta(days=1)),
    "site": ["north", "south", "east"] * (ROWS // 3),
    "x": X,
    "size (m2)": AREA,
    "country": ["here"] * ROWS,
    "sum": [*X[:-1], ""],
    "y": 30 * CURVE + 100,
}


def test_a_messy_table_becomes_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    table("messy.csv", MESSY)
    assert main(["new", "--data", "messy.csv"]) == 0
    told = capsys.readouterr().out
    text = Path("messy.gpm").read_text()
    assert gpdsl.format_text(text) == text
    assert "gpdsl fit messy.gpm --data messy.csv --out" in told
    for line in (
        "#   `size_m2` is the column `size (m2)`",
        "#   left out: `id`, which is another number in nearly every row, as identifiers are",
        "input  site    : label[each_site]    # 3 words: east, north, south",
        "param of_site[each_site] : real ~ Normal(0, sd_site)",
        "#   left out: `country`, it is the same in every row",
        f"#   left out: `sum`, it is missing in 1 of {ROWS} rows: "
        "inputs are known: fill it in, or leave these rows out",
        "latent f(day, x, size_m2) ~ GP(m,",
        "    s2_week * Periodic(ell_week, 7, on = day) +",
        "    s2 * RBF(ell, on = [x, size_m2]))",
        "y ~ Normal(f + of_site[site], sigma)",
    ):
        assert line in text, line
    assert main(["check", "--strict", "messy.gpm", "--data", "messy.csv"]) == 0
    assert main(["new", "--data", "messy.csv"]) == 1
    assert "messy.gpm exists already" in capsys.readouterr().err


OUTPUTS = {
    "real": (30 * CURVE, "y ~ Normal(f, sigma)"),
    "positive": (np.exp(CURVE + 2), "log(y) ~ Normal(f, sigma)"),
    "small": (1e-9 * np.exp(CURVE), "log(y) ~ Normal(f, sigma)"),
    "unit": (1 / (1 + np.exp(-CURVE)), "logit(y) ~ Normal(f, sigma)"),
    "binary": (np.where(CURVE > 0, "yes", "no"), "y ~ Bernoulli(logit = f)"),
    "label": (np.where(CURVE > 0.5, "top", np.where(CURVE < -0.5, "low", "mid")), "y ~ Categorical(logits = f)"),
    "two words": (np.where(CURVE > 0, "sold", "kept"), "y ~ Bernoulli(logit = f)    # 1 is sold"),
    "count": (rng.poisson(np.exp(CURVE / 2 + 1)), "y ~ Poisson(exp(f))"),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_the_likelihood_follows_from_the_output_and_is_compiled_and_fitted(kind: str) -> None:
    values, line = OUTPUTS[kind]
    data = table("d.csv", {"x": X, "area": AREA, "y": values})
    text = draft(read_table(data), "d", None).text
    assert line in text
    model = gpdsl.compile(text)
    if kind in ("positive", "count"):
        assert np.isfinite(model.fit(data).elbo)
    if kind == "two words":
        numbers = {"x": X, "area": AREA, "y": np.asarray(values == "sold", float)}
        binary = gpdsl.compile(draft(read_table(numbers), "d", None).text)
        told, same = (m.fit(d, standardise=True, steps=20) for m, d in ((model, data), (binary, numbers)))
        assert told.elbo == pytest.approx(same.elbo)
        assert set(told.predict(data).label("y")) == {"kept", "sold"}


def sine_of_dates() -> dict[str, Any]:
    """Forty days of a sine and noise of 0.1, beside columns that say nothing."""
    made = np.random.default_rng(1)
    return {
        "day": dates(timedelta(days=1), 40),
        "site": ["red", "green", "blue", "red"] * 10,
        "heat": 20 + 5 * made.standard_normal(40),
        "stars": made.integers(1, 6, 40).astype(float),
        "huge": 1e12 * (1 + made.random(40)),
        "y": np.sin(np.arange(40) / 4) + 0.1 * made.standard_normal(40),
    }


def test_few_rows_are_not_followed_one_by_one() -> None:
    columns = sine_of_dates()
    text = draft(read_table(columns), "d", None).text
    fit = gpdsl.compile(text).fit(columns, standardise=True)
    assert float(fit.parameters_in_data_units["sigma"]) == pytest.approx(0.1, rel=0.4)
    assert "effective parameters" not in {each.name for each in fit.diagnose().doubtful}
    truth = np.sin(np.arange(40) / 4)
    assert np.sqrt(np.mean((fit.predict(columns).mean("y") - truth) ** 2)) < 0.08  # 0.098 without priors


@pytest.mark.parametrize("kind", OUTPUTS)
def test_every_parameter_has_a_prior(kind: str) -> None:
    """So that data can be drawn from what is written, as `sbc` does."""
    columns = {**sine_of_dates(), "y": OUTPUTS[kind][0][:40]}
    text = draft(read_table(columns), "d", "y").text
    scales = [line for line in text.splitlines() if re.match(r"param (s2|ell|sd|sigma)", line)]
    assert len(scales) >= 7 and all("~ LogNormal(" in line for line in scales)
    params = gpdsl.compile(text).declarations.params
    assert [name for name, param in params.items() if param.prior is None] == []


def test_the_level_of_what_is_not_standardised_is_looked_for_where_the_data_lie() -> None:
    """Values of exp(7) about: a level of 0 is a thousand times too small."""
    text = draft(read_table({"x": X, "y": np.exp(CURVE + 7)}), "d", None).text
    start, centre, width = map(float, re.findall(r"param m +: real = (\S+) ~ Normal\((\S+), (\S+)\)", text)[0])
    assert start == centre == pytest.approx(7 + CURVE.mean(), abs=0.051) and 0.3 < width < 3


def test_what_is_no_trend_is_told_from_noise() -> None:
    """A wave of eleven years whose phase wanders, as sunspots have: a trend alone took nine tenths of it for noise."""
    made, values = np.random.default_rng(4), [0.0, 0.0]
    for _ in range(150):
        values.append(1.63 * values[-1] - 0.96 * values[-2] + made.standard_normal())
    columns = {"year": np.arange(1800, 1800 + len(values)), "y": 5 + np.asarray(values)}
    text = draft(read_table(columns), "d", None).text
    assert "s2_short * Matern32(ell_short, on = year)" in text
    fit = gpdsl.compile(text).fit(columns, standardise=True)
    assert float(fit.parameters["sigma"]) < 0.3
    few = {name: values[:49] for name, values in columns.items()}
    alone = draft(read_table(few), "d", None).text
    assert "short" not in alone
    widths = [re.findall(r"ell_trend +: .* LogNormal\(\S+, (\S+)\)", each)[0] for each in (text, alone)]
    assert widths == ["0.3", "1"]  # a trend that may take what passes forecasts too surely


def test_the_priors_go_with_the_scale_of_the_output() -> None:
    """Of a positive output a thousand times as large they are the same; of one that varies e times as much, not."""
    texts = [draft(read_table({"x": X, "y": np.exp(v)}), "d", None).text for v in (CURVE, CURVE + 7, 3 * CURVE)]
    found = [re.findall(r"sigma : positive ~ LogNormal\((\S+), ", text)[0] for text in texts]
    assert found[0] == found[1]
    assert float(found[2]) - float(found[0]) == pytest.approx(np.log(3), abs=0.11)


GRADES = np.digitize(CURVE, np.quantile(CURVE, [0.2, 0.5, 0.8])) + 1


@pytest.mark.parametrize(
    ("name", "values", "index"),
    [
        ("stars", GRADES.astype(float), "index c in 1..4"),
        ("grade", np.array(list("ABCD"), object)[GRADES - 1], 'index c in {"A", "B", "C", "D"}'),
        ("y", np.array(["Low", "Low", "High", "Medium"], object)[GRADES - 1], 'index c in {"Low", "Medium", "High"}'),
    ],
)
def test_grades_are_ordered(name: str, values: np.ndarray, index: str) -> None:
    """Numbers from 1, letters of a column of that name, and words that everybody orders in one way."""
    for columns in ({"x": X, "area": AREA}, {"site": ["n", "s"] * (ROWS // 2)}):
        text = draft(read_table({**columns, name: values}), "d", name).text
        assert index in re.sub(" +", " ", text) and f"{name} ~ Ordinal(probit =" in text
        model = gpdsl.compile(text)
        if "x" in columns and name == "stars":
            fit = model.fit({**columns, name: values}, standardise=True)
            assert np.mean(np.asarray(fit.predict(columns).label(name), float) == values) > 0.6


def test_what_may_be_grades_is_told_how_to_say_so() -> None:
    letters = np.array(list("ABCD"), object)[GRADES - 1]
    many = rng.poisson(1, ROWS) + 1.0
    for values in (letters, np.where(many == 2, 5, many)):
        text = draft(read_table({"x": X, "area": AREA, "y": values}), "d", "y").text
        found = re.findall("`(.*?)`", text[text.index("# If the") :].split("highest:")[1].split(";")[0])
        dropped = ("#", "y ~", "output", "index c", "param m")
        lines = [line for line in text.splitlines() if not line.startswith(dropped)]
        body = "\n".join([*lines, *found]).replace("f[c]", "f").replace("GP(m,", "GP(0,")
        assert gpdsl.compile(body).declarations.outputs["y"].kind == "ordinal"


def test_columns_keep_names_that_a_draft_likes_itself() -> None:
    """scikit-learn's diabetes data have a column `s2`: the variance is called otherwise."""
    found = draft(read_table({"s2": X, "m": AREA, "c": CURVE, "y": 30 * CURVE}), "d", None)
    assert not found.columns and "s2_f * RBF(ell)" in found.text
    assert set(gpdsl.compile(found.text).declarations.inputs) == {"s2", "m", "c"}


def test_counts_that_vary_more_than_poisson() -> None:
    rate = np.exp(np.sin(np.linspace(0, 10, 2000)) + 2)
    columns = {"x": np.linspace(0, 10, 2000), "site": ["high", "low"] * 1000}
    looks = [look(read_table(columns), name) for name in columns]
    rate = np.where(np.arange(2000) % 2, rate, 3 * rate)
    assert dispersion(looks, rng.poisson(rate).astype(float)) == pytest.approx(1, abs=0.1)
    wild = rng.poisson(rate * rng.gamma(2, 0.5, 2000)).astype(float)
    assert dispersion(looks, wild) == pytest.approx(1 + np.mean(rate**2) / 2 / np.mean(rate), rel=0.3)
    text = draft(read_table({**columns, "n": wild}), "d", None).text
    assert "n ~ NegativeBinomial(exp(f + of_site[site]), phi)" in text
    gpdsl.compile(text)


@pytest.mark.parametrize(
    ("step", "count", "unit", "cycles"),
    [
        (timedelta(seconds=1), 60, "second", {}),
        (timedelta(hours=1), 100, "hour", {"day": 24}),
        (timedelta(hours=1), 600, "hour", {"day": 24, "week": 168}),
        (timedelta(days=1), 800, "day", {"week": 7, "year": 365.25}),
        (timedelta(days=30), 60, "year", {"year": 1}),
        (timedelta(days=365), 60, "year", {}),
    ],
)
def test_the_unit_and_the_cycles_of_times(step: timedelta, count: int, unit: str, cycles: dict[str, float]) -> None:
    clock = clock_of(look(read_table({"t": dates(step, count)}), "t").values)
    assert (clock.unit, clock.cycles) == (unit, cycles)
    assert clock.gap == pytest.approx(step / timedelta(**{f"{unit}s": 1}) if unit != "year" else step.days / 365.25)


def test_words_alone_are_groups_and_values_that_no_float_can_square_are_left_out() -> None:
    columns = {"site": ["a", "b", "c"] * 20, "far": 1e300 * X, "y": CURVE}
    text = draft(read_table(columns), "d", None).text
    assert "y ~ Normal(m + of_site[site], sigma)" in text and "`far`, it has values above 1e+40" in text
    assert np.isfinite(gpdsl.compile(text).fit(columns).elbo)


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"x": X, "far": 1e300 * X, "y": CURVE}, "`far`, it has values above 1e+40"),
        ({"Year": np.repeat(np.arange(1935.0, 1955), 3), "y": CURVE}, "input  Year : time(per = year)"),
        ({"x": X, "y": np.asarray(CURVE > 0, float)}, "y ~ Bernoulli(logit = f)"),
        ({"x": X, "y": np.where(CURVE > 0, 1.0, -1.0)}, "y ~ Bernoulli(logit = f)"),
    ],
)
def test_what_numbers_are_follows_from_their_name_and_size(columns: dict[str, np.ndarray], line: str) -> None:
    text = draft(read_table(columns), "d", None).text
    assert line in text
    gpdsl.compile(text)


def test_many_columns_stand_on_lines_of_their_own() -> None:
    columns = {f"a rather long name {n}": X for n in range(20)} | {"day": dates(timedelta(days=1)), "y": CURVE}
    text = draft(read_table(columns), "d", None).text
    gpdsl.compile(text)
    assert max(len(line) for line in text.splitlines()) <= 120
    assert gpdsl.format_text(text) == text


def test_years_and_identifiers_are_known_by_name() -> None:
    panel = {"Store ID": [101, 205, 307] * 20, "invest": CURVE, "Year": np.repeat(np.arange(1935.0, 1955), 3)}
    made = draft(read_table({**panel, "customer_id": rng.permutation(ROWS) + 7.0}), "d", None)
    assert made.output == "invest"
    for line in (
        "input  Year     : time(per = year)",
        "input  Store_ID : label[each_Store_ID]    # 3 numbers: 101, 205, 307",
        "#   left out: `customer_id`, which is another number in nearly every row, as identifiers are",
    ):
        assert line in made.text, line
    assert np.isfinite(gpdsl.compile(made.text).fit(panel, standardise=True, steps=2).elbo)
    odd = draft(read_table({"year": X, "id": X + 0.5, "y": CURVE}), "d", None).text
    assert "input  year : real" in odd and "input  id   : real" in odd


def test_numbers_with_a_comma_are_told_from_words() -> None:
    with pytest.raises(gpdsl.GpdslError, match="--output y: .* its numbers, such as 3,5"):
        draft(read_table({"x": X, "y": ["3,5", "4", "2,25"] * 20}), "d", "y")


def test_the_alternative_of_a_draft_is_a_model() -> None:
    for values in (rng.poisson(np.exp(CURVE / 2 + 1)), np.round(100 + 20 * CURVE)):
        text = draft(read_table({"x": X, "y": values}), "d", None).text
        found = re.findall("`(.*?)`", text[text.index("# If these") :])
        lines = [line for line in text.splitlines() if not line.startswith(("#", "y ~", "output"))]
        other = gpdsl.compile("\n".join([*lines, *found]))
        assert {"real", "count"} == {each.declarations.outputs["y"].kind for each in (other, gpdsl.compile(text))}


def test_names_that_the_language_has_are_changed() -> None:
    made = draft(read_table({"model": X, "f": AREA, "2nd": CURVE, "": X, "ell": CURVE}), "d", "f")
    gpdsl.compile(made.text)
    assert not made.columns and "`x_2nd` is the column `2nd`" in made.text
    twice = draft(read_table({"a b": X, "a-b": AREA, "y": CURVE}), "d", None)
    assert twice.columns == {"a_b": "a b", "a_b_": "a-b"}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.0, 2.0, 3.0], "count"),
        ([250_000.0, 310_000.0, 1e6], "positive"),
        ([280.5, 290.0, 301.0], "real"),
        ([25.0, 141.0, 140.0, 202.0, 346.0], "real"),
        ([0.0, 141.0, 140.0, 202.0, 346.0], "count"),
    ],
)
def test_whole_numbers_are_not_always_counts(values: list[float], kind: str) -> None:
    assert output_kind(look(read_table({"y": values}), "y")) == kind


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "absent.csv"], "absent.csv: error[D120]: the file cannot be read: no such file"),
        (["--data", "d.csv", "--output", "Name"], "--output Name: there is no such column; did you mean `name`?"),
        (["--data", "d.csv", "--output", "day"], "it holds times: expected numbers or words"),
        (["--data", "d.csv", "--output", "name"], "it is text that differs in nearly every row"),
        (["--data", "d.csv", "--from", "boston"], "--from and --data: a model starts from one of them"),
        (["--output", "y"], "--output names a column of the data"),
        (["2nd", "--data", "d.csv"], "`2nd` cannot be the name of a model"),
        (["--data", "alone.csv"], "there is no column beside the output that could be an input"),
        (["--data", "dates.csv"], "no column can be an output"),
    ],
)
def test_mistakes_end_in_a_sentence(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"name {n}" for n in range(ROWS)]
    table("d.csv", {"day": dates(timedelta(days=1)), "name": names, "x": X, "y": CURVE})
    table("alone.csv", {"y": CURVE})
    table("dates.csv", {"day": dates(timedelta(days=1))})
    assert main(["new", *words]) == 1
    assert told in capsys.readouterr().err


def test_numbers_of_the_rows_are_an_input_where_nothing_else_is() -> None:
    found = draft(read_table({"day": np.arange(31.0), "y": np.sin(np.arange(31) / 5)}), "d", None)
    assert "latent f(day) ~ GP(m, s2 * RBF(ell))" in found.text


def test_words_have_effects_on_each_of_several_classes() -> None:
    kinds = np.where(CURVE > 0.5, "top", np.where(CURVE < -0.5, "low", "mid"))
    columns = {"site": np.array(["n", "s"] * (ROWS // 2), object), "on": ["True", "False", "False"] * (ROWS // 3)}
    for more in ({"x": X}, {}):
        text = draft(read_table({**columns, **more, "y": kinds}), "d", None).text
        assert "param of_site[each_site,c]" in text
        assert "left out" not in text
        assert set(gpdsl.compile(text).declarations.inputs) == {*columns, *more}


ROW = b"2024-01-0%d,%d,r\xf6t,%d\n"
LATIN = b"day,x,farbe,y\n" + b"".join(ROW % (n, n * n, n) for n in range(1, 9))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (LATIN, "d.csv: error[D120]: the file cannot be read: it is not UTF-8 text"),
        (LATIN, "iconv -f LATIN1 -t UTF-8 OLD.csv > NEW.csv"),
        (b"gr\xf6\xdfe,y\n1,2\n2,5\n3,1\n", "it is not UTF-8 text"),
        (LATIN.decode("latin-1").encode("utf-16"), "iconv -f UTF-16 -t UTF-8 OLD.csv > NEW.csv"),
        (b"x,y\n1,2\n2,\0\0 3\n3,5\n", "d.csv:3: error[D120]: the file cannot be read: row 2 has a byte of value zero"),
        (b'x,y\n1,2\n\n2,"3\n3,4\n', "d.csv:4: error[D120]: the file cannot be read: a double quote opens a field"),
        (b"x,y\n02/13/2024,1\n01/04/2024,2\n", "such as 02/13/2024, have the month first"),
        (b"# by hand\nx,y\n1,2\n2,3\n", "names of the columns and has 1 field, but all others have 2"),
    ],
)
def test_files_that_are_no_table_of_text_say_how_to_save_them(
    content: bytes, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("d.csv").write_bytes(content)
    assert main(["new", "--data", "d.csv"]) == 1
    assert told in capsys.readouterr().err
    assert not Path("d.gpm").exists()


def test_arrays_are_told_to_be_declared_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("a.npz", x=np.eye(6)[:, :4], y=np.arange(6.0))
    assert main(["new", "--data", "a.npz"]) == 1
    assert (
        "`x`: it is no column but an array: write a model by hand, with `input x : real[4]`" in capsys.readouterr().err
    )
    Path("a.gpm").write_text(
        "model a\ninput x : real[4]\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)\n"
    )
    assert main(["check", "a.gpm", "--data", "a.npz"]) == 0


def test_one_bad_date_is_named() -> None:
    days = dates(timedelta(days=1))
    days[3] = "2024-13-45"
    text = draft(read_table({"day": days, "x": X, "y": CURVE}), "d", None).text
    assert "left out: `day`, its times are no column of times: row 4 holds `2024-13-45`, which is none" in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,a,y\n1,2,3\n2,3,4\n3,5,7\n", "  `a`: d.csv: error[D122]"),
        ("a,b\n", "d.csv: error[D108]: there are no rows"),
        ("a,b\n1,1\n1,1\n", "  `b`: it is the same in every row"),
    ],
)
def test_tables_that_no_model_can_be_made_of_say_why(text: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("d.csv").write_text(text)
    assert main(["new", "--data", "d.csv"]) == 1
    assert told in capsys.readouterr().err


def test_dates_with_names_of_months_are_told_from_words() -> None:
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    days = [f"{months[n % 12]} {n % 28 + 1:02}, 20{n:02}" for n in range(len(X))]
    text = draft(read_table({"day": days, "x": X, "y": CURVE}), "d", None).text
    assert "left out: `day`, its dates, such as Jan 01, 2000, have names of months: write them as 2024-01-05" in text


def test_one_and_two_are_two_classes() -> None:
    made = draft(read_table({"x": X, "y": np.where(CURVE > 0, 2, 1)}), "d", None)
    assert "index c in {1, 2}    # two values, taken for classes" in made.text
    assert gpdsl.compile(made.text).declarations.outputs["y"].kind == "label"


def test_words_have_effects_on_each_of_two_numbered_classes() -> None:
    site = np.array(["p", "q", "r"])[np.arange(len(X)) % 3]
    text = draft(read_table({"x": X, "site": site, "y": np.where(CURVE > 0, 2, 1)}), "d", None).text
    assert "of_site[each_site,c]" in text  # one effect on both classes would change neither's probability
    assert "y ~ Categorical(logits = f + of_site[site])" in text


def test_codes_of_classes_are_told_how_to_say_so() -> None:
    made = draft(read_table({"x": X, "y": np.digitize(CURVE, [-0.3, 0.3])}), "d", None).text
    assert "# If these whole numbers are codes of classes: `index c in 1..C`, `output y : label[c]`," in made
    edited = "\n".join(each for each in made.splitlines() if not each.startswith(("#", "param m ", "y ~")))
    edited = edited.replace("output y : count", "index c in 1..C\noutput y : label[c]")
    edited = edited.replace("latent f(x) ~ GP(m,", "latent f[c](x) ~ GP(0,") + "\ny ~ Categorical(logits = f)\n"
    assert gpdsl.compile(edited).declarations.outputs["y"].kind == "label"
    assert "codes of classes" not in draft(read_table({"x": X, "y": np.arange(len(X)) ** 2}), "d", None).text


def test_days_that_come_first_are_told() -> None:
    days = [f"{n % 28 + 1:02}/01/2024" for n in range(len(X))]
    text = draft(read_table({"day": days, "x": X, "y": CURVE}), "d", None).text
    assert "its dates, such as 01/01/2024, have the day first: write them as 2024-01-05" in text


ONE = np.arange(len(X)) == 2


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (np.where(ONE, "-", CURVE.astype(str)), "its numbers are no column of numbers: row 3 holds `-`, which is none"),
        (np.where(ONE, "?", (np.arange(len(X)) % 4).astype(str)), "row 3 holds `?`, which is none"),
        (np.where(ONE, "unknown", (np.arange(len(X)) % 25).astype(str)), "row 3 holds `unknown`, which is none"),
        (np.where(ONE, "-", [f"{each:.1f}%" for each in X]), "row 3 holds `-`, which is none"),
        (
            np.where(ONE, "< 0.4", CURVE.astype(str)),
            "`< 0.4`, which is none; write `0.4`: that values end there",
        ),
        ([f"{each:.1f}%" for each in X], "such as 0.0%, are written with signs: write plain numbers, as 0.0"),
        ([f"${each:,.2f}" for each in 1200 + X], "such as $1,200.00, are written with signs: write plain numbers"),
        ([f"-€ {each:,.2f}" for each in 1200 + X], "such as -€ 1,200.00, are written with signs: write plain numbers"),
        ([f"{each:,.1f}" for each in 1200 + X], "1,200.0, are written with signs: write plain numbers, as 1200.0"),
    ],
)
def test_what_keeps_a_column_from_being_numbers_is_told(values: Sequence[str], why: str) -> None:
    columns = {"x": X, "p": np.asarray(values, object), "y": CURVE}
    assert why in re.search(r"left out: `p`, (.*)", draft(read_table(columns), "d", None).text)[1]  # type: ignore[index]
    with pytest.raises(gpdsl.GpdslError) as told:
        draft(read_table(columns), "d", "p")
    assert "cannot be an output: its numbers" in str(told.value)
    assert why in draft(read_table({"x": X, "y2": CURVE, "p": columns["p"]}), "d", None).passed


@pytest.mark.parametrize("values", [["1", "2", "B", "10"], ["-5", "5", "none yet", "7"], ["12A", "1%", "b", "c"]])
def test_codes_with_letters_stay_words(values: list[str]) -> None:
    text = draft(read_table({"x": X, "p": values * (len(X) // 4), "y": CURVE}), "d", None).text
    assert "p : label[each_p]" in re.sub(" +", " ", text)


def test_a_column_that_must_be_told_is_named_beside_its_input(capsys: pytest.CaptureFixture[str]) -> None:
    table("dup.csv", {"a b": AREA, "a_b": X, "site-é": ["n", "s", "e"] * 20, "site é": ["k", "l"] * 30, "ä": CURVE})
    assert main(["new", "--data", "dup.csv"]) == 0
    lines = Path("dup.gpm").read_text().splitlines()
    told = " ".join(re.findall(r"the column `.*`: (--column .*)", "\n".join(lines)))
    assert told == "--column 'a_b=a b' --column a_b_=a_b --column 'site_é=site-é' --column 'site_é_=site é'"
    assert next(line for line in lines if line.startswith("input  a_b ")).endswith("`a b`: --column 'a_b=a b'")
    assert told in capsys.readouterr().out
    assert main(["check", "dup.gpm", "--data", "dup.csv", *shlex.split(told)]) == 0
    assert "column" not in draft(read_table({"x": X, "y": CURVE}), "d", None).text.replace("columns", "")


def test_words_of_the_language_are_spared_as_names(capsys: pytest.CaptureFixture[str]) -> None:
    data = table("index.csv", {"x": X, "y": CURVE})
    for words, path, name in ((["--out", "const.gpm"], "const.gpm", "const_"), ([], "index_.gpm", "index_")):
        assert main(["new", "--data", data, *words]) == 0
        assert Path(path).read_text().splitlines()[3].startswith(f"model {name} ")
    assert main(["new", "const", "--data", data]) == main(["new", "const", "--from", "boston"]) == 1
    assert capsys.readouterr().err.count("`const` is a word of the language: name the model otherwise") == 2


@pytest.mark.parametrize("last", ["Day", "month", "YEAR", "date", "id", "index", "hour", "Week", "site_id"])
def test_where_and_when_is_the_output_only_where_nothing_else_can_be(last: str) -> None:
    columns = {"Ozone": CURVE, "Temp": AREA, "Month": np.arange(ROWS) // 30 + 5, last: np.arange(ROWS) % 30 + 1}
    assert draft(read_table(columns), "d", None).output == "Temp"
    assert draft(read_table(columns), "d", "Ozone").output == "Ozone"
    alone = {"name": [f"n{n}" for n in range(ROWS)], "x": dates(timedelta(days=1)), "hour": np.arange(ROWS) % 24}
    assert draft(read_table(alone), "d", None).output == "hour"


def test_quotes_in_a_level_do_not_end_the_title() -> None:
    pipes = ['6" pipe' if n % 3 else '8" pipe' for n in range(len(X))]
    text = draft(read_table({"x": X, "k": pipes}), "q", "k").text
    assert "Is k 8' pipe?" in text or "Is k 6' pipe?" in text
    gpdsl.compile(text)


def _walk(seed: int, count: int = 360) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).standard_normal(count))


NOISE = np.random.default_rng(3).standard_normal(300)
STEPS = np.arange(300.0)


@pytest.mark.parametrize(
    ("values", "walking"),
    [
        (_walk(0, 300), True),
        (np.exp(0.1 * _walk(0, 300)), True),  # its logarithm, of which the latent is
        (_walk(0, 300) + NOISE, False),
        (10 * np.sin(STEPS / 40) + NOISE, False),
        (10 * np.sin(STEPS / 40), False),
        (STEPS + NOISE, False),
        (np.sin(2 * np.pi * STEPS / 7) + 0.05 * STEPS, False),
        (NOISE, False),
        (_walk(0, 40), False),  # too few to tell
    ],
)
def test_a_walk_is_told_by_its_steps(values: np.ndarray, walking: bool) -> None:
    places = np.arange(len(values))
    mixed = np.random.default_rng(1).permutation(len(values))
    days = np.datetime64("2024-01-01") + places
    for column in (places * 0.5, days):
        text = draft(read_table({"x": column[mixed], "y": values[mixed]}), "d", "y").text
        assert ("s2_walk * Matern12(" in text) == walking
        assert ("s2_trend" in text or "s2 * RBF(ell)" in text) != walking
        gpdsl.compile(text)
    twice = {"x": np.repeat(days, 2), "y": np.repeat(values, 2)}
    assert "s2_walk" not in draft(read_table(twice), "d", "y").text


@pytest.mark.parametrize("seeds", [(0,), pytest.param((1, 2, 3, 4, 5, 6, 7), marks=pytest.mark.slow)])
def test_forecasts_of_walks_are_as_wide_as_these_go(seeds: tuple[int, ...]) -> None:
    inside = []
    for seed in seeds:
        y = _walk(seed)
        rows = {"t": np.arange(300.0), "y": y[:300]}
        text = draft(read_table(rows), "d", None).text
        if "s2_walk" not in text:  # one in eight has steps that look alike by chance
            continue
        fit = gpdsl.compile(text).fit(rows, standardise=True)
        ahead = np.arange(1.0, 61)
        prediction = fit.predict({"t": 299 + ahead})
        # the exact forecast, with its steps as they were seen: from the last value on, and as the root of time
        step = np.std(np.diff(y[:300]))
        gap = prediction.sd("y") / (step * np.sqrt(ahead))
        assert np.all((gap[5:] > 0.8) & (gap[5:] < 1.25)) and np.all(abs(prediction.mean("y") - y[299]) < 2 * step)
        low, high = prediction.interval("y", 0.9)
        inside.append(np.mean((low < y[300:]) & (y[300:] < high)))
    assert np.mean(inside) > 0.8 and len(inside) > 0.7 * len(seeds)


def test_words_that_say_the_same_twice_are_one_input(tmp_path: Path) -> None:
    columns = {"name": ["Brazil", "France", "India"] * 20, "code": ["BRA", "FRA", "IND"] * 20, "y": CURVE}
    text = draft(read_table(table(str(tmp_path / "d.csv"), columns)), "m", "y").text
    assert "#   left out: `code`, it says what `name` does in other words" in text and "of_code" not in text


def test_a_remark_on_some_rows_is_not_the_same_in_all() -> None:
    remarks = ["strike", *[None] * (ROWS - 1)]
    text = draft(read_table({"note": remarks, "x": X, "y": CURVE}), "d", None).text
    assert "left out: `note`, it is the same in every row that has it" in text
