"""Layers of few rows: fits that settle, never below where they start, and passes that are spread evenly."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.layered import planning
from gpdsl.inference.sampling import spread_normals

ONE = "input x : real\noutput y : real\nparam ell : positive = 1\nparam sigma : positive = 0.1\n"
STEP = (
    ONE
    + """param ell_h : positive = 1
latent h(x) ~ GP(0, RBF(ell_h))
latent f(h) ~ GP(0, RBF(ell))
y ~ Normal(f, sigma)"""
)
ONE += "latent f(x) ~ GP(0, RBF(ell))\ny ~ Normal(f, sigma)"
PASSING = STEP.replace("GP(0, RBF(ell_h))", "GP(x, s * RBF(ell_h))") + "\nparam s : positive = 0.0001"


def step(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, rows)
    return {"x": x, "y": np.where(x > 0.2, 1.0, -1.0) + 0.1 * rng.standard_normal(rows)}


def test_spread_normals_are_normal_in_opposite_pairs_one_from_every_share() -> None:
    found = np.asarray(spread_normals(jax.random.key(0), (6, 2000, 2), jnp.dtype(float)))
    np.testing.assert_array_equal(found[:3], -found[3:])
    shares = np.sort(np.floor(3 * 2 * stats.norm.sf(np.abs(found[:3]))), axis=0)
    np.testing.assert_array_equal(shares, np.broadcast_to(np.arange(3.0)[:, None, None], shares.shape))
    for k in range(2):
        assert stats.kstest(found[0, :, k], stats.norm.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(found[:3].reshape(-1, 2).T)[0, 1]) < 4 / np.sqrt(6000)


def test_two_layers_of_few_rows_begin_near_one_and_settle_far_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SETTLING", 360)
    data = step(60)
    one, fit = (gpdsl.compile(each).fit(data, progress=False) for each in (ONE, STEP))
    assert fit.history[0, 1] > one.elbo - 40
    assert fit.elbo > one.elbo + 10
    assert fit.message.startswith("converged: 120 more steps") == (not fit.notes)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "least"), [(STEP, 70.0), (PASSING, 100.0)])
def test_two_layers_of_a_step_have_the_bound_of_long_searches(text: str, least: float) -> None:
    """On 200 rows, where one layer has 22 nats."""
    assert gpdsl.compile(text).fit(step(200), progress=False).elbo > least


def test_a_fit_whose_steps_lead_astray_ends_where_it_began() -> None:
    data = step(40)
    one = gpdsl.compile(ONE).fit(data, progress=False)
    lost = gpdsl.compile(PASSING).fit(data, progress=False, steps=5, learning_rate=30.0, inducing=20)
    assert lost.history[-1, 1] < one.elbo - 100
    assert one.elbo - 10 < lost.elbo < one.elbo + 0.1


def test_steps_that_are_asked_for_are_taken_in_one_cycle() -> None:
    fit = gpdsl.compile(STEP).fit(step(30), progress=False, steps=60, inducing=10)
    assert fit.history[-1, 0] == 60
    assert fit.message == "all steps done"


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"dtype": "float32"}, marks=pytest.mark.slow)], ids=["double", "single"]
)
def test_counts_are_followed_by_half_steps(options: dict[str, Any]) -> None:
    """The last layer of a likelihood that is not Gaussian is where natural gradients alone bring it."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, 50)
    text = "input x : real\noutput n : count\nlatent h(x) ~ GP(x, 1e-10 * RBF(1))\nlatent f(h) ~ GP(0, RBF(1))\n"
    text += "n ~ Poisson(exp(f))"
    one = "input x : real\noutput n : count\nlatent f(x) ~ GP(0, RBF(1))\nn ~ Poisson(exp(f))"
    data = {"x": x, "n": rng.poisson(np.exp(x))}
    fit = gpdsl.compile(text).fit(data, progress=False, steps=100, inducing=20, **options)
    known = gpdsl.compile(one).fit(data, progress=False, inducing=20)
    np.testing.assert_allclose(fit.elbo, known.elbo, atol=0.01 if not options else 0.1)
