"""Distributions known by their log densities against scipy's: mass, moments, distribution functions, quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gpdsl.symbolic.curves import curve

CONTINUOUS = {
    "normal": ("real", stats.norm(loc=[-3.0, 1e4, 2.0], scale=[1e-4, 2.0, 50.0])),
    "student": ("real", stats.t(df=[3.0, 5.0, 30.0], loc=[0.0, -20.0, 1.0], scale=[1.0, 0.01, 7.0])),
    "laplace": ("real", stats.laplace(loc=[0.3, -5.0, 100.0], scale=[1.0, 0.2, 3.0])),
    "gamma": ("positive", stats.gamma(a=[0.7, 3.0, 200.0], scale=[1.0, 10.0, 1e-3])),
    "beta": ("unit", stats.beta(a=[0.5, 2.0, 90.0], b=[0.5, 5.0, 10.0])),
}
DISCRETE = {
    "poisson": ("count", stats.poisson(mu=[0.2, 7.0, 900.0])),
    "bernoulli": ("binary", stats.bernoulli(p=[0.1, 0.5, 0.99])),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str) -> None:
    kind, law = CONTINUOUS[name]
    found = curve(lambda y: law.logpdf(y) + 0.7, 3, kind)
    np.testing.assert_allclose(found.log_mass, 0.7, atol=1e-4)
    mean, variance = found.moments()
    np.testing.assert_allclose(mean, law.mean(), rtol=1e-4, atol=1e-4 * law.std().min())
    np.testing.assert_allclose(variance, law.var(), rtol=1e-2 if name == "student" else 2e-3)
    for p in (0.01, 0.3, 0.5, 0.95):
        np.testing.assert_allclose(found.cdf(law.ppf(p)), p, atol=1e-4)
        np.testing.assert_allclose(law.cdf(found.quantile(np.full(3, p))), p, atol=1e-4)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    kind, law = DISCRETE[name]
    found = curve(lambda y: law.logpmf(y) - 2.0, 3, kind)
    np.testing.assert_allclose(found.log_mass, -2.0, atol=1e-10)
    mean, variance = found.moments()
    np.testing.assert_allclose(mean, law.mean(), rtol=1e-8)
    np.testing.assert_allclose(variance, law.var(), rtol=1e-6)
    for p in (0.05, 0.4, 0.9):
        np.testing.assert_array_equal(found.quantile(np.full(3, p)), law.ppf(p))
        np.testing.assert_allclose(found.cdf(law.ppf(p)), law.cdf(law.ppf(p)), atol=1e-10)
