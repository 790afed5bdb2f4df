"""Natural gradients need few iterations to the optimum of L-BFGS: log Gaussian Cox process, breast cancer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.natural import refine as rules
from gpdsl.inference.natural.profiled import outer_point, setting_of
from gpdsl.inference.natural.refine import Progress, refine
from gpdsl.inference.natural.site_starts import start_sites
from gpdsl.inference.natural.sites import Sites, coupled_sites, step_lengths
from gpdsl.program.cache import jit
from gpdsl.program.joint import Marginals
from gpdsl.program.rows import Rows
from tests.data.shared import shared_table
from tests.inference.problems import problem_of

Table = dict[str, np.ndarray]
ITERATIONS = 30


def disasters(rng: np.random.Generator) -> Table:
    """Counts like those of the coal-mining disasters: a rate that falls, in 60 bins."""
    x = np.linspace(0, 112, 60)
    return {"x": x, "n": rng.poisson(np.exp(0.9 - 1.3 / (1 + np.exp(-(x - 45) / 6))))}


def tumours(rng: np.random.Generator) -> Table:
    """Two overlapping classes in nine standardised columns that go together, like the breast-cancer data."""
    y = np.where(rng.random(80) < 0.35, 1, -1)
    x = 0.9 * y[:, None] + 0.6 * rng.normal(size=(80, 1)) + 0.7 * rng.normal(size=(80, 9))
    return {"x": (x - x.mean(axis=0)) / x.std(axis=0), "y": y}


def mining(rng: np.random.Generator) -> Table:
    """The coal-mining disasters in bins of 50 days, and the papers' starting values."""
    table = shared_table("coal_mining.csv")
    return {"x": table[:, 0], "n": table[:, 1]}


def cancer(rng: np.random.Generator) -> Table:
    """The breast-cancer data, first split."""
    table = shared_table("wisconsin/train_1.csv")
    return {"x": table[:, 1:], "y": table[:, 0]}


PAPERS_START = {"m": float(np.log(191 / 811)), "ell": 2000.0}

CASES = {
    "simulated disasters": ("coal_mining", disasters, {}),
    "simulated tumours": ("wisconsin", tumours, {}),
    "coal mining": ("coal_mining", mining, PAPERS_START),
    "wisconsin": ("wisconsin", cancer, {}),
}

NAMES = [*list(CASES)[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in list(CASES)[2:])]


def refined(name: str, data: Table, init: dict[str, float]) -> Progress:
    """The natural-gradient iteration at the starting hyperparameters, from the default start."""
    problem = problem_of(gpdsl.zoo(name), data, inducing=0, init=init)
    tolerance = problem.options.tolerance * problem.data_rows
    start = outer_point(problem, problem.parameters, problem.inducing)

    def found(sites: Sites, rows: Rows) -> Progress:
        setting = setting_of(problem, start, problem.inducing, rows)
        return refine(setting, sites, None, tolerance, 10 * ITERATIONS)

    return jit(found)(start_sites(problem), problem.rows)


@pytest.mark.parametrize("case", NAMES)
def test_the_posterior_is_found_in_few_iterations(case: str, rng: np.random.Generator) -> None:
    """At fixed hyperparameters, against L-BFGS on the same parameters of q."""
    name, read, init = CASES[case]
    data = read(rng)
    held = list(gpdsl.zoo(name).declarations.params)
    progress = refined(name, data, init)
    best = gpdsl.zoo(name).fit(data, optimizer="lbfgs", inducing=0, fixed=held, init=init, tolerance=1e-12, steps=5000)
    assert bool(progress.done) and int(progress.iterations) <= ITERATIONS
    assert float(progress.elbo) > best.elbo - 1e-4


@pytest.mark.parametrize("case", NAMES)
def test_hyperparameters_are_found_in_few_iterations(case: str, rng: np.random.Generator) -> None:
    name, read, init = CASES[case]
    data = read(rng)
    natural = gpdsl.zoo(name).fit(data, inducing=0, init=init)
    best = gpdsl.zoo(name).fit(data, optimizer="lbfgs", inducing=0, init=init, tolerance=1e-12, steps=5000)
    assert natural.choice.optimizer == "natural" and natural.message == "converged"
    assert natural.history[-1, 0] <= ITERATIONS
    assert natural.elbo > best.elbo - 1e-3


