"""Latents that are mixed under little noise: Newton's method finds the means where natural gradients crawl."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.ascent.lbfgs import Enough, maximise
from gpdsl.inference.natural import site_blocks
from gpdsl.inference.natural.profiled import FIRST_PATIENCE, outer_point, setting_of
from gpdsl.inference.natural.refine import LITTLE, MOST, RIDGE_ITERATIONS, TRIALS, Best, Progress, refine
from gpdsl.inference.natural.site_blocks import Stride
from gpdsl.inference.natural.site_starts import start_sites
from gpdsl.inference.natural.sites import Sites, site_marginals
from gpdsl.program.cache import jit
from gpdsl.program.rows import Rows
from tests.inference.problems import problem_of

SUM = """
input x : real
output y : real
latent f(x) ~ GP(0, 2 * RBF(1))
latent g(x) ~ GP(0, RBF(0.3))
y ~ Normal(f + g, 0.05)
"""

NETWORK = """
index p in 1..2
input x : real
output y[p] : real
latent w[p](x) ~ GP(0, RBF(2))
latent g(x) ~ GP(0, RBF(1))
y[p] ~ Normal(w[p] * g, 0.02)
"""

Table = dict[str, np.ndarray]


def ascended(text: str, data: Table, iterations: int, **options: object) -> tuple[Progress, np.ndarray]:
    """The ascent in independent latents, by Newton's method after `first` iterations or without, and the means."""
    newton, first = bool(options.pop("newton")), int(options.pop("first", 0))  # type: ignore[call-overload]
    problem = problem_of(text, data, posterior="full", **options)
    start = outer_point(problem, problem.parameters, problem.inducing)

    def best(sites: Sites, rows: Rows) -> tuple[Progress, jnp.ndarray]:
        setting = setting_of(problem, start, problem.inducing, rows)
        begun = refine(setting, sites, None, 1e-9, first).sites
        end = refine(setting, begun, None, 1e-9, iterations, newton=newton)
        return end, site_marginals(setting.views(), end.sites)[0].mean[0]

    progress, means = jit(best)(start_sites(problem), problem.rows)
    return progress, np.asarray(means)


@pytest.mark.parametrize("inducing", [0, 12])
def test_newton_steps_find_the_exact_means_of_a_sum(inducing: int, rng: np.random.Generator) -> None:
    """Independent latents have the exact means in the end; ordinary steps are far from them after as many."""
    x = np.sort(rng.uniform(-1, 1, 12))
    y = np.sin(2 * x) + rng.normal(size=12)
    gap = (x[:, None] - x) ** 2
    f, g = 2 * np.exp(-0.5 * gap), np.exp(-0.5 * gap / 0.3**2)
    weights = np.linalg.solve(f + g + 0.05**2 * np.eye(12), y)
    exact = np.stack([f @ weights, g @ weights], axis=1)
    means = {
        newton: ascended(SUM, {"x": x, "y": y}, 16, newton=newton, inducing=inducing)[1] for newton in (True, False)
    }
    assert np.max(np.abs(means[True] - exact)) < 1e-4
    assert np.max(np.abs(means[False] - exact)) > 1e-2


