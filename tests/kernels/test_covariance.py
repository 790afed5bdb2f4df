"""Every kernel against its formula in plain NumPy, pair by pair; accuracy, derivatives and positive definiteness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gpdsl.kernels.covariance import covariance, squared_distance, variance
from gpdsl.kernels.form import (
    Base,
    ByFormula,
    Form,
    On,
    Patches,
    Product,
    Scaled,
    Sum,
    block,
    block_of,
    columns_read,
    count,
    describe,
    has_white,
    only_white,
    picked,
    shaping,
    telling,
)
from gpdsl.kernels.formula import mean_over_pairs, mean_within, patches_of
from gpdsl.kernels.functionals import Values
from gpdsl.language.vocabulary import KERNELS
from gpdsl.program.cache import jit

Vector = np.ndarray
DEGREE = 3


def distance(a: Vector, b: Vector, ell: Vector) -> float:
    return math.sqrt(sum(((a - b) / ell) ** 2))


def inner(a: Vector, b: Vector, ell: Vector) -> float:
    return sum(a * b / ell**2)


REFERENCES: dict[str, Callable[..., float]] = {
    "RBF": lambda a, b, ell: math.exp(-(distance(a, b, ell) ** 2) / 2),
    "Matern12": lambda a, b, ell: math.exp(-distance(a, b, ell)),
    "Matern32": lambda a, b, ell: (1 + 3**0.5 * distance(a, b, ell)) * math.exp(-(3**0.5) * distance(a, b, ell)),
    "Matern52": lambda a, b, ell: (
        (1 + 5**0.5 * distance(a, b, ell) + 5 / 3 * distance(a, b, ell) ** 2)
        * math.exp(-(5**0.5) * distance(a, b, ell))
    ),
    "RationalQuadratic": lambda a, b, ell, alpha: (1 + distance(a, b, ell) ** 2 / (2 * alpha)) ** -alpha,
    "Periodic": lambda a, b, ell, period: math.exp(-2 * sum((np.sin(np.pi * (a - b) / period) / ell) ** 2)),
    "Cosine": lambda a, b, period: math.cos(2 * math.pi * sum((a - b) / period)),
    "Linear": inner,
    "Polynomial": lambda a, b, offset, ell: (offset + inner(a, b, ell)) ** DEGREE,
    "Constant": lambda a, b: 1.0,
    "White": lambda a, b: float(np.array_equal(a, b)),
    "Same": lambda a, b: float(np.array_equal(a, b)),
}


def form_of(name: str) -> Base:
    numeric = tuple(p.name for p in KERNELS[name].parameters if not p.literal)
    return Base(name, numeric, tuple((p.name, DEGREE) for p in KERNELS[name].parameters if p.literal))


def numbers(name: str, columns: int, vector: bool, rng: np.random.Generator) -> list[np.ndarray]:
    """Positive parameters; `vector` gives those that may have one value per column that many."""
    parameters = [p for p in KERNELS[name].parameters if not p.literal]
    return [np.exp(0.4 * rng.normal(size=(columns,) if vector and p.vector else ())) for p in parameters]


def reference(name: str, parameters: Sequence[np.ndarray], a: Vector, b: Vector) -> np.ndarray:
    columns = a.shape[1]
    kernel = REFERENCES[name]
    full = {
        n: np.broadcast_to(v, columns) if n in {"ell", "period"} else v
        for n, v in zip(form_of(name).parameters, parameters, strict=True)
    }
    return np.array([[kernel(x, y, **full) for y in b] for x in a])


def test_every_kernel_of_length_scales_has_a_reference() -> None:
    """Those with columns, matrices or kernels of their own are written out by the tests of the language."""
    own = {"ArcCosine", "SpectralMixture", "Patch", "Coregion", "ChangePoint"}
    assert set(REFERENCES) | own == set(KERNELS)


@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "per column"])
@pytest.mark.parametrize(("rows", "columns"), [(5, 2), (9, 7)])
@pytest.mark.parametrize("name", REFERENCES)
def test_equals_its_formula(name: str, rows: int, columns: int, vector: bool) -> None:
    rng = np.random.default_rng(rows)
    a, b = rng.normal(size=(rows, columns)), rng.normal(size=(rows + 2, columns))
    parameters = numbers(name, columns, vector, rng)

    @jit
    def everything(given: list[Any], at_a: Any, at_b: Any) -> tuple[Any, ...]:
        first, form = Values(at_a), form_of(name)
        return (
            covariance(form, given, first, Values(at_b)),
            covariance(form, given, first),
            variance(form, given, first),
        )

    with jax.enable_x64(True):
        between, within, diagonal = everything(parameters, a, b)
    np.testing.assert_allclose(between, reference(name, parameters, a, b), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(within, reference(name, parameters, a, a), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(within), diagonal, rtol=1e-14)


@pytest.mark.parametrize("name", REFERENCES)
def test_single_precision(name: str) -> None:
    rng = np.random.default_rng(3)
    a, parameters = rng.normal(size=(6, 6)), numbers(name, 6, True, rng)
    single = jit(lambda given, at: covariance(form_of(name), given, Values(at)))
    found = single([np.asarray(p, "f4") for p in parameters], np.asarray(a, "f4"))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, reference(name, parameters, a, a), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("columns", [1, 3, 8])
@pytest.mark.parametrize("name", REFERENCES)
def test_positive_semidefinite(name: str, columns: int) -> None:
    rng = np.random.default_rng(columns)
    points = rng.normal(size=(20, columns))
    points[1] = points[0]
    with jax.enable_x64(True):
        compute = jit(lambda given, at: covariance(form_of(name), given, Values(at)))
        matrix = np.asarray(compute(numbers(name, columns, True, rng), points))
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-13, atol=1e-13)
    assert np.linalg.eigvalsh(matrix).min() > -1e-8 * np.trace(matrix)


@pytest.mark.parametrize("columns", [2, 6])
@pytest.mark.parametrize("name", REFERENCES)
def test_gradients_at_coincident_points(name: str, columns: int) -> None:
    """Finite, and those of the parameters equal to finite differences, which are smooth where distances vanish."""
    rng = np.random.default_rng(columns)
    points = rng.normal(size=(4, columns))
    points[2] = points[0]
    parameters, weights = numbers(name, columns, True, rng), rng.normal(size=(4, 4))

    def total(given: list[Any], at: Any) -> Any:
        return jnp.sum(weights * covariance(form_of(name), given, Values(at)))

    with jax.enable_x64(True):
        both = jit(jax.value_and_grad(total, argnums=(0, 1)))
        slopes, at_points = both(parameters, points)[1]
        assert np.isfinite(at_points).all()
        for i, slope in enumerate(map(np.asarray, slopes)):
            for element in np.ndindex(slope.shape):
                step = np.zeros(slope.shape)
                step[element] = 1e-6
                moved = [[p + sign * step if k == i else p for k, p in enumerate(parameters)] for sign in (1, -1)]
                difference = (both(moved[0], points)[0] - both(moved[1], points)[0]) / 2e-6
                assert slope[element] == pytest.approx(float(difference), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("columns", [1, 4, 5, 30, 40])
def test_distances_far_from_the_origin(columns: int) -> None:
    rng = np.random.default_rng(columns)
    points = 1e6 + rng.normal(size=(12, columns))
    exact = np.array([[sum((x - y) ** 2) for y in points] for x in points])
    with jax.enable_x64(True):
        both = jit(
            lambda at, other: (squared_distance(at, at), squared_distance(at, other))
        )  # loops round in their way
        found, copied = map(np.asarray, both(points, points.copy()))
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(copied, exact, rtol=1e-9, atol=1e-11)
    assert (np.diagonal(found) == 0).all()
    assert (copied >= 0).all()


@pytest.mark.parametrize(
    ("columns", "same"),
    [(7, True), (7, False), (40, True), *(pytest.param(2, same, marks=pytest.mark.slow) for same in (True, False))],
)
def test_distances_in_units_of_length_scales(columns: int, same: bool) -> None:
    rng = np.random.default_rng(columns)
    points, others, ell = rng.normal(size=(6, columns)), rng.normal(size=(9, columns)), rng.uniform(0.5, 2, columns)
    others, weights = points if same else others, rng.normal(size=(6, len(points if same else others)))

    def direct(a: jnp.ndarray, b: jnp.ndarray, ell: jnp.ndarray) -> jnp.ndarray:
        return jnp.sum(weights * jnp.sum(((a[:, None] - b[None]) / ell) ** 2, axis=-1))

    def ours(a: jnp.ndarray, b: jnp.ndarray, ell: jnp.ndarray) -> jnp.ndarray:
        return jnp.sum(weights * (squared_distance(a, a, ell) if same else squared_distance(a, b, ell)))

    def slopes(f: Callable[..., jnp.ndarray], a: jnp.ndarray, b: jnp.ndarray, ell: jnp.ndarray) -> Any:
        """The value, its gradient, and how the gradient in points and length-scales moves with these."""
        along = lambda a, ell: jax.grad(lambda a, ell: f(a, a if same else b, ell), (0, 1))(a, ell)  # noqa: E731
        return f(a, b, ell), jax.grad(f, (0, 1, 2))(a, b, ell), jax.jvp(along, (a, ell), moves)[1]

    with jax.enable_x64(True):
        given = (jnp.asarray(points), jnp.asarray(others), jnp.asarray(ell))
        moves = tuple(jnp.asarray(rng.normal(size=each.shape)) for each in given[::2])
        found, expected = jax.jit(lambda *given: [slopes(f, *given) for f in (ours, direct)])(*given)
    assert float(found[0]) == pytest.approx(float(expected[0]), rel=1e-10)
    mine, theirs = found[1], expected[1]
    if same:  # all of the gradient in the first argument
        mine, theirs = (mine[0], mine[2]), (theirs[0] + theirs[1], theirs[2])
    for one, other in zip((*mine, *found[2]), (*theirs, *expected[2]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_white_noise_is_new_at_every_functional() -> None:
    points = Values(jnp.ones((3, 1)))
    np.testing.assert_array_equal(covariance(Base("White", ()), (), points), np.eye(3))
    np.testing.assert_array_equal(covariance(Base("White", ()), (), points, points), np.zeros((3, 3)))
    np.testing.assert_array_equal(variance(Base("White", ()), (), points), np.ones(3))


RBF, LINEAR, WHITE = Base("RBF", ("ell",)), Base("Linear", ("ell",)), Base("White", ())
COMPOSITE: tuple[Form, list[float], str] = (
    Sum((Scaled(Product((RBF, LINEAR))), Scaled(WHITE), Product((RBF, Sum((LINEAR, RBF)))))),
    [2.0, 0.7, 1.3, 0.1, 0.9, 1.1, 0.5],
    "c * RBF(ell) * Linear(ell) + c * White() + RBF(ell) * (Linear(ell) + RBF(ell))",
)


def test_sums_products_and_scales_take_their_parameters_in_order() -> None:
    form, parameters, shown = COMPOSITE
    points = np.random.default_rng(2).normal(size=(5, 3))

    def k(name: str, ell: float) -> np.ndarray:
        return reference(name, [np.asarray(ell)], points, points)

    expected = (
        2.0 * k("RBF", 0.7) * k("Linear", 1.3) + 0.1 * np.eye(5) + k("RBF", 0.9) * (k("Linear", 1.1) + k("RBF", 0.5))
    )
    with jax.enable_x64(True):
        both = jit(lambda given, at: (covariance(form, given, Values(at)), variance(form, given, Values(at))))
        found, diagonal = both(parameters, points)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(diagonal, np.diagonal(expected), rtol=1e-12)
    assert describe(form) == shown


@pytest.mark.parametrize("columns", [2, 20, 40])
@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_distances_between_two_sets_in_units_of_length_scales(columns: int, offset: float) -> None:
    rng = np.random.default_rng(columns)
    a, b = rng.normal(size=(7, columns)) + offset, rng.normal(size=(5, columns)) + offset
    ell = rng.uniform(0.5, 2, columns)
    with jax.enable_x64(True):
        found = np.asarray(jit(squared_distance)(a, b, ell))
    expected = (((a[:, None] - b) / ell) ** 2).sum(axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weights", [None, np.array([0.5, 2.0, 1.0, -1.5, 0.3, 1.1])])
def test_images_covary_as_their_patches_do_on_average(weights: np.ndarray | None) -> None:
    """Patches of 2 x 3 pixels of images of 4 x 4, pair by pair, each as heavy as it is told."""
    images, given = np.random.default_rng(0).normal(size=(4, 16)), None if weights is None else jnp.asarray(weights)
    patches = [
        [whole[i : i + 2, j : j + 3].ravel() for i in range(3) for j in range(2)] for whole in images.reshape(-1, 4, 4)
    ]
    share = np.ones(6) if weights is None else weights
    k = lambda p, q: np.mean(np.outer(share, share) * [[REFERENCES["RBF"](a, b, 1.0) for b in q] for a in p])  # noqa: E731
    between = lambda p, q: jnp.exp(-0.5 * jnp.sum((p[:, None] - q) ** 2, axis=-1))  # noqa: E731

    @jax.jit
    def found(a: Any, b: Any) -> tuple[Any, Any]:
        a, b = (patches_of(each, (4, 4), (2, 3)) for each in (a, b))
        return mean_over_pairs(between, a, b, given), mean_within(between, a, given)

    among, within = found(jnp.asarray(images[:3]), jnp.asarray(images[2:]))
    np.testing.assert_allclose(among, [[k(p, q) for q in patches[2:]] for p in patches[:3]], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(within, [k(p, p) for p in patches[:3]], rtol=1e-5)


def test_parameters_of_a_form_are_counted_and_its_length_scales_known() -> None:
    """In order: those of a scale, of what an input is made of, and of weights before those of the kernel."""
    written: Any = ByFormula(SimpleNamespace(parameters=("p", "q")), "spiral")
    rbf, quadratic = Base("RBF", ("ell",)), Base("RationalQuadratic", ("ell", "alpha"))
    form = Sum((Scaled(Product((rbf, quadratic))), On((), ("w", "v"), written), Patches(rbf, (4, 4), (2, 2), True)))
    assert count(form) == 10
    assert list(shaping(form)) == [False, True, True, False, False, False, True, True, False, True]
    assert count(Patches(rbf, (4, 4), (2, 2))) == 1 and list(shaping(Patches(rbf, (4, 4), (2, 2)))) == [True]


def test_a_form_tells_which_columns_it_reads_and_where_values_are_independent() -> None:
    rbf, white, same = Base("RBF", ("ell",)), Base("White", ()), Base("Same", ())
    first, second = On((block(0, 3),), (), same), On((block(1, 4),), (), same)
    assert [
        only_white(each) for each in (white, Sum((rbf, white)), Product((rbf, white)), Scaled(On((), (), white)), rbf)
    ] == ([True, False, True, True, False])
    assert has_white(Sum((rbf, Scaled(white)))) and not has_white(Sum((rbf, same)))
    known = [telling(each, 5) for each in (same, Scaled(first), Sum((first, second)), Product((first, second)), rbf)]
    assert known == [{0, 1, 2, 3, 4}, {0, 1, 2}, {1, 2}, {0, 1, 2, 3}, set()]
    made = On((block(0, 1) + block(3, 4) * 2,), (), rbf)
    read = [columns_read(each, 5) for each in (rbf, made, Product((made, first)), Base("Constant", ()))]
    assert read == [{0, 1, 2, 3, 4}, {0, 3}, {0, 1, 2, 3}, set()]
    assert picked(second) == [1, 2, 3] and picked(made) is None and block_of(block(2, 7)) == (2, 7)
