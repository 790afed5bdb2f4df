"""Whole functions drawn from a fit, against its own exact moments and against themselves."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import gpdsl
from tests.inference.problems import unlearnt
from tests.results.test_draws import DATA, ONE, TWO, X
from tests.results.test_pickled import pickled

NEW = np.concatenate([np.linspace(-1, 8, 12), [3.0, 3.0001]])
WAYS: dict[str, dict[str, Any]] = {
    "exact": {},
    "inducing points": {"inducing": 20},
    "features": {"inducing": "eigen(8)"},
    "features and slopes": {"inducing": "eigen(8) + slopes(4)"},
    "mixture": {"inducing": 20, "posterior": "mixture_full(2)"},
    "qsgp waves": {"engine": "qsgp", "features": 100, "chevron": 100},
    "qsgp points": {"engine": "qsgp", "basis": "inducing", "chevron": 40},
    "qsgp augmented": {"engine": "qsgp", "basis": "inducing", "chevron": 5},
}


def agree(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Whether moments of draws are these, within 5 standard errors."""
    count, variance = len(draws), np.diag(covariance)
    spread = np.sqrt((np.outer(variance, variance) + covariance**2) / count)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * spread + 1e-6)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / count) + 1e-6)


SLOW = ("mixture", "qsgp augmented", "features and slopes")
"""Ways that differ least from others."""


@pytest.mark.parametrize(
    "options", [pytest.param(v, id=n, marks=[pytest.mark.slow] if n in SLOW else []) for n, v in WAYS.items()]
)
def test_functions_have_the_mean_and_covariance_of_the_posterior(options: dict[str, Any]) -> None:
    fit = gpdsl.compile(ONE).fit(DATA, seed=0, **options) if "engine" in options else unlearnt(ONE, DATA, **options)
    prediction, functions = fit.predict({"x": NEW}), fit.draw_functions(300, seed=1)
    draws = functions({"x": NEW})
    agree(draws, prediction.mean("f"), prediction.covariance("f"))
    assert np.corrcoef(draws[:, -2:].T)[0, 1] > 0.999
    some = functions[7]({"x": NEW[[9, 3]]}, "rate")
    np.testing.assert_allclose(some, np.exp(draws[7, [9, 3]]), rtol=1e-6 if fit.options.dtype == "float64" else 1e-4)


@pytest.mark.parametrize("options", [{}, {"inducing": 20, "posterior": "coupled"}], ids=["exact", "coupled"])
def test_functions_of_several_latents_and_their_slopes_belong_together(options: dict[str, Any]) -> None:
    fit = gpdsl.compile(TWO).fit({**DATA, "b": X + 0.5, "dy": np.cos(X)}, seed=0, **options)
    rows = {"x": NEW[:12], "b": NEW[:12] + 0.5}
    prediction, functions = fit.predict(rows), fit.draw_functions(300)
    for name in ("h", "change"):
        agree(functions(rows, name), prediction.mean(name), prediction.covariance(name))
    step = 1e-4
    ends = [functions({"x": NEW[:12] + s, "b": NEW[:12] + 0.5}) for s in (step, -step)]
    slopes = functions(rows, "change") + functions({"x": rows["b"], "b": rows["b"]})
    np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), slopes, atol=1e-4)
    whole = functions(rows, "f") + 2 * functions(rows, "g")
    np.testing.assert_allclose(functions(rows, "h"), whole, atol=1e-9)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"RBF(1)": "RBF(1) + White()"}, "no whole functions of `f` can be drawn: `White` is no function of the input"),
        (
            {"latent": "row w ~ Normal(0, 1)\nlatent", "Normal(f,": "Normal(f + w,"},
            "no whole functions of `w` can be drawn: it has a value of its own in each row",
        ),
    ],
)
def test_what_is_no_function_is_refused(changed: dict[str, str], message: str) -> None:
    text = ONE
    for old, new in changed.items():
        text = text.replace(old, new)
    fit = gpdsl.compile(text).fit(DATA, seed=0, inducing=8, steps=3)
    with pytest.raises(gpdsl.GpdslError, match=message):
        fit.draw_functions(2)