def test_a_newton_step_is_that_of_dense_algebra(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two latents with one kernel and one with another, given slopes that are linear in the means of each row."""
    monkeypatch.setattr(site_blocks, "ACCURACY", 1e-24)
    x, rows = np.array([-1.0, 0.2, 1.5, 2.0]), 4
    half = rng.normal(size=(rows, 3, 3))
    bends, constants = -half @ np.swapaxes(half, 1, 2), rng.normal(size=(rows, 3))

    def slope(mean: jax.Array) -> jax.Array:
        return jnp.einsum("nij,nj->ni", bends, mean) + constants

    with jax.enable_x64(True):
        problem = problem_of(NETWORK, {"x": x, "y": np.ones((rows, 2))}, posterior="full")
        start = outer_point(problem, problem.parameters, [])
        sites, target = (Sites(rng.normal(size=(rows, 3)), rng.uniform(1, 2, (rows, 3))) for _ in range(2))

        def step(reach: float) -> tuple[Sites, jax.Array, jax.Array]:
            seen = setting_of(problem, start, problem.inducing, problem.rows).views()
            q, _, posteriors = site_marginals(seen, sites)
            return *site_blocks.newton_target(seen, posteriors, q, slope, sites, target, reach), q.mean[0]

        ((found, bend, mean), (short, _, _)) = map(jit(step), (200.0, 1.0))
    gaps = (x[:, None] - x) ** 2
    phi = np.zeros((3, rows, 3, rows))  # of latents and rows, by latents and whitened values
    for latent, length in enumerate((2.0, 2.0, 1.0)):
        phi[latent, :, latent] = np.linalg.cholesky(np.exp(-0.5 * gaps / length**2) + problem.jitter * np.eye(rows))
    phi = phi.reshape(3 * rows, -1)
    whole = np.zeros((3, rows, 3, rows))
    for row in range(rows):
        whole[:, row, :, row] = bends[row]
    whole, uphill = whole.reshape(3 * rows, -1), np.asarray(slope(mean)).T.ravel()
    white = np.linalg.solve(phi, mean.T.ravel())  # priors have means of zero
    moved = phi @ np.linalg.solve(np.eye(3 * rows) - phi.T @ whole @ phi, phi.T @ uphill - white)
    moved = moved.reshape(3, rows).T
    changed = np.einsum("nij,nj->ni", bends, moved)
    np.testing.assert_array_equal(found.precision, target.precision)
    np.testing.assert_allclose(found.linear, target.linear + changed + target.precision * moved, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(bend, (sites.precision - target.precision) * moved, rtol=1e-6, atol=1e-6)
    assert np.max(np.abs(short.linear - found.linear)) > 0.1


def test_strides_are_longer_after_whole_steps_and_shorter_after_plain_ones() -> None:
    stride = Stride(jnp.full((1, 1), 8.0), jnp.asarray(10.0))
    along = stride.along(Sites(jnp.ones((1, 1)), jnp.full((1, 1), 3.0)), jnp.asarray(0.25))
    assert (float(along.linear[0, 0]), float(along.precision[0, 0])) == (1 + 0.25 * 0.75 * 8, 3.0)
    cases = {
        (True, True, False): 11.5,
        (False, False, True): 7.0,
        (True, False, True): 10.0,
        (False, True, False): 10.0,
    }
    for (better, whole, plain), reach in cases.items():
        assert float(stride.after(*map(jnp.asarray, (better, whole, plain)))) == pytest.approx(reach)
    for reach, factor in ((190.0, 200.0), (4.1, 4.0)):
        at_end = Stride(stride.bend, jnp.asarray(reach)).after(*map(jnp.asarray, (reach > 99, reach > 99, reach < 99)))
        assert float(at_end) == factor


def test_products_with_little_noise_settle() -> None:
    x = np.linspace(-2, 2, 20)
    data = {"x": x, "y": np.stack([np.sin(2 * x), 1 + 0.3 * x], axis=1)}
    slow, _ = ascended(NETWORK, data, 1000, newton=False)
    quick, _ = ascended(NETWORK, data, RIDGE_ITERATIONS, newton=True, first=FIRST_PATIENCE)
    assert bool(quick.done) and not bool(slow.done)
    assert float(quick.elbo) > float(slow.elbo) - 1e-3


def test_a_fit_changes_to_newton_steps_in_single_precision_too() -> None:
    x = np.linspace(-2, 2, 20)
    y = np.stack([np.sin(2 * x), 1 + 0.3 * x], axis=1)
    fit = gpdsl.compile(NETWORK).fit({"x": x, "y": y}, posterior="full", dtype="float32", progress=False)
    assert np.isfinite(fit.elbo)
    assert np.max(np.abs(fit.predict({"x": x}).mean("y") - y)) < 0.1


@pytest.mark.slow
def test_outputs_that_are_all_the_same_are_fitted_in_little_work() -> None:
    """Noise goes to zero there. Before there was Newton's method this took 40 thousand iterations."""
    model = gpdsl.zoo("gprn")
    drawn = model.sample_prior(rows=12, seed=82).data
    y = np.broadcast_to(drawn["y"][:1], drawn["y"].shape).copy()
    fit = model.fit({"x": drawn["x"], "y": y}, steps=30, progress=False)
    assert np.isfinite(fit.elbo) and len(fit.history) <= 61
    assert np.max(np.abs(fit.predict({"x": drawn["x"]}).mean("y") - y)) < 0.1


def test_a_search_on_a_ridge_ends_with_the_best_point_and_says_so() -> None:
    best, values = Best(None, None), iter([0.0, 5.0, 5.1, 4.0, 5.2, 9.0])
    seen = []

    def objective(at: np.ndarray) -> tuple[float, np.ndarray]:
        value = next(values)
        seen.append(value)
        best.see(at, None, value, settled=value == 0.0)
        return value, np.ones(1)

    outcome = maximise(objective, np.zeros(1), steps=20, tolerance=0.0, report=lambda *_: None)
    assert seen == [0.0, 5.0, 5.1, 4.0, 5.2] and TRIALS == 3 and LITTLE == 1.0
    assert best.elbo == 5.2 and outcome.message.startswith("stopped on a ridge of the bound")


@pytest.mark.parametrize(("gain", "most"), [(0.5 * LITTLE, TRIALS), (2.0 * LITTLE, MOST)])
def test_points_that_do_not_settle_are_counted(gain: float, most: int) -> None:
    best, seen = Best(None, None, elbo=0.0), 0
    for settled in (True, False):
        for _ in range(MOST - 1 if settled else 2 * MOST):
            try:
                best.see(None, None, best.elbo + gain, settled)
            except Enough:
                break
            seen += not settled
    assert seen == most - 1
