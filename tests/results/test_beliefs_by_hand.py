"""Expectations of beliefs that no fit has made: marginals as given, against formulas and integrals in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import sympy as sp
from scipy.integrate import quad
from scipy.stats import norm

from gpdsl.errors import GpdslError
from gpdsl.inference.plan.options import Options
from gpdsl.program.joint import Marginals
from gpdsl.results import accuracy, by_formula, predictive, simulations
from gpdsl.results.accuracy import error_of, error_of_law
from gpdsl.results.checkpoint import steps_left
from gpdsl.results.conditional import _at_bounds, collapsed
from gpdsl.results.criticism import cavity
from gpdsl.results.draws import row_by_row
from gpdsl.results.expectation import AS_MANY, MANY, ROUGH, ROWS_AT_ONCE, SAMPLES, Beliefs, each_component, mean_of
from gpdsl.results.fit import Fit
from gpdsl.results.functions import draw_functions
from gpdsl.results.given import conditioned
from gpdsl.results.integrals import Quantity, polynomial_mean
from gpdsl.results.levels import without_words
from gpdsl.results.pictures import plot, style
from gpdsl.results.prediction import Prediction
from gpdsl.results.slopes import THIN
from gpdsl.results.warp import Warped, warp_moments
from gpdsl.symbolic import laws
from gpdsl.symbolic.laws import Law
from tests.inference.problems import problem_of

READS = """
index c in 1..3
index d in 1..2
index e in 1..3
input x : real
input k : label[c]
output y : real
output z[e, d] : real
param a[c] : real = 0
param b : real = 2
param A[d, e] : real = 0
latent f(x) ~ GP(0, RBF(1))
latent g[e](x) ~ GP(0, RBF(1))
y ~ Normal(a[k] * x * f + b, 1)
z[e, d] ~ Normal(A[d, e] * g[e] + x, 1)
"""
X, K = np.array([0.5, -1.0, 2.0, 3.0]), np.array([2, 1, 3, 2])


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def beliefs(covariance: bool = False) -> Beliefs:
    """Of two components, whose moments differ in every row and latent."""
    rng = np.random.default_rng(0)
    data = {"x": X, "k": K, "y": np.zeros(4), "z": np.zeros((4, 3, 2))}
    problem = problem_of(READS, data)
    parameters = dict(problem.program.parameters.constrain(problem.parameters))
    parameters |= {"a": np.array([1.0, -2.0, 0.5]), "b": np.array(2.0), "A": np.arange(6.0).reshape(2, 3) - 1.7}
    mean, variance = rng.normal(size=(2, 4, 4)), rng.uniform(0.2, 1.5, size=(2, 4, 4))
    joint = variance[..., None] * np.eye(4) + 0.1 if covariance else None
    return Beliefs(problem.program, parameters, problem.rows, Marginals(mean, variance, joint), np.array([0.3, 0.7]))


def means_and_axes(at: Beliefs) -> list[tuple[sp.Expr, tuple[str, ...]]]:
    """Of y and of z."""
    return [(each.law.arguments["mean"], each.axes) for each in at.program.observations if each.law]


def latent(at: Beliefs, name: str) -> sp.Symbol:
    references = at.program.translator.references
    return next(s for s, ref in references.items() if ref.kind == "latent" and ref.name == name)


def moments(at: Beliefs, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances [K, rows, elements] of a latent."""
    columns = slice(0, 1) if name == "f" else slice(1, 4)
    return at.marginals.mean[..., columns], at.marginals.variance[..., columns]


def test_polynomials_read_parameters_of_levels_inputs_and_elements() -> None:
    at = beliefs()
    (expression, axes), (b, a) = means_and_axes(at)[0], (2.0, at.parameters["a"][K - 1] * X)
    mean, variance = (each[..., 0] for each in moments(at, "f"))
    found = polynomial_mean(Quantity(at, expression**2, axes))
    np.testing.assert_allclose(found, a**2 * (mean**2 + variance) + 2 * a * b * mean + b**2, rtol=1e-6)
    (expression, axes), A = means_and_axes(at)[1], at.parameters["A"]
    mean, variance = (each[..., None] for each in moments(at, "g"))
    x, weights = X[:, None, None], A.T[None, None]
    found = polynomial_mean(Quantity(at, expression**2, axes))
    expected = weights**2 * (mean**2 + variance) + 2 * weights * x * mean + x**2
    assert axes == ("e", "d")
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("power", [1, 2, 3, 5, 6, 7, 64])
def test_powers_are_those_of_numpy(power: int) -> None:
    at = beliefs()
    c = sp.Dummy("c", real=True)
    values = np.linspace(-1.1, 1.2, 4)
    found = polynomial_mean(Quantity(at, c**power - sp.Rational(3, 2), (), {c: values}))
    np.testing.assert_allclose(found, np.broadcast_to(values**power - 1.5, (2, 4)), rtol=1e-12)