def test_outputs_and_counts_of_none_are_refused() -> None:
    fit = gpdsl.compile(ONE).fit(DATA, seed=0)
    with pytest.raises(gpdsl.GpdslError, match="expected a positive number of draws, got 0"):
        fit.draw_functions(0)
    with pytest.raises(gpdsl.GpdslError, match="GiB are free; ask for fewer draws"):
        fit.draw_functions(10**8)
    for seed in (-1, 1.5, "a", None):
        with pytest.raises(gpdsl.GpdslError, match="seed = .*: expected a whole number of at least 0"):
            fit.draw_functions(2, seed=seed)  # type: ignore[arg-type]
    with pytest.raises(gpdsl.GpdslError, match="draw_functions: 1e.20 draws take .* ask for fewer draws"):
        fit.draw_functions(10**20)
    with pytest.raises(gpdsl.GpdslError, match="`y` is an output, with noise in every row"):
        fit.draw_functions(1)({"x": X}, "y")


def test_a_copy_of_functions_is_the_same_functions() -> None:
    functions = gpdsl.compile(ONE).fit(DATA, seed=0).draw_functions(3, seed=5)
    for again in (pickled(functions), copy.copy(functions)):
        np.testing.assert_array_equal(again({"x": NEW}), functions({"x": NEW}))
    np.testing.assert_array_equal(pickled(functions[1])({"x": NEW}), functions({"x": NEW})[1])


def test_functions_of_a_fit_that_standardised_take_rows_in_the_units_of_the_data() -> None:
    scaled = {"x": 100 + 20 * X, "y": DATA["y"]}
    fit = gpdsl.compile(ONE).fit(scaled, standardise=["x"], seed=0)
    rows = {"x": 100 + 20 * np.linspace(0, 6, 9)}
    prediction = fit.predict(rows)
    drawn = fit.draw_functions(300)(rows)
    assert drawn.shape == (300, 9)
    agree(drawn, prediction.mean("f"), prediction.covariance("f"))


def test_functions_of_levels_are_drawn_and_levels_that_no_fit_has_seen_follow_the_prior() -> None:
    text = (
        "index s in 1..S\ninput x : real\ninput site : label[s]\noutput y : real\nparam a[s] : real ~ Normal(0, 2)\n"
        "latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f + a[site], 0.5)"
    )
    fit = gpdsl.compile(text).fit({**DATA, "site": np.array(["u", "v", "w"], object)[np.arange(len(X)) % 3]}, seed=0)
    rows = {"x": np.full(5, 1.0), "site": np.array(["u", "w", "new", "other", "new"], object)}
    prediction, draws = fit.predict(rows), fit.draw_functions(400, seed=2)(rows, "a")
    assert np.abs(draws[:, 2] - draws[:, 4]).max() < 1e-9
    agree(draws, prediction.mean("a"), prediction.covariance("a"))
    assert draws[:, 2].std() == pytest.approx(2, rel=0.15)


def test_levels_that_the_fit_has_not_seen_keep_their_functions() -> None:
    text = "index s in 1..S\ninput site : label[s]\noutput y : real\nparam a[s] : real ~ Normal(1, 2)\n"
    model = gpdsl.compile(text + "y ~ Normal(a[site], 0.3)\n")
    fit = model.fit({"site": ["p", "q", "p", "q"], "y": [0.0, 3.0, 0.1, 2.9]})
    functions = fit.draw_functions(5)
    both = functions({"site": ["new", "other", "q"]})
    np.testing.assert_array_equal(functions({"site": ["other", "new"]}), both[:, [1, 0]])
    assert np.all(both[:, 0] != both[:, 1])
    for again in (pickled(functions), copy.copy(functions), copy.deepcopy(functions), pickled(functions[0]).every):
        np.testing.assert_array_equal(again({"site": ["other"]})[:, 0], both[:, 1])


def test_functions_and_predictions_have_lengths_and_tell_what_they_have_not() -> None:
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)")
    fit = model.fit({"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 0.5]})
    functions, prediction = fit.draw_functions(2), fit.predict({"x": [0.5, 1.5, 2.5, 3.0]})
    assert len(functions) == 2 == len(list(functions)) and len(functions[:1]) == 1 and len(prediction) == 4
    assert np.array_equal(functions[-1]({"x": [0.5]}), functions[1]({"x": [0.5]}))
    for asked in (5, "f"):
        with pytest.raises(IndexError, match=f"there are 2 functions, 0 to 1, and none is {asked!r}") as caught:
            functions[asked]
        assert isinstance(caught.value, gpdsl.GpdslError)
    with pytest.raises(AttributeError, match=r"no attribute 'y'; there are `prediction.mean\('y'\)`"):
        prediction.y  # noqa: B018
    with pytest.raises(TypeError, match=r"it is rmse\(fit, data, name=None\)"):
        gpdsl.score.rmse(fit)
