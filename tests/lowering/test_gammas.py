"""Differences of log gamma functions against mpmath, from tiny arguments to those where double precision cancels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from gpdsl.lowering.tails import LARGE, log_beta, log_rising
from gpdsl.program.cache import jit

X = [*np.geomspace(1e-6, 1e16, 23), LARGE - 1e-9, LARGE]


@jit
def everything(x: jax.Array, n: jax.Array) -> tuple[jax.Array, ...]:
    return log_rising(x, n), log_beta(x, n), log_beta(n, x), jax.vmap(jax.grad(log_rising), (0, None))(x, n)


@pytest.mark.parametrize("n", [0.5, 1.0, 17.3, 1e7])
def test_values_and_slopes(n: float) -> None:
    with jax.enable_x64(True), mp.workdps(50):
        rising, beta, turned, slope = everything(np.array(X), n)
        exact = [mp.loggamma(mp.mpf(each) + n) - mp.loggamma(each) for each in X]
        np.testing.assert_allclose(rising, [float(each) for each in exact], rtol=1e-13, atol=1e-13)
        expected = [float(mp.loggamma(n) - each) for each in exact]
        np.testing.assert_allclose(beta, expected, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(turned, beta, rtol=1e-15)
        slopes = [float(mp.digamma(mp.mpf(each) + n) - mp.digamma(each)) for each in X]
        np.testing.assert_allclose(slope, slopes, rtol=1e-8)


def test_no_step_is_no_rise() -> None:
    none, single = jit(lambda x: (log_rising(x, 0.0), log_rising(x, 2)))(np.array([0.3, 1e9], "f4"))
    assert none.tolist() == [0.0, 0.0] and single.dtype == jnp.float32
