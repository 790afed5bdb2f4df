"""Tied sites: the hand-written gradient against automatic differentiation, and the optimum against exact ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import gpdsl
from gpdsl.inference.bound import GroupView, Views, assemble
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.natural import sweep as sweeps
from gpdsl.inference.natural.profiled import outer_point, split_point
from gpdsl.inference.natural.sweep import covariances_at, ended, sweep
from gpdsl.inference.natural.tied import Tied, backward, definite, forward, host_posterior, no_sites, transported
from gpdsl.inference.posteriors.features import Covariances, Features
from gpdsl.inference.problem import Problem
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.numerics import cholesky
from gpdsl.program.cache import jit, precision as precision_of
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import kernel_values
from gpdsl.program.program import take_rows
from tests.inference.problems import problem_of

Case = tuple[gpdsl.Model, dict[str, np.ndarray]]

ONE = """
input x : real[2]
output y : real
param m : real = 0.3
param s2 : positive = 1.7
param ell : positive[2] = [0.8, 1.3]
param sigma : positive = 0.4
latent f(x) ~ GP(m, s2 * Matern52(ell))
y ~ Normal(f, sigma)
"""
SHARED = """
index c in 1..3
input x : real[2]
output y : label[c]
param s2[c] : positive = [0.6, 1, 1.5]
param ell : positive = 0.9
latent f[c](x) ~ GP(0, s2[c] * RBF(ell))
y ~ Categorical(logits = f)
"""
APART = """
input x : real[2]
output y : real
param ell_f : positive = 1.2
param ell_g : positive = 0.7
param m : real = -1
param s2 : positive = 1.3
latent f(x) ~ GP(0, s2 * RBF(ell_f))
latent g(x) ~ GP(m, 0.5 * RBF(ell_g))
y ~ Normal(f, exp(g))
"""
SLOPES = """
input x : real
output y : real
output dy : real
param ell : positive = 0.9
param s2 : positive = 1.4
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Normal(f, 0.3)
dy ~ Normal(D(f, x), 0.5)
"""


def factors(problem: Any, point: Any) -> list[tuple[Any, Any]]:
    """Cholesky factors of Kuu and scales of each group's kernels."""
    known = covariances_at(problem, point, problem.inducing, problem.rows)
    return [(jnp.linalg.cholesky(each.inducing), scale) for each, scale in known]


def _data(text: str, rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, rows) if "x : real\n" in text else rng.uniform(-2, 2, (rows, 2))
    signal = np.sin(2 * x) if x.ndim == 1 else np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    if "label" in text:
        return {"x": x, "y": 1 + (signal + 0.5 * rng.standard_normal(rows) > 0).astype(int) + rng.integers(0, 2, rows)}
    data = {"x": x, "y": signal + 0.3 * rng.standard_normal(rows)}
    return data | ({"dy": 2 * np.cos(2 * x) + 0.5 * rng.standard_normal(rows)} if "dy" in text else {})


def _some_sites(problem: Problem, point: Any, seed: int) -> list[Tied]:
    rng, found = np.random.default_rng(seed), []
    known = jit(lambda point: [factor for factor, _ in factors(problem, point)])(point)
    for group, factor in zip(problem.program.groups, known, strict=True):
        size = factor.shape[-1]
        root = rng.standard_normal((group.size, size, 2 * size)) * 0.7
        linear = rng.standard_normal((group.size, size))
        found.append(Tied(jnp.asarray(linear), jnp.asarray(root @ root.swapaxes(1, 2)), factor))
    return found


