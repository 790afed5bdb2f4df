"""The sums and estimators by themselves, against whole matrices in NumPy, for arbitrary tables of basis functions.

A block of three out of seven functions starts at each of the seven places with the same chance, so that the mean over
all pairs of blocks is the expectation of an estimator.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gpdsl.inference.quadruply_stochastic import sums, swept, unsampled
from gpdsl.inference.quadruply_stochastic.sums import HALVINGS, Held, Seen, best_length, newton_step, see, surveyed
from gpdsl.inference.quadruply_stochastic.swept import Slopes
from gpdsl.inference.quadruply_stochastic.weights import Lengths, Weights, block, log_diagonal
from gpdsl.program.rows import Rows

N, M, SIZE, COLUMNS = 5, 7, 3, 2
SCALE = M / SIZE
Array = Any


@dataclass(frozen=True)
class Table:
    """Phi as a table of values, and any prior precision S."""

    phi: np.ndarray
    s: np.ndarray
    diagonal: bool
    count: int = M

    def values(self, parameters: dict, x: Array, index: Array) -> Array:
        return jnp.asarray(self.phi)[:, index]

    consecutive = values

    def precision(self, parameters: dict, index: Array) -> Array:
        return jnp.asarray(np.diag(self.s))[index]

    def cross_precision(self, parameters: dict, i: Array, j: Array) -> Array:
        return jnp.asarray(self.s)[i][:, j]


class Whole:
    """A random table and q with all their matrices."""

    def __init__(self, rng: np.random.Generator, *, diagonal: bool = True) -> None:
        root = rng.normal(size=(M, M))
        s = np.diag(0.5 + rng.random(M)) if diagonal else root @ root.T + np.eye(M)
        self.features: Any = Table(rng.normal(size=(N, M)), s, diagonal)
        self.phi, self.s, self.x = self.features.phi, s, jnp.zeros((N, 1))
        columns = np.tril(0.5 * rng.normal(size=(M, COLUMNS)))
        np.fill_diagonal(columns, 0.3 + rng.random(COLUMNS))
        self.mu, curvature = rng.normal(size=M), rng.random(M)
        self.root = np.diag(1 / np.sqrt(np.diag(s) + curvature))
        self.root[:, :COLUMNS] = columns
        self.covariance = self.root @ self.root.T
        self.q = Weights(jnp.asarray(np.vstack([self.mu, columns.T])), jnp.asarray(curvature))

    @property
    def divergence(self) -> float:
        """KL(q || N(0, S^-1)) in full."""
        spread = np.trace(self.s @ self.covariance) + self.mu @ self.s @ self.mu
        return float(0.5 * (spread - M - np.linalg.slogdet(self.s)[1] - np.linalg.slogdet(self.covariance)[1]))

    def see(self, start: Array, q: Weights | None = None) -> Seen:
        index = block(start, SIZE, M)
        return see(self.features, {}, self.x, index, (self.q if q is None else q).at(index))

    def mean_of(self, estimator: Any) -> np.ndarray:
        """Over all pairs of blocks."""
        every = jax.jit(jax.vmap(lambda i, j: estimator(self.see(i), self.see(j))))
        return np.mean(every(*map(jnp.asarray, np.indices((M, M)).reshape(2, -1))), axis=0)


def test_sums_over_blocks_are_those_over_all_functions(rng: np.random.Generator) -> None:
    whole = Whole(rng)
    phi, given = whole.phi, (whole.features, {}, whole.x)
    projected, variance = sums.moments(*given, whole.q, SIZE)
    np.testing.assert_allclose(projected, phi @ np.c_[whole.mu, whole.root[:, :COLUMNS]])
    covariance = phi @ whole.covariance @ phi.T
    np.testing.assert_allclose(variance, np.diag(covariance))
    np.testing.assert_allclose(sums.covariances(*given, whole.q, SIZE), covariance)
    now, duals = rng.normal(size=(1 + COLUMNS, M)), rng.normal(size=(N, 1 + COLUMNS))
    seen = surveyed(*given, Held(jnp.asarray(now), whole.q), SIZE)
    np.testing.assert_allclose(seen.now, phi @ now.T)
    np.testing.assert_allclose(seen.average, projected)
    np.testing.assert_allclose(seen.spread, phi[:, COLUMNS:] ** 2 @ np.diag(whole.root)[COLUMNS:] ** 2)
    np.testing.assert_allclose(seen.gram, phi @ np.linalg.inv(whole.s) @ phi.T)
    moved = sums.added(*given, jnp.asarray(now), jnp.asarray(duals), SIZE)
    np.testing.assert_allclose(moved, now + (np.linalg.inv(whole.s) @ phi.T @ duals).T)


@pytest.mark.parametrize("diagonal", [True, False])
def test_the_divergence_is_that_of_two_gaussians(rng: np.random.Generator, diagonal: bool) -> None:
    whole = Whole(rng, diagonal=diagonal)
    lacking = 0.0 if diagonal else 0.5 * (M + np.linalg.slogdet(whole.s)[1])
    found = sums.whole_divergence(whole.features, {}, whole.q, SIZE)
    np.testing.assert_allclose(found, whole.divergence + lacking)

    def estimate(first: Seen, second: Seen) -> Array:
        if diagonal:
            return swept.diagonal_divergence(first, second, SCALE)
        cross = whole.features.cross_precision({}, first.index, second.index)
        return swept.dense_divergence(first, second, cross, SCALE)

    np.testing.assert_allclose(whole.mean_of(estimate), whole.divergence + lacking)


def test_estimates_of_a_quadratic_likelihood_are_unbiased(rng: np.random.Generator) -> None:
    whole, (value, slope, precision) = Whole(rng), rng.random((3, N))
    site = Slopes(*map(jnp.asarray, (value, slope, precision)))
    found = whole.mean_of(lambda i, j: swept.quadratic_likelihood(site, i, j, SCALE))
    mean, variance = whole.phi @ whole.mu, np.diag(whole.phi @ whole.covariance @ whole.phi.T)
    np.testing.assert_allclose(found, value + slope * mean - 0.5 * precision * (mean**2 + variance))


def test_a_control_variate_takes_away_what_it_knows(rng: np.random.Generator) -> None:
    """At the rows themselves nothing is left of the noise of the square; its slope is A (estimate - what is known)."""
    whole, nothing = Whole(rng), jnp.zeros(N)
    form, precision = np.diag(rng.random(N)), rng.random(N)
    root = rng.normal(size=(N, N))
    known = whole.phi @ np.asarray(whole.q.vectors).T
    np.testing.assert_allclose(
        whole.mean_of(lambda i, j: swept.control_variate(jnp.asarray(root), i, j, jnp.asarray(known), SCALE)),
        0.0,
        atol=1e-10,
    )
    sure = Weights(whole.q.vectors, jnp.full(M, jnp.inf))
    first, second = whole.see(1, sure), whole.see(5, sure)
    site = Slopes(nothing, nothing, jnp.asarray(np.diag(form)))
    noisy = jnp.sum(jax.jit(swept.quadratic_likelihood)(site, first, second, SCALE))
    noise = jax.jit(swept.control_variate)(jnp.asarray(form), first, second, jnp.asarray(known), SCALE)
    assert abs(float(noise)) > 0.01
    np.testing.assert_allclose(noisy + noise, -0.5 * np.sum(known * (form @ known)))

    def of(vectors: Array) -> Array:
        one = Seen(first.index, first.values, Weights(vectors, sure.at(first.index).curvature), first.precision)
        return swept.control_variate(jnp.asarray(form), one, second, jnp.asarray(known), SCALE)

    gap = SCALE * np.asarray(second.projected) - known
    pulled = 0.5 * SCALE * (form @ gap).T @ np.asarray(first.values)
    np.testing.assert_allclose(jax.jit(jax.grad(of))(first.q.vectors), pulled)
    flat = np.asarray(Slopes(nothing, nothing, jnp.asarray(-precision).at[0].set(2e3)).weight)
    np.testing.assert_allclose(flat, [2e3, *[2e-3] * (N - 1)])  # where it bends upwards, nearly flat


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_the_best_of_all_halvings_is_taken(rng: np.random.Generator, start: float) -> None:
    """For objectives of a known best length: each power of 1/2, and none where all of them lose."""
    root, step = rng.normal(size=(4, 4)), rng.normal(size=4)
    gram, begun = root @ root.T, start * rng.normal(size=4)
    moved = gram @ step

    def found(best: Array, offset: Array) -> Array:
        def gain(f: Array) -> Array:
            length = f / moved  # the quadratic terms are those that the objective takes away
            taken = length * (begun @ moved) + 0.5 * length**2 * (step @ moved)
            return (offset - (length - best) ** 2 + taken) / 4

        return best_length(gain, jnp.asarray(gram), jnp.asarray(begun), jnp.asarray(step))

    lengths = 0.5 ** np.arange(HALVINGS)
    every = jax.jit(jax.vmap(found, in_axes=(0, None)))
    np.testing.assert_array_equal(every(jnp.asarray(lengths), 1e-9), lengths)
    np.testing.assert_array_equal(every(jnp.asarray(lengths), -1e-9), np.zeros(HALVINGS))


def test_a_newton_step_of_rows_of_any_weight(rng: np.random.Generator) -> None:
    """Also where the covariance of the rows has a lower rank than there are rows."""
    root, weight, residual = rng.normal(size=(6, 2)), 10.0 ** rng.uniform(-3, 3, 6), rng.normal(size=(6, 2))
    weight[2] = 0.0
    gram = root @ root.T
    found = newton_step(jnp.asarray(gram), jnp.asarray(weight), jnp.asarray(residual))
    np.testing.assert_allclose((np.eye(6) + weight[:, None] * gram) @ found, residual, rtol=1e-6, atol=1e-8)


def test_dense_columns_are_those_of_the_factor_of_the_inverse() -> None:
    """From X = H^-1 [e_1 e_2], and L L' = X'HX: the first columns of the Cholesky factor of H^-1."""
    half = np.random.default_rng(3).normal(size=(M, M))
    h = half @ half.T + np.eye(M)
    solutions = np.linalg.inv(h)[:, :COLUMNS]
    corner = solutions.T @ h @ solutions
    with jax.enable_x64(True):
        held = Weights(jnp.asarray(np.vstack([np.arange(M), solutions.T])), jnp.ones(M))
        found = Lengths(jnp.asarray(0.3 * corner), jnp.asarray(0.7 * corner)).weights(held, jnp.arange(M))
    np.testing.assert_allclose(found.vectors[0], np.arange(M))
    np.testing.assert_allclose(found.vectors[1:].T, np.linalg.cholesky(np.linalg.inv(h))[:, :COLUMNS], atol=1e-12)


def test_the_diagonal_of_a_root_is_that_of_dense_columns_and_then_of_curvatures(rng: np.random.Generator) -> None:
    vectors, curvature, precision = rng.uniform(1, 2, (1 + COLUMNS, M)), rng.gamma(2.0, size=M), rng.gamma(2.0, size=M)
    with jax.enable_x64(True):
        for index in (np.arange(M), np.array([4, 1, 6])):
            q = Weights(jnp.asarray(vectors[:, index]), jnp.asarray(curvature[index]))
            found = log_diagonal(q, jnp.asarray(precision[index]), jnp.asarray(index))
            own = [vectors[1 + i, i] if i < COLUMNS else (precision[i] + curvature[i]) ** -0.5 for i in index]
            np.testing.assert_allclose(found, np.log(own), rtol=1e-12)


def test_the_width_of_q_is_beside_that_of_the_best_gaussian(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has (K^-1 + W)^-1 at the rows; q has its diagonal and what its dense columns add."""
    root, spread, average = rng.normal(size=(5, 5)), rng.uniform(size=5), rng.normal(size=(5, 3))
    gram, weight = root @ root.T, rng.uniform(0.5, 2, 5)
    seen: Any = SimpleNamespace(gram=gram, spread=spread, average=average)

    def curvature(program: Any, learnt: Any, rows: Any, mean: Array, variance: Array) -> Any:
        np.testing.assert_allclose(mean, average[:, 0])
        np.testing.assert_allclose(variance, spread + np.sum(average[:, 1:] ** 2, axis=1), rtol=1e-6)
        return SimpleNamespace(weight=weight)

    for name, stands_in in (("surveyed", lambda *_: seen), ("slopes", curvature), ("jit", lambda function: function)):
        monkeypatch.setattr(unsampled, name, stands_in)
    monkeypatch.setattr(unsampled, "gathered", lambda *_: Rows({}, {}, {}, {}))
    monkeypatch.setattr(unsampled, "inputs_of", lambda *_: jnp.zeros((5, 1)))
    problem: Any = SimpleNamespace(program=None, choice=SimpleNamespace(weights=None))
    features: Any = SimpleNamespace(count=7)
    q = Weights(jnp.zeros((3, 7)), jnp.ones(7))
    best = np.diag(np.linalg.inv(np.linalg.inv(gram) + np.diag(weight)))
    ratios = np.sqrt((spread + np.sum(average[:, 1:] ** 2, axis=1)) / best)
    assert unsampled.width(problem, features, q, {}, np.arange(5)) == pytest.approx(np.median(ratios), rel=1e-6)
