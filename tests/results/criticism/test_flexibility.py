"""What values do that are not normal about their predictions, by what they were drawn from."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.posteriors.family import Inverse, spread_of
from gpdsl.program.cache import precision
from gpdsl.results.criticism import findings, structure
from gpdsl.results.criticism.places import Line, calibrated, uneven
from tests.inference.problems import looked_at, unlearnt


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


def test_values_far_out_come_before_what_the_noise_that_they_widen_makes_of_the_others() -> None:
    x, rng = np.linspace(0, 10, 120), np.random.default_rng(3)
    places = 0.25 * rng.standard_normal(120) + np.where(x > 5, 0.3, -0.3)
    shifts = Line("along `x`", np.arange(119), np.arange(119) * 37 % 119, {"x": x}, ordered=True)  # no neighbours
    assert "kernel that bends more" in calibrated(places, shifts).remedy
    places[[10, 50, 90]] += [7, -8, 12]
    assert calibrated(places, shifts).remedy.startswith("few values lie far out: look at their rows, or take heavier")


def test_counts_that_vary_less_than_is_said_are_told_so() -> None:
    data = {"x": np.arange(60.0), "y": np.arange(60) % 5}
    text = "input x : real\noutput y : count\nlatent f(x) ~ GP(1.4, 0.2 * RBF(1))\ny ~ Poisson(exp(f))"
    fit, even = unlearnt(text, data), stats.norm.ppf((np.arange(60) * 37 % 60 + 0.5) / 60)
    told = []
    for width in (0.92, 0.65):
        places = stats.norm.cdf(width * even)
        left = SimpleNamespace(fit=fit, left=(1,), data=fit.bind(data, None, outputs=True), pit=lambda _, p=places: p)
        told.append(next(findings._of_places(left)))  # type: ignore[arg-type]
    assert [each.doubtful for each in told] == [False, True]
    assert "times as wide as these say" in told[1].said and "take `Binomial(trials, logit = f)`" in told[1].remedy


def deviations(x: np.ndarray, noise: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Values of a function drawn with noise of these sizes, as those see them who take it to be the same everywhere."""
    kernel = np.exp(-0.5 * (x[:, None] - x) ** 2)
    values = np.linalg.cholesky(kernel + np.diag(noise**2)) @ rng.standard_normal(len(x))
    inverse = np.linalg.inv(kernel + np.mean(noise**2) * np.eye(len(x)))
    return (inverse @ values) / np.sqrt(np.diag(inverse))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("times", "doubtful"), [(1.0, 0), (6.0, 10)])
def test_noise_that_changes_along_an_input_is_told(times: float, doubtful: int) -> None:
    """Of 10 sets each: noise as large everywhere, and six times as large at one end as at the other."""
    rng, found = np.random.default_rng(5), []
    for _ in range(10):
        x, other = np.sort(rng.uniform(0, 10, 120)), rng.uniform(0, 1, 120)
        places = deviations(x, 0.1 * times ** (x / 10), rng)
        found.append(uneven("calibration", places, {"other": other, "x": x}, normal=True))
    told = [each for each in found if each is not None]
    assert len(told) == doubtful
    assert all("latent g of `x`" in each.remedy and "label" not in each.remedy for each in told)


def test_noise_that_differs_between_labels_is_told() -> None:
    rng = np.random.default_rng(6)
    x, site = np.sort(rng.uniform(0, 10, 120)), rng.integers(0, 3, 120).astype(float)
    places = deviations(x, np.array([0.1, 0.1, 0.5])[site.astype(int)], rng)
    told = uneven("calibration", places, {"site": site}, normal=True)
    assert told is not None and "`sigma[site]` if it is a label" in told.remedy
    counts = uneven("calibration of y", places, {"site": site})
    assert counts is not None and "a likelihood whose spread changes with `site`" in counts.remedy


GROUPED = """index s in 1..S
input site : label[s]
input x : real
output y : real
param a[s] : real ~ Normal(0, 1)
param sigma : positive
y ~ Normal(a[site], sigma)
"""


