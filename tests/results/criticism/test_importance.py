"""Effective parameters, and q against the posterior, beside NumPy and quadrature."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import gpdsl
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.program.cache import precision
from gpdsl.results.criticism import importance
from gpdsl.results.criticism.finding import Finding
from gpdsl.results.criticism.left_out import fitted_rows
from gpdsl.results.criticism.places import values_seen
from gpdsl.results.criticism.seen import Seen
from tests.inference.problems import looked_at, unlearnt

RNG = np.random.default_rng(8)
X = np.linspace(0, 6, 30)
Y = np.sin(2 * X) + 0.2 * RNG.standard_normal(30)
REGRESSION = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.2)\n"
COUNT = "input x : real\noutput n : count\nlatent f(x) ~ GP(0, RBF(1))\nn ~ Poisson(f^2 + 0.01)\n"


def named(fit: gpdsl.Fit, name: str) -> Finding:
    (found,) = (each for each in fit.diagnose() if each.name == name)
    return found


@pytest.mark.parametrize("options", [{}, {"optimizer": "natural"}])
def test_effective_parameters_are_the_trace_of_the_smoother(options: dict[str, str]) -> None:
    fit = gpdsl.compile(REGRESSION).fit({"x": X, "y": Y}, **options)
    covariance = np.exp(-0.5 * (X[:, None] - X) ** 2)
    smoother = covariance @ np.linalg.inv(covariance + 0.04 * np.eye(30))
    assert named(fit, "effective parameters").number == pytest.approx(np.trace(smoother), rel=1e-5)


def test_values_are_placed_in_what_all_others_say_of_them() -> None:
    """By leaving out each value, by hand."""
    fit = gpdsl.compile(REGRESSION).fit({"x": X, "y": Y})
    covariance, places = np.exp(-0.5 * (X[:, None] - X) ** 2), []
    for i in range(30):
        rest = np.delete(np.arange(30), i)
        weights = np.linalg.solve(covariance[np.ix_(rest, rest)] + 0.04 * np.eye(29), covariance[rest, i])
        places.append((Y[i] - weights @ Y[rest]) / np.sqrt(1.04 - weights @ covariance[rest, i]))
    p = min(stats.kstest(stats.norm.cdf(places), "uniform").pvalue, stats.shapiro(places).pvalue)
    assert named(fit, "calibration").number == pytest.approx(p, rel=1e-4)


@pytest.mark.parametrize(
    ("count", "two_modes", "rows"),
    [pytest.param(30.0, True, 1, marks=pytest.mark.slow), (0.0, False, 1), (30.0, True, 3)],
)
def test_the_gap_of_the_bound_is_that_of_quadrature(count: float, two_modes: bool, rows: int) -> None:
    """Of rows whose square a count tells, which one point determines: with two modes the gap is ln 2 and what each
    mode lacks."""
    data = {"x": 1e-5 * np.arange(rows), "n": np.full(rows, count)}
    fit = gpdsl.compile(COUNT).fit(data, diagnose="no", tolerance=1e-10)

    def joint(f: float) -> float:
        return float(stats.poisson.pmf(count, f**2 + 0.01) ** rows * stats.norm.pdf(f))

    half = integrate.quad(joint, 0, 12)[0]  # draws of q see the mode that it is at
    evidence = np.log(half if two_modes else 2 * half)
    told = looked_at(fit, data, "symmetry", "q against the posterior")
    found = told["q against the posterior"]
    exact = found.said == "it is the posterior: all draws of it have one weight"  # of no counts
    gap = 0.0 if exact else float(found.said.split("about ")[1].split(" nats")[0])
    assert exact is (count == 0) and gap == pytest.approx(evidence - fit.elbo, abs=0.05)
    assert told["symmetry"].doubtful


@pytest.mark.parametrize(
    ("likelihood", "doubtful"),
    [("Normal(max(f, g), 0.3)", True), pytest.param("StudentT(4, f + g, 0.3)", False, marks=pytest.mark.slow)],
)
def test_few_rows_are_doubted_by_the_gap_itself(likelihood: str, doubtful: bool) -> None:
    """The larger of two latents has half of its standard deviations, and k does not say so."""
    text = f"""
    input x : real
    output y : real
    latent f(x) ~ GP(0, RBF(1))
    latent g(x) ~ GP(0, RBF(1))
    y ~ {likelihood}
    """
    data = {"x": np.array([-1.0, -0.4, 0.1, 0.6, 1.3]), "y": np.array([1.2, 0.9, 1.5, 1.1, 0.3])}
    found = named(gpdsl.compile(text).fit(data, diagnose="full"), "q against the posterior")
    assert found.number < 0.7 and found.doubtful is doubtful
    assert "mixture_full(2) may come nearer" in found.remedy  # it leaves their correlation out


def test_draws_of_values_that_depend_on_each_other_have_their_covariance_and_density() -> None:
    """Of two latents in one group and one in another, with a root of three columns for all."""
    root, mean = np.tril(np.random.default_rng(0).normal(size=(5, 5))) + 2 * np.eye(5), np.arange(5.0) / 5
    groups = [
        (mean[:4].reshape(1, 2, 2), root[:4].reshape(1, 2, 2, 5)),
        (mean[4:].reshape(1, 1, 1), root[4:].reshape(1, 1, 1, 5)),
    ]
    posterior = [Whitened(*each) for each in groups]
    fit: Any = SimpleNamespace(at_rows=SimpleNamespace(independent=False), posterior=posterior)
    (whole,) = importance._roots(fit)
    np.testing.assert_array_equal(whole, root)
    found = importance._drawn(fit)
    assert found is not None
    w = np.concatenate([each.reshape(len(each), -1) for each in found[0]], axis=1)
    expected = stats.multivariate_normal(mean, root @ root.T).logpdf(w)
    np.testing.assert_allclose(found[1], stats.norm.logpdf(w).sum(axis=1) - expected, atol=1e-8)
    np.testing.assert_allclose(np.cov(w.T), root @ root.T, atol=0.2 * np.abs(root @ root.T).max())


def test_what_q_says_of_white_noise_at_its_rows_is_not_drawn_anew() -> None:
    """Counts with a value of each row: densities of draws by dense algebra, and no word on values without it."""
    x, rng = np.linspace(0, 4, 10), np.random.default_rng(0)
    data = {"x": x, "n": rng.poisson(3.0, 10)}
    text = "input x : real\noutput n : count\nlatent f(x) ~ GP(1, RBF(1) + 0.7 * White())\nn ~ Poisson(exp(f))"
    fit = unlearnt(text, data)
    seen, white = Seen(fit, fitted_rows(fit, data, "")), rng.standard_normal((3, 10))
    covariance = np.exp(-0.5 * (x[:, None] - x) ** 2) + 0.7 * np.eye(10)
    f = 1 + white @ np.linalg.cholesky(covariance).T
    expected = stats.poisson.logpmf(data["n"], np.exp(f)).sum(axis=1)
    with precision("float64"):
        found = importance._likelihoods(fit, seen.data, [white[:, None, None]])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert list(values_seen(fit, seen)) == []


def test_what_holds_in_all_rows_is_no_draw() -> None:
    """Values that were rounded are ones whose chance is that of their intervals: neighbours were told to miss alike."""
    for y in (np.ones(30), np.arange(30) % 2):
        fit = unlearnt(
            "input x : real\noutput y : binary\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Bernoulli(logit = f)", {"x": X, "y": y}
        )
        with precision("float64"):
            found = list(values_seen(fit, Seen(fit, fitted_rows(fit, {"x": X, "y": y}, ""))))
        assert bool(found) == (np.ptp(y) > 0)
