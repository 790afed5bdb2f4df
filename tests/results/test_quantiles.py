"""Quantiles of predictions against distribution functions averaged over a fine grid of the latent."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

import gpdsl
from gpdsl.results import conditional
from gpdsl.results.averaged import Averaged
from gpdsl.results.quantiles import invert, weighted_quantile
from tests.inference.problems import unlearnt

X = np.linspace(0, 4, 12)
ROWS = {"x": np.array([1.3, 6.0])}
PROBABILITIES = [1e-4, 0.01, 0.3, 0.5, 0.95, 0.9999]
HEAD = """input x : real
output y : positive
latent f(x) ~ GP(0, RBF(1))
let square = f^2
let side = if f > 0.2 then 3 else -1
"""


def averaged(mean: float, variance: float, share: Callable[[np.ndarray], np.ndarray]) -> float:
    """E[share(f)] under a Gaussian."""
    z = np.linspace(-10, 10, 20_001)
    weight = stats.norm.pdf(z)
    return float(weight @ share(mean + np.sqrt(variance) * z) / weight.sum())


LAWS = {
    "Gamma(2, 2*exp(-f))": lambda y, f: stats.gamma.cdf(y, 2, scale=np.exp(f) / 2),
    "LogNormal(f, 0.01)": lambda y, f: stats.norm.cdf((np.log(y) - f) / 0.01),
}


@pytest.mark.parametrize("law", LAWS)
def test_of_outputs(law: str) -> None:
    y = np.exp(np.sin(X) + 0.1 * np.cos(9 * X))
    pred = gpdsl.compile(f"{HEAD}y ~ {law}\n").fit({"x": X, "y": y}, steps=5).predict(ROWS)
    mean, variance, found = pred.mean("f"), pred.variance("f"), pred.quantile("y", PROBABILITIES)
    for at in range(2):
        for place, p in enumerate(PROBABILITIES):
            reached = averaged(mean[at], variance[at], lambda f: LAWS[law](found[place, at], f))  # noqa: B023
            assert reached == pytest.approx(p, rel=1e-9)


def test_of_quantities_that_are_not_monotone() -> None:
    y = np.exp(np.sin(X))
    pred = gpdsl.compile(f"{HEAD}y ~ LogNormal(f, 0.3)\n").fit({"x": X, "y": y}, steps=5).predict(ROWS)
    mean, variance = pred.mean("f"), pred.variance("f")
    found, sides = pred.quantile("square", PROBABILITIES), pred.quantile("side", PROBABILITIES)
    for at in range(2):
        chi = stats.ncx2(1, mean[at] ** 2 / variance[at], scale=variance[at])
        np.testing.assert_allclose(chi.cdf(found[2:, at]), PROBABILITIES[2:], atol=5e-3)  # two branches, each a grid
        below = stats.norm.cdf(0.2, mean[at], np.sqrt(variance[at]))
        np.testing.assert_array_equal(sides[:, at], np.where(np.array(PROBABILITIES) <= below, -1.0, 3.0))


def test_of_weighted_values() -> None:
    values, weights = np.array([[3.0, 1.0], [1.0, 5.0], [2.0, 4.0]]), np.array([0.2, 0.5, 0.3])
    np.testing.assert_array_equal(weighted_quantile(values, weights, 0.5), [1.0, 4.0])
    np.testing.assert_array_equal(weighted_quantile(values, weights, 0.51), [2.0, 5.0])
    z = np.linspace(-8, 8, 401)
    weights = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    smooth = [weighted_quantile(z[::-1, None], weights[::-1], p, smooth=True)[0] for p in (0.1, 0.5, 0.9)]
    np.testing.assert_allclose(smooth, stats.norm.ppf([0.1, 0.5, 0.9]), atol=1e-3)
    assert weighted_quantile(z[:, None], weights, 0.0, smooth=True)[0] == -8
    assert weighted_quantile(z[:, None], weights, 1.0, smooth=True)[0] > 7  # where all but 1e-12 lies below


@pytest.mark.slow
def test_a_root_of_the_average_is_found_by_another_method() -> None:
    """Student's t, whose quantile is a root of the averaged distribution function."""
    y = np.exp(np.sin(X))
    pred = gpdsl.compile(f"{HEAD}log(y) ~ StudentT(4, f, 0.3)\n").fit({"x": X, "y": y}, steps=5).predict(ROWS)
    mean, variance = pred.mean("f")[0], pred.variance("f")[0]
    expected = optimize.brentq(
        lambda v: averaged(mean, variance, lambda f: stats.t.cdf(v, 4, f, 0.3)) - 0.95, -20, 20, xtol=1e-13
    )
    assert np.log(pred.quantile("y", 0.95)[0]) == pytest.approx(expected, rel=1e-8)


