"""Expectations and their gradients in the mean and the covariance of correlated latents, by every estimator.

A mean of n independent estimates is compared with the exact value in units of its standard error; with the bound of 4.5
and about a hundred comparisons the chance of a false alarm is below 0.1 %, and the seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gpdsl.inference.expected_log_likelihood import NODES, expected_log_likelihood
from gpdsl.inference.sampling import base_normals
from gpdsl.program.cache import jit
from gpdsl.program.joint import Marginals, column_roots
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

from .test_estimators import OPAQUE, ROWS, SYMBOLIC, check_unbiased, program_of, squash

PRODUCT = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
latent h(x) ~ GP(0, RBF(1))
y ~ Normal(f * h, 0.7)
"""

READINGS = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
latent h(x) ~ GP(0, RBF(1))
y ~ Normal(f * D(f, x) * h, 0.7)
"""


@pytest.fixture(autouse=True)
def _fine_quadrature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NODES, 2, 60)


def correlated(rng: np.random.Generator, columns: int = 2) -> Marginals:
    """Random means, and covariances with strong correlations."""
    root = 0.5 * np.tril(rng.normal(size=(1, ROWS, columns, columns))) + 0.2 * np.eye(columns)
    covariance = root @ np.swapaxes(root, -1, -2)
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    return Marginals(jnp.asarray(rng.normal(size=variance.shape)), jnp.asarray(variance), jnp.asarray(covariance))


def gradients(program: Program, rows: Rows, q: Marginals, normals: Any = None, externals: Any = None) -> jax.Array:
    """Value, and gradients in the means and in the covariance (symmetric), as one flat vector."""

    def total(mean, covariance):
        spread = 0.5 * (covariance + jnp.swapaxes(covariance, -1, -2))
        joint = Marginals(mean, jnp.diagonal(spread, axis1=-2, axis2=-1), spread)
        return jnp.sum(expected_log_likelihood(program, {"sigma": jnp.asarray(0.7)}, rows, joint, normals, externals))

    value, (slope, curvature) = jax.jit(jax.value_and_grad(total, argnums=(0, 1)))(q.mean, q.covariance)
    return jnp.concatenate([value[None], slope.ravel(), curvature.ravel()])


def test_the_closed_form_is_quadrature_is_sampling(rng: np.random.Generator) -> None:
    closed, rows = program_of(PRODUCT, "auto")
    quadrature, _ = program_of(PRODUCT, "quadrature")
    assert closed.coupling.methods == {"closed"} and quadrature.coupling.methods == {"quadrature", "closed"}
    q = correlated(rng)
    exact = np.asarray(gradients(closed.coupling, rows, q))
    np.testing.assert_allclose(gradients(quadrature.coupling, rows, q), exact, rtol=1e-9, atol=1e-9)
    apart = Marginals(q.mean, q.variance)
    without = expected_log_likelihood(closed, {}, rows, apart)
    assert np.abs(exact[0] - np.sum(without)) > 0.1  # the correlation matters


def test_pathwise_gradients_are_unbiased(rng: np.random.Generator) -> None:
    exact, rows = program_of(SYMBOLIC, "quadrature")
    sampled = program_of(SYMBOLIC, "sampled")[0].coupling
    q = correlated(rng)
    one = lambda key: gradients(sampled, rows, q, base_normals(key, 16, 1, ROWS, 2))  # noqa: E731
    estimates = np.asarray(jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(jax.random.key(1), 1000)))
    check_unbiased(estimates, np.asarray(gradients(exact.coupling, rows, q)))


@pytest.mark.parametrize("samples", [6, 40])
def test_score_function_gradients_are_unbiased(rng: np.random.Generator, samples: int) -> None:
    exact, rows = program_of(SYMBOLIC, "quadrature")
    opaque = program_of(OPAQUE, "auto", {"ratio": squash})[0].coupling
    q, key_of = correlated(rng), opaque.uses()[0].key

    def one(key):
        normals = base_normals(key, samples, 1, ROWS, 2, halves=True)
        latents = q.at(opaque, normals)
        return gradients(opaque, rows, q, normals, {key_of: latents[..., 0] * jax.nn.sigmoid(latents[..., 1])})

    estimates = np.asarray(jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(jax.random.key(2), 2000)))
    check_unbiased(estimates, np.asarray(gradients(exact.coupling, rows, q)))


def test_samples_have_the_covariance_and_readings_add_up(rng: np.random.Generator) -> None:
    """Columns: f, its derivative, their sum, and h; the sum's own entries of the covariance are not looked at."""
    program = program_of(READINGS, "auto")[0].coupling
    assert program.latents == 4
    q, basis = correlated(rng, 4), [0, 1, 3]
    normals = stats.norm.rvs(size=(20_000, 1, ROWS, 4), random_state=1)
    drawn = np.asarray(jit(lambda normals: q.at(program, normals))(normals))[:, 0]
    np.testing.assert_allclose(drawn[..., 2], drawn[..., 0] + drawn[..., 1], atol=1e-12)
    for row in range(ROWS):
        exact = np.asarray(q.covariance)[0, row][np.ix_(basis, basis)]
        error = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / 20_000)
        assert np.all(np.abs(np.cov(drawn[:, row, basis].T) - exact) < 5 * error)
    roots = np.asarray(jit(lambda: column_roots(program, q, 0, [3, 0]))())
    expected = np.asarray(q.covariance)[0][:, [3, 0]][:, :, [3, 0]]
    np.testing.assert_allclose(roots @ np.swapaxes(roots, 1, 2), expected, rtol=1e-7)
