"""Values of the evidence without gradients: what integration over the learnt parameters asks hundreds of times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.exact.engine import ExactProfile
from gpdsl.inference.natural import profiled
from gpdsl.inference.natural.profiled import EXPLORED, SitesProfile

KERNEL = "param ell : positive ~ LogNormal(0, 0.5)\nlatent f(x) ~ GP(0, RBF(ell))\n"
COUNTS = f"input x : real\noutput y : count\n{KERNEL}y ~ Poisson(exp(f))"
SPREAD = f"input x : real\noutput y : real\n{KERNEL}latent g(x) ~ GP(-1, RBF(2))\ny ~ Normal(f, exp(g))"
VALUES = f"input x : real\noutput y : real\nparam s : positive ~ LogNormal(-1, 1)\n{KERNEL}y ~ Normal(f, s)"


def profile_of(text: str) -> Any:
    """Of a fit to a few rows."""
    x = np.linspace(0, 6, 25)
    y = np.sin(x) + 0.2 * np.cos(9 * x)
    fit = gpdsl.compile(text).fit({"x": x, "y": np.round(np.exp(y)) if "count" in text else y})
    ended = fit.inspected.ended
    return ended.profile(), {name: jnp.asarray(each) for name, each in ended.learnt.items()}


def moved(learnt: Mapping[str, Any], by: float) -> dict[str, Any]:
    """All parameters moved on the real line."""
    return {name: each + by for name, each in learnt.items()}


@pytest.mark.parametrize("text", [COUNTS, SPREAD, VALUES], ids=["row space", "one program", "exact"])
def test_values_alone_are_those_that_come_with_gradients(text: str) -> None:
    profile, learnt = profile_of(text)
    assert isinstance(profile, ExactProfile if text is VALUES else SitesProfile)
    for by in (-0.7, 0.0, 0.4):
        value = profile.value(moved(learnt, by))
        assert value == pytest.approx(profile(moved(learnt, by))[0], abs=1e-8 if text is VALUES else EXPLORED)


@pytest.mark.parametrize("text", [COUNTS, SPREAD], ids=["row space", "one program"])
def test_the_posterior_at_a_value_takes_no_other_evaluation(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    profile, learnt = profile_of(text)
    there = moved(learnt, 1.0)
    profile(learnt)
    value, before = profile.value(there), profile.compute
    monkeypatch.setattr(profile, "compute", None)
    found = profile.at(there)
    assert found.elbo == value
    monkeypatch.setattr(profile, "compute", before)
    monkeypatch.setattr(profiled, "EXPLORED", 0.0)
    profile._seen.clear()
    best = profile.at(there)
    for q, exact in zip(found.posterior, best.posterior, strict=True):
        np.testing.assert_allclose(q.mean, exact.mean, atol=0.02)
        np.testing.assert_allclose(
            q.root @ np.swapaxes(q.root, -1, -2), exact.root @ np.swapaxes(exact.root, -1, -2), atol=0.02
        )


def test_an_evidence_without_a_factor_is_no_number() -> None:
    profile, learnt = profile_of(VALUES)
    assert not np.isfinite(profile.value({**learnt, "s": jnp.asarray(-800.0)}))
