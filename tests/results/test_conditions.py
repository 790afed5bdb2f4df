"""Probabilities of conditions against distribution functions and integrals; totals against the sums of draws."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.results.conditions import Condition

TEXT = """model both
index p in 1..2
input x : real
output y[p] : real
output n : count
param s : positive = 0.3 fixed
latent f(x) ~ GP(0, RBF(1))
let rate = exp(f)
y[p] ~ Normal(f, s)
n ~ Poisson(rate)
"""
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 6, 40))
NEW = np.linspace(0, 6, 7)


@pytest.fixture(scope="module")
def prediction() -> gpdsl.Prediction:
    y = np.sin(X)[:, None] + 0.3 * RNG.standard_normal((40, 2))
    return gpdsl.compile(TEXT).fit({"x": X, "y": y, "n": RNG.poisson(np.exp(np.sin(X)))}, seed=0).predict({"x": NEW})


def latent(prediction: gpdsl.Prediction) -> tuple[np.ndarray, np.ndarray]:
    return prediction.mean("f"), np.sqrt(prediction.variance("f"))


def test_one_comparison_with_what_is_known_is_exact(prediction: gpdsl.Prediction) -> None:
    mean, sd = latent(prediction)
    above = stats.norm.sf(0.5, mean, np.sqrt(sd**2 + 0.09))
    np.testing.assert_allclose(prediction.probability("y[1] > 0.5"), above, rtol=1e-10)
    assert not prediction.probability("y[1] > 0.5", error=True).any()
    np.testing.assert_allclose(
        prediction.probability("x/10 + s >= f"), stats.norm.cdf(NEW / 10 + 0.3, mean, sd), rtol=1e-9
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    rates = np.exp(mean[:, None] + sd[:, None] * nodes)
    two = stats.poisson.sf(1, rates) @ weights / weights.sum()
    np.testing.assert_allclose(prediction.probability("n > 1"), two, rtol=1e-5)
    np.testing.assert_allclose(prediction.probability("2 <= n"), two, rtol=1e-5)
    np.testing.assert_allclose(prediction.probability("n < 1.5"), 1 - two, rtol=1e-5)


def test_conditions_on_several_quantities_hold_together(prediction: gpdsl.Prediction) -> None:
    mean, sd = latent(prediction)
    z = np.linspace(-8, 8, 4001)
    f = mean[:, None] + sd[:, None] * z
    inside = stats.norm.sf(0.5, f, 0.3) * (np.exp(f) < 2) * stats.poisson.sf(1, np.exp(f))
    expected = inside @ stats.norm.pdf(z) * (z[1] - z[0])
    asked = "y[1] > 0.5 and rate < 2 and n >= 2"
    found, error = prediction.probability(asked), prediction.probability(asked, error=True)
    assert np.all(np.abs(found - expected) < 4 * error + 1e-3)
    assert np.all(error <= 0.5 / np.sqrt(4096))
    either = prediction.probability("max(p, y[p]) > 0.5")
    both = 1 - (stats.norm.cdf(0.5, f, 0.3) ** 2) @ stats.norm.pdf(z) * (z[1] - z[0])
    assert np.all(np.abs(either - both) < 0.04)


def test_conditions_are_in_the_units_and_levels_of_the_data() -> None:
    text = """model m
index d in {4, 7}
input x : real
output y : real
output k : label[d]
latent f(x) ~ GP(0, RBF(1))
latent g[d](x) ~ GP(0, RBF(1))
y ~ Normal(f, 0.3)
k ~ Categorical(logits = g)
"""
    data = {"x": 100 + 10 * X, "y": 50 + 20 * np.sin(X), "k": np.where(X > 3, 7, 4)}
    prediction = gpdsl.compile(text).fit(data, standardise=["x", "y"], seed=0).predict({"x": 100 + 10 * NEW})
    expected = stats.norm.sf(60, prediction.mean("y"), np.sqrt(prediction.variance("y")))
    np.testing.assert_allclose(prediction.probability("y > 60"), expected, rtol=1e-8)
    share = prediction.probability("y > 60 and x > 120")
    assert np.all(np.abs(share - expected * (NEW > 2)) < 0.04)
    assert np.all(np.abs(prediction.probability("k == 7") - prediction.mean("k")[:, 1]) < 0.04)


@pytest.fixture(scope="module")
def large() -> tuple[gpdsl.Prediction, float]:
    """A prediction of large numbers that were standardised, and the noise in their unit."""
    text = """
