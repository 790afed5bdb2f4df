"""Scores of predictive distributions against the integral that defines them."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit

import gpdsl
from gpdsl.results.scored import _numbered, _of_draws, _size
from tests.inference.problems import unlearnt

HEAD = "input x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, RBF(1))\n"
X = np.linspace(0, 4, 15)
NEW = np.array([0.3, 3.7, 8.0])
AT = np.array([0.1, 2.0, -1.5])
UNIT = np.array([0.1, 0.9, 0.5])


def fitted(kind: str, lines: str, y: np.ndarray, **options: Any) -> gpdsl.Prediction:
    return unlearnt(HEAD.format(kind=kind) + lines, {"x": X, "y": y}, **options).predict({"x": NEW})


def integral(cdf: Any, y: float) -> float:
    below = quad(lambda z: cdf(z) ** 2, -30, y, limit=200, points=[y - 2])[0]
    return float(below + quad(lambda z: (1 - cdf(z)) ** 2, y, 30, limit=200, points=[y + 2])[0])


@pytest.mark.parametrize("options", [{}, {"posterior": "mixture_full(2)", "inducing": 5, "steps": 5}])
def test_of_normal_outputs_it_is_the_integral(options: dict[str, Any]) -> None:
    found = fitted("real", "y ~ Normal(f, 0.3)\n", np.sin(X), **options)
    means, variances = (
        np.asarray(each)[:, :, 0] for each in (found.beliefs.marginals.mean, found.beliefs.marginals.variance)
    )
    score = found.crps("y", AT)
    for row in range(3):
        parts = stats.norm(means[:, row], np.sqrt(variances[:, row] + 0.09))
        expected = integral(lambda z, parts=parts: found.beliefs.weights @ parts.cdf(z), AT[row])
        assert score[row] == pytest.approx(expected, rel=1e-5)
    assert np.isnan(found.crps("y", [np.nan, 1.0, 2.0])).tolist() == [True, False, False]


@pytest.mark.parametrize("offset", [0, 3, 6])
def test_of_counts_it_is_the_sum_few_or_many(offset: int) -> None:
    """Between two edges up to four numbers one by one, more by quadrature; rows of both kinds are scored together."""
    n = np.round(np.exp(offset) * (np.arange(15) % 3))
    found = fitted("count", f"y ~ Poisson(exp(f + {offset}))\n", n, spread=0.1)
    y, levels = np.round(np.exp(offset) * np.array([2.0, 0.0, 4.0])), np.arange(60 if offset == 0 else 8000)
    rule = np.linspace(-6, 6, 241)
    weights = np.exp(-0.5 * rule**2) / np.sum(np.exp(-0.5 * rule**2))
    mean, sd = found.mean("f"), np.sqrt(found.variance("f"))
    for row in range(3):
        nodes, far = np.exp(offset + mean[row] + sd[row] * rule), np.zeros(len(levels))
        for weight, node in zip(weights, nodes, strict=True):
            far += weight * stats.poisson.cdf(levels, node)
        exact = np.sum((far - (levels >= y[row])) ** 2)
        assert found.crps("y", y)[row] == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "law", "at", "y"),
    [
        ("real", "StudentT(3, f, 0.3)", lambda f: stats.t(3, f, 0.3), AT),
        ("positive", "Gamma(2, 2 / exp(f))", lambda f: stats.gamma(2, scale=np.exp(f) / 2), np.array([0.1, 5.0, 1.0])),
        ("unit", "Beta(4 * sigmoid(f), 4 * sigmoid(-f))", lambda f: stats.beta(4 * expit(f), 4 * expit(-f)), UNIT),
    ],
)
def test_of_others_it_is_the_integral_too(kind: str, law: str, at: Any, y: np.ndarray) -> None:
    seen = {"real": np.sin(X), "positive": np.exp(np.sin(X)), "unit": expit(np.sin(X))}[kind]
    found = fitted(kind, f"y ~ {law}\n", seen)
    rule = np.linspace(-6, 6, 61)
    weights = np.exp(-0.5 * rule**2) / np.sum(np.exp(-0.5 * rule**2))
    for row in range(3):
        laws = at(found.mean("f")[row] + np.sqrt(found.variance("f")[row]) * rule)
        z = np.sort(
            np.concatenate(
                [y[row] + np.concatenate([-np.geomspace(1e-5, 60, 600), np.geomspace(1e-5, 60, 600)]), [0, 1]]
            )
        )
        inside = (z > 1e-12) | (kind == "real")
        far = np.where(inside, [weights @ laws.cdf(each) for each in z], 0.0)
        exact = np.trapezoid(np.where(z < y[row], far**2, 0), z) + np.trapezoid(
            np.where(z >= y[row], (1 - far) ** 2, 0), z
        )
        assert found.crps("y", y)[row] == pytest.approx(exact, rel=5e-3)
    assert np.isnan(found.crps("y", [np.nan, *y[1:]])).tolist() == [True, False, False]


def test_of_two_values_it_is_the_square() -> None:
    binary = fitted("binary", "y ~ Bernoulli(logit = f)\n", np.arange(15) % 2, steps=20)
    np.testing.assert_allclose(binary.crps("y", [0, 1, 1]), (binary.mean("y") - [0, 1, 1]) ** 2)


@pytest.mark.slow
def test_without_a_formula_it_comes_from_draws() -> None:
    drawn = fitted("real", "density peak(y | m) = -2 * abs(y - m)\ny ~ peak(f)\n", np.sin(X), steps=20)
    formula = fitted("real", "y ~ Laplace(f, 0.5)\n", np.sin(X), steps=20)
    np.testing.assert_allclose(drawn.crps("y", AT, draws=20_000), formula.crps("y", AT), rtol=0.05)


def test_units_intervals_and_refusals() -> None:
    plain = gpdsl.compile(HEAD.format(kind="real") + "y ~ Normal(f, 0.3)\n")
    y = np.sin(X)
    fit, scaled = (plain.fit({"x": X, "y": y * k}, standardise={"y": (0.0, k)}) for k in (1.0, 20.0))
    ends = fit.predict({"x": X}).interval("y", 0.8)
    np.testing.assert_array_equal(ends, fit.predict({"x": X}).quantile("y", [0.1, 0.9]))
    score = gpdsl.score.crps(fit, {"x": X, "y": y})
    assert gpdsl.score.crps(scaled, {"x": X, "y": 20 * y}) == pytest.approx(20 * score, rel=1e-9)
    prediction = fit.predict({"x": NEW})
    for asked, said in (
        (lambda: prediction.crps("f", AT), "crps of `f`: expected an output"),
        (lambda: prediction.crps("y", AT[:2]), r"the values have the shape \(2,\), expected \(3,\)"),
        (lambda: prediction.interval("y", 90), "expected a level between 0 and 1, got 90"),
    ):
        with pytest.raises(gpdsl.GpdslError, match=said):
            asked()


def test_groups_of_a_total_stand_in_their_order() -> None:
    gamma = fitted("real", "y ~ Normal(f, 0.3)", np.sin(X))
    pd = pytest.importorskip("pandas")
    months = pd.Categorical(["may", "april", "may"], categories=["april", "may"][::-1], ordered=True)
    assert gamma.total("y", by=months, count=5).groups.tolist() == ["may", "april"]
    total = gamma.total("y", by=["9", "10", "9"], count=50)
    assert total.groups.tolist() == ["9", "10"]
    np.testing.assert_array_equal(total["10"].draws, gamma.draws("y", 50, seed=0)[:, 1])
    for wrong in (2, "a", None, []):
        with pytest.raises(gpdsl.GpdslError, match="expected probabilities from 0 to 1"):
            total.quantile(wrong)


def test_totals_of_groups_are_compared_draw_by_draw() -> None:
    prediction = fitted("real", "y ~ Normal(f, 0.3)\n", np.sin(X))
    total = prediction.total("f", by=["a", "b", "b"], how="mean", count=4000)
    apart = total["b"] - total["a"]
    weights = np.array([-1.0, 0.5, 0.5])
    assert apart.sd == pytest.approx(np.sqrt(weights @ prediction.covariance("f") @ weights), rel=0.05)
    assert apart.mean == pytest.approx(weights @ prediction.mean("f"), abs=0.05)
    both = total["a"] + total["b"]
    np.testing.assert_array_equal(both.draws, total.draws.sum(axis=1))
    np.testing.assert_array_equal((2 * both / total["a"]).draws, 2 * both.draws / total["a"].draws)
    np.testing.assert_array_equal((1 - total["a"] ** 2).draws, 1 - total["a"].draws ** 2)
    np.testing.assert_array_equal((-np.exp(total)).draws, -np.exp(total.draws))
    assert (total["b"] > total["a"]).mean == np.mean(total.draws[:, 1] > total.draws[:, 0])
    for refused in (lambda: np.sum(total), lambda: total + [1, 2], lambda: np.divmod(total, 2)):
        with pytest.raises(gpdsl.GpdslError, match="expected an operation|expected another total or a number"):
            refused()
    distribution = "this is a distribution"
    for one in (lambda: bool(total["a"] > 0), lambda: max(total["a"], total["b"]), lambda: np.where(total > 0, 1, 0)):
        with pytest.raises(gpdsl.GpdslError, match=distribution):
            one()
    with pytest.raises(gpdsl.GpdslError, match=distribution):
        np.quantile(total, 0.9)
    with pytest.raises(gpdsl.GpdslError, match="invert is for conditions"):
        np.invert(total)
    np.testing.assert_array_equal((total > 0).to_frame([0.5])["mean"], (total.draws > 0).mean(axis=0))
    mean = prediction.total("f", how="mean", count=4000)
    for others, seed in ((copy.copy(prediction), 0), (prediction, 1)):
        with pytest.raises(gpdsl.GpdslError, match="draws of two predictions, or with two seeds, do not belong"):
            mean - others.total("f", how="mean", count=4000, seed=seed)
    with pytest.raises(gpdsl.GpdslError, match="as many draws and of the same groups"):
        total - prediction.total("f", by=["a", "c", "c"], count=4000)
    with pytest.raises(gpdsl.GpdslError, match="expected another total or a number, got more"):
        total * "more"
    with pytest.raises(gpdsl.GpdslError, match="rows without a group"):
        prediction.total("f", by=np.ma.array([1, 2, 2], mask=[False, True, False]))
    told = repr(total)
    assert told.startswith("<gpdsl total of 4000 draws, mean and 90%: a: ") and f", b: {total['b'].mean:.5g} (" in told
    assert repr(total["a"]).startswith(f"<gpdsl total of 4000 draws, mean and 90%: {total['a'].mean:.5g} (")
    frame = total.to_frame([0.5])
    assert list(frame.index) == ["a", "b"] and list(frame) == ["mean", "sd", "q0.5"]
    np.testing.assert_array_equal(frame["q0.5"], np.median(total.draws, axis=0))
    assert total["a"].to_frame().shape == (1, 4)
    np.testing.assert_array_equal(prediction.sd("y"), np.sqrt(prediction.variance("y")))
    with pytest.raises(gpdsl.GpdslError, match="'c' is no group; expected one of a, b"):
        total["c"]
    with pytest.raises(gpdsl.GpdslError, match="another total of as many draws"):
        total - total["a"]


def test_scores_of_draws_are_means_over_pairs_of_them() -> None:
    """E|Y - y| - E|Y - Y'| / 2, over pairs of different draws; of a normal law E|Y| by its integral."""
    draws, y = np.sort(np.random.default_rng(0).normal(size=(7, 3)), axis=0), np.array([0.4, -2.0, 3.0])
    pairs = np.abs(draws[:, None] - draws).sum(axis=(0, 1)) / (7 * 6)
    np.testing.assert_allclose(_of_draws(y, draws), np.abs(draws - y).mean(axis=0) - 0.5 * pairs, atol=1e-12)
    for mean, sd in ((0.7, 1.3), (-2.0, 0.4)):
        expected = quad(lambda z, m=mean, s=sd: abs(m + s * z) * stats.norm.pdf(z), -12, 12, points=[-mean / sd])[0]
        assert _size(np.array(mean), np.array(sd)) == pytest.approx(expected)


