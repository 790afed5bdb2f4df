"""Steps, bounds and predictions of small programs against NumPy, with all functions or some, without any fit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gpdsl.inference.plan.options import Options
from gpdsl.inference.posteriors.pathwise import PriorDraws
from gpdsl.inference.quadruply_stochastic import swept
from gpdsl.inference.quadruply_stochastic.basis import PRECISION, Basis, repositioned
from gpdsl.inference.quadruply_stochastic.choice import decide_weights
from gpdsl.inference.quadruply_stochastic.posterior import WeightSpace, _prior_at
from gpdsl.inference.quadruply_stochastic.sampled import Pace, SampledSteps, State, Support, no_support
from gpdsl.inference.quadruply_stochastic.sums import Held, nothing_seen, see
from gpdsl.inference.quadruply_stochastic.weights import Lengths, Weights
from tests.inference.quadruply_stochastic.conftest import Case
from tests.inference.quadruply_stochastic.test_estimators import dense_bound, steps_of
from tests.inference.quadruply_stochastic.test_support import kernel

M, SIZE = 8, 3
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def logistic(case: Case, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, ...]:
    """The expected log likelihood of each row, its slope and its expected precision, by quadrature."""
    at = mean[:, None] + np.sqrt(variance)[:, None] * NODES
    chance, y = 1 / (1 + np.exp(-at)), np.asarray(case.rows.outputs["y"])[:, None]
    return tuple(f @ WEIGHTS for f in (y * at - np.logaddexp(0, at), y - chance, chance * (1 - chance)))


def kl(case: Case) -> float:
    covariance, mu = case.root() @ case.root().T, np.asarray(case.q.vectors[0])
    return float(0.5 * (np.trace(covariance) + mu @ mu - M - np.linalg.slogdet(covariance)[1]))


def _estimated(steps: SampledSteps, case: Case, learnt: dict, running: jax.Array, support: Support) -> jax.Array:
    drawn = steps.draw(jax.random.key(0), case.rows)
    return steps.estimate(learnt, (case.q.at(drawn.first), case.q.at(drawn.second)), running, drawn, support)


def test_all_functions_and_rows_give_the_bound_itself(regression: Case, classes: Case) -> None:
    """No draw is left: a block of all functions, and every row once."""
    for case, exact in ((regression, True), (classes, False)):
        steps = steps_of(case, M, case.count, exact)
        none = no_support(case.rows.inputs["x"][:1], case.learnt)
        running = jnp.zeros((1, 1 + case.q.columns))
        found = jax.jit(partial(_estimated, steps, case))(case.learnt, running, none)
        if exact:
            wanted = float(jax.jit(partial(dense_bound, case))(case.learnt, case.q.vectors))
        else:
            covariance = case.phi() @ case.root() @ case.root().T @ case.phi().T
            value, _, _ = logistic(case, case.phi() @ np.asarray(case.q.vectors[0]), np.diag(covariance))
            wanted = float(np.sum(value)) - kl(case)
        assert float(found) == pytest.approx(wanted, rel=1e-6)


def test_the_likelihood_and_its_slopes_are_those_of_quadrature(regression: Case, classes: Case) -> None:
    mean, variance = np.linspace(-2, 2, 12), np.linspace(0.1, 3, 12)
    given = classes.program, classes.learnt, classes.rows, jnp.asarray(mean), jnp.asarray(variance)
    known = jax.jit(swept.slopes, static_argnums=0)(*given)
    for found, wanted in zip(
        (known.value, known.slope, known.precision), logistic(classes, mean, variance), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    index = jnp.asarray([6, 7, 0])

    @jax.jit
    def of_some(learnt: dict) -> tuple:
        seen = see(classes.features, learnt, classes.rows.inputs["x"], index, classes.q.at(index))
        return seen.values, swept.concave_likelihood(classes.program, learnt, classes.rows, seen, M / SIZE)

    values, some = of_some(classes.learnt)
    phi, scale = np.asarray(values), M / SIZE
    mean = scale * phi @ np.asarray(classes.q.vectors)[0, index]
    variance = np.sum((scale * phi @ classes.root()[np.asarray(index)]) ** 2, axis=1)
    np.testing.assert_allclose(some, logistic(classes, mean, variance)[0], rtol=1e-5)
    gap = regression.rows
    normal = jax.jit(swept.quadratic, static_argnums=0)(regression.program, regression.learnt, gap)
    residual = np.asarray(gap.outputs["y"]) - 0.3
    np.testing.assert_allclose(normal.slope, residual / 0.16)
    np.testing.assert_allclose(normal.precision, np.full(12, 1 / 0.16))
    np.testing.assert_allclose(normal.value, -0.5 * residual**2 / 0.16 - 0.5 * np.log(2 * np.pi * 0.16))


@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_a_step_is_that_of_adagrad(kind: str, request: pytest.FixtureRequest) -> None:
    """Both blocks one after the other, the running expectation, Proposition 1's curvature, and what is learnt."""
    case: Case = request.getfixturevalue(kind)
    exact, columns = kind == "regression", case.q.columns
    steps = SampledSteps(case.program, case.features, case.count, case.count, SIZE, exact, optax.sgd(0.1))
    x = case.rows.inputs["x"][:4]
    support = Support(x, jnp.eye(4), case.learnt)
    there = case.phi()[:4]
    squares, running = np.full((1 + columns, M), 0.5), there @ np.asarray(case.q.vectors).T
    memory = steps.optimiser.init(case.learnt)
    state = State(case.q, jnp.asarray(squares), jnp.asarray(running), case.learnt, memory)
    pace, key = Pace(*map(jnp.asarray, (0.7, 0.4, 5.0))), jax.random.key(3)
    after, value = jax.jit(steps.step)(state, case.rows, support, key, pace)
    drawn = jax.jit(steps.draw)(key, case.rows)
    parts = jax.jit(lambda drawn: (case.q.at(drawn.first), case.q.at(drawn.second)))(drawn)
    estimate = jax.jit(jax.value_and_grad(steps.estimate, argnums=(0, 1)))
    wanted, (slope, moves) = estimate(case.learnt, parts, state.running, drawn, support)
    assert float(value) == pytest.approx(float(wanted))
    vectors = np.array(case.q.vectors)
    for index, move in zip((drawn.first, drawn.second), moves, strict=True):
        for place, gradient in zip(np.asarray(index), np.asarray(move.vectors).T, strict=True):
            squares[:, place] += gradient**2
            new = vectors[:, place] + 0.1 * 0.7 * gradient / np.sqrt(squares[:, place])
            for column in range(columns):
                if place < column:
                    new[1 + column] = 0.0
                elif place == column:
                    new[1 + column] = max(new[1 + column], 0.5 * vectors[1 + column, place])
            vectors[:, place] = new
    np.testing.assert_allclose(after.q.vectors, vectors, rtol=1e-6)
    np.testing.assert_allclose(after.squares, squares)
    np.testing.assert_allclose(after.running, there @ vectors.T, rtol=1e-6)
    for name, old in case.learnt.items():
        np.testing.assert_allclose(after.learnt[name], np.asarray(old) + 0.4 * 0.1 * 0.4 * np.asarray(slope[name]))
    first = np.asarray(drawn.first)
    phi, scale = case.phi()[:, first], M / SIZE
    if exact:
        precision = np.full(case.count, 1 / 0.16)
    else:
        lone = scale * phi**2 @ (case.root()[first][:, columns:] ** 2).sum(axis=1)
        dense = scale * phi @ case.root()[first][:, :columns]
        mean = scale * phi @ np.asarray(case.q.vectors)[0, first]
        precision = logistic(case, mean, lone + np.sum(dense**2, axis=1))[2]
    curvature = np.array(case.q.curvature)
    curvature[first] += (phi.T**2 @ precision - curvature[first]) / (1 + 5 * SIZE / M)
    np.testing.assert_allclose(after.q.curvature, curvature, rtol=1e-5)


