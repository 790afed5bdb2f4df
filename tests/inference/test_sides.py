"""Rows whose own bound has several maxima end at the highest."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import OptimizeResult, minimize
from scipy.stats import norm

import gpdsl
from gpdsl.inference import sides


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


def test_a_row_is_highest_where_a_search_from_everywhere_ends() -> None:
    """Of log p(f) = 3 cos(2 f), whose mean under N(m, v) is 3 exp(-2 v) cos(2 m), beside cavities of four rows."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    centre, wide = np.array([0.6, -1.9, 2.0]), np.array([2.0, 0.5, 1.5])
    at = np.array([0.1, -3.0, 3.1]), np.array([0.2, 0.1, 0.3])

    def bound(m: Any, v: Any, c: float, w: float) -> Any:
        """E_q[log p + log cavity - log q]."""
        f = np.asarray(m)[..., None] + np.sqrt(v)[..., None] * nodes
        further = (f - np.asarray(m)[..., None]) ** 2 / np.asarray(v)[..., None] - (f - c) ** 2 / w
        return (3.0 * np.cos(2.0 * f) + 0.5 * further) @ weights / weights.sum() + 0.5 * np.log(v / w)

    def highest(c: float, w: float) -> OptimizeResult:
        m, log_v = (each.ravel() for each in np.meshgrid(np.linspace(c - 6, c + 6, 121), np.linspace(-5, 1, 31)))
        top = int(np.argmax(bound(m, np.exp(log_v), c, w)))
        return minimize(lambda p: -bound(p[0], np.exp(p[1]), c, w), [m[top], log_v[top]], tol=1e-12)

    best = [highest(*cavity) for cavity in zip(centre, wide, strict=True)]
    gain, linear, precision = sides._highest(
        lambda m, v: 3.0 * jnp.exp(-2.0 * v) * jnp.cos(2.0 * m),
        *(jnp.append(each, 0.3) for each in at),
        jnp.append(1.0 / wide, -0.1),
        jnp.append(centre / wide, 0.2),
    )
    here = [bound(*each) for each in zip(*at, centre, wide, strict=True)]
    m, v = np.array([each.x[0] for each in best]), np.exp([each.x[1] for each in best])
    np.testing.assert_allclose(gain, [*(-each.fun - own for each, own in zip(best, here, strict=True)), 0.0], atol=1e-6)
    np.testing.assert_allclose(precision[:3], 1.0 / v - 1.0 / wide, rtol=1e-4)
    np.testing.assert_allclose(linear[:3], m / v - centre / wide, rtol=1e-4, atol=1e-6)
