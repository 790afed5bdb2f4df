"""Models of parameters alone, and outputs that read no latent, against SciPy: fits, predictions, densities, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

import gpdsl
from gpdsl.errors import GpdslError

X = np.linspace(0.0, 3.0, 12)
Y = 2.0 * X + 0.1 * np.random.default_rng(0).normal(size=12)
LINE = "input x : real\noutput y : real\nparam a : real = 0\nparam s : positive = 1\ny ~ Normal(a*x, s)\n"


def test_a_model_without_latents_is_maximum_likelihood(tmp_path: Path) -> None:
    fit = gpdsl.compile("model line\n" + LINE).fit({"x": X, "y": Y})
    slope = (X @ Y) / (X @ X)
    spread = np.sqrt(np.mean((Y - slope * X) ** 2))
    assert fit.parameters["a"] == pytest.approx(slope, rel=1e-4)
    assert fit.parameters["s"] == pytest.approx(spread, rel=1e-3)
    expected = stats.norm.logpdf(Y, slope * X, spread)
    assert fit.elbo == pytest.approx(expected.sum(), abs=1e-4)
    np.testing.assert_allclose(fit.log_predictive_density({"x": X, "y": Y}), expected, atol=1e-2)
    assert "the model has no latents" in fit.summary()
    fit.save(tmp_path / "line.gpfit")
    again = gpdsl.load_fit(tmp_path / "line.gpfit").predict({"x": X})
    np.testing.assert_allclose(again.mean("y"), slope * X, rtol=1e-4)
    np.testing.assert_allclose(again.quantile("y", 0.9), stats.norm.ppf(0.9, slope * X, spread), rtol=1e-3, atol=1e-3)
    assert again.sample("y", 3).shape == (3, 12)


def test_priors_count(tmp_path: Path) -> None:
    counts = np.array([3.0, 5.0, 2.0, 4.0])
    text = "output n : count\ninput x : real\nparam m : positive = 1 ~ Gamma(3, 2)\nn ~ Poisson(m)\n"
    fit = gpdsl.compile(text).fit({"x": np.zeros(4), "n": counts})
    assert fit.parameters["m"] == pytest.approx((counts.sum() + 2) / (4 + 2), rel=1e-4)
    np.testing.assert_allclose(
        fit.log_predictive_density({"x": np.zeros(4), "n": counts}), stats.poisson.logpmf(counts, fit.parameters["m"])
    )


def test_a_latent_that_no_output_reads() -> None:
    with_latent = LINE + "latent f(x) ~ GP(0, RBF(1))\n"
    fit = gpdsl.compile(with_latent).fit({"x": X, "y": Y}, steps=20)
    expected = stats.norm.logpdf(Y, fit.parameters["a"] * X, fit.parameters["s"])
    np.testing.assert_allclose(fit.log_predictive_density({"x": X, "y": Y}), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "options", [{"engine": "ep"}, {"engine": "qsgp"}, {"inducing": 3}, {"optimizer": "natural"}], ids=str
)
def test_what_only_latents_have_is_refused(options: dict) -> None:
    with pytest.raises(GpdslError, match="no latents|has none: leave it out; hyperparameters = integrated averages"):
        gpdsl.compile(LINE).fit({"x": X, "y": Y}, **options)


LAWS = {
    "Poisson": ("output n : count\nn ~ Poisson(exp(a + b*x))\n", lambda y, m, _: stats.poisson.logpmf(y, np.exp(m))),
    "Normal": ("output n : real\nparam s : positive\nn ~ Normal(a + b*x, s)\n", stats.norm.logpdf),
    "StudentT": (
        "output n : real\nparam s : positive\nn ~ StudentT(4, a + b*x, s)\n",
        lambda y, m, s: stats.t.logpdf(y, 4, m, s),
    ),
    "Bernoulli": (
        "output n : binary\nn ~ Bernoulli(logit = a + b*x)\n",
        lambda y, m, _: stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-m))),
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_parameters_without_values_start_from_the_data(name: str) -> None:
    """No latent and no starting value: the maximum is that of SciPy."""
    text, log_density = LAWS[name]
    rng, spread = np.random.default_rng(1), "param s" in text
    x = np.linspace(-1.0, 3.0, 40)
    y = {
        "Poisson": rng.poisson(np.exp(0.3 + 0.8 * x)),
        "Bernoulli": rng.random(40) < 1 / (1 + np.exp(1.5 - 1.5 * x)),
    }.get(name, 2 + 3 * x + 0.4 * rng.standard_t(4, size=40))
    y = y.astype(float)
    fit = gpdsl.compile("input x : real\nparam a : real\nparam b : real\n" + text).fit({"x": x, "n": y})

    def loss(p: np.ndarray) -> float:
        return -float(np.sum(log_density(y, p[0] + p[1] * x, np.exp(p[2]) if spread else None)))

    expected = optimize.minimize(loss, np.zeros(3 if spread else 2), method="BFGS")
    assert fit.elbo == pytest.approx(-expected.fun, abs=1e-5)
    np.testing.assert_allclose([fit.parameters["a"], fit.parameters["b"]], expected.x[:2], atol=2e-4)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("level", "scale"), [(0.0, 1e4), (1e5, 1.0), (1e5, 1e6)])
def test_a_regression_on_data_in_large_units(level: float, scale: float, given: bool) -> None:
    """Least squares, from starts of order one and from those of the data."""
    x = np.linspace(0.0, 5.0, 40)
    y = level + scale * (3 * x + 0.1 * np.sin(9 * x))
    a, b, s = (
        ("a : real = 0", "b : real = 0", "s : positive = 1") if given else ("a : real", "b : real", "s : positive")
    )
    text = f"input x : real\noutput y : real\nparam {a}\nparam {b}\nparam {s}\ny ~ Normal(a + b*x, s)\n"
    fit = gpdsl.compile(text).fit({"x": x, "y": y})
    slope, cut = np.polyfit(x, y, 1)
    spread = np.sqrt(np.mean((y - cut - slope * x) ** 2))
    assert fit.elbo == pytest.approx(stats.norm.logpdf(y, cut + slope * x, spread).sum(), abs=1e-5)
    np.testing.assert_allclose([fit.parameters["a"], fit.parameters["b"]], [cut, slope], atol=1e-4 * spread)


def test_the_plan_of_a_model_without_latents() -> None:
    """What is maximised, and nothing of a posterior that is not there."""
    plan = gpdsl.compile("model line\n" + LINE).explain({"x": X, "y": Y})
    assert plan.splitlines() == [
        "plan for line: 12 rows",
        "",
        "no latents: maximum likelihood",
        "",
        "log likelihood",
        "  y ~ Normal",
        "    closed form: -log(s) - log(2*pi)/2 - (-a*x + y)^2/(2*s^2)",
        "      why: no latent value in it",
        "",
        "optimiser",
        "  lbfgs (all rows, a deterministic objective); all rows each step; at most 2000 steps",
        "  learnt: a, s",
    ]
    prior = gpdsl.compile(LINE.replace("= 0\n", "= 0 ~ Normal(0, 1)\n"))
    assert "no latents: maximum a posteriori, with priors of a\n" in prior.explain({"x": X, "y": Y})
    assert "maximum likelihood" in prior.explain({"x": X, "y": Y}, fixed="a")
    assert "  adam (as asked); all rows" in prior.explain({"x": X, "y": Y}, optimizer="adam")


@pytest.mark.parametrize("head", ["", "latent f(x) ~ GP(0, RBF(1))\n"], ids=["parameters", "latent"])
@pytest.mark.parametrize("options", [{"device": "tpux"}, {"devices": 500}], ids=str)
def test_the_plan_refuses_devices_that_the_fit_refuses(head: str, options: dict) -> None:
    model = gpdsl.compile(LINE + head)
    found = []
    for method in (model.fit, model.explain):
        with pytest.raises(GpdslError, match="JAX sees") as caught:
            method({"x": X, "y": Y}, **options)
        found.append(str(caught.value))
    assert found[0] == found[1]


def test_a_parameter_without_a_slope_is_told() -> None:
    """A search by slopes leaves the place of a jump where it starts: it was told not to be determined by the data."""
    text = "input x : real\noutput n : count\nparam at : real = 8 fixed\nparam a : real\nparam b : real\n"
    jump = "let early = if x < at then 1 else 0\nn ~ Poisson(exp(if early == 1 then a else b))"
    data = {"x": np.arange(30.0), "n": np.where(np.arange(30) < 20, [4, 5, 3] * 10, 1)}
    assert not any("jump" in note for note in gpdsl.compile(text + jump).fit(data).notes)
    fit = gpdsl.compile(text.replace(" fixed", "") + jump).fit(data)
    (said,) = (each.said for each in fit.diagnose().doubtful)
    assert "`at` is read only where values jump" in said and fit.parameters["at"] == 8


def test_densities_with_corners_determine_their_parameters() -> None:
    """No curvature at |y - m|: all were told confounded, and 30 nats to be gained by another step."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 2, 150)
    y = 1 + x + rng.laplace(0, 0.5, 150)
    text = "input x : real\noutput y : real\nparam m : real\nparam b : real\ny ~ Laplace(m + b*x, 0.5)\n"
    fit = gpdsl.compile(text).fit({"x": x, "y": y})
    around = [fit.parameters[name] + np.linspace(-0.5, 0.5, 101) for name in ("m", "b")]
    m, b = np.meshgrid(*around, indexing="ij")
    fallen = np.abs(y - m[..., None] - b[..., None] * x).sum(axis=-1) / 0.5
    weights = np.exp(fallen.min() - fallen)
    for name, at in (("m", m), ("b", b)):
        spread = np.sqrt(np.average((at - np.average(at, weights=weights)) ** 2, weights=weights))
        assert fit.standard_errors[name] == pytest.approx(spread, rel=0.2)
    assert not [each for each in fit.inspection.findings if each.doubtful]
