"""Scores of predictive distributions against the integral that defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

import gpdsl

HEAD = "input x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, RBF(1))\n"
X = np.linspace(0, 4, 15)
NEW = np.array([0.3, 3.7, 8.0])
AT = np.array([0.1, 2.0, -1.5])


def fitted(kind: str, lines: str, y: np.ndarray, **options: Any) -> gpdsl.Prediction:
    return gpdsl.compile(HEAD.format(kind=kind) + lines).fit({"x": X, "y": y}, **options).predict({"x": NEW})


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


def test_of_others_it_comes_from_draws_or_probabilities() -> None:
    found = fitted("count", "y ~ Poisson(exp(f))\n", np.arange(15) % 3, steps=20)
    y, levels = np.array([2.0, 0.0, 4.0]), np.arange(60)
    cdf = np.stack([found.probability(f"y <= {k}") for k in levels], axis=1)
    exact = np.sum((cdf - (levels >= y[:, None])) ** 2, axis=1)
    np.testing.assert_allclose(found.crps("y", y, draws=20_000), exact, rtol=0.05)
    binary = fitted("binary", "y ~ Bernoulli(logit = f)\n", np.arange(15) % 2, steps=20)
    np.testing.assert_allclose(binary.crps("y", [0, 1, 1]), (binary.mean("y") - [0, 1, 1]) ** 2)


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


def test_totals_of_groups_are_compared_draw_by_draw() -> None:
    prediction = fitted("real", "y ~ Normal(f, 0.3)\n", np.sin(X))
    total = prediction.total("f", by=["a", "b", "b"], how="mean", count=4000)
    apart = total["b"] - total["a"]
    weights = np.array([-1.0, 0.5, 0.5])
    assert apart.sd == pytest.approx(np.sqrt(weights @ prediction.covariance("f") @ weights), rel=0.05)
    assert apart.mean == pytest.approx(weights @ prediction.mean("f"), abs=0.05)
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
