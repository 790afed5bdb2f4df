"""The estimators with scikit-learn's interface: its own checks, references, frames, labels, pipelines and searches."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import gpdsl
from gpdsl import GpdslError
from gpdsl.sklearn import Classifier, NotNumbersError, Regressor

QUICK = {
    "check_complex_data",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_sparse_array",
    "check_estimators_empty_data_messages",
    "check_estimators_pickle",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_fit2d_1sample",
    "check_get_params_invariance",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_set_params",
    "check_supervised_y_no_nan",
}
"""Those of scikit-learn's checks that fit little or nothing."""


def checks() -> list[Any]:
    found: list[tuple[Any, partial[None]]] = []
    for each in (Regressor(), Classifier()):
        found += estimator_checks_generator(each)
    return [
        pytest.param(
            estimator,
            check,
            id=f"{type(estimator).__name__}-{check.func.__name__}-{number}",
            marks=() if check.func.__name__ in QUICK else pytest.mark.slow,
        )
        for number, (estimator, check) in enumerate(found)
    ]


@pytest.mark.parametrize(("estimator", "check"), checks())
def test_scikit_learn_finds_nothing_to_say(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)  # none of them is expected to fail


RNG = np.random.default_rng(5)
X = RNG.uniform(0, 1000, (25, 2)) * [1.0, 1e-3]
Y = 5000 + 300 * np.sin(X[:, 0] / 150) + RNG.normal(0, 10, 25)


@pytest.fixture(scope="module")
def regressor() -> Regressor:
    return Regressor().fit(X, Y)


def test_the_default_is_the_exact_gp_of_standardised_rows(regressor: Regressor) -> None:
    p = {name: np.asarray(value) for name, value in regressor.fit_.parameters.items()}
    new = X[:4] + [20.0, 0.1]
    a, b = ((each - X.mean(0)) / X.std(0) / p["ell"] for each in (X, new))

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return p["s2"] * np.exp(-0.5 * ((a[:, None] - b) ** 2).sum(-1))

    K, k = kernel(a, a) + p["sigma"] ** 2 * np.eye(25), kernel(b, a)
    mean = Y.mean() + Y.std() * k @ np.linalg.solve(K, (Y - Y.mean()) / Y.std())
    sd = Y.std() * np.sqrt(p["s2"] + p["sigma"] ** 2 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T)))
    found, spread = regressor.predict(new, return_std=True)
    np.testing.assert_allclose(found, mean, rtol=1e-8)
    np.testing.assert_allclose(spread, sd, rtol=1e-6)
    together = kernel(b, b) + p["sigma"] ** 2 * np.eye(4) - k @ np.linalg.solve(K, k.T)
    found, covariance = regressor.predict(new, return_cov=True)
    np.testing.assert_allclose(found, mean, rtol=1e-8)
    np.testing.assert_allclose(covariance, Y.var() * together, atol=1e-8 * Y.var())
    with pytest.raises(GpdslError, match="return_std or return_cov"):
        regressor.predict(new, return_std=True, return_cov=True)
    draws = regressor.sample_y(new, 4000, random_state=1)
    assert draws.shape == (4, 4000)
    assert np.all(np.abs(draws.mean(1) - mean) < 5 * sd / np.sqrt(4000))
    np.testing.assert_array_equal(regressor.sample_y(new, 3), regressor.sample_y(new, 3, random_state=0))


MODEL = """input  place : real[2]
input  day : real
output y : real
param  s2 : positive
param  ell : positive = 400
latent f(place) ~ GP(5000, s2 * RBF(ell))
param  slope : real = 0
y ~ Normal(f + slope * day, 10)
"""


