"""Features that are not points: covariances against quadrature and the formulas of the papers."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.integrate import quad

from gpdsl.kernels import fourier as waves
from gpdsl.kernels.covariance import basis, covariance, variance
from gpdsl.kernels.form import Base, Form, On, Product, Scaled, Sum, block
from gpdsl.kernels.fourier import Unsuited
from gpdsl.kernels.functionals import Coefficients, Combination, Derivatives, Stacked, Values, from_outline, outline

ELL, START, END = 0.7, -2.0, 1.5
MATERN = ("Matern12", "Matern32", "Matern52")


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def one() -> list[Array]:
    return [jnp.asarray(ELL)]


def matern(name: str) -> Base:
    return Base(name, ("ell",))


def fourier(count: int, size: int | None = None, width: int = 1) -> Coefficients:
    corners = jnp.asarray([[START] * width, [END] * width])
    return Coefficients(corners, "fourier", count, count if size is None else size)


def explained(form: Form, numbers: list, features: Coefficients, points: np.ndarray) -> np.ndarray:
    """What features leave open of the covariance of values."""

    def every(numbers: list, features: Coefficients, at: Values) -> list[Array]:
        return [covariance(form, numbers, *pair) for pair in ((features, at), (features,), (at,))]

    cross, among, plain = map(np.asarray, jax.jit(every)(numbers, features, Values(jnp.asarray(points))))
    return plain - cross.T @ np.linalg.solve(among, cross)


def hensman(name: str, count: int) -> np.ndarray:
    """Kuu of Hensman, Durrande and Solin (2018), eqs. 61 to 66, of 1, cosines and sines."""
    lam = np.sqrt({"Matern12": 1, "Matern32": 3, "Matern52": 5}[name]) / ELL
    step = 2 * np.pi / (END - START)
    even, odd = step * np.arange(count // 2 + 1), step * np.arange(1, (count + 1) // 2)
    w = np.concatenate([even, odd])
    half = 0.5 * (END - START) * np.where(np.arange(count) == 0, 2.0, 1.0)
    on, off = np.r_[np.ones(len(even)), np.zeros(len(odd))], np.r_[np.zeros(len(even)), odd]
    if name == "Matern12":
        return np.diag(half * (lam**2 + w**2) / (2 * lam)) + np.outer(on, on)
    if name == "Matern32":
        return np.diag(half * (lam**2 + w**2) ** 2 / (4 * lam**3)) + np.outer(on, on) + np.outer(off, off) / lam**2
    bent = np.r_[3 * (even / lam) ** 2 - 1, np.zeros(len(odd))] / np.sqrt(8)
    ends = np.outer(on, on) + 3 * np.outer(off, off) / lam**2 + np.outer(bent, bent)
    return np.diag(half * 3 * (lam**2 + w**2) ** 3 / (16 * lam**5)) + ends


@functools.cache
def inner_products(name: str) -> np.ndarray:
    """Those of 14 features as they are before each is scaled."""

    @jax.jit
    def computed(numbers: list[Array]) -> tuple[Array, Array]:
        found = basis(matern(name), numbers, fourier(14))
        return found.among, found.weights

    among, weights = map(np.asarray, computed(one()))
    return among / np.outer(weights, weights)


@pytest.mark.parametrize("name", MATERN)
def test_waves_are_those_of_the_paper(name: str) -> None:
    waves = 14 - (1, 3, 4)[MATERN.index(name)]
    np.testing.assert_allclose(inner_products(name)[:waves, :waves], hensman(name, waves), rtol=1e-10)


@pytest.mark.parametrize("name", MATERN)
def test_powers_have_the_inner_products_of_the_space(name: str) -> None:
    """By quadrature of <g, h>, with derivatives written out; the first wave and the last power stand for all."""
    n, raw = MATERN.index(name) + 1, inner_products(name)
    lam = np.sqrt(2 * n - 1) / ELL
    poly = np.polynomial.Polynomial([-1 - 2 * START / (END - START), 2 / (END - START)]) ** (1, 3, 4)[n - 1]
    w = 2 * np.pi / (END - START)

    def wave(x: float, order: int) -> float:
        return w**order * np.cos(w * (x - START) + order * np.pi / 2)

    def power(x: float, order: int) -> float:
        return float(poly.deriv(order)(x))

    def applied(g, x: float) -> float:
        binomial = {1: (1, 1), 2: (1, 2, 1), 3: (1, 3, 3, 1)}[n]
        return sum(c * lam ** (n - k) * g(x, k) for k, c in enumerate(binomial))

    spread = {1: 2 * lam, 2: 4 * lam**3, 3: 16 / 3 * lam**5}[n]
    kappa = lam**2 / 3
    stationary = {
        1: np.eye(1),
        2: np.diag([1, lam**2]),
        3: np.array([[1, 0, -kappa], [0, kappa, 0], [-kappa, 0, lam**4]]),
    }[n]

    def inner(g, h) -> float:
        ends = [np.array([each(START, k) for k in range(n)]) for each in (g, h)]
        inside = quad(lambda x: applied(g, x) * applied(h, x), START, END, epsabs=1e-12, limit=200)[0]
        return inside / spread + float(ends[0] @ np.linalg.solve(stationary, ends[1]))

    np.testing.assert_allclose(raw[-1, -1], inner(power, power), rtol=1e-9)
    np.testing.assert_allclose(raw[1, -1], inner(wave, power), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(raw[1, 1], inner(wave, wave), rtol=1e-9)


@pytest.mark.parametrize("name", MATERN)
def test_features_explain_all_of_the_interval_in_the_end(name: str) -> None:
    points, left = np.linspace(START, END, 24)[:, None], []
    for count in (6, 24, 96):
        open_part = explained(matern(name), one(), fourier(count), points)
        assert np.linalg.eigvalsh(open_part).min() > -1e-9
        left.append(np.trace(open_part))
    assert left[0] > left[1] > left[2]
    assert left[2] < 24 * {"Matern12": 2e-2, "Matern32": 1e-4, "Matern52": 1e-5}[name]


@pytest.mark.parametrize("name", MATERN)
def test_outside_the_interval_values_depend_on_the_nearer_end(name: str) -> None:
    """What all of the interval explains of values outside, against many points in it."""
    outside, inside = np.array([[START - 0.4], [END + 0.8]]), np.linspace(START, END, 500)[:, None]
    open_part = explained(matern(name), one(), fourier(120), outside)
    at, every = Values(jnp.asarray(outside)), Values(jnp.asarray(inside))
    cross = np.asarray(covariance(matern(name), one(), every, at))
    among = np.asarray(covariance(matern(name), one(), every)) + 1e-10 * np.eye(500)
    dense = np.asarray(covariance(matern(name), one(), at)) - cross.T @ np.linalg.solve(among, cross)
    np.testing.assert_allclose(open_part, dense, atol=8e-3)


def test_slopes_of_values_are_those_of_the_functions() -> None:
    points, step = jnp.asarray([[-1.0], [0.3], [END + 0.4]]), 1e-5
    cov = jax.jit(lambda a, b: covariance(matern("Matern52"), one(), a, b))
    there = cov(fourier(12), Derivatives(points, (0,)))
    sides = [cov(fourier(12), Values(points + h)) for h in (step, -step)]
    np.testing.assert_allclose(there, (sides[0] - sides[1]) / (2 * step), atol=1e-7)
    both = Combination((Values(points), Derivatives(points, (0,))), (2.0, -1.0))
    mixed = cov(both, fourier(12))
    np.testing.assert_allclose(mixed.T, 2.0 * cov(fourier(12), Values(points)) - there)


def on(column: int, name: str = "Matern32") -> On:
    return On((block(column, column + 1),), (), matern(name))


def test_sums_and_products_over_columns() -> None:
    points = np.random.default_rng(0).uniform(START, END, (20, 2))
    numbers = [jnp.asarray(2.0), jnp.asarray(0.7), jnp.asarray(1.3)]
    added, times = Sum((Scaled(on(0)), on(1, "Matern52"))), Product((Scaled(on(0)), on(1, "Matern52")))
    for form, count, size, close in ((added, 40, 80, 2e-2), (times, 14, 196, 5e-2)):
        made = jax.eval_shape(lambda n, form=form, count=count: basis(form, n, fourier(count, width=2)).among, numbers)
        assert made.shape == (size, size)
        open_part = explained(form, numbers, fourier(count, size, 2), points)
        assert np.linalg.eigvalsh(open_part).min() > -1e-9
        assert np.abs(open_part).max() < close


def test_a_line_and_a_constant_are_their_own_features() -> None:
    form = Sum((Base("Constant", ()), Base("Linear", ("ell",)), Base("White", ())))
    points = Values(jnp.asarray([[-1.0, 2.0], [0.5, 0.1]]))
    cross = covariance(form, one(), fourier(5, 3, 2), points)
    plain = covariance(Sum(form.terms[:2]), one(), points)
    np.testing.assert_allclose(cross.T @ cross, plain, rtol=1e-12)


def test_eigenfunctions_of_rbf() -> None:
    """Against quadrature of their defining equation, in one column and in two."""
    features = Coefficients(jnp.asarray([[START], [END]]), "eigen", 8, 8)
    found = basis(Base("RBF", ("ell",)), one(), features)
    functions = jax.jit(found.functions)
    middle, sd, x = 0.5 * (START + END), 0.25 * (END - START), 0.4
    for i in (0, 7):

        def product(z: float, i: int = i) -> float:
            density = np.exp(-0.5 * ((z - middle) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
            return float(np.exp(-0.5 * ((z - x) / ELL) ** 2) * functions(jnp.asarray([[z]]))[0, i] * density)

        told = found.weights[i] ** 2 * functions(jnp.asarray([[x]]))[0, i]
        np.testing.assert_allclose(quad(product, -9, 9, limit=200)[0], told, rtol=1e-6)
    points = np.random.default_rng(0).uniform(START, END, (20, 2))
    wide = Coefficients(jnp.asarray([[START, START], [END, END]]), "eigen", 200, 200)
    open_part = explained(Base("RBF", ("ell",)), [jnp.asarray([0.7, 1.5])], wide, points)
    assert np.abs(open_part).max() < 1e-4 and np.linalg.eigvalsh(open_part).min() > -1e-9


def eigen(count: int, size: int | None = None, width: int = 1) -> Coefficients:
    corners = jnp.asarray([[START] * width, [END] * width])
    return Coefficients(corners, "eigen", count, count if size is None else size)


def kernel_of(name: str, r: float) -> float:
    u = np.sqrt({"Matern12": 1, "Matern32": 3, "Matern52": 5}[name]) * abs(r) / ELL
    return float({"Matern12": 1, "Matern32": 1 + u, "Matern52": 1 + u + u**2 / 3}[name] * np.exp(-u))


@pytest.mark.parametrize("name", MATERN)
def test_projections_of_matern_kernels_are_integrals(name: str) -> None:
    """With values inside and outside, and among themselves, each by quadrature of its definition."""
    places = [START - 1.1, START, -0.7, 0.4, END, END + 0.3]
    at, features = Values(jnp.asarray(places)[:, None]), eigen(8)
    # In a box much longer than the process is correlated, what the ends cut off is nothing beside the density.
    wide = Coefficients(jnp.asarray([[-350.0], [350.0]]), "eigen", 40, 40)

    @jax.jit
    def every(numbers: list[Array]) -> tuple[Array, ...]:
        made, in_wide = (basis(matern(name), numbers, each) for each in (features, wide))
        return covariance(matern(name), numbers, features, at), made.among, made.weights, in_wide.among

    whole, scaled, weights, far = map(np.asarray, every(one()))
    cross, among = whole / weights[:, None], scaled / np.outer(weights, weights)

    def wave(j: int, x: float) -> float:
        return float(np.cos(j * np.pi * (x - START) / (END - START)))

    def with_value(j: int, x: float) -> float:
        cut = [x] if START < x < END else None
        return quad(lambda z: kernel_of(name, x - z) * wave(j, z), START, END, points=cut, epsabs=1e-12)[0]

    for j in (0, 1, 7):
        np.testing.assert_allclose(cross[j], [with_value(j, x) for x in places], atol=1e-10)
    for i, j in ((0, 0), (1, 1), (7, 7), (0, 2), (3, 7), (1, 2)):
        both = quad(lambda x, i=i, j=j: with_value(i, x) * wave(j, x), START, END, epsabs=1e-10)[0]
        np.testing.assert_allclose(among[i, j], both, atol=1e-9)
    np.testing.assert_allclose(np.diag(scaled), 1.0, rtol=1e-12)
    assert np.abs(far - np.eye(40)).max() < 5e-3


@pytest.mark.parametrize("name", MATERN)
def test_projections_explain_all_of_the_interval_in_the_end(name: str) -> None:
    points, left = np.linspace(START, END, 24)[:, None], []
    for count in (6, 24, 96):
        open_part = explained(matern(name), one(), eigen(count), points)
        assert np.linalg.eigvalsh(open_part).min() > -1e-9
        left.append(np.trace(open_part))
    assert left[0] > left[1] > left[2]
    assert left[2] < 24 * {"Matern12": 5e-2, "Matern32": 1e-3, "Matern52": 1e-4}[name]
    beyond = np.array([[START - 0.4], [END + 0.8]])  # what the ends tell, of which projections learn slowly
    outside, known = (np.diag(explained(matern(name), one(), u, beyond)) for u in (eigen(96), fourier(120)))
    assert np.all(outside > known - 1e-3) and np.all(outside < known + 5e-2)


def test_projections_have_slopes() -> None:
    """In places, and in the length-scale; in single precision too they are finite."""
    points, step = jnp.asarray([[-1.0], [0.3], [END + 0.4]]), 1e-5
    cov = jax.jit(lambda a, b: covariance(matern("Matern52"), one(), a, b))
    there = cov(eigen(12), Derivatives(points, (0,)))
    sides = [cov(eigen(12), Values(points + h)) for h in (step, -step)]
    np.testing.assert_allclose(there, (sides[0] - sides[1]) / (2 * step), atol=1e-7)

    @jax.jit
    @jax.value_and_grad
    def total(ell: Array) -> Array:
        made = basis(matern("Matern32"), [ell], eigen(12))
        return jnp.sum(jnp.cos(made.among)) + jnp.sum(made.weights[:, None] * made.functions(points).T)

    slope = total(jnp.asarray(ELL))[1]
    ahead = [float(total(jnp.asarray(ELL + h))[0]) for h in (step, -step)]
    np.testing.assert_allclose(slope, (ahead[0] - ahead[1]) / (2 * step), rtol=1e-6)
    narrow = Coefficients(jnp.asarray([[0.0], [1.0]], "f4"), "eigen", 50, 50)
    single = jax.jit(lambda ell: basis(matern("Matern52"), [ell], narrow).among)(jnp.asarray(ELL, "f4"))
    assert single.dtype == jnp.float32 and float(jnp.linalg.eigvalsh(single).min()) > 0


@pytest.mark.parametrize(
    ("form", "family", "why"),
    [
        (Base("RBF", ("ell",)), "fourier", "not of RBF"),
        (Base("Periodic", ("ell", "period")), "eigen", "not of Periodic"),
        (Product((matern("Matern32"), Base("Periodic", ("ell", "period")))), "fourier", "not of Periodic"),
        (Base("White", ()), "fourier", "not of White"),
    ],
)
def test_kernels_without_features(form: Form, family: str, why: str) -> None:
    with pytest.raises(Unsuited, match=why):
        basis(form, [jnp.asarray(1.0)] * 3, Coefficients(jnp.asarray([[0.0], [1.0]]), family, 5, 5))


def test_features_stand_beside_points_and_are_kept() -> None:
    points = Values(jnp.asarray([[-1.0], [0.5]]))
    both = Stacked((points, fourier(7)))
    assert len(both) == 9

    @jax.jit
    def every(numbers: list[Array]) -> tuple[Array, ...]:
        pairs = (both,), (points,), (fourier(7),), (fourier(7), points)
        found = [covariance(matern("Matern32"), numbers, *pair) for pair in pairs]
        return *found, variance(matern("Matern32"), numbers, both)

    among, of_points, of_waves, across, own = map(np.asarray, every(one()))
    np.testing.assert_allclose(among[:2, :2], of_points)
    np.testing.assert_allclose(among[2:, 2:], of_waves)
    np.testing.assert_allclose(among[2:, :2], across)
    np.testing.assert_allclose(among, among.T, atol=1e-14)
    np.testing.assert_allclose(own, np.diag(among))
    again = from_outline(outline(both), iter([points.points, both.parts[1].points]))
    assert outline(again) == outline(both) and len(again) == 9


def test_hundreds_of_eigenfunctions_are_one_loop() -> None:
    """Written out, each degree made the program longer: 500 took minutes to compile."""
    corners = jnp.array([[-3.0], [3.0]])

    def steps(count: int) -> int:
        found = waves.eigen("RBF", {"ell": jnp.array(1.0)}, corners, count)
        return len(jax.make_jaxpr(found.functions)(corners).eqns)

    assert steps(300) == steps(3)
