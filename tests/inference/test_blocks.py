"""Large batches a block at a time: the same bound and gradient, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference import blocks
from gpdsl.inference.ascent.joint import complete, initial_state
from gpdsl.inference.bound import Bound, views
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.natural.site_blocks import batch_posterior, batch_site_elbo, value_and_target
from gpdsl.inference.natural.sites import Setting, Sites, site_marginals, site_target, step_lengths, whitened_posterior
from gpdsl.program.cache import jit
from tests.inference.conftest import COUNTS, NOISY
from tests.inference.problems import problem_of

ROWS = 150

WITH_ROWS = """
input x : real
output y : real
param s : positive = 0.4
latent f(x) ~ GP(0, Matern32(1))
row w ~ Normal(0, 1)
y ~ StudentT(4, f + w, s)
"""


def data_of(name: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(9)
    x = rng.uniform(-2, 2, ROWS)
    return {"x": x, name: rng.poisson(np.exp(np.sin(2 * x))) if name == "n" else rng.standard_t(4, ROWS)}


@pytest.mark.parametrize(
    "text,posterior,options",
    [
        (COUNTS, "full", {}),
        (COUNTS, "linear", {}),
        (NOISY, "mixture(2)", {}),
        (WITH_ROWS, "diagonal", {}),
        pytest.param(NOISY, "linear", {"expectations": "quadrature"}, marks=pytest.mark.slow),
        pytest.param(COUNTS, "mixture_full(2)", {"expectations": "quadrature"}, marks=pytest.mark.slow),
    ],
)
def test_blocks_change_nothing(text: str, posterior: str, options: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound and its whole gradient, at a point away from the start; the last of three blocks is not full."""
    data = data_of("n" if "output n" in text else "y")
    problem = problem_of(gpdsl.compile(text), data, posterior=posterior, inducing=6, optimizer="lbfgs", **options)
    rng = np.random.default_rng(1)
    state = jax.tree.map(lambda a: np.asarray(a) + 0.1 * rng.normal(size=a.shape), initial_state(problem))
    assert not problem.program.sampled

    def bound(state: dict) -> jax.Array:
        full = complete(state, problem.inducing)
        return Bound(problem.program, problem.layout, problem.rows, 1e-8).value(full, ROWS, None)

    whole = jit(jax.value_and_grad(bound))(state)
    monkeypatch.setattr(blocks, "LARGE", 0)
    monkeypatch.setattr(blocks, "AT_ONCE", 0)
    assert blocks.block_rows(problem.program, problem.inducing, ROWS) == 64
    parts = jit(jax.value_and_grad(lambda state: bound(state)))(state)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-8)


SHIFTED = COUNTS.replace("GP(0,", "GP(0.4,")