def test_latents_that_depend_on_each_other_are_left_to_programs() -> None:
    at, alone = beliefs(covariance=True), beliefs()
    f, g = latent(at, "f"), latent(at, "g")
    assert polynomial_mean(Quantity(at, f * g, ("e",))) is None and polynomial_mean(Quantity(at, 1 / f)) is None
    assert polynomial_mean(Quantity(at, f**2 + 1)) is not None
    mean, other = moments(alone, "f")[0], moments(alone, "g")[0]
    np.testing.assert_allclose(
        polynomial_mean(Quantity(alone, latent(alone, "f") * latent(alone, "g"), ("e",))), mean * other
    )


def test_one_steep_expectation_makes_all_of_a_program_fine() -> None:
    at = beliefs()
    f, (mean, variance) = latent(at, "f"), moments(at, "f")
    gentle, steep = each_component(at, [sp.cos(f), sp.tanh(400 * (f - 0.1))], ())
    m, sd = mean[..., 0], np.sqrt(variance[..., 0])
    np.testing.assert_allclose(gentle, np.cos(m) * np.exp(-0.5 * sd**2), rtol=1e-9)
    for k, n in np.ndindex(2, 4):
        cut = (0.1 - m[k, n]) / sd[k, n]

        def value(z: float, k: int = k, n: int = n) -> float:
            return float(np.tanh(400 * (m[k, n] + sd[k, n] * z - 0.1)) * norm.pdf(z))

        near = [cut - 0.05, cut, cut + 0.05]
        right = quad(value, -10, 10, points=[each for each in near if abs(each) < 10], limit=200, epsabs=1e-12)[0]
        assert steep[k, n] == pytest.approx(right, abs=1e-8)


def test_what_is_too_steep_along_one_of_two_latents_for_few_nodes_is_told() -> None:
    """Of what is steep, and of what is not: that is the integral over a grid."""
    at = beliefs()
    f, g, (m, v), (mean, variance) = latent(at, "f"), latent(at, "g"), moments(at, "f"), moments(at, "g")
    gentle, steep = (Quantity(at, sp.tanh(s * f) / (1 + sp.exp(f - g)), ("e",)) for s in (0.5, 30.0))
    assert not steep.expectation(False, False)[1]
    found, right = gentle.expectation(False, False)
    z = np.linspace(-9.0, 9.0, 61)
    weights = norm.pdf(z) / norm.pdf(z).sum()
    values = (m + np.sqrt(v) * z)[:, :, None, None, :]
    others = (mean[..., None] + np.sqrt(variance)[..., None] * z)[..., None]
    expected = (np.tanh(0.5 * values) / (1.0 + np.exp(values - others)) @ weights) @ weights
    assert right
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_is_steep_along_both_of_two_latents_has_nodes_enough() -> None:
    """What is known to be steep is integrated over finely, and along the other nodes are six times as many."""
    at = beliefs().part(slice(1, 2))
    f, g, z = latent(at, "f"), latent(at, "g"), np.linspace(-8.0, 8.0, 2001)
    of_f, of_g = ((m[0, 0].flat[0] + np.sqrt(v[0, 0].flat[0]) * z) for m, v in (moments(at, "f"), moments(at, "g")))
    weights = norm.pdf(z) / norm.pdf(z).sum()
    for expression, function in (
        (sp.tanh(30 * (f - sp.cos(g))), lambda f, g: np.tanh(30 * (f - np.cos(g)))),
        (sp.exp(-30 * (f * g) ** 2), lambda f, g: np.exp(-30 * (f * g) ** 2)),
    ):
        quantity = Quantity(at, expression, ("e",))
        found = jax.jit(lambda each=quantity: each.expectation(False, True)[0])()
        assert found[0, 0, 0] == pytest.approx(weights @ function(of_f[:, None], of_g) @ weights, abs=1e-3)


