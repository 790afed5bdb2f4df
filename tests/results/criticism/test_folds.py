"""Rows held back: against a plain loop of fits, dense matrices, and what a fit of some rows cannot tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.data import bind
from gpdsl.data.bound import Standardised
from gpdsl.inference.plan.options import Options
from gpdsl.results.criticism.reference import refitted
from tests.inference.problems import unlearnt

RNG = np.random.default_rng(3)
X = np.sort(RNG.uniform(0, 6, 24))
DATA = {"x": X, "y": np.sin(X) + 0.2 * RNG.standard_normal(24)}
HEAD = "input x : real\noutput y : {kind}\n"
HELD = gpdsl.compile(HEAD.format(kind="real") + "latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.2)\n")
LEARNT = gpdsl.compile(
    HEAD.format(kind="real") + "param ell : positive\nparam s : positive\nlatent f(x) ~ GP(0, RBF(ell))\n"
    "y ~ Normal(f, s)\n"
)
COUNTED = gpdsl.compile(
    HEAD.format(kind="count") + "param ell : positive ~ LogNormal(0, 1)\nlatent f(x) ~ GP(0, RBF(ell))\n"
    "y ~ Poisson(exp(f))\n"
)
SITES = (
    "index s in 1..S\ninput site : label[s]\ninput x : real\noutput y : real\n{prior}\nlatent f(x) ~ GP(0, RBF(1))\n"
    "y ~ Normal(f + a[site], 0.3)\n"
)
SITE = np.array(["p", "q", "r", "t"])[np.arange(24) % 4]


def dense(kept: np.ndarray, left: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log p of each row that is left out under RBF(1) and noise 0.2."""
    cross = np.exp(-0.5 * (X[left][:, None] - X[kept]) ** 2)
    within = np.exp(-0.5 * (X[kept][:, None] - X[kept]) ** 2) + 0.04 * np.eye(kept.sum())
    solved = np.linalg.solve(within, cross.T)
    variance = 1.04 - np.sum(cross * solved.T, axis=1)
    return np.asarray(stats.norm.logpdf(y[left], solved.T @ y[kept], np.sqrt(variance)))