def test_a_model_of_ones_own_takes_columns_by_name_or_in_their_order() -> None:
    frame = pd.DataFrame({"note": "text", "day": X[:, 1], "place2": X[:, 1] ** 2, "place1": X[:, 0]})
    named = Regressor(gpdsl.compile(MODEL)).fit(frame, Y)
    ordered = Regressor(MODEL).fit(frame[["place1", "place2", "day"]].to_numpy(), Y)
    np.testing.assert_allclose(named.predict(frame), ordered.predict(frame.to_numpy()[:, [3, 2, 1]]), rtol=1e-9)
    assert list(named.feature_names_in_) == ["note", "day", "place2", "place1"]
    with pytest.raises(gpdsl.GpdslError, match="2 columns without names cannot be shared out among its inputs `place`"):
        Regressor(MODEL).fit(X, Y)
    with pytest.raises(ValueError, match="feature names should match"):
        named.predict(frame[["day", "place1", "place2", "note"]])


NAMED = """input a : real
input b : real
output y : real
latent f(a) ~ GP(5000, 9e4 * RBF(150))
y ~ Normal(f + 9 * b, 10)
"""


def test_a_frame_says_which_column_is_which_whatever_kind_it_is_and_an_array_later_has_its_columns() -> None:
    frame = pd.DataFrame({"b": X[:, 1], "a": X[:, 0]})
    fitted = Regressor(NAMED, options={"progress": False}).fit(frame.assign(odd=[{}] * 25), Y)
    expected = fitted.predict(frame.assign(odd=1j))
    named = Regressor(NAMED).fit(pa.RecordBatch.from_pandas(frame), Y)
    for rows in (pa.RecordBatch.from_pandas(frame), frame.to_numpy()):
        np.testing.assert_array_equal(named.predict(rows), expected)
    ordered = Regressor(NAMED).fit(X, Y)
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        np.testing.assert_array_equal(ordered.predict(frame), ordered.predict(frame.to_numpy()))


def test_a_frame_may_have_the_targets_as_a_column_in_words_of_their_own() -> None:
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "y": ["dear", "dear", "cheap", "cheap"]})
    model = "input x : real\noutput y : binary\nlatent f(x) ~ GP(0, 9 * RBF(1))\ny ~ Bernoulli(logit = f)\n"
    fitted = Classifier(model, steps=3).fit(frame, frame["y"])
    assert fitted.predict(frame).tolist() == frame["y"].tolist()
    assert np.all(fitted.predict(frame.assign(y="unknown")) == frame["y"])


def test_numbers_are_no_names_of_columns_and_frames_of_dates_alone_are_predicted() -> None:
    text = NAMED.replace("a : real\n", "a : real[2]\n").replace("input b : real\n", "").replace(" + 9 * b", "")
    numbered = Regressor(text).fit(pd.DataFrame(X), Y)
    np.testing.assert_array_equal(numbered.predict(pd.DataFrame(X)), numbered.predict(X))
    days = pd.DataFrame({"a": pd.date_range("2024-01-01", periods=25)})
    timed = Regressor(text.replace("real[2]", "time(per = day)")).fit(days, Y)
    assert timed.predict(days[:3]).shape == (3,)


def test_text_path_and_model_are_the_same(tmp_path: Any) -> None:
    text = "input x : real[D]\noutput y : real\nlatent f(x) ~ GP(5000, 9e4 * RBF(300))\ny ~ Normal(f, 10)\n"
    (tmp_path / "m.gpm").write_text(text)
    found = [Regressor(each).fit(X, Y).fit_.elbo for each in (text, tmp_path / "m.gpm", str(tmp_path / "m.gpm"))]
    assert found[0] == found[1] == found[2] == Regressor(gpdsl.compile(text)).fit(X, Y).fit_.elbo


@pytest.mark.parametrize("labels", [[-1, 1], ["no", "yes"]])
def test_two_classes_bear_any_labels(labels: list[Any]) -> None:
    y = np.array(labels)[(X[:, 0] > 500).astype(int)]
    found = Classifier(steps=5).fit(X, y)
    np.testing.assert_array_equal(found.classes_, labels)
    assert found.score(X, y) > 0.9 and found.predict(X).dtype == y.dtype
    np.testing.assert_array_equal(found.predict_proba(X)[:, 1], found.fit_.predict({"x": scaled(X)}).mean("y"))


def scaled(values: np.ndarray) -> np.ndarray:
    return (values - values.mean(0)) / values.std(0)