def test_far_below_the_spread_of_a_long_tail() -> None:
    """Where nothing is known the latent is the prior: of exp(f) with f of sd 5 the sd is 1e11 times the median."""
    model = "input x : real\noutput y : positive\nlatent f(x) ~ GP(0, 25 * RBF(1))\ny ~ Gamma(2, 2*exp(-f))\n"
    found = gpdsl.compile(model).fit({"x": [0.0], "y": [1.0]}, steps=1).predict({"x": [1e3]}).quantile("y", [1e-4, 0.5])
    for p, each in zip([1e-4, 0.5], found[:, 0], strict=True):
        reached = averaged(0.0, 25.0, lambda f: stats.gamma.cdf(each, 2, scale=np.exp(f) / 2))  # noqa: B023
        assert reached == pytest.approx(p, rel=1e-6)


@pytest.mark.parametrize(
    ("cdf", "expected", "first"),
    [
        (stats.gamma(0.3).cdf, stats.gamma(0.3).ppf, (-1e11, 1e11)),
        (stats.t(1).cdf, stats.t(1).ppf, (-4.0, 4.0)),
        (stats.beta(0.1, 0.1).cdf, stats.beta(0.1, 0.1).ppf, (-1.0, 2.0)),
        (lambda y: np.where(y < 0, 0.0, stats.norm.cdf(y)), lambda p: max(stats.norm.ppf(p), 0.0), (-7.0, 4.0)),
    ],
)
@pytest.mark.parametrize("p", [1e-6, 0.05, 0.3, 0.7, 0.999])
def test_the_search_ends_at_the_place_whatever_the_bracket(
    cdf: Callable[[np.ndarray], np.ndarray], expected: Callable[[float], float], first: tuple[float, float], p: float
) -> None:
    low, high = (np.array([end]) for end in first)
    assert invert(cdf, p, low, high)[0] == pytest.approx(expected(p), rel=1e-11, abs=0.0)


@pytest.mark.slow
def test_of_what_rises_in_all_settings_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """With integrated parameters, also of one that the quantity reads: no search asks setting by setting."""
    model = gpdsl.compile("""
input x : real
output y : real
param m : real ~ Normal(0, 1)
param s : positive = 0.5 ~ HalfNormal(1)
latent f(x) ~ GP(0, RBF(1))
let rate = exp(f + m)
let rest = 1 - s * rate
y ~ Normal(f + m, s)
""")
    rows = {"x": np.array([1.3, 2.0, 6.0])}
    fit = model.fit({"x": X, "y": 1 + np.sin(X)}, hyperparameters="integrated", progress=False)
    beliefs = [each.beliefs.marginals for each in fit.predict(rows).settings]
    mean, sd = np.array([each.mean[0, 2, 0] for each in beliefs]), np.sqrt([each.variance[0, 2, 0] for each in beliefs])
    m, s = (np.array([float(each.parameters[name]) for each in fit.settings.each]) for name in "ms")

    def below(limit: np.ndarray) -> float:
        """P(rate < limit) in the last row, by the formula of each setting."""
        return float(fit.settings.weights @ stats.norm.cdf((np.log(limit) - m - mean) / sd))

    monkeypatch.setattr("gpdsl.results.averaged.Prediction", None)
    prediction = fit.predict(rows)
    with pytest.raises(gpdsl.GpdslError, match="strictly between 0 and 1, got 1"):
        prediction.quantile("rate", 1)
    assert below(prediction.quantile("rate", 0.3)[2]) == pytest.approx(0.3, abs=1e-7)
    assert below((1 - prediction.quantile("rest", 0.9)[2]) / s) == pytest.approx(0.1, abs=1e-7)
    whole = prediction.quantile("rate", [0.1, 0.9])
    monkeypatch.setattr("gpdsl.results.quantiles.AT_ONCE", 1)  # row by row
    np.testing.assert_allclose(prediction.quantile("rate", [0.1, 0.9]), whole, rtol=1e-12)


