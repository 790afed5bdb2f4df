"""Bounds of steep likelihoods against dense algebra and adaptive integrals, at the q that a fit ended at."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import laplace, norm, poisson, t

import gpdsl
from gpdsl.inference import resolution
from gpdsl.inference.expected_log_likelihood import NODES, can_be_quick, fine_count, quick_errors
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Problem, Result, as_arrays
from gpdsl.program import fine_quadrature
from gpdsl.program.fine_quadrature import quick_integral
from gpdsl.program.joint import Marginals
from gpdsl.program.quadrature import Gaussian, Integral
from gpdsl.program.rows import Scope

from .problems import problem_of

X = np.linspace(0.0, 3.0, 12)
CLASSES = (np.sin(2 * X) > 0.2).astype(float)
COUNTS = np.array([0, 3, 9, 30, 31, 12, 3, 0, 0, 0, 0, 0])
MODEL = """
input x : real
output y : {kind}
latent f(x) ~ GP(0, RBF(1))
y ~ {law}
"""
LogDensity = Callable[[float, float], float]


def logit(slope: float) -> LogDensity:
    """Of a class, with log odds slope (f - 0.2)."""
    return lambda y, f: -float(np.logaddexp(0.0, (1 - 2 * y) * slope * (f - 0.2)))


def dense(fit: gpdsl.Fit, y: np.ndarray, log_density: LogDensity, steep: float) -> tuple[float, np.ndarray]:
    """The bound of a fit's q, and how far its means are from K E[d log p / df], where they are at the maximum."""
    prior = np.exp(-0.5 * (X[:, None] - X[None]) ** 2) + fit.jitter * np.eye(len(X))
    factor = np.linalg.cholesky(prior)
    w, root = np.asarray(fit.posterior[0].mean)[0, 0], np.asarray(fit.posterior[0].root)[0, 0]
    mean, sd = factor @ w, np.sqrt(np.sum((factor @ root) ** 2, axis=1))
    total, slopes = 0.0, np.zeros(len(X))
    for n in range(len(X)):
        centre = (steep - mean[n]) / sd[n]
        cuts = sorted({-10.0, 10.0, 0.0, *(centre + s * 4.0 * 2.0**-k for k in range(12) for s in (-1, 0, 1))})

        def over(g: Callable[[float], float], n: int = n, cuts: list[float] = cuts) -> float:
            pairs = [(a, b) for a, b in zip(cuts[:-1], cuts[1:], strict=True) if a >= -10 and b <= 10]
            return sum(quad(lambda z: g(z) * norm.pdf(z), a, b, epsabs=1e-11)[0] for a, b in pairs)

        total += over(lambda z, n=n: log_density(y[n], mean[n] + sd[n] * z))
        slopes[n] = over(lambda z, n=n: log_density(y[n], mean[n] + sd[n] * z) * z / sd[n])
    divergence = 0.5 * (np.sum(root**2) + w @ w - len(w)) - np.sum(np.log(np.abs(np.diagonal(root))))
    return total - divergence, prior @ slopes - mean