def test_levels_that_a_model_names_are_matched_with_the_labels() -> None:
    features, numbers = load_iris(return_X_y=True)
    features, names = features[::5], np.array(["setosa", "versicolor", "virginica"])[numbers[::5]]
    text = """index c in {"virginica", "other", "setosa", "versicolor"}
    input x : real[D]
    output kind : label[c]
    latent f[c](x) ~ GP(0, 4 * RBF(2))
    kind ~ Categorical(logits = f)
    """
    found = Classifier(text, posterior="diagonal", steps=5).fit(features, names)
    assert list(found.classes_) == ["setosa", "versicolor", "virginica"]
    chances = found.predict_proba(features)
    np.testing.assert_allclose(chances.sum(1), 1)
    levels = found.fit_.predict({"x": features}).mean("kind")[:, [2, 3, 0]]
    np.testing.assert_allclose(chances, levels / levels.sum(1, keepdims=True))
    assert found.score(features, names) > 0.9
    said = "y holds 'blue', which is no level of output `kind`: the model lists 'virginica', 'other'.*add it there"
    with pytest.raises(GpdslError, match=said):
        Classifier(text).fit(features, np.where(names == "setosa", "blue", names).astype(str))


def test_pipelines_searches_and_clones() -> None:
    steps = make_pipeline(MinMaxScaler(), Regressor("input x : real[D]\noutput y : real\n"
        "latent f(x) ~ GP(5000, 9e4 * RBF(0.2))\ny ~ Normal(f, 10)\n"))  # fmt: skip
    search = GridSearchCV(steps, {"regressor__engine": ["vi", "ep"]}, cv=2, error_score="raise").fit(X, Y)
    assert search.best_estimator_.predict(X).shape == (25,)
    assert len(cross_val_score(steps, X, Y, cv=2, error_score="raise")) == 2
    given = {"model": gpdsl.compile(MODEL), "steps": 3, "options": {"dtype": "float32", "init": {"s2": 2.0}}}
    copied = clone(Regressor(**given))
    assert copied.model is not given["model"] and copied.get_params()["options"] == given["options"]


def test_options_reach_the_fit() -> None:
    found = Regressor(steps=2, inducing=5, seed=3, options={"dtype": "float32", "posterior": "diagonal"}).fit(X, Y)
    options = found.fit_.options
    assert (options.steps, options.inducing, options.seed, options.dtype) == (2, 5, 3, "float32")
    assert options.posterior == "diagonal"
    with pytest.raises(gpdsl.GpdslError, match="surprise"):
        Regressor(options={"surprise": 1}).fit(X, Y)


def test_constant_columns_of_the_default_are_no_trouble() -> None:
    flat = np.column_stack([X, np.full(25, 0.1)])  # whose standard deviation is 1e-17, by rounding
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Regressor().fit(flat, Y).predict(flat)
    np.testing.assert_allclose(found, Regressor().fit(X, Y).predict(X), rtol=1e-4)
    with pytest.raises(gpdsl.GpdslError, match="the one column of X is constant, .* use sklearn.dummy"):
        Regressor().fit(flat[:, -1:], Y)


@pytest.mark.parametrize(
    ("estimator", "output", "said"),
    [
        (Regressor, "output y : binary\ny ~ Bernoulli(logit = f)", "is a binary; use Classifier"),
        (Classifier, "output y : real\ny ~ Normal(f, 1)", "is a real; use Regressor"),
        (Regressor, "output y[p] : real\nindex p in 1..2\ny[p] ~ Normal(f, 1)", "expected one output"),
    ],
)
def test_models_of_another_kind_are_refused(estimator: Any, output: str, said: str) -> None:
    text = f"input x : real[D]\nlatent f(x) ~ GP(0, RBF(1))\n{output}\n"
    with pytest.raises(gpdsl.GpdslError, match=said):
        estimator(text).fit(X, np.arange(25) % 2)