def test_precisions_move_towards_their_fixed_point(rng: np.random.Generator) -> None:
    """MacKay's s = gamma / E[w]^2, at most half as much again or a third less; v = sqrt(s) w has the same w then."""
    s, curvature, v = np.exp(rng.normal(size=6)), 5 * rng.random(6) + 0.5, rng.normal(size=6)
    v[0], curvature[0], v[1] = 0.9 * np.sqrt(0.8), 4.0, 9.0  # one factor between the bounds, one at each
    v[2] = 1e-3
    now = rng.normal(size=(1, 6))
    held = Held(jnp.asarray(now), Weights(jnp.asarray(v[None]), jnp.asarray(curvature)))
    learnt, nothing = {PRECISION: jnp.asarray(np.log(s))}, jnp.zeros((0, 0))
    running = nothing_seen(1, 0, float)
    state = swept.State(held, jnp.zeros((1, 1)), Lengths(nothing, nothing), learnt, learnt, running, jnp.zeros((), int))
    after = jax.jit(repositioned)(state)
    w, variance = v / np.sqrt(s), 1 / (1 + curvature) / s
    wanted = np.clip((1 - s * variance) / w**2, s / 1.5, 1.5 * s)
    assert s[0] / 1.5 < wanted[0] < 1.5 * s[0]
    np.testing.assert_allclose(np.exp(after.learnt[PRECISION]), wanted)
    np.testing.assert_allclose(after.held.average.vectors[0], np.sqrt(wanted) * w)
    np.testing.assert_allclose(after.held.average.curvature, curvature * s / wanted)
    np.testing.assert_allclose(after.held.now, now * np.sqrt(s / wanted))


