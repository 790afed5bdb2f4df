"""Logarithms of tail probabilities against mpmath, and their derivatives against densities."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.typing import ArrayLike
from scipy import special, stats

from gpdsl.lowering import tails
from gpdsl.program.cache import jit


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def derivatives(function: Callable[[ArrayLike], jax.Array], at: np.ndarray) -> np.ndarray:
    return np.asarray(jit(jax.vmap(jax.grad(function)))(jnp.asarray(at)))


@jit
def gammas(shape: jax.Array, x: jax.Array) -> list[tuple[jax.Array, ...]]:
    """Both tails, each with its slopes in the shape and in its argument."""
    both = (tails.log_gamma_cdf, tails.log_gamma_sf)
    return [jax.vmap(jax.value_and_grad(each, (0, 1)), (None, 0))(shape, x) for each in both]


def test_gamma() -> None:
    for shape in (0.3, 40.0):
        x = np.concatenate([np.geomspace(1e-10, 900.0, 40), shape * np.array([0.6, 0.9, 1.0, 1.1])])
        below = [float(mpmath.log(mpmath.gammainc(shape, 0, v, regularized=True))) for v in x]
        above = [float(mpmath.log(mpmath.gammainc(shape, v, mpmath.inf, regularized=True))) for v in x]
        density = stats.gamma.logpdf(x, shape)
        for (found, (_, slope)), expected, sign in zip(gammas(shape, x), (below, above), (1, -1), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)
            np.testing.assert_allclose(slope, sign * np.exp(density - expected), rtol=1e-8, atol=1e-300)


def test_gamma_where_the_probability_underflows() -> None:
    """So far out that P is no double; elsewhere the same functions come from another formula without a step."""
    for shape in (900.0, 1e4):
        edges = shape - 20 * shape**0.5, 30 + shape + 20 * shape**0.5
        near = [edge * (1 + sign * 1e-15) for edge in edges for sign in (-1, 1)]
        x = np.resize(np.array([shape * 0.5, shape * 1.6, shape * 3.0, *near]), 44)  # the same program
        (low, low_slopes), (high, high_slopes) = gammas(shape, x)
        below, above = mpmath.gammainc(shape, 0, x[0], True), mpmath.gammainc(shape, x[2], mpmath.inf, True)
        assert float(low[0]) == pytest.approx(float(mpmath.log(below)), rel=1e-12)
        assert float(high[2]) == pytest.approx(float(mpmath.log(above)), rel=1e-12)
        assert np.isfinite([*low_slopes, *high_slopes]).all()
        assert float(low[3]) == pytest.approx(float(low[4]), rel=1e-9)
        assert float(high[5]) == pytest.approx(float(high[6]), rel=1e-9)


def test_student() -> None:
    """Also where the probability underflows, and at zero, where the incomplete beta function has no derivative."""

    @jit
    def found(df: jax.Array, z: jax.Array) -> tuple[jax.Array, ...]:
        value, slope = tails.log_student_cdf, jax.grad(tails.log_student_cdf, 1)
        return tuple(jax.vmap(each, (None, 0))(df, z) for each in (value, slope, jax.grad(slope, 1)))

    z = np.concatenate([np.linspace(-40, 40, 81), [-2.999, -3.001]])
    for df in (1.0, 3.5, 30.0):
        value, slope, curvature = found(df, z)
        np.testing.assert_allclose(value, stats.t.logcdf(z, df), rtol=1e-10)
        np.testing.assert_allclose(slope, np.exp(stats.t.logpdf(z, df) - stats.t.logcdf(z, df)), rtol=1e-9)
        assert np.isfinite(curvature).all()
    df, far = 200.0, -1e3
    with mpmath.workdps(40):
        ratio = mpmath.mpf(df) / (df + mpmath.mpf(far) ** 2)
        expected = mpmath.log(mpmath.betainc(df / 2, 0.5, 0, ratio, regularized=True) / 2)
    assert expected < -800
    value, slope, _ = found(df, np.full_like(z, far))
    assert float(value[0]) == pytest.approx(float(expected), rel=1e-12)
    assert float(slope[0]) == pytest.approx(df / -far, rel=1e-3)


interval = jit(jax.value_and_grad(tails.log_ndtr_interval, (0, 1)))


@pytest.mark.parametrize("bounds", [(8.0, 9.0), (-40.0, -39.0), (0.0, 1.0), (-1e-9, 1e-9), (30.0, 31.0), (-9.0, 9.0)])
def test_normal_interval(bounds: tuple[float, float]) -> None:
    low, high = sorted(-abs(b) for b in bounds) if bounds[0] * bounds[1] > 0 else bounds
    with mpmath.workdps(60):
        expected = float(mpmath.log(mpmath.ncdf(mpmath.mpf(high)) - mpmath.ncdf(mpmath.mpf(low))))
    found, slopes = interval(*bounds)
    assert float(found) == pytest.approx(expected, rel=1e-8, abs=1e-7)
    assert all(np.isfinite(float(slope)) for slope in slopes)


def test_log_ndtr() -> None:
    """Value, slope (density over distribution function) and curvature, -s (s + x), across both joints."""
    x = np.concatenate([-np.geomspace(1e8, 1e-6, 60), [-20.0, -19.999999, 0.0], np.linspace(0.01, 37, 40)])
    with mpmath.workdps(340):
        value = [mpmath.log(mpmath.ncdf(mpmath.mpf(v))) for v in x]
        slope = [mpmath.exp(mpmath.log(mpmath.npdf(mpmath.mpf(v))) - of) for v, of in zip(x, value, strict=True)]
        curvature = [-s * (s + mpmath.mpf(v)) for v, s in zip(x, slope, strict=True)]
    functions = (tails.log_ndtr, jax.grad(tails.log_ndtr), jax.grad(jax.grad(tails.log_ndtr)))
    first, found, second = jit(lambda x: [jax.vmap(each)(x) for each in functions])(x)
    np.testing.assert_allclose(first, np.asarray(value, float), rtol=1e-12)
    np.testing.assert_allclose(found, np.asarray(slope, float), rtol=1e-11)
    near = x > -100  # beyond, s and x cancel
    np.testing.assert_allclose(second[near], np.asarray(curvature, float)[near], rtol=1e-7, atol=1e-300)
    single = jit(tails.log_ndtr)(jnp.asarray(x, jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, special.log_ndtr(np.asarray(x, np.float32).astype(float)), rtol=1e-5, atol=1e-37)


def test_log1mexp() -> None:
    x = np.geomspace(1e-300, 700.0, 200)
    expected = np.where(x < 1, np.log(-special.expm1(-x)), special.log1p(-np.exp(-x)))
    np.testing.assert_allclose(tails.log1mexp(x), expected, rtol=1e-13)
    assert np.isfinite(derivatives(tails.log1mexp, np.array([0.0, 1e-200, 0.5, 800.0]))).all()


def test_single_precision_stays_single_and_finite() -> None:
    x = jnp.geomspace(1e-6, 300.0, 50, dtype=jnp.float32)
    functions = (tails.log_gamma_cdf, tails.log_gamma_sf, tails.log_student_cdf)
    for found in jit(lambda x: [function(2.5, x) for function in functions])(x):
        assert found.dtype == jnp.float32
        assert np.isfinite(found).all()
