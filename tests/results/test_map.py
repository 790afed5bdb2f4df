"""A prior of a parameter: the fit is the mode of evidence times prior, in the parameter itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

import gpdsl

MODEL = """input x : real
output y : real
param s : positive = 0.5 ~ Gamma(30, 20)
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(f, s)
"""


def test_the_fit_is_the_mode_without_a_jacobian() -> None:
    rng = np.random.default_rng(5)
    x = np.linspace(0, 4, 12)
    y = np.sin(x) + 0.3 * rng.standard_normal(12)
    gram = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-8 * np.eye(12)

    def target(s: float, jacobian: float = 0.0) -> float:
        evidence = stats.multivariate_normal.logpdf(y, np.zeros(12), gram + s**2 * np.eye(12))
        return -(evidence + stats.gamma.logpdf(s, 30, scale=1 / 20) + jacobian * np.log(s))

    found = gpdsl.compile(MODEL).fit({"x": x, "y": y})
    best = optimize.minimize_scalar(target, bounds=(0.1, 3), method="bounded", options={"xatol": 1e-10})
    moved = optimize.minimize_scalar(lambda s: target(s, 1.0), bounds=(0.1, 3), method="bounded")
    assert abs(moved.x - best.x) > 0.01  # what a Jacobian would do would be seen
    assert float(found.parameters["s"]) == pytest.approx(best.x, rel=1e-4)
    assert found.elbo == pytest.approx(-best.fun, abs=1e-6)


COUNTS = """input x : real
output n : count
param ell : positive = 1{prior}
latent f(x) ~ GP(0, RBF(ell))
n ~ Poisson(exp(f))
"""


def _counts() -> dict[str, np.ndarray]:
    x = np.linspace(0, 5, 15)
    return {"x": x, "n": np.random.default_rng(1).poisson(np.exp(np.sin(2 * x)))}


def test_the_bound_without_the_prior_is_that_of_the_model_without_one(tmp_path: Path) -> None:
    data, model = _counts(), gpdsl.compile(COUNTS.format(prior=" ~ Gamma(30, 20)"))
    fit = model.fit(data)
    ell = float(fit.parameters["ell"])
    plain = gpdsl.compile(COUNTS.format(prior="")).fit(data, init={"ell": ell}, fixed=["ell"])
    assert plain.log_evidence_bound == plain.elbo
    assert fit.log_evidence_bound == pytest.approx(plain.elbo, abs=1e-5)
    assert fit.elbo == pytest.approx(fit.log_evidence_bound + stats.gamma.logpdf(ell, 30, scale=1 / 20), abs=1e-9)
    summary = fit.summary()
    assert f"elbo        {fit.elbo:.4f} nats, of which {fit.log_prior:.4f} are the log prior of parameters" in summary
    assert f"bound       {fit.log_evidence_bound:.4f} nats, of the log evidence at these parameters" in summary
    assert "bound" not in plain.summary()
    fit.save(tmp_path / "counts.gpfit")
    again = gpdsl.load_fit(tmp_path / "counts.gpfit")
    assert again.log_evidence_bound == pytest.approx(fit.log_evidence_bound, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"engine": "ep"}, "expectation propagation estimates the log evidence"),
        (
            {"engine": "qsgp", "basis": "inducing", "feature_sums": "sampled", "features": 4, "steps": 4},
            "it lacks a constant",
        ),
        ({"engine": "qsgp", "features": 8, "steps": 4}, "8 basis functions in place of the kernel"),
    ],
)
def test_what_is_no_bound_says_so(options: dict[str, Any], why: str) -> None:
    fit = gpdsl.compile(COUNTS.format(prior="")).fit(_counts(), fixed=["ell"], **options)
    assert np.isnan(fit.log_evidence_bound) and np.isfinite(fit.elbo)
    assert f"bound       of the log evidence: none, as {why}" in fit.summary()


B = stats.beta(2, 3)
BOUNDED = {
    "real(lower = 1) ~ Normal(0, 1)": stats.truncnorm(1, np.inf).logpdf,
    "real(lower = 1) ~ Normal(0, 0.1)": stats.truncnorm(10, np.inf, scale=0.1).logpdf,
    "real(upper = 2) ~ Laplace(0, 2)": lambda a: stats.laplace.logpdf(a, 0, 2) - stats.laplace.logcdf(2, 0, 2),
    "positive ~ Normal(0, 2)": stats.halfnorm(scale=2).logpdf,
    "positive ~ Gamma(2, 3)": stats.gamma(2, scale=1 / 3).logpdf,
    "real(lower = 0.2, upper = 0.8) ~ Beta(2, 3)": lambda a: B.logpdf(a) - np.log(B.cdf(0.8) - B.cdf(0.2)),
    "real(lower = 0.9, upper = 1) ~ Beta(1, 50)": lambda a: stats.beta.logpdf(a, 1, 50) - stats.beta.logsf(0.9, 1, 50),
    "real(lower = 0, upper = 1) ~ Uniform(-1, 3)": lambda a: 0.0,
    "positive ~ Mixture(0.3, Normal(0, 1), Normal(5, 1))": lambda a: np.log(
        (0.3 * stats.norm.pdf(a) + 0.7 * stats.norm.pdf(a, 5)) / (0.15 + 0.7 * stats.norm.cdf(5))
    ),
    "real(lower = 1, upper = 2) ~ Truncated(Normal(1, 1), lower = 0, upper = 3)": stats.truncnorm(0, 1, 1).logpdf,
}


@pytest.mark.parametrize("declared", BOUNDED)
def test_a_prior_integrates_to_one_between_the_bounds(declared: str) -> None:
    text = f"output y : real\nparam a : {declared}\ny ~ Normal(a, 1)"
    fit = gpdsl.compile(text).fit({"y": [0.4, 1.1, 0.9]}, steps=3)
    assert fit.log_prior == pytest.approx(float(BOUNDED[declared](float(fit.parameters["a"]))), abs=1e-9)


def test_priors_between_bounds_that_differ_by_element() -> None:
    text = """index p in 1..2
    const m[p] = [0, 3]
    output y[p] : real
    param a[p] : positive ~ Normal(m[p], 1)
    y[p] ~ Normal(a[p], 1)
    """
    fit = gpdsl.compile(text).fit({"y": np.array([[0.4, 1.1], [0.9, 2.0]])})
    m, a = np.array([0.0, 3.0]), fit.parameters["a"]
    assert fit.log_prior == pytest.approx(stats.truncnorm(-m, np.inf, loc=m).logpdf(a).sum(), abs=1e-9)


def test_a_prior_without_probability_between_the_bounds_is_refused() -> None:
    text = "output y : real\nparam a : real(lower = 1, upper = 1.1) ~ Gamma(2, 9000)\ny ~ Normal(a, 1)"
    with pytest.raises(gpdsl.GpdslError, match="the prior of `a`, `Gamma`, has no probability between 1 and 1.1"):
        gpdsl.compile(text).fit({"y": [0.4, 1.1]})