def test_what_is_found_is_kept_by_its_axes_and_not_where_numbers_are_given() -> None:
    at = beliefs()
    f, c, (mean, variance) = latent(at, "f"), sp.Dummy("c", real=True), moments(at, "f")
    weighed = np.tensordot(at.weights, np.exp(mean[..., 0] + 0.5 * variance[..., 0]), 1)
    for _ in range(2):
        np.testing.assert_allclose(mean_of(at, sp.exp(f), ()), weighed, rtol=1e-9)
        np.testing.assert_allclose(mean_of(at, sp.exp(f), ("e",)), weighed[:, None], rtol=1e-9)
    for number in (1.0, 2.0):
        found = each_component(at, [c * sp.cos(f)], (), {c: np.full(4, number)})[0]
        expected = number * np.cos(mean[..., 0]) * np.exp(-0.5 * variance[..., 0])
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_widest_latents_of_any_row_and_component() -> None:
    at = beliefs()
    np.testing.assert_array_equal(at.widest, np.sqrt(at.marginals.variance.max(axis=(0, 1)))[None, None])


def test_rows_at_once_are_fewer_of_more_components_than_usual() -> None:
    at = beliefs()
    assert at.at_once == ROWS_AT_ONCE
    assert replace(at, weights=np.full(2 * AS_MANY, 0.5 / AS_MANY)).at_once == ROWS_AT_ONCE // 2


def test_rows_are_alike_that_have_no_inputs_and_share_their_moments() -> None:
    at = beliefs()
    shared = Marginals(
        *(np.broadcast_to(each[:, :1], each.shape) for each in (at.marginals.mean, at.marginals.variance))
    )
    nothing = replace(at.rows, inputs={})
    assert replace(at, rows=nothing, marginals=shared).alike
    assert not replace(at, marginals=shared).alike and not replace(at, rows=nothing).alike
    assert not replace(at, rows=nothing, marginals=shared, simulations=object()).alike  # type: ignore[arg-type]


def test_of_more_components_than_many_each_has_few_samples() -> None:
    one = beliefs()
    found = [replace(one, weights=np.full(count, 1.0 / count)) for count in (1, MANY, MANY + 1)]
    assert [each.rough for each in found] == [False, False, True]
    assert [each.samples for each in found] == [SAMPLES, SAMPLES, ROUGH]


@pytest.mark.parametrize(("least", "asked"), [(0, 3), (1, 1)])
def test_nodes_are_finer_as_long_as_the_next_have_room(monkeypatch: pytest.MonkeyPatch, least: int, asked: int) -> None:
    """Where the law is steep from node to node: of 2 components, 3 rows and 5 columns."""
    counts: list[int] = []

    def nodes_of(
        beliefs: object, leaves: object, keys: object, finer: int, averaged: object
    ) -> tuple[dict, np.ndarray]:
        counts.append(finer * predictive.SPREAD_STEPS + 1)
        return {}, np.full(counts[-1], 1.0 / counts[-1])

    monkeypatch.setattr(predictive, "_enough", lambda *_: False)
    whole = SimpleNamespace(leaves=list, filled=lambda values: SimpleNamespace(map=lambda function: None))
    monkeypatch.setattr(predictive.conditional, "collapsed", lambda *_: (whole, None))
    monkeypatch.setattr(predictive, "nodes_of", nodes_of)
    monkeypatch.setattr(predictive, "_looked_at", lambda *_: [np.array([0.0, 1.0])])
    monkeypatch.setattr(predictive, "joint_weights", lambda weights, _: weights)
    finest = predictive.FINER[1] * predictive.SPREAD_STEPS + 1
    room = predictive.FINER[1] * (finest if asked == 3 else predictive.SPREAD_STEPS + 1) * 2 * 3 * 5
    monkeypatch.setattr(predictive, "MOST", room - least)
    law: Any = SimpleNamespace(beliefs=SimpleNamespace(weights=np.full(2, 0.5), count=3), law=None, keys=(), sizes=(5,))
    found = predictive.Predictive.average.func(law)
    assert len(counts) == asked and len(found.weights) == counts[-1]


