"""What comes back of outputs with levels is in these levels: labels, draws, quantiles, tables, totals and checks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl import GpdslError
from gpdsl.errors import Damaged
from gpdsl.results.averaged import Averaged
from gpdsl.results.levels import levels_of
from gpdsl.results.persistence import header_of
from gpdsl.results.verification import check_sizes
from tests.inference.problems import unlearnt

X = np.linspace(0, 6, 24)
SIDE = np.sin(2 * X) > 0
NEW = {"x": np.array([0.3, 2.0, 4.5])}
HEAD = "input x : real\nlatent f(x) ~ GP(0, RBF(1))\n"
BINARY = HEAD + "output y : binary\ny ~ Bernoulli(probit = f)\n"
ORDINAL = (
    HEAD + "index k in {}\nconst cut = [-0.5, 0.5]\noutput y : ordinal[k]\ny ~ Ordinal(probit = f, cutpoints = cut)\n"
)
LABEL = "input x : real\nindex k in {4, 7, 9}\nlatent f[k](x) ~ GP(0, RBF(1))\noutput y : label[k]\n"
LABEL += "y ~ Categorical(logits = f)\n"
FREE = LABEL.replace("{4, 7, 9}", "1..K")


def fitted(text: str, y: Any) -> gpdsl.Fit:
    return gpdsl.compile(text).fit({"x": X, "y": y})


def binary(first: Any, second: Any) -> gpdsl.Fit:
    return fitted(BINARY, np.where(SIDE, second, first))


@pytest.fixture(scope="module")
def sides() -> gpdsl.Fit:
    return binary(-1, 1)


@pytest.fixture(scope="module")
def zeros() -> gpdsl.Fit:
    return binary(0, 1)


@pytest.fixture(scope="module")
def tens() -> gpdsl.Fit:
    return fitted(ORDINAL.format("{10, 20, 35}"), np.array([10, 20, 35] * 8))


def assert_same_in_levels(own: gpdsl.Fit, coded: gpdsl.Fit, to: Any, seen: dict[str, Any]) -> None:
    """All that comes back is `to` of what comes back where the data hold the numbers of levels."""
    ours, theirs = own.predict(NEW), coded.predict(NEW)
    assert own.elbo == coded.elbo
    np.testing.assert_array_equal(ours.mean("y"), theirs.mean("y"))
    for name, asked in {
        "sample": lambda each: each.sample("y", 50, seed=1),
        "draws": lambda each: each.draws("y", 50, seed=1),
        "quantile": lambda each: each.quantile("y", [0.1, 0.5, 0.9]),
        "one quantile": lambda each: each.quantile("y", 0.5),
        "interval": lambda each: each.interval("y"),
    }.items():
        np.testing.assert_array_equal(asked(ours), to(asked(theirs)), err_msg=name)
    check = own.check_predictive(seen, "mean", draws=20)
    assert check.observed == pytest.approx(np.mean(seen["y"]))
    drawn = own.predict(seen).draws("y", 20, seed=0)
    np.testing.assert_allclose(check.drawn, drawn.mean(axis=1))
    if pytest.importorskip("xarray"):
        tree = own.to_datatree(seen, draws=4)
        np.testing.assert_array_equal(tree["observed_data"]["y"], seen["y"])
        assert set(np.unique(tree["posterior_predictive"]["y"])) <= set(np.unique(seen["y"]))


def test_minus_one_and_one(sides: gpdsl.Fit, zeros: gpdsl.Fit) -> None:
    seen = {"x": X, "y": np.where(SIDE, 1, -1)}
    assert_same_in_levels(sides, zeros, lambda codes: 2 * codes - 1, seen)
    ours = sides.predict(NEW)
    np.testing.assert_array_equal(ours.total("y", count=50, seed=1).draws, ours.draws("y", 50, seed=1).sum(axis=1))
    assert "-1 or 1; its mean is P(1)" in sides.summary()
    for condition, share in {'y == "1"': ours.mean("y"), '"-1" == y': 1 - ours.mean("y")}.items():
        np.testing.assert_allclose(ours.probability(condition), share, rtol=1e-12)
    pytest.importorskip("pandas")
    frame = ours.to_frame(quantiles=[0.001, 0.999])
    assert set(frame["y_q0.001"]) == {-1.0} and set(frame["y_q0.999"]) == {1.0}
    pytest.importorskip("xarray")
    assert set(np.unique(ours.to_xarray(quantiles=[0.001, 0.999])["y_quantile"])) == {-1.0, 1.0}


@pytest.mark.slow
def test_ordinal_levels_that_are_numbers(tens: gpdsl.Fit, tmp_path: Path) -> None:
    coded = fitted(ORDINAL.format("1..3"), np.array([1, 2, 3] * 8))
    levels = np.array([10.0, 20.0, 35.0])
    seen = {"x": X, "y": np.array([10, 20, 35] * 8)}
    tens.save(tmp_path / "a.gpfit")
    for each in (tens, gpdsl.load_fit(tmp_path / "a.gpfit")):
        assert_same_in_levels(each, coded, lambda codes: levels[codes.astype(int) - 1], seen)
    with pytest.raises(GpdslError, match="a label or a field has no sum over rows"):
        tens.predict(NEW).total("y")


def test_what_is_missing_stays_so(tens: gpdsl.Fit) -> None:
    pytest.importorskip("xarray")
    values = np.array([10, 20, 35] * 8, float)
    values[3] = np.nan
    tree = tens.to_datatree({"x": X, "y": values}, draws=2)
    np.testing.assert_array_equal(tree["observed_data"]["y"], values)


def test_labels_that_are_numbers() -> None:
    fit = fitted(LABEL, np.array([4, 7, 9] * 8))
    prediction = fit.predict(NEW)
    drawn = prediction.sample("y", 4000, seed=0)
    shares = np.stack([np.mean(drawn == level, axis=0) for level in (4, 7, 9)], axis=-1)
    np.testing.assert_allclose(shares, prediction.mean("y"), atol=0.04)
    assert set(np.unique(prediction.draws("y", 200))) == {4.0, 7.0, 9.0}
    assert fit.check_predictive({"x": X, "y": np.array([4, 7, 9] * 8)}, "max").observed == 9


def test_an_average_over_parameters_has_the_levels(tens: gpdsl.Fit) -> None:
    other = fitted(ORDINAL.format("{10, 20, 35}"), np.array([35, 10] * 12)).predict(NEW)
    one = tens.predict(NEW)
    prediction = Averaged(np.array([0.4, 0.6]), [one.beliefs, other.beliefs], one.dtype, one.standardised, None)
    share = 0.4 * one.mean("y") + 0.6 * other.mean("y")
    np.testing.assert_allclose(prediction.mean("y"), share, rtol=1e-9)
    np.testing.assert_allclose(prediction.variance("y"), share * (1 - share), rtol=1e-9)
    chances = np.cumsum(prediction.mean("y"), axis=-1)
    for p in (0.1, 0.5, 0.9):
        expected = np.array([10.0, 20.0, 35.0])[np.argmax(chances >= p, axis=-1)]
        np.testing.assert_array_equal(prediction.quantile("y", p), expected)
    assert set(np.unique(prediction.draws("y", 200))) == {10.0, 20.0, 35.0}


def test_words_have_numbers_in_arrays_and_names_in_tables(zeros: gpdsl.Fit) -> None:
    fit = binary("no", "yes")
    prediction, coded = fit.predict(NEW), zeros.predict(NEW)
    np.testing.assert_array_equal(prediction.draws("y", 9), coded.draws("y", 9))
    np.testing.assert_array_equal(prediction.quantile("y", 0.9), coded.quantile("y", 0.9))
    pytest.importorskip("pandas")
    frame = prediction.to_frame(quantiles=[0.001, 0.999])
    assert set(frame["y_q0.001"]) == {"no"} and set(frame["y_q0.999"]) == {"yes"}
    pytest.importorskip("xarray")
    found = prediction.to_xarray(quantiles=[0.001])["y_quantile"]
    assert set(found.values.ravel().tolist()) == {"no"}


@pytest.mark.parametrize("pair", [("F", "T"), ("no", "Yes"), ("ja", "nein")])
def test_words_come_back_as_they_are(pair: tuple[str, str], zeros: gpdsl.Fit, tmp_path: Path) -> None:
    fit = binary(*pair)
    assert fit.elbo == zeros.elbo
    fit.save(tmp_path / "a.gpfit")
    for each in (fit, gpdsl.load_fit(tmp_path / "a.gpfit")):
        prediction = each.predict({"x": X})
        assert prediction.levels("y") == pair and set(prediction.label("y").tolist()) == set(pair)
        for word, share in zip(pair, (1 - prediction.mean("y"), prediction.mean("y")), strict=True):
            np.testing.assert_allclose(prediction.probability(f'y == "{word}"'), share, rtol=1e-12)
    assert f"1 is {pair[1]}, and 0 is {pair[0]}" in fit.summary()


@pytest.mark.parametrize("wrong", [["yes", "no"], ["no", "no"], ["no"], [0, 1], [1, -1], ["b", "b"]])
def test_a_file_whose_words_are_not_two_is_refused(wrong: list[Any], zeros: gpdsl.Fit) -> None:
    declared, header = zeros.program.declarations, header_of(zeros)
    check_sizes(declared, header | {"levels": {"y": ["no", "Yes"]}})
    with pytest.raises(Damaged, match="levels of y"):
        check_sizes(declared, header | {"levels": {"y": wrong}})


def test_other_spellings_of_no_and_yes_are_known_to_a_fit() -> None:
    fit = binary("no", "yes")
    expected = fit.log_predictive_density({"x": [0.3, 2.0], "y": ["no", "yes"]})
    for same in (["No", "y"], [0, 1], [False, True], ["false", "1"]):
        np.testing.assert_array_equal(fit.log_predictive_density({"x": [0.3, 2.0], "y": same}), expected)
    with pytest.raises(GpdslError, match=r"D166.*holds `maybe`, where the fit knows no, yes"):
        fit.log_predictive_density({"x": [0.3, 2.0], "y": ["no", "maybe"]})
    prediction = fit.predict(NEW)
    np.testing.assert_array_equal(prediction.probability('y == "TRUE"'), prediction.probability('y == "yes"'))
    with pytest.raises(GpdslError, match="expected one of no, yes"):
        prediction.probability('y == "maybe"')


def test_numbers_in_quotes_are_levels(zeros: gpdsl.Fit) -> None:
    prediction = zeros.predict(NEW)
    np.testing.assert_allclose(prediction.probability('y == "1"'), prediction.mean("y"), rtol=1e-12)
    np.testing.assert_allclose(prediction.probability('y == "yes"'), prediction.mean("y"), rtol=1e-12)


def test_an_input_that_is_a_label_is_compared_by_its_levels() -> None:
    text = "index s in 1..S\ninput site : label[s]\noutput y : real\nparam a[s] : real ~ Normal(0, 1)\n"
    site = np.array([1234567, 1234567, 8, 8, 20, 20])
    fit = gpdsl.compile(text + "y ~ Normal(a[site], 0.1)").fit({"site": site, "y": np.arange(6.0)})
    prediction = fit.predict({"site": [8, 20, 1234567, 99]})
    for condition, expected in {
        "site == 20": [0, 1, 0, 0],
        'site == "20"': [0, 1, 0, 0],
        'site == "1234567"': [0, 0, 1, 0],
        "site != 8": [0, 1, 1, 1],
    }.items():
        np.testing.assert_array_equal(prediction.probability(condition), expected, err_msg=condition)


def test_what_has_a_value_for_each_level_is_read_at_that_of_the_row() -> None:
    text = "index s in 1..S\ninput site : label[s]\noutput y : real\nparam sigma[s] : positive\nparam tau : positive\n"
    model = gpdsl.compile(text + "param a[s] : real ~ Normal(0, tau)\ny ~ Normal(a[site], sigma[site])")
    data = {"site": ["n", "n", "m", "m", "y > 3", "y > 3"], "y": 100.0 + 10 * np.arange(6)}
    held = {"tau": 1.0, "sigma": [0.1, 0.2, 0.3]}
    fit = model.fit(data, standardise=True, fixed=["tau", "sigma"], init=held)
    prediction = fit.predict({"site": ["n", "y > 3"]})
    mean, sd, sigma = prediction.mean("y"), prediction.sd("y"), np.std(data["y"]) * np.array([0.2, 0.3])
    np.testing.assert_allclose(fit.parameters_in_data_units["sigma"][1:], sigma)
    for condition, above in {
        "y > 110 + sigma[site]": 110 + sigma,
        "y > 110 + sigma[ 'y > 3' ]": 110 + sigma[1],
    }.items():
        np.testing.assert_allclose(prediction.probability(condition), stats.norm.sf(above, mean, sd), rtol=1e-8)
    np.testing.assert_array_equal(prediction.probability("a[site] > 0.5"), prediction.probability("a > 0.5"))
    for condition, message in {
        "a['m'] > 0": "`a` is that of the level in each row; write `a`",
        "a[y] > 0": "help: `a` has its value in each row; another one needs a name in the model",
        "sigma['q'] > 1": "`sigma` has no 'q'; the levels of `s` are m, n, y > 3",
        "sigma[y] > 1": "help: give it a name in the model, `let here = sigma",
        "site == n": 'unknown name `n`(.|\n)*levels stand in quotes, `site == "north"`',
        "if site == 'n' then y > 3 else y > 2": "site == 'n' then .* else y > 2\" has two comparisons; `if` chooses",
    }.items():
        with pytest.raises(gpdsl.GpdslError, match=message):
            prediction.probability(condition)


def test_yes_is_one_in_any_order_of_categories() -> None:
    pd = pytest.importorskip("pandas")
    yes_first = pd.Categorical(np.where(SIDE, "yes", "no"), categories=["yes", "no"], ordered=True)
    prediction = fitted(BINARY, yes_first).predict(NEW)
    np.testing.assert_array_equal(prediction.mean("y"), binary("no", "yes").predict(NEW).mean("y"))
    np.testing.assert_allclose(prediction.probability('y == "yes"'), prediction.mean("y"), rtol=1e-12)


@pytest.mark.parametrize("kind", ["series", "categorical", "frame", "arrow", "dtype", "parquet", "pieces", "polars"])
def test_every_container_says_the_order_of_categories(kind: str, tmp_path: Path) -> None:
    pd, pa, pl = map(pytest.importorskip, ("pandas", "pyarrow", "polars"))
    words = np.where(SIDE, "low", "high")
    ordered = pd.Categorical(words, categories=["low", "high"], ordered=True)
    frame = pd.DataFrame({"x": X, "y": ordered})
    table, path = pa.Table.from_pandas(frame), tmp_path / "data.parquet"
    if kind == "parquet":
        frame.to_parquet(path, row_group_size=5)
    if kind == "polars":
        pl.DataFrame({"x": X, "y": pl.Series(words, dtype=pl.Enum(["low", "high"]))}).write_parquet(path)
    data = {
        "series": {"x": X, "y": frame["y"]},
        "categorical": {"x": X, "y": ordered},
        "frame": frame,
        "arrow": table,
        "dtype": pd.DataFrame({"x": X, "y": pd.arrays.ArrowExtensionArray(table["y"])}),
        "pieces": pa.concat_tables([table.slice(0, 7), table.slice(7)]),
    }.get(kind, path)
    fit = gpdsl.compile(BINARY).fit(data)
    assert fit.predict(NEW).levels("y") == ("low", "high")
    np.testing.assert_array_equal(
        fit.predict(NEW).mean("y"), fitted(BINARY, np.where(SIDE, 0, 1)).predict(NEW).mean("y")
    )
    fit.save(tmp_path / "o.gpfit")
    saved = gpdsl.load_fit(tmp_path / "o.gpfit")
    np.testing.assert_array_equal(saved.predict(NEW).mean("y"), fit.predict(NEW).mean("y"))


@pytest.mark.parametrize("frame", [False, True])
def test_ordered_categories_say_the_order_of_levels(frame: bool) -> None:
    pd = pytest.importorskip("pandas")

    def column(values: Any, levels: list[str]) -> Any:
        return pd.Series(pd.Categorical(values, categories=levels, ordered=True))

    def fitted_to(text: str, y: Any) -> gpdsl.Fit:
        data = {"x": X, "y": y}
        return gpdsl.compile(text).fit(pd.DataFrame(data) if frame else data)

    low_first = fitted_to(BINARY, column(np.where(SIDE, "low", "high"), ["low", "high"]))
    coded = fitted(BINARY, np.where(SIDE, 0, 1))
    assert low_first.predict(NEW).levels("y") == ("low", "high")
    np.testing.assert_array_equal(low_first.predict(NEW).mean("y"), coded.predict(NEW).mean("y"))
    worst_first = ["poor", "fair", "good", "unseen"]
    grades = np.asarray(worst_first)[[0, 1, 2] * 8]
    free = ORDINAL.replace("k in {}", "k in 1..K")
    assert fitted_to(free, column(grades, worst_first)).predict(NEW).levels("y") == ("poor", "fair", "good")
    with pytest.raises(GpdslError, match="(?s)nothing says in which order.*ordered categorical"):
        fitted_to(free, pd.Series(grades))


def test_texts_of_numbers_are_compared_as_numbers(tmp_path: Path) -> None:
    values = np.asarray(["9", "10", "11"], object)[[0, 1, 2] * 8]
    fit = unlearnt(LABEL.replace("{4, 7, 9}", "1..K"), {"x": X, "y": values})
    prediction = fit.predict(NEW)
    assert prediction.levels("y") == ("9", "10", "11")
    fit.save(tmp_path / "tens.gpfit")
    loaded = gpdsl.load_fit(tmp_path / "tens.gpfit").predict(NEW)
    np.testing.assert_array_equal(loaded.mean("y"), prediction.mean("y"))
    for place, level in enumerate((9, 10, 11)):
        chances = prediction.mean("y")[:, place]
        np.testing.assert_allclose(prediction.probability(f"y == {level}"), chances)
        np.testing.assert_allclose(prediction.probability(f'y == "{level}"'), chances)
    np.testing.assert_allclose(prediction.probability("y >= 10"), prediction.mean("y")[:, 1:].sum(axis=1))
    assert {9.0, 10.0, 11.0} >= set(np.unique(prediction.draws("y", 50, seed=1)))


def test_words_are_scored_as_the_numbers_they_stand_for(zeros: gpdsl.Fit) -> None:
    new = {"x": X, "y": np.where(SIDE, "on", "off")}
    worded = gpdsl.compile(BINARY).fit(new)
    coded = gpdsl.score.crps(zeros, {"x": X, "y": np.where(SIDE, 1, 0)})
    assert gpdsl.score.crps(worded, new) == pytest.approx(coded, rel=1e-12)  # "off" is 0 by alphabet


def test_truths_are_compared_without_quotes() -> None:
    share = fitted(BINARY, np.where(SIDE, 1, 0)).predict(NEW).mean("y")
    for values in (SIDE, np.where(SIDE, "True", "False"), np.where(SIDE, "yes", "no")):
        prediction = fitted(BINARY, values).predict(NEW)
        for condition, expected in {
            "y == true": share,
            "y == True": share,
            "True != y": 1 - share,
            "not y == false": share,
            "y == False or y == true": np.ones(len(share)),
        }.items():
            found = prediction.probability(condition)
            np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=condition)
    with pytest.raises(GpdslError, match="`y` is compared with true; expected one of f, m"):
        fitted(BINARY, np.where(SIDE, "f", "m")).predict(NEW).probability("y == true")


def test_a_parameter_may_be_called_true() -> None:
    named = BINARY.replace("output y", "param true : real\noutput y").replace("= f)", "= f + true)")
    fit = fitted(named, SIDE)
    assert set(fit.predict(NEW).probability("f > true")) != {0.0}
    assert fit.predict(NEW).probability("true > -1000 and true < 1000").tolist() == [1.0] * len(NEW["x"])


def test_a_fit_that_starts_at_another_keeps_the_order_of_its_levels() -> None:
    pd = pytest.importorskip("pandas")
    text = "index s in 1..S\ninput site : label[s]\noutput y : real\nparam a[s] : real\ny ~ Normal(a[site], 0.3)\n"
    sites, y = ["west", "north", "east"] * 4, [1.0, 6.0, -4.0] * 4
    model = gpdsl.compile(text)
    first = model.fit({"site": pd.Categorical(sites, ["west", "north", "east"], ordered=True), "y": y})
    again = model.fit({"site": sites, "y": y}, start=first, fixed=["a"])
    places = {"site": ["west", "north", "east"]}
    np.testing.assert_allclose(again.predict(places).mean("y"), [1.0, 6.0, -4.0], atol=1e-3)
    with pytest.raises(GpdslError, match="the levels of `s` are west, north, east there and a, b, c here"):
        model.fit({"site": ["a", "b", "c"] * 4, "y": y}, start=first)


def test_two_words_keep_their_order_from_fit_to_fit() -> None:
    pd = pytest.importorskip("pandas")
    words = np.where(SIDE, "low", "high")
    first = fitted(BINARY, pd.Categorical(words, ["low", "high"], ordered=True))
    again = gpdsl.compile(BINARY).fit({"x": X, "y": words}, start=first)
    assert again.predict(NEW).levels("y") == ("low", "high")
    np.testing.assert_allclose(again.predict(NEW).mean("y"), first.predict(NEW).mean("y"), atol=1e-6)


def test_pieces_of_a_column_that_contradict_each_other_are_refused() -> None:
    pa = pytest.importorskip("pyarrow")

    def pieces(*orders: str) -> Any:
        return pa.chunked_array(
            [
                pa.DictionaryArray.from_arrays(pa.array([0, 1] * 4), pa.array(words.split()), ordered=True)
                for words in orders
            ]
        )

    merged = unlearnt(FREE, {"x": X, "y": pieces("low mid", "mid high", "low mid")})
    assert merged.predict(NEW).levels("y") == ("low", "mid", "high")
    for several in (pieces("low mid", "mid low", "low mid"), pieces("low mid", "low high", "low mid")):
        for data in ({"x": X, "y": several}, pa.table({"x": X, "y": several})):
            with pytest.raises(
                GpdslError, match="`y` is no column .*make no one order: low, mid; (mid, low|low, high)"
            ):
                gpdsl.compile(FREE).fit(data)


def test_a_word_is_above_others_only_where_they_have_an_order() -> None:
    words = np.asarray(["mid", "high", "low"])[[0, 1, 2] * 8]
    unordered = unlearnt(FREE, {"x": X, "y": words}).predict(NEW)
    share = unordered.mean("y")[:, unordered.levels("y").index("low")]
    np.testing.assert_allclose(unordered.probability('y == "low"'), share, rtol=1e-9)
    for condition in ('y < "low"', '"low" >= y'):
        with pytest.raises(GpdslError, match="nothing says in which order the levels high, low, mid of `y` stand"):
            unordered.probability(condition)
    ordered = unlearnt(FREE.replace("1..K", '{"low", "mid", "high"}'), {"x": X, "y": words}).predict(NEW)
    np.testing.assert_allclose(ordered.probability('y < "mid"'), ordered.mean("y")[:, 0], rtol=1e-9)


def test_labels_have_no_mean_to_be_checked() -> None:
    words = np.asarray(["mid", "high", "low"])[[0, 1, 2] * 8]
    fit, data = unlearnt(FREE, {"x": X, "y": words}), {"x": X, "y": words}
    with pytest.raises(GpdslError, match="`y` is a label, whose levels have no mean"):
        fit.check_predictive(data, "mean")
    assert fit.check_predictive(data, lambda levels: np.mean(levels == 2), draws=20).observed == pytest.approx(1 / 3)


def test_minus_one_is_true_or_false_where_the_data_have_it(sides: gpdsl.Fit, zeros: gpdsl.Fit) -> None:
    share = sides.predict(NEW).mean("y")
    np.testing.assert_allclose(sides.predict(NEW).probability("y == true"), share, rtol=1e-9)
    np.testing.assert_allclose(sides.predict(NEW).probability("y == false"), 1 - share, rtol=1e-9)
    with pytest.raises(GpdslError, match="holds `-1`, where 0 and 1 are its two values"):
        zeros.log_predictive_density({"x": X, "y": np.where(SIDE, 1, -1)})


def test_words_of_a_counted_index_are_told_how_to_be_found() -> None:
    with pytest.raises(GpdslError, match=r"`index k in 1..K` takes those that the data have"):
        fitted(FREE.replace("1..K", "1..3"), np.asarray(["a", "b", "c"])[[0, 1, 2] * 8])


@pytest.mark.slow
def test_truths_are_levels_in_every_container(tmp_path: Path) -> None:
    pd, pa, pl = map(pytest.importorskip, ("pandas", "pyarrow", "polars"))
    text = "index s in 1..S\ninput side : label[s]\noutput y : real\nparam a[s] : real ~ Normal(0, 3)\n"
    model = gpdsl.compile(text + "y ~ Normal(a[side], 0.3)\n")
    frame = pd.DataFrame({"side": SIDE, "y": 2.0 * SIDE})
    every: dict[str, Any] = {
        "frame": frame,
        "nullable": frame.astype({"side": "boolean"}),
        "lists": {name: values.tolist() for name, values in frame.items()},
        "polars": pl.from_pandas(frame),
        "arrow": pa.Table.from_pandas(frame),
        "parquet": tmp_path / "d.parquet",
        "csv": tmp_path / "d.csv",
        "capitals": frame.assign(side=np.where(SIDE, "TRUE", "FALSE")),
    }
    frame.to_parquet(every["parquet"])
    frame.to_csv(every["csv"])
    for kind, data in every.items():
        fit = model.fit(data)
        fit.save(tmp_path / "t.gpfit")
        saved = gpdsl.load_fit(tmp_path / "t.gpfit")
        for other, rows in every.items():
            found = saved.predict(rows).mean("y")
            np.testing.assert_allclose(found, 2.0 * SIDE, atol=0.2, err_msg=f"{kind}, {other}")
        prediction = saved.predict(frame)
        words = {"csv": ["False", "True"], "capitals": ["FALSE", "TRUE"]}.get(kind, [False, True])
        assert prediction.total("y", by="side").groups.tolist() == words, kind
        assert sorted({*prediction.to_frame()["side"]}) == words, kind
        np.testing.assert_array_equal(prediction.probability("side == true"), SIDE, err_msg=kind)


def test_spellings_of_truths_stand_in_any_order() -> None:
    pd = pytest.importorskip("pandas")
    text = "index s in 1..S\ninput side : label[s]\noutput y : real\nparam a[s] : real\ny ~ Normal(a[side], 1)\n"
    side = pd.Series(pd.Categorical(np.where(SIDE, "yes", "no"), ["yes", "no"], ordered=True))
    fit = gpdsl.compile(text).fit({"side": side, "y": X})
    assert fit.program.levels["s"] == ("yes", "no")
    np.testing.assert_array_equal(fit.predict({"side": side}).probability("side == true"), SIDE)


def test_levels_without_words_are_their_numbers() -> None:
    kinds = {"side": ("binary", None), "k": ("label", SimpleNamespace(name="c")), "y": ("real", None)}
    outputs = {name: SimpleNamespace(kind=kind, label=label) for name, (kind, label) in kinds.items()}
    program: Any = SimpleNamespace(
        declarations=SimpleNamespace(outputs=outputs), levels={}, translator=SimpleNamespace(size=lambda label: 3)
    )
    assert levels_of(program, "k") == (1, 2, 3) and levels_of(program, "side") == (0, 1)
    program.levels = {"c": ("a", "b", "c"), "side": ("left", "right")}
    assert levels_of(program, "k") == ("a", "b", "c") and levels_of(program, "side") == ("left", "right")
    with pytest.raises(GpdslError, match="`y` is not a label output, and has no levels"):
        levels_of(program, "y")
