"""Estimators of the expected log likelihood: exact ones against each other, sampled ones for bias.

A mean of n independent estimates is compared with the exact value in units of its standard error; with the bound of 4.5
and about two hundred comparisons the chance of a false alarm is below 0.2 %, and the seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.data import bind
from gpdsl.forward import resolve
from gpdsl.inference.estimators.expected_log_likelihood import NODES, expected_log_likelihood, log_density
from gpdsl.inference.estimators.sampling import base_normals
from gpdsl.inference.opaque.values import arguments_of, evaluate_externals
from gpdsl.inference.problem import as_arrays
from gpdsl.program.cache import jit
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program, make_program, make_rows
from gpdsl.program.rows import Rows, Scope

ROWS = 5
BOUND = 4.5

SYMBOLIC = """
input x : real
output y : real
param sigma : positive = 0.7
latent f(x) ~ GP(0, RBF(1))
latent h(x) ~ GP(0, RBF(1))
y ~ StudentT(5, f * sigmoid(h), sigma)
"""

OPAQUE = """
input x : real
output y : real
param sigma : positive = 0.7
latent f(x) ~ GP(0, RBF(1))
latent h(x) ~ GP(0, RBF(1))
external ratio(f: real, h: real) -> real
y ~ StudentT(5, ratio(f, h), sigma)
"""


def squash(f: np.ndarray, h: np.ndarray) -> np.ndarray:
    """What the opaque model computes: the formula of the symbolic one."""
    return f / (1.0 + np.exp(-h))


@pytest.fixture(autouse=True)
def _fine_quadrature(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is quadrature with many nodes, so that its error is far below the sampling error."""
    monkeypatch.setitem(NODES, 2, 60)


def program_of(text: str, expectations: str, externals: dict[str, Any] | None = None) -> tuple[Program, Rows]:
    model = gpdsl.compile(text, externals=externals)
    data = {"x": np.arange(float(ROWS)), "y": np.random.default_rng(5).normal(size=ROWS)}
    bound = bind(model.declarations, data)
    program = make_program(
        model.declarations, bound.sizes, bound.levels, resolve(model.declarations, externals), expectations=expectations
    )
    return program, as_arrays(make_rows(program, bound), "float64")


def marginals_of(rng: np.random.Generator, components: int = 2) -> Marginals:
    shape = (components, ROWS, 2)
    return Marginals(jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.uniform(0.05, 0.5, size=shape)))


def gradients(program: Program, rows: Rows, q: Marginals, normals: Any = None, externals: Any = None) -> jax.Array:
    """Value and gradients in the marginal moments and the unconstrained parameter, as one flat vector."""
    start = as_arrays(program.parameters.unconstrained(), "float64")

    def total(q: Marginals, learnt):
        return jnp.sum(
            expected_log_likelihood(program, program.parameters.constrain(learnt), rows, q, normals, externals)
        )

    value, (dq, dp) = jax.value_and_grad(total, argnums=(0, 1))(q, start)
    return jnp.concatenate([value[None], dq.mean.ravel(), dq.variance.ravel(), dp["sigma"][None]])


def check_unbiased(estimates: np.ndarray, exact: np.ndarray) -> None:
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    z = (estimates.mean(axis=0) - exact) / np.maximum(error, 1e-9)
    assert np.abs(z).max() < BOUND, z


def test_pathwise_gradients_are_unbiased(rng: np.random.Generator) -> None:
    exact_program, rows = program_of(SYMBOLIC, "quadrature")
    program, _ = program_of(SYMBOLIC, "sampled")
    q = marginals_of(rng)
    exact = np.asarray(gradients(exact_program, rows, q))
    one = jit(lambda key: gradients(program, rows, q, base_normals(key, 16, 2, ROWS, 2)))
    estimates = np.stack([one(key) for key in jax.random.split(jax.random.key(1), 1500)])
    check_unbiased(estimates, exact)


