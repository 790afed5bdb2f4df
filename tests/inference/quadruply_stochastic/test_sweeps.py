"""Sweeps against dense linear algebra: the bound and its slope, and the best that the rows of a batch can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gpdsl.inference.quadruply_stochastic.sums import Held, added, best_length, newton_step, surveyed
from gpdsl.inference.quadruply_stochastic.swept import Batches, State, Sweeps
from gpdsl.inference.quadruply_stochastic.weights import (
    Weights,
    first_functions,
    solutions_of,
    start_weights,
)
from gpdsl.program.cache import jit
from gpdsl.program.program import take_rows
from tests.inference.quadruply_stochastic.conftest import CLASSES, Case, make_case
from tests.inference.quadruply_stochastic.test_estimators import dense_bound

SIZE = 3
"""Functions of a block, which does not divide their number."""


def sweep_of(case: Case, *, learning: bool) -> Callable[[State, Batches], tuple[State, jax.Array]]:
    """A compiled sweep."""
    sweeps = Sweeps(case.program, case.features, SIZE, case.count)
    return jit(partial(sweeps.sweep, learning=learning))


def begun(case: Case, index: np.ndarray, *, fresh: bool) -> State:
    """The state before a first sweep that sees the rows `index`."""
    average, lengths = solutions_of(case.q, fresh=fresh)
    held = Held(average.vectors, average)
    x = np.asarray(case.rows.inputs["x"])[index]
    running = jit(lambda x: surveyed(case.features, case.learnt, x, held, SIZE))(x)
    duals = jnp.zeros((case.count, 1 + case.q.columns))
    slope = jax.tree.map(jnp.zeros_like, case.learnt)
    return State(held, duals, lengths, case.learnt, slope, running, jnp.zeros((), int))


def after_sweeps(case: Case, number: int, batch: int) -> State:
    """The state after sweeps from the prior, over batches of rows in shuffled order."""
    rng = np.random.default_rng(0)
    q = start_weights(case.features.count, case.q.columns, 5.0, "float64")
    case = replace(case, q=q)
    draws = [rng.permutation(case.count)[:batch] for _ in range(number + 1)]
    state, sweep = begun(case, draws[0], fresh=True), sweep_of(case, learning=False)
    for here, following in zip(draws, draws[1:], strict=False):
        rows = take_rows(case.rows, here), take_rows(case.rows, following)
        state, _ = sweep(state, Batches(*rows, jnp.asarray(here)))
    return state


def test_a_sweep_sees_the_exact_bound_and_its_gradient_in_the_hyperparameters(regression: Case) -> None:
    case, all_rows = regression, np.arange(regression.count)
    state = begun(case, all_rows, fresh=False)
    batches = Batches(case.rows, case.rows, jnp.asarray(all_rows))
    after, bound = sweep_of(case, learning=True)(state, batches)
    exact, slope = jax.value_and_grad(lambda learnt: dense_bound(case, learnt, case.q.vectors))(case.learnt)
    assert float(bound) == pytest.approx(float(exact), rel=1e-10)
    for name, value in after.slope.items():
        assert np.allclose(value, slope[name], rtol=1e-8), name
    again = surveyed(case.features, case.learnt, case.rows.inputs["x"], after.held, SIZE)
    for kept, found in zip(jax.tree.leaves(after.running), jax.tree.leaves(again), strict=True):
        assert np.allclose(kept, found, atol=1e-12)


@pytest.mark.parametrize(("batch", "number"), [(12, 1), (4, 400)])
def test_sweeps_find_the_exact_posterior(regression: Case, batch: int, number: int) -> None:
    """With all rows at once in one sweep, and from batches as the limit: no noise of theirs is left."""
    case, m, columns = regression, regression.features.count, regression.q.columns
    state = after_sweeps(case, number, batch)
    noise = float(case.program.parameters.constrain(case.learnt)["sigma"]) ** 2
    phi, residual = case.phi(), np.asarray(case.rows.outputs["y"]) - 0.3
    precision = phi.T @ phi / noise + np.eye(m)
    assert np.allclose(state.held.average.vectors[0], np.linalg.solve(precision, phi.T @ residual / noise), atol=1e-8)
    assert np.allclose(state.held.average.vectors[1:], np.linalg.inv(precision)[:columns], atol=1e-8)
    root = np.linalg.cholesky(np.linalg.inv(precision))[:, :columns]
    found = state.lengths.weights(state.held.average, jnp.arange(m)).vectors[1:].T
    assert np.allclose(
        found, root, rtol=1e-6 if batch == case.count else 0.5, atol=1e-6 if batch == case.count else 0.1
    )


def test_weights_are_those_of_the_duals(regression: Case) -> None:
    case = regression
    state = after_sweeps(case, 5, 4)
    x, nothing = case.rows.inputs["x"], first_functions(state.held.average)
    again = added(case.features, case.learnt, x[:7], nothing, state.duals[:7], SIZE)
    again = added(case.features, case.learnt, x[7:], again, state.duals[7:], SIZE)
    assert np.allclose(again, state.held.now, atol=1e-12)


def test_a_classification_ends_where_the_bound_has_no_slope(rng: np.random.Generator) -> None:
    case = make_case(CLASSES, rng, columns=0)
    state = after_sweeps(case, 300, 4)
    phi, y = case.phi(), np.asarray(case.rows.outputs["y"])
    spread = phi**2 @ (1.0 / (1.0 + np.asarray(state.held.average.curvature)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    f = (phi @ np.asarray(state.held.average.vectors[0]))[:, None] + np.sqrt(spread)[:, None] * nodes
    slope = phi.T @ (y - (weights / weights.sum()) @ (1.0 / (1.0 + np.exp(-f))).T) - state.held.average.vectors[0]
    assert np.max(np.abs(slope)) < 1e-2  # the diagonal, an average over batches, still moves


def test_a_newton_step_solves_its_equation(rng: np.random.Generator) -> None:
    root = rng.standard_normal((6, 9))
    gram, weight, residual = root @ root.T, rng.random(6), rng.standard_normal((6, 2))
    weight[2] = 0.0  # a row that is not observed
    found = newton_step(jnp.asarray(gram), jnp.asarray(weight), jnp.asarray(residual))
    assert np.allclose((np.eye(6) + weight[:, None] * gram) @ found, residual)


def test_no_step_is_longer_than_the_likelihood_allows() -> None:
    """Where the density of a count falls off like exp(-exp f), a whole Newton step from 0 goes far beyond it."""
    gram, counts = 10.0 * jnp.eye(1), jnp.asarray([100.0])
    step = newton_step(gram, jnp.ones(1), (counts - 1.0)[:, None])[:, 0]
    gain = lambda moved: counts * moved - jnp.exp(moved) + 1.0  # noqa: E731
    length = best_length(gain, gram, jnp.zeros(1), step)
    assert 0.0 < float(length) < 0.1
    assert float(jnp.sum(gain(length * gram @ step))) > 0.0
    assert best_length(lambda moved: jnp.full(1, jnp.nan), gram, jnp.zeros(1), step) == 0.0


def test_solutions_are_those_of_the_columns() -> None:
    """Unit vectors of a q that knows no row, whose columns are 1 / sqrt(1 + h) of them; C L' of any other."""
    found, lengths = solutions_of(start_weights(5, 2, 3.0, "float64"), fresh=True)
    np.testing.assert_allclose(found.vectors, np.eye(3, 5, k=-1), atol=1e-12)
    np.testing.assert_allclose(lengths.prior, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(lengths.likelihood, 3.0 * np.eye(2), atol=1e-12)
    columns = np.array([[2.0, 0.0], [0.5, 1.5], [-1.0, 3.0]])
    found, lengths = solutions_of(Weights(np.concatenate([np.ones((1, 3)), columns.T]), np.zeros(3)), fresh=False)
    np.testing.assert_allclose(found.vectors[1:].T, columns @ columns[:2].T, atol=1e-12)
