"""Predictions through opaque functions: few evaluations, shared, within a budget, with errors that are true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss, hermeval
from scipy.special import factorial
from scipy.stats import norm

import gpdsl
from gpdsl import GpdslError
from gpdsl.errors import GpdslWarning
from gpdsl.results.responses import exponents, features, left_between, stretch, systematic
from tests.inference.problems import unlearnt

X = np.linspace(0, 4, 24)
TEXT = """
input  x : real
output y : real
external g(level: real) -> real
latent level(x) ~ GP(0, RBF(1))
let r = g(level)
y ~ Normal(r, 0.3)
"""


def smooth(level: np.ndarray) -> np.ndarray:
    return np.exp(0.8 * level)


def kinked(level: np.ndarray) -> np.ndarray:
    return np.where(level > 0, level, 0.2 * level)


def kinked_far_out(level: np.ndarray) -> np.ndarray:
    return level + 5.0 * np.maximum(0.0, level - 2.5)


def cubic(level: np.ndarray) -> np.ndarray:
    return level + 0.3 * level**3


def rough(level: np.ndarray) -> np.ndarray:
    return np.sin(300.0 * level)


class Counted:
    def __init__(self, function: Callable[[np.ndarray], np.ndarray]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, level: np.ndarray) -> np.ndarray:
        self.calls += len(level)
        return self.function(level)


@pytest.fixture(scope="module")
def fits() -> Iterator[Callable[..., tuple[gpdsl.Fit, Counted]]]:
    """Fits whose posteriors are narrow at the first rows of X and wide at the last."""
    known: dict[Any, tuple[gpdsl.Fit, Counted]] = {}

    def fit(function: Callable[[np.ndarray], np.ndarray], **options: Any) -> tuple[gpdsl.Fit, Counted]:
        key = function.__name__, tuple(options.items())
        if key not in known:
            counted = Counted(function)
            model = gpdsl.compile(TEXT, externals={"g": counted})
            quick = {"optimizer": "adam", "samples": 8, "steps": 20, "seed": 0, **options}
            x = np.linspace(0, 2, 8)
            known[key] = model.fit({"x": x, "y": function(np.sin(2 * x))}, **quick), counted
        known[key][1].calls = 0
        return known[key]

    yield fit


def dense(prediction: gpdsl.Prediction, function: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of r by a fine rule over the marginals of the level."""
    mean, sd = prediction.mean("level")[:, None], np.sqrt(prediction.variance("level"))[:, None]
    z = np.linspace(-9, 9, 20_001)
    weights = norm.pdf(z) / norm.pdf(z).sum()
    values = function(mean + sd * z)
    centre = values @ weights
    return centre, (values - centre[:, None]) ** 2 @ weights


def test_all_that_is_asked_shares_few_evaluations(fits: Callable) -> None:
    fit, counted = fits(smooth)
    prediction = fit.predict({"x": X})
    assert counted.calls == 0, "nothing was asked yet"
    prediction.mean("level")
    assert counted.calls == 0, "nor anything that needs the function"
    mean, variance = prediction.mean("r"), prediction.variance("r")
    first = counted.calls
    assert 16 * 24 <= first <= 64 * 24
    prediction.mean("y"), prediction.variance("y"), prediction.quantile("y", [0.1, 0.9]), prediction.quantile("r", 0.5)
    prediction.sample("r", 100), prediction.sample("y", 100), prediction.error("r", 0.9)
    assert counted.calls == first == prediction.usage.evaluations
    expected, spread = dense(prediction, smooth)
    np.testing.assert_allclose(mean, expected, atol=0.01 * np.sqrt(spread).max())
    np.testing.assert_allclose(variance, spread, rtol=0.1)


@pytest.mark.parametrize("function", [smooth, cubic, kinked])
def test_stated_errors_are_true(fits: Callable, function: Callable[[np.ndarray], np.ndarray]) -> None:
    prediction = fits(function)[0].predict({"x": X})
    expected, spread = dense(prediction, function)
    for said, of, true in (
        (prediction.mean("r"), "mean", expected),
        (prediction.variance("r"), "variance", spread),
        (prediction.variance("y"), "variance", spread + 0.09),
    ):
        error = prediction.error("y" if said[0] > spread[0] + 0.08 and of == "variance" else "r", of)
        assert 0.2 < np.sqrt(np.mean(((said - true) / error) ** 2)) < 3.0
    assert np.all(prediction.error("r") < 0.02 * np.sqrt(spread))
    quantile = prediction.quantile("r", 0.9)
    level = prediction.mean("level") + norm.ppf(0.9) * np.sqrt(prediction.variance("level"))
    assert np.abs(quantile - function(level)).max() < 0.05 * np.sqrt(spread).max()


