"""A prior of a parameter: the fit is the mode of evidence times prior, in the parameter itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

import gpdsl

MODEL = """input x : real
output y : real
param s : positive = 0.5 ~ Gamma(30, 20)
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(f, s)
"""


def test_the_fit_is_the_mode_without_a_jacobian() -> None:
    rng = np.random.default_rng(5)
    x = np.linspace(0, 4, 12)
    y = np.sin(x) + 0.3 * rng.standard_normal(12)
    gram = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-8 * np.eye(12)

    def target(s: float, jacobian: float = 0.0) -> float:
        evidence = stats.multivariate_normal.logpdf(y, np.zeros(12), gram + s**2 * np.eye(12))
        return -(evidence + stats.gamma.logpdf(s, 30, scale=1 / 20) + jacobian * np.log(s))

    found = gpdsl.compile(MODEL).fit({"x": x, "y": y})
    best = optimize.minimize_scalar(target, bounds=(0.1, 3), method="bounded", options={"xatol": 1e-10})
    moved = optimize.minimize_scalar(lambda s: target(s, 1.0), bounds=(0.1, 3), method="bounded")
    assert abs(moved.x - best.x) > 0.01  # what a Jacobian would do would be seen
    assert float(found.parameters["s"]) == pytest.approx(best.x, rel=1e-4)
    assert found.elbo == pytest.approx(-best.fun, abs=1e-6)
