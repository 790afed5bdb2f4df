"""Equalities, negations and lines of one output are exact; levels are named in words; errors show the condition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import gpdsl

TEXT = """
index c in {"barolo", "grignolino"}
input x : real
output k : count
output b : binary
output kind : label[c]
latent f(x) ~ GP(0, RBF(1))
latent g[c](x) ~ GP(0, RBF(1))
k ~ Poisson(exp(f))
b ~ Bernoulli(logit = f)
kind ~ Categorical(logits = g)
"""
X = np.linspace(0, 6, 20)
WORDS = np.where(np.sin(X) > 0, "yes", "no")


@pytest.fixture(scope="module")
def prediction() -> gpdsl.Prediction:
    kind = np.where(np.sin(X) > 0, "barolo", "grignolino")
    data = {"x": X, "k": np.round(np.exp(np.sin(X))), "b": WORDS, "kind": kind}
    return gpdsl.compile(TEXT).fit(data, seed=0).predict({"x": [1.0, 4.0]})


def exactly(prediction: gpdsl.Prediction, condition: str) -> np.ndarray:
    assert not prediction.probability(condition, error=True).any()
    return prediction.probability(condition)


def test_what_is_said_of_one_output_is_exact(prediction: gpdsl.Prediction) -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    mean, sd = prediction.mean("f"), np.sqrt(prediction.variance("f"))
    rates = np.exp(mean[:, None] + sd[:, None] * nodes)
    two, more = (each @ weights / weights.sum() for each in (stats.poisson.pmf(2, rates), stats.poisson.sf(2, rates)))
    for condition in ("k == 2", "2 * k + x == x + 4", "not k != 2"):
        np.testing.assert_allclose(exactly(prediction, condition), two, rtol=1e-6)
    for condition in ("k > 2", "not k <= 2", "k - 1 > 1", "-k / 2 < -1", "2 * k > 4", "not (k < 3)", "4 - k < k"):
        np.testing.assert_allclose(exactly(prediction, condition), more, rtol=1e-6)
    np.testing.assert_allclose(exactly(prediction, "b == 1"), prediction.mean("b"), rtol=1e-9)
    np.testing.assert_allclose(exactly(prediction, "kind != 1"), prediction.mean("kind")[:, 1], rtol=1e-9)
    assert exactly(prediction, "x > 2").tolist() == [0.0, 1.0]


def test_a_share_of_no_draw_or_of_all_has_an_error(prediction: gpdsl.Prediction) -> None:
    assert not prediction.probability("k > 1000 and f > 0").any()
    np.testing.assert_allclose(prediction.probability("k > 1000 and f > 0", error=True), 3 / 4096)


def test_levels_are_named_in_words(prediction: gpdsl.Prediction) -> None:
    first = prediction.mean("kind")[:, 0]
    for condition in ('kind == "barolo"', "kind != 'grignolino'", '"barolo" == kind'):
        np.testing.assert_allclose(exactly(prediction, condition), first, rtol=1e-9)
    np.testing.assert_allclose(exactly(prediction, 'b == "no"'), 1 - prediction.mean("b"), rtol=1e-9)
    np.testing.assert_allclose(prediction.crps("b", ["yes", "no"]), prediction.crps("b", [1, 0]))


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ('kind == "merlot"', r'`kind` is compared with "merlot"; expected one of barolo, grignolino'),
        ('k == "two"', r'`k` is compared with "two"; expected a number: it has no levels in words'),
        ("f > 1 & f < 2", "has `&`; conditions are joined by `and`"),
        ("f > 1 and z > 3", r"^<condition>:1:11: error\[E201\]: unknown name `z`\n +1 \| f > 1 and z > 3\n"),
        (lambda y: y > 3, 'expected a condition as text, as "y > 3", got <function'),
    ],
)
def test_conditions_are_refused_as_they_were_written(
    prediction: gpdsl.Prediction, condition: str, message: str
) -> None:
    with pytest.raises(gpdsl.GpdslError, match=message):
        prediction.probability(condition)


@pytest.mark.parametrize("second", ["v ~ Normal(2*f, 0.1)", "v ~ Poisson(exp(f))"])
def test_given_rows_may_leave_out_an_output(second: str) -> None:
    kind = "count" if "Poisson" in second else "real"
    text = (
        f"input x : real\noutput u : real\noutput v : {kind}\nlatent f(x) ~ GP(0, RBF(1))\nu ~ Normal(f, 0.1)\n{second}"
    )
    fit = gpdsl.compile(text).fit({"x": X, "u": np.sin(X), "v": np.round(1 + np.sin(X))}, seed=0)
    without, missing = ({"x": [8.0], "u": [1.0], **more} for more in ({}, {"v": [np.nan]}))
    found, expected = (fit.predict({"x": [8.0]}, given=each).mean("v") for each in (without, missing))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found[0] > fit.predict({"x": [8.0]}).mean("v")[0]