def some(data: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
    return {name: values[rows] for name, values in data.items()}


def test_with_held_parameters_it_is_the_dense_density() -> None:
    y = DATA["y"].copy()
    y[5] = np.nan
    found = HELD.fit({"x": X, "y": y}).cross_validate({"x": X, "y": y}, 4, seed=1)
    assert np.isnan(found.pointwise[5]) and found.folds[5] == 0
    assert sorted(np.bincount(found.folds)[1:]) == [5, 6, 6, 6]
    for fold in range(1, 5):
        left, kept = found.folds == fold, (found.folds != fold) & np.isfinite(y)
        np.testing.assert_allclose(found.pointwise[left], dense(kept, left, y), atol=1e-8)
    assert found.elpd == pytest.approx(np.nansum(found.pointwise))
    assert "4-fold cross-validation of model: elpd" in repr(found) and "23 rows, 4 fits" in repr(found)


@pytest.mark.parametrize(
    ("model", "values", "options"),
    [
        pytest.param(LEARNT, DATA["y"], {"init": {"ell": 0.5}}, marks=pytest.mark.slow),
        (LEARNT, 10 * DATA["y"] + 5, {"standardise": {"y": (5.0, 10.0)}}),
        (COUNTED, RNG.poisson(np.exp(np.sin(X))), {}),
    ],
)
def test_it_is_the_loop_of_fits(model: gpdsl.Model, values: np.ndarray, options: dict[str, Any]) -> None:
    data = {"x": X, "y": values}
    found = model.fit(data, **options).cross_validate(data, 2)
    for fold in (1, 2):
        left = found.folds == fold
        own = model.fit(some(data, ~left), **options)
        assert found.parameters[fold - 1]["ell"] == pytest.approx(own.parameters["ell"], rel=2e-2)
        expected = own.log_predictive_density(some(data, left))
        np.testing.assert_allclose(found.pointwise[left], expected, atol=2e-3)


def test_there_are_as_many_folds_as_there_may_be() -> None:
    data = {**DATA, "half": np.repeat(["a", "b"], 12)}
    assert set(HELD.fit(data).cross_validate(data, by="half").folds) == {1, 2}


def test_rows_with_one_value_stay_together() -> None:
    data = {**DATA, "day": np.repeat(["mon", "tue", "wed", "thu", "fri", "sat"], 4)}
    found = HELD.fit(data).cross_validate(data, 3, by="day")
    assert all(len(set(found.folds[data["day"] == day])) == 1 for day in set(data["day"]))
    assert np.bincount(found.folds)[1:].tolist() == [8, 8, 8]


def test_the_future_is_predicted_from_the_past() -> None:
    """Dates in any order, several rows a day, and a last step that is short."""
    mixed = RNG.permutation(24)
    day = (np.arange(24) // 2)[mixed]
    model = gpdsl.compile("input t : time\noutput y : real\nlatent f(t) ~ GP(0, RBF(2))\ny ~ Normal(f, 0.2)\n")
    data = {"t": np.datetime64("2024-03-01") + day, "y": DATA["y"][mixed]}
    fit = model.fit(data)
    found = fit.leave_future_out(data, 9, ahead=2)
    assert found.folds.tolist() == np.where(day < 9, 0, (day - 9) // 2 + 1).tolist()
    assert np.isnan(found.pointwise[day < 9]).all() and len(found.parameters) == 2
    for fold, now in enumerate((9, 11), 1):
        left = found.folds == fold
        expected = model.fit(some(data, day < now)).log_predictive_density(some(data, left))
        np.testing.assert_allclose(found.pointwise[left], expected, atol=1e-8)
    skipping = fit.leave_future_out(data, 8, every=3)
    assert sorted(set(day[skipping.folds > 0])) == [8, 11]
    with pytest.raises(gpdsl.GpdslError, match="predicts 24 rows .*, b 6 .*, of which 6 are the same"):
        gpdsl.compare({"a": fit, "b": found}, data)


def test_where_the_whole_fit_ended_at_no_noise_folds_begin_anew_in_its_units(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def fit_model(*_: Any, **how: Any) -> Any:
        asked.append(how)
        if "start" in how:
            raise gpdsl.GpdslError("the noise is next to nothing")
        return SimpleNamespace(interrupted=False)

    monkeypatch.setattr("gpdsl.results.criticism.reference.fit_model", fit_model)
    whole: Any = SimpleNamespace(
        model=LEARNT,
        columns={},
        choice=SimpleNamespace(exact=True),
        program=SimpleNamespace(parameters=SimpleNamespace(initial={"ell": 1.0})),
        standardised=Standardised({"x": np.array(3.0)}, {"x": np.array(2.0)}),
    )
    refitted(whole, bind(LEARNT.declarations, DATA), Options(), None)
    assert [{*how} for how in asked] == [{"start"}, {"standardised"}] and asked[1]["standardised"] == {"x": (3.0, 2.0)}
    with pytest.raises(gpdsl.GpdslError, match="next to nothing"):
        refitted(whole, bind(LEARNT.declarations, DATA), Options(fixed=("ell",)), None)


def test_levels_that_a_fit_has_not_seen_follow_their_prior_or_are_refused() -> None:
    data = {**DATA, "site": SITE}
    known = gpdsl.compile(SITES.format(prior="param a[s] : real ~ Normal(0, 1)")).fit(data)
    found = known.cross_validate(data, 4, by="site")
    left = found.folds == found.folds[0]
    assert set(SITE[left]) == {"p"}
    cross, own = np.exp(-0.5 * (X[:, None] - X) ** 2), SITE[:, None] == SITE
    whole = cross + own + 0.09 * np.eye(24)
    solved = np.linalg.solve(whole[np.ix_(~left, ~left)], whole[np.ix_(~left, left)])
    sd = np.sqrt(np.diag(whole)[left] - np.sum(whole[np.ix_(~left, left)] * solved, axis=0))
    expected = stats.norm.logpdf(DATA["y"][left], solved.T @ DATA["y"][~left], sd)
    np.testing.assert_allclose(found.pointwise[left], expected, atol=1e-6)
    free = gpdsl.compile(SITES.format(prior="param a[s] : real")).fit(data)
    with pytest.raises(gpdsl.GpdslError, match="fit 1 of 4 has no row with . in `site`, and `a` has a value for each"):
        free.cross_validate(data, 4, by="site")
    assert np.isfinite(free.cross_validate(data, 2).pointwise).all()


def test_an_output_that_a_fit_has_not_seen_is_refused() -> None:
    model = gpdsl.compile(
        "input x : real\noutput y : real\noutput z : real\nparam s : positive\nlatent f(x) ~ GP(0, RBF(1))\n"
        "y ~ Normal(f, 0.2)\nz ~ Normal(f, s)\n"
    )
    late = np.where(np.arange(24) < 20, np.nan, DATA["y"])
    data = {**DATA, "z": late}
    with pytest.raises(gpdsl.GpdslError, match="fit 1 of 12 has no row in which `z` is observed"):
        unlearnt(model, data).leave_future_out(data)


def test_a_model_without_latents() -> None:
    model = gpdsl.compile("input x : real\noutput y : real\nparam a : real\ny ~ Normal(a * x, 0.5)\n")
    found = model.fit(DATA).cross_validate(DATA, 3)
    for fold in (1, 2, 3):
        left = found.folds == fold
        slope = (X[~left] @ DATA["y"][~left]) / (X[~left] @ X[~left])
        np.testing.assert_allclose(
            found.pointwise[left], stats.norm.logpdf(DATA["y"][left], slope * X[left], 0.5), atol=1e-5
        )


def test_found_beside_fits() -> None:
    few = some(DATA, np.arange(24) % 3 == 0)
    fit = HELD.fit(few)
    folds = fit.cross_validate(few, 8)
    table = gpdsl.compare({"loo": fit, "folds": folds}, few)
    np.testing.assert_allclose(folds.pointwise, table.elpds["loo"].pointwise, atol=1e-8)  # exact, of one row each
    assert "rows are left out in different ways: 8-fold cross-validation, leave-one-out" in repr(table)
    assert len(gpdsl.compare([folds, folds]).rows) == 2
    with pytest.raises(gpdsl.GpdslError, match="`?loo`? is a fit: give the data that were fitted"):
        gpdsl.compare({"loo": fit, "folds": folds})
    other = {**few, "y": few["y"][::-1]}
    with pytest.raises(gpdsl.GpdslError, match="a and b have other values of `y`"):
        gpdsl.compare({"a": folds, "b": HELD.fit(other).cross_validate(other, 2)})


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda fit: fit.cross_validate(DATA, 25),
            "folds = 25: expected a whole number from 2 to 24; the data have 24 rows",
        ),
        (lambda fit: fit.cross_validate(DATA, -(10**5000)), "folds = a number of 15 digits or more: expected"),
        (lambda fit: fit.cross_validate(DATA, True), "folds = True: expected a whole number"),
        (
            lambda fit: fit.cross_validate({**DATA, "day": np.ones(24)}, by="day"),
            "cross_validate: folds: nothing can be left out, as the data have 1 value of `day`",
        ),
        (lambda fit: fit.cross_validate(DATA, by="X"), "by = 'X' is no input .*; did you mean `x`?"),
        (lambda fit: fit.cross_validate({**DATA, "y": X}), "cross_validate asks for the data that were fitted"),
        (lambda fit: fit.cross_validate({**DATA, "g": [None, *"a" * 23]}, by="g"), "by = `g` has no value in row 1"),
        (lambda fit: fit.leave_future_out(DATA, 24), "first = 24: expected a whole number from 1 to 23"),
        (lambda fit: fit.leave_future_out(DATA, ahead=3, every=2), "every = 2: .* no row is predicted twice"),
        (lambda fit: fit.leave_future_out({**DATA, "g": SITE}, by="g"), "`g` has p in row 1, which is no time and no"),
        (lambda fit: fit.cross_validate(DATA, by=SITE), "cross_validate: by takes the name .*, and no ndarray"),
    ],
)
def test_what_cannot_be_asked(ask: Any, said: str) -> None:
    with pytest.raises(gpdsl.GpdslError, match=said):
        ask(HELD.fit(DATA))


def test_days_that_are_text_are_in_the_order_of_time() -> None:
    days = [f"{1 + 3 * k % 30}.{1 + 3 * k // 30}.2024" for k in range(24)]  # 10.1.2024 is before 4.2.2024
    fit, data = HELD.fit(DATA), {**DATA, "day": days}
    later = fit.leave_future_out(data, 22, ahead=2, by="day")
    np.testing.assert_array_equal(later.folds, (np.arange(24) > 21).astype(int))
