"""Spherical harmonics and features that are made of them: against quadrature, closed forms and plain NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from jaxtyping import Array
from scipy.special import eval_chebyt, eval_gegenbauer, eval_legendre, roots_gegenbauer

from gpdsl.kernels import spherical
from gpdsl.kernels.covariance import basis, covariance
from gpdsl.kernels.form import Base, Form, On, Product, Scaled, Sum, block
from gpdsl.kernels.fourier import Basis, Unsuited
from gpdsl.kernels.functionals import Coefficients, Derivatives, Values
from gpdsl.kernels.spherical import _degrees, _root, first_of_each, funk_hecke, harmonics, number_of


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def grid(dimension: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of a sphere and weights with which polynomials of degrees up to 2 count - 1 have their means."""
    if dimension == 2:
        turns = 2 * np.pi * np.arange(2 * count + 1) / (2 * count + 1)
        return np.stack([np.cos(turns), np.sin(turns)], axis=1), np.full(len(turns), 1 / len(turns))
    t, weight = roots_gegenbauer(count, 0.5 * dimension - 1)
    below, others = grid(dimension - 1, count)
    points = [np.column_stack([np.full(len(below), each), np.sqrt(1 - each**2) * below]) for each in t]
    return np.concatenate(points), np.kron(weight / weight.sum(), others)


@pytest.mark.parametrize(("dimension", "most"), [(2, 9), (3, 6), (4, 4), (5, 3)])
def test_harmonics_are_orthonormal_and_add_up(dimension: int, most: int) -> None:
    """Under a rule that is exact for their products; in each degree they add up to its Legendre polynomial."""
    degrees = tuple(each for each in range(most + 1) if each != 2)
    points, weights = grid(dimension, most + 1)
    every = jax.jit(lambda x: harmonics(x, degrees))
    found, own = np.asarray(every(jnp.asarray(points))), first_of_each(degrees, dimension)
    assert found.shape[1] == len(own) == sum(number_of(each, dimension) for each in degrees)
    np.testing.assert_allclose(found.T @ (weights[:, None] * found), np.eye(len(own)), atol=1e-12)
    some = np.random.default_rng(0).permutation(len(points))[:9]
    cosine = np.clip(points[some] @ points[some].T, -1, 1)
    for place, degree in enumerate(degrees):
        both = found[some][:, own == place] @ found[some][:, own == place].T
        a = 0.5 * dimension - 1
        legendre = eval_gegenbauer(degree, a, cosine) / eval_gegenbauer(degree, a, 1.0) if a else None
        legendre = eval_chebyt(degree, cosine) if legendre is None else legendre
        np.testing.assert_allclose(both, number_of(degree, dimension) * legendre, atol=1e-10)


def test_harmonics_of_many_dimensions_have_means_and_slopes_at_the_pole() -> None:
    points = np.random.default_rng(0).normal(size=(30_000, 8))
    points[0] = np.eye(8)[0]
    points = jnp.asarray(points / np.linalg.norm(points, axis=1)[:, None])
    found = np.asarray(jax.jit(lambda x: harmonics(x, (0, 1, 2)))(points))
    assert found.shape == (30_000, 1 + 8 + 35)
    np.testing.assert_allclose(found.T @ found / len(found), np.eye(44), atol=0.07)
    slopes = jax.jit(jax.jacobian(lambda x: harmonics(x, (0, 3))))(points[:1])
    assert np.all(np.isfinite(slopes))


def test_shares_of_degrees_are_those_of_closed_forms() -> None:
    """1 - angle / pi on the circle has 2 / (pi l)^2 at odd l; exp(a cos) has ratios of Bessel functions."""
    degrees = (0, 1, 2, 3, 40, 41)
    angles, weights = funk_hecke(2, degrees)
    odd = [0.5, 2 / np.pi**2, 0, 2 / (3 * np.pi) ** 2, 0, 2 / (41 * np.pi) ** 2]
    np.testing.assert_allclose(weights @ (1 - angles / np.pi), odd, atol=1e-14)
    angles, weights = funk_hecke(3, (0, 1, 2))
    a = 3.7  # sinh(a) / a, and modified spherical Bessel functions
    sinh, cosh = np.sinh(a), np.cosh(a)
    expected = [sinh / a, (a * cosh - sinh) / a**2, ((a**2 + 3) * sinh - 3 * a * cosh) / a**3]
    np.testing.assert_allclose(weights @ np.exp(a * np.cos(angles)), expected, rtol=1e-13)