@pytest.mark.parametrize("samples", [6, 40])
def test_score_function_gradients_are_unbiased(rng: np.random.Generator, samples: int) -> None:
    """Through an opaque function, with few samples (constant control variate) and more (regression)."""
    exact_program, rows = program_of(SYMBOLIC, "quadrature")
    program, _ = program_of(OPAQUE, "auto", {"ratio": squash})
    q = marginals_of(rng)
    exact = np.asarray(gradients(exact_program, rows, q))
    key_of = program.uses()[0].key

    @jit
    def one(key):
        normals = base_normals(key, samples, 2, ROWS, 2, halves=True)
        latents = q.at(program, normals)
        values = {key_of: latents[..., 0] * jax.nn.sigmoid(latents[..., 1])}
        return gradients(program, rows, q, normals, values)

    estimates = np.stack([one(key) for key in jax.random.split(jax.random.key(2), 2500)])
    check_unbiased(estimates, exact)


def test_control_variates_reduce_the_variance_of_the_score_function(rng: np.random.Generator) -> None:
    program, rows = program_of(OPAQUE, "auto", {"ratio": squash})
    q, key_of = marginals_of(rng, 1), program.uses()[0].key

    @jit
    def both(key):
        normals = base_normals(key, 40, 1, ROWS, 2, halves=True)
        latents = q.at(program, normals)
        values = {key_of: latents[..., 0] * jax.nn.sigmoid(latents[..., 1])}
        ours = gradients(program, rows, q, normals, values)[1 : 1 + 2 * ROWS]
        parameters = program.parameters.constrain(as_arrays(program.parameters.unconstrained(), "float64"))
        log_p = log_density(program, Scope(parameters, rows, latents, values), normals.shape[:3])
        plain = jnp.mean(log_p[..., None] * normals, axis=0) / jnp.sqrt(q.variance)
        return ours, plain.ravel()

    pairs = [both(key) for key in jax.random.split(jax.random.key(3), 400)]
    ours, plain = (np.stack(x).var(axis=0).mean() for x in zip(*pairs, strict=True))
    assert ours < 0.2 * plain


def test_sample_points_are_standard_normal_and_rows_independent() -> None:
    draws = np.stack([np.asarray(base_normals(k, 8, 1, 3, 2)) for k in jax.random.split(jax.random.key(0), 3000)])
    flat = draws[:, :, 0]
    assert np.abs(flat.mean(axis=0)).max() < 4.5 / np.sqrt(3000)
    assert np.abs(flat.var(axis=0) - 1).max() < 4.5 * np.sqrt(2 / 3000)
    correlation = np.corrcoef(flat[:, 0, :, 0].T)
    assert np.abs(correlation - np.eye(3)).max() < 4.5 / np.sqrt(3000)


def test_quasi_monte_carlo_beats_independent_samples(rng: np.random.Generator) -> None:
    program, rows = program_of(SYMBOLIC, "sampled")
    q = marginals_of(rng, 1)
    qmc = jit(lambda key: gradients(program, rows, q, base_normals(key, 64, 1, ROWS, 2)))
    iid = jit(lambda key: gradients(program, rows, q, jax.random.normal(key, (64, 1, ROWS, 2))))
    keys = jax.random.split(jax.random.key(4), 300)
    ratio = np.stack([qmc(k) for k in keys]).var(axis=0).mean() / np.stack([iid(k) for k in keys]).var(axis=0).mean()
    assert ratio < 0.3


def test_opaque_values_arrive_in_the_order_of_rows(rng: np.random.Generator) -> None:
    seen = []

    def ratio(f: np.ndarray, h: np.ndarray) -> np.ndarray:
        seen.append((f.copy(), h.copy()))
        return squash(f, h)

    program, rows = program_of(OPAQUE, "auto", {"ratio": ratio})
    latents = jnp.asarray(rng.normal(size=(4, 1, ROWS, 2)))
    values = evaluate_externals(
        program, program.uses(), lambda use, known: arguments_of(program, use, {}, rows, latents, known)
    )
    np.testing.assert_array_equal(seen[0][0], np.asarray(latents[..., 0]).ravel())
    np.testing.assert_allclose(values["ratio#1"], latents[..., 0] * jax.nn.sigmoid(latents[..., 1]))
