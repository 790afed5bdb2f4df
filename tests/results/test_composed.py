"""Ordinals, vectors, mixtures, truncation and censoring from the text of a model to its predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.language import compile_text
from gpdsl.program.cache import precision
from gpdsl.program.program import make_program, make_rows
from gpdsl.results.fitting import prepare
from tests.inference.problems import unlearnt

ROWS = 40
X = np.linspace(-3, 3, ROWS)
HEAD = "input x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, RBF(1))\n"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Seeded by the test's name."""
    return np.random.default_rng(sum(map(ord, request.node.name)))


def fitted(text: str, y: np.ndarray, **more: Any) -> gpdsl.Fit:
    return unlearnt(text, {"x": X, "y": y, **more})


def grid(prediction: gpdsl.Prediction) -> tuple[np.ndarray, np.ndarray]:
    """A fine grid over the latent at the first row, with its weights."""
    m, s = float(prediction.mean("f")[0]), float(np.sqrt(prediction.variance("f")[0]))
    f = m + s * np.linspace(-8, 8, 2001)
    weight = stats.norm.pdf(f, m, s)
    return f, weight / weight.sum()


@pytest.mark.parametrize(("link", "cdf"), [("probit", stats.norm.cdf), ("logit", stats.logistic.cdf)])
def test_ordinal(link: str, cdf: Callable, rng: np.random.Generator) -> None:
    levels = np.array(["bad", "fair", "good"])
    y = levels[np.searchsorted([-0.5, 0.7], np.sin(X) + 0.3 * rng.normal(size=ROWS))]
    head = 'index c in {"bad", "fair", "good"}\n' + HEAD.format(kind="ordinal[c]")
    fit = fitted(f"{head}param cut : ordered[2]\ny ~ Ordinal({link} = f, cutpoints = cut)\n", y)
    assert np.diff(fit.parameters["cut"]) > 0
    p = fit.predict({"x": X[:1]})
    f, weight = grid(p)
    below = [weight @ cdf(cut - f) for cut in fit.parameters["cut"]]
    expected = np.diff([0.0, *below, 1.0])
    np.testing.assert_allclose(p.mean("y")[0], expected, rtol=1e-6)
    np.testing.assert_allclose(p.variance("y")[0], expected * (1 - expected), rtol=1e-6)
    assert p.label("y")[0] == levels[expected.argmax()]
    assert p.quantile("y", 0.5)[0] == np.argmax(np.cumsum(expected) >= 0.5) + 1
    counts = np.bincount(p.sample("y", 4000)[:, 0].astype(int) - 1, minlength=3)
    assert stats.chisquare(counts, 4000 * expected).pvalue > 1e-3
    density = fit.log_predictive_density({"x": np.repeat(X[:1], 3), "y": levels})
    np.testing.assert_allclose(density, np.log(expected), atol=1e-5)


def test_cutpoints_that_do_not_fit_the_levels_found_in_the_data() -> None:
    text = "index c in 1..C\n" + HEAD.format(kind="ordinal[c]") + "param cut : ordered[2]\ny ~ Ordinal(f, cut)\n"
    with pytest.raises(gpdsl.GpdslError, match=r"E560.*`y` has 5 levels and needs 4 cutpoints, one fewer, not 2"):
        fitted(text, np.arange(ROWS) % 5 + 1)


