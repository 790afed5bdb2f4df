"""Schedules, Adadelta and where inducing points start."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.ascent import adam
from gpdsl.inference.ascent.joint import _blocks, complete, initial_state, split_parameters
from gpdsl.inference.bound import Bound
from gpdsl.inference.natural.minibatch import WARMING
from gpdsl.inference.plan.options import make_options
from gpdsl.inference.problem import Problem
from gpdsl.program.cache import jit
from tests.inference.conftest import COUNTS, REGRESSION
from tests.inference.problems import problem_of
from tests.inference.test_exact import Case


@pytest.mark.parametrize("posterior", ["full", pytest.param("mixture(2)", marks=pytest.mark.slow)])
def test_alternating_ends_where_joint_does(counts: Case, posterior: str) -> None:
    model, data = counts
    joint, turns = (
        model.fit(data, posterior=posterior, inducing=8, optimizer="lbfgs", schedule=s, learn_inducing=False)
        for s in ("joint", "alternating")
    )
    assert turns.elbo == pytest.approx(joint.elbo, abs=2e-3)
    assert turns.parameters["ell"] == pytest.approx(joint.parameters["ell"], rel=0.02)
    assert "less than 1e-06 nats in a round" in turns.message
    assert np.all(np.diff(turns.history[:, 1]) > -1e-6)


@pytest.mark.slow
def test_alternating_moves_inducing_inputs_and_likelihood_parameters(regression: Case) -> None:
    model, data = regression
    fixed = model.fit(data, inducing=10, schedule="alternating", steps=15)
    moved = model.fit(data, inducing=10, schedule="alternating", steps=15, learn_inducing=True)
    assert moved.elbo > fixed.elbo + 0.1
    assert fixed.parameters["sigma"] != pytest.approx(0.3, abs=1e-3)


@pytest.mark.parametrize("posterior", ["full", "mixture(2)", "mixture_full(2)"])
def test_dense_hyperparameters_see_the_cross_entropy_alone(counts: Case, rng, posterior: str) -> None:
    """SAVIGP 6.1.1: with q(f) held, the slope is that of E_q[log N(f; mean, K)], whatever the likelihood, in NumPy."""
    model, data = counts
    problem = problem_of(model, data, posterior=posterior, inducing=0, schedule="alternating")
    state = initial_state(problem)
    state = jax.tree.map(lambda a: np.asarray(a) + 0.1 * rng.normal(size=a.shape), state)
    block, rest = _blocks(problem)[1], problem.rest()._replace(jitter=1e-8)

    @jit
    def exact_cross(part: dict) -> jax.Array:
        return block.bound(block.put(part, state, rest), rest)

    @jit
    def whole(part: dict) -> jax.Array:
        after = complete(block.put(part, state, rest), problem.inducing)
        return Bound(problem.program, problem.layout, problem.rows, 1e-8).value(after, 35, None)

    start = block.take(state)
    moved = {name: value + 0.3 for name, value in start.items()}
    ends = []
    for part in (start, moved):
        ends.append(cross_entropy(problem, state, part, data["x"]))
        ends.append(float(whole(part)))
    gain = float(exact_cross(moved) - exact_cross(start))
    assert gain == pytest.approx(ends[2] - ends[0], rel=1e-4)
    assert gain == pytest.approx(ends[3] - ends[1], rel=1e-6)  # and the whole bound changes by exactly that


def cross_entropy(problem: Problem, state: dict, part: dict, x: np.ndarray) -> float:
    """sum_k pi_k E_k[log N(f; 0, s2 Matern52(ell))] at other hyperparameters, for q(f) of the state, by plain NumPy."""
    from gpdsl.inference.bound import prepared, views, weights

    @jit
    def before(state: dict) -> tuple:
        was = problem.program.parameters.constrain(state["parameters"])
        seen = views(problem.program, was, problem.inducing, problem.rows, True, 1e-8)
        ((family, q),) = prepared(problem.layout, state, seen)
        whitened = family.whitened(q, seen[0].features)
        return whitened.mean, whitened.root, seen[0].features.factor[0] * jnp.sqrt(was["s2"])

    means, roots, factor = map(np.asarray, before(state))
    constrained = problem.program.parameters.constrain({**state["parameters"], **part})
    now = {name: float(constrained[name]) for name in part}
    gaps = np.sqrt(5) * np.abs(x[:, None] - x) / now["ell"]
    prior = now["s2"] * ((1 + gaps + gaps**2 / 3) * np.exp(-gaps) + 1e-8 * np.eye(len(x)))
    total = 0.0
    for k, pi in enumerate(np.asarray(weights(state))):
        mean, root = factor @ means[k, 0], factor @ roots[k, 0]
        trace = np.trace(np.linalg.solve(prior, root @ root.T))
        total += pi * (multivariate_normal(np.zeros(len(x)), prior).logpdf(mean) - 0.5 * trace)
    return total


def test_parameters_belong_to_the_prior_or_to_the_rest(regression: Case) -> None:
    model, data = regression
    program = problem_of(model, data).program
    assert split_parameters(program) == (["s2", "ell", "mu"], ["sigma"])
    both = gpdsl.compile(REGRESSION.replace("Normal(f, sigma)", "Normal(f, sigma * s2)"))
    assert split_parameters(problem_of(both, data).program) == (["ell", "mu"], ["s2", "sigma"])


def test_adadelta_has_the_papers_constants(counts: Case) -> None:
    model, data = counts
    options = make_options({}, {})
    assert (options.decay, options.epsilon) == (0.95, 1e-6)
    start = {"optimizer": "adadelta", "posterior": "full", "inducing": 8, "fixed": ["s2", "ell"]}
    fit = model.fit(data, steps=3000, epsilon=1e-4, **start)
    best = model.fit(data, inducing=8, fixed=["s2", "ell"])
    assert fit.elbo == pytest.approx(best.elbo, abs=0.1)
    assert model.fit(data, steps=50, **start).elbo < best.elbo - 1  # the papers' epsilon starts slowly
    assert "decay 0.95, epsilon 1e-06" in model.explain(data, **start)


def test_weights_of_a_mixture_move_after_a_third_and_steps_fall_like_a_cosine(counts: Case) -> None:
    """From 1 to 1/20 of the rate; steps of a fit that goes on rise first."""
    late = [float(adam._late(30)(jnp.asarray(number))) for number in (0, 9, 10, 29)]
    assert late == [0.0, 0.0, 1.0, 1.0]
    model, data = counts
    problem = problem_of(model, data, steps=100, learning_rate=0.2)
    at = np.array([0, 3, 50, 100])
    falling = 0.2 * (0.05 + 0.95 * 0.5 * (1 + np.cos(np.pi * at / 100)))
    np.testing.assert_allclose([adam._lengths(problem)(jnp.asarray(n)) for n in at], falling, rtol=1e-5)
    warm = adam._lengths(replace(problem, begun=problem.parameters))
    rising = np.minimum((at + 1) / (WARMING * 100), 1)
    assert 0 < rising[0] < rising[1] <= rising[2] == 1
    np.testing.assert_allclose([warm(jnp.asarray(n)) for n in at], falling * rising, rtol=1e-5)


def test_greedy_points_explain_more_of_the_prior_than_centres(rng: np.random.Generator) -> None:
    """What is left of the prior variance, summed over the rows; and the same choice as a plain loop in NumPy."""
    x = np.concatenate([rng.normal(size=80) * 0.1, rng.uniform(-3, 3, size=20)])
    model = gpdsl.compile(
        COUNTS.replace("= 0.7", "= 0.7 fixed").replace("s2 : positive = 1", "s2 : positive = 1 fixed")
    )
    data = {"x": x, "n": rng.poisson(1.0, 100)}

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        gaps = np.sqrt(5) * np.abs(a[:, None] - b) / 0.7
        return (1 + gaps + gaps**2 / 3) * np.exp(-gaps)

    def points_of(**options: object) -> np.ndarray:
        return np.asarray(problem_of(model, data, inducing=6, batch=0, **options).inducing[0].points)[:, 0]

    def left(z: np.ndarray) -> np.ndarray:
        return 1 - np.sum(kernel(x, z) * np.linalg.solve(kernel(z, z), kernel(z, x)).T, axis=1)

    greedy, centres = points_of(inducing_start="greedy"), points_of(inducing_start="kmeans")
    chosen = [int(np.argmin(np.abs(x - greedy[0])))]  # before any is chosen all rows are known as little
    while len(chosen) < 6:
        chosen.append(int(np.argmax(left(x[chosen]))))
    np.testing.assert_allclose(greedy, x[chosen])
    assert left(greedy).max() < left(centres).max()
    best = min((greedy, centres), key=lambda z: left(z).sum())
    np.testing.assert_allclose(points_of(), best)  # the kernel is fixed, so the better of both is the default
    assert "whichever explain more of the prior variance (the kernel is known)" in model.explain(data, inducing=6)
    learnt = gpdsl.compile(COUNTS)
    assert "k-means centres (the kernel is learnt)" in learnt.explain(data, inducing=6)


def test_greedy_points_stop_when_nothing_is_left(rng: np.random.Generator) -> None:
    x = np.repeat(rng.normal(size=5), 4)
    model = gpdsl.compile(COUNTS)
    problem = problem_of(model, {"x": x, "n": rng.poisson(1.0, 20)}, inducing=12, inducing_start="greedy")
    assert len(np.unique(np.asarray(problem.inducing[0].points))) == len(problem.inducing[0]) == 5


@pytest.mark.parametrize(
    "options,message",
    [
        ({"schedule": "alternating", "optimizer": "adam"}, "schedule = alternating maximises one set"),
        ({"schedule": "alternating", "batch": 5, "inducing": 3}, "optimizer = lbfgs needs all rows at once"),
        ({"schedule": "cyclic"}, "schedule = 'cyclic': expected one of joint, alternating"),
        ({"optimizer": "adadelta", "decay": 1.5}, "decay = 1.5: expected a number above 0 and below 1"),
        ({"inducing_start": "random"}, "inducing_start = 'random': expected one of auto, kmeans, greedy"),
    ],
)
def test_schedules_are_checked(counts: Case, options: dict, message: str) -> None:
    model, data = counts
    with pytest.raises(GpdslError, match=f"^{message}"):
        model.fit(data, **options)


def test_explain_says_what_moves_in_turn(regression: Case) -> None:
    model, data = regression
    text = model.explain(data, schedule="alternating", posterior="full")
    assert "hyperparameters s2, ell, mu (q at the rows is held, so these see L_cross alone" in text
    assert "likelihood parameters sigma" in text and "at most 200 rounds" in text
    assert "inducing inputs" in model.explain(data, schedule="alternating", inducing=5, learn_inducing=True)
