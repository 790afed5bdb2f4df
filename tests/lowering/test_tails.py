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


@pytest.mark.parametrize("shape", [0.3, 40.0])
def test_gamma(shape: float) -> None:
    x = np.concatenate([np.geomspace(1e-10, 900.0, 40), shape * np.array([0.6, 0.9, 1.0, 1.1])])
    below = [float(mpmath.log(mpmath.gammainc(shape, 0, v, regularized=True))) for v in x]
    above = [float(mpmath.log(mpmath.gammainc(shape, v, mpmath.inf, regularized=True))) for v in x]
    np.testing.assert_allclose(jit(tails.log_gamma_cdf)(shape, x), below, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(jit(tails.log_gamma_sf)(shape, x), above, rtol=1e-11, atol=1e-14)
    density = stats.gamma.logpdf(x, shape)
    np.testing.assert_allclose(
        derivatives(lambda v: tails.log_gamma_cdf(shape, v), x), np.exp(density - below), rtol=1e-8, atol=1e-300
    )
    np.testing.assert_allclose(
        derivatives(lambda v: tails.log_gamma_sf(shape, v), x), -np.exp(density - above), rtol=1e-8, atol=1e-300
    )


@pytest.mark.parametrize("shape", [900.0, 1e4])
def test_gamma_where_the_probability_underflows(shape: float) -> None:
    """So far out that P is no double; elsewhere the same functions come from another formula without a step."""
    x = np.array([shape * 0.5, shape * 1.6, shape * 3.0])
    below, above = mpmath.gammainc(shape, 0, x[0], True), mpmath.gammainc(shape, x[2], mpmath.inf, True)
    assert float(tails.log_gamma_cdf(shape, x[0])) == pytest.approx(float(mpmath.log(below)), rel=1e-12)
    assert float(tails.log_gamma_sf(shape, x[2])) == pytest.approx(float(mpmath.log(above)), rel=1e-12)
    for function in (tails.log_gamma_cdf, tails.log_gamma_sf):
        for argument in (0, 1):
            assert np.isfinite(jax.vmap(jax.grad(function, argument), (None, 0))(shape, jnp.asarray(x))).all()
    for edge, function in (
        (shape - 20 * shape**0.5, tails.log_gamma_cdf),
        (30 + shape + 20 * shape**0.5, tails.log_gamma_sf),
    ):
        sides = function(shape, jnp.asarray([edge * (1 - 1e-15), edge * (1 + 1e-15)]))
        assert float(sides[0]) == pytest.approx(float(sides[1]), rel=1e-9)


def test_student_where_the_probability_underflows() -> None:
    df, z = 200.0, -1e3
    with mpmath.workdps(40):
        ratio = mpmath.mpf(df) / (df + mpmath.mpf(z) ** 2)
        expected = mpmath.log(mpmath.betainc(df / 2, 0.5, 0, ratio, regularized=True) / 2)
    assert expected < -800
    assert float(tails.log_student_cdf(df, z)) == pytest.approx(float(expected), rel=1e-12)
    assert float(jax.grad(tails.log_student_cdf, 1)(df, z)) == pytest.approx(df / -z, rel=1e-3)


@pytest.mark.parametrize("df", [1.0, 3.5, 30.0])
def test_student(df: float) -> None:
    z = np.concatenate(
        [np.linspace(-40, 40, 81), [-2.999, -3.001]]
    )  # zero among them, where the incomplete beta function has no derivative
    np.testing.assert_allclose(tails.log_student_cdf(df, z), stats.t.logcdf(z, df), rtol=1e-10)
    expected = np.exp(stats.t.logpdf(z, df) - stats.t.logcdf(z, df))
    np.testing.assert_allclose(derivatives(lambda v: tails.log_student_cdf(df, v), z), expected, rtol=1e-9)
    curvature = derivatives(jax.grad(lambda v: tails.log_student_cdf(df, v)), z)
    assert np.isfinite(curvature).all()


@pytest.mark.parametrize("bounds", [(8.0, 9.0), (-40.0, -39.0), (0.0, 1.0), (-1e-9, 1e-9), (30.0, 31.0), (-9.0, 9.0)])
def test_normal_interval(bounds: tuple[float, float]) -> None:
    low, high = sorted(-abs(b) for b in bounds) if bounds[0] * bounds[1] > 0 else bounds
    with mpmath.workdps(60):
        expected = float(mpmath.log(mpmath.ncdf(mpmath.mpf(high)) - mpmath.ncdf(mpmath.mpf(low))))
    assert float(tails.log_ndtr_interval(*bounds)) == pytest.approx(expected, rel=1e-8, abs=1e-7)
    slopes = jax.grad(tails.log_ndtr_interval, (0, 1))(*bounds)
    assert all(np.isfinite(float(slope)) for slope in slopes)


def test_log_ndtr() -> None:
    """Value, slope (density over distribution function) and curvature, -s (s + x), across both joints."""
    x = np.concatenate([-np.geomspace(1e8, 1e-6, 60), [-20.0, -19.999999, 0.0], np.linspace(0.01, 37, 40)])
    with mpmath.workdps(340):
        value = [mpmath.log(mpmath.ncdf(mpmath.mpf(v))) for v in x]
        slope = [mpmath.exp(mpmath.log(mpmath.npdf(mpmath.mpf(v))) - of) for v, of in zip(x, value, strict=True)]
        curvature = [-s * (s + mpmath.mpf(v)) for v, s in zip(x, slope, strict=True)]
    np.testing.assert_allclose(jit(tails.log_ndtr)(x), np.asarray(value, float), rtol=1e-12)
    np.testing.assert_allclose(derivatives(tails.log_ndtr, x), np.asarray(slope, float), rtol=1e-11)
    near = x > -100  # beyond, s and x cancel
    second = derivatives(jax.grad(tails.log_ndtr), x[near])
    np.testing.assert_allclose(second, np.asarray(curvature, float)[near], rtol=1e-7, atol=1e-300)
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
    for function in (tails.log_gamma_cdf, tails.log_gamma_sf, tails.log_student_cdf):
        found = jit(function)(2.5, x)
        assert found.dtype == jnp.float32
        assert np.isfinite(found).all()


def test_the_slope_of_student_is_its_density_over_its_share() -> None:
    z = np.array([-40.0, -3.001, -2.999, -0.4, 0.0, 1.3, 25.0])
    value, slope = jit(lambda v: jax.jvp(lambda v: tails.log_student_cdf(3.5, v), (v,), (jnp.ones_like(v),)))(z)
    np.testing.assert_allclose(value, stats.t.logcdf(z, 3.5), rtol=1e-10)
    np.testing.assert_allclose(slope, np.exp(stats.t.logpdf(z, 3.5) - stats.t.logcdf(z, 3.5)), rtol=1e-9)