def observed(output: str, law: str) -> tuple[predictive.Predictive, np.ndarray, np.ndarray]:
    """What is predicted of one output whose latent has these means and variances [2, 4] in two components."""
    left = law if "~" in law else f"y ~ {law}"
    text = f"input x : real\noutput y : {output}\nlatent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, RBF(1))\n{left}\n"
    problem, rng = problem_of(text, {"x": X, "y": np.ones(4)}), np.random.default_rng(1)
    mean, variance = rng.normal(size=(2, 4, 2)), rng.uniform(0.2, 1.5, size=(2, 4, 2))
    q, parameters = Marginals(mean, variance), dict(problem.program.parameters.constrain(problem.parameters))
    at = Beliefs(problem.program, parameters, problem.rows, q, np.array([0.3, 0.7]))
    (statement,) = at.program.observations
    assert statement.law is not None
    return predictive.Predictive(at, statement.law, (), ()), mean[..., 0], variance[..., 0]


def test_a_log_normal_output_is_the_exponential_of_a_normal_one() -> None:
    found, mean, variance = observed("positive", "LogNormal(f, 0.5)")
    sd = np.sqrt(variance + 0.25)
    for p in (0.05, 0.8):
        y = found.quantile(p)
        np.testing.assert_allclose(np.array([0.3, 0.7]) @ norm.cdf((np.log(y) - mean) / sd), p, rtol=1e-7)
        np.testing.assert_allclose(found.share(y, above=False, reached=True), p, rtol=1e-7)
        np.testing.assert_allclose(found.share(y, above=True, reached=True), 1 - p, rtol=1e-7)
    np.testing.assert_array_equal(found.share(np.full(4, -1.0), above=False, reached=True), 0.0)


def test_a_binary_output_reaches_a_share_at_one_where_zeros_are_fewer() -> None:
    found = observed("binary", "Bernoulli(probit = f)")[0]
    zeros = 1.0 - found.mean()
    for p in (0.01, 0.5, 0.99):
        np.testing.assert_array_equal(found.quantile(p), zeros < p)
    assert zeros.min() > 0.01 and zeros.max() < 0.99 and np.ptp(found.quantile(0.5)) == 1


@pytest.mark.parametrize("shape", [(1024, 2), (2, 1024)])
def test_an_average_over_many_nodes_is_thinned_to_some_of_them(shape: tuple[int, int]) -> None:
    """Whichever there are more of, nodes or components; their weights add up to one again."""
    rng = np.random.default_rng(0)
    weights, rates = rng.random(shape), rng.gamma(4.0, size=(*shape, 1))
    whole = predictive.Average(Law("Poisson", {"mean": rates}), weights / weights.sum())
    some = whole.thinned
    assert some is not None and some.weights.sum() == pytest.approx(1.0) and some.weights.size == 2048 // THIN
    assert some.cdf(np.array([3.0])) == pytest.approx(whole.cdf(np.array([3.0])), abs=0.1)
    assert some.cdf(np.array([1e9])) == pytest.approx(1.0)
    assert predictive.Average(whole.law, np.full((1, 1), 1.0)).thinned is None


def test_errors_of_quantiles_are_below_those_of_as_many_independent_draws() -> None:
    """These are sqrt(p (1 - p) / S) over the density, here by draws of NumPy's; samples are spread evenly."""
    at, rng = observed("real", "Normal(f * g, 1)")[0].beliefs, np.random.default_rng(3)
    component = rng.choice(2, p=at.weights, size=100_000)
    normals = rng.standard_normal((100_000, 4, 2))
    drawn = np.prod(at.marginals.mean[component] + np.sqrt(at.marginals.variance[component]) * normals, axis=-1)
    for p in (0.5, 0.95):
        error = error_of(at, latent(at, "f") * latent(at, "g"), (), p)
        low, high = np.quantile(drawn, [p - 0.02, p + 0.02], axis=0)
        plain = np.sqrt(p * (1 - p) / at.samples) * (high - low) / 0.04
        assert np.all(error > 0.05 * plain) and np.all(error < 1.3 * plain), error / plain


