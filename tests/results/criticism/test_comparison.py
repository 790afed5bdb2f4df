"""Fits side by side, checks by data drawn anew, and places of values in what is predicted of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.results.criticism.checks import Compared, Comparison, _verify_outputs
from gpdsl.results.criticism.without import CrossValidation
from tests.inference.problems import unlearnt

RNG = np.random.default_rng(1)
X = np.linspace(0, 6, 40)
DATA = {"x": X, "y": np.sin(2 * X) + 0.2 * RNG.standard_normal(40)}
TEXT = "model {name}\ninput x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, RBF({ell}))\ny ~ {law}\n"


def fitted(name: str, ell: float, law: str = "Normal(f, 0.2)") -> gpdsl.Fit:
    return gpdsl.compile(TEXT.format(name=name, kind="real", ell=ell, law=law)).fit(DATA)


RIGHT = fitted("right", 0.8)


def test_the_better_fit_stands_first() -> None:
    wrong = fitted("wrong", 0.05)
    found = gpdsl.compare({"a": wrong, "b": RIGHT}, DATA)
    first, second = found.rows
    assert (first.name, second.name) == ("b", "a")
    assert (first.difference, first.difference_se) == (0.0, 0.0)
    apart = found.elpds["a"].pointwise - found.elpds["b"].pointwise
    assert second.difference == pytest.approx(apart.sum())
    assert second.difference_se == pytest.approx(np.sqrt(40) * np.std(apart))
    assert found.to_frame().loc["a", "elpd"] == pytest.approx(found.elpds["a"].elpd)
    assert [line.split()[0] for line in repr(found).splitlines()] == ["fit", "b", "a"]


def test_numbers_that_may_be_off_by_more_than_they_differ_say_so() -> None:
    rng = np.random.default_rng(3)
    counts = {"x": X[::3], "n": rng.poisson(np.exp(1 + np.sin(X[::3])))}
    text = "input x : real\noutput n : count\nlatent f(x) ~ GP(1, RBF({}))\nn ~ Poisson(exp(f))"
    fits = {str(ell): gpdsl.compile(text.format(ell)).fit(counts) for ell in (0.6, 0.61)}
    found = gpdsl.compare({name: fit.loo(counts, refits=0) for name, fit in fits.items()})
    first, second = found.rows
    assert second.elpd_error == pytest.approx(found.elpds[second.name].elpd_error)  # type: ignore[attr-defined]
    assert 0 < -second.difference < first.elpd_error + second.elpd_error
    assert f"{first.name} may be no better than {second.name}" in repr(found)
    assert f"  {first.elpd_error:6.1f}  " in repr(found).splitlines()[1]
    assert "may be no better" not in repr(gpdsl.compare({"a": fitted("wrong", 0.05), "b": RIGHT}, DATA))
    widely = gpdsl.compare({name: fit.waic(counts) for name, fit in fits.items()})
    assert np.isnan(widely.rows[0].elpd_error)  # nothing tells


def test_notes_of_a_comparison_say_what_little_difference_tells() -> None:
    def said(difference: float, error: float) -> str:
        rows = [
            Compared("a", -10, 1, 2, 0, 0, 0.1, error),
            Compared("b", -10 + difference, 1, 2, difference, 1, 0.1, error),
        ]
        return repr(Comparison(tuple(rows), {}))

    assert "differences below 4 nats tell little" in said(-3.9, 0.0) and "may be no better" not in said(-3.9, 0.0)
    assert "nats tell little" not in said(-4.1, 0.0)
    assert "a may be no better than b: the two numbers may be off by more than they differ" in said(-1.0, 0.6)
    assert "may be no better" not in said(-1.0, 0.4)


def test_one_model_differs_from_itself_over_other_folds() -> None:
    def said(*folds: int) -> str:
        held = [
            CrossValidation(RIGHT, None, np.zeros(4), np.zeros(4), "2-fold", np.array(each), ())  # type: ignore[arg-type]
            for each in ((1, 1, 2, 2), folds)
        ]
        return repr(Comparison((Compared("a", -10, 1, 2, 0, 0, 0.1),), dict(zip("ab", held, strict=True))))

    assert "held back in different folds" in said(1, 2, 1, 2)
    assert "folds" not in said(2, 2, 1, 1)


def test_densities_of_positive_and_of_real_numbers_are_of_one_measure() -> None:
    logs = TEXT.format(name="logs", kind="positive", ell=1, law="Normal(f, 0.2)").replace("\ny ~", "\nlog(y) ~")
    positive = unlearnt(gpdsl.compile(logs), {"x": X, "y": np.exp(X)})
    assert RIGHT.program.declarations.outputs["y"].kind != positive.program.declarations.outputs["y"].kind == "positive"
    _verify_outputs({"real": RIGHT, "positive": positive})  # no error
    counts = gpdsl.compile(TEXT.format(name="n", kind="count", ell=1, law="Poisson(exp(f))"))
    with pytest.raises(gpdsl.GpdslError, match="has the outputs y : positive, b has y : count"):
        _verify_outputs({"a": positive, "b": unlearnt(counts, {"x": X, "y": RNG.poisson(2, 40)})})


def held_back(text: str, data: dict) -> CrossValidation:
    """What folds would have found of a model, all zeros."""
    fit, none = unlearnt(gpdsl.compile(text), data), np.zeros(40)
    return CrossValidation(fit, fit.bind(data, None, outputs=True), none, none, "2-fold", none.astype(int), ())


def test_a_density_is_not_compared_with_the_probability_of_a_censored_value() -> None:
    data = {"x": X, "y": np.minimum(DATA["y"], 0.7)}
    laws = {
        "plain": "Normal(f, 0.2)",
        "cut": "Truncated(Normal(f, 0.2), upper = 0.7)",
        "censored": "Censored(Normal(f, 0.2), upper = 0.7)",
        "beyond": "Censored(Laplace(f, 0.2), upper = 2)",
        "alike": "Censored(Laplace(f, 0.2), upper = 0.7)",
    }
    held = {name: held_back(TEXT.format(name=name, kind="real", ell=1, law=law), data) for name, law in laws.items()}
    assert gpdsl.compare([held["plain"], held["cut"], held["beyond"]]).rows
    assert gpdsl.compare([held["censored"], held["alike"]]).rows
    count = int(np.sum(DATA["y"] > 0.7))
    for other in ("plain", "cut", "beyond"):
        with pytest.raises(gpdsl.GpdslError, match=f"in {count} rows, .*the `Censored` of c, a probability there"):
            gpdsl.compare({"o": held[other], "c": held["censored"]})


def test_fits_with_other_labels_have_the_same_values() -> None:
    text = "index c in 1..3\ninput x : real\noutput y : {}\n{}\nlatent f{}(x) ~ GP(0, RBF(1))\ny ~ {}"
    grades = {"x": X, "y": 1 + RNG.integers(3, size=40), "site": RNG.choice(["a", "b"], 40)}
    site = "index s in 1..S\ninput site : label[s]\nparam a[s] : real = 0"
    cut = "param cut : ordered[2] = [-1, 1]"
    held = {
        "ordered": text.format("ordinal[c]", cut, "", "Ordinal(probit = f, cutpoints = cut)"),
        "by site": text.format("ordinal[c]", cut + "\n" + site, "", "Ordinal(probit = f + a[site], cutpoints = cut)"),
        "free": text.format("label[c]", "", "[c]", "Categorical(logits = f)"),
    }
    assert len(gpdsl.compare({name: held_back(each, grades) for name, each in held.items()}).rows) == 3
    one, other = (held_back(held["free"], {**grades, "y": y}) for y in (grades["y"], grades["y"][::-1]))
    with pytest.raises(gpdsl.GpdslError, match="a and b have other values of `y`"):
        gpdsl.compare({"a": one, "b": other})


def test_what_cannot_be_compared() -> None:
    counts = gpdsl.compile(TEXT.format(name="n", kind="count", ell=1, law="Poisson(exp(f))"))
    other = unlearnt(counts, {"x": X, "y": RNG.poisson(2, 40)})
    with pytest.raises(gpdsl.GpdslError, match="has the outputs y : real, b has y : count"):
        gpdsl.compare({"a": RIGHT, "b": other}, DATA)
    with pytest.raises(gpdsl.GpdslError, match="expected fits by name, or a list of them"):
        gpdsl.compare([], DATA)
    with pytest.raises(gpdsl.GpdslError, match="expected fits by name, or a list of them, got 3"):
        gpdsl.compare(3, DATA)  # type: ignore[arg-type]
    with pytest.raises(gpdsl.GpdslError, match="loo asks for the data that were fitted"):
        gpdsl.compare([RIGHT], {"x": X, "y": X})


def test_statistics_beside_data_drawn_anew() -> None:
    values = DATA["y"]
    found = RIGHT.check_predictive(DATA, "variance")
    assert found.observed == pytest.approx(np.var(values))
    prediction = RIGHT.predict(DATA)
    spread, mean = prediction.covariance("y"), prediction.mean("y")
    centred = np.eye(40) - 1 / 40
    expected = (np.trace(centred @ spread) + mean @ centred @ mean) / 40
    assert np.mean(found.drawn) == pytest.approx(expected, rel=0.01)
    own = RIGHT.check_predictive(DATA, lambda y: y[0], draws=4000)
    chance = stats.norm.sf(values[0], mean[0], np.sqrt(spread[0, 0]))
    assert own.p == pytest.approx(chance, abs=4 * np.sqrt(chance * (1 - chance) / 4000))
    with pytest.raises(gpdsl.GpdslError, match="expected a function, or one of min, max, mean, variance, zeros"):
        RIGHT.check_predictive(DATA, "median")
    with pytest.raises(gpdsl.GpdslError, match="gave no number for an array of 40 values: TypeError"):
        RIGHT.check_predictive(DATA, lambda y: y)
    with pytest.raises(gpdsl.GpdslError, match="the model has no output `z`"):
        RIGHT.check_predictive(DATA, "min", "z")


def test_places_of_values() -> None:
    prediction, values = RIGHT.predict(DATA), DATA["y"].copy()
    values[2] = np.nan
    found = prediction.pit("y", values)
    normal = stats.norm(prediction.mean("y"), np.sqrt(prediction.variance("y")))
    np.testing.assert_allclose(found, normal.cdf(values))
    with pytest.raises(gpdsl.GpdslError, match="pit of `f`: expected an output"):
        prediction.pit("f", values)
    with pytest.raises(gpdsl.GpdslError, match=r"the values have the shape \(3,\), expected \(40,\)"):
        prediction.pit("y", values[:3])


def test_places_of_labels_are_asked_for_by_their_names() -> None:
    model = gpdsl.compile(
        "index c in 1..C\ninput x : real\noutput y : label[c]\nlatent f[c](x) ~ GP(0, RBF(1))\n"
        "y ~ Categorical(logits = f)\n"
    )
    labels = np.where(np.sin(X) > 0, "up", "down")
    prediction = model.fit({"x": X, "y": labels}, steps=5).predict({"x": X})
    found, first = prediction.pit("y", labels), prediction.mean("y")[:, 0]
    is_first = labels == prediction.levels("y")[0]
    assert np.all(np.where(is_first, found <= first, found >= first))
    with pytest.raises(gpdsl.GpdslError, match="'?left'? is none of its levels"):
        prediction.pit("y", ["left", *labels[1:]])
