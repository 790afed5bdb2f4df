"""Basis functions of points: inducing points give the kernel itself at the points, relevance vectors that of an RVM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.quadruply_stochastic.basis import PRECISION, Basis, place_basis
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Values
from gpdsl.program.program import Program, make_program

TEXT = """
input x : real[2]
output y : real
param s2  : positive = 1.4{fixed}
param ell : positive = 0.8{fixed}
latent f(x) ~ GP(0, s2 * Matern32(ell) + Linear(1))
y ~ Normal(f, 0.1)
"""


def program(fixed: str = "") -> Program:
    """A regression with two hyperparameters."""
    return make_program(gpdsl.compile(TEXT.format(fixed=fixed)).declarations, {}, {}, {})


def dense(of: Program, a: np.ndarray, b: np.ndarray) -> Any:
    """The covariance function by the kernels' own code, at the initial values."""
    group = of.groups[0]
    values = of.parameters.constrain(of.parameters.unconstrained())
    arguments = (jnp.asarray(values["s2"]), jnp.asarray(values["ell"]), jnp.ones(()))
    return covariance(group.form, arguments, Values(jnp.asarray(a)), Values(jnp.asarray(b)))


def test_inducing_points_at_the_rows_give_the_kernel_itself() -> None:
    """Phi S^-1 Phi' = K for Phi = S = K, in any columns: QSGP appendix I.2."""
    of, x = program(" fixed"), np.random.default_rng(0).normal(size=(12, 2))
    features = place_basis("inducing", x, 12, 0).features(of, 12, 0)
    raised, every, some = replace(features, jitter=0.01), jnp.arange(12), jnp.array([7, 2, 2])

    @jax.jit
    def found(start: Any) -> tuple[Any, ...]:
        values = (features.values(start, jnp.asarray(x), each) for each in (every, some))
        crossed = (features.cross_precision(start, each, every) for each in (every, some))
        others = (
            features.precision(start, every),
            raised.cross_precision(start, some, every),
            raised.precision(start, every),
        )
        return *values, *crossed, *others, dense(of, x, x)

    phi, columns, s, rows, diagonal, beside, more, k = map(np.asarray, found(of.parameters.unconstrained()))
    np.testing.assert_allclose(phi @ np.linalg.solve(s, phi.T), k, atol=1e-8)
    np.testing.assert_allclose(diagonal, np.diag(s), rtol=1e-12)
    np.testing.assert_allclose(columns, phi[:, some], rtol=1e-12)
    np.testing.assert_allclose(rows, s[some], rtol=1e-12)
    expected = s + 0.01 * np.diag(np.diag(s))
    np.testing.assert_allclose(beside, expected[some], rtol=1e-12)
    np.testing.assert_allclose(more, np.diag(expected), rtol=1e-12)


def test_relevance_vectors_have_a_precision_each() -> None:
    """Phi S^-1 Phi' = sum_j k(x, z_j) k(x', z_j) / s_j: QSGP appendix I.3."""
    plain, rng = program(), np.random.default_rng(1)
    z, x = rng.normal(size=(9, 2)), rng.normal(size=(4, 2))
    basis = Basis("relevance", z, np.exp(rng.normal(size=9)))
    of = basis.program(plain)
    features, start = basis.features(of, 9, 0), of.parameters.unconstrained()
    phi = features.values(start, jnp.asarray(x), jnp.arange(9))
    across = dense(plain, x, z)
    np.testing.assert_allclose(phi @ phi.T, across @ np.diag(1 / basis.precision) @ across.T, rtol=1e-8)
    np.testing.assert_array_equal(features.precision(start, jnp.arange(9)), np.ones(9))
    np.testing.assert_allclose(start[PRECISION], basis.numbers()[PRECISION])


def test_fewer_functions_than_rows_stand_at_some_of_the_rows() -> None:
    """Every centre is a row, and none is taken twice."""
    x = np.random.default_rng(2).normal(size=(30, 2))
    basis = place_basis("relevance", x, 10, 3)
    assert len(np.unique(basis.centres, axis=0)) == 10
    assert {tuple(row) for row in basis.centres} <= {tuple(row) for row in x}


@pytest.mark.slow
def test_few_relevance_vectors_are_left_of_a_noisy_sinc() -> None:
    """QSGP appendix I.3 has 13 of 500. Where the bound is stationary, s (E[w]^2 + V[w]) = 1."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-10, 10, 200)
    text = "input x : real\noutput y : real\nparam s : positive = 0.2\nlatent f(x) ~ GP(0, RBF(2))\ny ~ Normal(f, s)\n"
    data = {"x": x, "y": np.sinc(x / np.pi) + 0.1 * rng.normal(size=200)}
    options = {"engine": "qsgp", "basis": "relevance", "steps": 250, "batch": 100}
    fit = gpdsl.compile(text).fit(data, **options)
    basis, q = fit.weight_space.basis, fit.weight_space.q
    assert 3 <= len(basis.relevant) <= 15
    grid = np.linspace(-9, 9, 100)
    assert np.sqrt(np.mean((fit.predict({"x": grid}).mean("f") - np.sinc(grid / np.pi)) ** 2)) < 0.05
    left = basis.precision < 100
    second = q.vectors[0] ** 2 + 1 / (1 + q.curvature)
    np.testing.assert_allclose(second[left], 1, atol=0.1)


@pytest.mark.parametrize("option", [{"chevron": 2}, {"feature_sums": "sampled"}])
def test_relevance_vectors_take_sweeps_and_a_diagonal(option: dict) -> None:
    """Dense columns would stand at functions that are pruned."""
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(2))\ny ~ Normal(f, 0.1)\n"
    with pytest.raises(gpdsl.GpdslError, match="basis = relevance .* leave out"):
        gpdsl.compile(text).fit({"x": [0.0, 1.0], "y": [0.0, 1.0]}, engine="qsgp", basis="relevance", **option)


def test_hyperparameters_of_inducing_points_are_not_learnt() -> None:
    """QSGP section 2.3 has no estimator of log |K|: the start alone finds them."""
    text = "input x : real\noutput y : real\nparam a : positive = 2\nlatent f(x) ~ GP(0, RBF(a))\ny ~ Normal(f, 0.1)\n"
    for option in ({"feature_sums": "sampled"}, {"start_rows": 0}):
        with pytest.raises(gpdsl.GpdslError, match=r"no step learns .* fixed=\[...\] for `a`"):
            gpdsl.compile(text).fit({"x": [0.0, 1.0], "y": [0.0, 1.0]}, engine="qsgp", basis="inducing", **option)
