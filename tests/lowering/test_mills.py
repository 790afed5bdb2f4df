"""Integrals of the normal density beyond a point against mpmath, near the mean and far out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath
import pytest

from gpdsl.lowering.tails import mills

POINTS = (0.0, 0.7, 1.99, 2.0, 5.0, 15.9, 16.1, 30.0, 1e4)


def reference(order: int, x: float) -> float:
    """By the parabolic cylinder function: R_k(x) = k! exp(x^2 / 4) D_{-k-1}(x)."""
    with mpmath.workdps(40):
        return float(mpmath.factorial(order) * mpmath.exp(mpmath.mpf(x) ** 2 / 4) * mpmath.pcfd(-order - 1, x))


@pytest.mark.parametrize("order", [0, 1, 2, 3, 6])
def test_against_parabolic_cylinder_functions(order: int) -> None:
    with jax.enable_x64(True):
        for x in POINTS:
            assert float(mills(order, jnp.asarray(x))) == pytest.approx(reference(order, x), rel=1e-11)
            assert float(jax.grad(lambda u: mills(order, u))(x)) == pytest.approx(-reference(order + 1, x), rel=1e-11)


def test_single_precision_and_the_limit() -> None:
    with jax.enable_x64(False):
        for x in (0.0, 1.0, 3.0, 7.0, 9.0, 1e4):
            assert float(mills(1, jnp.asarray(x, jnp.float32))) == pytest.approx(reference(1, x), rel=2e-5)
        assert float(mills(2, jnp.asarray(jnp.inf))) == 0.0
        assert float(jax.grad(lambda u: mills(0, u))(1e30)) == 0.0
