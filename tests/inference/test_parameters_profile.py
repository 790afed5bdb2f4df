"""Densities of parameters of models without latents, one place or many at a time, against SciPy."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gpdsl.inference.log_joint import log_volume
from gpdsl.inference.over_parameters import ParametersProfile
from tests.inference.problems import problem_of


def test_densities_of_many_places_are_those_of_each() -> None:
    """log p(y, m, s) of s > 0 itself, at more places than are computed together; and of log s with its slopes."""
    x = np.random.default_rng(0).normal(0.5, 2.0, 6)
    problem = problem_of(
        "output y : real\nparam m : real ~ Normal(0.2, 2)\n"
        "param s : positive ~ LogNormal(0.1, 0.5)\ny ~ Normal(m, s)\n",
        {"y": x},
    )
    profile = ParametersProfile(problem, None)  # type: ignore[arg-type]
    profile._size = 3
    rng = np.random.default_rng(1)
    m, free = rng.normal(size=7), rng.normal(size=7)
    forward = problem.program.parameters.constrain
    s = np.array([float(forward({"m": jnp.asarray(0.0), "s": jnp.asarray(each)})["s"]) for each in free])

    def joint(m: np.ndarray, s: np.ndarray) -> np.ndarray:
        each = stats.norm.logpdf(x, m[:, None], s[:, None]).sum(axis=1)
        return each + stats.norm.logpdf(m, 0.2, 2) + stats.lognorm.logpdf(s, 0.5, scale=np.exp(0.1))

    found, slopes = profile.several({"m": m, "s": free})
    volume = log_volume(problem.program, {"m": jnp.asarray(m[0]), "s": jnp.asarray(free[0])})
    whole, slope = profile({"m": jnp.asarray(m[0]), "s": jnp.asarray(free[0])})
    assert found[0] == pytest.approx(whole + float(volume), rel=1e-9)
    np.testing.assert_allclose(whole, joint(m, s)[0], rtol=1e-9)
    step = 1e-5
    np.testing.assert_allclose(slope["m"], ((joint(m + step, s) - joint(m - step, s)) / (2 * step))[0], rtol=1e-5)
    np.testing.assert_allclose(slopes["m"], (joint(m + step, s) - joint(m - step, s)) / (2 * step), rtol=1e-5)
    assert found.shape == slopes["s"].shape == (7,)
    lefts = found - joint(m, s)  # the volumes of the numbers learnt, which are functions of s alone
    moved = np.array([float(forward({"m": jnp.asarray(0.0), "s": jnp.asarray(v + step)})["s"]) for v in free])
    np.testing.assert_allclose(lefts, np.log((moved - s) / step), atol=1e-4)
    assert profile.at({"m": jnp.asarray(1.5)}).parameters == {"m": 1.5}