def test_quadratures_over_two_latents_have_errors_and_others_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what has no closed form: how far rules differ, in every row."""
    monkeypatch.setattr(accuracy, "_between_nodes", lambda quantity: np.arange(1.0, 1.0 + quantity.beliefs.count))
    at = observed("real", "Normal(f * g, 1)")[0].beliefs
    f, g = latent(at, "f"), latent(at, "g")
    np.testing.assert_array_equal(error_of(at, sp.cos(f * g), (), "mean"), [1, 2, 3, 4])
    for exact in (sp.tanh(f), f * g, sp.exp(f + g)):
        np.testing.assert_array_equal(error_of(at, exact, (), "mean"), np.zeros(4))


def test_an_error_of_what_has_no_formula_is_refused() -> None:
    with pytest.raises(GpdslError, match="error of `y`: of outputs it is known of the mean and variance"):
        error_of_law("y", observed("real", "Normal(f, 1)")[0], 0.5)


def test_draws_of_rows_are_of_the_components_by_their_weights() -> None:
    """Whether every component is drawn from, or where these are many the chosen one alone."""
    few = observed("real", "Normal(f, 1)")[0].beliefs
    many = replace(
        few,
        marginals=Marginals(*(np.repeat(each, MANY, 0) for each in (few.marginals.mean, few.marginals.variance))),
        weights=np.repeat(few.weights / MANY, MANY),
    )
    mean, variance = few.marginals.mean[..., 0], few.marginals.variance[..., 0]
    expected = few.weights @ mean
    spread = few.weights @ (variance + (mean - expected) ** 2)
    for at in (few, many):
        found = row_by_row(at, 4000, np.random.default_rng(2)).values(latent(at, "f"), ())
        assert found.shape == (4000, 4)
        assert np.all(np.abs(found.mean(axis=0) - expected) < 4 * np.sqrt(spread / 4000))
        np.testing.assert_allclose(found.var(axis=0), spread, rtol=0.15)


def test_laws_are_averaged_exactly_over_latents_that_are_linear_and_apart() -> None:
    """Where latents depend on each other, given the one that is left; of two that are left nothing is done."""
    for covariance, left in ((False, 0), (True, 2)):
        at = beliefs(covariance)
        (f, g) = latent(at, "f"), latent(at, "g")
        law = Law("Normal", {"mean": sp.cos(f) + sp.sin(g), "sd": sp.Integer(1)})
        whole, read = collapsed(at, law)
        assert (whole is law) == covariance and len(read) == (0 if covariance else left)


def test_covariances_of_what_is_read_are_those_that_are_known_or_of_the_kernel() -> None:
    at = beliefs(covariance=True)
    found = cavity._covariances(at.program, at.marginals)
    np.testing.assert_allclose(found, at.marginals.covariance[0])
    alone = cavity._covariances(at.program, beliefs().marginals)
    np.testing.assert_allclose(alone, beliefs().marginals.variance[0][..., None] * np.eye(4))


def test_precisions_of_sums_are_those_of_their_parts() -> None:
    """Of the columns a + 2 b and b, which are apart or have a matrix."""
    spread, matrices = (
        np.array([[1.0, 0.0], [2.0, 1.0]]),
        np.array([[[3.0, 0.4], [0.4, 1.0]], [[0.5, -0.2], [-0.2, 2.0]]]),
    )
    np.testing.assert_allclose(cavity._between(spread, matrices), spread @ matrices @ spread.T)
    apart = np.einsum("naa->na", matrices)
    np.testing.assert_allclose(cavity._between(spread, apart), spread @ (apart[:, :, None] * np.eye(2)) @ spread.T)


def test_means_over_dependent_values_of_fields_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quantity, "sampled_mean", lambda quantity: str(quantity.expression))
    at = beliefs()
    f, g = latent(at, "f"), latent(at, "g")
    fields: Any = replace(at, marginals=SimpleNamespace(together=True))  # type: ignore[arg-type]
    assert Quantity(fields, f * g, ("e",)).expectation(False, False) == (str(f * g), None)


@pytest.mark.parametrize("alike", [True, False])
def test_rows_that_are_alike_are_worked_out_once(alike: bool) -> None:
    """And are said in every row, along the axis of these."""
    asked: list[str] = []

    def rows(name: str, count: int) -> SimpleNamespace:
        def by_parts(_: str, compute: Any, axis: int) -> np.ndarray:
            asked.append(name)
            return np.arange(2.0)[:, None] * np.ones(count) if axis else np.ones(count)

        return SimpleNamespace(beliefs=SimpleNamespace(alike=alike, count=count), _by_parts=by_parts)

    whole: Any = rows("all", 3)
    whole.first_rows = lambda some: rows("one", 1)
    found = Prediction._of_rows(whole, "y", lambda each: each, 1)  # type: ignore[arg-type,return-value]
    assert found.tolist() == [[0, 0, 0], [1, 1, 1]] and asked == ["one" if alike else "all"]
    assert Prediction._of_rows(whole, "y", lambda each: each).tolist() == [1, 1, 1]  # type: ignore[arg-type,return-value]


def test_all_rows_are_the_beliefs_themselves_and_some_a_part_of_them() -> None:
    at = beliefs()
    whole: Any = SimpleNamespace(beliefs=at, dtype="float64", standardised=None)
    assert Prediction._part(whole, slice(0, 4)).beliefs is at
    assert Prediction._part(whole, slice(0, 9)).beliefs is at
    some = Prediction._part(whole, slice(1, 3)).beliefs
    assert (some.count, some.start) == (2, 1)
    np.testing.assert_array_equal(some.marginals.mean, at.marginals.mean[:, 1:3])


def test_errors_of_classes_are_those_of_their_indicators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Var[1_c] = p (1 - p), which moves with p by 1 - 2 p."""
    errors, chances = np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([[0.3, 0.7], [0.9, 0.1]])
    monkeypatch.setattr(accuracy, "error_of_mean", lambda _, probability, __: errors[:, int(probability) - 2])
    monkeypatch.setattr(laws, "log_probabilities", lambda law: [sp.log(2), sp.log(3)])
    monkeypatch.setattr(predictive.Predictive, "mean", lambda self: chances)
    beliefs: Any = SimpleNamespace(count=2)
    found = predictive.Predictive(beliefs, Law("Categorical", {}), (), ())
    np.testing.assert_array_equal(error_of_law("k", found, "mean"), errors)
    np.testing.assert_allclose(error_of_law("k", found, "variance"), np.abs(1 - 2 * chances) * errors)


