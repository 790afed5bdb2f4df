"""Densities by formula: the same fits and predictions as the built-in distribution of the same formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import sympy as sp
from scipy import stats
from scipy.integrate import quad_vec

import gpdsl
from gpdsl.errors import GpdslWarning
from gpdsl.results import by_formula
from gpdsl.symbolic.counts import Curve
from gpdsl.symbolic.standard import curve_of
from tests.inference.problems import unlearnt

HEAD = """input x : real
output y : {kind}
param s : positive = 0.4 fixed
latent f(x) ~ GP(0, RBF(1))
"""
X = np.linspace(0, 4, 12)
ROWS = {"x": np.linspace(0, 5, 4)}
RNG = np.random.default_rng(0)
DATA = {
    "real": np.sin(X) + 0.4 * RNG.standard_normal(12),
    "positive": np.exp(np.sin(X)) * RNG.gamma(2, 0.5, 12),
    "count": RNG.poisson(np.exp(np.sin(X))).astype(float),
    "binary": (RNG.random(12) < 0.5).astype(float),
}
PAIRS = {
    "normal": ("real", "density d(y | m; s) = -log(s) - log(2*pi)/2 - ((y - m)/s)^2/2", "d(f)", "Normal(f, s)"),
    "laplace": ("real", "density d(y | m, b) = -log(2*b) - abs(y - m)/b", "d(f, s)", "Laplace(f, s)"),
    "gamma": (
        "positive",
        "density d(y | a, r) = a*log(r) - lgamma(a) + (a - 1)*log(y) - r*y",
        "d(2, exp(f))",
        "Gamma(2, exp(f))",
    ),
    "poisson": ("count", "density d(n | m) = n*log(m) - m - lgamma(n + 1)", "d(exp(f))", "Poisson(exp(f))"),
    "logistic": ("binary", "density d(y | z) = y*z - softplus(z)", "d(f)", "Bernoulli(logit = f)"),
}


def model(kind: str, definition: str, distribution: str) -> gpdsl.Model:
    return gpdsl.compile(f"{HEAD.format(kind=kind)}{definition}\ny ~ {distribution}\n")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("laplace", marks=pytest.mark.slow),
        "poisson",
        pytest.param("gamma", marks=pytest.mark.slow),
        pytest.param("logistic", marks=pytest.mark.slow),
        pytest.param("normal", marks=pytest.mark.slow),
    ],
)
def test_the_same_as_the_distribution_of_that_formula(name: str) -> None:
    kind, definition, own, known = PAIRS[name]
    data = {"x": X, "y": DATA[kind]}
    mine, reference = (model(kind, definition, each).fit(data) for each in (own, known))
    np.testing.assert_allclose(mine.elbo, reference.elbo, atol=1e-6)
    a, b = mine.predict(ROWS), reference.predict(ROWS)
    np.testing.assert_allclose(a.mean("y"), b.mean("y"), atol=1e-4)
    np.testing.assert_allclose(a.variance("y"), b.variance("y"), rtol=2e-3)
    quantiles = a.quantile("y", [0.1, 0.5, 0.9]), b.quantile("y", [0.1, 0.5, 0.9])
    np.testing.assert_allclose(*quantiles, atol=5e-3)
    np.testing.assert_allclose(*(each.sample("y", 4000, seed=1).mean(axis=0) for each in (a, b)), atol=0.2)
    densities = [fit.log_predictive_density(data) for fit in (mine, reference)]
    np.testing.assert_allclose(*densities, atol=1e-5)


def test_closed_form_where_the_algebra_allows_and_quadrature_elsewhere() -> None:
    for name, method in (("normal", "closed form"), ("laplace", "closed form"), ("logistic", "quadrature")):
        kind, definition, own, _ = PAIRS[name]
        assert method in model(kind, definition, own).explain({"x": X, "y": DATA[kind]})


def test_the_plan_says_what_a_density_integrates_to() -> None:
    huber = "density huber(y | m, b) = if abs(y - m) < b then -(y - m)^2/2 else -b*(abs(y - m) - b/2)"
    plan = model("real", huber, "huber(f, s)").explain({"x": X, "y": DATA["real"]})
    b = 0.4
    mass = np.sqrt(2 * np.pi) * (2 * stats.norm.cdf(b) - 1) + 2 / b * np.exp(-(b**2) / 2)
    assert f"integrates to {mass:.4g}"[:-1] in plan
    kind, definition, own, _ = PAIRS["laplace"]
    assert "integrates to one" in model(kind, definition, own).explain({"x": X, "y": DATA[kind]})


def test_an_unnormalised_density_is_normalised_in_predictions() -> None:
    _, definition, own, known = PAIRS["normal"]
    shifted = definition.replace("= -log(s)", "= 3 - log(s)")
    with pytest.warns(GpdslWarning, match="W641"):
        mine, reference = (model("real", shifted, each).fit({"x": X, "y": DATA["real"]}) for each in (own, known))
    np.testing.assert_allclose(mine.predict(ROWS).variance("y"), reference.predict(ROWS).variance("y"), rtol=1e-3)


def test_a_density_with_tops_far_apart_and_probabilities_of_conditions() -> None:
    """By Normal(f, 1) and Normal(300, 1): the mean was that of the first, and probabilities were shares of draws."""
    terms = " + ".join(f"exp(-(y - {mean})^2/2)/2" for mean in ("m", "300"))
    text = HEAD.format(kind="real") + f"density d(y | m) = log({terms}) - log(2*pi)/2\ny ~ d(f)\n"
    found = unlearnt(gpdsl.compile(text), {"x": X, "y": DATA["real"]}).predict({"x": [5.0]})
    laws = [(found.mean("f"), np.sqrt(1.0 + found.variance("f"))), (300.0, 1.0)]
    np.testing.assert_allclose(found.mean("y"), 150.0 + 0.5 * laws[0][0], rtol=1e-10)
    share = sum(0.5 * stats.norm.sf(0.3, *each) for each in laws)
    np.testing.assert_allclose(found.probability("not 2*y <= 0.6"), share, atol=1e-9)
    means, sds = np.array([found.mean("f")[0], 300.0]), np.sqrt([1.0 + found.variance("f")[0], 1.0])

    def apart(mean: np.ndarray, sd: np.ndarray) -> float:
        return float(np.mean(stats.foldnorm(np.abs(mean) / sd, scale=sd).mean()))

    expected = apart(means - 150.0, sds) - 0.5 * apart(means[:, None] - means, np.hypot(sds[:, None], sds))
    # between shares of draws, two of which have the gap between them, the distribution function is not smooth
    np.testing.assert_allclose(found.crps("y", [150.0], draws=400), expected, rtol=3e-5)


def test_a_density_that_is_narrow_beside_the_first_of_two_latents() -> None:
    """Its distribution function had a step at each of 32 nodes: the quantile of 0.3 was that of 0.34."""
    text = "latent g(x) ~ GP(-3, 0.3^2 * RBF(1))\ndensity d(y | m, l) = -((y - m)*exp(-l))^2/2 - l - log(2*pi)/2\n"
    data = {"x": X, "y": DATA["real"]}
    fit = unlearnt(gpdsl.compile(HEAD.format(kind="real") + text + "y ~ d(f, g)\n"), data)
    found = fit.predict({"x": [50.0]})
    p = np.array([0.05, 0.3, 0.9])  # noise is 0.05 beside 1: what is known of g changes nothing
    expected = stats.norm.ppf(p, found.mean("f"), found.sd("y"))
    np.testing.assert_allclose(np.ravel(found.quantile("y", p)), expected, atol=3e-3)


def test_a_density_of_a_transformed_output() -> None:
    text = HEAD.format(kind="positive") + PAIRS["normal"][1] + "\nlog(y) ~ d(f)\n"
    mine = gpdsl.compile(text).fit({"x": X, "y": DATA["positive"]})
    reference = model("positive", "", "LogNormal(f, s)").fit({"x": X, "y": DATA["positive"]})
    np.testing.assert_allclose(mine.elbo, reference.elbo, atol=1e-6)
    np.testing.assert_allclose(mine.predict(ROWS).quantile("y", 0.5), np.exp(mine.predict(ROWS).mean("f")), rtol=1e-3)


def test_a_density_that_jumps() -> None:
    """A flat top with a step on either side: y - f is independent of f, with moments by quadrature."""
    flat = (
        "if v > mu and v < mu + s then log(0.9/s) else if v < mu then log(0.05) + v - mu else log(0.05) - (v - mu - s)"
    )
    fit = model("real", f"density d(v | mu, s) = {flat}", "d(f, s)").fit({"x": X, "y": np.sin(X) + 0.2}, steps=2)
    prediction, s = fit.predict({"x": np.array([0.5, 6.0])}), 0.4
    mean, variance = prediction.mean("f"), prediction.variance("f")

    def top(v: float) -> float:
        return 0.9 / s if 0 < v < s else 0.05 * np.exp(min(v, s - v))

    def over(function: Callable[[float], np.ndarray | float]) -> np.ndarray:
        cuts = (-40.0, 0.0, s, 40.0)
        parts = zip(cuts[:-1], cuts[1:], strict=True)
        return sum(quad_vec(lambda v: top(v) * function(v), a, b, epsabs=1e-12)[0] for a, b in parts)

    first, second = over(lambda v: v), over(lambda v: v**2)
    np.testing.assert_allclose(prediction.mean("y"), mean + first, atol=1e-8)
    np.testing.assert_allclose(prediction.variance("y"), variance + second - first**2, rtol=1e-8)
    ends = prediction.quantile("y", 0.3)
    np.testing.assert_allclose(over(lambda v: stats.norm.cdf(ends - v, mean, variance**0.5)), 0.3, atol=3e-5)
    drawn = prediction.sample("y", 2000, seed=1)
    np.testing.assert_allclose(drawn.mean(axis=0), mean + first, atol=6 * np.sqrt(variance.max() + second) / 2000**0.5)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            "E308",
            "index c in 1..3\ninput x : real\noutput k : label[c]\n"
            "latent f(x) ~ GP(0, RBF(1))\ndensity d(y | m) = -(y - m)^2\nk ~ d(f)\n",
        ),
        (
            "E301",
            "input x : real\noutput y : real\n"
            "latent f(x) ~ GP(0, RBF(1))\ndensity d(y | m) = -(y - m)^2\ny ~ d(f, f)\n",
        ),
        (
            "E203",
            "index p in 1..2\ninput x : real\noutput y : real\n"
            "latent f[p](x) ~ GP(0, RBF(1))\ndensity d(y | m) = -(y - m)^2\ny ~ d(f)\n",
        ),
        (
            "E218",
            "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ndensity d(y | m) = -(y - f)^2\ny ~ d(f)\n",
        ),
    ],
)
def test_refused(code: str, text: str) -> None:
    with pytest.raises(gpdsl.ModelError) as caught:
        gpdsl.compile(text)
    assert [each.code for each in caught.value.diagnostics] == [code]


def test_large_counts_have_their_moments_and_draws() -> None:
    """Counts above 16,383 were none, and each draw of a row a distribution of its own: 4000 took a minute."""
    text = "input n : count\noutput y : count\ndensity own(y | m) = -log1p(m) - y*log1p(1/m)\ny ~ own(n)\n"
    prediction = gpdsl.compile(text).fit({"n": [10, 20], "y": [4, 8]}).predict({"n": [50_000]})
    expected, drawn = stats.geom(1 / 50_001, loc=-1), prediction.sample("y", 4000)
    found = [prediction.mean("y")[0], prediction.sd("y")[0], prediction.quantile("y", 0.9)[0]]
    np.testing.assert_allclose(found, [expected.mean(), expected.std(), expected.ppf(0.9)], rtol=1e-4)
    np.testing.assert_allclose(drawn.mean(), expected.mean(), atol=4 * expected.std() / np.sqrt(4000))
    np.testing.assert_allclose(drawn.std(), expected.std(), rtol=0.06)


def test_what_is_no_location_or_scale_is_integrated_once_at_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mean, variance and quantile had curves of its own, at 301 values of the latent; 60 rows took 14 seconds."""
    integrated = []

    def counted(formula: sp.Expr, symbol: sp.Symbol, known: Mapping, size: int, kind: str) -> Curve:
        integrated.append(size)
        return curve_of(formula, symbol, known, size, kind)

    monkeypatch.setattr(by_formula, "curve_of", counted)
    definition, data = PAIRS["gamma"][1], {"x": X, "y": DATA["positive"]}
    mine, reference = (
        unlearnt(model("positive", definition, f"{law}(exp(f), 2)"), data).predict(ROWS) for law in ("d", "Gamma")
    )
    for found in (mine.mean, mine.variance, lambda name: mine.quantile(name, [0.05, 0.95])):
        found("y")
    assert sum(integrated) <= 2 * 4 * (38 + 76)
    np.testing.assert_allclose(mine.mean("y"), reference.mean("y"), rtol=1e-8)
    np.testing.assert_allclose(mine.variance("y"), reference.variance("y"), rtol=1e-8)
    np.testing.assert_allclose(mine.quantile("y", [0.05, 0.95]), reference.quantile("y", [0.05, 0.95]), rtol=1e-7)