def test_a_function_like_noise_is_called_at_the_samples_once(fits: Callable) -> None:
    fit, counted = fits(rough)
    prediction = fit.predict({"x": X})
    prediction.mean("r")
    known = prediction.beliefs.simulations.at(prediction.beliefs)
    assert known.direct.size > 4, "neither polynomials nor lines describe it"
    assert counted.calls == known.direct.size * (1024 + 256) + sum(
        len(piece.latents) * np.setdiff1d(piece.rows, known.direct).size for piece in known.pieces
    )
    before = counted.calls
    prediction.variance("r"), prediction.quantile("y", 0.9)
    assert counted.calls == before
    draws = prediction.sample("r", 50, seed=3)
    assert counted.calls == before + 50 * known.direct.size
    np.testing.assert_allclose(draws[:, known.direct], rough(prediction.sample("level", 50, seed=3))[:, known.direct])
    prediction.sample("y", 50, seed=3)
    assert counted.calls == before + 50 * known.direct.size, "the same draws"


@pytest.mark.filterwarnings("ignore::gpdsl.errors.GpdslWarning")
def test_a_budget_is_obeyed_and_its_price_stated(fits: Callable) -> None:
    fit, counted = fits(kinked)
    errors = []
    for budget in (24 * 8, 24 * 20, 24 * 60):
        counted.calls = 0
        prediction = fit.predict({"x": X}, evaluations=budget)
        prediction.mean("r"), prediction.quantile("y", 0.9), prediction.sample("y", 30)
        assert 0.3 * budget < counted.calls <= budget
        errors.append(np.sqrt(np.mean(prediction.error("r") ** 2)))
        true, _ = dense(prediction, kinked)
        assert np.sqrt(np.mean(((prediction.mean("r") - true) / prediction.error("r")) ** 2)) < 3.0
    assert errors[0] > 2 * errors[1] > 2 * errors[2]


@pytest.mark.slow
def test_a_budget_too_small_is_said(fits: Callable) -> None:
    fit, _ = fits(kinked)
    with pytest.warns(GpdslWarning, match=r"evaluations = 192 are too few .* in \d+ rows: `error` says by how much"):
        fit.predict({"x": X}, evaluations=192).mean("r")
    with pytest.raises(GpdslError, match="evaluations = 20: a prediction at 24 rows takes more than that"):
        fit.predict({"x": X}, evaluations=20).mean("r")
    with pytest.raises(GpdslError, match="evaluations = 0: expected a whole number of at least 1"):
        fit.predict({"x": X}, evaluations=0)


def test_the_budget_of_a_fit_is_that_of_its_predictions(fits: Callable) -> None:
    fit, counted = fits(kinked, evaluations=400)
    counted.calls = 0
    with pytest.warns(GpdslWarning, match="evaluations = 400"):
        fit.predict({"x": X}).mean("r")
    assert counted.calls <= 400


def test_a_mixture_and_what_reads_nothing_uncertain(fits: Callable) -> None:
    prediction = fits(cubic, posterior="mixture(2)")[0].predict({"x": X})
    marginals, weights = prediction.beliefs.marginals, prediction.beliefs.weights
    z, w = hermegauss(40)
    x = np.asarray(marginals.mean)[..., 0, None] + np.sqrt(np.asarray(marginals.variance))[..., 0, None] * z
    expected = weights @ (cubic(x) @ (w / w.sum()))
    np.testing.assert_allclose(prediction.mean("r"), expected, atol=4 * prediction.error("r").max())
    fixed = Counted(np.exp)
    text = TEXT.replace("g(level)", "g(x)").replace("Normal(r", "Normal(r + level")
    fit = gpdsl.compile(text, externals={"g": fixed}).fit({"x": X, "y": X}, optimizer="adam", steps=2, samples=4)
    fixed.calls = 0
    np.testing.assert_allclose(fit.predict({"x": X}).mean("r"), np.exp(X))
    assert fixed.calls == 24
    assert fit.predict({"x": X}).error("r").max() < 1e-12