@pytest.mark.parametrize("most", [1, 12, 200])
def test_kernels_of_any_width_have_their_shares(most: int) -> None:
    """Against the trapezoid rule about where two points meet, on the circle and in three dimensions."""
    degrees, widths = (0, 1, most), np.array([1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 1e3])
    near = np.concatenate([[0.0], np.geomspace(1e-9, 1e-3, 60_000), np.linspace(1e-3, np.pi, 200_000)[1:]])
    chord, kernel = 2 * np.sin(0.5 * near), np.empty_like(near)
    for dimension, size, legendre in ((2, 1 / np.pi, eval_chebyt), (3, 0.5, eval_legendre)):
        angles, weights = funk_hecke(dimension, degrees)
        functions = np.stack([legendre(degree, np.cos(near)) for degree in degrees])
        gap = np.diff(near)
        rule = functions * size * np.sin(near) ** (dimension - 2) * (np.append(gap, 0) + np.insert(gap, 0, 0)) / 2
        for ell in widths:
            found = weights @ np.exp(-2 * np.sin(0.5 * angles) / ell)
            np.exp(-chord / ell, out=kernel)
            np.testing.assert_allclose(found, rule @ kernel, rtol=2e-5, atol=1e-9 * ell)


def features(form: Form, numbers: list, count: int, width: int) -> Basis:
    corners = jnp.asarray([[-1.0] * width, [1.0] * width])
    return basis(form, numbers, Coefficients(corners, "spherical", count, 0))


def explained(form: Form, numbers: list, count: int, points: np.ndarray) -> np.ndarray:
    """The covariance of values that features explain."""

    @jax.jit
    def root(numbers: list[Array], at: Array) -> Array:
        found = features(form, numbers, count, at.shape[1])
        return found.weights[None, :] * found.functions(at)

    found = np.asarray(root(numbers, jnp.asarray(points)))
    return found @ found.T


def layer(order: int, a: np.ndarray, weight: np.ndarray, bias: float) -> np.ndarray:
    """Cho and Saul (2009), equations 3 to 6."""
    z = np.column_stack([np.sqrt(weight) * a, np.full(len(a), np.sqrt(bias))])
    lengths = np.linalg.norm(z, axis=1)
    cosine = np.clip(z @ z.T / np.outer(lengths, lengths), -1, 1)
    angle = np.arccos(cosine)
    angle[np.diag_indices_from(angle)] = 0.0
    sine, rest = np.sin(angle), np.pi - angle
    of_angle = [rest, sine + rest * cosine, 3 * sine * cosine + rest * (1 + 2 * cosine**2)][order]
    return np.outer(lengths, lengths) ** order * of_angle / np.pi


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(("width", "counts"), [(1, (4, 20, 200)), (2, (3, 8, 30)), (7, (2, 4, 5))])
def test_harmonics_of_a_layer_add_up_to_its_kernel(order: int, width: int, counts: tuple[int, ...]) -> None:
    """What they leave open is a covariance, at any inputs, and less of it the more there are."""
    rng = np.random.default_rng(width)
    weight, bias, points = rng.uniform(0.3, 2, width), 0.7, 2 * rng.normal(size=(25, width))
    form = Base("ArcCosine", ("weight", "bias"), (("order", order),))
    numbers, plain, left = [jnp.asarray(weight), jnp.asarray(bias)], layer(order, points, weight, bias), []
    for count in counts:
        open_part = plain - explained(form, numbers, count, points)
        assert np.linalg.eigvalsh(open_part).min() > -1e-10 * np.trace(plain)
        left.append(np.trace(open_part) / np.trace(plain))
    assert left[0] > left[1] >= left[2] > -1e-12
    if width < 7:
        assert left[2] < {0: 2e-2, 1: 2e-5, 2: 1e-7}[order]


ROUND = (sp.cos(block(0, 1)) * sp.cos(block(1, 2)), sp.cos(block(0, 1)) * sp.sin(block(1, 2)), sp.sin(block(0, 1)))
GLOBE = On(tuple(sp.Symbol("number1", positive=True) * each for each in ROUND), ("number1",), Base("Constant", ()))
CHORD = {
    "RBF": (lambda r: np.exp(-0.5 * r**2), 16, 1e-11),
    "Matern12": (lambda r: np.exp(-r), 30, 0.2),
    "Matern32": (lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r), 30, 3e-3),
    "Matern52": (lambda r: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r), 30, 2e-4),
}


