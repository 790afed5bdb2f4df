"""Log-concavity: what is proved holds on a grid, what does not hold is refused, and the rest is said to be checked."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import gpdsl
from gpdsl.symbolic import functions as f
from gpdsl.symbolic.concavity import PLACES, Concavity, _curvature, concave, log_concavity, one_way
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.terms import observation_terms
from gpdsl.symbolic.translate import Translator

from .models import scalar, translator

MODEL = """
model m
input x : real
input n : positive
output y : {kind}
param s : positive = 1
param m : real = 0.3
latent f(x) ~ GP(0, RBF(1))
y ~ {law}
"""
PROVED = [
    ("real", "Normal(f + m, s)"),
    ("real", "Normal(2 * f, s + abs(x))"),
    ("real", "Laplace(f, s)"),
    ("real", "Logistic(f, s)"),
    ("binary", "Bernoulli(logit = f)"),
    ("binary", "Bernoulli(probit = f + m)"),
    ("binary", "Bernoulli(p = sigmoid(f))"),
    ("binary", "Bernoulli(p = Phi(2 * f + m))"),
    ("count", "Poisson(n * exp(f + m))"),
    ("count", "Poisson(softplus(f))"),
    ("count", "NegativeBinomial(exp(f), s)"),
    ("count", "Binomial(n, logit = f)"),
    ("count", "Binomial(n, probit = f)"),
    ("count", "Binomial(10, probit = f)"),
    ("positive", "Exponential(exp(f))"),
    ("positive", "Gamma(2, exp(f))"),
    ("positive", "Gamma(2, softplus(f))"),
    ("positive", "LogNormal(f, s)"),
    ("positive", "Weibull(s, exp(f))"),
    ("real", "Normal(0, exp(f))"),
    ("real", "Censored(Normal(f, s), lower = 0)"),
]
CHECKED = [("real", "Truncated(Normal(f, s), lower = 0)")]
REFUSED = [
    ("real", "StudentT(4, f, s)"),
    ("real", "Normal(f^2, s)"),
    ("real", "Mixture([0.9, 0.1], Normal(f, s), Normal(f, 10 * s))"),
    ("real", "Censored(StudentT(4, f, s), upper = 1)"),
    ("positive", "Gamma(exp(f), s)"),
    ("count", "Poisson(f^2)"),
    ("unit", "Beta(exp(f), s)"),
]
ZOO = {
    "abalone": "proved",
    "airline": "proved",
    "boston": "proved",
    "coal_mining": "proved",
    "creep": "proved",
    "gprn": "refused",
    "heteroscedastic": "refused",
    "laplace": "proved",
    "multitask": "proved",
    "ordinal": "proved",
    "preference": "proved",
    "probit": "proved",
    "seismic": "refused",
    "seismic_external": "refused",
    "student_t": "refused",
    "usps": "proved",
    "wisconsin": "proved",
}


class Three(dict):
    """Sizes that data would say."""

    def __missing__(self, name: str) -> int:
        return 3


def verdict(model: gpdsl.Model) -> Concavity:
    """The verdict on all observations of a model."""
    translator = Translator(model.declarations, Three({"C": 3}))
    return log_concavity(translator, observation_terms(translator))


def of(kind: str, law: str) -> Concavity:
    """The verdict on one likelihood."""
    return verdict(gpdsl.compile(MODEL.format(kind=kind, law=law)))


@pytest.mark.parametrize(("kind", "law"), PROVED)
def test_log_concave_likelihoods_are_proved_so(kind: str, law: str) -> None:
    """Each by composition of known curvatures or by the sign of a second derivative."""
    assert of(kind, law).verdict == "proved"


@pytest.mark.parametrize(("kind", "law"), CHECKED)
def test_what_is_only_checked_says_so(kind: str, law: str) -> None:
    """These are log-concave, which no rule here proves."""
    found = of(kind, law)
    assert found.verdict == "checked" and "not a proof" in found.reason and found.holds


@pytest.mark.parametrize(("kind", "law"), REFUSED)
def test_the_place_of_a_positive_second_derivative_is_told(kind: str, law: str) -> None:
    """With the value it has there."""
    found = of(kind, law)
    assert not found.holds and "its second derivative is" in found.reason and "f = " in found.reason


def test_the_place_told_for_student_t_is_where_it_bends_upwards() -> None:
    """More than sqrt(df) scales from the data: RW 2006, section 9.1."""
    words = of("real", "StudentT(4, f, s)").reason.split(" at ")[-1]
    place = {name: float(value) for name, value in (each.split(" = ") for each in words.split(", "))}
    assert abs(place["y"] - place["f"]) > 2 * place["s"]


def test_the_second_derivative_told_is_that_of_the_formula() -> None:
    """Of -(nu + 1)/2 log(1 + t^2/(nu s^2)), by SymPy; the place is told with three digits."""
    words = of("real", "StudentT(4, f, s)").reason
    told = dict(each.split(" = ") for each in words.split(" at ")[-1].split(", "))
    t, s = float(told["y"]) - float(told["f"]), float(told["s"])
    slope = 5 * (t**2 - 4 * s**2) / (t**2 + 4 * s**2) ** 2
    assert float(words.split("its second derivative is ")[1].split(" ")[0]) == pytest.approx(slope, rel=0.05)


@pytest.mark.parametrize(("bend", "certain"), [(0.5, True), (0.05, False), (-0.5, False)])
def test_curvature_is_told_from_rounding(bend: float, certain: bool) -> None:
    """Values of a million may be wrong by 1e-4, which second differences over the squared step of 1/40 make 0.16."""
    x = sp.Symbol("x", real=True)
    found = _curvature(1e6 + bend * x**2 / 2, {x: PLACES})
    np.testing.assert_allclose(found, bend if certain else 0.0, rtol=1e-2)


@pytest.mark.parametrize(("fall", "certain"), [(1e5, True), (1e7, False)])
def test_curvature_is_told_beside_the_largest(fall: float, certain: bool) -> None:
    """2 on the right is more than a millionth of -2e5 on the left, and less than one of -2e7."""
    x = sp.Symbol("x", real=True)
    found = _curvature(f.choose(f.less(x, 0), -fall * x**2, x**2), {x: PLACES})
    np.testing.assert_allclose(found[PLACES[1:-1] > 0], 2.0 if certain else 0.0, rtol=1e-2)
    assert not np.any(found[PLACES[1:-1] < 0])


@pytest.mark.parametrize(("name", "expected"), ZOO.items())
def test_likelihoods_of_the_zoo(name: str, expected: str) -> None:
    """Softmax and ordinal ones included."""
    assert verdict(gpdsl.zoo(name)).verdict == expected


def test_no_proof_of_what_is_not_concave() -> None:
    """Random compositions: whatever is said to be concave has no positive second difference."""
    x, s = sp.Symbol("x", real=True), sp.Symbol("s", positive=True)
    rng = np.random.default_rng(0)
    grid = np.linspace(-4, 4, 401)
    functions = [sp.exp, f.softplus, f.absolute, f.log_ndtr, sp.cosh, f.sigmoid, lambda e: e**2, lambda e: -e]
    proofs = 0
    for _ in range(60):
        expression = x
        for _ in range(rng.integers(1, 4)):
            inner = round(rng.normal(), 2) * expression + round(rng.normal(), 2)
            expression = functions[rng.integers(len(functions))](inner) + s * expression * int(rng.integers(-1, 2))
        if not concave(expression, [x]):
            continue
        proofs += 1
        values = np.broadcast_to(evaluate(expression, {x: grid, s: np.asarray(0.7)}), grid.shape)
        second = values[2:] - 2 * values[1:-1] + values[:-2]
        ok = np.isfinite(second)
        assert np.all(second[ok] <= 1e-9 * (1 + np.abs(values[1:-1][ok]))), expression
    assert proofs > 8


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        ("Normal(f, exp(g))", True),
        ("Normal(f + s * g, s)", True),
        ("Normal(-2 * exp(f + 0.5 * g), exp(h))", True),
        ("StudentT(4, sigmoid(f), s)", True),
        ("Normal(f * g, s)", False),
        ("Normal(f^2, s)", False),
        ("Normal(exp(f) + g, s)", False),
        ("Normal(f, abs(g) + 1)", False),
    ],
)
def test_each_argument_moves_one_way(law: str, expected: bool) -> None:
    known = translator(scalar(law))
    assert one_way(known, observation_terms(known)) == expected


def test_the_weakest_verdict_on_any_output_is_that_of_the_model() -> None:
    """With its own reasons alone, in whichever order outputs stand."""
    two = "input x : real\noutput y : real\noutput z : real\nlatent f(x) ~ GP(0, RBF(1))\n"
    for first, second in (("y", "z"), ("z", "y")):
        found = verdict(gpdsl.compile(f"{two}{first} ~ Normal(f, 1)\n{second} ~ StudentT(3, f, 1)"))
        assert found.verdict == "refused" and "StudentT" in found.reason and "Normal" not in found.reason
    assert verdict(gpdsl.compile(f"{two}y ~ Normal(f, 1)\nz ~ Logistic(f, 1)")).holds
