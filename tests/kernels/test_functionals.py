"""Covariances of derivatives and combinations against symbolic differentiation and dense algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from gpdsl.kernels.combined import PRIMITIVES, _matrix
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.form import Base
from gpdsl.kernels.functionals import (
    Coefficients,
    Combination,
    Derivatives,
    Functionals,
    Stacked,
    Values,
    blocks,
    from_outline,
    outline,
    stacked,
)
from gpdsl.program.cache import jit

ELL = 0.7
mp.mp.dps = 50


def profile(name: str, squared: mp.mpf) -> mp.mpf:
    """The kernels as their textbooks write them."""
    r = mp.sqrt(squared) / mp.mpf(ELL)
    formulas = {
        "RBF": lambda: mp.exp(-(r**2) / 2),
        "Matern32": lambda: (1 + mp.sqrt(3) * r) * mp.exp(-mp.sqrt(3) * r),
        "Matern52": lambda: (1 + mp.sqrt(5) * r + 5 * r**2 / 3) * mp.exp(-mp.sqrt(5) * r),
    }
    return formulas[name]()


def reference(name: str, a: np.ndarray, b: np.ndarray, first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """The kernel differentiated numerically with fifty digits, infinitesimally apart where the points are equal."""
    at = [*map(mp.mpf, map(float, a)), *map(mp.mpf, map(float, b))]
    if np.allclose(a, b):
        at[2] += mp.mpf("1e-15")
    orders = tuple(side.count(column) for side in (first, second) for column in (0, 1))

    def kernel(*z: mp.mpf) -> mp.mpf:
        return profile(name, (z[0] - z[2]) ** 2 + (z[1] - z[3]) ** 2)

    return float(mp.diff(kernel, tuple(at), orders, h=mp.mpf("1e-22")))


ONCE = [((0,), ()), ((0,), (0,)), ((0,), (1,))]
TWICE = [((0, 1), (0,)), ((0, 0), (1, 1)), ((0, 1), (0, 1))]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [(name, *columns) for name in ("RBF", "Matern52") for columns in (*ONCE, *TWICE)]
    + [("Matern32", *columns) for columns in ONCE],
)
def test_derivatives_equal_the_differentiated_kernel(name: str, first: tuple, second: tuple) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 2))
    y = np.stack([x[0], x[0] + [1e-9, 0], rng.normal(size=2)])
    with jax.enable_x64(True):
        a = Derivatives(jnp.asarray(x), first)
        b = Derivatives(jnp.asarray(y), second) if second else Values(jnp.asarray(y))
        found = np.asarray(covariance(Base(name, ("ell",)), [jnp.asarray(ELL)], a, b))
    expected = [[reference(name, p, q, first, second) for q in y] for p in x]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["Matern32", "Matern52", "Periodic"])
def test_gradients_in_the_length_scale_are_finite_where_points_coincide(name: str) -> None:
    numbers = {"Periodic": ("ell", "period")}.get(name, ("ell",))
    with jax.enable_x64(True):
        points = jnp.asarray([[0.0, 1.0], [0.0, 1.0], [0.5, 0.2]])
        functionals = stacked((Values(points), Derivatives(points, (0,))))

        def total(values: list) -> jax.Array:
            return jnp.sum(covariance(Base(name, numbers), values, functionals) ** 2)

        both = jit(jax.value_and_grad(total))
        start = [jnp.asarray(0.7 + 0.3 * i) for i in range(len(numbers))]
        _, slopes = both(start)
        for i, slope in enumerate(slopes):
            step = [v + (1e-6 if i == j else 0.0) for j, v in enumerate(start)]
            back = [v - (1e-6 if i == j else 0.0) for j, v in enumerate(start)]
            np.testing.assert_allclose(slope, (both(step)[0] - both(back)[0]) / 2e-6, rtol=1e-5)


def everything(rng: np.random.Generator) -> tuple[Functionals, np.ndarray]:
    """Values, a difference of values, and a weighted sum with a derivative; and the matrix that makes them of parts."""
    x, y = rng.normal(size=(2, 4, 2))
    a, b = Values(jnp.asarray(x)), Values(jnp.asarray(y))
    slope = Derivatives(jnp.asarray(y), (1,))
    mixed = stacked((a, Combination((a, b), (1.0, -1.0)), Combination((b, slope), (2.0, 0.5))))
    eye, none = np.eye(4), np.zeros((4, 4))
    weights = np.block([[eye, none, none], [eye, -eye, none], [none, 2 * eye, 0.5 * eye]])
    return mixed, weights


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitives_have_the_slopes_that_they_are_given(name: str) -> None:
    """K1 is the integral of the kernel and K2 that of K1: their slopes, which are written apart, are those."""
    with jax.enable_x64(True):
        at, step = jnp.asarray([-1.7, -0.2, 0.4, 2.5]), 1e-5
        for primitive in PRIMITIVES[name]:
            slopes = jax.jvp(primitive, (at,), (jnp.ones(4),))[1]
            np.testing.assert_allclose(slopes, (primitive(at + step) - primitive(at - step)) / (2 * step), atol=1e-8)


def test_combinations_are_linear() -> None:
    with jax.enable_x64(True):
        mixed, weights = everything(np.random.default_rng(2))
        assert len(mixed) == 12
        form, numbers = Base("RBF", ("ell",)), [jnp.asarray(ELL)]
        parts = {id(p): p for block in blocks(mixed) for _, p in block}
        whole = np.asarray(covariance(form, numbers, Stacked(tuple(parts.values()))))
        expected = weights @ whole @ weights.T
        np.testing.assert_allclose(covariance(form, numbers, mixed), expected, atol=1e-12)
        np.testing.assert_allclose(variance(form, numbers, mixed), np.diag(expected), atol=1e-12)
        np.testing.assert_allclose(covariance(form, numbers, mixed, mixed), expected, atol=1e-12)


def test_slopes_may_stand_on_either_side_of_coefficients() -> None:
    """Of a kernel whose covariance of coefficient m with a value at x is m sin x."""
    points, features = jnp.asarray([[-1.0], [0.3]]), Coefficients(jnp.zeros((2, 1)), "fourier", 3, 3)

    def kernel(a: Functionals, b: Values) -> jax.Array:
        return jnp.arange(len(a))[:, None] * jnp.sin(b.points[:, 0])

    expected = np.cos(points) * np.arange(3)
    np.testing.assert_allclose(_matrix(kernel, Derivatives(points, (0,)), features), expected, rtol=1e-6)
    np.testing.assert_allclose(_matrix(kernel, features, Derivatives(points, (0,))), expected.T, rtol=1e-6)


def test_noise_is_shared_with_oneself_only() -> None:
    with jax.enable_x64(True):
        points = Values(jnp.zeros((3, 1)))
        other = Values(jnp.ones((3, 1)))
        difference = Combination((points, other), (1.0, -1.0))
        np.testing.assert_array_equal(covariance(Base("White", ()), [], difference), 2 * np.eye(3))
        np.testing.assert_array_equal(covariance(Base("White", ()), [], difference, points), np.zeros((3, 3)))


def test_an_outline_brings_functionals_back() -> None:
    mixed, _ = everything(np.random.default_rng(3))
    again = from_outline(outline(mixed), iter(jax.tree.leaves(mixed)))
    assert jax.tree.structure(again) == jax.tree.structure(mixed)
    with pytest.raises(ValueError, match="unknown functionals"):
        from_outline(["waves"], iter([]))