def test_a_name_that_is_known_is_no_truth() -> None:
    unseen: Any = None
    assert without_words(unseen, "y == true", {"true"}, None, unseen) == "y == true"


def test_what_needs_latents_says_so() -> None:
    program = SimpleNamespace(latents=0, declarations=SimpleNamespace(rows={}), uses=tuple)
    fit: Any = SimpleNamespace(program=program, settings=None)
    with pytest.raises(GpdslError, match="draw_functions: this model has no latents"):
        draw_functions(fit, 2, 0)
    known = SimpleNamespace(rows=SimpleNamespace(observed={"y": np.array([True])}))
    at: Any = SimpleNamespace(program=program, marginals=SimpleNamespace(together=False), part=lambda rows: known)
    with pytest.raises(GpdslError, match="given: this model has no latents, by which rows tell of each other"):
        conditioned(at, 1, None)  # type: ignore[arg-type]


def test_what_is_no_bound_says_what_it_is() -> None:
    def said(**choice: Any) -> str:
        fit: Any = SimpleNamespace(options=Options(basis="inducing"), choice=SimpleNamespace(**choice))
        return Fit.no_bound.func(fit)

    assert said(weights=SimpleNamespace(features=7, sums="sampled")) == "it lacks a constant, (m + log |K|) / 2"


def test_a_quantile_of_a_decreasing_transform_is_the_opposite_one() -> None:
    for increasing, p in ((True, 0.2), (False, 0.8)):
        base = SimpleNamespace(quantile=lambda p: np.array([p]))
        warped: Any = SimpleNamespace(base=base, increasing=increasing, back=lambda z: 10 * z)
        np.testing.assert_allclose(Warped.quantile(warped, 0.2), [10 * p])


def test_pictures_that_cannot_be_drawn_or_written_are_refused() -> None:
    with pytest.raises(GpdslError, match="no input varies in these rows, so nothing changes along one"):
        plot._partial(SimpleNamespace(seen=SimpleNamespace(columns=())))  # type: ignore[arg-type]
    figure: Any = SimpleNamespace(canvas=SimpleNamespace(get_supported_filetypes=lambda: {"png": ""}))
    with pytest.raises(GpdslError, match="cannot draw a.xyz: expected a name ending in .png"):
        style.save(figure, Path("a.xyz"))


def test_a_search_without_noise_goes_on_as_it_was_asked_for() -> None:
    """Of one with noise, whose steps become shorter, what is left is done, or a tenth of it at least."""
    choice = SimpleNamespace(batch=0, optimizer="natural", steps=100, learning_rate=0.1)
    known: Any = SimpleNamespace(choice=choice, program=SimpleNamespace(sampled=False, inner=()))
    known.history = np.array([[70.0, -3.0]])
    known.options = asked = Options(steps=100)
    assert steps_left(known, asked) is asked
    choice.batch = 5
    assert steps_left(known, asked).steps == 30
    assert steps_left(known, Options(steps=150)).steps == 80
    assert steps_left(known, Options(steps=60)).steps == 6
    known.history = np.array([[99.0, -3.0]])
    assert steps_left(known, asked).steps == 10


