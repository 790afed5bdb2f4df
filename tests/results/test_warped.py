"""Warped Gaussian processes against a dense reference: log marginal likelihood, its optimum, and predictions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq, minimize

import gpdsl

MODEL = """model warped "a Gaussian process of tanh steps (Snelson et al., 2003)"
index i in 1..2
input x : real
output y : real
param a[i] : positive = 0.5
param b[i] : positive = [1, 0.6]{fixed}
param c[i] : real = [0, 0.5]{fixed}
param ell : positive = 1
param s2 : positive = 1
param sigma : positive = 0.3
latent f(x) ~ GP(0, s2 * RBF(ell))
function warp(y; a, b, c) = y + sum(i, a[i]*tanh(b[i]*(y + c[i])))
warp(y) ~ Normal(f, sigma)
"""


def warp(p: Mapping[str, np.ndarray], y: np.ndarray) -> np.ndarray:
    return y + sum(p["a"][i] * np.tanh(p["b"][i] * (y + p["c"][i])) for i in range(2))


def slope(p: Mapping[str, np.ndarray], y: np.ndarray) -> np.ndarray:
    return 1 + sum(p["a"][i] * p["b"][i] * (1 - np.tanh(p["b"][i] * (y + p["c"][i])) ** 2) for i in range(2))


def log_marginal(p: Mapping[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
    """GP on t(y), and sum log t'(y)."""
    covariance = p["s2"] * np.exp(-0.5 * (x[:, None] - x) ** 2 / p["ell"] ** 2) + p["sigma"] ** 2 * np.eye(len(x))
    normal = stats.multivariate_normal(np.zeros(len(x)), covariance)
    return float(normal.logpdf(warp(p, y)) + np.log(slope(p, y)).sum())


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    x = np.sort(rng.uniform(0, 6, 25))
    return x, np.sinh(1.5 * np.sin(x) + 0.2 * rng.standard_normal(25))


@pytest.fixture(scope="module")
def fitted() -> gpdsl.Fit:
    x, y = data()
    return gpdsl.compile(MODEL.format(fixed=" fixed")).fit({"x": x, "y": y})


def test_the_bound_is_the_log_marginal_likelihood(fitted: gpdsl.Fit) -> None:
    np.testing.assert_allclose(fitted.elbo, log_marginal(fitted.parameters, *data()), atol=1e-6)


def test_the_fit_is_the_optimum_of_the_dense_reference(fitted: gpdsl.Fit) -> None:
    held = {name: fitted.parameters[name] for name in ("b", "c")}

    def unpack(u: np.ndarray) -> dict[str, np.ndarray]:
        return held | {"a": np.exp(u[:2]), "ell": np.exp(u[2]), "s2": np.exp(u[3]), "sigma": np.exp(u[4])}

    start = np.log([0.5, 0.5, 1.0, 1.0, 0.3])
    best = minimize(lambda u: -log_marginal(unpack(u), *data()), start, method="L-BFGS-B", bounds=[(-9, 9)] * 5)
    assert fitted.elbo > -best.fun - 1e-4


def test_predictions_are_those_of_the_base_taken_back(fitted: gpdsl.Fit) -> None:
    p, rows = fitted.parameters, np.linspace(0, 7, 6)
    pred = fitted.predict({"x": rows})
    mean, sd = pred.mean("f"), np.sqrt(pred.variance("f") + p["sigma"] ** 2)
    several = np.array([0.001, 0.05, 0.5, 0.999])
    quantiles = pred.quantile("y", several)
    np.testing.assert_allclose(warp(p, quantiles), mean + sd * stats.norm.ppf(several)[:, None], atol=1e-10)
    z = np.linspace(-9, 9, 721)
    weights = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    targets = mean[:, None] + sd[:, None] * z
    back = np.vectorize(lambda at: brentq(lambda v: warp(p, v) - at, -99, 99, xtol=1e-14))(targets)
    expected = back @ weights
    np.testing.assert_allclose(pred.mean("y"), expected, atol=1e-9)
    np.testing.assert_allclose(pred.variance("y"), ((back - expected[:, None]) ** 2) @ weights, atol=1e-9)
    draws = pred.sample("y", 20_000, seed=2)
    fair = [stats.kstest(warp(p, draws[:, k]), stats.norm(mean[k], sd[k]).cdf).pvalue for k in range(6)]
    assert min(fair) > 1e-4  # six tests: a false alarm in about 1,700 seeds


def test_log_predictive_density_has_the_jacobian(fitted: gpdsl.Fit) -> None:
    p, rows, y = fitted.parameters, np.linspace(0, 7, 6), np.linspace(-3, 3, 6)
    pred = fitted.predict({"x": rows})
    sd = np.sqrt(pred.variance("f") + p["sigma"] ** 2)
    expected = stats.norm.logpdf(warp(p, y), pred.mean("f"), sd) + np.log(slope(p, y))
    np.testing.assert_allclose(fitted.log_predictive_density({"x": rows, "y": y}), expected, atol=1e-9)