def _dense_bound(problem: Problem, point: Any, sites: list[Tied], rows: Any, normals: Any) -> Any:
    """The bound from its definition: q(u) proportional to p(u) t(u), all matrices written out, no whitening."""
    program = problem.program
    learnt, inducing = split_point(point, problem.inducing)
    parameters = program.parameters.constrain(learnt)
    seen, moments, divergence = [], [], 0.0
    for group, functionals, tied in zip(program.groups, inducing, sites, strict=True):
        kernel = kernel_values(program.evaluator, group, parameters)
        at = functionals_at(group, group.readings.all, rows)
        means, variances = [], []
        for j in range(group.size):
            own = [a[0 if group.factors == 1 else j] for a in kernel.arguments]
            held = tied.factor[0 if group.factors == 1 else j]
            s = kernel.scale[j]
            factor = cholesky(covariance(group.form, own, functionals), problem.jitter)
            prior = s * factor @ factor.T
            away = jnp.linalg.inv(held)  # sites in u = sqrt(s) L w at unit scale
            site = away.T @ tied.precision[j] @ away
            posterior = jnp.linalg.inv(jnp.linalg.inv(prior) + site)
            mean = posterior @ (away.T @ tied.linear[j])
            cross = s * covariance(group.form, own, functionals, at)
            weights = jnp.linalg.solve(prior, cross)
            left = s * variance(group.form, own, at) - jnp.sum(cross * weights, axis=0)
            means.append(mean @ weights / jnp.sqrt(s))
            variances.append((left + jnp.sum(weights * (posterior @ weights), axis=0)) / s)
            ratio = jnp.linalg.solve(prior, posterior)
            squares = mean @ jnp.linalg.solve(prior, mean)
            divergence += 0.5 * (jnp.trace(ratio) + squares - len(mean) - jnp.linalg.slogdet(ratio)[1])
        nothing = jnp.zeros((1, 1, 1))
        seen.append(GroupView(group, kernel, Features(nothing, nothing[0], nothing)))
        moments.append((jnp.stack(means)[None], jnp.stack(variances)[None]))
    q = assemble(Views(program, parameters, rows, seen), moments)
    per_row = expected_log_likelihood(program, parameters, rows, q, normals)
    return jnp.sum(per_row) * (problem.count / per_row.shape[1]) - divergence + program.log_prior(parameters)


@pytest.mark.parametrize("text", [ONE, SHARED, APART, SLOPES])
def test_gradient_by_hand(text: str) -> None:
    problem = problem_of(text, _data(text, 40, 3), inducing=6, batch=15, learn_inducing=True, samples=20)
    point = outer_point(problem, problem.parameters, problem.inducing)
    sites = _some_sites(problem, point, 4)
    rows = take_rows(problem.rows, np.arange(5, 20))
    normals = problem.normals(jax.random.key(1), 15)
    found = jit(lambda p: vars(sweep(problem, p, problem.inducing, sites, rows, normals)))(point)
    value, gradient = jit(jax.value_and_grad(lambda p: _dense_bound(problem, p, sites, rows, normals)))(point)
    assert float(found["elbo"]) == pytest.approx(float(value), rel=1e-9)
    for ours, reference in zip(jax.tree.leaves(found["gradient"]), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-6, atol=1e-7 * float(jnp.max(jnp.abs(reference))))


def test_one_full_step_is_the_titsias_optimum(regression: Case) -> None:
    """With a Gaussian likelihood and all rows, a step of length one ends at the collapsed bound."""
    model, data = regression
    text = model.declarations.source.text
    problem = problem_of(text, data, inducing=7, batch=40)
    point = outer_point(problem, problem.parameters, problem.inducing)
    known = factors(problem, point)
    start = [no_sites(group.size, factor) for group, (factor, _) in zip(problem.program.groups, known, strict=True)]
    led = sweep(problem, point, problem.inducing, start, problem.rows, None)
    there = [replace(s, linear=h, precision=g) for s, h, g in zip(start, led.linear, led.precision, strict=True)]
    found = sweep(problem, point, problem.inducing, there, problem.rows, None)
    for ours, target in zip(there, found.precision, strict=True):
        np.testing.assert_allclose(ours.precision, target, rtol=1e-9, atol=1e-9)
    assert float(found.elbo) == pytest.approx(_titsias(problem, data), abs=1e-6)