@pytest.mark.parametrize("columns", [3, 1])
def test_inducing_points_leave_open_what_they_do_not_tell(regression: Case, columns: int) -> None:
    """A dense root has the prior given the points, a diagonal the weight of each row's own function (Proposition 4)."""
    case, rng, jitter, stiffness = regression, np.random.default_rng(0), 0.01, 20.0
    z, x = rng.normal(size=(3, 2)), np.asarray(case.rows.inputs["x"])
    vectors = rng.normal(size=(1 + columns, 3)) * np.vstack([np.ones(3), np.triu(np.ones((columns, 3)))])
    q = Weights(jnp.asarray(vectors), jnp.asarray(1 + rng.random(3)))
    held = WeightSpace(q, Basis("inducing", z), 0, stiffness, jitter if columns == 3 else 0.0)
    parameters = case.program.parameters.constrain(case.learnt)
    given = case.program, case.rows, parameters, q
    found, (block,) = jax.jit(lambda: (held.marginals(*given), held.blocks(*given)))()
    k = kernel(x, z)
    root = np.zeros((3, 3))
    root[:, :columns] = vectors[1:].T
    root[range(columns, 3), range(columns, 3)] = 1 / np.sqrt(1.4 + np.asarray(q.curvature)[columns:])
    prior = kernel(x, x)
    if columns == 3:
        left = prior - k @ np.linalg.solve(kernel(z, z) + jitter * 1.4 * np.eye(3), k.T)
    else:
        share = np.sqrt(1.4 / (stiffness / 3 * np.sum(k**2, axis=1) + 1.4))
        left = prior * share[:, None] * share
    wanted = k @ root @ root.T @ k.T + left
    np.testing.assert_allclose(found.mean[0, :, 0], 0.3 + k @ vectors[0])
    np.testing.assert_allclose(found.variance[0, :, 0], np.diag(wanted))
    np.testing.assert_allclose(block.covariance[0, 0, :, 0], wanted, atol=1e-10)


def test_draws_of_the_prior_have_its_variance(regression: Case) -> None:
    """Errors of 2000 draws of 50 waves stay below 5 standard deviations of a variance, which is 5 sqrt(2 / 2000)."""
    case, x = regression, regression.rows.inputs["x"][:3]
    draws, rng = 2000, np.random.default_rng(0)
    sizes, starts = rng.rayleigh(size=(1, draws, 50)), rng.random((1, draws, 50))
    prior = PriorDraws(jnp.asarray(sizes), jnp.asarray(starts), np.zeros(1, int), seed=1)
    f = jax.jit(lambda: _prior_at(case.program, case.program.parameters.constrain(case.learnt), prior, x))()
    np.testing.assert_allclose(
        np.cov(np.asarray(f)), kernel(np.asarray(x), np.asarray(x)), atol=1.4 * 5 * 2**0.5 / draws**0.5
    )


SIZES = [
    ({}, 50, (2000, 2000, "running")),
    ({}, 900, (9000, 4000, "running")),
    ({}, 50_000, (20_000, 4000, "running")),
    ({"features": 7}, 50, (7, 7, "running")),
    ({"feature_sums": "sampled", "features": 3000}, 500, (3000, 2000, "sampled")),
    ({"basis": "inducing", "features": 2000}, 250_000, (2000, 2000, "solved")),
    ({"basis": "inducing", "features": 2000}, 250_001, (2000, 2000, "sampled")),
    ({"basis": "inducing"}, 4000, (4000, 4000, "solved")),
    ({"basis": "inducing"}, 4001, (4001, 2000, "sampled")),
]


@pytest.mark.parametrize(("given", "rows", "wanted"), SIZES)
def test_sizes_where_nobody_chose_are_those_of_the_documentation(
    regression: Case, given: dict[str, Any], rows: int, wanted: tuple[int, int, str]
) -> None:
    """Ten functions for each row between bounds; points are solved for up to 4000 of them and 1e12 rows by squares."""
    known = regression.program.parameters
    program = replace(regression.program, parameters=replace(known, initial={}, bijectors={}))
    options = Options(**{"engine": "qsgp", "basis": "fourier", "feature_sums": "auto", **given})
    choice = decide_weights(program, options, rows)
    assert choice.weights is not None
    assert (choice.weights.features, choice.weights.block, choice.weights.sums) == wanted
    assert choice.weights.start_rows == 0
    if choice.weights.sums == "running":  # ten passes over the rows, in 200 to 1500 sweeps over the functions
        sweeps = np.clip(10 * np.ceil(rows / min(rows, 500)), 200, 1500)
        assert choice.steps == sweeps * np.ceil(wanted[0] / wanted[1])
