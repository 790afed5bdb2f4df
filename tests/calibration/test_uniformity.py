"""The test of uniformity against loops over its definition, and what it tells."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from gpdsl.calibration.calibration import _counts, _statistic, band, combined_p, uniform_p
from gpdsl.results.quantiles import weighted_quantile, weighted_share


def test_the_statistic_is_that_of_its_definition() -> None:
    shares = np.random.default_rng(0).uniform(size=(3, 12))
    for found, own in zip(_statistic(_counts(shares), 12), shares, strict=True):
        tails = []
        for at in np.arange(1, 12) / 12:
            below = int(np.sum(own <= at))
            tails += [binom.cdf(below, 12, at), 1 - binom.cdf(below - 1, 12, at)]
        np.testing.assert_allclose(found, 2 * min(tails), rtol=1e-9)


def test_uniform_numbers_are_told_as_often_as_said_and_others_always() -> None:
    rng = np.random.default_rng(1)
    several = np.array([uniform_p(each) for each in rng.uniform(size=(400, 50))])
    assert 0.02 < np.mean(several < 0.05) < 0.08 and 0.42 < np.mean(several < 0.5) < 0.58
    for wrong in (rng.beta(0.4, 0.4, 50), rng.beta(4, 4, 50), rng.beta(3, 1, 50), np.zeros(50), np.ones(50)):
        assert uniform_p(wrong) < 0.005
    assert np.isnan(uniform_p(np.zeros(0)))


def test_the_band_holds_as_many_functions_as_it_says() -> None:
    at, low, high = band(60, 0.9)
    drawn = np.random.default_rng(2).uniform(size=(2000, 60))
    reached = np.mean(drawn[:, :, None] <= at, axis=1)
    assert abs(np.mean(np.all((low <= reached) & (reached <= high), axis=1)) - 0.9) < 0.03


def test_tests_that_are_one_are_combined_to_it() -> None:
    for p in (1e-3, 0.2, 0.8):
        np.testing.assert_allclose(combined_p(np.full(4, p)), p, rtol=1e-6)
    assert combined_p(np.array([1e-5, 0.9, 0.5])) < 1e-4
    assert np.isnan(combined_p(np.array([np.nan])))


def test_shares_are_the_inverse_of_quantiles() -> None:
    rng = np.random.default_rng(3)
    values, weights = rng.normal(size=(40, 2)), rng.dirichlet(np.ones(40))
    for p in (0.1, 0.5, 0.9):
        at = weighted_quantile(values, weights, p, smooth=True)
        np.testing.assert_allclose(weighted_share(values, weights, at), p, atol=1e-9)
    np.testing.assert_array_equal(weighted_share(values, weights, np.array([-9.0, 9.0])), [0.0, 1.0])
