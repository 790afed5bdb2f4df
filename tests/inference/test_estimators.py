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
from gpdsl.inference.expected_log_likelihood import (
    NODES,
    _attached,
    coupled_score_gradients,
    expected_log_likelihood,
    log_density,
    samples_for,
    score_gradients,
)
from gpdsl.inference.opaque.surrogate import arguments_of, evaluate_externals
from gpdsl.inference.problem import as_arrays
from gpdsl.inference.sampling import base_normals
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


def features_of(z: np.ndarray, products: bool) -> np.ndarray:
    """z_1, z_2, z_1^2 - 1, z_2^2 - 1, z_1 z_2."""
    columns = [z[..., 0], z[..., 1], z[..., 0] ** 2 - 1, z[..., 1] ** 2 - 1]
    return np.stack([*columns, z[..., 0] * z[..., 1]] if products else columns, axis=-1)


def fitted(z: np.ndarray, log_p: np.ndarray, new: np.ndarray, its: np.ndarray, control: str) -> np.ndarray:
    """E[l feature] by one half of the samples, with control variates of the other."""
    features, others = features_of(z, control == "regression"), features_of(new, control == "regression")
    if control == "constant":
        centred = features - features.mean(axis=0)
        best = np.mean(features * log_p[:, None] * centred, axis=0) / np.mean(centred**2, axis=0)
        return np.mean((its[:, None] - best) * others, axis=0)
    design = np.column_stack([np.ones(len(z)), features])
    solution = np.linalg.lstsq(design, log_p, rcond=None)[0]
    left = its - solution[0] - others @ solution[1:]
    return solution[1:] * np.array([1.0, 1.0, 2.0, 2.0, 1.0]) + np.mean(left[:, None] * others, axis=0)


@pytest.mark.parametrize(
    ("control", "samples"), [("none", 7), ("constant", 9), ("regression", 200), ("regression", 12)]
)
def test_score_gradients_are_their_formula(rng: np.random.Generator, control: str, samples: int) -> None:
    """Each half of the samples with the control of the other; a regression of too few samples has no slopes."""
    values, normals = rng.normal(size=(samples, 1, 2)), rng.normal(size=(samples, 1, 2, 2))
    values = values + normals[..., 0] - 0.5 * normals[..., 1] ** 2 + 3.0
    variance = rng.uniform(0.2, 2.0, (1, 2, 2))
    given = jnp.asarray(values), jnp.asarray(normals)
    d_mean, d_variance = jit(lambda *a: score_gradients(*a, control))(*given, jnp.asarray(variance))
    half, expected = samples // 2, []
    for row in range(2):
        z, log_p = normals[:, 0, row], values[:, 0, row]
        if control == "none":
            expected.append(np.mean(features_of(z, True) * log_p[:, None], axis=0))
            continue
        if control == "regression" and samples < samples_for(2):
            found = [
                np.mean((log_p[b] - log_p[a].mean())[:, None] * features_of(z[b], True), axis=0)
                for a, b in ((slice(0, half), slice(half, None)), (slice(half, None), slice(0, half)))
            ]
        else:
            ends = z[:half], log_p[:half], z[half:], log_p[half:]
            found = [np.resize(fitted(*each, control), 5) for each in (ends, (*ends[2:], *ends[:2]))]
        expected.append((found[0] * (samples - half) + found[1] * half) / samples)
    best = np.stack(expected)
    np.testing.assert_allclose(d_mean[0], best[:, :2] / np.sqrt(variance[0]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(d_variance[0], best[:, 2:4] / (2 * variance[0]), rtol=1e-5, atol=1e-5)
    if control != "constant":
        root = np.tril(rng.normal(size=(1, 2, 2, 2))) + 2 * np.eye(2)
        slope, curvature = jit(lambda *a: coupled_score_gradients(*a, control))(*given, jnp.asarray(root))
        for row in range(2):
            inverse = np.linalg.inv(root[0, row])
            second = np.array([[best[row, 2], best[row, 4]], [best[row, 4], best[row, 3]]])
            np.testing.assert_allclose(slope[0, row], inverse.T @ best[row, :2], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(curvature[0, row], 0.5 * inverse.T @ second @ inverse, rtol=1e-5, atol=1e-5)


def test_sums_over_an_observation_leave_out_what_is_missing(rng: np.random.Generator) -> None:
    text = "index p in 1..2\ninput x : real\noutput y[p] : real\nlatent f(x) ~ GP(0, RBF(1))\ny[p] ~ Normal(f, 0.5)\n"
    y = rng.normal(size=(ROWS, 2))
    y[1, 0] = y[3] = np.nan
    model = gpdsl.compile(text)
    bound = bind(model.declarations, {"x": np.arange(float(ROWS)), "y": y})
    program = make_program(model.declarations, bound.sizes, bound.levels, {})
    rows = as_arrays(make_rows(program, bound), "float64")
    mean, variance = rng.normal(size=(2, ROWS, 1)), rng.uniform(0.1, 1.0, (2, ROWS, 1))
    found = expected_log_likelihood(program, {}, rows, Marginals(jnp.asarray(mean), jnp.asarray(variance)))
    expected = -0.5 * ((y - mean) ** 2 + variance) / 0.25 - 0.5 * np.log(2 * np.pi * 0.25)
    np.testing.assert_allclose(found, np.nansum(expected, axis=-1), rtol=1e-10)


def test_what_is_attached_has_no_value_and_the_gradients_of_scores(rng: np.random.Generator) -> None:
    program, _ = program_of(OPAQUE, "auto", {"ratio": squash})
    q, values, normals = marginals_of(rng), rng.normal(size=(9, 2, ROWS)), rng.normal(size=(9, 2, ROWS, 2))
    given = jnp.asarray(values), jnp.asarray(normals)

    @jit
    def found(moved: Marginals) -> tuple:
        attached = lambda q: jnp.sum(_attached(program, *given, q, moved))  # noqa: E731
        return jax.value_and_grad(attached)(moved), score_gradients(*given, moved.variance)

    (value, slope), (d_mean, d_variance) = found(q)
    assert value == 0.0 and np.abs(d_mean).min() > 0
    np.testing.assert_allclose(slope.mean, d_mean, rtol=1e-12)
    np.testing.assert_allclose(slope.variance, d_variance, rtol=1e-12)
