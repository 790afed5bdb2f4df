"""Every distribution against SciPy: density, moments, distribution function and draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import sympy as sp
from scipy import stats

from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.lowering.table import evaluate
from gpdsl.results.conditional import draw_categorical
from gpdsl.symbolic.densities import DENSITIES
from gpdsl.symbolic.laws import LEVELS, Law, observed_level
from tests.accuracy import half_t, pc_lengthscale

Frozen = Any
DISCRETE = {"Poisson", "NegativeBinomial", "Binomial", "Bernoulli"}

# Arguments by SciPy's conventions, one entry per way of writing the distribution.
REFERENCES: dict[str, tuple[str, tuple[str, ...], Callable[..., Frozen]]] = {
    "Normal": ("Normal", ("mean", "sd"), lambda mean, sd: stats.norm(mean, sd)),
    "StudentT": ("StudentT", ("df", "mean", "scale"), lambda df, mean, scale: stats.t(df, mean, scale)),
    "Laplace": ("Laplace", ("mean", "scale"), lambda mean, scale: stats.laplace(mean, scale)),
    "Logistic": ("Logistic", ("mean", "scale"), lambda mean, scale: stats.logistic(mean, scale)),
    "LogNormal": ("LogNormal", ("mean", "sd"), lambda mean, sd: stats.lognorm(sd, scale=np.exp(mean))),
    "Gamma": ("Gamma", ("shape", "rate"), lambda shape, rate: stats.gamma(shape, scale=1 / rate)),
    "Exponential": ("Exponential", ("rate",), lambda rate: stats.expon(scale=1 / rate)),
    "Weibull": ("Weibull", ("shape", "scale"), lambda shape, scale: stats.weibull_min(shape, scale=scale)),
    "InverseGamma": ("InverseGamma", ("shape", "scale"), lambda shape, scale: stats.invgamma(shape, scale=scale)),
    "HalfNormal": ("HalfNormal", ("sd",), lambda sd: stats.halfnorm(scale=sd)),
    "HalfCauchy": ("HalfCauchy", ("scale",), lambda scale: stats.halfcauchy(scale=scale)),
    "HalfStudentT": ("HalfStudentT", ("df", "scale"), lambda df, scale: half_t(df, scale=scale)),
    "PCScale": ("PCScale", ("above", "alpha"), lambda above, alpha: stats.expon(scale=-above / np.log(alpha))),
    "PCLengthscale": ("PCLengthscale", ("below", "alpha", "dimension"), pc_lengthscale),
    "Uniform": ("Uniform", ("lower", "upper"), lambda lower, upper: stats.uniform(lower, upper - lower)),
    "Beta": ("Beta", ("a", "b"), lambda a, b: stats.beta(a, b)),
    "Poisson": ("Poisson", ("mean",), lambda mean: stats.poisson(mean)),
    "NegativeBinomial": (
        "NegativeBinomial",
        ("mean", "dispersion"),
        lambda mean, dispersion: stats.nbinom(dispersion, dispersion / (dispersion + mean)),
    ),
    "Binomial(p)": ("Binomial", ("trials", "p"), lambda trials, p: stats.binom(int(trials), p)),
    "Binomial(logit)": ("Binomial", ("trials", "logit"), lambda trials, logit: stats.binom(int(trials), expit(logit))),
    "Binomial(probit)": (
        "Binomial",
        ("trials", "probit"),
        lambda trials, probit: stats.binom(int(trials), stats.norm.cdf(probit)),
    ),
    "Bernoulli(p)": ("Bernoulli", ("p",), lambda p: stats.bernoulli(p)),
    "Bernoulli(logit)": ("Bernoulli", ("logit",), lambda logit: stats.bernoulli(expit(logit))),
    "Bernoulli(probit)": ("Bernoulli", ("probit",), lambda probit: stats.bernoulli(stats.norm.cdf(probit))),
}

DOMAINS: dict[str, Callable[[np.random.Generator], float]] = {
    "real": lambda rng: rng.normal(),
    "positive": lambda rng: np.exp(rng.normal()) + 0.3,
    "unit": lambda rng: rng.uniform(0.05, 0.95),
    "count": lambda rng: float(rng.integers(2, 9)),
}


def expit(x: float) -> float:
    return 1 / (1 + np.exp(-x))


def arguments(name: str, seed: int) -> tuple[str, dict[str, float], Frozen]:
    """The distribution's name, random arguments, and SciPy's object for them."""
    distribution, names, reference = REFERENCES[name]
    rng = np.random.default_rng(seed)
    domains = {p.name: p.domain for p in DISTRIBUTIONS[distribution].parameters}
    values = {n: DOMAINS[domains[n]](rng) for n in names}
    if "df" in values:
        values["df"] += 2  # a finite variance
    if "dimension" in values:
        values["dimension"] += 4
    if "upper" in values:
        values["upper"] = values["lower"] + 2.5
    return distribution, values, reference(**values)


def evaluated(formula: sp.Expr, values: dict[sp.Symbol, Any]) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(evaluate(formula, lambda s: jax.numpy.asarray(values[s], float)))


def symbols(names: dict[str, float]) -> dict[str, sp.Symbol]:
    return {n: sp.Symbol(n, real=True) for n in names}


def test_the_tables_are_those_of_the_language() -> None:
    composed = {name for name, entry in DISTRIBUTIONS.items() if entry.components}
    assert set(DENSITIES) | set(LEVELS) | composed | {"MultivariateNormal", "Dirichlet", "LKJ"} == set(DISTRIBUTIONS)
    assert {r[0] for r in REFERENCES.values()} == set(DENSITIES)
    assert {name for name, entry in DISTRIBUTIONS.items() if entry.support == "count"} == DISCRETE


@pytest.mark.parametrize("name", REFERENCES)
def test_parameters_are_those_of_the_language(name: str) -> None:
    distribution, names, _ = REFERENCES[name]
    entry = DISTRIBUTIONS[distribution]
    plain = {p.name for p in entry.parameters if not p.alternative}
    assert plain <= set(names) <= {p.name for p in entry.parameters}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", REFERENCES)
def test_log_density(name: str, seed: int) -> None:
    distribution, values, reference = arguments(name, seed)
    y, a = sp.Symbol("y", real=True), symbols(values)
    at = reference.rvs(20, random_state=seed).astype(float)
    expected = reference.logpmf(at) if distribution in DISCRETE else reference.logpdf(at)
    formula = DENSITIES[distribution].log_density(y, a)
    found = evaluated(formula, {y: at} | {a[n]: v for n, v in values.items()})
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", REFERENCES)
def test_log_density_at_constants_written_in_the_model(name: str) -> None:
    distribution, values, reference = arguments(name, 7)
    y, at = sp.Symbol("y", real=True), reference.rvs(5, random_state=7).astype(float)
    expected = reference.logpmf(at) if distribution in DISCRETE else reference.logpdf(at)
    formula = DENSITIES[distribution].log_density(y, {n: sp.Float(v, 17) for n, v in values.items()})
    np.testing.assert_allclose(evaluated(formula, {y: at}), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", REFERENCES)
def test_mean_and_variance(name: str, seed: int) -> None:
    distribution, values, reference = arguments(name, seed)
    a = symbols(values)
    table = {a[n]: v for n, v in values.items()}
    density = DENSITIES[distribution]
    np.testing.assert_allclose(evaluated(density.mean(a), table), reference.mean(), rtol=1e-9)
    np.testing.assert_allclose(evaluated(density.variance(a), table), reference.var(), rtol=1e-8)


@pytest.mark.parametrize(("df", "expected"), [(1.5, np.inf), (2.0, np.inf), (3.0, 12.0)])
def test_student_variance_is_infinite_up_to_two_degrees(df: float, expected: float) -> None:
    a = symbols({"df": df, "mean": 0.0, "scale": 2.0})
    found = evaluated(DENSITIES["StudentT"].variance(a), {a["df"]: df, a["mean"]: 0.0, a["scale"]: 2.0})
    assert found == expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", REFERENCES)
def test_distribution_function(name: str, seed: int) -> None:
    distribution, values, reference = arguments(name, seed)
    inside = reference.rvs(30, random_state=seed).astype(float)
    at = np.concatenate([inside, [-3.0, -1.0, 0.0, 0.5, 1.0, 50.0]])
    with jax.enable_x64(True):
        found = np.asarray(
            DENSITIES[distribution].cdf(jax.numpy.asarray(at), {n: jax.numpy.asarray(v) for n, v in values.items()})
        )
    np.testing.assert_allclose(found, reference.cdf(at), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", REFERENCES)
def test_draws(name: str) -> None:
    """Fixed seeds: a Kolmogorov-Smirnov or a mean test at 1e-3, passed once and for all."""
    distribution, values, reference = arguments(name, 3)
    shape = {n: np.full(4000, v) for n, v in values.items()}
    drawn = DENSITIES[distribution].draw(np.random.default_rng(11), shape)
    assert drawn.shape == (4000,)
    assert drawn.dtype == float
    if distribution not in DISCRETE:
        assert stats.kstest(drawn, reference.cdf).pvalue > 1e-3
        return
    assert abs(drawn.mean() - reference.mean()) < 3.3 * reference.std() / np.sqrt(4000)
    spread = np.sqrt((reference.stats(moments="k") + 2) / 4000)
    assert abs(drawn.var() / reference.var() - 1) < 3.3 * spread


def test_categorical() -> None:
    logits = np.array([0.3, -1.0, 2.0])
    probabilities = np.exp(logits) / np.exp(logits).sum()
    f, i = sp.symbols("f0:3", real=True), sp.symbols("i0:3", real=True)
    formula = observed_level(i, Law("Categorical", {"logits": f}))
    for c in range(3):
        table = dict(zip(f, logits, strict=True)) | {i[k]: float(k == c) for k in range(3)}
        assert evaluated(formula, table) == pytest.approx(np.log(probabilities[c]), rel=1e-12)
    drawn = draw_categorical(np.random.default_rng(5), np.tile(logits, (5000, 1)))
    counts = np.bincount(drawn.astype(int), minlength=3)
    assert stats.chisquare(counts, 5000 * probabilities).pvalue > 1e-3


def test_extreme_arguments_stay_finite() -> None:
    y, f = sp.symbols("y f", real=True)
    logistic = DENSITIES["Bernoulli"].log_density(y, {"logit": f})
    np.testing.assert_allclose(evaluated(logistic, {y: 0.0, f: 800.0}), -800.0)
    probit = DENSITIES["Bernoulli"].log_density(y, {"probit": f})
    np.testing.assert_allclose(evaluated(probit, {y: 0.0, f: 30.0}), stats.norm.logcdf(-30.0), rtol=1e-9)
    softmax = observed_level((y, 1 - y), Law("Categorical", {"logits": (f, sp.Integer(0))}))
    np.testing.assert_allclose(evaluated(softmax, {y: 0.0, f: 900.0}), -900.0)
