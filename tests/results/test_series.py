"""Moments of sums of terms that bend in one latent each, of correlated latents: beside a quadrature over all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import sympy as sp
from scipy.special import ndtr

import gpdsl
from gpdsl.program.joint import Marginals
from gpdsl.results import series
from gpdsl.results.expectation import MANY, Beliefs
from gpdsl.results.named import of_quantity
from gpdsl.results.prediction import Prediction
from gpdsl.symbolic.expectations import is_linear
from tests.inference.problems import unlearnt

MODEL = """
index i in 1..2
index j in 1..3
input x : real
output y : real
output z[i] : real
const c = 2
const d[j] = [1, 2, 4]
latent a[i](x) ~ GP(1, 0.2 * RBF(1))
latent v[i](x) ~ GP(3, 0.05 * RBF(1))
let tau = a[1] / v[1] + c * (a[2] - a[1]) / v[2] + exp(v[1]) * a[2] + x
let each[i] = a[i] / v[i] + v[i]^2 + 1
let ratio[i] = a[i] / v[i]
let wide[j, i] = d[j] * a[2] + a[i] / v[i]
let bent = abs(v[1] - 3) + a[1]
let both = log(v[1] + v[2]^2) * a[1]
let far = log(v[1] - 2) * a[1]
let steep = exp(a[1]) * a[2] + tanh(12 * (v[1] - 3))
y ~ Normal(tau, 0.3)
z[i] ~ Normal(each[i], 0.3)
infer vi: posterior = coupled, steps = 3
"""

NODES = 24

KNOWN: dict[str, Callable[..., np.ndarray]] = {
    "tau": lambda x, a1, a2, v1, v2: a1 / v1 + 2.0 * (a2 - a1) / v2 + np.exp(v1) * a2 + x,
    "each[1]": lambda x, a1, a2, v1, v2: a1 / v1 + v1**2 + 1,
    "each[2]": lambda x, a1, a2, v1, v2: a2 / v2 + v2**2 + 1,
}


@pytest.fixture(scope="module")
def prediction() -> gpdsl.Prediction:
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 3.0, 12)
    data = {"x": x, "y": 25 + rng.standard_normal(12), "z": 9 + rng.standard_normal((12, 2))}
    fit = unlearnt(MODEL, data)
    return fit.predict({"x": np.array([0.2, 1.5, 6.0])})


def expected(beliefs: Beliefs, function: Callable[..., np.ndarray], row: int) -> tuple[float, float]:
    """By a product rule over all four latents, through a root of their covariance."""
    columns = [start + k for name in ("a", "v") for start in [_start(beliefs, name)] for k in range(2)]
    mean = np.asarray(beliefs.marginals.mean, float)[0, row, columns]
    covariance = np.asarray(beliefs.marginals.covariance, float)[0, row][np.ix_(columns, columns)]
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    z = np.stack([each.ravel() for each in np.meshgrid(*[nodes] * 4, indexing="ij")])
    joint = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * 4, indexing="ij")), axis=0).ravel()
    at = mean[:, None] + np.linalg.cholesky(covariance) @ z
    found = function(float(beliefs.rows.inputs["x"][row]), *at)
    level = float(joint @ found)
    return level, float(joint @ (found - level) ** 2)


def _start(beliefs: Beliefs, name: str) -> int:
    return next(group.start + group.names.index(name) * 2 for group in beliefs.program.groups if name in group.names)


@pytest.mark.parametrize("name", KNOWN)
def test_moments_are_those_of_a_quadrature_over_all_latents(prediction: gpdsl.Prediction, name: str) -> None:
    beliefs = prediction.beliefs
    assert np.abs(np.asarray(beliefs.marginals.covariance)[0, 0, 0, 1:]).max() > 1e-4
    quantity, element = name.split("[")[0], int(name[-2]) - 1 if "[" in name else None
    at = (lambda values: values) if element is None else (lambda values: values[:, element])
    for row in range(3):
        mean, variance = expected(beliefs, KNOWN[name], row)
        np.testing.assert_allclose(at(prediction.mean(quantity))[row], mean, rtol=1e-9)
        np.testing.assert_allclose(at(prediction.variance(quantity))[row], variance, rtol=1e-8)
    assert np.all(prediction.error(quantity) == 0.0) and np.all(prediction.error(quantity, "variance") == 0.0)


def test_nothing_is_compiled_for_them(prediction: gpdsl.Prediction, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = prediction.first_rows(slice(0, 3))
    monkeypatch.setattr(Beliefs, "compile", lambda *_, **__: pytest.fail("a program"))
    np.testing.assert_allclose(fresh.sd("y") ** 2, prediction.variance("tau") + 0.09, rtol=1e-10)
    assert fresh.sd("z").shape == (3, 2)


def test_a_mixture_has_the_spread_of_its_components_too(prediction: gpdsl.Prediction) -> None:
    beliefs = prediction.beliefs
    marginals = beliefs.marginals
    two = replace(
        marginals,
        mean=np.concatenate([marginals.mean, np.asarray(marginals.mean) + 0.1]),
        variance=np.repeat(marginals.variance, 2, axis=0),
        covariance=np.repeat(marginals.covariance, 2, axis=0),
    )
    mixed = Prediction(
        replace(beliefs, marginals=two, weights=np.array([0.3, 0.7])), prediction.dtype, prediction.standardised
    )
    one, moved = (
        Prediction(
            replace(beliefs, marginals=replace(marginals, mean=two.mean[k : k + 1])),
            prediction.dtype,
            prediction.standardised,
        )
        for k in range(2)
    )
    mean = 0.3 * one.mean("tau") + 0.7 * moved.mean("tau")
    squares = 0.3 * (one.variance("tau") + one.mean("tau") ** 2) + 0.7 * (
        moved.variance("tau") + moved.mean("tau") ** 2
    )
    np.testing.assert_allclose(mixed.mean("tau"), mean, rtol=1e-12)
    np.testing.assert_allclose(mixed.variance("tau"), squares - mean**2, rtol=1e-8)


@pytest.mark.parametrize("name", ["bent", "both"])
def test_what_a_series_does_not_tell_is_computed_otherwise(prediction: gpdsl.Prediction, name: str) -> None:
    """A kink, whose coefficients fall slowly, and a term that bends in two latents."""
    functions = {
        "bent": lambda x, a1, a2, v1, v2: np.abs(v1 - 3) + a1,
        "both": lambda x, a1, a2, v1, v2: np.log(v1 + v2**2) * a1,
    }
    mean, variance = expected(prediction.beliefs, functions[name], 1)
    np.testing.assert_allclose(prediction.mean(name)[1], mean, rtol=2e-2)
    np.testing.assert_allclose(prediction.variance(name)[1], variance, rtol=5e-2)
    slow = lambda z: np.abs(z - 0.3)  # noqa: E731
    nodes, weights = np.polynomial.hermite_e.hermegauss(series.NODES)
    coefficients = series._shortened((series._hermite(nodes) * weights / weights.sum()) @ slow(nodes)[:, None])
    assert np.abs(coefficients[-series.LAST :]).sum() > 1e-3


def test_terms_that_are_known_along_one_axis_are_found_along_two(prediction: gpdsl.Prediction) -> None:
    """The same term, asked for along other axes, and one that all elements share."""
    ratio, wide = prediction.mean("ratio"), prediction.mean("wide")
    level = np.array([1.0, 2.0, 4.0])[:, None] * prediction.mean("a")[:, None, 1:]
    np.testing.assert_allclose(wide, level + ratio[:, None], rtol=1e-12)
    mean, variance = expected(prediction.beliefs, lambda x, a1, a2, v1, v2: 4 * a2 + a1 / v1, 1)
    assert wide[1, 2, 0] == pytest.approx(mean, rel=1e-9)
    assert prediction.variance("wide")[1, 2, 0] == pytest.approx(variance, rel=1e-8)


class Together(Marginals):
    """Such as passes through layers have."""

    together = True


def test_many_components_and_values_drawn_together_have_none(prediction: gpdsl.Prediction) -> None:
    """A series of each would be many numbers; and those drawn together are no Gaussian."""
    beliefs, found = prediction.beliefs, list[bool]()
    many = replace(beliefs, weights=np.full(MANY + 1, 1 / (MANY + 1)))
    marginals = beliefs.marginals
    together = replace(beliefs, marginals=Together(marginals.mean, marginals.variance, marginals.covariance))

    def look(expression: sp.Expr, keys: tuple[str, ...]) -> np.ndarray:
        found.extend(series.series_of(each, expression, keys) is not None for each in (beliefs, many, together))
        return np.zeros(3)

    of_quantity(beliefs, "tau", look)
    assert found == [True, False, False]


def test_a_kink_has_all_digits(prediction: gpdsl.Prediction) -> None:
    """Its series is far off, by what its last coefficients tell: closed forms of |N(m, s)|, and Stein's covariance."""
    beliefs = prediction.beliefs
    a, v = _start(beliefs, "a"), _start(beliefs, "v")
    mean, covariance = (np.asarray(each, float)[0] for each in (beliefs.marginals.mean, beliefs.marginals.covariance))
    m, s, sign = (
        mean[:, v] - 3,
        np.sqrt(covariance[:, v, v]),
        2 * ndtr((mean[:, v] - 3) / np.sqrt(covariance[:, v, v])) - 1,
    )
    size = s * np.sqrt(2 / np.pi) * np.exp(-0.5 * (m / s) ** 2) + m * sign
    variance = m**2 + s**2 - size**2 + covariance[:, a, a] + 2 * covariance[:, a, v] * sign
    np.testing.assert_allclose(prediction.mean("bent"), size + mean[:, a], rtol=1e-6)
    np.testing.assert_allclose(prediction.variance("bent"), variance, rtol=1e-5)


