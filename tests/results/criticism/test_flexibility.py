"""What values do that are not normal about their predictions, by what they were drawn from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.results.criticism.structure import _calibrated


@pytest.mark.parametrize(
    ("law", "said"),
    [
        (stats.norm(0, 2), "too narrow"),
        (stats.norm(0, 0.5), "too wide"),
        (stats.triang(0, loc=-1.414, scale=4.243), "skewed"),
        (stats.t(3, scale=0.75), "heavier tails"),
    ],
)
def test_the_remedy_is_that_of_what_the_values_do(law: object, said: str) -> None:
    places = law.ppf((np.arange(1500) + 0.5) / 1500)  # type: ignore[attr-defined]
    found = _calibrated(places)
    assert found.doubtful and said in found.remedy


def test_two_groups_are_told_to_be_two() -> None:
    """Nine tenths lie inside nine tenths, and no more in the middle: neither width is wrong."""
    halves = stats.norm(1.22, 0.34).ppf((np.arange(200) + 0.5) / 200)
    found = _calibrated(np.concatenate([halves, -halves]))
    assert found.doubtful and "two groups" in found.remedy
    assert not _calibrated(stats.norm.ppf((np.arange(400) + 0.5) / 400)).doubtful


def test_neighbours_that_miss_alike_are_told() -> None:
    """A cycle that a fit has taken for noise, and one that it has found."""
    rng = np.random.default_rng(1)
    x = np.arange(120.0)
    y = np.sin(2 * np.pi * x / 11) + 0.2 * rng.standard_normal(120)
    text = "input x : real\noutput y : real\nparam s : positive\nlatent f(x) ~ GP(0, RBF({}))\ny ~ Normal(f, s)"
    order = rng.permutation(120)
    for width, doubtful in ((60, True), (2.5, False)):
        fit = gpdsl.compile(text.format(width)).fit({"x": x[order], "y": y[order]}, progress=False)
        found = next(each for each in fit.diagnose() if each.name == "calibration")
        assert found.doubtful == doubtful
        assert ("neighbours along `x` miss alike" in found.said) == doubtful