input x : real
output y[p] : real
index p in 1..2
param sigma[p] : positive
param b[p] : real = 0.1
latent f[p](x) ~ GP(0, RBF(1))
let level[p] = f[p] + b[p]
let twice[p] = 2 * f[p]
y[p] ~ Normal(level[p], sigma[p])
"""
    y = 200000 + 30000 * np.stack([np.sin(X), 2 * np.cos(X)], axis=1) + 3000 * RNG.standard_normal((40, 2))
    fit = gpdsl.compile(text).fit({"x": 1000 * X, "y": y}, standardise=True, seed=0)
    return fit.predict({"x": 1000 * NEW}), float(fit.parameters_in_data_units["sigma"][1])


def test_locations_and_noise_of_standardised_outputs_are_in_their_units(large: tuple[gpdsl.Prediction, float]) -> None:
    prediction, sigma = large
    assert np.all(np.abs(prediction.probability("y[2] > level[2]") - 0.5) < 0.04)
    beyond = stats.norm.sf(1000 / sigma)
    assert np.all(np.abs(prediction.probability("y[2] > level[2] + 1000") - beyond) < 0.04)
    known = [f"sigma[2] > {sigma * by:.6f}" for by in (0.99, 1.01)]
    assert [prediction.probability(each).tolist() for each in known] == [[1.0] * 7, [0.0] * 7]
    noise = prediction.variance("y")[:, 1] - sigma**2
    above = stats.norm.sf(210000, prediction.mean("y")[:, 1], np.sqrt(noise))
    assert np.all(np.abs(prediction.probability("level[2] > 210000") - above) < 0.04)


def test_what_has_no_known_unit_is_not_compared_with_what_has_one(large: tuple[gpdsl.Prediction, float]) -> None:
    prediction, _ = large
    for condition, name in {"y[1] > twice[1]": "twice", "x > 3 and y[1] > b[1]": "b", "f[1] > level[1]": "f"}.items():
        with pytest.raises(gpdsl.GpdslError, match=f"`{name}` is compared with .* nothing tells the unit of `{name}`"):
            prediction.probability(condition)
    mean, sd = prediction.mean("f")[:, 0], np.sqrt(prediction.variance("f")[:, 0])
    np.testing.assert_allclose(prediction.probability("f[1] > 0.5 and x > -1"), stats.norm.sf(0.5, mean, sd), atol=0.04)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("z > 3", r"<condition>:1:1: error\[E201\]: unknown name `z`(.|\n)*help: a condition has `x`, "),
        ("y[1] = 3", r"'y\[1\] = 3': values are compared by `==`"),
        ("0 < y[1] < 3", r"'0 < y\[1\] < 3' has two comparisons; join them"),
        ("y[1] > 3 and", r"write a condition such as `y > 3 and rate < 2`"),
        ("y > 3", "has a value for each p; name an element, as in `y\\[1\\] > 3`"),
        ("y[1] + 3", "expected a comparison"),
        ("f > 1\nuse 'a'", "expected one condition on one line"),
        ("__import__('os')", "error"),
        ("f(3) > 1", r"`f` is a latent, whose value in each row is meant; (.|\n)*help: write `f`"),
        ("y(3) > 1", "`y` is an output, whose value in each row is meant"),
        ("x(3) > 1", "`x` is an input; it is used without arguments"),
        ("x == true", "`x` is compared with true; expected a number: it has no levels in words"),
        ("y[1] > maybe", "unknown name `maybe`"),
        ("!(n > 3)", r"has `!`; write `not`"),
        ("n <> 3", "'n <> 3': values are compared by `==`"),
        ("n ≥ 3", "help: write `>=`"),
        ("f > x / 0", r"<condition>:1:5: error\[E503\](.|\n)* 1 \| f > x / 0"),
    ],
)
def test_what_is_no_condition_is_refused(prediction: gpdsl.Prediction, condition: str, message: str) -> None:
    with pytest.raises(gpdsl.GpdslError, match=message):
        prediction.probability(condition)


def test_totals_are_those_of_the_sum_over_rows(prediction: gpdsl.Prediction) -> None:
    covariance = prediction.covariance("f")
    total = prediction.total("f", seed=1)
    sd = np.sqrt(covariance.sum())
    assert abs(total.mean - prediction.mean("f").sum()) < 4 * sd / np.sqrt(2000)
    assert abs(total.sd / sd - 1) < 4 / np.sqrt(4000)
    np.testing.assert_allclose(total.interval(), total.quantile([0.05, 0.95]))
    halves = prediction.total("n", by=NEW > 2.5, how="max", count=50)
    draws = prediction.draws("n", 50)
    np.testing.assert_array_equal(halves.groups, [False, True])
    np.testing.assert_array_equal(halves.draws[:, 1], draws[:, NEW > 2.5].max(axis=1))
    assert prediction.total("y", by="x", how="mean", count=5).draws.shape == (5, 7, 2)
    with pytest.raises(gpdsl.GpdslError, match="a distribution and no number; take its `mean`"):
        float(total)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "median"}, "how = 'median'; expected one of sum, mean, max, min"),
        (
            {"by": "month"},
            r"by = 'month' is no input of the model, and no column of rows in memory; pass the column",
        ),
        ({"by": ["a", "b"]}, "by = 'a' is no input .*, or a group for each of 7 rows"),
        ({"by": [1, 2]}, r"`by` has the shape \(2,\); expected a group for each of 7 rows"),
        ({"by": [1, [2, 3], 4, 5, 6, 7, 8]}, "expected a group for each of 7 rows"),
        ({"by": [1, None, 1, 2, 2, 2, 2]}, "rows without a group"),
        ({"by": [1, np.nan, 1, 2, 2, 2, 2]}, "rows without a group"),
        ({"by": np.array(["2020", "NaT", *["2021"] * 5], "M8[D]")}, "rows without a group"),
    ],
)
def test_totals_of_nothing_are_refused(prediction: gpdsl.Prediction, options: dict, message: str) -> None:
    with pytest.raises(gpdsl.GpdslError, match=message):
        prediction.total("f", **options)


def test_errors_of_probabilities_are_those_of_draws_or_of_passes_whichever_are_larger() -> None:
    """Where no layers are sampled, those of draws; each set of passes has its share of these."""
    asked = list[int]()

    @dataclass(frozen=True)
    class Told(Condition):
        def _in_rows(self, count: int, seed: Any) -> tuple[np.ndarray, np.ndarray]:
            asked.append(count)
            return np.asarray(self.beliefs.share), np.array([0.1, 0.001])

    shares = [np.array([0.4, 0.7]), np.array([0.5, 0.5]), np.array([0.6, 0.9])]

    def beliefs(inner: bool) -> Any:
        sets = [SimpleNamespace(share=share) for share in shares]
        at = SimpleNamespace(count=2, share=np.array([0.5, 0.7]), program=SimpleNamespace(inner=inner))
        at.part, at.sets = lambda _: at, lambda: sets
        return at

    rest: Any = None, None, {}
    layered, plain = (Told(None, beliefs(inner), *rest) for inner in (True, False))  # type: ignore[arg-type]
    np.testing.assert_array_equal(plain.probability(30, 0, error=True), [0.1, 0.001])
    np.testing.assert_array_equal(layered.probability(30, 0), [0.5, 0.7])
    found = layered.probability(30, 0, error=True)
    np.testing.assert_allclose(found, [0.1, np.std([0.7, 0.5, 0.9], ddof=1) / np.sqrt(3)])
    assert asked == [30, 30, 30, 10, 10, 10]
