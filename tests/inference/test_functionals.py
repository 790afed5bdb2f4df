"""Derivative observations, preferences and products of readings against dense algebra and independent optimisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, norm

import gpdsl
from gpdsl.program.cache import jit, precision
from gpdsl.program.joint import Marginals, moment_values
from gpdsl.symbolic.expectations import latents_in, root_symbol
from tests.inference.problems import problem_of

SLOPES = """
input x : real
output y : real
output dy : real
param s : positive = 0.1
param t : positive = 0.2
param s2 : positive = 1.3
param ell : positive = 0.9
latent f(x) ~ GP(0.5 * x^2, s2 * RBF(ell))
y ~ Normal(f, s)
dy ~ Normal(D(f, x), t)
let slope = D(f, x)
let energy = f * D(f, x)
"""
PREFERENCES = """
input a : real[D]
input b : real[D]
output y : binary
param sigma : positive = 0.8
latent f(a) ~ GP(0, 2 * RBF(1.2))
y ~ Bernoulli(probit = (f(a) - f(b)) / sigma)
let gap = f - f(b)
"""
PRODUCTS = """
input x : real
input z : real
output y : real
latent f(x) ~ GP(0.3, RBF(0.8))
y ~ Normal(f * f(z), 0.3)
let both = f * f(z)
"""


def rbf(x: np.ndarray, y: np.ndarray, ell: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """k, dk/dy and d2k/dxdy of the one-dimensional kernel."""
    d = x[:, None] - y[None, :]
    k = np.exp(-0.5 * d**2 / ell**2)
    return k, k * d / ell**2, k * (1 / ell**2 - d**2 / ell**4)


def with_slopes(x: np.ndarray, y: np.ndarray, s2: float, ell: float) -> np.ndarray:
    """Covariance of (f, f')(x) with (f, f')(y)."""
    k, right, both = rbf(x, y, ell)
    left = rbf(y, x, ell)[1].T
    return s2 * np.block([[k, right], [left, both]])


def slope_data(rows: int = 7) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    x = np.sort(rng.uniform(-2, 2, rows))
    noise = rng.normal(size=(2, rows))
    return {"x": x, "y": np.sin(2 * x) + 0.1 * noise[0], "dy": 2 * np.cos(2 * x) + 0.3 * noise[1]}


def log_evidence(data: Mapping[str, np.ndarray], s: float, t: float, s2: float, ell: float) -> float:
    x = data["x"]
    noise = np.diag(np.repeat([s**2, t**2], len(x)))
    seen = np.concatenate([data["y"] - 0.5 * x**2, data["dy"] - x])
    return multivariate_normal.logpdf(seen, np.zeros(2 * len(x)), with_slopes(x, x, s2, ell) + noise)


@pytest.fixture(scope="module")
def slopes() -> gpdsl.Fit:
    return gpdsl.compile(SLOPES).fit(slope_data(), fixed=["s", "t", "s2", "ell"])


def test_derivative_observations_have_the_exact_evidence_and_posterior(slopes: gpdsl.Fit) -> None:
    data = slope_data()
    assert slopes.elbo == pytest.approx(log_evidence(data, 0.1, 0.2, 1.3, 0.9), abs=1e-5)
    x, at = data["x"], np.array([-1.7, 0.1, 2.5])
    noise = np.diag(np.repeat([0.01, 0.04], len(x)))
    cross = with_slopes(at, x, 1.3, 0.9)
    solved = np.linalg.solve(with_slopes(x, x, 1.3, 0.9) + noise, cross.T).T
    seen = np.concatenate([data["y"] - 0.5 * x**2, data["dy"] - x])
    mean = solved @ seen + np.concatenate([0.5 * at**2, at])
    covariance = with_slopes(at, at, 1.3, 0.9) - solved @ cross.T
    found = slopes.predict({"x": at})
    np.testing.assert_allclose(np.r_[found.mean("f"), found.mean("slope")], mean, atol=1e-6)
    variances = np.r_[found.variance("f"), found.variance("slope")]
    np.testing.assert_allclose(variances, np.diag(covariance), atol=1e-6)
    np.testing.assert_allclose(found.variance("dy"), np.diag(covariance)[3:] + 0.04, atol=1e-6)
    together = np.diag(covariance[:3, 3:])
    np.testing.assert_allclose(found.mean("energy"), mean[:3] * mean[3:] + together, atol=1e-6)
    drawn = found.sample("energy", 40_000, seed=1)
    np.testing.assert_allclose(drawn.mean(axis=0), found.mean("energy"), atol=5 * (drawn.std() / 200))
    np.testing.assert_allclose(drawn.var(axis=0), found.variance("energy"), rtol=0.06)
    outputs = {"y": np.array([0.3, -0.2, 3.0]), "dy": np.array([1.0, 0.5, -1.0])}
    expected = [
        multivariate_normal.logpdf(
            [outputs["y"][i], outputs["dy"][i]],
            mean[[i, 3 + i]],
            covariance[np.ix_([i, 3 + i], [i, 3 + i])] + np.diag([0.01, 0.04]),
        )
        for i in range(3)
    ]
    np.testing.assert_allclose(slopes.log_predictive_density({"x": at, **outputs}), expected, rtol=2e-6)


def test_a_predicted_derivative_is_the_slope_of_the_predicted_mean(slopes: gpdsl.Fit) -> None:
    at, step = np.linspace(-2, 2, 5), 1e-4
    ahead, behind = (slopes.predict({"x": at + h}).mean("f") for h in (step, -step))
    np.testing.assert_allclose(slopes.predict({"x": at}).mean("slope"), (ahead - behind) / (2 * step), atol=1e-5)


@pytest.mark.slow
def test_hyperparameters_are_learnt_at_the_top_of_the_exact_evidence() -> None:
    data = slope_data(12)
    fit = gpdsl.compile(SLOPES).fit(data)
    best = [float(fit.parameters[name]) for name in ("s", "t", "s2", "ell")]
    assert fit.elbo == pytest.approx(log_evidence(data, *best), abs=1e-5)
    for i in range(4):
        moved = [log_evidence(data, *(b * np.exp(h * (i == j)) for j, b in enumerate(best))) for h in (1e-4, -1e-4)]
        assert abs(moved[0] - moved[1]) / 2e-4 < 2e-2


def test_missing_derivatives_are_not_observed() -> None:
    data = slope_data()
    data["dy"] = np.where(np.arange(7) == 2, data["dy"], np.nan)
    fit = gpdsl.compile(SLOPES).fit(data, fixed=["s", "t", "s2", "ell"])
    x = data["x"]
    kept = [*range(7), 9]
    noise = np.diag(np.repeat([0.01, 0.04], 7))
    seen = np.concatenate([data["y"] - 0.5 * x**2, data["dy"] - x])[kept]
    covariance = (with_slopes(x, x, 1.3, 0.9) + noise)[np.ix_(kept, kept)]
    assert fit.elbo == pytest.approx(multivariate_normal.logpdf(seen, np.zeros(8), covariance), abs=1e-5)


def test_gradients_along_an_index() -> None:
    text = """