def test_coefficients_that_change_no_digit_are_left_out_but_for_two() -> None:
    coefficients = np.array([1.0, 0.5, 1e-18, 0.0, 0.0, 0.0])[:, None]
    np.testing.assert_array_equal(series._shortened(coefficients), coefficients[: 2 + series.LAST])
    np.testing.assert_array_equal(series._shortened(0.0 * coefficients), np.zeros((1 + series.LAST, 1)))


@pytest.mark.parametrize(("name", "found"), [("tau", True), ("bent", True), ("both", False), ("far", False)])
def test_terms_that_bend_in_two_latents_or_are_nothing_far_out_have_none(
    prediction: gpdsl.Prediction, name: str, found: bool
) -> None:
    told = list[bool]()

    def look(expression: sp.Expr, keys: tuple[str, ...]) -> np.ndarray:
        told.append(series.series_of(prediction.beliefs, expression, keys) is not None)
        return np.zeros(3)

    of_quantity(prediction.beliefs, name, look)
    assert told == [found]


def test_intervals_of_what_is_linear_in_correlated_latents(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the program that they had."""
    text = """
        input x : real
        input w : real
        const sigma = 0.3
        latent f(x) ~ GP(0, RBF(1))
        latent g(x) ~ GP(0, 0.5 * RBF(2))
        output y : real
        y ~ Normal(1 + 2 * f + w * g - 0.3 * f * w, sigma)
    """
    rng = np.random.default_rng()
    data = {"x": rng.uniform(0, 5, 20), "w": rng.normal(size=20), "y": rng.normal(size=20)}
    fit = gpdsl.compile(text).fit(data, posterior="coupled", diagnose="no")
    wanted = [0.05, 0.5, 0.99]
    found = fit.predict(data).quantile("y", wanted)
    monkeypatch.setattr("gpdsl.results.predictive.series_of", lambda *_: None)
    np.testing.assert_allclose(found, fit.predict(data).quantile("y", wanted), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("text", "linear"),
    [
        ("2*f + x*g + x**2", True),
        ("f*abs(x) + exp(x)*g", True),
        ("x", True),
        ("Abs(f) + g", False),
        ("Max(f, 0) + g", False),
        ("floor(f) + g", False),
        ("f*g", False),
        ("f**2 + g", False),
        ("g/f", False),
    ],
)
def test_linear_is_what_has_no_corner_either(text: str, linear: bool) -> None:
    f, g, x = sp.symbols("f g x", real=True)
    assert is_linear(sp.sympify(text, {"f": f, "g": g, "x": x}), (f, g)) is linear


@pytest.mark.slow
def test_what_has_a_corner_is_not_taken_for_linear() -> None:
    """Quantiles, probabilities and means by logits beside draws and log densities, which take other ways."""
    latents = "input x : real\nlatent f(x) ~ GP(0.2, RBF(1))\nlatent g(x) ~ GP(0.2, RBF(1))\n"
    x, new = np.linspace(0, 3, 6), {"x": np.array([4.0])}
    normal = "output y : real\ny ~ Normal(abs(f) + max(g, 0), 0.2)\ninfer vi: posterior = coupled, steps = 2"
    found = gpdsl.compile(latents + normal).fit({"x": x, "y": np.sin(x) + 1}, diagnose="no").predict(new)
    drawn = found.sample("y", 50_000, seed=0)
    assert found.probability("y > 1.5")[0] == pytest.approx(np.mean(drawn > 1.5), abs=0.01)
    assert np.mean(drawn < found.quantile("y", 0.1)) == pytest.approx(0.1, abs=0.006)
    binary = "output y : binary\ny ~ Bernoulli(logit = 4 * abs(f) + g - 3)\ninfer vi: posterior = coupled, steps = 2"
    found = gpdsl.compile(latents + binary).fit({"x": x, "y": np.array([0, 1, 1, 0, 1, 0])}, diagnose="no").predict(new)
    drawn = found.sample("y", 50_000, seed=0)
    assert found.mean("y")[0] == pytest.approx(np.mean(drawn), abs=0.01)


@pytest.mark.parametrize(
    ("narrow", "known"),
    [
        (
            "(if abs(f - 0.2) < 0.25 then 1 else 0)",
            lambda m, v: ndtr((0.45 - m) / np.sqrt(v)) - ndtr((-0.05 - m) / np.sqrt(v)),
        ),
        (
            "exp(-3000 * (f - 0.2)^2)",
            lambda m, v: np.exp(-3000 * (m - 0.2) ** 2 / (1 + 6000 * v)) / np.sqrt(1 + 6000 * v),
        ),
    ],
)
def test_what_happens_between_nodes_is_seen(narrow: str, known: Callable[..., np.ndarray]) -> None:
    text = f"input x : real\nlatent f(x) ~ GP(0.2, RBF(1))\nlatent g(x) ~ GP(0.2, RBF(1))\nlet a = {narrow} + g\n"
    text += "output y : real\ny ~ Normal(f * g, 0.2)\ninfer vi: posterior = coupled, steps = 2"
    x = np.linspace(0, 3, 6)
    fit = gpdsl.compile(text).fit({"x": x, "y": np.sin(x)}, diagnose="no")
    found = fit.predict({"x": np.linspace(-2, 6, 25)})
    mean, off = found.mean("a"), found.error("a")
    truth = found.mean("g") + known(found.mean("f"), found.variance("f"))
    assert np.all(np.abs(mean - truth) < 3 * off + 1e-5)


def test_a_steep_term_beside_others_is_no_average_over_samples(prediction: gpdsl.Prediction) -> None:
    """Its coefficients fall slowly, so that its own variance is an integral; beside it, what it is worth given v[1]."""
    beliefs = prediction.beliefs
    sds = np.sqrt(np.asarray(beliefs.marginals.variance, float))
    correlated = (0.4 + 0.6 * np.eye(sds.shape[-1])) * sds[..., None, :] * sds[..., :, None]
    marginals = replace(beliefs.marginals, covariance=correlated)
    prediction = Prediction(replace(beliefs, marginals=marginals), prediction.dtype, prediction.standardised)
    line = np.linspace(-9.0, 9.0, 2001)
    weights = np.exp(-0.5 * line**2) / np.exp(-0.5 * line**2).sum()
    places = [_start(prediction.beliefs, "a"), _start(prediction.beliefs, "a") + 1, _start(prediction.beliefs, "v")]
    found = prediction.mean("steep"), prediction.variance("steep")
    for row in range(3):
        m = np.asarray(marginals.mean, float)[0, row, places]
        c = correlated[0, row][np.ix_(places, places)]
        along = c[:2, 2] / np.sqrt(c[2, 2])
        m1, m2 = m[0] + along[0] * line, m[1] + along[1] * line
        left = c[:2, :2] - np.outer(along, along)
        tanh = np.tanh(12 * (m[2] + np.sqrt(c[2, 2]) * line - 3))
        product = np.exp(m1 + left[0, 0] / 2) * (m2 + left[0, 1])
        square = np.exp(2 * m1 + 2 * left[0, 0]) * ((m2 + 2 * left[0, 1]) ** 2 + left[1, 1])
        mean = weights @ (product + tanh)
        np.testing.assert_allclose(found[0][row], mean, rtol=1e-7)
        variance = weights @ (square + 2 * product * tanh + tanh**2) - mean**2
        np.testing.assert_allclose(found[1][row], variance, rtol=1e-6)
    assert not np.any(prediction.error("steep", "variance"))