CASES: dict[str, tuple[str, str, Callable[[np.ndarray, np.ndarray], np.ndarray], Callable]] = {
    "mixture": (
        "real",
        "Mixture(0.8, Normal(f, 0.3), Normal(0, 4))",
        lambda y, f: 0.8 * stats.norm.cdf(y, f, 0.3) + 0.2 * stats.norm.cdf(y, 0, 4),
        lambda f, rng: np.where(rng.random(f.shape) < 0.8, rng.normal(f, 0.3), rng.normal(0 * f, 4)),
    ),
    "truncated": (
        "positive",
        "Truncated(Normal(f, 0.5), lower = 0)",
        lambda y, f: np.where(y < 0, 0, 1 - stats.norm.sf(y, f, 0.5) / stats.norm.sf(0, f, 0.5)),
        lambda f, rng: stats.truncnorm.rvs(-f / 0.5, np.inf, f, 0.5, random_state=rng),
    ),
    "censored": (
        "real",
        "Censored(Normal(f, 0.4), upper = 0.6)",
        lambda y, f: np.where(y >= 0.6, 1.0, stats.norm.cdf(y, f, 0.4)),
        lambda f, rng: np.minimum(rng.normal(f, 0.4), 0.6),
    ),
    "proportion": (
        "unit",
        "Beta(3 * exp(f), 3)",
        lambda y, f: stats.beta.cdf(y, 3 * np.exp(f), 3),
        lambda f, rng: rng.beta(3 * np.exp(f), 3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_predictive_distribution(name: str, rng: np.random.Generator) -> None:
    """Mean, variance, quantiles and draws against the distribution function mixed over a fine grid of the latent."""
    kind, distribution, cdf, simulate = CASES[name]
    fit = fitted(HEAD.format(kind=kind) + f"y ~ {distribution}\n", simulate(np.sin(X), rng))
    p = fit.predict({"x": X[:1]})
    f, weight = grid(p)
    y = np.linspace(-30, 30, 60_001) if name == "mixture" else np.linspace(-6, 6, 24_001)
    mass = np.zeros_like(y)
    for at, w in zip(f[::10], weight[::10] / weight[::10].sum(), strict=True):
        mass += w * cdf(y, at)
    steps, middle = np.diff(mass, prepend=0.0), y
    mean = steps @ middle
    variance = steps @ middle**2 - mean**2
    assert p.mean("y")[0] == pytest.approx(mean, abs=2e-3)
    assert p.variance("y")[0] == pytest.approx(variance, rel=5e-3)
    for q in (0.1, 0.5, 0.8):
        assert p.quantile("y", q)[0] == pytest.approx(y[np.argmax(mass >= q)], abs=6e-3)
    drawn = p.sample("y", 8000, seed=4)[:, 0]
    assert abs(drawn.mean() - mean) < 4 * np.sqrt(variance / 8000)


def test_survival_times_with_a_limit_per_row(rng: np.random.Generator) -> None:
    """Times beyond the end of the study say only that they are longer; both parts have a closed form."""
    text = (
        "input x : real\ninput limit : positive\noutput y : positive\nlatent f(x) ~ GP(0, RBF(1))\n"
        "param k : positive = 1\ny ~ Censored(Weibull(k, exp(f)), upper = limit)\n"
    )
    limit = rng.uniform(0.5, 2.0, size=ROWS)
    y = np.minimum(np.exp(np.sin(X)) * rng.weibull(1.5, size=ROWS), limit)
    model, data = gpdsl.compile(text), {"x": X, "limit": limit, "y": y}
    assert "quadrature" not in model.explain(data)
    fit = model.fit(data)
    assert 0.8 < fit.parameters["k"] < 3.0
    f, weight = grid(fit.predict({"x": X[:1], "limit": [1.0]}))
    k = float(fit.parameters["k"])
    expected = [
        np.log(weight @ stats.weibull_min.sf(1.0, k, scale=np.exp(f))),
        np.log(weight @ stats.weibull_min.pdf(0.5, k, scale=np.exp(f))),
    ]
    found = fit.log_predictive_density({"x": np.repeat(X[:1], 2), "limit": [1.0, 1.0], "y": [1.0, 0.5]})
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_values_that_truncation_rules_out_are_named() -> None:
    model = gpdsl.compile(HEAD.format(kind="real") + "input top : real\ny ~ Truncated(Normal(f, 1), upper = top)\n")
    y = np.where(np.arange(ROWS) == 6, 2.5, 1.0)
    y[3] = np.nan
    with pytest.raises(gpdsl.GpdslError, match=r"output `y`, row 7: 2.5 lies above 2, the upper bound of `Truncated`"):
        model.fit({"x": X, "y": y, "top": np.full(ROWS, 2.0)})


@pytest.mark.parametrize(
    ("trials", "row", "words"),
    [
        (np.where(np.arange(ROWS) == 6, 4, 5), 7, "5 lies above 4, the number of trials of `Binomial`, of which no"),
        (np.where(np.arange(ROWS) == 6, 9.5, 5), 7, "`Binomial` has 9.5 trials, expected a whole number from 0"),
        (np.full(ROWS, -3), 1, "`Binomial` has -3 trials"),
    ],
)
def test_counts_that_the_trials_rule_out_are_named(trials: np.ndarray, row: int, words: str) -> None:
    model = gpdsl.compile(HEAD.format(kind="count") + "input n : real\ny ~ Binomial(n, logit = f)\n")
    with pytest.raises(gpdsl.GpdslError, match=f"output `y`, row {row}: {words}"):
        model.fit({"x": X, "y": np.full(ROWS, 5), "n": trials}, steps=1)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_beyond_the_bound_of_a_censored_output_are_named(dtype: str) -> None:
    """At the bound they say that the true value lies there or beyond, in either precision; 0.8 has no exact double."""
    model = gpdsl.compile(HEAD.format(kind="real") + "y ~ Censored(Normal(f, 1), upper = 0.8, lower = -0.7)\n")
    at = np.where(np.arange(ROWS) % 2, 0.8, -0.7)
    program, data, _ = prepare(model, {"x": X, "y": at}, {}, {"dtype": dtype})
    with precision(dtype):
        np.testing.assert_allclose(make_rows(program, data).outputs["y"], at)
    for value, words in (
        (
            2.0,
            "2 lies above 0.8, the upper bound of `Censored`, where values above it are recorded as the bound itself",
        ),
        (-1.5, "-1.5 lies below -0.7, the lower bound of `Censored`, where values below it"),
    ):
        y = np.where(np.arange(ROWS) == 6, value, at)
        with pytest.raises(gpdsl.GpdslError, match=f"output `y`, row 7: {words}"):
            model.fit({"x": X, "y": y}, dtype=dtype, steps=1)


ROOT = np.array([[0.5, 0, 0], [0.3, 0.4, 0], [-0.2, 0.1, 0.3]])
COVARIANCE = np.round(ROOT @ ROOT.T, 12)
VECTOR = f"""
index p in 1..3
index q in 1..3
input x : real
output y[p] : real
latent f[p](x) ~ GP(0, RBF(1))
const S[p, q] = {COVARIANCE.tolist()}
y ~ MultivariateNormal(f, covariance = S)
"""


def vector_data(rng: np.random.Generator) -> np.ndarray:
    return np.stack([np.sin(X), np.cos(X), X / 3], axis=1) + rng.normal(size=(ROWS, 3)) @ ROOT.T


def test_multivariate_normal(rng: np.random.Generator) -> None:
    y = vector_data(rng)
    y[1, 2], y[2] = np.nan, np.nan
    model = gpdsl.compile(VECTOR)
    explained = model.explain({"x": X, "y": y})
    assert "closed form" in explained and "quadrature" not in explained
    fit = model.fit({"x": X, "y": y}, posterior="full")
    gram = np.exp(-0.5 * (X[:, None] - X) ** 2)
    known = ~np.isnan(y.ravel())
    joint = (np.kron(gram, np.eye(3)) + np.kron(np.eye(ROWS), COVARIANCE))[np.ix_(known, known)]
    evidence = stats.multivariate_normal.logpdf(y.ravel()[known], np.zeros(known.sum()), joint)
    assert evidence - 6 < fit.elbo < evidence  # q has no covariance between the latents, the posterior has
    assert model.fit({"x": X, "y": y}).elbo == pytest.approx(evidence, abs=1e-4)  # one Gaussian across them is exact
    p = fit.predict({"x": X[:3]})
    total = COVARIANCE + np.array([np.diag(v) for v in p.variance("f")])
    np.testing.assert_allclose(p.mean("y"), p.mean("f"), rtol=1e-10)
    np.testing.assert_allclose(p.variance("y"), np.diagonal(total, axis1=1, axis2=2), rtol=1e-8)
    expected = p.mean("f") + stats.norm.ppf(0.9) * np.sqrt(p.variance("y"))
    np.testing.assert_allclose(p.quantile("y", 0.9), expected, rtol=1e-8)
    drawn = p.sample("y", 20_000, seed=1)
    assert drawn.shape == (20_000, 3, 3)
    np.testing.assert_allclose(np.cov(drawn[:, 0].T), total[0], atol=0.02)
    density = fit.log_predictive_density({"x": X[:3], "y": y[:3]})
    whole = stats.multivariate_normal.logpdf(y[0], p.mean("f")[0], total[0])
    part = stats.multivariate_normal.logpdf(y[1, :2], p.mean("f")[1, :2], total[1][:2, :2])
    np.testing.assert_allclose(density, [whole, part, 0.0], atol=1e-8)


def test_an_output_that_reads_an_element_of_a_vector(rng: np.random.Generator) -> None:
    text = VECTOR + "output z : real\nz ~ Normal(2 * y[1], 0.1)\n"
    y = vector_data(rng)
    p = fitted(text, y, z=2 * y[:, 0] + 0.1 * rng.normal(size=ROWS)).predict({"x": X[:2]})
    np.testing.assert_allclose(p.mean("z"), 2 * p.mean("y")[:, 0], atol=0.08)
    np.testing.assert_allclose(p.variance("z"), 4 * p.variance("y")[:, 0] + 0.01, rtol=0.1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (str(COVARIANCE.tolist()), "[[1, 2, 0], [2, 1, 0], [0, 0, 1]]", "E566.*\n.*\n.*smallest eigenvalue is -1"),
        (str(COVARIANCE.tolist()), "[[1, 0.2, 0], [0.1, 1, 0], [0, 0, 1]]", "E566.*\n.*\n.*not symmetric"),
        ("covariance = S", "covariance = g", "E563.*must not depend on `f`"),
    ],
)
def test_matrices_that_are_no_covariances(old: str, new: str, message: str, rng: np.random.Generator) -> None:
    text = VECTOR.replace(old, new)
    if new == "covariance = g":
        text = text.replace("y ~", "let g[p, q] = S[p, q] * exp(f[p])\ny ~")
    with pytest.raises(gpdsl.GpdslError, match=message):
        fitted(text, vector_data(rng))


def test_bounds_simplexes_and_priors_are_learnt_and_kept(rng: np.random.Generator, tmp_path) -> None:
    text = (
        HEAD.format(kind="real")
        + "param w : simplex[2] ~ Dirichlet(3)\nparam s : real(lower = 0.05, upper = 2) = 0.3 ~ Gamma(2, 4)\n"
        + "param wide : positive = 4 fixed\ny ~ Mixture(w, Normal(f, s), Normal(0, wide))\n"
    )
    y = np.where(rng.random(ROWS) < 0.75, np.sin(X) + 0.2 * rng.normal(size=ROWS), 4 * rng.normal(size=ROWS))
    fit = gpdsl.compile(text).fit({"x": X, "y": y})
    assert fit.parameters["w"].sum() == pytest.approx(1.0)
    assert 0.5 < fit.parameters["w"][0] < 0.95
    assert 0.05 < fit.parameters["s"] < 2.0
    assert "wide  4  (fixed)" in fit.summary()
    fit.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit")
    np.testing.assert_array_equal(again.parameters["w"], fit.parameters["w"])
    np.testing.assert_allclose(again.predict({"x": X[:3]}).mean("y"), fit.predict({"x": X[:3]}).mean("y"))


def test_the_prior_of_a_simplex_counts_in_the_bound() -> None:
    """With everything held, the bound changes by the log density of the prior alone."""
    text = (
        HEAD.format(kind="real") + "param w : simplex[3] = [0.2, 0.3, 0.5] ~ Dirichlet(2.5)\ny ~ Normal(f * w[1], 1)\n"
    )
    program = make_program(compile_text(text), {}, {}, {})
    value = program.log_prior({"w": np.array([0.2, 0.3, 0.5])})
    assert float(value) == pytest.approx(stats.dirichlet.logpdf([0.2, 0.3, 0.5], [2.5] * 3), rel=1e-5)


def test_an_output_that_reads_an_element_has_its_index_as_a_number() -> None:
    text = """index d in 1..2
input x : real
output y[d] : real
output z : real
param a[d] : real = [7, 0.5] fixed
latent f(x) ~ GP(0, RBF(1))
y[d] ~ Normal(f + 3 * d + a[d], 0.1)
z ~ Normal(y[2], 0.5)
"""
    x = np.linspace(0, 1, 4)
    fit = gpdsl.compile(text).fit({"x": x, "y": np.stack([x + 3, x + 6], axis=1), "z": x + 6})
    prediction = fit.predict({"x": [0.5]})
    assert prediction.mean("z") == pytest.approx(prediction.mean("f") + 6.5)
    assert prediction.variance("z") == pytest.approx(prediction.variance("f") + 0.01 + 0.25)