index d in 1..D
input x : real[d]
output dy[d] : real
latent f(x) ~ GP(0, RBF(1.1))
dy[d] ~ Normal(D(f, x[d]), 0.1)
"""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(5, 2))
    dy = rng.normal(size=(5, 2))
    fit = gpdsl.compile(text).fit({"x": x, "dy": dy})
    d = x[:, None] - x[None]
    k = np.exp(-0.5 * np.sum(d**2, axis=-1) / 1.21)
    blocks = [[k * ((i == j) / 1.21 - d[..., i] * d[..., j] / 1.21**2) for j in range(2)] for i in range(2)]
    covariance = np.block(blocks) + 0.01 * np.eye(10)
    assert fit.elbo == pytest.approx(multivariate_normal.logpdf(dy.T.ravel(), np.zeros(10), covariance), abs=1e-5)


def preference_data() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    items = rng.uniform(-2, 2, (5, 2))
    better = np.sin(items[:, 0]) + 0.5 * items[:, 1]
    i = rng.integers(0, 5, 25)
    j = (i + rng.integers(1, 5, 25)) % 5
    y = (rng.uniform(size=25) < norm.cdf(2 * (better[i] - better[j]))).astype(int)
    return {"a": items[i], "b": items[j], "y": y}, items, i, j


def best_gaussian(prior: np.ndarray, pairs: np.ndarray, signs: np.ndarray, sigma: float) -> tuple[float, np.ndarray]:
    """Maximise the bound over one Gaussian for the items' utilities, by brute force; the bound and the mean."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    n, root = len(prior), np.linalg.cholesky(prior)
    rows, columns = np.tril_indices(n)

    def negative(q: np.ndarray) -> float:
        mean, factor = q[:n], np.zeros((n, n))
        factor[rows, columns] = q[n:]
        gap, spread = pairs @ root @ mean, np.linalg.norm(pairs @ root @ factor, axis=1)
        expected = norm.logcdf(signs[:, None] * (gap[:, None] + spread[:, None] * nodes) / sigma) @ weights
        diagonal = np.abs(np.diag(factor))
        kl = 0.5 * (np.sum(factor**2) + mean @ mean - n) - np.sum(np.log(diagonal))
        return -(expected.sum() - kl)

    start = np.concatenate([np.zeros(n), np.eye(n)[rows, columns]])
    found = minimize(negative, start, method="BFGS", options={"gtol": 1e-7})
    return -found.fun, root @ found.x[:n]


