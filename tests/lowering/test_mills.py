"""Integrals of the normal density beyond a point against mpmath, near the mean and far out."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from gpdsl.lowering.tails import mills
from gpdsl.program.cache import jit

POINTS = (0.0, 0.7, 1.99, 2.0, 5.0, 15.9, 16.1, 30.0, 1e4)


def reference(order: int, x: float) -> float:
    """By the parabolic cylinder function: R_k(x) = k! exp(x^2 / 4) D_{-k-1}(x)."""
    with mpmath.workdps(40):
        return float(mpmath.factorial(order) * mpmath.exp(mpmath.mpf(x) ** 2 / 4) * mpmath.pcfd(-order - 1, x))


def found(order: int, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Values and slopes."""
    return jit(jax.vmap(jax.value_and_grad(partial(mills, order))))(x)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 6])
def test_against_parabolic_cylinder_functions(order: int) -> None:
    with jax.enable_x64(True):
        values, slopes = found(order, jnp.asarray(POINTS))
    np.testing.assert_allclose(values, [reference(order, x) for x in POINTS], rtol=1e-11)
    np.testing.assert_allclose(slopes, [-reference(order + 1, x) for x in POINTS], rtol=1e-11)


def test_single_precision_and_the_limit() -> None:
    points = (0.0, 1.0, 3.0, 7.0, 9.0, 1e4)
    with jax.enable_x64(False):
        values, slopes = found(1, jnp.asarray([*points, np.inf, 1e30]))
    assert values.dtype == jnp.float32 and float(values[-2]) == 0.0 and float(slopes[-1]) == 0.0
    np.testing.assert_allclose(values[:6], [reference(1, x) for x in points], rtol=2e-5)
