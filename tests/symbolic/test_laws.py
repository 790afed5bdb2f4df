"""Distributions made of others, and of levels, against SciPy: densities, distribution functions, moments and draws."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import sympy as sp
from scipy import integrate, stats

from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.lowering.table import evaluate
from gpdsl.results import conditional
from gpdsl.results.windows import LOG_TAILS
from gpdsl.symbolic import laws
from gpdsl.symbolic.curves import LINES
from gpdsl.symbolic.densities import DENSITIES
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.stable import TAILS

from .models import indexed, terms

Y = sp.Symbol("y", real=True)

# Each plain distribution that can be truncated, with arguments and SciPy's object for them.
INNER: dict[str, tuple[dict[str, float], Any]] = {
    "Normal": ({"mean": 0.7, "sd": 1.3}, stats.norm(0.7, 1.3)),
    "StudentT": ({"df": 4.5, "mean": 0.4, "scale": 1.1}, stats.t(4.5, 0.4, 1.1)),
    "Laplace": ({"mean": 0.6, "scale": 0.8}, stats.laplace(0.6, 0.8)),
    "Logistic": ({"mean": 0.5, "scale": 0.7}, stats.logistic(0.5, 0.7)),
    "LogNormal": ({"mean": 0.2, "sd": 0.8}, stats.lognorm(0.8, scale=np.exp(0.2))),
    "Gamma": ({"shape": 2.3, "rate": 1.4}, stats.gamma(2.3, scale=1 / 1.4)),
    "Exponential": ({"rate": 0.8}, stats.expon(scale=1 / 0.8)),
    "Weibull": ({"shape": 1.6, "scale": 1.9}, stats.weibull_min(1.6, scale=1.9)),
    "HalfNormal": ({"sd": 1.3}, stats.halfnorm(scale=1.3)),
}
SIZES: dict[str, tuple[dict[str, float], Any]] = {
    "InverseGamma": ({"shape": 2.6, "scale": 1.7}, stats.invgamma(2.6, scale=1.7)),
    "HalfCauchy": ({"scale": 1.4}, stats.halfcauchy(scale=1.4)),
    "PCScale": ({"above": 2.0, "alpha": 0.05}, stats.expon(scale=2.0 / -np.log(0.05))),
    "PCLengthscale": (
        {"below": 0.5, "alpha": 0.1, "dimension": 3.0},
        stats.invweibull(1.5, scale=0.5 * (-np.log(0.1)) ** (2 / 3)),
    ),
    "Uniform": ({"lower": -0.5, "upper": 2.0}, stats.uniform(-0.5, 2.5)),
    "Beta": ({"a": 1.7, "b": 3.2}, stats.beta(1.7, 3.2)),
}
BOUNDS = [{"lower": 0.4}, {"upper": 1.7}, {"lower": 0.4, "upper": 1.7}]


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def law_of(name: str, arguments: dict[str, float], components: tuple[Law, ...] = ()) -> Law:
    return Law(name, arguments, components)


def formula_of(law: Law) -> tuple[Law, dict[sp.Symbol, float]]:
    """The law with symbols for its numbers, and the numbers."""
    leaves = law.leaves()
    symbols = [sp.Symbol(f"a{i}", real=True) for i in range(len(leaves))]
    return law.filled(symbols), dict(zip(symbols, leaves, strict=True))


def log_density(law: Law, at: np.ndarray) -> np.ndarray:
    written, table = formula_of(law)
    formula = laws.log_density(written, Y)
    return np.asarray(
        jax.jit(lambda at: evaluate(formula, lambda s: at if s == Y else jnp.asarray(table[s], float)))(at)
    )


def truncated(name: str, bounds: dict[str, float]) -> tuple[Law, Any, float, float]:
    arguments, reference = INNER[name]
    lower, upper = bounds.get("lower", -np.inf), bounds.get("upper", np.inf)
    return Law("Truncated", bounds, (Law(name, arguments),)), reference, lower, upper


def test_the_tables_agree() -> None:
    bounded = {name for name, entry in DISTRIBUTIONS.items() if entry.tails}
    assert set(INNER) == set(TAILS) == bounded
    assert set(LOG_TAILS) == {
        name for name, entry in DISTRIBUTIONS.items() if entry.support in LINES and name in DENSITIES
    }
    assert {name for name in TAILS if TAILS[name].positive} == {
        name for name in bounded if DISTRIBUTIONS[name].support == "positive"
    }


@pytest.mark.parametrize("name", sorted(LOG_TAILS))
def test_tails_are_those_of_scipy_and_places_go_back_to_them(name: str) -> None:
    """Logarithms of both tails at places on both sides, and where each tail has that logarithm."""
    shares = np.array([1e-9, 0.01, 0.3, 0.5, 0.8, 0.999])
    if name == "HalfStudentT":
        arguments, places = {"df": 3.5, "scale": 1.2}, 1.2 * stats.t(3.5).isf(0.5 * (1 - shares))
        below, above = np.log(shares), np.log(2 * stats.t(3.5).sf(places / 1.2))
    else:
        arguments, reference = {**INNER, **SIZES}[name]
        places = reference.ppf(shares)
        below, above = reference.logcdf(places), reference.logsf(places)
    tails, given = LOG_TAILS[name], {key: np.full(6, value) for key, value in arguments.items()}
    np.testing.assert_allclose(tails.below(places, given), below, rtol=1e-6)
    np.testing.assert_allclose(tails.above(places, given), above, rtol=1e-6)
    np.testing.assert_allclose(tails.at_below(below, given), places, rtol=1e-5)
    np.testing.assert_allclose(tails.at_above(above, given)[1:], places[1:], rtol=1e-5)


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("name", INNER)
def test_truncated(name: str, bounds: dict[str, float]) -> None:
    law, reference, lower, upper = truncated(name, bounds)
    mass = reference.cdf(upper) - reference.cdf(lower)
    at = np.linspace(max(lower, 0.1), min(upper, 6.0), 9)
    np.testing.assert_allclose(log_density(law, at), reference.logpdf(at) - np.log(mass), rtol=1e-9, atol=1e-12)
    assert (
        log_density(law, np.array([b + s for b, s in ((lower, -0.1), (upper, 0.1)) if np.isfinite(b)])) < -1e29
    ).all()
    np.testing.assert_allclose(
        conditional.cdf(law, at), (reference.cdf(at) - reference.cdf(lower)) / mass, rtol=1e-9, atol=1e-12
    )
    moments = [
        integrate.quad(lambda y, k=k: y**k * reference.pdf(y) / mass, lower, upper, limit=400, epsabs=1e-12)[0]
        for k in (1, 2)
    ]
    mean, variance = conditional.moments(law)
    assert mean == pytest.approx(moments[0], rel=1e-6)
    assert variance == pytest.approx(moments[1] - moments[0] ** 2, rel=1e-6)
    drawn = conditional.draw(law.map(lambda v: np.full(3000, v)), np.random.default_rng(1))
    assert ((drawn >= lower) & (drawn <= upper)).all()
    assert stats.kstest(drawn, lambda y: conditional.cdf(law, y)).pvalue > 1e-3


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("name", INNER)
def test_censored(name: str, bounds: dict[str, float]) -> None:
    """At a bound and beyond, the log probability of what lies there; between, the density of what is inside."""
    arguments, reference = INNER[name]
    lower, upper = bounds.get("lower", -np.inf), bounds.get("upper", np.inf)
    law = Law("Censored", bounds, (Law(name, arguments),))
    if np.isfinite(lower):
        np.testing.assert_allclose(log_density(law, np.array([lower, lower - 1])), reference.logcdf(lower), rtol=1e-9)
    if np.isfinite(upper):
        np.testing.assert_allclose(log_density(law, np.array([upper, upper + 1])), reference.logsf(upper), rtol=1e-9)
    inside = np.linspace(0.5, 1.6, 5)
    np.testing.assert_allclose(log_density(law, inside), reference.logpdf(inside), rtol=1e-9)
    share = (np.arange(400_000) + 0.5) / 400_000
    recorded = np.clip(reference.ppf(share), lower, upper)
    mean, variance = conditional.moments(law)
    assert mean == pytest.approx(recorded.mean(), rel=1e-4)
    assert variance == pytest.approx(recorded.var(), rel=2e-2 if name == "StudentT" else 1e-3)
    drawn = conditional.draw(law.map(lambda v: np.full(4000, v)), np.random.default_rng(2))
    assert abs(drawn.mean() - recorded.mean()) < 4 * recorded.std() / np.sqrt(4000)


def test_truncation_far_out_does_not_cancel() -> None:
    inner = Law("Normal", {"mean": 0.0, "sd": 1.0})
    law = Law("Truncated", {"lower": 12.0, "upper": 13.0}, (inner,))
    assert log_density(law, np.array([12.05]))[0] == pytest.approx(stats.truncnorm.logpdf(12.05, 12, 13), rel=1e-7)
    mean, _ = conditional.moments(law)
    assert mean == pytest.approx(stats.truncnorm.mean(12, 13), rel=1e-6)


FAR = {
    "Normal": ({"mean": -40.0, "sd": 1.0}, lambda z: -((mp.mpf(z) + 40) ** 2) / 2),
    "Laplace": ({"mean": -900.0, "scale": 1.0}, lambda z: -mp.mpf(z)),
    "Logistic": ({"mean": -900.0, "scale": 1.0}, lambda z: -mp.mpf(z)),
    "StudentT": ({"df": 30.0, "mean": -1e12, "scale": 1.0}, lambda z: -31 * mp.log(mp.mpf(z) + 10**12)),
    "LogNormal": ({"mean": -40.0, "sd": 1.0}, lambda z: -((mp.log(z) + 40) ** 2) / 2 - mp.log(z)),
    "Gamma": ({"shape": 5.0, "rate": 900.0}, lambda z: 4 * mp.log(z) - 900 * mp.mpf(z)),
    "Exponential": ({"rate": 900.0}, lambda z: -900 * mp.mpf(z)),
    "Weibull": ({"shape": 3.0, "scale": 0.1}, lambda z: 2 * mp.log(z) - (mp.mpf(z) * 10) ** 3),
}
"""Each distribution with arguments that leave a probability of exp(-800) or so above the bound 1 (of the first, 0)."""


@pytest.mark.parametrize("name", FAR)
def test_truncation_where_hardly_anything_is_left(name: str) -> None:
    arguments, log_height = FAR[name]
    lower = 0.0 if name == "Normal" else 1.0
    law = Law("Truncated", {"lower": lower}, (Law(name, arguments),))
    mean, variance = conditional.moments(law)
    spread = mp.mpf(float(np.sqrt(variance)))
    cuts = [lower + spread * c for c in (0, 1, 3, 10, 40, 200)]
    peak = log_height(lower)
    total, first, second = (
        mp.quad(lambda y, k=k: (y - lower) ** k * mp.exp(log_height(y) - peak), cuts) for k in (0, 1, 2)
    )
    # What is left is counted from the bound; the place itself has the digits of the distance to the mean.
    digits = 1e-6 + 1e-15 * abs(arguments.get("mean", 0.0)) / float(first / total)
    assert mean - lower == pytest.approx(float(first / total), rel=digits)
    assert variance == pytest.approx(float(second / total - (first / total) ** 2), rel=10 * digits)
    middle = lower + float(first / total)
    below = mp.quad(lambda y: mp.exp(log_height(y) - peak), [lower, middle]) / total
    assert conditional.cdf(law, np.array([middle]))[0] == pytest.approx(
        float(below), rel=1e-3 if name == "StudentT" else 1e-6
    )
    assert log_density(law, np.array([middle]))[0] == pytest.approx(
        float(log_height(middle) - peak - mp.log(total)), rel=1e-6
    )
    drawn = conditional.draw(law.map(lambda v: np.full(2000, v)), np.random.default_rng(0))
    assert abs(drawn.mean() - mean) < 4 * float(spread) / np.sqrt(2000)


@pytest.mark.parametrize(
    ("df", "lower", "upper"),
    [
        (4.0, 0.7, np.inf),
        (3.5, 1.0, np.inf),
        (1000.0, 40.0, np.inf),
        (1e6, 40.0, np.inf),
        (1e5, -1.0, np.inf),
        (3.0, -np.inf, 5.0),
        (1.0, -18.0, 17.0),
        (0.5, 100.0, 1e6),
        (60.0, -8.0, -6.0),
    ],
)
def test_truncated_student(df: float, lower: float, upper: float) -> None:
    inner = Law("StudentT", {"df": np.array([df]), "mean": np.array([0.3]), "scale": np.array([2.0])})
    bounds = {"lower": np.array([0.3 + 2.0 * lower]), "upper": np.array([0.3 + 2.0 * upper])}
    mean, variance = conditional.moments(Law("Truncated", bounds, (inner,)))
    start = float(np.clip(0.0, lower, upper))
    width = 1.0 / (1.0 + (df + 1) * start / (df + start**2)) if start > 0 else 1.0
    ends = [start + side * width * 2.0**k for k in range(-2, 60) for side in (-1, 1)]
    cuts = [mp.mpf(each) for each in sorted({lower, start, upper, *[e for e in ends if lower < e < upper]})]
    peak = (1 + mp.mpf(start) ** 2 / df) ** (-(df + 1) / 2)
    total, first, second = (
        mp.quad(lambda z, k=k: (z - start) ** k * (1 + z**2 / df) ** (-(df + 1) / 2) / peak, cuts) for k in range(3)
    )
    centre = first / total
    np.testing.assert_allclose(mean, 0.3 + 2.0 * (start + float(centre)), rtol=1e-10)
    np.testing.assert_allclose(variance, 4.0 * float(second / total - centre**2), rtol=1e-9)


def test_a_bound_below_the_support_says_nothing() -> None:
    inner = Law("Gamma", {"shape": sp.Integer(2), "rate": sp.Integer(3)})
    law = Law("Truncated", {"lower": sp.Integer(0)}, (inner,))
    assert laws.log_density(law, Y) == laws.log_density(inner, Y)


@pytest.mark.parametrize("weights", [0.3, (0.5, 0.2, 0.3)], ids=str)
def test_mixture(weights: float | tuple[float, ...]) -> None:
    shares = np.array(weights if isinstance(weights, tuple) else (weights, 1 - weights))
    parts = [("Normal", (0.7, 1.3)), ("Laplace", (-2.0, 0.5)), ("StudentT", (5.0, 1.0, 0.4))][: len(shares)]
    names = {"Normal": ("mean", "sd"), "Laplace": ("mean", "scale"), "StudentT": ("df", "mean", "scale")}
    references = [{"Normal": stats.norm, "Laplace": stats.laplace, "StudentT": stats.t}[n](*a) for n, a in parts]
    law = Law("Mixture", {"weights": weights}, tuple(Law(n, dict(zip(names[n], a, strict=True))) for n, a in parts))
    at = np.linspace(-4, 4, 11)
    density = sum(w * r.pdf(at) for w, r in zip(shares, references, strict=True))
    np.testing.assert_allclose(log_density(law, at), np.log(density), rtol=1e-9)
    np.testing.assert_allclose(
        conditional.cdf(law, at), sum(w * r.cdf(at) for w, r in zip(shares, references, strict=True)), rtol=1e-9
    )
    first = sum(w * r.mean() for w, r in zip(shares, references, strict=True))
    second = sum(w * (r.var() + r.mean() ** 2) for w, r in zip(shares, references, strict=True))
    written, table = formula_of(law)
    found = [
        float(evaluate(f, lambda s: jnp.asarray(table[s], float))) for f in (laws.mean(written), laws.variance(written))
    ]
    np.testing.assert_allclose(found, [first, second - first**2], rtol=1e-9)
    np.testing.assert_allclose(conditional.moments(law), [first, second - first**2], rtol=1e-9)
    drawn = conditional.draw(law.map(lambda v: np.full(3000, v)), np.random.default_rng(3))
    assert stats.kstest(drawn, lambda y: conditional.cdf(law, y)).pvalue > 1e-3


def test_a_mixture_of_counts_is_discrete() -> None:
    counts = Law("Mixture", {"weights": 0.5}, (Law("Poisson", {"mean": 1.0}), Law("Poisson", {"mean": 9.0})))
    assert conditional.is_discrete(counts)
    assert not conditional.is_discrete(Law("Truncated", {"lower": 0.0}, (Law("Normal", {"mean": 0.0, "sd": 1.0}),)))


@pytest.mark.parametrize(("link", "cdf"), [("probit", stats.norm.cdf), ("logit", stats.logistic.cdf)])
@pytest.mark.parametrize("place", [-30.0, 0.3, 25.0])
def test_ordinal(link: str, cdf: Any, place: float) -> None:
    cuts = (-1.0, 0.2, 2.5)
    law = Law("Ordinal", {link: place, "cutpoints": cuts})
    written, table = formula_of(law)
    found = [float(evaluate(p, lambda s: jnp.asarray(table[s], float))) for p in laws.log_probabilities(written)]
    assert np.isfinite(found).all()
    # P(place of the level's upper cutpoint) - P(lower), on the side of zero where it does not cancel
    edges = np.array([-np.inf, *cuts, np.inf]) - place
    side = -edges[::-1] if place < 0 else edges
    expected = np.diff(cdf(side))
    np.testing.assert_allclose(np.exp(found), expected[::-1] if place < 0 else expected, rtol=1e-7)
    assert np.exp(found).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("noise", "sd"), [("", [0, 0, 0]), (", sd = d", [0.5, 1, 2]), (", sd = 0.3", [0.3] * 3)])
def test_covariance_of_a_vector_by_its_factor(noise: str, sd: list[float]) -> None:
    factor = np.array([[0.5, 0, 0, 1], [0.3, 0.4, 0, -2], [-0.2, 0.1, 0.3, 0]])
    head = f"const W[p, r] = {factor.tolist()}\nconst d[p] = [0.5, 1, 2]\nindex r in 1..4\n"
    text = indexed(3, head, f"y ~ MultivariateNormal(u, factor = W{noise})")
    (found,) = terms(text)
    entries = np.array(found.law.arguments["covariance"], float).reshape(3, 3)
    np.testing.assert_allclose(entries, factor @ factor.T + np.diag(np.square(sd)), rtol=1e-14, atol=1e-15)


def test_dirichlet() -> None:
    a, w = sp.symbols("a0:3", positive=True), sp.symbols("w0:3", positive=True)
    values, shares = [0.7, 2.0, 3.5], [0.2, 0.3, 0.5]
    table = dict(zip((*a, *w), (*values, *shares), strict=True))
    found = evaluate(laws.dirichlet(a, w), lambda s: jnp.asarray(table[s], float))
    assert float(found) == pytest.approx(stats.dirichlet.logpdf(shares, values), rel=1e-10)
