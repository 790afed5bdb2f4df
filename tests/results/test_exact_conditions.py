"""Equalities, negations and lines of one output are exact; levels are named in words; errors show the condition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import gpdsl
from tests.inference.problems import unlearnt

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
    return unlearnt(TEXT, data).predict({"x": [1.0, 4.0]})


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
    for condition in (
        "k > 2",
        "not k <= 2",
        "k - 1 > 1",
        "-k / 2 < -1",
        "2 * k > 4",
        "not (k < 3)",
        "4 - k < k",
        "2 * (k - 1) > 2",
    ):
        np.testing.assert_allclose(exactly(prediction, condition), more, rtol=1e-6)
    np.testing.assert_allclose(exactly(prediction, "b == 1"), prediction.mean("b"), rtol=1e-9)
    np.testing.assert_allclose(exactly(prediction, "kind != 1"), prediction.mean("kind")[:, 1], rtol=1e-9)
    assert exactly(prediction, "x > 2").tolist() == [0.0, 1.0]


def test_a_share_of_no_draw_or_of_all_has_an_error(prediction: gpdsl.Prediction) -> None:
    assert not prediction.probability("k > 1000 and f > 0").any()
    np.testing.assert_allclose(prediction.probability("k > 1000 and f > 0", error=True), 3 / 4096)


def test_shares_of_draws_have_the_error_of_their_number(prediction: gpdsl.Prediction) -> None:
    assert np.all(prediction.probability("k < 1000 and f > -99") == 1)
    np.testing.assert_allclose(prediction.probability("k < 1000 and f > -99", error=True), 3 / 4096)
    share, error = (prediction.probability("k > 1 and f > -0.5", error=each) for each in (False, True))
    spread = np.sqrt(share * (1 - share) / 4096)
    np.testing.assert_allclose(error, np.where(spread > 0, spread, 3 / 4096))


def test_what_has_no_value_is_neither_less_nor_more_by_the_law_and_in_draws(prediction: gpdsl.Prediction) -> None:
    for condition, at_the_first in (("f > log(x - 2)", 0), ("log(x - 2) > f", 0), ("not (f > log(x - 2))", 1)):
        known, drawn = (prediction.probability(each) for each in (condition, f"({condition}) and f < 99 + f^2"))
        assert known[0] == drawn[0] == at_the_first and 0 < known[1] < 1


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
        ('kind in ["barolo"]', "there is no `in`; write `kind == 1 or kind == 2`, words of levels in quotes"),
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


@pytest.mark.slow
def test_what_rises_or_falls_with_one_latent_is_exact() -> None:
    """Against the latent where the function has the value; what does neither is drawn."""
    text = """
    index k in 1..2
    input x : real
    output n : count
    latent f(x) ~ GP(0, RBF(1))
    let rate = exp(f - x / 10)
    let soft[k] = softplus(f + k)
    let fold = exp(f) + exp(-f)
    n ~ Poisson(rate)
    """
    found = gpdsl.compile(text).fit({"x": X, "n": np.round(np.exp(np.sin(X)))}, seed=0).predict({"x": [1.0, 4.0]})
    x, f = np.array([1.0, 4.0]), stats.norm(found.mean("f"), found.sd("f"))
    for condition, wanted in {
        "rate > 2": f.sf(np.log(2) + x / 10),
        "rate <= 2": f.cdf(np.log(2) + x / 10),
        "2 - 3 * rate < 1.1 * x - 4": f.sf(np.log((6 - 1.1 * x) / 3) + x / 10),
        "soft[2] < 1.5": f.cdf(np.log(np.expm1(1.5)) - 2),
        "exp(f) > 2": f.sf(np.log(2)),
        "exp(-2 * f) > x": f.cdf(-np.log(x) / 2),
        "1 < f + exp(f)": f.sf(0.0),
        "rate^3 + rate > 2": f.sf(x / 10),
        "exp(f) < -1": np.zeros(2),
    }.items():
        np.testing.assert_allclose(exactly(found, condition), wanted, rtol=1e-9, err_msg=condition)
    for condition in ("f^2 > 0.5", "fold > 3"):
        assert found.probability(condition, error=True).all(), condition


@pytest.mark.parametrize("latent", ["f(x, d) ~ GP(0, RBF(1))", "f[d](x) ~ GP(0, RBF(1))"])
def test_elements_of_latents_and_outputs_are_exact(latent: str) -> None:
    text = f"index d in 1..2\ninput x : real\noutput y[d] : real\nlatent {latent}\ny[d] ~ Normal(f[d], 1)\n"
    found = gpdsl.compile(text).fit({"x": X, "y": np.stack([np.sin(X), X], 1)}).predict({"x": [1.0, 4.0]})
    for name in ("f", "y"):
        own = stats.norm(found.mean(name), found.sd(name))
        for place in (0, 1):
            np.testing.assert_allclose(exactly(found, f"{name}[{place + 1}] > 0.5"), own.sf(0.5)[:, place], rtol=1e-9)