def test_levels_of_observed_labels_are_numbered_in_their_order() -> None:
    prediction = cast(Any, SimpleNamespace(levels=lambda name: ("low", "mid", "high")))
    found = _numbered(prediction, "k", [["high", None], ["low", float("nan")]])
    np.testing.assert_array_equal(found, [[2.0, np.nan], [0.0, np.nan]])
    with pytest.raises(gpdsl.GpdslError, match="other is none of its levels, low, mid, high"):
        _numbered(prediction, "k", ["low", "other"])


def test_error_rates_are_shares_of_labels_that_are_not_the_most_probable() -> None:
    """And of binary values on the wrong side; unobserved ones count for nothing, and numbers have no such share."""
    text = "index c in 1..3\ninput x : real\noutput y : label[c]\noutput b : binary\noutput n : real\n"
    text += "latent f[c](x) ~ GP(0, RBF(1))\ny ~ Categorical(logits = f)\nb ~ Bernoulli(probit = f[1])\n"
    text += "n ~ Normal(f[2], 1)\n"
    data = {"x": X, "y": [1, 2, 3] * 5, "b": [1, 1, 0] * 5, "n": X}
    fit = unlearnt(text, data)
    places, sure = fit.predict(data).mean("y").argmax(axis=1) + 1, fit.predict(data).mean("b") > 0.5
    seen = {**data, "b": np.where(X > 2, np.nan, data["b"])}
    assert gpdsl.score.error_rate(fit, data, "y") == np.mean(places != data["y"])
    assert gpdsl.score.error_rate(fit, seen, "b") == np.mean((sure != np.array(data["b"]))[X <= 2])
    with pytest.raises(gpdsl.GpdslError, match="error_rate: `n` is neither binary nor a label; use rmse, crps or nlpd"):
        gpdsl.score.error_rate(fit, data, "n")
