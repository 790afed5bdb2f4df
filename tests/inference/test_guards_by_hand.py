"""Factors and guards that a whole fit hides: sums of batches, clamps, improper cavities, singular matrices, log S."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.expectation_propagation.objective import COOLING, EpMinibatch
from gpdsl.inference.expectation_propagation.sites import Cavity, _together
from gpdsl.inference.expectation_propagation.visits import group_of
from gpdsl.inference.inducing.start import pivoted, spanning_rows
from gpdsl.inference.mcmc.engine import of_search
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.plan import planning
from gpdsl.inference.plan.options import Options
from gpdsl.inference.plan.planning import cost, quantity
from gpdsl.inference.posteriors.features import Covariances, factorise, sparse_features
from gpdsl.inference.quadruply_stochastic.swept import State, Sweeps, _Visit
from gpdsl.inference.quadruply_stochastic.weights import Lengths
from gpdsl.kernels.functionals import Coefficients, Values
from gpdsl.program.cache import precision
from gpdsl.program.groups import kernel_values
from gpdsl.symbolic.kernel_values import _at_level
from tests.inference.problems import problem_of


def test_batches_of_a_sweep_stand_for_all_rows(rng: np.random.Generator) -> None:
    """X'Phi'W Phi X of all rows is the mean of what batches say of it, each for as many rows as there are."""
    count, size, columns = 60, 4, 2
    values, weight = rng.normal(size=(count, 1 + columns)), rng.gamma(2.0, size=count)
    nothing, prior = jnp.zeros((columns, columns)), jnp.eye(columns)
    sweeps = Sweeps(cast(Any, None), cast(Any, None), 1, count)
    told = []
    for rows in np.arange(count).reshape(-1, size):
        here = jnp.asarray(values[rows])
        running = SimpleNamespace(now=here, average=here, gram=jnp.eye(size))
        known = SimpleNamespace(weight=jnp.asarray(weight[rows]))
        visit = SimpleNamespace(change=jnp.zeros_like(here), recent=1.0, forget=1.0, known=known)
        state = SimpleNamespace(running=running, lengths=Lengths(prior, nothing))
        found = sweeps._lengths(cast(State, state), cast(_Visit, visit), prior)
        np.testing.assert_array_equal(found.prior, prior)
        told.append(found.likelihood)
    whole = (values[:, 1:].T * weight) @ values[:, 1:]
    np.testing.assert_allclose(np.mean(told, axis=0), whole, rtol=1e-12)


def test_lengths_follow_the_change_of_the_rows(rng: np.random.Generator) -> None:
    """The solutions at the rows after a step of all duals, and no more of it than the share of the average."""
    count, columns = 5, 2
    now, average = rng.normal(size=(2, count, 1 + columns))
    change, weight = rng.normal(size=(count, 1 + columns)), rng.gamma(2.0, size=count)
    root = rng.normal(size=(count, count))
    gram, old = root @ root.T, np.eye(columns)
    running = SimpleNamespace(now=jnp.asarray(now), average=jnp.asarray(average), gram=jnp.asarray(gram))
    visit = SimpleNamespace(
        change=jnp.asarray(change), recent=0.25, forget=0.5, known=SimpleNamespace(weight=jnp.asarray(weight))
    )
    state = SimpleNamespace(running=running, lengths=Lengths(jnp.eye(columns), jnp.asarray(old)))
    sweeps = Sweeps(cast(Any, None), cast(Any, None), 1, 3 * count)
    found = sweeps._lengths(cast(State, state), cast(_Visit, visit), jnp.eye(columns)).likelihood
    there = 0.75 * average + 0.25 * (now + gram @ change)
    expected = 0.5 * old + 0.5 * 3 * (there[:, 1:].T * weight) @ there[:, 1:]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_what_points_leave_open_is_never_below_nothing() -> None:
    """At the points themselves it is zero but for rounding, half of which is below: roots of it would be NaN."""
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, Matern32(0.7))\ny ~ Laplace(f, 0.1)\n"
    x = np.linspace(0, 9, 50)
    problem = problem_of(text, {"x": x, "y": np.sin(x)}, inducing=30)
    group, at = problem.program.groups[0], Values(jnp.asarray(x[:, None]))
    kernel = kernel_values(problem.program.evaluator, group, {})
    features = sparse_features(group, kernel, at, at, factorise(group, kernel, at, 0.0))
    left = 1.0 - np.sum(np.asarray(features.phi) ** 2, axis=-1)
    assert np.min(left) < 0 and np.max(np.abs(left)) < 1e-10
    assert np.all(np.asarray(features.residual) >= 0)
    own = features.factor @ jnp.swapaxes(features.factor, 1, 2)
    prior = jnp.diagonal(own, axis1=1, axis2=2) * (1 - 1e-15)
    again = group_of(Covariances(own, own, prior), jnp.ones(1))
    assert np.min(np.asarray(prior - jnp.sum(again.phi**2, axis=1))) < 0
    assert np.all(np.asarray(again.residual) >= 0)


def cavity_of(explained: np.ndarray, precision: np.ndarray) -> Cavity:
    """The cavity of one row of two latents, the whole site taken out."""
    sites = Sites(jnp.asarray([[0.3, -0.2]]), jnp.asarray(precision[None]))
    nothing = jnp.zeros((1, 2))
    return _together(nothing, jnp.asarray(explained[None]), jnp.zeros((1, 2, 2)), sites, nothing, 1.0)


def test_a_cavity_without_a_covariance_is_improper() -> None:
    """Taking too much out along two directions leaves a determinant above zero, and no distribution."""
    explained = np.array([[1.0, 0.3], [0.3, 0.8]])
    fine = cavity_of(explained, np.array([[0.4, 0.1], [0.1, 0.2]]))
    assert bool(fine.proper[0])
    expected = np.linalg.inv(np.linalg.inv(explained) - [[0.4, 0.1], [0.1, 0.2]])
    np.testing.assert_allclose(fine.spread[0], expected, rtol=1e-10)
    much = np.diag([3.0, 4.0])
    assert np.linalg.det(np.eye(2) - explained @ much) > 0
    assert np.max(np.linalg.eigvalsh(np.linalg.inv(explained) - much)) < 0
    improper = cavity_of(explained, much)
    assert not bool(improper.proper[0])
    np.testing.assert_array_equal(improper.spread[0], explained)
    one = cavity_of(explained, np.diag([3.0, 0.1]))
    assert not bool(one.proper[0])
    nearly = cavity_of(np.eye(2), np.diag([1 - 1e-8, 0.0]))  # a variance of 1e8, which is none to go on with
    assert not bool(nearly.proper[0])


@pytest.mark.parametrize("copies", [10, 200])
def test_pivots_of_a_singular_matrix_end_at_its_rank(copies: int, rng: np.random.Generator) -> None:
    """Rows that are there several times are known once one of them is; nothing is divided by what is left."""
    root = np.tile(rng.normal(size=(3, 3)), (copies, 1))
    matrix = root @ root.T
    found = pivoted(lambda some: matrix[some], np.diag(matrix).copy(), 20, 1e-10)
    assert len(found.chosen) == 3 == len({int(each) % 3 for each in found.chosen})
    assert np.all(np.isfinite(found.open)) and found.open[-1] < 1e-10
    assert np.all(np.diff(found.open) < 0)
    spanning = spanning_rows(matrix, 1e-10 * float(np.mean(np.diag(matrix))))
    assert len(spanning) == 3 == len({int(each) % 3 for each in spanning})


def test_sampled_probabilities_of_both_outcomes_add_up_to_one() -> None:
    """The log of a mean over samples is that of their sum less log S; and the mean is near that of a wide probit."""
    text = (
        "input x : real\noutput y : binary\n"
        "latent f(x) ~ GP(0.4, RBF(1))\nlatent g(x) ~ GP(0, RBF(1))\nlatent h(x) ~ GP(0.1, RBF(1))\n"
        "y ~ Bernoulli(probit = f + g + 0.5 * h)\n"
    )
    fit = gpdsl.compile(text).fit({"x": [0.0], "y": [1]}, steps=1)
    far = np.array([50.0])  # nothing is known there but the prior
    likely, unlikely = (np.exp(fit.log_predictive_density({"x": far, "y": [y]})) for y in (1, 0))
    np.testing.assert_allclose(likely + unlikely, 1.0, rtol=1e-9)
    from scipy import stats

    np.testing.assert_allclose(likely, stats.norm.cdf(0.45 / np.sqrt(1 + 2.25)), atol=0.01)


def test_steps_beside_visits_wait_for_all_rows_and_end_slowly() -> None:
    """Nothing until each row has a site, full pace, and half a cosine over the last share of all steps."""
    steps, every, pace = 400, 30, 0.05
    problem = SimpleNamespace(choice=SimpleNamespace(steps=steps), options=SimpleNamespace(dtype="float64"))
    search = SimpleNamespace(problem=problem, every=every, pace=pace, size=steps)
    with precision("float64"):
        found = np.asarray(EpMinibatch._lengths(cast(Any, search), 0))
    assert not np.any(found[:every]) and np.all(found[every : steps - int(COOLING * steps)] == pace)
    left = np.arange(1, int(COOLING * steps) + 1)[::-1] / (COOLING * steps)
    np.testing.assert_allclose(found[-len(left) :], pace * np.sin(0.5 * np.pi * left) ** 2, rtol=1e-12)


def test_what_an_evaluation_costs_is_counted() -> None:
    """Of matrices of all values at once: cubes and squares of their sizes; of the evidence four of each are held."""
    layout = SimpleNamespace(family=SimpleNamespace(components=1), dense=True)
    plan = SimpleNamespace(choice=SimpleNamespace(sets=(10, 3)), layout=layout)
    flops, memory = cost(cast(Any, SimpleNamespace(groups=())), cast(Any, plan), 0)
    assert (flops, memory) == (12 * 1027, 48 * 109)
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n"
    told = gpdsl.compile(text).explain({"x": np.arange(20.0), "y": np.arange(20.0)})
    assert f"{quantity(20**3, 'flop')}, {quantity(4 * 8 * 20**2, 'B')} of working memory in float64" in told


@pytest.mark.parametrize(
    ("posterior", "optimizer", "dense"),
    [("full", "natural", False), ("diagonal", "lbfgs", True), ("coupled", "natural", True)],
)
def test_what_inducing_points_cost_is_counted(
    posterior: str, optimizer: str, dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two kernels of three latents read in two ways, at five points of four columns; ten rows, of which seven are
    held, and two components."""
    group = SimpleNamespace(per_row=False, factors=2, size=3, readings=SimpleNamespace(all=(1, 2)))
    program: Any = SimpleNamespace(
        groups=[group, SimpleNamespace(per_row=True)],
        translator=None,
        latents=6,
        observations=[SimpleNamespace(terms=[None, None])],
    )
    plan: Any = SimpleNamespace(
        choice=SimpleNamespace(sets=(), optimizer=optimizer, posterior=posterior),
        layout=SimpleNamespace(dense=dense, family=SimpleNamespace(components=2)),
        inducing=[np.zeros(5), np.zeros(1)],
    )
    monkeypatch.setattr(planning, "held_at_once", lambda *_: 7)
    monkeypatch.setattr(planning, "columns_of", lambda *_: 4)
    monkeypatch.setattr(planning, "_evaluations", lambda *_: 3)
    monkeypatch.setattr(planning, "joint_size", lambda *_: 15)
    full = optimizer == "natural"
    kernels = 2 * (125 / 3 + 2 * 25 * 4) + (0 if dense else 2 * (25 * 20 + 2 * 20 * 5 * 4))
    latents = 3 * 2 * (2 * 20 * 25 + 125 / 3 if full else 2 * 20 * 5)
    flops = kernels + latents + 20 * 2 * 10 * 6 * 6
    held = 8 * (2 * (25 + 5 * 7 * 2) + 3 * 2 * (25 if full else 5)) + 8 * 2 * 7 * 6 * 6
    if posterior == "coupled":
        flops += 2 * 15**3 + 2 * 10 * 15 * (15 + 36)
        held += 8 * (3 * 15**2 + 10 * 6 * 15)
    assert cost(program, plan, 10) == (pytest.approx(3 * flops), 3 * held)