SITES = pd.DataFrame({"u": np.arange(6.0), "site": list("abcdef")})
DAYS = pd.DataFrame({"u": np.arange(6.0), "day": pd.date_range("2020-01-01", periods=6)})


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.array([["1", "2"], ["3", "x"], ["5", "6"]], object), r"column 2 of X holds words, 'x' in row 2; .*OneHot"),
        ([["a"], ["b"], ["c"]], r"column 1 of X holds words, 'a' in row 1"),
        (SITES, r"column `site` of X holds words, 'a' in row 1"),
        (DAYS, r"column `day` of X holds dates, Timestamp.* in row 1; .*time in a model"),
    ],
)
@pytest.mark.parametrize("estimator", [Regressor(), Classifier()])
def test_columns_of_words_are_named(estimator: Any, rows: Any, said: str) -> None:
    y = np.arange(len(rows)) % 2
    for each in (gpdsl.GpdslError, ValueError):  # scikit-learn asks for the second
        with pytest.raises(each, match=f"{type(estimator).__name__}: {said}"):
            estimator.fit(rows, y)


def test_words_in_new_rows_and_in_targets_are_told(regressor: Regressor) -> None:
    with pytest.raises(gpdsl.GpdslError, match="Regressor: column 2 of X holds words, 'b' in row 1"):
        regressor.predict(np.array([[1.0, "b"]], object))
    with pytest.raises(gpdsl.GpdslError, match="y holds words; expected numbers, or use Classifier"):
        Regressor().fit(X[:3], np.array([1.0, "b", 2.0], object))
    with pytest.raises(ValueError, match="NaN") as caught:  # what scikit-learn says better remains
        Regressor().fit(np.array([[None], [1.0]], object), [1.0, 2.0])
    assert not isinstance(caught.value, gpdsl.GpdslError)


@pytest.mark.slow
def test_many_rows_of_several_classes_have_some_inducing_points() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(501, 2))
    y = np.where(X[:, 0] > 0.7, "a", np.where(X[:, 1] > 0, "b", "c"))
    found = Classifier().fit(X, y)
    assert (found.fit_.choice.inducing, found.fit_.choice.batch) == (200, 300)
    assert found.score(X, y) > 0.9
    assert Classifier(inducing=10, steps=5).fit(X, y).fit_.choice.inducing == 10


@pytest.mark.parametrize(("value", "sd"), [(2.5, 0.0025), (-4e6, 4e3), (0.0, 1e-3)])
def test_a_constant_target_is_warned_of_and_has_a_floor_of_noise(value: float, sd: float) -> None:
    """A thousandth of its size, which grows to where nothing is known; it was 7e-155."""
    X = np.arange(6.0).reshape(-1, 1)
    with pytest.warns(
        gpdsl.GpdslWarning, match=re.escape(f"all 6 values of y are {value:g},") + f".* taken to be {sd:g} or"
    ):
        fitted = Regressor().fit(X, np.full(6, value))
    mean, found = fitted.predict([[2.2], [1000.0]], return_std=True)
    np.testing.assert_allclose(mean, value)
    assert sd < found[0] < 1.5 * sd and found[1] == pytest.approx(np.sqrt(2) * sd)


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_columns_of_dates_alone_are_no_numbers(unit: str) -> None:
    days = np.arange("2024-01-01", "2024-01-13", dtype="M8[D]").astype(f"M8[{unit}]")[:, None]
    with pytest.raises(NotNumbersError, match="column 1 of X holds dates"):
        Regressor().fit(days, np.arange(12.0))
    with pytest.raises(ValueError, match="holds lengths of time"):
        Regressor().fit(days - days[0], np.arange(12.0))


def test_words_of_an_ordinal_output_without_an_order_are_refused() -> None:
    model = "index c in 1..3\ninput x : real\noutput y : ordinal[c]\nlatent f(x) ~ GP(0, RBF(1))\n"
    model += "const cut = [-0.5, 0.5]\ny ~ Ordinal(probit = f, cutpoints = cut)\n"
    said = r'holds the levels "fair", "good", "poor", and nothing says in which order they stand; .*`index c in \{'
    with pytest.raises(GpdslError, match=said):
        Classifier(model).fit(np.linspace(0, 1, 12)[:, None], np.repeat(["poor", "fair", "good"], 4))


