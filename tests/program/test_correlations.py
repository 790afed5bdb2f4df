"""Factors of correlation matrices: the map to them, and LKJ against its definition."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from scipy.integrate import dblquad, quad

import gpdsl
from gpdsl.inference.log_joint import log_volume
from gpdsl.program.parameters import BIJECTORS
from gpdsl.program.program import make_program
from gpdsl.symbolic.laws import lkj
from gpdsl.symbolic.numeric import evaluate

FACTOR = BIJECTORS["correlation_factor"]
NOISE = """index p in 1..3
index q in 1..3
input x : real
output y[p] : real
param s[p] : positive = 0.3
param L[p,q] : correlation_factor ~ LKJ({eta})
latent f[p](x) ~ GP(0, RBF(1))
let W[p,q] = s[p] * L[p,q]
y ~ MultivariateNormal(f, factor = W)
"""


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def test_the_volume_is_that_of_the_correlations_below_the_diagonal() -> None:
    """An LKJ density is one of these, however they are parametrised: by differences."""
    u, step = np.array([0.3, -0.7, 0.5]), 1e-5
    factors = np.asarray(jax.jit(FACTOR.forward)(np.concatenate([u + step * np.eye(3), u - step * np.eye(3)])))
    above, below = np.split((factors @ np.swapaxes(factors, 1, 2))[:, *np.tril_indices(3, -1)], 2)
    program = make_program(gpdsl.compile(NOISE.format(eta=1)).declarations, {}, {}, {})
    found = jax.jit(partial(log_volume, program))({"L": jnp.asarray(u)})
    assert float(found) == pytest.approx(np.linalg.slogdet((above - below) / (2 * step))[1], rel=1e-6)


def test_the_map_is_a_bijection_onto_factors() -> None:
    u = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6)))
    found = np.asarray(jax.jit(FACTOR.forward)(u))
    assert found.shape == (2, 4, 4) and FACTOR.contains(found)
    matrices = found @ np.swapaxes(found, -1, -2)
    np.testing.assert_allclose(np.diagonal(matrices, axis1=1, axis2=2), 1.0, rtol=1e-14)
    np.testing.assert_allclose(np.linalg.cholesky(matrices), found, atol=1e-13)
    for back in (FACTOR.inverse(found), jax.jit(FACTOR.inverse)(found)):
        np.testing.assert_allclose(back, u, atol=1e-12)
    np.testing.assert_array_equal(FACTOR.inverse(np.eye(3)), np.zeros(3))
    for wrong in (np.eye(3) * 1.1, np.eye(3)[::-1], np.ones((2, 3)), -np.eye(2)):
        assert not FACTOR.contains(wrong)


def log_density(eta: float, factor: np.ndarray) -> float:
    symbols = sp.symbols(f"d0:{len(factor)}", positive=True)
    formula = lkj(sp.Float(eta), symbols)
    return float(evaluate(formula, dict(zip(symbols, np.diagonal(factor), strict=True))))


@cache
def normaliser(eta: float, size: int) -> float:
    return log_density(eta, np.eye(size))


def density(eta: float, matrix: np.ndarray) -> float:
    """Proportional to det^(eta - 1), as it is defined, with the constant that is tested."""
    return float(np.exp(normaliser(eta, len(matrix))) * np.linalg.det(matrix) ** (eta - 1))


@pytest.mark.parametrize("eta", [1.0, 2.5])
def test_the_density_of_correlations_integrates_to_one(eta: float) -> None:
    two = quad(lambda r: density(eta, np.array([[1, r], [r, 1]])), -1 + 1e-12, 1 - 1e-12)[0]
    assert two == pytest.approx(1.0, abs=1e-6)

    def slice_of(a: float) -> float:
        """Over b and c within which a matrix is positive definite."""

        def inner(t: float, b: float) -> float:
            width = np.sqrt((1 - a * a) * (1 - b * b))
            c = a * b + width * t
            return width * density(eta, np.array([[1, a, b], [a, 1, c], [b, c, 1]]))

        end = 1 - 1e-9
        return float(dblquad(inner, -end, end, -end, end, epsabs=1e-4, epsrel=1e-4)[0])

    nodes, weights = np.polynomial.legendre.leggauss(8)
    assert sum(w * slice_of(a) for a, w in zip(nodes, weights, strict=True)) == pytest.approx(1.0, abs=2e-3)
    matrix = np.array([[1, 0.5, 0.2], [0.5, 1, -0.3], [0.2, -0.3, 1]])
    found = log_density(eta, np.linalg.cholesky(matrix))
    assert found == pytest.approx(np.log(density(eta, matrix)), rel=1e-12)


def test_draws_have_the_marginal_of_each_correlation() -> None:
    """Beta(eta - 1 + K / 2) on (-1, 1) for every pair: Lewandowski, Kurowicka and Joe (2009)."""
    many = NOISE.format(eta=2).replace("L[p,q] : c", "L[r,p,q] : c").replace("s[p] * L[p,q]", "s[p] * L[1,p,q]")
    drawn = gpdsl.compile("index r in 1..2000\n" + many).sample_prior(rows=1, seed=0, draw_parameters=True)
    roots = np.asarray(drawn.parameters["L"])
    matrices = roots @ np.swapaxes(roots, -1, -2)
    variance = 1 / (2 * (2 - 1 + 1.5) + 1)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.mean(matrices[:, i, j])) < 4 * np.sqrt(variance / 2000)
        assert np.var(matrices[:, i, j]) == pytest.approx(variance, rel=0.12)


def test_correlated_noise_is_found_and_kept(tmp_path: Path) -> None:
    rng, x = np.random.default_rng(1), np.linspace(0, 6, 60)
    true = np.array([[1, 0.8, -0.3], [0.8, 1, 0], [-0.3, 0, 1]])
    y = np.stack([np.sin(x), np.cos(x), 0 * x], axis=1) + rng.multivariate_normal(np.zeros(3), 0.09 * true, 60)
    fit = gpdsl.compile(NOISE.format(eta=1)).fit({"x": x, "y": y})
    factor = fit.parameters["L"]
    assert FACTOR.contains(factor) and np.abs(factor @ factor.T - true).max() < 0.35
    assert fit.log_prior == pytest.approx(log_density(1.0, factor), rel=1e-9)
    fit.save(tmp_path / "a.gpfit")
    np.testing.assert_array_equal(gpdsl.load_fit(tmp_path / "a.gpfit").parameters["L"], factor)
    assert "lower triangular" in fit.model.latex() and r"\mathrm{LKJ}(1)" in fit.model.latex()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("param L[p] : correlation_factor", "`L` is a square matrix"),
        ("param L : correlation_factor[2,3]", "`L` is a square matrix"),
        ("param L[p,q] : correlation_factor = 1", "is not written: it starts without correlations"),
        ("param L[p,q] : correlation_factor ~ Normal(0, 1)", "write `~ LKJ\\(1\\)`"),
        ("param L[p,q] : real ~ LKJ(1)", "declare a `correlation_factor`"),
    ],
)
def test_what_is_no_factor_is_refused(line: str, said: str) -> None:
    text = NOISE.format(eta=1).replace("param L[p,q] : correlation_factor ~ LKJ(1)", line)
    with pytest.raises(gpdsl.ModelError, match=said):
        gpdsl.compile(text)