@pytest.mark.parametrize("case", list(CASES)[:2])
def test_what_is_left_is_told_from_the_length_of_the_last_step(
    case: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer iterations than by the rule of three small gains alone, and no more left than the tolerance."""
    name, read, init = CASES[case]
    data = read(rng)
    told = refined(name, data, init)
    monkeypatch.setattr(rules, "FALLEN", np.inf)
    patient = refined(name, data, init)
    assert bool(told.done) and int(told.iterations) < int(patient.iterations)
    assert float(patient.elbo) - float(told.elbo) < 1e-9 * len(data["x"])


def test_the_length_of_a_step_is_that_of_the_fisher_metric(rng: np.random.Generator) -> None:
    """Of Gaussians in natural parameters: the covariance of x and -x^2 / 2, by quadrature; of rows and latents."""
    linear, precision, step_linear, step_precision = rng.normal(size=(4, 3, 2)) + np.array([0, 3, 0, 0])[:, None, None]
    with jax.enable_x64(True):
        here, there = Sites(linear, precision), Sites(linear + step_linear, precision + step_precision)
        q = Marginals((linear / precision)[None], (1.0 / precision)[None])
        found = step_lengths(q, here, there)
    z, weights = np.polynomial.hermite_e.hermegauss(9)
    x = q.mean[0, ..., None] + np.sqrt(q.variance[0, ..., None]) * z
    change = step_linear[..., None] * x - 0.5 * step_precision[..., None] * x**2  # of the log density
    first, second = (change**power @ weights / weights.sum() for power in (1, 2))
    np.testing.assert_allclose(found, np.sum(second - first**2, axis=1), rtol=1e-12)
    assert np.isnan(step_lengths(q, coupled_sites(here), coupled_sites(there))).all()


@pytest.mark.parametrize("newton", [False, True])
def test_the_bound_of_a_step_is_the_expectation_less_the_divergence(
    newton: bool, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """And its target is that of the slopes of the expectation; Newton's method is asked for the slope in the means."""
    mean, variance = jnp.asarray(rng.normal(size=(1, 3, 1))), jnp.asarray(rng.uniform(1, 2, (1, 3, 1)))
    q, sites = Marginals(mean, variance), Sites(jnp.zeros((3, 1)), jnp.ones((3, 1)))

    def expected(q: Marginals, *_: object) -> jax.Array:
        return -0.5 * ((q.mean - 1.0) ** 2 + q.variance) * jnp.arange(1.0, 4.0)[:, None]

    def bent(seen: object, posteriors: object, q: Marginals, slope: Any, *rest: Any) -> tuple[Sites, jax.Array]:
        return rest[1], slope(q.mean[0])

    monkeypatch.setattr(rules.natural, "site_marginals", lambda *_: (q, 2.5, None))
    monkeypatch.setattr(rules, "newton_target", bent)
    monkeypatch.setattr(rules, "same_latent", lambda _: jnp.ones((1, 1)))
    seen: Any = SimpleNamespace(expected=expected, program=None)
    stride = rules.Stride.first(sites.linear) if newton else None
    value, target, length, bend = rules._evaluator(seen, None, 1.0, None)(sites, stride)
    weight = np.arange(1.0, 4.0)[:, None]
    assert float(value) == pytest.approx(float(np.sum(expected(q))) - 2.5, rel=1e-6)
    np.testing.assert_allclose(target.precision, weight, rtol=1e-6)
    np.testing.assert_allclose(target.linear, weight, rtol=1e-5)
    if not newton:
        assert bend is None and float(length) == pytest.approx(float(step_lengths(q, sites, target).sum()), rel=1e-6)
        return
    assert float(length) == np.inf
    np.testing.assert_allclose(bend, weight * (1.0 - mean[0]), rtol=1e-5)


@pytest.mark.parametrize(
    ("length", "gain", "step", "done"),
    [
        (4.0, 0.29, 1.0, True),
        (4.0, 0.31, 1.0, False),
        (1.0, 1.49, 1.0, True),
        (1.0, 1.51, 1.0, False),
        (4.1, 0.01, 1.0, False),
        (4.0, 0.01, 0.5, False),
        (4.0, -0.01, 1.0, False),
        (np.nan, 0.01, 1.0, False),
    ],
)
def test_it_ends_where_a_tenth_of_the_tolerance_is_left(length: float, gain: float, step: float, done: bool) -> None:
    """Gains fall as the squared length of the step, of 16 before, did: those that follow are gain / (fallen - 1)."""
    with jax.enable_x64(True):
        sites = [Sites(jnp.full((2, 1), number), jnp.full((2, 1), 1.0 + number)) for number in (0.0, 0.2, 0.1, 0.15)]
        begun, target, trial, seen = sites
        units = Sites(jnp.ones(1), jnp.ones(1))
        before = rules.before_any(begun)
        known = {"target": target, "length": jnp.asarray(16.0), "elbo": jnp.asarray(0.0), "step": jnp.asarray(step)}
        before = replace(before, low=jnp.asarray(0.0), iterations=before.iterations + 3, **known)
        after = rules.judged(before, trial, (jnp.asarray(gain), seen, jnp.asarray(length), None), units, 1.0)
    assert bool(after.done) == done
    assert float(after.length) == (16.0 if gain < 0 else pytest.approx(length, nan_ok=True))