def test_words_of_an_ordinal_output_have_no_order_of_their_own() -> None:
    model = "index c in {}\ninput x : real\noutput y : ordinal[c]\nlatent f(x) ~ GP(0, RBF(1))\n"
    model += "const cut = [-0.5, 0.5]\ny ~ Ordinal(probit = f, cutpoints = cut)\n"
    x, grades = np.linspace(0, 1, 12)[:, None], np.repeat(["poor", "fair", "good"], 4)
    named = Classifier(model.format('{"poor", "fair", "good"}')).fit(x, grades)
    np.testing.assert_array_equal(named.predict(x[[0, -1]]), ["poor", "good"])
    truths = pd.Series(pd.Categorical(X[:, 0] > np.median(X[:, 0]), [True, False], ordered=True))
    assert Classifier(steps=2).fit(X, truths).classes_.dtype == bool
    ordered = pytest.importorskip("pandas").Categorical(grades, ["poor", "fair", "good"], ordered=True)
    of_categories = Classifier(model.format("1..3")).fit(x, ordered)
    np.testing.assert_array_equal(of_categories.classes_, named.classes_)
    with pytest.warns(UserWarning, match="column-vector"):  # of scikit-learn
        of_frame = Classifier(model.format("1..3")).fit(x, pytest.importorskip("pandas").DataFrame({"y": ordered}))
    np.testing.assert_array_equal(of_frame.predict_proba(x), named.predict_proba(x))
    tens = Classifier(model.format("1..3")).fit(x, np.repeat(["8", "9", "10"], 4))
    np.testing.assert_allclose(tens.predict_proba(x)[:, [1, 2, 0]], named.predict_proba(x)[:, [2, 0, 1]], rtol=1e-12)
    np.testing.assert_array_equal(of_categories.predict_proba(x), named.predict_proba(x))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([1, "a"], r"y mixes words and numbers, 'a' in row 2 and 1 in row 1.*str\(each\)"),
        (np.array(["a", 2.5], dtype=object), "y mixes words and numbers, 'a' in row 1 and 2.5 in row 2"),
        (pd.Series([1, "a"]), "y mixes words and numbers"),
        ([None, "a"], "y is missing in row 1; leave rows without a label out"),
    ],
)
def test_labels_of_two_kinds_are_refused(labels: Any, said: str) -> None:
    with pytest.raises(NotNumbersError, match=said) as caught:
        Classifier().fit([[0.0], [1.0]], labels)
    assert isinstance(caught.value, ValueError)


def test_arguments_of_other_estimators_are_told_what_there_is() -> None:
    with pytest.raises(GpdslError, match=r"Regressor has no argument `kernel`; it is .*, options=None\); .*`model`"):
        Regressor(kernel="rbf")  # type: ignore[call-arg]
    with pytest.raises(GpdslError, match="model = 'RBF': expected a path of a .gpm file, a text of lines, or a Model"):
        Regressor("RBF").fit(X, Y)
    with pytest.raises(GpdslError, match="expected a path of a .gpm file"):
        Regressor("m" * 5000).fit(X, Y)
    with pytest.raises(GpdslError, match=r"model = Regressor\(\): expected a path of a .gpm file"):
        Regressor(Regressor()).fit(X, Y)  # type: ignore[arg-type]
    options: Any
    for options in ({1: 2}, pd.NA, []):
        with pytest.raises(GpdslError, match="options: expected a dictionary of options, got"):
            Regressor(options=options).fit(X, Y)
    with pytest.raises(GpdslError, match="options: `steps` is 4 there, and 3 beside: leave one out"):
        Regressor(steps=3, options={"steps": 4}).fit(X, Y)
    for column in (pd.Series(X[:, 0]), pd.Series(pd.date_range("2024-01-01", periods=len(X)))):
        with pytest.raises(ValueError, match="Expected (a )?2"):
            Regressor().fit(column, Y)
    unfitted = Regressor()
    for ask in (unfitted.predict, unfitted.sample_y):
        with pytest.raises(NotFittedError):
            ask(X)
    assert not hasattr(unfitted, "kernel_")
