"""Fits leave starts from which nothing leads away, by as few latents as that takes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.natural import minibatch, site_starts
from gpdsl.inference.natural.site_starts import departed
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.program.cache import precision
from tests.inference.problems import problem_of

NETWORK = """
index p in 1..3
input x : real
output y[p] : real
param sigma[p] : positive = 0.2
latent w[p](x) ~ GP(0, RBF(2))
latent g(x) ~ GP(0, RBF(1))
y[p] ~ Normal(w[p] * g, sigma[p])
"""


def test_a_network_starts_with_one_latent_that_keeps_its_sign(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that gives slopes to all others: the weights stay at their prior."""
    seen = []

    def recorded(*arguments: object) -> object:
        seen.append(departed(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(minibatch, "departed", recorded)
    x = rng.uniform(-2, 2, 90)
    y = np.stack([np.sin(k * x) for k in (1, 2, 3)], axis=1) + 0.1 * rng.standard_normal((90, 3))
    gpdsl.compile(NETWORK).fit({"x": x, "y": y}, inducing=10, batch=30, steps=5)
    ((start,), _) = seen[0]
    assert np.all(start.linear[:3] == 0)
    function = np.asarray(start.factor[3] @ start.linear[3])
    assert np.all(function > 0) or np.all(function < 0)
    assert np.sqrt(np.mean(function**2)) == pytest.approx(1.0)


def test_a_batch_starts_with_that_one_too(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for all rows as block by block; a row that says nothing changes nothing."""
    x = rng.uniform(-2, 2, 90)
    y = np.stack([np.sin(k * x) for k in (1, 2, 3)], axis=1) + 0.1 * rng.standard_normal((90, 3))
    y[5] = np.nan
    whole = _starting(x, y)
    means = np.asarray(whole.linear / whole.precision)
    assert np.all(means[:, :3] == 0)
    assert np.all(means[:, 3] > 0) or np.all(means[:, 3] < 0)
    monkeypatch.setattr(site_starts, "block_rows", lambda *_: 32)
    parts = _starting(x, y)
    np.testing.assert_allclose(parts.precision, whole.precision, rtol=1e-12)
    np.testing.assert_allclose(parts.linear, whole.linear, rtol=1e-9, atol=1e-12)


def _starting(x: np.ndarray, y: np.ndarray) -> Sites:
    """Sites at the start of a batch fit."""
    problem = problem_of(NETWORK, {"x": x, "y": y}, inducing=10, batch=0, posterior="full")
    return site_starts.start_sites(problem)


def test_sites_of_a_known_posterior_give_it_back(rng: np.random.Generator) -> None:
    """Its precision is I + s G, and that times its mean sqrt(s) h."""
    root, mean = np.tril(rng.normal(size=(2, 3, 3))) + 2 * np.eye(3), rng.normal(size=(2, 3))
    scale = np.array([0.7, 2.0])
    with precision("float64"):
        known = Whitened(jnp.asarray(mean[None]), jnp.asarray(root[None]))
        found = site_starts._sites_of(known, jnp.eye(3)[None], jnp.asarray(scale))
        covariance = np.linalg.inv(np.eye(3) + scale[:, None, None] * np.asarray(found.precision))
        shift = np.sqrt(scale)[:, None] * np.asarray(found.linear)
    np.testing.assert_allclose(covariance, root @ np.swapaxes(root, 1, 2), rtol=1e-9)
    np.testing.assert_allclose(np.einsum("jab,jb->ja", covariance, shift), mean, rtol=1e-9)