@pytest.mark.parametrize("name", CHORD)
def test_kernels_of_chords_on_a_globe(name: str) -> None:
    """Of radius 2, under a length-scale that learns; neither a tiny one nor a huge one takes more than there is."""
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-1.5, 1.5, 20), rng.uniform(-3, 3, 20)])
    profile, most, close = CHORD[name]
    form, z = replace(GLOBE, kernel=Base(name, ("ell",))), 2 * np.stack([
        np.cos(points[:, 0]) * np.cos(points[:, 1]), np.cos(points[:, 0]) * np.sin(points[:, 1]), np.sin(points[:, 0])
    ], axis=1)  # fmt: skip
    chords = np.linalg.norm(z[:, None] - z[None], axis=-1)
    for ell in (1.4, 0.01, 300.0):
        plain, numbers = profile(chords / ell), [jnp.asarray(2.0), jnp.asarray(ell)]
        few, many = (plain - explained(form, numbers, count, points) for count in (3, most))
        assert np.linalg.eigvalsh(many).min() > -1e-11
        assert np.trace(few) > np.trace(many) - 1e-11
        if ell > 1:
            assert np.trace(many) < 20 * close
        assert np.all(np.diag(many) > -1e-12)


def test_polynomials_are_finitely_many_and_periodic_kernels_are_those_of_a_circle() -> None:
    points = np.random.default_rng(0).normal(size=(15, 2))
    form = Base("Polynomial", ("offset", "ell"), (("degree", 3),))
    numbers = [jnp.asarray(0.6), jnp.asarray([0.7, 1.1])]
    z = points / np.asarray([0.7, 1.1])
    np.testing.assert_allclose(explained(form, numbers, 4, points), (0.6 + z @ z.T) ** 3, rtol=1e-9, atol=1e-10)
    assert len(features(form, numbers, 50, 2).weights) == 10 == len(features(form, numbers, 4, 2).weights)
    x, wave = points[:, :1], Base("Periodic", ("ell", "period"))
    turned = np.exp(-2 * np.sin(np.pi * (x - x.T) / 2.2) ** 2 / 0.5**2)
    found = explained(wave, [jnp.asarray(0.5), jnp.asarray(2.2)], 25, x)
    np.testing.assert_allclose(found, turned, atol=1e-10)


def on(column: int, kernel: Form) -> On:
    return On((block(column, column + 1),), (), kernel)


def test_sums_products_and_factors() -> None:
    points = np.random.default_rng(1).normal(size=(12, 2))
    ramps = Base("ArcCosine", ("weight", "bias"), (("order", 2),))
    one, other = Scaled(on(0, ramps)), on(1, ramps)
    numbers = [jnp.asarray(each) for each in (2.0, 0.7, 1.1, 1.3, 0.4)]
    first = 2.0 * layer(2, points[:, :1], np.asarray([0.7]), 1.1)
    second = layer(2, points[:, 1:], np.asarray([1.3]), 0.4)
    with_noise = Sum((one, other, Base("White", ())))
    for form, plain in ((with_noise, first + second), (Product((one, other)), first * second)):
        np.testing.assert_allclose(explained(form, numbers, 20, points), plain, rtol=1e-3, atol=1e-3)


def test_slopes_in_parameters_and_places() -> None:
    """Against differences; in single precision they are finite, too."""
    points, step = jnp.asarray([[-1.0, 0.2], [0.3, -2.0]]), 1e-6
    form = Sum((
        Base("ArcCosine", ("weight", "bias"), (("order", 1),)),
        replace(GLOBE, kernel=Base("Matern32", ("ell",))),
    ))  # fmt: skip

    @jax.jit
    def total(numbers: list[Array]) -> Array:
        found = features(form, numbers, 6, 2)
        signs = jnp.cos(jnp.arange(len(found.weights), dtype=found.weights.dtype))
        return jnp.sum(jnp.sin(found.weights * found.functions(points.astype(found.weights.dtype))) * signs)

    numbers = [jnp.asarray([0.7, 1.4]), jnp.asarray(0.8), jnp.asarray(1.5), jnp.asarray(0.6)]
    slopes = jax.jit(jax.grad(total))(numbers)
    for k, each in enumerate(numbers):
        for place in np.ndindex(each.shape):
            sides = [total([*numbers[:k], each.at[place].add(h), *numbers[k + 1 :]]) for h in (step, -step)]
            np.testing.assert_allclose(slopes[k][place], (sides[0] - sides[1]) / (2 * step), rtol=1e-6, atol=1e-8)
    at = Coefficients(jnp.asarray([[-1.0, -1.0], [1.0, 1.0]]), "spherical", 6, 0)
    cov = jax.jit(lambda b: covariance(form, numbers, at, b))
    sides = [cov(Values(points.at[:, 1].add(h))) for h in (step, -step)]
    np.testing.assert_allclose(cov(Derivatives(points, (1,))), (sides[0] - sides[1]) / (2 * step), atol=1e-7)