@pytest.mark.parametrize("options", [{}, pytest.param({"inducing": 5}, marks=pytest.mark.slow)])
def test_preferences_reach_the_best_gaussian(options: dict) -> None:
    data, items, i, j = preference_data()
    fit = gpdsl.compile(PREFERENCES).fit(data, fixed=["sigma"], **options)
    prior = 2 * np.exp(-0.5 * np.sum((items[:, None] - items[None]) ** 2, axis=-1) / 1.44)
    pairs = np.eye(5)[i] - np.eye(5)[j]
    bound, mean = best_gaussian(prior, pairs, 2 * data["y"] - 1, 0.8)
    assert fit.elbo == pytest.approx(bound, abs=2e-5)
    utilities = fit.predict({"a": items, "b": items[::-1]})
    np.testing.assert_allclose(utilities.mean("f"), mean, atol=1e-3)
    np.testing.assert_allclose(utilities.mean("gap"), mean - mean[::-1], atol=1e-3)
    spread = np.sqrt(0.64 + utilities.variance("gap"))
    np.testing.assert_allclose(utilities.mean("y"), norm.cdf(utilities.mean("gap") / spread), atol=1e-8)


def test_a_difference_is_one_reading() -> None:
    plan = gpdsl.compile(PREFERENCES).explain(preference_data()[0])
    assert "read in each row: (f - f(b))" in plan
    assert "Gauss–Hermite quadrature, 32 nodes" in plan


def test_products_of_readings_need_their_joint_distribution() -> None:
    """A term in f f(z) is read jointly: engines agree, and the bound is that of samples from a dense posterior."""
    rng = np.random.default_rng(5)
    x, z = rng.uniform(-1, 1, (2, 6))
    data = {"x": x, "z": z, "y": 0.3 + 0.1 * rng.normal(size=6)}
    model = gpdsl.compile(PRODUCTS)
    natural, lbfgs = (model.fit(data, optimizer=name) for name in ("natural", "lbfgs"))
    assert natural.elbo == pytest.approx(lbfgs.elbo, abs=1e-4)
    assert "jointly" in model.explain(data)
    found = natural.predict(data)
    (q,), (inducing,) = natural.posterior, natural.inducing
    points = np.asarray(inducing.points)[:, 0]
    kernel = lambda a, b: rbf(a, b, 0.8)[0]  # noqa: E731
    factor = np.linalg.cholesky(kernel(points, points) + 1e-8 * np.eye(len(points)))
    at = np.concatenate([x, z])
    phi = np.linalg.solve(factor, kernel(points, at)).T
    root = phi @ np.asarray(q.root[0, 0])
    covariance = root @ root.T + kernel(at, at) - phi @ phi.T
    mean = 0.3 + phi @ np.asarray(q.mean[0, 0])
    between = np.diag(covariance[:6, 6:])
    np.testing.assert_allclose(found.mean("both"), mean[:6] * mean[6:] + between, atol=1e-6)
    v, w = np.diag(covariance)[:6], np.diag(covariance)[6:]
    spread = mean[:6] ** 2 * w + mean[6:] ** 2 * v + 2 * mean[:6] * mean[6:] * between + v * w + between**2
    np.testing.assert_allclose(found.variance("both"), spread, atol=1e-6)
    expected = -0.5 * ((data["y"] - found.mean("both")) ** 2 + spread) / 0.09 - 0.5 * np.log(2 * np.pi * 0.09)
    white, mu = np.asarray(q.root[0, 0]), np.asarray(q.mean[0, 0])
    kl = 0.5 * (np.sum(white**2) + mu @ mu - len(mu)) - np.linalg.slogdet(white)[1]
    assert natural.elbo == pytest.approx(expected.sum() - kl, abs=1e-4)