@pytest.mark.parametrize("bound", [np.float32(0.1), np.float64(0.1), 2])
def test_values_are_at_a_bound_as_near_as_its_precision_tells(bound: Any) -> None:
    """Those of single precision were rounded where they came from."""
    (before, after), _ = _at_bounds(Law("Normal", {"lower": bound}))
    rounding = np.finfo(np.float32 if isinstance(bound, np.float32) else float).eps
    written = 0.1 if bound < 1 else 2.0
    assert before < written < after
    assert rounding < after - written < 100 * rounding


def test_moments_and_draws_by_formula_are_those_of_mixtures_of_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three rows with two nodes each, taken in two parts; and of nine draws, four at once."""
    rng = np.random.default_rng(0)
    mean, variance, weights = rng.normal(size=(3, 2)), rng.uniform(1, 2, (3, 2)), np.array([0.3, 0.7])
    monkeypatch.setattr(by_formula, "AT_ONCE", 4)
    y = sp.Symbol("y", real=True)
    found: Any = by_formula.ByFormula(SimpleNamespace(count=3), SimpleNamespace(log_density=y, symbol=y), (), ())  # type: ignore[arg-type]

    def curves() -> Iterator[tuple[Any, np.ndarray]]:
        for part in (slice(0, 2), slice(2, 3)):
            moments = mean[part].ravel(), variance[part].ravel()
            yield SimpleNamespace(moments=lambda moments=moments: moments), weights

    monkeypatch.setattr(by_formula.ByFormula, "_curves", lambda self, **_: curves())
    centre = mean @ weights
    np.testing.assert_allclose(found.mean(), centre)
    np.testing.assert_allclose(found.variance(), (variance + mean**2) @ weights - centre**2)
    sizes = list[int]()

    def curve(self: Any, values: dict, size: int) -> Any:
        sizes.append(size)
        return SimpleNamespace(quantile=lambda p: p + values[z])

    z = sp.Symbol("z", real=True)
    monkeypatch.setattr(by_formula.ByFormula, "_symbols", lambda self: [z])
    monkeypatch.setattr(by_formula.ByFormula, "_curve", curve)
    drawn = found.draw(lambda _: 10.0 * np.arange(9.0).reshape(3, 3), np.random.default_rng(1))
    expected = np.random.default_rng(1).random(9) + 10 * np.arange(9.0)
    np.testing.assert_allclose(drawn, expected.reshape(3, 3))
    assert sizes == [4, 4, 1]


@pytest.mark.parametrize(("total", "count"), [(4096, 512), (64, 24), (64, 64)])
def test_the_first_samples_of_every_set_are_repeated_within_it(total: int, count: int) -> None:
    """Sets follow one another; of each as many first ones, which stand for those behind them."""
    chosen, places = simulations._first(total, count), simulations._tile(total, count)
    sets = np.arange(total).reshape(simulations.SETS, -1)
    each = count // simulations.SETS
    np.testing.assert_array_equal(chosen, sets[:, :each].ravel())
    stands = chosen[places].reshape(sets.shape)
    for own, found in zip(sets, stands, strict=True):
        np.testing.assert_array_equal(found, np.resize(own[:each], len(own)))


@pytest.mark.parametrize(("law", "grows"), [("Laplace(f, 0.2)", 0.2), ("Normal(f, 0.2)", 0.0)])
def test_moments_of_a_logarithm_are_those_over_its_law_and_the_latent(law: str, grows: float) -> None:
    """E[y^k] = exp(k m + k^2 v / 2) over f, and exp(0.02 k^2) over the noise, or 1 / (1 - 0.04 k^2) of a Laplace."""
    base, mean, variance = observed("positive", f"log(y) ~ {law}")
    (statement,) = base.beliefs.program.observations
    assert statement.warp is not None
    found, spread = warp_moments(base, statement.warp, increasing=True)
    first, second = (
        base.beliefs.weights
        @ np.exp(k * mean + 0.5 * k**2 * variance)
        * (1 / (1 - (k * grows) ** 2) if grows else np.exp(0.02 * k**2))
        for k in (1, 2)
    )
    np.testing.assert_allclose(found, first, rtol=1e-8)
    np.testing.assert_allclose(spread, second - first**2, rtol=1e-7)