def test_single_precision_is_near_double() -> None:
    points = np.random.default_rng(0).normal(size=(9, 2))
    form = Sum((
        Base("ArcCosine", ("weight", "bias"), (("order", 1),)),
        replace(GLOBE, kernel=Base("RBF", ("ell",))),
    ))  # fmt: skip
    found = []
    for kind in ("f4", "f8"):
        numbers = [jnp.asarray(each, kind) for each in (0.7, 0.8, 1.5, 2.0)]
        corners = jnp.asarray([[-1.0, -1.0], [1.0, 1.0]], kind)

        @jax.jit
        def root(numbers: list[Array], corners: Array, at: Array) -> Array:
            made = basis(form, numbers, Coefficients(corners, "spherical", 15, 0))
            return made.weights * made.functions(at)

        found.append(np.asarray(root(numbers, corners, jnp.asarray(points, kind))))
    assert found[0].dtype == np.float32
    np.testing.assert_allclose(found[0], found[1], atol=2e-3)
    np.testing.assert_allclose(found[0] @ found[0].T, found[1] @ found[1].T, rtol=1e-4, atol=1e-5)


LAYER = Base("ArcCosine", ("weight", "bias"), (("order", 1),))
SCALED = On((2 * block(0, 1), block(1, 2)), (), Base("RBF", ("ell",)))


@pytest.mark.parametrize(
    ("form", "width", "count", "why"),
    [
        (Base("RBF", ("ell",)), 1, 5, r"RBF\(ell, on = \[cos\(x\), sin\(x\)\]\); what RBF sees here need not lie on"),
        (SCALED, 2, 5, "need not lie on one"),
        (On((block(0, 1),), (), Base("RBF", ("ell",))), 2, 5, "need not lie on one"),
        (Base("Periodic", ("ell", "period")), 2, 5, "not of Periodic of 2 columns"),
        (Base("Cosine", ("period",)), 1, 5, "not of Cosine"),
        (Base("White", ()), 1, 5, "not of White"),
        (Product((LAYER, Base("RBF", ("ell",)))), 1, 5, "what RBF sees"),
        (Base("Polynomial", ("offset", "ell"), (("degree", 3),)), 2, 1, "no harmonics of degrees below 1"),
        (LAYER, 8, 12, r"more than 4,000 harmonics of degrees below 12 on the sphere in 9 dimensions.*\(8\) are 3,012"),
        (LAYER, 1, 999_999_999, r"below 999,999,999 on the sphere in 2 dim.*spherical\(3998\) are 3,999"),
    ],
)
def test_kernels_without_such_features(form: Form, width: int, count: int, why: str) -> None:
    with pytest.raises(Unsuited, match=why):
        features(form, [jnp.asarray(1.0)] * 3, count, width)


def test_a_length_scale_for_each_column_is_no_sphere() -> None:
    with pytest.raises(Unsuited, match="a length-scale for each column is no function of an angle"):
        features(replace(GLOBE, kernel=Base("RBF", ("ell",))), [jnp.asarray(1.0), jnp.ones(3)], 4, 2)


def test_shares_that_are_rounding_are_none() -> None:
    """Their roots would be a millionth of the kernel's, with slopes of any size."""
    np.testing.assert_array_equal(_root(np.array([0.25, 3e-16, 0.0, -1e-17]), np), [0.5, 0.0, 0.0, 0.0])


def test_as_many_harmonics_as_may_be_are_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spherical, "MOST", 9)
    seen = spherical._Zonal(3, lambda points: (points, None), np.cos, lambda degree: True)
    assert _degrees(seen, "RBF", 3) == (0, 1, 2)
    with pytest.raises(Unsuited, match=r"spherical\(3\) are 9"):
        _degrees(seen, "RBF", 4)


@pytest.mark.parametrize(
    ("columns", "round_"),
    [
        (ROUND, True),
        ((*ROUND, sp.Integer(2)), True),
        ((sp.cos(block(0, 1)), 1.001 * sp.sin(block(0, 1))), False),
        ((sp.Integer(0), sp.Integer(0)), False),
        ((sp.Integer(1), block(0, 1)), False),
        ((sp.sqrt(1 - block(0, 1) ** 2), block(0, 1)), False),  # of which there are no points beyond 1
    ],
)
def test_columns_that_lie_on_a_sphere(columns: tuple[sp.Expr, ...], round_: bool) -> None:
    """About 0, and of some size."""
    assert spherical.on_a_sphere(On(columns, (), Base("RBF", ("ell",))), 2) is round_


def test_a_constant_is_the_only_harmonic_of_degree_0() -> None:
    for points in ([[0.6, 0.8], [0.0, 1.0]], [[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]]):
        np.testing.assert_allclose(harmonics(jnp.asarray(points), (0,)), [[1.0], [1.0]])
