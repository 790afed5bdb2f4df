"""`integral(f, a, b)`: covariances, evidence and predictions against dense algebra and quadrature, draws, files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import dblquad, quad

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.form import Base, Form, Product, Scaled, Sum
from gpdsl.kernels.functionals import Derivatives, Integrals, Values, stacked
from gpdsl.program.cache import precision

POLYNOMIAL = Product((Base("Polynomial", ("offset", "ell"), (("degree", 2),)), Base("Linear", ("ell",))))


def matern(s: float, t: float, order: int) -> float:
    u = np.sqrt(2 * order + 1) * abs(s - t) / 0.7
    return (1 + u * (order > 0) + u**2 / 3 * (order > 1)) * np.exp(-u)


Kernel = Callable[[float, float], float]
FORMS: list[tuple[Form, list[float], Kernel]] = [
    (Base("RBF", ("ell",)), [0.7], lambda s, t: np.exp(-0.5 * ((s - t) / 0.7) ** 2)),
    (Base("Matern12", ("ell",)), [0.7], partial(matern, order=0)),
    (Base("Matern32", ("ell",)), [0.7], partial(matern, order=1)),
    (Base("Matern52", ("ell",)), [0.7], partial(matern, order=2)),
    (Base("Cosine", ("period",)), [2.3], lambda s, t: np.cos(2 * np.pi * (s - t) / 2.3)),
    (
        Sum((Scaled(Base("RBF", ("ell",))), POLYNOMIAL)),
        [2.0, 0.5, 0.4, 1.1, 0.9],
        lambda s, t: 2 * np.exp(-2 * (s - t) ** 2) + (0.4 + s * t / 1.21) ** 2 * s * t / 0.81,
    ),
]


@pytest.mark.parametrize(("form", "numbers", "kernel"), FORMS)
def test_covariances_are_integrals_of_the_kernel(
    form: Form, numbers: list[float], kernel: Callable[[float, float], float]
) -> None:
    """Of an interval that overlaps another, the wrong way round, and of values inside and outside."""
    lower, upper, x = np.array([[-1.0], [0.8]]), np.array([[0.5], [-0.3]]), np.array([[0.1], [2.0]])
    with precision("float64"):
        known = [jnp.asarray(each) for each in numbers]
        over, at = Integrals(jnp.asarray(lower), jnp.asarray(upper)), Values(jnp.asarray(x))
        pairs = (over, at), (over,), (over, Derivatives(at.points, (0,))), (stacked((over, at)),)
        every = jax.jit(lambda: [*(covariance(form, known, *pair) for pair in pairs), variance(form, known, over)])()
    cross, among, slopes, both, own = map(np.asarray, every)
    ends = list(zip(lower[:, 0], upper[:, 0], strict=True))
    expected = [[quad(kernel, a, b, args=(t,), points=[0.1])[0] for t in x[:, 0]] for a, b in ends]
    np.testing.assert_allclose(cross, expected, atol=1e-9)
    (a, b), (c, d) = ends
    expected = dblquad(kernel, c, d, a, b, epsabs=1e-6)[0]
    assert float(among[0, 1]) == pytest.approx(expected, abs=2e-5)
    np.testing.assert_allclose(among, np.asarray(among).T, atol=1e-12)
    np.testing.assert_allclose(own, np.diagonal(among), atol=1e-12)
    np.testing.assert_allclose(both[:2, 2:], cross, atol=1e-12)
    assert np.linalg.eigvalsh(np.asarray(both))[0] > -1e-9
    moved = [[quad(kernel, a, b, args=(2.0 + step,))[0] for step in (1e-4, -1e-4)] for a, b in ends]
    np.testing.assert_allclose(slopes[:, 1], [(high - low) / 2e-4 for high, low in moved], atol=1e-5)


MODEL = """
input x : real
input a : real
input b : real
output y : real
param m : real = 0.5
param s2 : positive = 1.5
param ell : positive = 0.8
param sigma : positive = 0.2
latent f(x) ~ GP(m + 0.3 * x^2, s2 * Matern12(ell))
y ~ Normal(integral(f, a, b) - 2 * integral(f, 0, 1), sigma)
"""
HELD = ["m", "s2", "ell", "sigma"]


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.uniform(-2, 2, 12)
    return {"a": a, "b": a + rng.uniform(0.1, 2, 12), "x": rng.uniform(-2, 2, 12), "y": rng.normal(size=12)}


def exponential(s: np.ndarray, t: np.ndarray) -> np.ndarray:
    return 1.5 * np.exp(-np.abs(s[:, None] - t[None, :]) / 0.8)


def dense(rows: dict[str, np.ndarray]) -> tuple[float, np.ndarray, np.ndarray]:
    """Evidence, and moments of f at x, by sums over a fine grid: nothing is shared with the closed forms."""
    edges = np.linspace(-2.5, 4.5, 701)
    grid = (edges[1:] + edges[:-1]) / 2
    inside = np.clip(edges, rows["a"][:, None], rows["b"][:, None])  # of each cell, what an interval has of it
    weight = np.diff(inside) - 2 * np.diff(np.clip(edges, 0, 1))
    among = weight @ exponential(grid, grid) @ weight.T + 0.04 * np.eye(12)
    left = rows["y"] - weight @ (0.5 + 0.3 * grid**2)
    evidence = -0.5 * left @ np.linalg.solve(among, left) - 0.5 * np.linalg.slogdet(2 * np.pi * among)[1]
    cross = exponential(rows["x"], grid) @ weight.T
    mean = 0.5 + 0.3 * rows["x"] ** 2 + cross @ np.linalg.solve(among, left)
    return float(evidence), mean, 1.5 - np.sum(cross * np.linalg.solve(among, cross.T).T, axis=1)


def test_evidence_and_predictions_are_those_of_dense_algebra(tmp_path: Path) -> None:
    rows, model = data(), gpdsl.compile(MODEL)
    evidence, mean, variances = dense(rows)
    fit = model.fit(rows, fixed=HELD)
    assert fit.elbo == pytest.approx(evidence, abs=2e-3)
    here = fit.predict(rows)
    np.testing.assert_allclose(here.mean("f"), mean, atol=2e-3)
    np.testing.assert_allclose(here.variance("f"), variances, atol=2e-3)
    variational = model.fit(rows, fixed=HELD, inducing=0, optimizer="lbfgs", diagnose="no")
    assert variational.elbo == pytest.approx(fit.elbo, abs=1e-4)
    np.testing.assert_allclose(variational.predict(rows).mean("f"), here.mean("f"), atol=1e-3)
    variational.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit").predict(rows)
    np.testing.assert_array_equal(again.mean("y"), variational.predict(rows).mean("y"))
    assert "integral(f, a, b)" in model.explain(rows)
    with pytest.raises(GpdslError, match="covariances of integrals with features are not known"):
        model.fit(rows, inducing="slopes(4)")


def test_counts_by_inducing_points_and_draws_of_whole_functions() -> None:
    rng = np.random.default_rng(1)
    start = np.linspace(0, 9, 16)
    end = start + rng.uniform(0.1, 0.6, 16)
    total = np.log(2.0) * (end - start) + 0.5 * (np.cos(start) - np.cos(end))
    rows = {"x": start, "a": start, "b": end, "n": rng.poisson(20 * np.exp(total))}
    model = gpdsl.compile("""
input x : real
input a : real
input b : real
output n : count
latent f(x) ~ GP(0, RBF(1.5))
n ~ Poisson(20 * exp(integral(f, a, b)))
""")
    fit = model.fit(rows, inducing=8)
    assert fit.inducing_loss is not None and fit.inducing_loss < 0.1
    drawn = fit.draw_functions(200, seed=0)(rows, "f")
    here = fit.predict(rows)
    np.testing.assert_allclose(drawn.mean(axis=0), here.mean("f"), atol=5 * np.sqrt(here.variance("f").max() / 200))


def test_draws_from_the_prior_are_integrals_of_the_drawn_function() -> None:
    model = gpdsl.compile(MODEL)
    a = np.linspace(-1, 1, 21)
    inputs = {"x": 0.5 * (a[:-1] + a[1:]), "a": a[:-1], "b": a[1:]}
    drawn = model.sample_prior(rows=20, seed=3, inputs=inputs, parameters={"ell": 4.0, "sigma": 1e-4})
    values, integrals = drawn.latents["f"], drawn.functionals["integral(f, a, b)"]
    np.testing.assert_allclose(integrals, 0.1 * values, atol=0.03)
