"""Moments of what is drawn against the model's own, by many rows or many draws. Bounds are five standard errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import gpdsl

from . import models

ERRORS = 5.0
"""A right draw exceeds five standard errors once in two million comparisons; the seeds are fixed besides."""


DRAWS = 4000


def many(text: str, latent: str) -> gpdsl.Model:
    """The model with `DRAWS` independent copies of its latent."""
    copied = text.replace(f"latent {latent}(", f"latent {latent}[copy](").replace(
        f"Normal({latent},", f"Normal({latent}[1],"
    )
    copied = copied.replace(f"D({latent},", f"D({latent}[1],")
    return gpdsl.compile(f"index copy in 1..{DRAWS}\n{copied}")


def assert_moments(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    n, variance = len(draws), np.diag(covariance)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < ERRORS * np.sqrt(variance / n))
    centred = draws - mean
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    assert np.all(np.abs(centred.T @ centred / n - covariance) < ERRORS * error)


def test_covariance_of_a_latent_at_fixed_inputs() -> None:
    x = np.array([-1.0, 0.0, 0.3, 2.0])
    draws = many(models.REGRESSION, "f").sample_prior(inputs={"x": x}).latents["f"].T
    expected = 2 * np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2 / 0.7**2)
    assert_moments(draws, np.ones(4), expected)


def test_values_and_derivatives_are_drawn_jointly() -> None:
    x = np.array([[-0.5, 0.0], [0.4, 1.0]])
    drawn = many(models.DERIVATIVE, "f").sample_prior(inputs={"x": x})
    draws = np.concatenate([drawn.latents["f"], drawn.functionals["D(f, x[1])"]]).T
    gap = x[:, None, 0] - x[None, :, 0]
    k = 2 * np.exp(-0.5 * np.sum((x[:, None] - x[None, :]) ** 2, axis=-1))
    expected = np.block([[k, k * gap], [-k * gap, k * (1 - gap**2)]])
    assert_moments(draws, np.concatenate([x[:, 0] ** 2 + 1, 2 * x[:, 0]]), expected)


def test_a_latent_at_two_inputs_is_one_function() -> None:
    a = np.array([[0.0, 0.0], [1.0, 2.0]])
    drawn = gpdsl.compile(models.PREFERENCE).sample_prior(inputs={"a": a, "b": a[::-1]}, seed=3)
    np.testing.assert_allclose(drawn.latents["f"], drawn.functionals["f(b)"][::-1], atol=1e-3)


def test_layers_are_drawn_over_layers() -> None:
    """Conditionally on the inner layer, the outer one is a Gaussian process over its values."""
    drawn = gpdsl.compile(models.DEEP).sample_prior(rows=300, seed=1)
    inner, outer = drawn.latents["g"], drawn.latents["f"]
    k = np.exp(-0.5 * np.sum((inner[:, None] - inner[None, :]) ** 2, axis=-1)) + 1e-8 * np.eye(300)
    whitened = np.linalg.solve(np.linalg.cholesky(k), outer)
    assert stats.kstest(whitened[:150], "norm").pvalue > 1e-3


@pytest.mark.parametrize(
    ("kind", "right", "law"),
    [
        ("count", "Poisson(3)", stats.poisson(3)),
        ("count", "NegativeBinomial(3, 2)", stats.nbinom(2, 2 / 5)),
        ("count", "Binomial(7, p = 0.3)", stats.binom(7, 0.3)),
        ("real", "StudentT(5, 1, 2)", stats.t(5, 1, 2)),
        ("real", "Laplace(1, 2)", stats.laplace(1, 2)),
        ("positive", "Gamma(3, 2)", stats.gamma(3, scale=0.5)),
        ("positive", "Weibull(2, 3)", stats.weibull_min(2, scale=3)),
        ("positive", "LogNormal(0, 0.5)", stats.lognorm(0.5)),
        ("positive", "Exponential(2)", stats.expon(scale=0.5)),
        ("positive", "Truncated(Normal(1, 1), lower = 0)", stats.truncnorm(-1, np.inf, 1, 1)),
    ],
)
def test_outputs_have_their_distribution(kind: str, right: str, law: stats.rv_continuous) -> None:
    text = f"input x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, RBF(1))\ny ~ {right}\n"
    y = gpdsl.compile(text).sample_prior(rows=2000, seed=2).data["y"]
    n = len(y)
    assert abs(y.mean() - law.mean()) < ERRORS * law.std() / np.sqrt(n)
    values = np.quantile(y, [0.2, 0.5, 0.9])
    for value in np.floor(values) if kind == "count" else values:
        p = law.cdf(value)
        assert abs(np.mean(y <= value) - p) < ERRORS * np.sqrt(p * (1 - p) / n) + 1e-9


@pytest.mark.parametrize(
    ("kind", "formula", "law"),
    [
        ("real", "-abs(y - 1000) / 0.01", stats.laplace(1000, 0.01)),
        ("real", "-2 * log(1 + (y - 2)^2 / 3)", stats.t(3, 2)),
        ("real", "log(exp(-(y + 4)^2) + exp(-(y - 4)^2))", None),
        ("positive", "log(y) - 2 * y", stats.gamma(2, scale=0.5)),
        ("count", "y * log(30) - lgamma(y + 1)", stats.poisson(30)),
        ("count", "y * log(400) - lgamma(y + 1)", stats.poisson(400)),
        ("binary", "y * log(3)", stats.bernoulli(0.75)),
    ],
)
def test_densities_by_formula_are_drawn(kind: str, formula: str, law: stats.rv_continuous | None) -> None:
    text = (
        (f"input x : real\noutput y : {kind}\ndensity d(y |) = {formula}\nlatent f(x) ~ GP(0, RBF(1))\ny ~ d()\n")
        .replace("(y |)", "(y | m)")
        .replace("d()", "d(f)")
    )
    y = gpdsl.compile(text).sample_prior(rows=2000, seed=4).data["y"]
    if law is None:
        assert abs(np.mean(y > 0) - 0.5) < ERRORS * 0.5 / np.sqrt(len(y))
        assert abs(np.abs(y).mean() - 4) < ERRORS * np.sqrt(0.5 / len(y))
    elif kind in ("real", "positive"):
        assert stats.kstest(y, law.cdf).pvalue > 1e-4
    else:
        assert abs(y.mean() - law.mean()) < ERRORS * law.std() / np.sqrt(len(y))
        assert abs(y.std() / law.std() - 1) < 0.2


def test_a_transformed_output_satisfies_its_equation() -> None:
    drawn = gpdsl.compile(models.WARPED).sample_prior(rows=500, seed=1)
    y = drawn.data["y"]
    assert np.all(y > 0)
    residual = (np.log(y) + np.tanh(y) - drawn.latents["f"]) / 0.1
    assert stats.kstest(residual, "norm").pvalue > 1e-3


def test_outputs_follow_the_outputs_they_depend_on() -> None:
    drawn = gpdsl.compile(models.CHAINED).sample_prior(rows=500, seed=1)
    t, f = drawn.data["t"], drawn.latents["f"]
    steps = np.diff(np.concatenate([np.zeros((500, 1)), t], axis=1), axis=1)
    assert stats.kstest(((steps - f) / 0.1).ravel(), "norm").pvalue > 1e-3


GIVEN = np.array([[1, 0.5, 0], [0.5, 1, 0], [0, 0, 2]])


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("covariance = S", GIVEN),
        ("factor = S", GIVEN @ GIVEN.T),
        ("factor = S, sd = d", GIVEN @ GIVEN.T + np.diag([0.25, 1, 4])),
    ],
)
def test_vectors_have_their_covariance(argument: str, expected: np.ndarray) -> None:
    text = models.VECTOR.replace("covariance = S", argument) + "const d[p] = [0.5, 1, 2]\n"
    drawn = gpdsl.compile(text).sample_prior(rows=2000, seed=1)
    assert_moments(drawn.data["y"] - drawn.latents["f"], np.zeros(3), expected)


def test_levels_have_their_probabilities() -> None:
    flat = models.ORDINAL.replace("probit = f", "probit = 0.5")
    y = gpdsl.compile(flat).sample_prior(rows=2000, seed=1).data["y"]
    chances = np.diff(stats.norm.cdf([-np.inf, -1.5, -0.5, 0.5, np.inf]))
    found = np.array([np.mean(y == level) for level in (1, 2, 3, 4)])
    assert np.all(np.abs(found - chances) < ERRORS * np.sqrt(chances / len(y)))


def test_recursion_deeper_than_the_stack() -> None:
    drawn = gpdsl.compile(models.RECURSION.replace("400", "3000")).sample_prior(rows=3, seed=1)
    a, p = drawn.lets["a"], np.arange(2, 3001)
    np.testing.assert_allclose(a[:, 0], drawn.latents["f"])
    np.testing.assert_allclose(a[:, 1:], 0.5 * a[:, :-1] + p)


def test_priors_are_drawn_inside_their_domains() -> None:
    model = gpdsl.compile(models.PRIORS)
    draws = [model.sample_prior(rows=2, seed=seed, draw_parameters=True).parameters for seed in range(200)]
    w, o = np.array([each["w"] for each in draws]), np.array([each["o"] for each in draws])
    s, rho = np.array([each["s"] for each in draws]), np.array([each["rho"] for each in draws])
    np.testing.assert_allclose(w.sum(axis=1), 1)
    assert np.all(w > 0) and np.all(np.diff(o, axis=1) > 0) and np.all(s > 0) and np.all(np.abs(rho) < 0.1)
    law = stats.truncnorm(-1, np.inf, 1, 1)
    assert abs(s.mean() - law.mean()) < ERRORS * law.std() / np.sqrt(len(s))
    assert abs(w[:, 0].mean() - 1 / 3) < ERRORS * np.sqrt(2 / 9 / 7 / len(w))


def test_an_opaque_model_is_called_once_on_the_drawn_latents() -> None:
    calls = []

    def solver(f: np.ndarray) -> np.ndarray:
        calls.append(f)
        return np.cumsum(f, axis=1) ** 2

    model = gpdsl.compile(models.EXTERNAL, externals={"solver": solver})
    drawn = model.sample_prior(rows=40, seed=5)
    assert len(calls) == 1
    np.testing.assert_array_equal(calls[0], drawn.latents["f"])
    np.testing.assert_allclose(drawn.lets["tau"], np.cumsum(drawn.latents["f"], axis=1) ** 2)
    assert np.std(drawn.data["t"] - drawn.lets["tau"]) == pytest.approx(0.01, rel=0.3)


def test_long_vectors_are_drawn_inside_their_domains() -> None:
    """Element by element: of 400 that are positive with a probability of 0.58, all are never at once."""
    text = "index k in 1..400\noutput y : real\nparam a[k] : positive ~ Normal(0.2, 1)\ny ~ Normal(sum(k, a[k]), 1)\n"
    drawn = gpdsl.compile(text).sample_prior(rows=2, draw_parameters=True).parameters["a"]
    law = stats.truncnorm(-0.2, np.inf, 0.2, 1)
    assert drawn.shape == (400,)
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-3