def test_a_rate_stays_one(fits: Callable) -> None:
    """A polynomial of a rate may fall below 0 in its tails; distributions of counts have no such rate."""
    text = TEXT.replace("output y : real", "output y : count").replace("Normal(r, 0.3)", "Poisson(r)")
    model = gpdsl.compile(text, externals={"g": lambda level: 1e-3 + level**2 * np.exp(0.3 * level)})
    fit = model.fit({"x": X, "y": (np.arange(24) % 3)}, optimizer="adam", steps=3, samples=8)
    prediction = fit.predict({"x": X})
    assert np.all(prediction.sample("r", 2000) > 0)
    assert np.all(np.isfinite(prediction.quantile("y", [0.05, 0.95]))) and np.all(prediction.sample("y", 200) >= 0)


def test_the_plan_says_what_predictions_take() -> None:
    model = gpdsl.compile(TEXT, externals={"g": smooth})
    assert (
        "a prediction: 16 a row where the function is smooth, 384 for 24 rows, up to 1,280 a row where it is not"
        in model.explain({"x": X, "y": X})
    )


def test_what_has_no_error_is_refused(fits: Callable) -> None:
    prediction = fits(smooth)[0].predict({"x": X})
    for of in ("median", 1.0, 2):
        with pytest.raises(GpdslError, match='expected "mean", "variance" or a probability'):
            prediction.error("r", of)
    with pytest.raises(GpdslError, match="error of `y`: of outputs it is known of the mean and variance"):
        prediction.error("y", 0.5)


DENSITY = """
input  x : real
output y : real
external likelihood fits(y: real | level: real)
latent level(x) ~ GP(0, RBF(1))
y ~ fits(level)
"""


def test_log_densities_obey_a_budget(fits: Callable) -> None:
    fit, counted = fits(smooth)
    data = {"x": X, "y": smooth(np.sin(2 * X))}
    free = fit.log_predictive_density(data)
    used, counted.calls = counted.calls, 0
    bounded = fit.log_predictive_density(data, evaluations=24 * 20)
    assert 0 < counted.calls <= 24 * 20 < used or used <= 24 * 20
    np.testing.assert_allclose(bounded, free, atol=0.3)
    with pytest.raises(GpdslError, match="evaluations = 20: a prediction at 24 rows takes more than that"):
        fit.log_predictive_density(data, evaluations=20)