@pytest.mark.parametrize(("budget", "share"), [(8, 2), (9, 3), (None, None)])
def test_a_search_before_chains_has_a_quarter_of_the_budget_rounded_up(budget: int | None, share: int | None) -> None:
    assert of_search(Options(engine="mcmc", evaluations=budget)) == share
    assert of_search(Options(evaluations=budget)) == budget


def test_levels_that_are_none_are_the_nearest() -> None:
    np.testing.assert_array_equal(_at_level(np.array([-3.0, 0.6, 1.4, 2.6, 9.0]), 3), [0, 0, 0, 2, 2])


def test_inducing_points_of_a_start_are_kept_where_nothing_else_is_asked_for() -> None:
    """As many as there are, of all latents of one group that the start has, and has no point at each row for."""
    known, new = Values(jnp.arange(3.0)[:, None]), Values(jnp.arange(5.0)[:, None])
    places = {"f": (0, slice(0, 1)), "g": (0, slice(1, 2)), "h": (1, slice(0, 1)), "none": None}

    def kept(names: tuple[str, ...] = ("f", "g"), asked: Any = None, **other: Any) -> bool:
        own = {"dense": False, "everywhere": (), "inducing": [known, new], "per_row": False, **other}
        start: Any = SimpleNamespace(group_of=places.get, **own)
        group: Any = SimpleNamespace(names=names, per_row=own["per_row"])
        found = planning._kept(start, group, new, {} if asked is None else {"f": asked})
        assert found is known or found is new
        return found is known

    assert kept() and kept(asked=3) and kept(names=("f",)) and kept(everywhere=("g",))
    assert not any(kept(asked=each) for each in (0, 4, "fourier(3)"))
    assert not any(kept(names=each) for each in (("f", "h"), ("f", "none"), ("none",), ("h",)))
    assert not kept(dense=True) and not kept(everywhere=("f",)) and not kept(per_row=True)
    assert not kept(inducing=[Coefficients(jnp.zeros((2, 1)), "fourier", 3, 3), new])