def simple(left: str, kind: str, distribution: str) -> gpdsl.Fit:
    rng = np.random.default_rng(0)
    x = np.linspace(0, 4, 15)
    y = np.exp(np.sin(x) + 0.2 * rng.standard_normal(15))
    head = f"input x : real\noutput y : {kind}\nparam s : positive = 0.3\nlatent f(x) ~ GP(0, RBF(1))\n"
    return gpdsl.compile(f"{head}{left} ~ {distribution}\n").fit({"x": x, "y": y})


def test_the_log_of_a_normal_is_a_log_normal() -> None:
    warped, direct = simple("log(y)", "positive", "Normal(f, s)"), simple("y", "positive", "LogNormal(f, s)")
    np.testing.assert_allclose(warped.elbo, direct.elbo, atol=1e-8)
    a, b = (fit.predict({"x": np.linspace(0, 5, 4)}) for fit in (warped, direct))
    np.testing.assert_allclose(a.mean("y"), b.mean("y"), rtol=1e-6)
    np.testing.assert_allclose(a.variance("y"), b.variance("y"), rtol=1e-6)
    np.testing.assert_allclose(a.quantile("y", [0.1, 0.9]), b.quantile("y", [0.1, 0.9]), rtol=1e-3)


@pytest.mark.slow
def test_a_decreasing_transform_and_one_of_a_heavy_tail() -> None:
    up, down = simple("log(y)", "positive", "Normal(f, s)"), simple("-log(y)", "positive", "Normal(-f, s)")
    np.testing.assert_allclose(up.elbo, down.elbo, atol=1e-8)
    rows = {"x": np.linspace(0, 5, 4)}
    np.testing.assert_allclose(up.predict(rows).quantile("y", 0.2), down.predict(rows).quantile("y", 0.2), rtol=1e-8)
    heavy = simple("log(y)", "positive", "StudentT(4, f, s)").predict(rows)
    np.testing.assert_allclose(heavy.quantile("y", 0.5), np.exp(heavy.mean("f")), rtol=1e-4)


def test_a_transform_that_is_only_tried_says_so() -> None:
    x = np.linspace(0, 3, 8)
    text = "input x : real\noutput y : positive\nparam r : real = 0.5\nparam s : positive = 1\nlatent f(x) ~ GP(0, RBF(1))\n"  # noqa: E501
    plan = gpdsl.compile(text + "(y^r - 1)/r - 1/y ~ Normal(f, s)\n").explain({"x": x, "y": x + 1})
    assert "tried, not proved" in plan
    assert "increasing whatever the parameters" in gpdsl.compile(text + "y^s - 1/y ~ Normal(f, s)\n").explain(
        {"x": x, "y": x + 1}
    )


def test_a_transform_without_derivative_is_refused() -> None:
    text = "input x : real\noutput y : positive\nlatent f(x) ~ GP(0, RBF(1))\n"
    text += "lgamma(y + 2) ~ Truncated(Normal(f, 1), lower = 0)\n"
    with pytest.raises(gpdsl.ModelError, match="E530"):
        gpdsl.compile(text).explain({"x": np.arange(3.0), "y": np.arange(1.0, 4.0)})


CENSORED = "Censored(Normal(f, 0.3), lower = 0.3, upper = 1.4)"


@pytest.mark.parametrize(("left", "sign"), [("log(y)", 1.0), pytest.param("-log(y)", -1.0, marks=pytest.mark.slow)])
def test_the_bounds_of_a_censored_transform_have_probability_and_no_jacobian(left: str, sign: float) -> None:
    """At them log Phi alone, between them the density of t(y) times |dt/dy|; exp(0.3) comes back as 0.3 rounded."""
    rng, x = np.random.default_rng(0), np.linspace(0, 4, 12)
    t = np.clip(1 + np.sin(x) + 0.3 * rng.standard_normal(12), 0.3, 1.4)
    y, inside = np.exp(sign * t), (t > 0.3) & (t < 1.4)
    head = "input x : real\noutput y : {}\nlatent f(x) ~ GP(0, RBF(1))\n"
    fit = gpdsl.compile(f"{head.format('positive')}{left} ~ {CENSORED}\n").fit({"x": x, "y": y}, steps=5)
    pred = fit.predict({"x": x})
    base = stats.norm(pred.mean("f"), np.sqrt(pred.variance("f") + 0.09))
    expected = np.where(t == 0.3, base.logcdf(t), np.where(t == 1.4, base.logsf(t), base.logpdf(t) - np.log(y)))
    assert 0 < inside.sum() < 12
    np.testing.assert_allclose(fit.log_predictive_density({"x": x, "y": y}), expected, atol=1e-9)
    plain = gpdsl.compile(f"{head.format('real')}y ~ {CENSORED}\n").fit({"x": x, "y": t}, steps=5)
    np.testing.assert_allclose(fit.elbo, plain.elbo - np.log(y[inside]).sum(), atol=1e-6)


def test_a_value_whose_transform_lies_beyond_a_bound_is_named() -> None:
    model = gpdsl.compile(f"input x : real\noutput y : positive\nlatent f(x) ~ GP(0, RBF(1))\nlog(y) ~ {CENSORED}\n")
    with pytest.raises(gpdsl.GpdslError, match=r"row 2: 5, transformed, lies above 1.4, the upper bound"):
        model.fit({"x": np.arange(3.0), "y": [2.0, 5.0, 3.0]})
