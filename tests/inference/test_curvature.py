"""Standard errors of learnt parameters against dense Hessians of the evidence, in NumPy alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import gpdsl
from tests.inference.problems import unlearnt

RNG = np.random.default_rng(5)
X = np.sort(RNG.uniform(0, 5, 30))
Y = np.sin(2 * X) + 0.2 * RNG.standard_normal(30)
REGRESSION = """
input x : real
output y : real
param s2 : positive
param ell : positive ~ LogNormal(0, 1)
param sigma : positive
param m : real
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Normal(f + m, sigma)
"""


def hessian(function, at: np.ndarray, step: float = 1e-4) -> np.ndarray:
    """By differences of values."""
    units, size = step * np.eye(len(at)), len(at)
    found = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            corners = [a * b * function(at + a * units[i] + b * units[j]) for a in (-1, 1) for b in (-1, 1)]
            found[i, j] = sum(corners) / (4 * step**2)
    return found


def evidence(theta: np.ndarray) -> float:
    """log p(y | theta) + log p(ell), theta = (s2, ell, sigma, m)."""
    s2, ell, sigma, m = theta
    covariance = s2 * np.exp(-0.5 * (X[:, None] - X) ** 2 / ell**2) + sigma**2 * np.eye(30)
    rest = Y - m
    log_prior = -0.5 * np.log(ell) ** 2 - np.log(ell) - 0.5 * np.log(2 * np.pi)
    quadratic = rest @ np.linalg.solve(covariance, rest)
    return float(-0.5 * quadratic - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1] + log_prior)


def test_errors_are_those_of_the_exact_evidence_with_its_priors() -> None:
    fit = gpdsl.compile(REGRESSION).fit({"x": X, "y": Y}, tolerance=1e-12)
    at = np.array([float(fit.parameters[name]) for name in ("s2", "ell", "sigma", "m")])
    expected = np.sqrt(np.diag(np.linalg.inv(-hessian(evidence, at))))
    found = [float(fit.standard_errors[name]) for name in ("s2", "ell", "sigma", "m")]
    np.testing.assert_allclose(found, expected, rtol=4e-3)  # differences to one side, of a thousandth


COUNTS = """
input x : real
output n : count
param m : real
param s2 : positive
latent f(x) ~ GP(0, s2 * RBF(1))
n ~ Poisson(exp(f + m))
"""


def test_errors_are_those_of_the_bound_maximised_over_q() -> None:
    """A bound whose q stays would be steeper: its own errors are a third smaller here."""
    x, rng = np.linspace(0, 4, 8), np.random.default_rng(1)
    n = rng.poisson(np.exp(2 + 1.5 * np.sin(2 * x)))
    fit = gpdsl.compile(COUNTS).fit({"x": x, "n": n}, tolerance=1e-12)
    covariance = np.exp(-0.5 * (x[:, None] - x) ** 2) + fit.jitter * np.eye(8)

    def bound(u: np.ndarray) -> float:
        """Over mean K a and precision K^-1 + diag(lambda): the best q of Poisson counts has this form."""
        m, prior = u[0], np.exp(u[1]) * covariance

        def negative(v: np.ndarray) -> float:
            inverse = np.linalg.inv(np.linalg.inv(prior) + np.diag(np.exp(v[8:])))
            mean, variance = prior @ v[:8], np.diag(inverse)
            likely = np.sum(n * (mean + m) - np.exp(mean + m + variance / 2))
            kl = 0.5 * (np.trace(np.linalg.solve(prior, inverse)) + v[:8] @ mean - 8)
            return -likely + kl + 0.5 * (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(inverse)[1])

        return -float(minimize(negative, np.zeros(16), method="BFGS", options={"gtol": 1e-7}).fun)

    at = np.array([float(fit.parameters["m"]), np.log(float(fit.parameters["s2"]))])
    expected = np.sqrt(np.diag(np.linalg.inv(-hessian(bound, at, 0.03)))) * [1.0, np.exp(at[1])]
    found = [float(fit.standard_errors[name]) for name in ("m", "s2")]
    np.testing.assert_allclose(found, expected, rtol=0.01)


def test_elements_of_arrays_and_simplices_have_errors_of_their_own() -> None:
    text = """
    index p in 1..2
    index k in 1..2
    input x : real
    output y[p] : real
    param w[k] : simplex
    param sigma[p] : positive
    latent f(x) ~ GP(0, RBF(1))
    y[p] ~ Normal(w[1] * f, sigma[p])
    """
    y = np.stack([0.5 * Y, Y + RNG.standard_normal(30)], axis=1)
    fit = gpdsl.compile(text).fit({"x": X, "y": y})
    errors = fit.standard_errors
    assert errors["sigma"].shape == errors["w"].shape == (2,)
    assert errors["w"][0] == pytest.approx(errors["w"][1])  # they add up to one
    assert np.all(errors["sigma"] / fit.parameters["sigma"] == pytest.approx(1 / np.sqrt(60), rel=0.4))


def test_what_the_data_do_not_determine_is_named() -> None:
    text = REGRESSION.replace("f + m", "f + m + c").replace("param m", "param c : real\nparam m")
    fit = gpdsl.compile(text).fit({"x": X, "y": Y})
    (flat,) = fit.diagnose().doubtful
    assert flat.name == "parameters"
    assert "`c` and `m` are confounded: moved against each other" in flat.said.replace("`m` and `c`", "`c` and `m`")
    assert np.isinf(fit.standard_errors["c"])
    assert np.isfinite(fit.standard_errors["sigma"])
    assert " ± ?" in fit.summary()
    assert "1 doubtful" in fit.summary()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"posterior": "diagonal", "inducing": 5}, "moves q and parameters together"),
        ({"fixed": ["s2", "m"], "init": {"s2": 1.0, "m": 1.0}}, "nothing was learnt"),
        ({"diagnose": "no"}, "diagnose = no"),
    ],
)
def test_there_are_errors_or_a_reason(options: dict, reason: str) -> None:
    fit = unlearnt(COUNTS, {"x": X[:8], "n": np.arange(8)}, **options)
    assert not fit.standard_errors
    assert reason in fit.inspection.lacking
    assert f"parameters (no standard errors: {fit.inspection.lacking})" in fit.summary()


def test_errors_and_findings_are_saved(tmp_path) -> None:
    fit = gpdsl.compile(REGRESSION).fit({"x": X, "y": Y})
    fit.save(tmp_path / "a.gpfit")
    loaded = gpdsl.load_fit(tmp_path / "a.gpfit")
    assert loaded.summary() == fit.summary()
    assert loaded.diagnose().findings == fit.diagnose().findings
    frame = loaded.to_frame()
    assert list(frame["standard_error"]) == [float(fit.standard_errors[name]) for name in frame["parameter"]]