def test_values_of_many_blocks_stand_in_the_order_of_the_rows() -> None:
    """Groups of unequal sizes, of which each is a block, shuffled: noise that grows along another column."""
    rng = np.random.default_rng(7)
    site = rng.permutation(np.repeat(np.arange(24), rng.integers(4, 9, 24)))
    x = rng.uniform(0, 1, len(site))
    y = rng.standard_normal(24)[site] + 0.1 * 10**x * rng.standard_normal(len(site))
    data = {"site": site.astype(str), "x": x, "y": y}
    fit = gpdsl.compile(GROUPED).fit(data, progress=False)
    assert "in one part of `x` as in another" in fit.summary()
    with precision("float64"):
        inverses = list(fit.at_rows.inverses())
    alike, sigma = (site[:, None] == site).astype(float), fit.parameters["sigma"]
    whole = np.linalg.inv(np.eye(len(site)) + alike / sigma**2)
    rows = np.concatenate([each.rows for each in inverses])
    assert len(inverses) == 24 and sorted(rows) == list(range(len(site)))
    np.testing.assert_allclose(np.concatenate([each.diagonal for each in inverses]), np.diag(whole)[rows], rtol=1e-8)
    np.testing.assert_allclose(np.concatenate([each.alpha for each in inverses]), (whole @ y / sigma)[rows], rtol=1e-6)


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
        data = {"x": x, "y": np.sin(x) + noise * rng.standard_normal(80)}
        found = looked_at(model.fit(data, progress=False, diagnose="no"), data, "effective parameters")["calibration"]
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


@pytest.mark.parametrize(("features", "doubtful"), [(10, True), pytest.param(400, False, marks=pytest.mark.slow)])
def test_too_few_random_features_are_told_by_default(features: int, doubtful: bool) -> None:
    """The noise begins where exact inference has it, of few features far too low: worse than no fit."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 400)
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(0.3))\ny ~ Normal(f, 0.2)\n")
    data = {"x": x, "y": np.sin(6 * x) + 0.2 * rng.standard_normal(400)}
    fit = model.fit(data, engine="qsgp", features=features, batch=200, steps=20, progress=False)
    (found,) = (each for each in fit.diagnose() if each.name == "values of y")
    assert found.doubtful == doubtful
    assert "features = 40 and engine = vi hold more of the latents" in found.remedy or not doubtful


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


def test_each_of_several_outputs_is_looked_at_along_its_own_rows() -> None:
    """The second drifts with the rows, in which x has no order, and misses every fourth value."""
    rng, row = np.random.default_rng(2), np.arange(80)
    x = rng.uniform(0, 6, 80)
    y = np.sin(x)[:, None] + 0.3 * rng.standard_normal((80, 2))
    text = "index p in 1..2\ninput x : real\noutput y[p] : real\nlatent f(x) ~ GP(0, RBF(1))\ny[p] ~ Normal(f, 0.3)\n"
    y[:, 1] += np.where(row % 4 == 0, np.nan, row / 60)
    found = next(each for each in gpdsl.compile(text).fit({"x": x, "y": y}).diagnose() if each.name == "calibration")
    assert found.doubtful and found.said.startswith("of `y[2]`, rows that follow each other miss alike")


def test_what_others_tell_is_the_share_of_the_spread_that_they_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two sets of values, by conditioning each value on the others of its set, and squares about their means."""
    monkeypatch.setattr(structure, "learn_noise", lambda program: program)
    inverses, left, spread, rng = [], 0.0, 0.0, np.random.default_rng(0)
    for count in (6, 4):
        at = rng.uniform(0, 3, count)
        whole = np.exp(-0.5 * (at[:, None] - at) ** 2) + 0.2 * np.eye(count)
        inverse = np.diagonal(np.linalg.inv(whole))[:, None]
        inverses.append(
            Inverse(inverse, at, spread_of(np.linalg.cholesky(whole)), np.arange(count), np.zeros(count, int))
        )
        for n in range(count):
            rest = np.arange(count) != n
            left += whole[n, n] - whole[n, rest] @ np.linalg.solve(whole[np.ix_(rest, rest)], whole[rest, n])
        drawn = rng.multivariate_normal(np.zeros(count), whole, 20_000)
        spread += float(np.mean(np.sum((drawn - drawn.mean(axis=1, keepdims=True)) ** 2, axis=1)))
    assert structure._told_by_others("", inverses) == pytest.approx(1.0 - left / spread, abs=0.02)  # type: ignore[arg-type]
    assert structure._told_by_others("noise is given", inverses) == 0.0  # type: ignore[arg-type]
    assert structure._told_by_others("", []) == 0.0  # type: ignore[arg-type]
