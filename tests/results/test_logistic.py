"""Means of logistic functions without programs: beside adaptive quadrature, and beside what is compiled."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

import gpdsl
from gpdsl.results import logistic
from gpdsl.results.expectation import Beliefs


@pytest.mark.parametrize("mean", [-60.0, -20.0, -3.0, 0.0, 0.4, 30.0])
@pytest.mark.parametrize("sd", [0.0, 0.05, 0.7, 3.0, 12.0])
def test_logistic_means_have_all_digits_where_they_are_small(mean: float, sd: float) -> None:
    found = logistic.logistic_normal(np.array([mean]), np.array([sd**2]))
    assert found is not None
    if sd == 0.0:
        np.testing.assert_allclose(found, expit(mean), rtol=1e-14)
        return

    def integrand(z: float) -> float:
        return float(np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * expit(mean + sd * z))

    ends = np.linspace(-12.0, 12.0 + sd, 60)
    parts = [quad(integrand, low, high, epsabs=0, epsrel=1e-13)[0] for low, high in zip(ends, ends[1:], strict=False)]
    np.testing.assert_allclose(found, sum(parts), rtol=3e-13)


def test_places_of_other_widths_are_independent_of_each_other() -> None:
    mean, variance = np.array([[-2.0, 0.5], [1.0, 3.0]]), np.array([[0.1, 400.0], [2.0, 0.0]])
    together = logistic.logistic_normal(mean, variance)
    assert together is not None and together.shape == (2, 2)
    for place in np.ndindex(2, 2):
        alone = logistic.logistic_normal(mean[place][None], variance[place][None])
        np.testing.assert_allclose(together[place], alone[0], rtol=1e-13)
    assert logistic.logistic_normal(np.zeros(1 << 16), np.full(1 << 16, 1.0)) is None
    assert logistic.logistic_normal(np.zeros(1), np.array([np.nan])) is None


MODEL = """
index k in 1..2
input x : real
output y : binary
output c : label[k]
param b : real = 0.5
latent f(x) ~ GP(b, 4 * RBF(1))
latent g[k](x) ~ GP(0, RBF(1))
let chance = 1 / (1 + exp(-(2 * f - x)))
y ~ Bernoulli(logit = 2 * f - x)
c ~ Categorical(logits = g)
"""


@pytest.fixture(scope="module")
def fit() -> gpdsl.Fit:
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 4.0, 30)
    data = {"x": x, "y": (rng.random(30) < expit(2 * np.sin(3 * x))).astype(float), "c": 1 + (x > 2)}
    return gpdsl.compile(MODEL).fit(data, steps=20, progress=False, diagnose="no", seed=1)


def test_chances_are_those_of_programs_and_need_none(fit: gpdsl.Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    new = {"x": np.linspace(-1.0, 6.0, 9)}
    asked = list[object]()
    compiled = Beliefs.compile
    monkeypatch.setattr(
        Beliefs, "compile", lambda self, *given, **more: asked.append(given) or compiled(self, *given, **more)
    )
    one = fit.predict(new)
    found = [one.mean("y"), one.variance("y"), one.mean("c"), one.quantile("y", 0.6)]
    assert not asked
    monkeypatch.setattr(logistic, "NUMBERS", 0)
    other = fit.predict(new)
    expected = [other.mean("y"), other.variance("y"), other.mean("c"), other.quantile("y", 0.6)]
    assert asked
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
