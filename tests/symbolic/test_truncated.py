"""Closed forms of conditions on Gaussians, |f|, max and min against adaptive integrals, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import numpy as np
import pytest
import sympy as sp
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm
from scipy.stats.qmc import Sobol

from gpdsl.lowering.table import evaluate
from gpdsl.symbolic.closed import expectation
from gpdsl.symbolic.conditions import both, choose, less, opposite
from gpdsl.symbolic.functions import absolute, maximum, minimum, sigmoid
from gpdsl.symbolic.gaussian import Moments, joint_moments_of, moments_of

F, G, H, Y, A = sp.symbols("f g h y a", real=True)
B = sp.Symbol("b", positive=True)
ONE, ZERO = sp.Integer(1), sp.Integer(0)
DATA = {Y: 0.7, A: -0.4, B: 1.3}
MARGINALS = [(0.3, 0.8), (-1.9, 0.25), (0.7, 2.5), (5.0, 0.5), (-6.0, 0.7)]

ONE_LATENT: dict[str, tuple[sp.Expr, Callable[[float], float], tuple[float, ...]]] = {
    "step": (choose(less(sp.Rational(1, 2), F), ONE, ZERO), lambda f: float(f > 0.5), (0.5,)),
    "Laplace": (-absolute(Y - F) / B, lambda f: -abs(0.7 - f) / 1.3, (0.7,)),
    "rectified": (maximum(ZERO, F - Y) ** 2, lambda f: max(0.0, f - 0.7) ** 2, (0.7,)),
    "leaky": ((Y - choose(less(0, F), F, F / 10)) ** 2, lambda f: (0.7 - (f if f > 0 else 0.1 * f)) ** 2, (0.0,)),
    "clipped": (minimum(maximum(F, -ONE), 2 * ONE) ** 3, lambda f: min(max(f, -1.0), 2.0) ** 3, (-1.0, 2.0)),
    "band": (
        choose(both(less(A, F), opposite(less(Y, F))), F**2 * sp.exp(F), -F),
        lambda f: f * f * math.exp(f) if -0.4 < f <= 0.7 else -f,
        (-0.4, 0.7),
    ),
    "empty": (choose(both(less(Y, F), less(F, A)), F, ONE), lambda f: 1.0, ()),
    "rate": (
        choose(less(2, sp.exp(F + A)), B, sp.exp(F)),
        lambda f: 1.3 if f > math.log(2) + 0.4 else math.exp(f),
        (math.log(2) + 0.4,),
    ),
    "chance": (
        choose(less(sigmoid(F), Y), F, ZERO),
        lambda f: f if f < math.log(0.7 / 0.3) else 0.0,
        (math.log(0.7 / 0.3),),
    ),
    "square": (choose(less(F**2, B), ONE, F), lambda f: 1.0 if f * f < 1.3 else f, (-math.sqrt(1.3), math.sqrt(1.3))),
    "square, of any sign": (
        choose(less(F**2, Y), ONE, choose(less(F**2, A), ONE, F)),
        lambda f: 1.0 if f * f < 0.7 else f,
        (-math.sqrt(0.7), math.sqrt(0.7)),
    ),
    "slope of any sign": (choose(less(A * F, Y), F**2, F), lambda f: f * f if -0.4 * f < 0.7 else f, (-1.75,)),
    "nested": (
        choose(less(F, A), ONE, choose(less(F, Y), F, absolute(F - 2))),
        lambda f: 1.0 if f < -0.4 else f if f < 0.7 else abs(f - 2),
        (-0.4, 0.7, 2.0),
    ),
}


def closed(expression: sp.Expr, moments: Moments) -> Callable[..., jax.Array]:
    """E[expression] as a function of the means, variances and covariances, in the order of `moments`."""
    found = expectation(expression, tuple(moments.mean), moments)
    assert found is not None
    symbols = (*moments.mean.values(), *moments.variance.values(), *moments.covariance.values())
    return jax.jit(lambda *values: evaluate(found, lambda s: {**DATA, **dict(zip(symbols, values, strict=True))}[s]))


def integral(function: Callable[[float], float], mean: float, sd: float, kinks: tuple[float, ...]) -> float:
    cuts = sorted({mean + sd * k for k in range(-16, 18, 2)} | {k for k in kinks if abs(k - mean) < 16 * sd})
    parts = [
        quad(lambda f: function(f) * norm.pdf(f, mean, sd), low, high, epsabs=0, epsrel=1e-10, limit=200)[0]
        for low, high in zip(cuts[:-1], cuts[1:], strict=True)
    ]
    return math.fsum(parts)


@pytest.mark.parametrize("name", ONE_LATENT)
def test_one_latent(name: str) -> None:
    expression, function, kinks = ONE_LATENT[name]
    moments = moments_of((F,))
    with jax.enable_x64(True):
        formula = closed(expression, moments)
        for mean, sd in MARGINALS:
            found = formula(mean, sd**2)
            assert float(found) == pytest.approx(integral(function, mean, sd, kinks), rel=1e-9, abs=1e-100)


@pytest.mark.parametrize("name", ONE_LATENT)
def test_gradients(name: str) -> None:
    """dE/dm = E[g (f - m)] / v and dE/dv = E[g ((f - m)^2 - v)] / (2 v^2), for jumps too."""
    expression, function, kinks = ONE_LATENT[name]
    moments, (mean, sd) = moments_of((F,)), (0.7, 1.1)
    with jax.enable_x64(True):
        slopes = jax.grad(closed(expression, moments), (0, 1))(mean, sd**2)
    by_mean = integral(lambda f: function(f) * (f - mean) / sd**2, mean, sd, kinks)
    by_variance = integral(lambda f: function(f) * ((f - mean) ** 2 - sd**2) / (2 * sd**4), mean, sd, kinks)
    assert np.allclose(slopes, (by_mean, by_variance), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("z", [8.0, 15.0, 30.0])
def test_far_out_all_digits_are_kept(z: float) -> None:
    """E[(f - t)+], with t so many standard deviations above: phi(z) (1 - z R(z)), here by its asymptotic series."""
    moments = moments_of((F,))
    series = sum((-1) ** k * math.prod(range(2 * k + 1, 0, -2)) / z ** (2 * k) for k in range(9))
    with jax.enable_x64(True):
        relu = closed(maximum(ZERO, F - sp.Float(z)), moments)(0.0, 1.0)
        step = closed(choose(less(sp.Float(z), F), ONE, ZERO), moments)(0.0, 1.0)
    assert float(relu) == pytest.approx(norm.pdf(z) / z**2 * series, rel=1e-10 if z > 10 else 1e-5)
    assert float(step) == pytest.approx(ndtr(-z), rel=1e-12)


def test_neither_factor_of_a_finite_product_overflows() -> None:
    """E[exp(-40 f) where f < -60] = exp(800) Phi(-20)."""
    with jax.enable_x64(True):
        found = closed(choose(less(F, sp.Integer(-60)), sp.exp(-40 * F), ZERO), moments_of((F,)))(0.0, 1.0)
    assert float(found) == pytest.approx(math.exp(800.0 + log_ndtr(-20.0)), rel=1e-12)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("name", ["step", "leaky", "slope of any sign"])
def test_no_variance_is_the_value_with_finite_gradients(name: str, double: bool) -> None:
    expression, function, _ = ONE_LATENT[name]
    with jax.enable_x64(double):
        formula = jax.value_and_grad(closed(expression, moments_of((F,))), (0, 1))
        for mean in (-1e4, -0.3, 0.1, 30.0):
            value, slopes = formula(mean, 0.0)
            assert float(value) == pytest.approx(function(mean), rel=1e-5)
            assert np.isfinite(slopes).all()


@pytest.mark.parametrize("name", ["step", "Laplace", "rectified", "leaky", "nested"])
def test_single_precision(name: str) -> None:
    expression, function, kinks = ONE_LATENT[name]
    with jax.enable_x64(False):
        formula = closed(expression, moments_of((F,)))
        for mean, sd in MARGINALS:
            assert float(formula(mean, sd**2)) == pytest.approx(integral(function, mean, sd, kinks), rel=1e-4)


SEVERAL: dict[str, tuple[sp.Expr, Callable[..., np.ndarray]]] = {
    "larger": (choose(less(G, F), ONE, ZERO), lambda f, g, h: f > g),
    "largest": (maximum(F, G), lambda f, g, h: np.maximum(f, g)),
    "difference": (absolute(F - 2 * G + Y) * H, lambda f, g, h: np.abs(f - 2 * g + 0.7) * h),
    "switch": (choose(less(0, F), sp.exp(G / 2) * F, H**2), lambda f, g, h: np.where(f > 0, np.exp(g / 2) * f, h**2)),
    "weighted": (choose(less(A * F, G), F**2 * G, H), lambda f, g, h: np.where(-0.4 * f < g, f**2 * g, h)),
}


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("name", SEVERAL)
def test_several_latents(name: str, coupled: bool) -> None:
    """Against a Sobol sequence: an independent check of how the others move along with a condition."""
    expression, function = SEVERAL[name]
    latents = (F, G, H)
    moments = joint_moments_of(latents) if coupled else moments_of(latents)
    mean = np.array([0.3, -0.2, 0.5])
    covariance = np.array([[0.9, 0.3, -0.2], [0.3, 0.6, 0.1], [-0.2, 0.1, 0.4]])
    covariance = covariance if coupled else np.diag(np.diag(covariance))
    pairs = [tuple(sorted((latents.index(s), latents.index(t)))) for s, t in map(tuple, moments.covariance)]
    values = (*mean, *np.diag(covariance), *(covariance[pair] for pair in pairs))
    with jax.enable_x64(True):
        found = float(closed(expression, moments)(*values))
    lattice = Sobol(3, rng=np.random.default_rng(0)).random_base2(18)
    points = mean + norm.ppf(lattice) @ np.linalg.cholesky(covariance).T
    assert found == pytest.approx(np.mean(function(*points.T)), abs=1e-4)