@pytest.mark.parametrize(
    ("kind", "law", "y", "log_density", "steep"),
    [
        *(
            pytest.param(
                "binary", f"Bernoulli(logit = {b} * (f - 0.2))", CLASSES, logit(b), 0.2, marks=pytest.mark.slow
            )
            for b in (50.0, 500.0)
        ),
        ("real", "Normal(tanh(30 * f), 0.3)", 2 * CLASSES - 1, lambda y, f: norm.logpdf(y, np.tanh(30 * f), 0.3), 0.0),
        pytest.param(
            "count",
            "Poisson(softplus(40 * f) + 0.1)",
            COUNTS,
            lambda y, f: poisson.logpmf(y, np.logaddexp(0, 40 * f) + 0.1),
            0.0,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_steep_likelihoods(kind: str, law: str, y: np.ndarray, log_density: LogDensity, steep: float) -> None:
    fit = gpdsl.compile(MODEL.format(kind=kind, law=law)).fit({"x": X, "y": y})
    bound, away = dense(fit, y, log_density, steep)
    assert "finer quadrature" in fit.message  # a row was wrong by more than 0.003 nats
    assert fit.elbo == pytest.approx(bound, abs=2e-6)
    assert fit.elbo_se == 0.0
    np.testing.assert_allclose(away, 0.0, atol=2e-3)


def test_expectation_propagation_of_unrelated_rows_is_exact() -> None:
    x, y = np.array([0.0, 1000.0]), np.array([1.0, 0.0])
    text = MODEL.format(kind="binary", law="Bernoulli(logit = 1000 * (f - 0.2))").replace("GP(0", "GP(0.7")
    fit = gpdsl.compile(text).fit({"x": x, "y": y}, engine="ep")
    prediction, total = fit.predict({"x": x}), 0.0
    cuts = [-12.0, *(0.2 + s * 2.0**-k for k in range(14) for s in (-1, 1)), 0.2, 12.0]
    for n in range(2):
        mass, first, second = (
            sum(
                quad(lambda f, n=n, k=k: f**k * np.exp(logit(1000.0)(y[n], f)) * norm.pdf(f, 0.7, 1), a, b)[0]
                for a, b in itertools.pairwise(sorted(cuts))
            )
            for k in range(3)
        )
        mean = first / mass
        assert prediction.mean("f")[n] == pytest.approx(mean, abs=1e-6)
        assert prediction.variance("f")[n] == pytest.approx(second / mass - mean**2, abs=1e-6)
        total += np.log(mass)
    assert fit.elbo == pytest.approx(total, abs=1e-7)


@pytest.mark.slow
def test_expectation_propagation_of_a_difference_is_exact() -> None:
    """log Z of a row by itself; it was 0.006 off, by a lattice over two latents."""
    text = MODEL.format(kind="real", law="Normal(tanh(30 * (f - g)), 0.3)") + "latent g(x) ~ GP(0.1, RBF(2))\n"
    fit = gpdsl.compile(text).fit({"x": [0.0], "y": [0.9]}, engine="ep")
    u = np.linspace(-17.1, 16.9, 2_000_001)
    density = norm.pdf(0.9, np.tanh(30 * u), 0.3) * norm.pdf(u, -0.1, np.sqrt(2 + 2 * fit.jitter)) * (u[1] - u[0])
    assert fit.elbo == pytest.approx(np.log(density.sum()), abs=1e-7)
    prediction = fit.predict({"x": [0.0]})
    assert prediction.mean("f")[0] - prediction.mean("g")[0] == pytest.approx(density @ u / density.sum(), abs=1e-6)


@pytest.mark.slow
def test_expectation_propagation_says_what_a_product_leaves_open() -> None:
    """log Z of a row by itself; it was 0.05 off, and no error was stated."""
    text = MODEL.format(kind="real", law="StudentT(2, f * g, 0.05)").replace("GP(0", "GP(0.3")
    fit = gpdsl.compile(text + "latent g(x) ~ GP(0.5, RBF(2))\n").fit({"x": [0.0], "y": [0.4]}, engine="ep")
    z = np.linspace(-8.5, 8.5, 4001)
    weights = norm.pdf(z) * (z[1] - z[0])
    density = t.pdf((0.4 - (0.3 + z[:, None]) * (0.5 + z)) / 0.05, 2) / 0.05
    assert abs(fit.elbo - np.log(weights @ density @ weights)) < 2 * fit.elbo_se < 2e-3


def test_pieces_of_a_tilted_distribution_may_be_empty() -> None:
    """Below 0.3 an observation leaves nothing between it and the threshold: derivatives were not finite there."""
    text = MODEL.format(kind="real", law="Laplace(f, if f > 0.3 then 0.2 else 1.5)")
    fit = gpdsl.compile(text).fit({"x": [0.0], "y": [-0.5]}, engine="ep")
    mass = sum(
        quad(lambda f: laplace.pdf(-0.5, f, 0.2 if f > 0.3 else 1.5) * norm.pdf(f), a, b, epsabs=1e-12)[0]
        for a, b in itertools.pairwise((-12.0, -0.5, 0.3, 12.0))
    )
    assert fit.elbo == pytest.approx(np.log(mass), abs=1e-6) and not fit.notes


@pytest.mark.slow
def test_weights_of_basis_functions_end_where_processes_do() -> None:
    model = gpdsl.compile(MODEL.format(kind="binary", law="Bernoulli(logit = 50 * (f - 0.2))"))
    data = {"x": X, "y": CLASSES}
    fit = model.fit(data, engine="qsgp", basis="inducing", features=len(X))
    assert "finer quadrature" in fit.message  # a row was wrong by more than 0.003 nats
    assert fit.elbo == pytest.approx(model.fit(data).elbo, abs=1e-3)


def test_gentle_likelihoods_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "_looked_at", None)
    fit = gpdsl.compile(MODEL.format(kind="binary", law="Bernoulli(logit = 2 * (f - 0.2))")).fit({"x": X, "y": CLASSES})
    bound, _ = dense(fit, CLASSES, logit(2.0), 0.2)
    assert fit.elbo == pytest.approx(bound, abs=1e-6)


def test_a_difference_of_two_latents_is_looked_at_as_one() -> None:
    """Their difference is Gaussian, so the bound of the q that a fit ended at is one integral per row."""
    text = MODEL.format(kind="binary", law="Bernoulli(logit = 100 * (f - g))") + "latent g(x) ~ GP(0, RBF(2))\n"
    x = X[::2]
    data = {"x": x, "y": (np.sin(2 * x) > 0.2).astype(float)}
    fit = gpdsl.compile(text).fit(data, posterior="full")
    prediction = fit.predict(data)
    mean = prediction.mean("f") - prediction.mean("g")
    sd = np.sqrt(prediction.variance("f") + prediction.variance("g"))
    bound = 0.0
    for w, root in zip(fit.posterior[0].mean[0], fit.posterior[0].root[0], strict=True):
        bound -= 0.5 * (np.sum(root**2) + w @ w - len(w)) - np.sum(np.log(np.abs(np.diagonal(root))))
    for n, sign in enumerate(1 - 2 * data["y"]):
        at = -mean[n] / sd[n]
        bound += quad(
            lambda z, n=n, sign=sign: -np.logaddexp(0, sign * 100 * (mean[n] + sd[n] * z)) * norm.pdf(z),
            -10, 10, points=[at - 0.1, at, at + 0.1], limit=200,
        )[0]  # fmt: skip
    assert "finer quadrature" in fit.message  # a row was wrong by more than 0.003 nats
    assert fit.elbo == pytest.approx(bound, abs=2e-6) and fit.elbo_se == 0.0


def test_what_is_left_of_two_latents_is_said() -> None:
    text = MODEL.format(kind="binary", law="Bernoulli(logit = 30 * f * g)") + "latent g(x) ~ GP(0, RBF(2))\n"
    fit = gpdsl.compile(text).fit({"x": X, "y": CLASSES}, steps=5)
    assert 1e-4 < fit.elbo_se < 10.0


TWO = """
input x : real
output y : binary
output n : count
param b : positive = 3
latent f(x) ~ GP(0, RBF(1))
y ~ Bernoulli(logit = b * f)
n ~ Poisson(softplus({slope} * f) + 0.1)
"""


@pytest.mark.parametrize(("b", "slope", "right"), [(3.0, 1.0, True), (3000.0, 1.0, False), (3.0, 3000.0, False)])
def test_the_cheap_rule_adds_what_nodes_miss_and_says_when_it_is_not_enough(
    b: float, slope: float, right: bool
) -> None:
    """Of several terms and rows, each steep one is enough; what it adds is right where none of them is."""
    data = {"x": X[:3], "y": np.array([1.0, 0.0, 1.0]), "n": np.array([0, 4, 2])}
    problem = problem_of(TWO.format(slope=slope), data)
    parameters = problem.program.parameters.constrain(problem.parameters) | {"b": jnp.asarray(b)}
    mean, variance = np.array([0.3, -1.0, 0.8]), np.array([0.9, 0.5, 0.2])
    marginals = Marginals(jnp.asarray(mean)[None, :, None], jnp.asarray(variance)[None, :, None])
    assert can_be_quick(problem.program)
    with jax.enable_x64(True):
        rows, at = as_arrays((problem.rows, marginals), "float64")
        added, told = jax.jit(partial(quick_errors, problem.program))(as_arrays(parameters, "float64"), rows, at)
    assert bool(told) is right
    if not right:
        return
    (nodes, weights), expected = np.polynomial.hermite_e.hermegauss(NODES[1]), np.zeros(3)
    weights = weights / weights.sum()
    for n in range(3):

        def density(z: np.ndarray, n: int = n) -> np.ndarray:
            f = mean[n] + np.sqrt(variance[n]) * z
            rate = np.logaddexp(0, slope * f) + 0.1
            return -np.logaddexp(0, (1 - 2 * data["y"][n]) * b * f) + poisson.logpmf(data["n"][n], rate)

        expected[n] = quad(lambda z, g=density: g(z) * norm.pdf(z), -9, 9, epsabs=1e-12)[0] - weights @ density(nodes)
    assert np.abs(expected).max() > 1e-6
    np.testing.assert_allclose(added[0], expected, atol=1e-9)


@pytest.mark.parametrize(("b", "right"), [(1.0, True), (50.0, False)])
def test_the_cheap_rule_of_two_arguments_says_when_more_nodes_are_not_enough(b: float, right: bool) -> None:
    text = MODEL.format(kind="binary", law=f"Bernoulli(logit = {b} * f * g)") + "latent g(x) ~ GP(0, RBF(2))\n"
    problem = problem_of(text, {"x": X[:2], "y": np.array([1.0, 0.0])})
    mean, sd = np.array([[0.3, 1.0], [-1.0, 0.2]]), np.array([[0.9, 0.5], [0.7, 1.1]])
    with jax.enable_x64(True):
        rows, at = as_arrays((problem.rows, Marginals(jnp.asarray(mean)[None], jnp.asarray(sd**2)[None])), "float64")
        added, told = jax.jit(partial(quick_errors, problem.program, {}))(rows, at)
    assert bool(told) is right
    z, (nodes, shares) = np.arange(-9, 9, 0.01), np.polynomial.hermite_e.hermegauss(NODES[2])
    rules = (z, 0.01 * norm.pdf(z)), (nodes, shares / shares.sum())
    for n, sign in enumerate((-1.0, 1.0) if right else ()):
        found = [
            w @ -np.logaddexp(0, sign * b * (mean[n, 0] + sd[n, 0] * x[:, None]) * (mean[n, 1] + sd[n, 1] * x)) @ w
            for x, w in rules
        ]
        assert added[0, n] == pytest.approx(found[0] - found[1], abs=6e-8) and abs(added[0, n]) > 2e-8


@pytest.mark.parametrize(("sd", "right", "plainly"), [(4.0, True, True), (7.0, True, False), (40.0, False, False)])
def test_the_cheap_rule_is_right_where_its_error_falls_fast_enough(
    sd: float, right: bool, plainly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean of a steep function at means near and far, against SciPy; every other node is not enough for all."""
    means = np.array([0.0, -3.0, -25.0])
    text = TWO.format(slope=1.0)
    problem = problem_of(text, {"x": X[:3], "y": np.ones(3), "n": np.zeros(3, int)})
    f = sp.Symbol("f", real=True)
    with jax.enable_x64(True):
        law = Gaussian((f,), [jnp.asarray(means)[None]], [{0: jnp.full((1, 3), sd)}])
        integral = Integral(problem.program, law, (), Scope({}, problem.rows), 1 / (1 + sp.exp(-f)))
        found, told = jax.jit(lambda: quick_integral(integral))()
        monkeypatch.setattr(fine_quadrature, "FALLING", (0.0, 0.0))
        assert bool(jax.jit(lambda: quick_integral(integral)[1])()) is plainly
    assert bool(told) is right
    expected = [
        quad(lambda z, m=m: expit(m + sd * z) * norm.pdf(z), -12, 12, points=[-m / sd], limit=400, epsabs=1e-13)[0]
        for m in means
    ]
    error = np.abs(np.asarray(found)[0] / expected - 1)
    assert error.max() < 1e-6 if right else error.max() > 1e-9


@pytest.mark.parametrize(
    ("errors", "centres", "right"),
    [
        ((9e-7, 9e-7, 9e-7), 2, True),
        ((2e-6, 2e-6, 2e-6), 0, False),
        ((4e-4, 1e-2, 1.0), 1, True),
        ((4e-4, 1e-2, 1.0), 2, False),
        ((1e-3, 2e-2, 1.0), 1, False),
        ((6e-5, 1e-3, 1e-1), 1, False),
        ((1e-5, 1e-3, 5e-3), 1, False),
        ((-4e-4, 1e-2, -1.0), 1, True),
    ],
    ids=["small", "not small", "falls", "steps may hide", "left over", "slow", "slow before", "signs"],
)
def test_how_wrong_the_cheap_rule_is_follows_from_parts_of_its_nodes(
    errors: tuple[float, float, float], centres: int, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half, a quarter and an eighth of them are off from the next by so much; beside a row without errors."""
    half, quarter, eighth = 1.0 + np.cumsum(errors)
    values = np.zeros((fine_quadrature.EVEN_NODES, 1, 2))
    values[0, 0] = eighth / 8, 1 / 8
    values[4, 0] = quarter / 4 - eighth / 8, 1 / 8
    values[2, 0] = half / 2 - quarter / 4, 1 / 4
    values[1, 0] = 1 - half / 2, 1 / 2
    monkeypatch.setattr(fine_quadrature, "_even_values", lambda _: jnp.asarray(values))
    monkeypatch.setattr(fine_quadrature, "_centres", lambda _: (sp.Symbol("f"),) * centres)
    with jax.enable_x64(True):
        found, told = quick_integral(cast(Integral, None))
    np.testing.assert_allclose(found, 1.0, rtol=1e-14)
    assert bool(told) == right


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_widths_of_what_is_read_are_the_largest_of_any_row(scale: float) -> None:
    """Of a kernel whose variance grows along x: where rows lie far apart in width, the widest counts."""
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, SCALE * (Linear() + Constant()))\ny ~ Normal(f^3, 1)\n"
    text = text.replace("SCALE", str(scale))
    problem = problem_of(text, {"x": X[:5], "y": X[:5]})
    parameters = problem.program.parameters.constrain(problem.parameters)
    found = resolution.prior_widths(problem, parameters, problem.rows)
    expected = np.sqrt(scale * (1.0 + np.max(np.square(np.asarray(problem.rows.inputs["x"])))))
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


@pytest.mark.parametrize(
    ("law", "quick"),
    [
        ("Bernoulli(logit = 50 * f)", True),
        ("Bernoulli(logit = 50 * (f - g))", True),
        ("Bernoulli(logit = 50 * f * g)", True),
        ("Bernoulli(logit = 50 * abs(f - 0.1))", False),
    ],
)
def test_the_cheap_rule_is_of_functions_without_kinks(law: str, quick: bool) -> None:
    text = MODEL.format(kind="binary", law=law) + "latent g(x) ~ GP(0, RBF(2))\n"
    problem = problem_of(text, {"x": X, "y": CLASSES})
    assert any(term.refinable for each in problem.program.observations for term in each.terms)
    assert can_be_quick(problem.program) is quick


@pytest.mark.parametrize("right", [True, False])
def test_some_rows_stand_for_all_and_the_worst_for_itself(right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added to their bound counts as often as there are rows for each; the finer rule looks where it has to."""

    def telling(*numbers: float | bool) -> Callable[..., tuple[float | bool, ...]]:
        return lambda problem, _, result, rows: numbers

    monkeypatch.setattr(resolution, "LOOKED_AT", 4)
    monkeypatch.setattr(resolution, "_quickly_added", telling(-2.0, 0.5, right))
    monkeypatch.setattr(resolution, "_added", telling(-3.0, 0.25, 0.75))
    text = MODEL.format(kind="binary", law="Bernoulli(logit = 50 * f)")
    problem = problem_of(text, {"x": X, "y": CLASSES}, inducing=3)
    result: Any = SimpleNamespace(held=None, parameters={}, inducing=[], posterior=[], weights=np.ones(1))
    found = resolution._looking(problem)(result)
    assert found == pytest.approx((-6.0, 0.0, 0.5) if right else (-9.0, 0.75, 0.75))


def test_the_most_that_is_added_to_a_row_has_no_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "_seen", lambda problem, result, rows: ({}, None, jnp.asarray([0.25, 0.75])))
    by_row = jnp.asarray([[1.0, -2.0, 0.0], [1.0, -6.0, 0.5]])
    monkeypatch.setattr(resolution, "quick_errors", lambda *_: (by_row, jnp.asarray(True)))
    problem: Any = SimpleNamespace(program=None)
    added, worst, right = resolution._quickly_added(problem, (), None, None)  # type: ignore[arg-type]
    assert float(added) == pytest.approx(1.0 - 5.0 + 0.375) and float(worst) == pytest.approx(5.0) and bool(right)
    left = jnp.asarray([[0.5, 0.0, 1.0], [0.1, 0.2, 0.0]])
    monkeypatch.setattr(resolution, "quadrature_errors", lambda *_: (by_row, left))
    finely = resolution._added(problem, None, (None, None, None, None), None)  # type: ignore[arg-type]
    np.testing.assert_allclose(finely, [1.0 - 5.0 + 0.375, 0.25 * 1.5 + 0.75 * 0.3, 5.0], rtol=1e-6)


@pytest.mark.parametrize(("worst", "ends", "told"), [(0.5, -8.0, -8.0), (0.5, -11.0, -9.7), (1e-9, -8.0, -9.7)])
def test_a_search_goes_on_with_finer_quadrature_where_a_row_was_wrong_and_ends_no_lower(
    worst: float, ends: float, told: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the looks at both ends found counts: -10 was wrong by 0.3, and errors add up in squares."""
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ StudentT(4, f, 0.01)\n"
    problem = problem_of(text, {"x": np.arange(3.0), "y": np.ones(3)}, inducing=2)
    q = [Whitened(np.zeros((1, 1, 2)), np.eye(2)[None, None])]
    first = Result(dict(problem.parameters), list(problem.inducing), q, np.ones(1), -10.0, 0.03, "converged")
    asked: list[bool] = []

    def engine(finer: Problem) -> Result:
        asked.append(all(term.fine == term.refinable for each in finer.program.observations for term in each.terms))
        assert finer.continued and any(term.fine for each in finer.program.observations for term in each.terms)
        return replace(first, elbo=ends, elbo_se=0.0, message="done", notes=("a",))

    monkeypatch.setattr(resolution, "_looking", lambda _: lambda result: (0.3, 0.04, worst))
    found = resolution._looked_at(problem, first, engine)
    assert found.elbo == pytest.approx(told) and asked == ([] if worst < 1e-6 else [True])
    assert found.elbo_se == pytest.approx(0.04 if told == ends else 0.05)
    said = "done; with finer quadrature, since the bound of a row was wrong by 0.5 nats"
    assert found.message == (said if told == ends else "converged")


def test_a_finer_search_that_takes_too_long_is_told_and_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    text = MODEL.format(kind="real", law="StudentT(4, f * g, 0.01)") + "latent g(x) ~ GP(0, RBF(2))\n"
    problem = problem_of(text, {"x": np.arange(3.0), "y": np.ones(3)})
    monkeypatch.setattr(resolution, "_looking", lambda _: lambda result: (0.3, 0.04, 0.5))
    monkeypatch.setattr(resolution, "MOST_NODES", 3 * fine_count(problem.program) - 1)
    found = resolution._looked_at(problem, Result({}, [], [], np.ones(1), -10.0, 0.03, "converged"), cast(Any, None))
    assert found.elbo == pytest.approx(-9.7) and found.message == "converged" and "by 0.5 nats" in found.notes[0]
