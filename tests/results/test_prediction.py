"""Predictions against formulas, samples and brute-force integration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import gpdsl
from tests.inference.problems import unlearnt

LGCP = """
input x : real
output n : count
latent f(x) ~ GP(0, RBF(1))
let intensity = exp(f + 0.5)
let trend = f * x
n ~ Poisson(intensity)
"""

GPRN = """
index p in 1..2
index q in 1..2
input x : real
output y[p] : real
latent g[q](x) ~ GP(0, RBF(1))
latent w[p,q](x) ~ GP(0.5, 0.3 * RBF(2))
let signal[p] = sum(q, w[p,q] * g[q])
y[p] ~ Normal(signal[p], 0.3)
"""

CLASSES = """
index c in {"low", "mid", "high"}
input x : real
output y : label[c]
latent f[c](x) ~ GP(0, 4 * RBF(1))
y ~ Categorical(logits = f)
"""


@pytest.fixture(scope="module")
def counts() -> gpdsl.Fit:
    x = np.linspace(-2, 2, 30)
    n = np.random.default_rng(0).poisson(np.exp(np.sin(2 * x) + 0.5))
    return gpdsl.compile(LGCP).fit({"x": x, "n": n})


@pytest.fixture(scope="module")
def network() -> tuple[gpdsl.Fit, dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    x = np.linspace(-2, 2, 40)
    y = np.stack([np.sin(2 * x), np.cos(x)], axis=1) + 0.3 * rng.normal(size=(40, 2))
    data = {"x": x, "y": y}
    return unlearnt(GPRN, data, samples=50, posterior="full"), data


def moments(prediction: gpdsl.Prediction, name: str) -> tuple[np.ndarray, np.ndarray]:
    return prediction.mean(name), np.sqrt(prediction.variance(name))


def test_a_log_normal_intensity_has_its_exact_moments_and_quantiles(counts: gpdsl.Fit) -> None:
    p = counts.predict({"x": [-1.0, 0.3, 5.0]})
    m, v = p.mean("f"), p.variance("f")
    np.testing.assert_allclose(p.mean("intensity"), np.exp(m + 0.5 + v / 2), rtol=1e-10)
    np.testing.assert_allclose(p.variance("intensity"), (np.exp(v) - 1) * np.exp(2 * m + 1 + v), rtol=1e-8)
    np.testing.assert_allclose(
        p.quantile("intensity", 0.05), np.exp(m + 0.5 + np.sqrt(v) * stats.norm.ppf(0.05)), rtol=1e-8
    )


def test_a_decreasing_function_of_a_latent_turns_its_quantiles_round(counts: gpdsl.Fit) -> None:
    p = counts.predict({"x": [-1.5]})
    np.testing.assert_allclose(p.quantile("trend", 0.9), -1.5 * p.quantile("f", 0.1), rtol=2e-2)


def test_counts_have_the_mixed_distribution(counts: gpdsl.Fit) -> None:
    """Mean, variance, quantiles and density of the output against integration on a fine grid."""
    p = counts.predict({"x": [0.7]})
    m, s = float(p.mean("f")[0]), float(np.sqrt(p.variance("f")[0]))
    f = m + s * np.linspace(-8, 8, 4001)
    weight = stats.norm.pdf(f, m, s)
    weight /= weight.sum()
    rate = np.exp(f + 0.5)
    n = np.arange(60)
    mass = stats.poisson.pmf(n[:, None], rate) @ weight
    assert p.mean("n")[0] == pytest.approx(mass @ n, rel=1e-6)
    assert p.variance("n")[0] == pytest.approx(mass @ n**2 - (mass @ n) ** 2, rel=1e-5)
    for q in (0.05, 0.5, 0.95):
        assert p.quantile("n", q)[0] == np.argmax(np.cumsum(mass) >= q)
    density = counts.log_predictive_density({"x": np.full(6, 0.7), "n": np.arange(6)})
    np.testing.assert_allclose(density, np.log(mass[:6]), atol=1e-6)


def test_a_narrow_likelihood_is_integrated_where_it_is(counts: gpdsl.Fit) -> None:
    """A count far above what the posterior expects: the density is that of a fine grid, not of a few fixed nodes."""
    fit = gpdsl.compile(LGCP).fit({"x": [0.0, 1.0], "n": [3, 2]})
    p = fit.predict({"x": [9.0]})
    m, s = float(p.mean("f")[0]), float(np.sqrt(p.variance("f")[0]))
    f = m + s * np.linspace(-14, 14, 200_001)
    log_mass = stats.poisson.logpmf(2000, np.exp(f + 0.5)) + stats.norm.logpdf(f, m, s)
    reference = np.logaddexp.reduce(log_mass) + np.log(f[1] - f[0])
    assert fit.log_predictive_density({"x": [9.0], "n": [2000]})[0] == pytest.approx(reference, abs=1e-3)


def test_samples_have_the_moments_they_should(counts: gpdsl.Fit, network) -> None:
    fit, data = network
    for prediction, names in (
        (counts.predict({"x": [0.0, 1.0]}), ["f", "intensity", "n"]),
        (fit.predict(data), ["y", "signal"]),
    ):
        for name in names:
            draws = prediction.sample(name, 6000, seed=2)
            mean, sd = moments(prediction, name)
            assert draws.shape == (6000, *mean.shape)
            assert np.abs((draws.mean(axis=0) - mean) / sd).max() < 5 / np.sqrt(6000) + 0.02
            assert np.abs(draws.std(axis=0) / sd - 1).max() < 0.15
    again = counts.predict({"x": [0.0]})
    np.testing.assert_array_equal(again.sample("n", 5, seed=1), again.sample("n", 5, seed=1))


def test_arrays_keep_their_axes(network) -> None:
    fit, data = network
    p = fit.predict({"x": data["x"][:7]})
    assert p.mean("w").shape == (7, 2, 2) and p.mean("g").shape == (7, 2)
    assert p.mean("y").shape == (7, 2) and p.quantile("y", [0.1, 0.9]).shape == (2, 7, 2)
    np.testing.assert_allclose(p.mean("y"), np.einsum("npq,nq->np", p.mean("w"), p.mean("g")), rtol=1e-8)
    assert fit.log_predictive_density(data).shape == (40,)


def test_outputs_of_a_row_count_together(network) -> None:
    """The joint density of two outputs is not the product of their own when they share latents."""
    fit, data = network
    row = {"x": data["x"][:4], "y": data["y"][:4]}
    only = [{"x": row["x"], "y": np.where(np.arange(2) == i, row["y"], np.nan)} for i in (0, 1)]
    joint, apart = fit.log_predictive_density(row), sum(fit.log_predictive_density(o) for o in only)
    assert np.abs(joint - apart).max() > 1e-3
    latents = fit.predict(row).sample("signal", 40_000, seed=3)
    log_p = stats.norm.logpdf(row["y"], latents, 0.3).sum(axis=-1)
    np.testing.assert_allclose(joint, np.logaddexp.reduce(log_p, axis=0) - np.log(len(log_p)), atol=0.35)


def test_labels_come_back_as_the_data_wrote_them() -> None:
    x = np.repeat(np.array([-2.0, 0.0, 2.0]), 8)
    y = np.repeat(np.array(["low", "mid", "high"]), 8)
    fit = gpdsl.compile(CLASSES).fit({"x": x, "y": y})
    p = fit.predict({"x": [-2.0, 0.0, 2.0]})
    np.testing.assert_allclose(p.mean("y").sum(axis=1), 1.0, atol=1e-8)
    assert list(p.label("y")) == ["low", "mid", "high"]
    alone = fit.predict({"x": [2.0]}).mean("y")  # what is sampled of a row depends on no other
    np.testing.assert_allclose(alone[0], p.mean("y")[2], rtol=1e-9)
    assert set(np.unique(p.sample("y", 50))) <= {1.0, 2.0, 3.0}
    assert gpdsl.score.error_rate(fit, {"x": x, "y": y}) == 0.0
    nlp = -np.log(fit.predict({"x": x}).mean("y")[np.arange(24), np.repeat([0, 1, 2], 8)]).mean()
    assert gpdsl.score.nlpd(fit, {"x": x, "y": y}) == pytest.approx(nlp, abs=0.02)


def test_columns_of_outputs_are_not_looked_at(counts: gpdsl.Fit) -> None:
    alone = counts.predict({"x": [0.0, 1.0]}).mean("n")
    for values in (["?", "none"], [-1, np.inf], [1.5]):
        np.testing.assert_array_equal(counts.predict({"x": [0.0, 1.0], "n": values}).mean("n"), alone)
        with pytest.raises(gpdsl.GpdslError, match="`n`"):
            counts.log_predictive_density({"x": [0.0, 1.0], "n": values})


def test_many_rows_are_the_same_as_few(counts: gpdsl.Fit) -> None:
    """More rows than one chunk: nothing depends on how rows are cut."""
    x = np.linspace(-3, 3, 9001)
    np.testing.assert_allclose(
        counts.predict({"x": x}).mean("f")[[0, 4500, 9000]], counts.predict({"x": x[[0, 4500, 9000]]}).mean("f")
    )


@pytest.mark.parametrize(
    "ask,message",
    [
        (lambda p: p.mean("intensty"), "did you mean `intensity`?"),
        (lambda p: p.mean("exp(f)"), r"`let h = exp\(f\)`"),
        (lambda p: p.quantile("f", 1.5), "strictly between 0 and 1"),
        (lambda p: p.quantile("f", []), "strictly between 0 and 1"),
        (lambda p: p.quantile("f", [[0.1, 0.9]]), "strictly between 0 and 1"),
        (lambda p: p.mean(["f"]), "no latent, let or output"),
        (lambda p: p.sample("f", 0), "a positive number of draws"),
        (lambda p: p.label("n"), "not a label, ordinal or binary output"),
    ],
)
def test_wrong_questions_are_answered_with_what_to_ask(counts: gpdsl.Fit, ask, message: str) -> None:
    with pytest.raises(gpdsl.GpdslError, match=message.replace("?", r"\?")):
        ask(counts.predict({"x": [0.0]}))