@pytest.mark.slow
def test_sampled_products_agree_with_the_closed_form() -> None:
    rng = np.random.default_rng(6)
    x, z = rng.uniform(-1, 1, (2, 6))
    data = {"x": x, "z": z, "y": 0.3 + 0.1 * rng.normal(size=6)}
    model = gpdsl.compile(PRODUCTS)
    exact = model.fit(data)
    sampled = model.fit(data, expectations="sampled", samples=400)
    assert sampled.elbo == pytest.approx(exact.elbo, abs=max(0.02, 5 * sampled.elbo_se))


def test_a_saved_fit_keeps_its_functionals(slopes: gpdsl.Fit, tmp_path: object) -> None:
    path = tmp_path / "slopes.gpfit"  # type: ignore[operator]
    slopes.save(path)
    again = gpdsl.load_fit(path)
    assert jax.tree.structure(list(again.inducing)) == jax.tree.structure(list(slopes.inducing))
    at = {"x": np.array([0.1, 0.2])}
    np.testing.assert_array_equal(again.predict(at).mean("slope"), slopes.predict(at).mean("slope"))


def test_an_opaque_function_takes_several_values_of_a_latent() -> None:
    """Jointly, with surrogates, as if its formula were known; score functions alone do not cover it."""
    text = "input x : real\ninput z : real\noutput y : real\nexternal g(u: real, v: real) -> real\n"
    text += "latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(g(f, f(z)), 0.2)\n"
    model = gpdsl.compile(text, externals={"g": lambda u, v: u * v})
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-2, 2, (2, 20))
    data = {"x": x, "z": z, "y": (np.sin(x) + 1.2) * (np.sin(z) + 1.2)}
    ours = model.fit(data)
    formula = gpdsl.compile(
        text.replace("external g(u: real, v: real) -> real\n", "").replace("g(f, f(z))", "f * f(z)")
    )
    exact = formula.fit(data)
    assert ours.elbo == pytest.approx(exact.elbo, abs=0.1)
    new = {"x": np.linspace(-2, 2, 5), "z": np.zeros(5)}
    sd = np.sqrt(exact.predict(new).variance("f"))
    found, expected = ours.predict(new).mean("f"), exact.predict(new).mean("f")
    sign = np.sign(found[2] * expected[2])  # which the product does not tell
    assert np.abs((sign * found - expected) / sd).max() < 0.1
    np.testing.assert_allclose(np.sqrt(ours.predict(new).variance("f")), sd, rtol=0.05)
    with pytest.raises(gpdsl.GpdslError, match="several values of latent `f`"):
        model.fit(data, optimizer="adam")


def test_readings_of_a_latent_are_drawn_by_the_variances_of_their_sums(rng: np.random.Generator) -> None:
    """f, f(z) and their sum: samples are those of the root of the covariance, and so are symbols for entries."""
    program = problem_of(PRODUCTS, {"x": np.arange(4.0), "z": np.ones(4), "y": np.ones(4)}, inducing=3).program
    (group,) = program.groups
    assert [len(group.readings.basis), list(group.readings.sums)] == [2, [(0, 1, 2)]]
    mean, wide = rng.standard_normal((4, 2)), rng.standard_normal((4, 2, 3))
    covariance, normals = wide @ wide.swapaxes(1, 2), rng.standard_normal((5, 1, 4, 3))
    sums = np.array([[1, 0], [0, 1], [1, 1]])
    with precision("float64"):
        q = Marginals(
            jnp.asarray(mean @ sums.T)[None], jnp.asarray(np.einsum("ri,nij,rj->nr", sums, covariance, sums))[None]
        )
        latents = latents_in(program.translator, program.observations[0].log_density)
        refs, order = program.translator.references, group.readings.basis.index
        f, there = sorted(latents, key=lambda each: order(refs[each].reading))

        def found(q: Marginals, normals: Any) -> tuple[Any, list[Any]]:
            values = moment_values(program, [f, there], q, ())
            return q.at(program, normals), [values[root_symbol(*of)] for of in ((f, f), (there, f), (there, there))]

        drawn, entries = jit(found)(q, jnp.asarray(normals))
    root = np.linalg.cholesky(covariance)
    expected = mean + np.einsum("nij,snj->sni", root, normals[:, 0, :, :2])
    np.testing.assert_allclose(drawn[:, 0], expected @ sums.T, rtol=1e-9, atol=1e-12)
    for entry, (i, j) in zip(entries, ((0, 0), (1, 0), (1, 1)), strict=True):
        np.testing.assert_allclose(np.ravel(entry), root[:, i, j], rtol=1e-9)