def _titsias(problem: Problem, data: dict[str, np.ndarray]) -> float:
    """log N(y; mu, Qff + sigma^2 I) - tr(Kff - Qff) / (2 sigma^2), with NumPy."""
    z, x = np.asarray(problem.inducing[0].points), data["x"]  # type: ignore[union-attr]
    scaled = lambda a, b: (((a[:, None] - b[None]) / 0.8) ** 2).sum(-1)  # noqa: E731
    kuu, kuf = 1.5 * np.exp(-0.5 * scaled(z, z)), 1.5 * np.exp(-0.5 * scaled(z, x))
    kuu += 1.5 * problem.jitter * np.eye(len(z))
    q = kuf.T @ np.linalg.solve(kuu, kuf)
    exact = multivariate_normal.logpdf(data["y"], np.full(len(x), 0.2), q + 0.09 * np.eye(len(x)))
    return float(exact - 0.5 * (1.5 * len(x) - np.trace(q)) / 0.09)


def test_sites_survive_a_change_of_coordinates() -> None:
    problem = problem_of(SHARED, _data(SHARED, 30, 1), inducing=6, batch=15)
    point = outer_point(problem, problem.parameters, problem.inducing)
    (tied,) = _some_sites(problem, point, 2)
    factor = jnp.linalg.cholesky(jnp.eye(6) + tied.factor @ jnp.swapaxes(tied.factor, 1, 2))
    moved = transported(tied, factor)
    for ours, same in zip(_in_inducing_values(moved), _in_inducing_values(tied), strict=True):
        np.testing.assert_allclose(ours, same, rtol=1e-9, atol=1e-9)


def _in_inducing_values(tied: Tied) -> tuple[np.ndarray, np.ndarray]:
    away = np.linalg.inv(np.asarray(tied.factor[0]))
    return np.asarray(tied.linear) @ away, away.T @ np.asarray(tied.precision) @ away


def test_sites_beyond_any_covariance_lose_half_of_their_weight_until_there_is_one() -> None:
    factor, scale = jnp.eye(3)[None], jnp.asarray([2.0])
    precision = jnp.diag(jnp.asarray([-3.0, 1.0, 0.5]))[None]
    far = Tied(jnp.asarray([[1.0, -2.0, 0.4]]), precision, factor)
    assert not np.isfinite(host_posterior(far, scale).root).all()
    near = definite(far, scale)  # 1 - 2 * 3 / 8 is the first above 0
    np.testing.assert_allclose(near.precision, precision / 8)
    q = host_posterior(near, scale)
    covariance = np.diag(1 / (1 + 2 * np.diag(precision[0]) / 8))
    np.testing.assert_allclose(q.root[0, 0] @ q.root[0, 0].T, covariance, rtol=1e-5)
    np.testing.assert_allclose(q.mean[0, 0], covariance @ (np.sqrt(2) * far.linear[0] / 8), rtol=1e-5)
    assert definite(near, scale) is near


def test_a_search_that_ends_beyond_any_covariance_has_a_bound() -> None:
    """Far more steps of few rows would come back by themselves; these are the last there are."""
    params = "".join(f"param {name} : positive = {value}\n" for name, value in (("s2", 1), ("ell", 1), ("sigma", 0.3)))
    text = f"input x : real\noutput y : real\n{params}latent f(x) ~ GP(0, s2 * RBF(ell))\ny ~ StudentT(4, f, sigma)\n"
    model = gpdsl.compile(text)
    data = model.sample_prior(rows=120, seed=4).data
    assert np.isfinite(model.fit(data, inducing=12, batch=30, steps=5, diagnose="no").elbo)


@pytest.mark.parametrize(
    ("at_first", "at_last", "kept"), [(2.0, 1.0, "first"), (1.0, 2.0, "last"), (None, 1.0, "last")]
)
def test_the_end_of_a_search_is_another_fit_only_where_that_has_the_higher_bound(
    monkeypatch: pytest.MonkeyPatch, at_first: float | None, at_last: float, kept: str
) -> None:
    def end(name: str, bound: float) -> Any:
        point = {"parameters": {name: np.ones(1)}, "inducing": []}
        return SimpleNamespace(point=point, posterior=lambda: [name], state=lambda problem: {"bound": bound})

    monkeypatch.setattr(sweeps, "assessor", lambda problem: lambda state: (state["bound"], 0.1))
    first = None if at_first is None else end("first", at_first)
    found = ended(cast(Any, SimpleNamespace(inducing=[])), first, end("last", at_last))
    assert list(found.parameters) == list(found.posterior) == [kept]
    assert found.elbo == max(at_last, at_first or 0.0) and bool(found.message) == (kept == "first")


