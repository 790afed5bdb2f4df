"""Distributions known by their log densities against scipy's: mass, moments, distribution functions, quantiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import sympy as sp
from scipy import stats
from scipy.special import expit, zeta
from scipy.stats.distributions import rv_frozen

from gpdsl.symbolic import conditions, functions as f
from gpdsl.symbolic.curves import LINES, Panels, curve
from gpdsl.symbolic.functions import absolute
from gpdsl.symbolic.kinks import cuts_of, terms_of
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.standard import curve_of

Y = sp.Symbol("y", real=True)

CONTINUOUS = {
    "normal": ("real", stats.norm(loc=[-3.0, 1e4, 2.0], scale=[1e-4, 2.0, 50.0])),
    "student": ("real", stats.t(df=[2.1, 5.0, 30.0], loc=[0.0, -20.0, 1.0], scale=[1.0, 0.01, 7.0])),
    "laplace": ("real", stats.laplace(loc=[0.3, -5.0, 100.0], scale=[1.0, 0.2, 3.0])),
    "gamma": ("positive", stats.gamma(a=[0.7, 3.0, 200.0], scale=[1.0, 10.0, 1e-3])),
    "beta": ("unit", stats.beta(a=[0.7, 2.0, 90.0], b=[2.0, 5.0, 10.0])),
    "uniform": ("real", stats.uniform(loc=[0.3, -500.0, 1e-7], scale=[1e-3, 0.2, 3e5])),
    "exponential": ("real", stats.expon(loc=[0.3, -500.0, 1e-7], scale=[1e-3, 0.2, 3e5])),
    "pareto": ("positive", stats.pareto(b=[2.5, 4.0, 90.0], scale=[1e-3, 2.0, 700.0])),
}
DISCRETE = {
    "poisson": ("count", stats.poisson(mu=[0.2, 7.0, 900.0])),
    "bernoulli": ("binary", stats.bernoulli(p=[0.1, 0.5, 0.99])),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str) -> None:
    kind, law = CONTINUOUS[name]
    cuts = {
        "laplace": law.mean(),
        "uniform": law.support(),
        "exponential": law.support()[0],
        "pareto": law.support()[0],
    }
    given = np.reshape(cuts[name], (-1, 3)) if name in cuts else None
    found = curve(lambda y: law.logpdf(y) + 0.7, 3, kind, given)
    np.testing.assert_allclose(found.log_mass, 0.7, atol=1e-8)
    mean, variance = found.moments()
    np.testing.assert_allclose(mean, law.mean(), rtol=1e-9, atol=1e-9 * law.std().min())
    np.testing.assert_allclose(variance, law.var(), rtol=1e-8)
    for p in (0.01, 0.3, 0.5, 0.95):
        np.testing.assert_allclose(found.cdf(law.ppf(p)), p, atol=1e-9)
        np.testing.assert_allclose(law.cdf(found.quantile(np.full(3, p))), p, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "formula", "expected"),
    [
        ("real", conditions.choose(conditions.less(sp.Symbol("m", real=True), Y), 0, 1), [[0.3, 2.0]]),
        ("real", absolute(2 * Y - sp.Symbol("m", real=True)), [[0.15, 1.0]]),
        ("unit", absolute(sp.log(Y / (1 - Y)) - sp.Symbol("m", real=True)), [expit([0.3, 2.0])]),
        ("real", Y**2, []),
        ("count", absolute(Y - 3), []),
    ],
)
def test_places_of_cuts(kind: str, formula: sp.Expr, expected: list[list[float]]) -> None:
    found = cuts_of(formula, Y, {sp.Symbol("m", real=True): np.array([0.3, 2.0])}, 2, kind)
    some = [each for each in found if np.isfinite(each).all()]
    np.testing.assert_allclose(np.reshape(some, (-1, 2)), np.reshape(expected, (-1, 2)), rtol=1e-14)


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


@pytest.mark.parametrize(("fall", "count"), [(1.0, 64), (0.3, 256)])
def test_counts_are_followed_as_far_as_they_count(fall: float, count: int) -> None:
    """Up to a share of e^-45."""
    found = curve(lambda y: -fall * y, 1, "count")
    assert found.values.shape == (count, 1)
    assert found.log_mass[0] == pytest.approx(-np.log1p(-np.exp(-fall)))


@pytest.mark.parametrize(
    "law",
    [
        stats.poisson([2e4, 3e6, 1e9]),
        stats.binom([30_000, 40_000, 10**7], 0.6),
        stats.nbinom([0.5, 3.0, 30.0], [1e-5, 1e-6, 1e-4]),
        stats.geom(1 / np.array([1e3, 5e4, 1e7]), loc=-1),
    ],
    ids=["narrow", "bounded", "skewed", "geometric"],
)
def test_counts_that_are_too_many_to_be_told_one_by_one_are_told_in_cells(law: rv_frozen) -> None:
    """Those above 16,383 were left out; as if the numbers of a cell were equally probable, masses were 2e-5 off."""
    found = curve(lambda y: law.logpmf(y) - 2.0, 3, "count")
    np.testing.assert_allclose(found.log_mass, -2.0, atol=2e-7)
    mean, variance = found.moments()
    np.testing.assert_allclose(mean, law.mean(), rtol=1e-7)
    np.testing.assert_allclose(variance, law.var(), rtol=1e-6)
    for p in (0.05, 0.4, 0.9):
        at = found.quantile(np.full(3, p))
        np.testing.assert_allclose(at, law.ppf(p), atol=1.0, rtol=1e-5)
        np.testing.assert_allclose(found.cdf(at), law.cdf(at), atol=1e-6)


@pytest.mark.parametrize("mean", [200.0, 6e3, 3e4, 1e6, 1e10])
def test_counts_are_looked_for_beyond_a_first_top(mean: float) -> None:
    """Inflated zeros have nothing at 63, where it ended, and in cells another top than the highest."""
    found = curve(
        lambda y: np.logaddexp(np.where(y < 1, np.log(0.7), -np.inf), stats.poisson(mean).logpmf(y)), 1, "count"
    )
    mean_found, variance = found.moments()
    np.testing.assert_allclose(found.log_mass, np.log(1.7), atol=1e-5)
    np.testing.assert_allclose(mean_found, mean / 1.7, rtol=1e-5)
    np.testing.assert_allclose(variance, (mean + mean**2) / 1.7 - (mean / 1.7) ** 2, rtol=1e-5)
    np.testing.assert_allclose(found.quantile(np.array([0.8])), stats.poisson(mean).ppf(1 - 0.2 * 1.7), atol=1.0)


APART = {
    "as narrow": ([0.0, [300.0, -300.0, 20.0, 3000.0]], [1.0, 1.0]),
    "by some widths": ([0.0, 300.0, [310.0, 350.0, 301.0, -20.0]], [1.0, 1.0, 1.0]),
    "narrow and wide": ([0.0, [300.0, 1.0, -2000.0, 0.0]], [1e3, 1e-3]),
    "far": ([0.0, [1e7, 1e9, -1e8, 2.0]], [30.0, 1.0]),
}


@pytest.mark.parametrize("by_terms", [True, False])
@pytest.mark.parametrize("name", APART)
def test_tops_far_apart(name: str, by_terms: bool) -> None:
    """Of half Normal(0, 1) and half Normal(300, 1), the mean was 8e-4; narrow ones are seen by terms alone."""
    means, sds = APART[name]
    laws = [stats.norm(np.broadcast_to(each, 4), sd) for each, sd in zip(means, sds, strict=True)]
    share = 1 / len(laws)

    def log_density(y: np.ndarray) -> np.ndarray:
        return np.logaddexp.reduce([each.logpdf(y) + np.log(share) for each in laws])

    found = curve(log_density, 4, "real", None, [each.logpdf for each in laws] if by_terms else [])
    if not by_terms and name in ("narrow and wide", "far"):
        assert np.max(found.doubt) > 0.3
        return
    assert np.max(found.doubt) < 1e-9
    mean = sum(share * law.mean() for law in laws)
    variance = sum(share * (law.var() + (law.mean() - mean) ** 2) for law in laws)
    np.testing.assert_allclose(found.moments(), [mean, variance], rtol=1e-8, atol=1e-7)
    for p in (0.05, 0.4, 0.9):
        at = found.quantile(np.full(4, p))
        np.testing.assert_allclose(sum(share * law.cdf(at) for law in laws), p, atol=1e-7)


def test_terms_of_a_formula_are_what_is_largest_somewhere() -> None:
    m = sp.Symbol("m", real=True)
    two, three = f.logsumexp(-((Y - m) ** 2), -(Y**2)), f.softplus(-Y) - Y**2
    assert set(terms_of(two - 1, Y)) == {-((Y - m) ** 2) - 1, -(Y**2) - 1}
    assert set(terms_of(three, Y)) == {-(Y**2), -Y - Y**2}
    assert terms_of(-f.softplus(Y) + f.logsumexp(m, 1), Y) == [-f.softplus(Y) + f.logsumexp(m, 1)]
    assert len(terms_of(conditions.choose(conditions.less(Y, m), two, three), Y)) == 4


def test_what_a_constant_excludes_is_no_heavy_tail() -> None:
    found = curve(lambda y: np.where(y < 1, -1e30, 1 - y), 1, "real", np.array([[1.0]]))
    np.testing.assert_allclose(np.concatenate(found.moments()), [2.0, 1.0], rtol=1e-9)


@pytest.mark.parametrize("kind", LINES)
def test_lines_are_maps_with_their_slopes(kind: str) -> None:
    """Of real, positive and other values, by exp and the logistic function, whose slope may be the least of numbers."""
    v, line = np.array([-600.0, -30.0, -2.0, 0.3, 5.0]), LINES[kind]
    forward = {"real": v, "positive": np.exp(v), "unit": expit(v)}[kind]
    slope = {"real": 0 * v, "positive": v, "unit": v - 2 * np.logaddexp(0, v)}[kind]
    np.testing.assert_allclose(line.forward(v), forward, rtol=1e-13)
    np.testing.assert_allclose(line.inverse(forward), v, rtol=1e-12)
    np.testing.assert_allclose(line.log_slope(v), slope, rtol=1e-13)
    ends = np.array([-1e4, 1e4])
    assert np.isfinite(line.forward(ends)).all() and np.isfinite(line.log_slope(ends)).all()


def test_the_parts_of_panels_add_up() -> None:
    """Between the ends of panels too; below all of them there is nothing."""
    law = stats.gamma(a=[0.7, 3.0, 200.0], scale=[1.0, 10.0, 1e-3])
    found = curve(lambda y: law.logpdf(y), 3, "positive")
    rng = np.random.default_rng(0)
    for p in rng.uniform(size=(8, 3)):
        np.testing.assert_allclose(found.cdf(law.ppf(p)), p, atol=1e-9)
        np.testing.assert_allclose(found.quantile(p), law.ppf(p), rtol=1e-6)
    np.testing.assert_array_equal(found.cdf(np.array([-1.0, 0.0, -0.1])), 0.0)
    np.testing.assert_allclose(found.cdf(np.full(3, 1e9)), 1.0)
    assert not found.discrete and np.all(found.mass >= 0)
    np.testing.assert_allclose(found.mass.sum(axis=0), 1.0)
    counts = curve(lambda y: stats.poisson.logpmf(y, [0.2, 7.0, 90.0]), 3, "count")
    assert counts.discrete
    np.testing.assert_array_equal(counts.cdf(np.full(3, -0.5)), 0.0)
    np.testing.assert_allclose(counts.cdf(np.full(3, 6.9)), stats.poisson.cdf(6, [0.2, 7.0, 90.0]))


SCALE, SHAPE = sp.symbols("b a", positive=True)
MEAN, ABOVE = sp.Symbol("m", real=True), sp.Symbol("y", positive=True)
Z = (Y - MEAN) / SCALE


@pytest.mark.parametrize(
    ("formula", "y", "law"),
    [
        (-absolute(MEAN - Y) / SCALE, Y, stats.laplace),
        (-f.log1p(Z**2 / 5) * 3 - sp.log(SCALE), Y, lambda m, b: stats.t(5, m, b)),
        (
            conditions.choose(conditions.less(Y, MEAN), 3 * Z, -Z / 3),
            Y,
            lambda m, b: stats.laplace_asymmetric(1 / 3, m, b),
        ),
        (2 * sp.log(ABOVE) - ABOVE * sp.exp(-MEAN), ABOVE, lambda m, b: stats.gamma(3, scale=np.exp(m))),
        (-((sp.log(ABOVE) - MEAN) ** 2) / 2 - sp.log(ABOVE), ABOVE, lambda m, b: stats.lognorm(1, scale=np.exp(m))),
        (0.5 * sp.log(ABOVE / SCALE) - (ABOVE / SCALE) ** 1.5, ABOVE, lambda m, b: stats.weibull_min(1.5, scale=b)),
    ],
    ids=["laplace", "student", "asymmetric", "gamma", "lognormal", "weibull"],
)
def test_distributions_of_a_location_and_a_scale_are_integrated_once(
    formula: sp.Expr, y: sp.Symbol, law: Callable[..., rv_frozen]
) -> None:
    """Of 300 rows, each at hundreds of values of a latent, one by one took a minute."""
    given = {MEAN: np.linspace(-2, 3, 500), SCALE: np.geomspace(0.1, 20, 500)}
    found = curve_of(formula, y, given, 500, "real" if y is Y else "positive")
    assert isinstance(found, Panels) and found.low.shape[1] == 1
    expected = law(*given.values())
    mean, variance = found.moments()
    np.testing.assert_allclose(mean, expected.mean(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(variance, expected.var(), rtol=1e-8)
    heights = evaluate(formula, {**given, y: expected.ppf(0.4)})
    np.testing.assert_allclose(found.log_mass, heights - expected.logpdf(expected.ppf(0.4)), atol=1e-8)
    p = np.random.default_rng(0).uniform(size=500)
    np.testing.assert_allclose(found.cdf(expected.ppf(p)), p, atol=1e-9)
    np.testing.assert_allclose(expected.cdf(found.quantile(p)), p, atol=1e-9)
    np.testing.assert_allclose(expected.cdf(found.quantile(np.array(0.3))), 0.3, atol=1e-9)


@pytest.mark.parametrize(
    "formula",
    [
        f.logsumexp(-((Y - MEAN) ** 2), -(Y**2)),
        -absolute(Y - MEAN) - absolute(Y) / 2,
        conditions.choose(conditions.less(Y, 0), Y, -Y * SCALE),
        -((Y - MEAN) ** 2) - sp.exp(Y),
        -absolute(MEAN * Y),
    ],
)
def test_what_else_is_fixed_in_a_density_keeps_it_from_being_moved(formula: sp.Expr) -> None:
    given = {MEAN: np.linspace(-2, 3, 5), SCALE: np.geomspace(0.1, 20, 5)}
    found = curve_of(formula, Y, given, 5, "real")
    assert isinstance(found, Panels) and found.low.shape[1] == 5


def test_as_many_distributions_as_there_are_shapes() -> None:
    given = {MEAN: np.linspace(-2, 3, 60), SHAPE: np.tile([1.0, 2.5, 4.0], 20)}
    formula = (SHAPE - 1) * sp.log(ABOVE) - ABOVE * sp.exp(-MEAN)
    found = curve_of(formula, ABOVE, given, 60, "positive")
    assert isinstance(found, Panels) and found.low.shape[1] == 3
    expected = stats.gamma(given[SHAPE], scale=np.exp(given[MEAN]))
    np.testing.assert_allclose(found.moments(), [expected.mean(), expected.var()], rtol=1e-9)
    p = np.random.default_rng(0).uniform(size=60)
    np.testing.assert_allclose(found.quantile(p), expected.ppf(p), rtol=1e-7)


def test_counts_whose_tails_fall_slowly_have_no_variance_and_no_mean() -> None:
    """Of the zeta law with an exponent of 3, the variance was 5.3."""
    power = np.array([0.9, 1.9, 3.0, 3.5, 60.0])
    found = curve(lambda n: -power * np.log1p(n), 5, "count")
    mean, variance = found.moments()
    np.testing.assert_array_equal(np.isnan(mean), power <= 2)
    np.testing.assert_array_equal(np.isfinite(variance), power > 3)
    np.testing.assert_array_equal(np.isinf(variance), power == 3)
    np.testing.assert_allclose(mean[2:4], zeta(power[2:4] - 1) / zeta(power[2:4]) - 1, rtol=1e-4)
    np.testing.assert_array_equal(np.isinf(found.doubt), power <= 1)
    geometric = curve(lambda n: n * np.log1p(-1 / np.array([1e5, 1e8, 1e11])), 3, "count").moments()
    assert np.isfinite(geometric).all()
