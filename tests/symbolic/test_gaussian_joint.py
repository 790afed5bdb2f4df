"""Closed-form expectations under correlated Gaussians, against quadrature over independent normals behind them."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings, strategies as st

from gpdsl.symbolic.closed import expectation
from gpdsl.symbolic.gaussian import joint_moments_of, moments_of

from . import quadrature
from .test_gaussian_random import LATENTS, F, G, H, S, Y, closed_terms

MOMENTS = joint_moments_of(LATENTS)
Z = {f: sp.Symbol(f"z{f.name}", real=True) for f in LATENTS}


def assert_exact(expression: sp.Expr, mean: np.ndarray, root: np.ndarray, data: dict) -> None:
    """The closed form is the quadrature of the same expression at f = mean + root z, to 1e-8 of its scale."""
    latents = LATENTS[: len(mean)]
    closed = expectation(expression, latents, joint_moments_of(latents))
    assert closed is not None
    covariance = root @ root.T
    table = dict(data)
    for i, f in enumerate(latents):
        table |= {MOMENTS.mean[f]: mean[i], MOMENTS.variance[f]: covariance[i, i]}
        table |= {MOMENTS.between(f, g): covariance[i, j] for j, g in enumerate(latents)}
    moved = {
        f: float(mean[i]) + sum(float(root[i, j]) * Z[g] for j, g in enumerate(latents)) for i, f in enumerate(latents)
    }
    normals = [Z[f] for f in latents]
    behind = dict.fromkeys(normals, 0.0), dict.fromkeys(normals, 1.0)
    expected, scale = quadrature.expectation(expression.xreplace(moved), *behind, data, points=24)
    assert quadrature.value(closed, table) == pytest.approx(expected, rel=1e-8, abs=1e-8 * scale + 1e-300)


def factor(numbers: np.ndarray, size: int) -> np.ndarray:
    """A lower triangular root with a positive diagonal."""
    root = np.tril(numbers.reshape(3, 3)[:size, :size], -1)
    return root + np.diag(0.2 + np.abs(np.diag(numbers.reshape(3, 3))[:size]))


unit = st.floats(-0.9, 0.9)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(closed_terms(), st.lists(unit, min_size=14, max_size=14))
def test_equals_quadrature(drawn: tuple[tuple[sp.Symbol, ...], sp.Expr], numbers: list[float]) -> None:
    latents, expression = drawn
    values = np.asarray(numbers)
    data = {Y: values[12], S: 1.5 + values[13]}
    assert_exact(expression, values[9 : 9 + len(latents)], factor(values[:9], len(latents)), data)


@pytest.mark.parametrize(
    "expression",
    [
        (Y - F * G - H) ** 4,
        sp.exp(-2 * F) * (Y - F * G) ** 2 / S,
        (sp.exp(F / 4) + sp.exp(G / 4)) ** 2 * (H - Y) ** 3,
        sp.exp(F - G / 2 + H / 3) * (F - 2 * G) ** 3 * H,
        F**3 * G**2 * H**3,
    ],
    ids=str,
)
def test_named_shapes(expression: sp.Expr) -> None:
    root = np.array([[0.7, 0, 0], [0.4, 0.6, 0], [-0.3, 0.5, 0.8]])
    assert_exact(expression, np.array([0.3, -0.7, 1.1]), root, {Y: 1.3, S: 0.8})


def test_without_correlation_it_is_the_expectation_of_independent_latents() -> None:
    expression = sp.exp(F / 2) * (Y - F * G * H) ** 2
    joint = expectation(expression, LATENTS, MOMENTS)
    apart = expectation(expression, LATENTS, moments_of(LATENTS))
    assert joint is not None and apart is not None
    assert sp.expand(joint.xreplace(dict.fromkeys(MOMENTS.covariance.values(), sp.Integer(0))) - apart) == 0


@pytest.mark.parametrize("expression", [F / G, sp.exp(F * G), (F + G + H) ** 1000, sp.prod(f**20 for f in LATENTS)])
def test_what_does_not_close(expression: sp.Expr) -> None:
    assert expectation(expression, LATENTS, MOMENTS) is None
