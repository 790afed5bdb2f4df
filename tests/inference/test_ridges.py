"""Latents that are mixed under little noise: Newton's method finds the means where natural gradients crawl."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.ascent.lbfgs import Enough, maximise
from gpdsl.inference.natural.profiled import FIRST_PATIENCE, outer_point, setting_of
from gpdsl.inference.natural.refine import LITTLE, MOST, RIDGE_ITERATIONS, TRIALS, Best, Progress, refine
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