@pytest.mark.parametrize("factors", [1, 2])
def test_moments_and_slopes_by_hand_are_those_of_dense_algebra_and_of_differences(
    factors: int, rng: np.random.Generator
) -> None:
    """Of dm'mean + dv'variance - KL with t(u) held, in NumPy, of kernels that latents share and have alone."""
    size, rows, scale = 3, 4, np.array([0.7, 1.6])
    root = rng.standard_normal((factors, size, 2 * size))
    known = [
        root @ root.swapaxes(1, 2) / size,
        0.2 * rng.standard_normal((factors, size, rows)),
        np.ones((factors, rows)),
    ]
    d_mean, d_variance = rng.standard_normal((2, 2, rows))
    lower = np.linalg.cholesky(known[0])
    wide = rng.standard_normal((2, size, 2 * size))
    linear, precision = rng.standard_normal((2, size)), wide @ wide.swapaxes(1, 2) / size

    def parts(inducing: np.ndarray, cross: np.ndarray, prior: np.ndarray, scale: np.ndarray) -> Iterator[Any]:
        """Mean and variance of the rows, of unit scale, and the divergence of each latent."""
        for j, s in enumerate(scale):
            place = j % factors
            away, now = np.linalg.inv(lower[place]), inducing[place]
            q = np.linalg.inv(np.linalg.inv(s * now) + away.T @ precision[j] @ away)
            mean, weights = q @ away.T @ linear[j], np.linalg.solve(now, cross[place])
            left = prior[place] - np.sum(cross[place] * weights, axis=0) + np.sum(weights * (q @ weights), axis=0) / s
            ratio = np.linalg.solve(s * now, q)
            paid = np.trace(ratio) + mean @ np.linalg.solve(s * now, mean) - size - np.linalg.slogdet(ratio)[1]
            yield mean @ weights / np.sqrt(s), left, paid

    def value(*known: np.ndarray) -> float:
        each = zip(parts(*known), d_mean, d_variance, strict=True)
        return float(sum(dm @ mean + dv @ variance - 0.5 * paid for (mean, variance, paid), dm, dv in each))

    def slopes_of(known: list[Any], tied: Tied, scale: Any) -> dict[str, Any]:
        at = forward(Covariances(*known), tied, scale)
        return vars(backward(at, scale, d_mean, d_variance)) | {"moments": (at.mean, at.variance)}

    with precision_of("float64"):
        given = known, Tied(linear, precision, lower), scale
        found = jit(slopes_of)(*jax.tree.map(jnp.asarray, given))
    exact = [np.stack(each) for each in list(zip(*parts(*known, scale), strict=True))[:2]]
    np.testing.assert_allclose(found["moments"], exact, rtol=1e-9)
    phi = np.linalg.solve(lower, known[1])[[0, -1]]
    square = np.einsum("jar,jr,jbr->jab", phi, d_variance, phi)
    np.testing.assert_allclose(found["precision"], -2 * square / scale[:, None, None], rtol=1e-9, atol=1e-12)
    covariances = found["covariances"]
    slopes = [covariances.inducing, covariances.cross, covariances.prior, found["scale"]]
    arguments = [*known, scale]
    for which, slope in enumerate(slopes):
        for place in np.ndindex(np.shape(slope)):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [np.array(each) for each in arguments]
                moved[which][place] += step / 2
                moved[which][(place[0], *place[:0:-1]) if which == 0 else place] += step / 2
                ends.append(value(*moved))
            assert slope[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-8)