def test_opaque_likelihoods_obey_the_budget_of_their_densities() -> None:
    calls: list[int] = []

    def fits(y: np.ndarray, level: np.ndarray) -> np.ndarray:
        calls.append(len(y))
        return norm.logpdf(y, level, 0.5)

    x = np.linspace(0, 2, 6)
    data = {"x": x, "y": np.sin(2 * x)}
    fit = gpdsl.compile(DENSITY, externals={"fits": fits}).fit(data, optimizer="adam", samples=8, steps=30)
    calls.clear()
    free = fit.log_predictive_density(data)
    assert sum(calls) == 6 * 1024
    calls.clear()
    bounded = fit.log_predictive_density(data, evaluations=6 * 200 + 5)
    assert sum(calls) == 6 * 200
    prediction = fit.predict(data)
    exact = norm.logpdf(data["y"], prediction.mean("level"), np.sqrt(prediction.variance("level") + 0.25))
    np.testing.assert_allclose(free, exact, atol=0.01)
    np.testing.assert_allclose(bounded, exact, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("function", [smooth, cubic, kinked, kinked_far_out])
def test_errors_are_calibrated_over_seeds(fits: Callable, function: Callable[[np.ndarray], np.ndarray]) -> None:
    """Scores have about unit spread; lines state a bound."""
    fit, _ = fits(function)
    scores, spreads = [], []
    for seed in range(12):
        prediction = replace(fit, options=replace(fit.options, seed=seed)).predict({"x": X})
        mean, variance = dense(prediction, function)
        scores.append((prediction.mean("r") - mean) / prediction.error("r"))
        spreads.append((prediction.variance("r") - variance) / prediction.error("r", "variance"))
    least = 0.4 if function in (kinked, kinked_far_out) else 0.7
    assert least < np.std(scores) < 1.3
    assert least - 0.1 < np.sqrt(np.mean(np.square(spreads))) < 1.4


UNREAD = """
input  x : real
output y : real
external g(level: real) -> real
latent level(x) ~ GP(0, RBF(1))
let r = g(level)
y ~ Normal(level, 0.5)
"""


def hinge(level: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, level - 1.0)


def step(level: np.ndarray) -> np.ndarray:
    return np.where(level > 1.2, 1.0, 0.0)


@pytest.mark.parametrize(
    ("function", "calls"), [(smooth, 20), *(pytest.param(each, 300, marks=pytest.mark.slow) for each in (hinge, step))]
)
def test_errors_are_true_where_the_mean_comes_from_a_tail(
    function: Callable[[np.ndarray], np.ndarray], calls: int
) -> None:
    """Rows a kink or jump of which is up to nine standard deviations away: none says that its mean has no error."""
    x = np.linspace(0, 4, 13)
    fit = unlearnt(gpdsl.compile(UNREAD, externals={"g": function}), {"x": x, "y": np.sin(1.5 * x)})
    off, stated, spread = [], [], []
    for seed in range(3):
        prediction = replace(fit, options=replace(fit.options, seed=seed)).predict({"x": X})
        mean, variance = dense(prediction, function)
        off.append(prediction.mean("r") - mean)
        stated.append(prediction.error("r"))
        spread.append(np.sqrt(variance))
        assert prediction.usage.evaluations < calls * X.size
    wrong = np.abs(off) > 1e-3 * np.maximum(spread, 1e-12)
    assert np.sqrt(np.mean((np.asarray(off)[wrong] / np.asarray(stated)[wrong]) ** 2)) < 1.3


def test_a_quantity_that_no_likelihood_reads_is_predicted() -> None:
    text = "model m\ninput x : real\noutput y : real\nindex i in 1..2\nexternal r(f: real) -> real\n"
    text += "latent f(x) ~ GP(0, RBF(1))\nlet k = r(f)\nlet g[i] = i * r(f)\ny ~ Normal(f, 0.5)\n"
    model = gpdsl.compile(text, externals={"r": lambda f: 2 * f + 1})
    prediction = model.fit({"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 2.0]}).predict({"x": [0.5]})
    expected = 2 * prediction.mean("f") + 1
    np.testing.assert_allclose(prediction.mean("k"), expected, atol=0.01)
    np.testing.assert_allclose(prediction.mean("g"), expected[:, None] * [1, 2], atol=0.02)


def test_lines_miss_what_interpolation_between_all_other_points_does() -> None:
    u, values = np.random.default_rng(0).normal(size=(2, 7)), np.random.default_rng(1).normal(size=(2, 7, 3))
    expected = np.empty_like(values)
    for row, point, d in np.ndindex(*values.shape):
        others = [k for k in np.argsort(u[row]) if k != point]
        expected[row, point, d] = values[row, point, d] - np.interp(
            u[row, point], u[row, others], values[row, others, d]
        )
    np.testing.assert_allclose(left_between(u, values), expected, atol=1e-12)


def test_features_are_products_of_hermite_polynomials() -> None:
    u = np.random.default_rng(0).normal(size=(2, 5, 2))
    table = [hermeval(u / stretch(2), np.eye(5)[n]) / np.sqrt(factorial(n)) for n in range(5)]
    expected = [table[first][..., 0] * table[second][..., 1] for first, second in exponents(2, 4)]
    np.testing.assert_allclose(features(u, 4), np.stack(expected, axis=-1), rtol=1e-12)


def test_points_are_drawn_as_often_as_their_weights_say() -> None:
    rng = np.random.default_rng(0)
    weights = np.vstack([[0.5, 0.25, 0.25, 0.0], rng.dirichlet(np.ones(4), size=3)])
    drawn = systematic(weights, 8, rng)
    counts = np.array([np.bincount(row, minlength=4) for row in drawn])
    np.testing.assert_array_equal(counts[0], [4, 2, 2, 0])
    assert np.all(np.abs(counts - 8 * weights) < 1)
