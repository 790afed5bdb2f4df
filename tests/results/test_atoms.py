"""Probabilities of outputs that have values of their own: bounds, classes and levels; and of transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, truncnorm

import gpdsl
from gpdsl.errors import GpdslError
from tests.inference.problems import unlearnt

HEAD = "input x : real\nlatent f(x) ~ GP(0, RBF(1))\n"
X = np.linspace(0.0, 3.0, 12)
NEW = {"x": np.array([0.3, 1.5, 4.5])}


def fit(text: str, y: Any) -> gpdsl.Fit:
    """A fit without parameters."""
    return unlearnt(HEAD + text, {"x": X, "y": y})


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_censored_values_have_a_probability_of_their_own_at_the_bounds(dtype: str) -> None:
    y, text = (
        np.clip(2.0 * np.sin(X), -0.4, 0.7),
        "output y : real\ny ~ Censored(Normal(f, 0.3), lower = -0.4, upper = 0.7)",
    )
    found = unlearnt(HEAD + text, {"x": X, "y": y}, dtype=dtype)
    prediction = found.predict(NEW)
    below = norm(prediction.mean("f"), np.sqrt(prediction.variance("f") + 0.09))
    least, most = below.cdf(-0.4), below.sf(0.7)
    expected = {
        "y >= 0.7": most,
        "y == 0.7": most,
        "0.7 <= y": most,
        "y < 0.7": 1 - most,
        "y <= 0.7": np.ones(3),
        "y > 0.7": np.zeros(3),
        "y == -0.4": least,
        "y <= -0.4": least,
        "y < -0.4": np.zeros(3),
        "y > -0.4": 1 - least,
        "y < 0.2": below.cdf(0.2),
    }
    for condition, share in expected.items():
        np.testing.assert_allclose(
            prediction.probability(condition), share, atol=1e-9 if dtype == "float64" else 1e-5, err_msg=condition
        )
    often = found.predict({"x": np.tile(NEW["x"], 40)})
    places = often.pit("y", np.full(120, 0.7), seed=0).reshape(40, 3)
    assert np.all(places >= 1 - most - 1e-5) and np.all(np.abs(places.mean(0) - (1 - most / 2)) < 0.2 * most + 0.01)


@pytest.mark.parametrize("law", ["Censored", "Truncated"])
def test_moments_between_bounds_are_exact_where_the_noise_is_narrow(law: str) -> None:
    """Far from the data a latent is nine times as wide as the noise, and what is recorded has a bend at the bounds."""
    y = np.clip(2.0 * np.sin(X), -0.4, 0.7) * 0.9
    found = fit(f"output y : real\ny ~ {law}(Normal(f, 0.1), lower = -0.4, upper = 0.7)", y).predict(NEW)
    away = np.linspace(-9.0, 9.0, 601)
    weights = norm.pdf(away) / norm.pdf(away).sum()
    for row, (centre, spread) in enumerate(zip(found.mean("f"), found.sd("f"), strict=True)):
        f = centre + spread * away
        inside = truncnorm((-0.4 - f) / 0.1, (0.7 - f) / 0.1, f, 0.1)
        first, second = inside.mean(), inside.var() + inside.mean() ** 2
        if law == "Censored":
            under, over = norm.cdf((-0.4 - f) / 0.1), norm.sf((0.7 - f) / 0.1)
            first = (1 - under - over) * first - 0.4 * under + 0.7 * over
            second = (1 - under - over) * second + 0.16 * under + 0.49 * over
        assert abs(found.mean("y")[row] - weights @ first) < 1e-8
        assert abs(found.variance("y")[row] - (weights @ second - (weights @ first) ** 2)) < 1e-8


def test_classes_named_minus_one_and_one_come_back(tmp_path: Any) -> None:
    sides = np.where(np.sin(2 * X) > 0, 1.0, -1.0)
    found = fit("output y : binary\ny ~ Bernoulli(probit = f)", sides)
    found.save(tmp_path / "sides.gpfit")
    for each in (found, gpdsl.load_fit(tmp_path / "sides.gpfit")):
        prediction = each.predict({"x": X})
        assert prediction.levels("y") == (-1, 1) and set(prediction.label("y")) == {-1, 1}
        chance = prediction.mean("y")
        for condition, share in {"y == 1": chance, "y == -1": 1 - chance, "y > 0": chance, "y < 1": 1 - chance}.items():
            np.testing.assert_allclose(prediction.probability(condition), share, rtol=1e-12, err_msg=condition)
        drawn = prediction.probability("y == -1 and f < 100", draws=4000)
        np.testing.assert_allclose(drawn, 1 - chance, atol=0.05)
    zeros = fit("output y : binary\ny ~ Bernoulli(probit = f)", (sides > 0).astype(int)).predict({"x": X})
    assert zeros.levels("y") == (0, 1)
    np.testing.assert_allclose(zeros.mean("y"), chance, rtol=1e-12)


def test_words_of_a_binary_output_have_places() -> None:
    words = np.where(np.sin(2 * X) > 0, "yes", "no")
    prediction = fit("output y : binary\ny ~ Bernoulli(probit = f)", words).predict({"x": X})
    no, places = 1 - prediction.mean("y"), prediction.pit("y", words)
    assert np.all(places[words == "yes"] >= no[words == "yes"]) and np.all(places[words == "no"] <= no[words == "no"])
    with pytest.raises(GpdslError, match="pit of `y`"):
        prediction.pit("y", ["maybe"] * len(X))
    with pytest.raises(GpdslError, match="compares nothing; write `y == 1`"):
        prediction.probability("y")


def test_levels_in_words_are_compared_in_their_order() -> None:
    levels = 'const cut = [-0.5, 0.5]\nindex k in {"low", "mid", "high"}\noutput y : ordinal[k]\n'
    text = levels + "y ~ Ordinal(probit = f, cutpoints = cut)"
    prediction = fit(text, np.array(["low", "mid", "high"] * 4)).predict(NEW)
    chances = prediction.mean("y")
    np.testing.assert_allclose(prediction.probability('y >= "mid"'), chances[:, 1:].sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(prediction.probability('"mid" > y'), chances[:, 0], rtol=1e-12)
    assert np.isnan(prediction.pit("y", ["mid", pd.NA, "low"])).tolist() == [False, True, False]
    with pytest.raises(GpdslError, match=r"\['mid'\] is none of its levels, low, mid, high"):
        prediction.pit("y", [["mid"], ["low", "high"], "low"])


def test_probabilities_of_a_transformed_output_are_those_of_the_transform() -> None:
    """Rising, falling, and beyond the values there can be."""
    rising = fit("output y : positive\nlog(y) ~ Normal(f, 0.3)", np.exp(np.sin(X))).predict(NEW)
    law = norm(rising.mean("f"), np.sqrt(rising.variance("f") + 0.09))
    np.testing.assert_allclose(rising.probability("y > 1.5"), law.sf(np.log(1.5)), rtol=1e-9)
    np.testing.assert_allclose(rising.probability("y <= -1"), 0.0, atol=1e-300)
    falling = fit("output y : positive\n-log(y) ~ Normal(f, 0.01)", np.exp(-np.sin(X))).predict(NEW)
    law = norm(falling.mean("f"), np.sqrt(falling.variance("f") + 1e-4))
    np.testing.assert_allclose(falling.probability("y < 0.6")[:2], law.sf(-np.log(0.6))[:2], rtol=1e-6)
    draws = rising.sample("y", 40_000, seed=1)
    y = np.array([1.0, 2.0, 0.3])
    gini = np.mean(np.abs(draws[::2] - draws[1::2]), axis=0)
    by_draws = np.mean(np.abs(draws - y), axis=0) - 0.5 * gini
    np.testing.assert_allclose(rising.crps("y", y), by_draws, rtol=0.02)
