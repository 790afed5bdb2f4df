"""Rows whose own bound has several maxima end at the highest."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

import gpdsl


def test_a_row_between_two_parts_of_a_mixture_ends_at_the_higher_maximum() -> None:
    """Two rows far apart: the best of many searches by a dense sum says how high the bound of each may be."""
    model = gpdsl.compile(
        "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(0.3))\n"
        "y ~ Mixture([0.5, 0.5], Normal(f - 1.5, 0.2), Normal(1.5 * f + 1.5, 0.3))\n"
    )
    z = np.linspace(-8, 8, 2001)
    share = norm.pdf(z) * (z[1] - z[0])

    def loss(q: np.ndarray) -> float:
        f = q[0] + np.exp(q[1]) * z
        density = np.logaddexp(norm.logpdf(-0.4, f - 1.5, 0.2), norm.logpdf(-0.4, 1.5 * f + 1.5, 0.3)) - np.log(2)
        return float(0.5 * (np.exp(2 * q[1]) + q[0] ** 2 - 1) - q[1] - share @ density)

    best = -min(minimize(loss, [mean, -1.5], method="Nelder-Mead").fun for mean in (-2.0, -1.0, 1.0, 2.0))
    fit = model.fit({"x": np.array([0.0, 100.0]), "y": np.array([-0.4, -0.4])})
    assert fit.elbo / 2 == pytest.approx(best, abs=1e-3)
    assert "row(s) is higher" in fit.message