@pytest.mark.parametrize("text", [SHIFTED, pytest.param(NOISY, marks=pytest.mark.slow)])
def test_sites_in_blocks_change_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of a natural-gradient engine, its gradient, its targets and its posterior, for any sites."""
    problem = problem_of(gpdsl.compile(text), data_of("n" if text == SHIFTED else "y"), inducing=6)
    program, inducing, rows = problem.program, problem.inducing, problem.rows
    first, second = jax.random.split(jax.random.key(2))
    shape = (ROWS, program.latents)
    sites = Sites(jax.random.normal(first, shape), jax.random.uniform(second, shape))
    learnt = problem.parameters

    def setting(learnt: dict) -> Setting:
        return Setting.at(program, learnt, inducing, rows, False, 1e-8)

    def bound(learnt: dict) -> jax.Array:
        return batch_site_elbo(setting(learnt), sites, None)

    value, slope = jit(jax.value_and_grad(bound))(learnt)

    def reference(learnt: dict) -> tuple:
        parameters = program.parameters.constrain(learnt)
        seen = views(program, parameters, inducing, rows, False, 1e-8)
        q, _, _ = site_marginals(seen, sites)
        gradient = jax.grad(lambda q: jnp.sum(expected_log_likelihood(program, parameters, rows, q)))(q)
        target = site_target(q, gradient)
        return target, whitened_posterior(setting(learnt), sites), jnp.sum(step_lengths(q, sites, target))

    expected, known, way = jit(reference)(learnt)
    monkeypatch.setattr(blocks, "LARGE", 0)
    monkeypatch.setattr(blocks, "AT_ONCE", 0)
    in_blocks, slope_in_blocks = jit(jax.value_and_grad(lambda learnt: bound(learnt)))(learnt)
    assert in_blocks == pytest.approx(float(value), rel=1e-10)
    for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(slope_in_blocks), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-7)

    def found(learnt: dict) -> tuple:
        value, target, length = value_and_target(setting(learnt), sites, 64, None)
        return value, target, batch_posterior(setting(learnt), sites), length

    again, target, posterior, length = jit(found)(learnt)
    assert again == pytest.approx(float(value), rel=1e-10)  # no priors on the parameters here
    assert length == pytest.approx(float(way), rel=1e-7)
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(target), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-7, atol=1e-9)
    for a, b in zip(known, posterior, strict=True):
        np.testing.assert_allclose(b.mean, a.mean, rtol=1e-7, atol=1e-9)
        covariances = [root @ np.swapaxes(root, -1, -2) for root in (np.asarray(a.root), np.asarray(b.root))]
        np.testing.assert_allclose(covariances[1], covariances[0], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "options"),
    [(COUNTS, {}), pytest.param(COUNTS, {"expectations": "sampled"}, marks=pytest.mark.slow)],
)
def test_sweeps_of_expectation_propagation_in_blocks_change_nothing(
    text: str, options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evidence, fixed point and what is learnt on it; blocks share their base points where moments are sampled."""
    model, data = gpdsl.compile(text), data_of("n")
    options = {"engine": "ep", "inducing": 6, "tolerance": 1e-12, "steps": 2, **options}
    whole = model.fit(data, **options)
    monkeypatch.setattr(blocks, "LARGE", 0)
    monkeypatch.setattr(blocks, "AT_ONCE", 0)
    parts = model.fit(data, **options)
    close = 0.1 if "expectations" in options else 1e-6
    assert abs(whole.elbo - parts.elbo) < close
    assert abs(parts.parameters["ell"] - whole.parameters["ell"]) < max(close, 1e-4)
    assert np.abs(whole.predict(data).mean("f") - parts.predict(data).mean("f")).max() < max(close, 1e-4)


def test_samples_of_a_block_are_its_own() -> None:
    draws = blocks.Draws(jax.random.key(0), 50, 1, 2, False, "iid")
    first, again, second = (np.asarray(draws.of(jnp.asarray(b), 64)) for b in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.06


@pytest.mark.slow
def test_sampled_bounds_agree_up_to_their_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = gpdsl.compile(COUNTS), data_of("n")
    options = {"expectations": "sampled", "optimizer": "lbfgs", "posterior": "full", "inducing": 6, "samples": 50}
    whole = model.fit(data, **options)
    monkeypatch.setattr(blocks, "LARGE", 0)
    monkeypatch.setattr(blocks, "AT_ONCE", 0)
    parts = model.fit(data, **options)
    assert abs(whole.elbo - parts.elbo) < 5 * (whole.elbo_se + parts.elbo_se) + 0.05


LARGE_BATCH = """
import resource, sys
import numpy as np
import gpdsl

rows = int(sys.argv[1])
rng = np.random.default_rng(0)
x = rng.normal(size=(rows, 2))
text = "input x : real[2]\\noutput y : binary\\nlatent f(x) ~ GP(0, RBF(1))\\ny ~ Bernoulli(logit = f)\\n"
data = {"x": x, "y": (x[:, 0] + rng.normal(size=rows) > 0).astype(int)}
how = {"engine": "ep"} if sys.argv[2] == "ep" else {"optimizer": sys.argv[2]}
fit = gpdsl.compile(text).fit(data, inducing=100, batch=0, steps=1, tolerance=1e-4, **how)
assert np.isfinite(fit.elbo)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak(rows: int, optimizer: str) -> float:
    """GiB at most, of a fit in a process of its own."""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LARGE_BATCH, str(rows), optimizer], capture_output=True, text=True, cwd=root, check=True
    )
    return int(done.stdout) / 2**20


@pytest.mark.slow
@pytest.mark.parametrize("optimizer,rows", [("lbfgs", 1_000_000), ("natural", 500_000), ("ep", 400_000)])
def test_a_large_batch_fits_in_two_gibibytes(optimizer: str, rows: int) -> None:
    assert peak(rows, optimizer) < 2.0


def test_explain_says_how_many_rows_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = gpdsl.compile(COUNTS), data_of("n")
    assert "rows at a time" not in model.explain(data, inducing=6)
    monkeypatch.setattr(blocks, "LARGE", 0)
    monkeypatch.setattr(blocks, "AT_ONCE", 0)
    assert "features of 64 rows at a time: those of all 150 would be a burden" in model.explain(data, inducing=6)
