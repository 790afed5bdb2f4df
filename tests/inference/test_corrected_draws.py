"""Weighted and moved draws of densities that are known: Gaussians in two dimensions, and both signs of one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gpdsl.inference.corrected_draws import BEYOND, EVEN, LEAST, Around, Drawn, Weighing, _step, resampled
from gpdsl.inference.images import Images
from gpdsl.inference.log_joint import LogJoint
from gpdsl.program.cache import precision

MEAN, ROOT = np.array([1.5, -0.5]), np.array([[0.5, 0.0], [0.3, 0.4]])
LOG_PRIOR, LOG_EVIDENCE = 0.7, -3.2
ONE = Images(np.array([[0, 1]]), np.ones((1, 2)))
SIGNS = Images(np.array([[0, 1], [0, 1]]), np.array([[1.0, 1.0], [-1.0, -1.0]]))


class Known(LogJoint):
    """p(y, w) = exp(LOG_EVIDENCE) times the mean of N(MEAN, ROOT ROOT') over its images."""

    def __init__(self, images: Images) -> None:
        object.__setattr__(self, "images", images)

    @property
    def data(self) -> Any:
        return ()

    def log_prior(self, learnt: Any) -> Any:
        return jnp.asarray(LOG_PRIOR)

    def log_likelihood(self, learnt: Any, white: Any, data: Any) -> Any:
        signs = self.images.signs[:, :1]  # type: ignore[attr-defined]
        squares = jnp.sum(((white - signs * MEAN) @ np.linalg.inv(ROOT).T) ** 2, axis=1)
        mixed = jnp.log(jnp.mean(jnp.exp(-0.5 * squares))) - np.linalg.slogdet(ROOT)[1]
        return LOG_EVIDENCE - LOG_PRIOR + mixed + 0.5 * jnp.sum(white**2)  # both without log 2 pi


def around(mean: np.ndarray, root: np.ndarray) -> Around:
    numbers = (jnp.asarray(each) for each in (mean, root, np.linalg.inv(root)))
    return Around(({}, *numbers, float(np.linalg.slogdet(root)[1])))


@pytest.mark.parametrize("images", [ONE, SIGNS])
def test_all_weights_of_q_itself_are_the_evidence(images: Images) -> None:
    with precision("float64"):
        drawn = Weighing(Known(images), images, 2000).weighed(around(MEAN, ROOT), jax.random.key(0))
    np.testing.assert_allclose(drawn.log_weights, LOG_EVIDENCE, atol=1e-10)
    assert drawn.log_evidence == pytest.approx(LOG_EVIDENCE)
    z = (drawn.white - MEAN) @ np.linalg.inv(ROOT).T
    np.testing.assert_allclose(np.mean(z, axis=0), 0.0, atol=0.08)
    np.testing.assert_allclose(np.cov(z.T), np.eye(2), atol=0.12)


def test_draws_that_go_there_from_the_prior_are_of_the_joint_density_and_stay() -> None:
    with precision("float64"):
        weighing, q = Weighing(Known(ONE), ONE, 1000), around(MEAN, ROOT).prior()
        drawn = weighing.tempered(q, jax.random.key(1))
        stayed, after = weighing.stays(q, drawn, 500, jax.random.key(2))
        shifted = Drawn(drawn.white + 0.3 * ROOT[:, 0], drawn.log_weights)
        assert not weighing.stays(q, shifted, 500, jax.random.key(2))[0]
    assert stayed and drawn.settled and len(after) == 500
    assert drawn.log_evidence == pytest.approx(LOG_EVIDENCE, abs=0.15)
    for white in (drawn.white, after):
        z = (white - MEAN) @ np.linalg.inv(ROOT).T
        np.testing.assert_allclose(np.mean(z, axis=0), 0.0, atol=0.15)
        np.testing.assert_allclose(np.cov(z.T), np.eye(2), atol=0.2)


def test_a_step_leaves_the_weights_as_even_as_is_asked_for() -> None:
    log_ratios = -(stats.norm.ppf(np.linspace(0.01, 0.99, 200)) ** 2) * 5.0
    step = _step(log_ratios, 1.0)
    weights = np.exp(step * log_ratios)
    assert 0.0 < step < 1.0 and np.mean(weights) ** 2 / np.mean(weights**2) == pytest.approx(EVEN)
    assert _step(0.01 * log_ratios, 0.6) == 0.6


def test_draws_are_kept_as_often_as_their_weights_say() -> None:
    weights = np.array([0.2, 0.0, 0.5, 0.3])
    counts = np.bincount(resampled(weights, 1001, np.random.default_rng(0)), minlength=4)
    assert np.all(np.abs(counts - 1001 * weights) < 1.0) and counts.sum() == 1001


def test_draws_that_weigh_nothing_beside_others_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many are moved as they are worth, or `LEAST`, from where q has them."""
    white = np.random.default_rng(0).normal(size=(60, 2))
    logs, seen = np.where(np.arange(60) < 30, 0.0, 900.0), list[Any]()
    with precision("float64"):
        weighing = Weighing(Known(ONE), ONE, 60)
        monkeypatch.setattr(weighing, "_on", lambda q, z, key: z + 1.0)
        monkeypatch.setattr(weighing, "_stayed", lambda before, after: seen.append((before, after)) or True)
        stayed, moved = weighing.stays(around(MEAN, ROOT), Drawn(white, logs), 500, jax.random.key(0))
    kept = MEAN + np.asarray(seen[0][0]) @ ROOT.T
    assert stayed and len(kept) == max(30, LEAST)
    assert {tuple(np.round(each, 6)) for each in kept} == {tuple(np.round(each, 6)) for each in white[30:]}
    np.testing.assert_allclose(moved, kept + ROOT.sum(axis=1), rtol=1e-6)


def test_few_draws_are_moved_about_as_wide_a_gaussian_as_q_and_many_about_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with precision("float64"):
        weighing = Weighing(Known(ONE), ONE, 2)
        monkeypatch.setattr(weighing, "_moved_on", lambda z, mean, root, *_: (mean, root @ root.T / BEYOND**2))
        mean, spread = weighing._on(around(MEAN, ROOT), jnp.ones((2, 2)), jax.random.key(0))
        np.testing.assert_allclose(mean, 1.0)
        np.testing.assert_allclose(spread, 0.5 * np.eye(2))  # two draws that are the same: half of it is that of q
        many = 0.1 * jax.random.normal(jax.random.key(1), (2000, 2), float)
        _, spread = weighing._on(around(MEAN, ROOT), many, jax.random.key(0))
    np.testing.assert_allclose(spread, np.cov(many.T) + 1e-3 * np.eye(2), rtol=2e-3, atol=1e-5)
