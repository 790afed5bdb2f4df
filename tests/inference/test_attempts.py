"""Starts that symmetry holds are left, several optima are looked for, and doubts are said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference import attempts
from gpdsl.inference.attempts import LITTLE, Attempt, _may_be_worthless, _repeated, attempt, exchangeable
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Problem, Result
from gpdsl.inference.unrelated_rows import best_levels, value_of_nothing
from gpdsl.program.cache import precision
from tests.inference.multi_latent_models import random_model, random_start
from tests.inference.problems import problem_of

MIXING = """
index p in 1..3
index q in 1..2
input x : real
output y[p] : real
param W[p,q] : real{start}
param sigma[p] : positive = 0.2
latent g[q](x) ~ GP(0, RBF(1))
y[p] ~ Normal(sum(q, W[p,q] * g[q]), sigma[p])
"""

COREGION = """
input x : real
input task : real
output y : real
param W : real[3, 2]{start}
param kappa : positive[3] = 0.1
param sigma : positive = 0.2
latent f(x, task) ~ GP(0, RBF(1, on = x) * Coregion(W, kappa, on = task))
y ~ Normal(f, sigma)
"""


def _mixed(rng: np.random.Generator, rows: int = 30) -> tuple[np.ndarray, np.ndarray]:
    x = np.sort(rng.uniform(-3, 3, rows))
    functions = np.stack([np.sin(1.5 * x), np.cos(2.2 * x)], axis=1)
    return x, functions @ rng.standard_normal((2, 3)) + 0.1 * rng.standard_normal((rows, 3))


@pytest.mark.parametrize(
    "start",
    [
        pytest.param("", id="missing", marks=pytest.mark.slow),
        pytest.param(" = 0", id="zero"),
        pytest.param(" = 1", id="constant"),
    ],
)
def test_loadings_leave_their_symmetric_start(start: str, rng: np.random.Generator) -> None:
    """At zero they have no slope, and equal columns stay equal: both look converged."""
    x, y = _mixed(rng)
    fit = gpdsl.compile(MIXING.format(start=start)).fit({"x": x, "y": y})
    weights = rng.standard_normal((3, 2))
    other = gpdsl.compile(MIXING.format(start="")).fit({"x": x, "y": y}, init={"W": weights})
    assert fit.elbo > other.elbo - 0.1
    assert np.linalg.svd(fit.parameters["W"])[1][1] > 0.1


@pytest.mark.parametrize(
    "start", [pytest.param("", id="missing", marks=pytest.mark.slow), pytest.param(" = 1", id="constant")]
)
def test_columns_of_a_coregion_part(start: str, rng: np.random.Generator) -> None:
    x, y = _mixed(rng)
    task = np.repeat([1.0, 2.0, 3.0], 10)
    data = {"x": x, "task": task, "y": y[np.arange(30), task.astype(int) - 1]}
    fit = gpdsl.compile(COREGION.format(start=start)).fit(data)
    other = gpdsl.compile(COREGION.format(start=start)).fit(data, init={"W": rng.standard_normal((3, 2))})
    assert fit.elbo > other.elbo - 0.1
    assert not np.allclose(fit.parameters["W"][:, 0], fit.parameters["W"][:, 1])


def test_the_same_seed_breaks_symmetry_the_same_way(rng: np.random.Generator) -> None:
    x, y = _mixed(rng)
    model = gpdsl.compile(MIXING.format(start=""))
    first, second = (model.fit({"x": x, "y": y}, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.parameters["W"], second.parameters["W"])


def test_a_fit_that_goes_on_is_not_started_anew(rng: np.random.Generator) -> None:
    x, y = _mixed(rng)
    model = gpdsl.compile(MIXING.format(start=""))
    fit = model.fit({"x": x, "y": y})
    again = model.fit({"x": x, "y": y}, start=fit)
    assert again.elbo > fit.elbo - 1e-6
    assert "starts" not in again.message


QUICK = (1, 5, 6, 17)


@pytest.mark.parametrize("number", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in range(30)])
def test_no_random_start_is_better(number: int) -> None:
    """Within a nat, or the summary says that another seed may end higher."""
    case = random_model(number)
    quick = number in QUICK
    model = gpdsl.compile(case.text)
    fit = model.fit(case.data)
    shapes = {n: (p.constraint, np.shape(fit.parameters[n])) for n, p in model.declarations.params.items()}
    best = max(model.fit(case.data, init=random_start(shapes, s)).elbo for s in range(2 if quick else 10))
    assert fit.elbo > best - 1 or "another seed may end higher" in fit.summary()


# --- what unrelated rows say ------------------------------------------------------------------------------------

LEVELS = {
    "mean": ("output y : real", "y ~ Normal(f + m, 0.5)", lambda y: np.mean(y)),
    "log rate": ("output y : count", "y ~ Poisson(exp(f + m))", lambda y: np.log(np.mean(y))),
    "log odds": ("output y : binary", "y ~ Bernoulli(logit = f + m)", lambda y: np.log(np.mean(y) / np.mean(1 - y))),
    "log mean": ("output y : positive", "y ~ Exponential(exp(-f - m))", lambda y: np.log(np.mean(y))),
}


@pytest.mark.parametrize("kind", LEVELS)
def test_levels_start_where_the_data_put_them(kind: str, rng: np.random.Generator) -> None:
    output, law, expected = LEVELS[kind]
    x = rng.uniform(-3, 3, 50)
    y = {
        "mean": 1e4 + rng.standard_normal(50),
        "log rate": rng.poisson(70, 50),
        "log odds": rng.random(50) < 0.2,
        "log mean": 1e-3 * rng.exponential(size=50),
    }[kind].astype(float)
    text = f"input x : real\n{output}\nparam m : real\nlatent f(x) ~ GP(0, RBF(1))\n{law}\n"
    problem = problem_of(text, {"x": x, "y": y})
    parameters = problem.program.parameters
    start = best_levels(problem.program, problem.rows, parameters.unconstrained(), parameters.data.levels)
    assert parameters.bijectors["m"].forward(start["m"]) == pytest.approx(expected(y), rel=1e-5)


def test_cutpoints_start_at_the_frequencies_of_levels(rng: np.random.Generator) -> None:
    text = """
    index c in 1..3
    input x : real
    output y : ordinal[c]
    param cut : ordered[2]
    latent f(x) ~ GP(0, RBF(1))
    y ~ Ordinal(logit = f, cutpoints = cut)
    """
    y = rng.choice([1.0, 2.0, 3.0], 60, p=[0.2, 0.5, 0.3])
    problem = problem_of(text, {"x": rng.uniform(-3, 3, 60), "y": y})
    parameters = problem.program.parameters
    start = best_levels(problem.program, problem.rows, parameters.unconstrained(), parameters.data.levels)
    below = np.array([np.mean(y <= 1), np.mean(y <= 2)])
    np.testing.assert_allclose(
        parameters.bijectors["cut"].forward(start["cut"]), np.log(below / (1 - below)), rtol=1e-4
    )


def test_unrelated_rows_are_worth_the_best_normal(rng: np.random.Generator) -> None:
    text = """
    index p in 1..2
    input x : real
    output y[p] : real
    param sigma[p] : positive
    latent f[p](x) ~ GP(0, RBF(1))
    y[p] ~ Normal(f[p], sigma[p])
    """
    y = rng.standard_normal((40, 2)) * [1.0, 30.0] + [5.0, 0.0]
    y[3, 1] = np.nan
    problem = problem_of(text, {"x": rng.uniform(-3, 3, 40), "y": y})
    found = value_of_nothing(problem.program, problem.rows, problem.program.parameters.unconstrained())
    known = [y[np.isfinite(y[:, p]), p] for p in range(2)]
    expected = sum(-0.5 * len(k) * np.log(2 * np.pi * np.e * np.var(k)) for k in known)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("raised", [False, True])
def test_an_interrupt_in_a_later_search_ends_all_of_them(rng: np.random.Generator, raised: bool) -> None:
    """The best result so far comes back, said to be interrupted, and no further search begins."""
    x, y = _mixed(rng)
    calls: list[float] = []

    def engine(problem: Problem) -> Result:
        calls.append(-100.0 + 50.0 * len(calls))
        if raised and len(calls) == 2:
            raise KeyboardInterrupt
        ended = len(calls) > 1
        parameters = {name: np.asarray(value) for name, value in problem.parameters.items()}  # held where they are
        return Result(parameters, [], [], np.ones(1), calls[-1], 0.0, "interrupted" if ended else "converged", ended)

    with precision("float64"):
        found = attempt(problem_of(MIXING.format(start=" = 0"), {"x": x, "y": y}), engine)
    assert found.interrupted and len(calls) == 2
    assert found.elbo == (-100.0 if raised else -50.0)


def test_probabilities_bound_what_a_fit_of_labels_can_reach() -> None:
    """A bound above certainty is an error of samples, and no better than any other."""
    x = np.linspace(0, 3, 9)
    head = "index c in 1..3\ninput x : real\nlatent f[c](x) ~ GP(0, RBF(1))\noutput y : label[c]\n"
    labels = problem_of(head + "y ~ Categorical(logits = f)\n", {"x": x, "y": np.arange(9) % 3 + 1})
    head = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\n"
    numbers = problem_of(head + "y ~ Normal(f, 1)\n", {"x": x, "y": x})
    assert labels.ceiling == 0.0 and numbers.ceiling == np.inf


@pytest.mark.parametrize(
    ("ends", "said"), [([0.0, 5.0, 5.0], False), ([5.0, 0.0, 1.0, 5.0], True), ([0.0, 1.0, 2.0, 3.0, 9.0], True)]
)
def test_random_starts_that_disagree_are_said(ends: list[float], said: bool, rng: np.random.Generator) -> None:
    """Where a third of them end elsewhere there are likely more maxima, though two have found the best one."""
    x, y = _mixed(rng)
    values = iter(ends)

    def engine(problem: Problem) -> Result:
        parameters = {name: np.asarray(value) for name, value in problem.parameters.items()}
        return Result(parameters, [], [], np.ones(1), next(values, ends[-1]), 0.0, "converged")

    with precision("float64"):
        found = attempt(problem_of(MIXING.format(start=" = 0"), {"x": x, "y": y}), engine)
    assert found.elbo == max(ends)
    assert any("another seed may end higher" in note for note in found.notes) == said


def test_what_a_draw_has_found_is_not_said_to_be_nothing(rng: np.random.Generator) -> None:
    """Whether latents explain anything was judged before the draws, and said of the best of them."""
    x, y = _mixed(rng)
    calls: list[float] = []

    def engine(problem: Problem) -> Result:
        calls.append(-1000.0 if len(calls) < 2 else 500.0)
        parameters = {name: np.asarray(value) for name, value in problem.parameters.items()}
        return Result(parameters, [], [], np.ones(1), calls[-1], 0.0, "converged")

    with precision("float64"):
        found = attempt(problem_of(MIXING.format(start=" = 0"), {"x": x, "y": y}), engine)
    assert found.elbo == 500.0 and not any("explain nothing" in note for note in found.notes)


def test_slices_that_start_alike_are_told_by_the_size_of_each_number() -> None:
    """Within a millionth of the largest number of a column, and not of its smallest."""
    values = np.array([[1e6, 2.0], [1e6 + 0.5, 2.0], [0.0, 2.0]])
    np.testing.assert_array_equal(_repeated(values, 0), [[True, True], [True, True], [False, False]])
    np.testing.assert_array_equal(_repeated(values, 1), np.zeros((3, 2), bool))
    np.testing.assert_array_equal(_repeated(np.array([[1.0, 1.1, 1.0]]), 1), [[True, False, True]])


TWO = "input x : real\noutput {output}\nlatent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, {kernel})\ny ~ {law}\n"


@pytest.mark.parametrize(
    ("output", "kernel", "law", "several"),
    [
        ("y : real", "RBF(1)", "Normal(f * g, 0.2)", True),
        ("y : real", "RBF(2)", "Normal(f * g, 0.2)", False),
        ("y : real", "2 * RBF(1)", "Normal(f * g, 0.2)", False),
        ("y : real", "RBF(1)", "Normal(f + g, 0.2)", True),
        ("y : count", "RBF(1)", "Poisson(exp(f + g))", False),
    ],
)
def test_latents_that_may_be_exchanged_start_alike_and_bend_the_density(
    output: str, kernel: str, law: str, several: bool
) -> None:
    """Of quadratic log likelihoods kernels alone are alike; those that are concave have one maximum."""
    data = {"x": np.arange(3.0), "y": np.ones(3)}
    problem = problem_of(TWO.format(output=output, kernel=kernel, law=law), data, inducing=2)
    assert exchangeable(problem) == several


@pytest.mark.parametrize(("factor", "worthless"), [(0.999, True), (1.001, False)])
def test_posteriors_near_the_prior_or_of_unrelated_values_may_be_worthless(factor: float, worthless: bool) -> None:
    """By so many nats of divergence in all; of those that relate no values to each other whatever theirs is."""
    mean, root = np.array([[[0.5, -1.0]]]), np.array([[[[0.8, 0.0], [0.3, 0.5]]]])
    covariance = root[0, 0] @ root[0, 0].T
    rest = 0.5 * (np.trace(covariance) - 2 - np.linalg.slogdet(covariance)[1])
    mean *= np.sqrt((factor * LITTLE / 2 - rest) / (0.5 * np.sum(mean**2)))
    q = Whitened(mean, root)
    assert _may_be_worthless(Result({}, [], [q, q], np.ones(1), 0.0, 0.0)) == worthless
    apart = Whitened(100 * mean, root * np.eye(2))
    assert _may_be_worthless(Result({}, [], [apart, apart], np.ones(1), 0.0, 0.0))


@pytest.mark.parametrize(
    ("elbos", "said", "doubt"),
    [
        ((-12.0,), "", ""),
        (
            (-12.0, -10.0, -11.0),
            "; best of 3 starts (nats below it: 4.0 from the first start, 0.0 from draw 1, 2.0 from draw 2)",
            "no two starts",
        ),
        (
            (-50.0, -10.0, -10.001, -12.5, -90.0),
            "; best of 5 starts (nats below it: 80.0 from the first start, 0.0 from draw 1, 0.0 from draw 2, "
            "5.0 from draw 3, 160.0 from draw 4)",
            "2 of 4 random starts",
        ),
        (
            (-10.0, -10.0, -10.001),
            "; best of 3 starts (nats below it: 0.0 from the first start, 0.0 from draw 1, 0.0 from draw 2)",
            "",
        ),
    ],
)
def test_the_best_of_several_starts_says_how_far_below_the_others_are(
    elbos: tuple[float, ...], said: str, doubt: str
) -> None:
    """In nats of the data, though a bound weighs the divergence; a note tells of too few random ones that agree."""
    tried = [
        Attempt(
            f"draw {number}" if number else "the first start", Result({}, [], [], np.ones(1), elbo, 0.0, "done"), ()
        )
        for number, elbo in enumerate(elbos)
    ]
    problem: Any = SimpleNamespace(options=SimpleNamespace(beta=2.0))
    found = attempts._concluded(problem, tried, "", drawn=True)
    assert found.elbo == max(elbos) and found.message == f"done{said}" and len(found.ends) == len(elbos) - 1
    assert [doubt in note for note in found.notes] == [True] * bool(doubt)