@pytest.mark.parametrize(
    ("law", "cdf"),
    [
        ("StudentT(4, f, 0.01)", lambda y, f: stats.t.cdf((y - f) / 0.01, 4)),
        ("Logistic(f^2, 0.1)", lambda y, f: stats.logistic.cdf((y - f**2) / 0.1)),
    ],
)
def test_narrow_laws_under_a_wide_latent(law: str, cdf: Callable[..., np.ndarray]) -> None:
    """As many nodes as it takes: with those of wide laws quantiles stand on a staircase, 6e-4 off."""
    text = f"input x : real\noutput y : real\nlatent f(x) ~ GP(0, 10 * RBF(1))\ny ~ {law}\n"
    data = {"x": np.linspace(0.0, 1.0, 3), "y": np.array([0.5, 1.0, 0.7])}
    prediction = unlearnt(text, data).predict({"x": [3.0]})
    z = np.linspace(-9.0, 9.0, 200_001)
    f = prediction.mean("f") + np.sqrt(prediction.variance("f")) * z
    weights = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    for p, found in zip(ps := [0.05, 0.3, 0.95], prediction.quantile("y", ps), strict=True):
        assert weights @ cdf(found, f) == pytest.approx(p, abs=1e-6)


SPREADING = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
latent g(x) ~ GP(-1, RBF(2))
y ~ Normal(0.3 + 2 * f, exp(g))
"""


@pytest.mark.parametrize("posterior", ["full", "coupled", "mixture(2)"])
def test_a_latent_that_is_linear_in_the_mean_is_averaged_over_exactly(posterior: str) -> None:
    x = np.linspace(0.0, 4.0, 12)
    y = np.sin(2 * x) + 0.3 * x * np.cos(9 * x)
    fit = unlearnt(SPREADING, {"x": x, "y": y}, posterior=posterior)
    prediction = fit.predict({"x": [0.7, 2.5, 6.0]})
    q = prediction.beliefs.marginals
    z, w = np.polynomial.hermite_e.hermegauss(150)
    w = w / w.sum()
    found = prediction.quantile("y", ps := [0.001, 0.3, 0.975])
    for row in range(3):

        def below(value: float, row: int = row) -> float:
            """Given g, f is normal; g by Gauss and Hermite."""
            total = 0.0
            for share, m, v, c in zip(prediction.beliefs.weights, q.mean, q.variance, _covariances(q), strict=True):
                sd = np.sqrt(v[row, 1])
                level, left = m[row, 0] + c[row] / sd * z, v[row, 0] - c[row] ** 2 / v[row, 1]
                spread = np.sqrt(4 * left + np.exp(2 * (m[row, 1] + sd * z)))
                total += share * (w @ stats.norm.cdf((value - 0.3 - 2 * level) / spread))
            return total

        for p, of_rows in zip(ps, found, strict=True):
            known = optimize.brentq(lambda v, p=p, below=below: below(v) - p, -40, 40, xtol=1e-12)
            np.testing.assert_allclose(of_rows[row], known, rtol=1e-7, atol=1e-9)


def _covariances(q: Any) -> np.ndarray:
    """Of f and g in every component and row."""
    return np.zeros(q.mean.shape[:2]) if q.covariance is None else np.asarray(q.covariance)[..., 0, 1]


@pytest.mark.parametrize(("kind", "law"), [("real", "StudentT(4, f, 0.3)"), ("count", "Poisson(exp(f))")])
def test_quantiles_of_many_settings_are_those_of_their_mixture(
    kind: str, law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a few settings of the most weight, by which a search begins, are not like the others."""
    text = f"input x : real\noutput y : {kind}\nparam m : real = 0\nlatent f(x) ~ GP(m, RBF(1))\ny ~ {law}\n"
    model, data = gpdsl.compile(text), {"x": np.linspace(0.0, 1.0, 3), "y": np.array([1.0, 2.0, 1.0])}
    rng, rows = np.random.default_rng(0), {"x": np.array([0.5, 3.0, 9.0])}
    fits = [model.fit(data, fixed=["m"], init={"m": float(m)}, steps=2, progress=False) for m in np.linspace(-2, 2, 4)]
    beliefs = [fit.predict(rows).beliefs for fit in fits] * 5
    monkeypatch.setattr("gpdsl.results.averaged.SOME", 4)
    weights = np.where(np.arange(20) % 4 == 1, 3.0, rng.random(20))
    prediction = Averaged(weights / weights.sum(), beliefs, "float64", fits[0].standardised, None)
    reached = functools.cache(lambda value: prediction.probability(f"y <= {value:.17g}"))  # counts come up again
    for p in (0.02, 0.5, 0.99):
        found = prediction.quantile("y", p)
        for row, value in enumerate(found):
            if kind == "real":
                assert reached(value)[row] == pytest.approx(p, abs=1e-10)
            else:
                assert reached(value)[row] >= p > reached(value - 1)[row]


