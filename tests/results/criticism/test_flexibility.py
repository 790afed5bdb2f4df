"""What values do that are not normal about their predictions, by what they were drawn from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.results.criticism.places import calibrated


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
    found = calibrated(places)
    assert found.doubtful and said in found.remedy


def test_two_groups_are_told_to_be_two() -> None:
    """Nine tenths lie inside nine tenths, and no more in the middle: neither width is wrong."""
    halves = stats.norm(1.22, 0.34).ppf((np.arange(200) + 0.5) / 200)
    found = calibrated(np.concatenate([halves, -halves]))
    assert found.doubtful and "two groups" in found.remedy
    assert not calibrated(stats.norm.ppf((np.arange(400) + 0.5) / 400)).doubtful


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


@pytest.mark.parametrize("seed", range(3))
def test_noise_that_grows_is_told(seed: int) -> None:
    """Which no law of places tells of 80 rows: what is too wide of some is too narrow of others."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 6, 80)
    model = gpdsl.compile(
        "input x : real\noutput y : real\nparam s : positive\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, s)"
    )
    for noise, doubtful in ((np.exp(0.6 * x - 3), True), (0.3, False)):
        fit = model.fit({"x": x, "y": np.sin(x) + noise * rng.standard_normal(80)}, progress=False)
        found = next(each for each in fit.diagnose() if each.name == "calibration")
        assert found.doubtful == doubtful, found
        assert "Normal(f, exp(g))" in found.remedy or not doubtful


COUNTS = """
input x : real
output y : count
param m : real
latent f(x) ~ GP(0, RBF({ell}))
y ~ Poisson(exp(f + m))
"""


@pytest.mark.parametrize(("ell", "spread", "said"), [(1, 1.0, "hold"), (20, 0.0, "miss alike"), (1, 0.0, "")])
def test_counts_tell_by_default_where_they_are_no_such_counts(ell: float, spread: float, said: str) -> None:
    """Of a fit that takes too little time for data to be drawn anew: overdispersion, and a length-scale too long."""
    rng, x = np.random.default_rng(3), np.linspace(0, 6, 60)
    rate = np.exp(2 + np.sin(2 * x)) * (rng.gamma(1, 1, 60) if spread else 1.0)
    fit = gpdsl.compile(COUNTS.format(ell=ell)).fit({"x": x, "y": rng.poisson(rate)}, progress=False)
    (found,) = (each for each in fit.diagnose() if each.name == "values of y")
    assert found.doubtful == bool(said) and said in found.said
    assert said != "hold" or "to the kernel, or take another likelihood" in found.remedy


def test_neighbours_are_those_of_all_columns() -> None:
    """A wave across both of two columns, which one of them alone does not tell."""
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 3, (150, 2))
    data = {"x": x, "y": np.sin(4 * x.sum(axis=1)) + 0.2 * rng.standard_normal(150)}
    text = "input x : real[2]\noutput y : real\nparam s : positive\nlatent f(x) ~ GP(0, RBF({}))\ny ~ Normal(f, s)"
    for width, doubtful in ((5, True), (0.4, False)):
        fit = gpdsl.compile(text.format(width)).fit(data, progress=False)
        found = next(each for each in fit.diagnose() if each.name == "calibration")
        assert ("neighbours in the inputs miss alike" in found.said) == doubtful == found.doubtful
