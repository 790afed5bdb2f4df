"""Row variables: their factors of q, their evidence, their predictions; deep and latent-variable models."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln
from scipy.stats import norm

import gpdsl
from gpdsl.errors import GpdslError

COUNTS = """
input x : real
output y : count
param m : real = 0.7
param s : positive = 0.6
row w ~ Normal(m, s)
y ~ Poisson(x * exp(w))
"""
NOISE = """
index p in 1..2
input x : real
output y[p] : real
latent f(x) ~ GP(0, 1.5 * RBF(0.8))
row w[p] ~ Normal(0.2, 0.5)
y[p] ~ Normal(f + w[p], 0.3)
let scaled[p] = 2 * w[p]
"""


def best_factor(x: float, y: float, m: float, s: float) -> tuple[float, np.ndarray]:
    """The best Gaussian of one row, by brute force: the bound, its mean and standard deviation."""

    def negative(q: np.ndarray) -> float:
        mean, sd = q[0], np.exp(q[1])
        expected = y * (np.log(x) + mean) - x * np.exp(mean + sd**2 / 2) - gammaln(y + 1)
        kl = 0.5 * ((sd**2 + (mean - m) ** 2) / s**2 - 1) - np.log(sd / s)
        return kl - expected

    found = minimize(negative, [m, np.log(s)], method="BFGS", options={"gtol": 1e-9})
    return -found.fun, np.array([found.x[0], np.exp(found.x[1])])


def count_data(rows: int = 9) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.uniform(1, 4, rows)
    return {"x": x, "y": rng.poisson(x * np.exp(rng.normal(0.7, 0.6, rows)))}


@pytest.mark.parametrize("options", [{}, {"optimizer": "lbfgs", "posterior": "diagonal"}, {"inducing": 3}])
def test_every_row_has_its_best_gaussian(options: dict) -> None:
    data = count_data()
    fit = gpdsl.compile(COUNTS).fit(data, fixed=["m", "s"], **options)
    rows = [best_factor(x, y, 0.7, 0.6) for x, y in zip(data["x"], data["y"], strict=True)]
    assert fit.elbo == pytest.approx(sum(bound for bound, _ in rows), abs=1e-5)
    (q,) = fit.posterior
    expected = np.array([factor for _, factor in rows])
    np.testing.assert_allclose(0.7 + 0.6 * q.mean[0, 0], expected[:, 0], atol=2e-3)
    np.testing.assert_allclose(0.6 * q.root[0, 0, :, 0], expected[:, 1], atol=2e-3)


@pytest.mark.slow
def test_minibatches_see_their_own_rows() -> None:
    data = count_data(40)
    fit = gpdsl.compile(COUNTS).fit(data, fixed=["m", "s"], batch=8, inducing=4, steps=3000, learning_rate=0.05)
    (q,) = fit.posterior
    means = [best_factor(x, y, 0.7, 0.6)[1][0] for x, y in zip(data["x"], data["y"], strict=True)]
    np.testing.assert_allclose(0.7 + 0.6 * q.mean[0, 0], means, atol=0.1)


@pytest.mark.parametrize("inducing", [0, 12])
def test_row_variables_beside_latents(inducing: int) -> None:
    """y = f + w + e: the best independent Gaussians have the exact means and the conditional variances."""
    rng = np.random.default_rng(2)
    x, y = np.linspace(-1, 1, 12), rng.normal(size=(12, 2))
    fit = gpdsl.compile(NOISE).fit({"x": x, "y": y}, inducing=inducing, posterior="full")
    kernel = 1.5 * np.exp(-0.5 * (x[:, None] - x[None]) ** 2 / 0.64)
    q_f = np.linalg.inv(np.linalg.inv(kernel + 1e-8 * np.eye(12)) + 2 / 0.09 * np.eye(12))
    q_w = 1 / (1 / 0.25 + 1 / 0.09)
    both = kernel + 0.5 * (0.25 + 0.09) * np.eye(12)  # the mean of the two outputs
    f = kernel @ np.linalg.solve(both, y.mean(axis=1) - 0.2)
    w = 0.2 + 0.25 / 0.34 * (y - 0.2 - f[:, None])
    residual = (y - f[:, None] - w) ** 2 + np.diag(q_f)[:, None] + q_w
    expected = np.sum(-0.5 * residual / 0.09 - 0.5 * np.log(2 * np.pi * 0.09))
    precision = np.linalg.inv(kernel + 1e-8 * np.eye(12))
    kl_f = 0.5 * (np.trace(precision @ q_f) + f @ precision @ f - 12)
    kl_f += 0.5 * (np.linalg.slogdet(kernel + 1e-8 * np.eye(12))[1] - np.linalg.slogdet(q_f)[1])
    kl_w = np.sum(0.5 * (q_w / 0.25 + (w - 0.2) ** 2 / 0.25 - 1 - np.log(q_w / 0.25)))
    assert fit.elbo == pytest.approx(expected - kl_f - kl_w, abs=1e-3)
    found = fit.predict({"x": x})
    np.testing.assert_allclose(found.mean("f"), f, atol=1e-3)
    np.testing.assert_allclose(found.mean("w"), np.full((12, 2), 0.2))
    np.testing.assert_allclose(found.variance("scaled"), np.full((12, 2), 1.0))
    spread = found.variance("f")[:, None] + 0.25 + 0.09
    np.testing.assert_allclose(found.variance("y"), np.broadcast_to(spread, (12, 2)), rtol=1e-8)


MEASURED = """
index p in 1..2
input x[p] : real
output y[p] : real
param a : real = 1.5
row truth[p] ~ Normal(a * x[p], 0.4)
y[p] ~ Normal(truth[p], 0.3)
"""


def test_the_mean_of_a_row_variable_may_be_an_input(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 20, 2))
    fit = gpdsl.compile(MEASURED).fit({"x": x, "y": y}, fixed=["a"])
    assert fit.elbo == pytest.approx(norm.logpdf(y, 1.5 * x, 0.5).sum(), abs=1e-9)
    new = fit.predict({"x": x})
    np.testing.assert_allclose(new.mean("truth"), 1.5 * x, atol=1e-9)
    np.testing.assert_allclose(new.variance("y"), 0.25, atol=1e-9)
    drawn = gpdsl.compile(MEASURED).sample_prior(rows=4_000, inputs={"x": np.arange(8_000.0).reshape(4_000, 2)})
    off = drawn.row_variables["truth"] - 1.5 * drawn.data["x"]
    assert abs(off.mean()) < 4 * 0.4 / np.sqrt(8_000) and off.std() == pytest.approx(0.4, rel=0.04)


@pytest.mark.parametrize(("sd", "name"), [("x", "x"), ("1 + exp(x)", "x"), ("tau[site]", "site")])
def test_the_spread_of_a_row_variable_is_the_same_in_every_row(sd: str, name: str) -> None:
    text = "index s in 1..S\ninput site : label[s]\ninput x : real\noutput y : real\nparam tau[s] : positive = 1\n"
    with pytest.raises(GpdslError, match=f"`{name}` is an input and cannot be used in the standard deviation"):
        gpdsl.compile(f"{text}row w ~ Normal(0, {sd})\ny ~ Normal(w + x + tau[site], 1)")