def test_what_is_wide_beside_a_latent_is_looked_at_on_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, cdf = set[int](), conditional.cdf
    monkeypatch.setattr(conditional, "cdf", lambda *asked: (nodes.add(len(asked[0].leaves()[0])), cdf(*asked))[1])
    text = "input x : real\noutput y : count\nlatent f(x) ~ GP(-2, RBF(1))\ny ~ Poisson(exp(f))\n"
    fit = gpdsl.compile(text).fit({"x": [0.0, 1.0], "y": [1, 0]}, steps=2, progress=False)
    fit.predict(ROWS).quantile("y", 0.9)
    assert max(nodes) == 76


def test_a_search_among_whole_numbers_asks_four_times_of_neighbours_of_its_guess() -> None:
    asked, rate = list[np.ndarray](), np.array([3.0, 30.0, 300.0])
    right = stats.poisson.ppf(0.3, rate)

    def cdf(y: np.ndarray) -> np.ndarray:
        asked.append(y)
        return stats.poisson.cdf(y, rate)

    guess = right + [1.0, 0.0, -1.0]
    np.testing.assert_array_equal(invert(cdf, 0.3, guess, guess, discrete=True), right)
    assert len(asked) == 4


def test_one_setting_says_what_it_says_alone() -> None:
    text = (
        "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\nlet falling = 1 - exp(f)\ny ~ Normal(f, 0.3)\n"
    )
    fit = gpdsl.compile(text).fit({"x": X, "y": np.sin(X)}, steps=2, progress=False)
    alone = fit.predict(ROWS)
    prediction = Averaged(np.ones(1), [alone.beliefs], "float64", fit.standardised, None)
    for name in ("f", "falling", "y"):
        np.testing.assert_allclose(prediction.quantile(name, 0.1), alone.quantile(name, 0.1), rtol=1e-9)
