"""Random waves: their products are the covariance in expectation, and so are derivatives in the hyperparameters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from scipy import special, stats

import gpdsl
from gpdsl.inference.quadruply_stochastic.weights import FourierFeatures, fourier_features
from gpdsl.kernels.counters import MOST_STRATA, Stream, quick_normal_quantile, threefry
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Values
from gpdsl.kernels.wave_families import SPREAD, table_radii
from gpdsl.kernels.waves import Circle, Quadratic, Wave, terms, unsuited
from gpdsl.lowering.table import cosine
from gpdsl.lowering.tails import gamma_quantile
from gpdsl.program.cache import jit
from gpdsl.program.program import Program, make_program
from gpdsl.symbolic.kernel_formula import DISTANCE as R
from gpdsl.symbolic.spectral import FREQUENCY

MODEL = """
model waves
{definition}
input x : real[{columns}]
output y : real
param s : positive = 0.7
param q : positive = 1.7
param ell : positive = 1.3
param ard : positive[{columns}] = 1
param w : positive[3] = [0.5, 0.3, 0.2]
param mu : positive[3] = [0.1, 0.5, 1.0]
param sd : positive[3] = 0.1
latent f(x) ~ GP(0, {kernel})
y ~ Normal(f, s)
"""
WAVES = 20_000


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


TABLE = [
    (3, "s * RBF(ard)"),
    (3, "Matern12(ard)"),
    (2, "s * Matern32(ell)"),
    (3, "Matern52(ard)"),
    pytest.param(2, "RationalQuadratic(ard, alpha = q)", marks=pytest.mark.slow),
    (1, "RationalQuadratic(ell, alpha = 0.3)"),
    (2, "Periodic(ell, q)"),
    (2, "Cosine(q)"),
    (2, "SpectralMixture(w, mu, sd)"),
    (2, "Linear(ard)"),
    (2, "Polynomial(degree = 2, offset = s)"),
    (2, "ArcCosine(order = 1, weight = s)"),
    (2, "s * Same() + RBF(ell) * Same(on = x[1])"),
    (2, "ChangePoint(RBF(ell), q * Matern12(2), at = 0.2, width = s, on = x[1])"),
    (3, "RBF(ell) * Periodic(1, 2) + s * Matern32(ard)"),
    (3, "(RBF(1, on = x[1]) + s * Linear(1)) * (Constant() + q * Matern12(2, on = x[2..3]))"),
]
FORMULAS = [
    (1, "spiral(r; ell, p) = exp(-2 * sin(pi * r / p)^2 / ell^2)", "s * spiral(ell, q)"),
    (3, "k(r; ell) = exp(-r^2 / (2 * ell^2))", "k(ell)"),
    (3, "k(r; ell) = (1 + r / ell) * exp(-r / ell)", "k(ell)"),
    (1, "k(r; ell, b) = exp(-r / ell) * cos(b * r)^2", "k(ell, q)"),
    (1, "k(r; ell, b) = exp(-r^2 / ell - 2 * sin(pi * r / b)^2)", "s * k(ell, q)"),
    pytest.param(2, "k(r; ell, b) = (1 + r^2 / ell)^(-b)", "k(ell, q)", marks=pytest.mark.slow),
    (2, "k(r; ell, b) = b * exp(-r^2 / ell) + exp(-r) * 0.5", "k(ell, q)"),
    (1, "k(r; b) = (3 + cos(b * r) + 2 * cos(2 * b * r)) / 6", "k(q)"),
]


def program(columns: int, kernel: str, definition: str = "") -> Program:
    """A regression with this kernel."""
    definition = f"kernel {definition}" if definition else ""
    text = MODEL.format(columns=columns, kernel=kernel, definition=definition)
    return make_program(gpdsl.compile(text).declarations, {}, {}, {})


def drawn(of: Program, seed: int = 1) -> FourierFeatures:
    """All features of the given waves."""
    features = fourier_features(of, 2 * WAVES, seed)
    return features if features.per_wave == 2 else fourier_features(of, WAVES, seed)


def check(of: Program, columns: int, seed: int) -> None:
    """z-scores of a random quadratic form of the covariance, and of its derivative in a random direction."""
    rng = np.random.default_rng(seed)
    start = {n: v + 0.3 * rng.normal(size=np.shape(v)) for n, v in of.parameters.unconstrained().items()}
    along = {n: rng.normal(size=np.shape(v)) for n, v in start.items()}
    x, weights = jnp.asarray(rng.normal(size=(6, columns))), jnp.asarray(rng.normal(size=6))
    features = drawn(of, seed)

    def each(parameters):
        """One unbiased estimate of the form for each wave."""
        sums = weights @ features.values(parameters, x, jnp.arange(features.count))
        return jnp.sum((sums**2).reshape(WAVES, features.per_wave), axis=1) * WAVES

    def whole(parameters):
        scale, arguments = features.latent.kernel(parameters)
        return weights @ (scale * covariance(features.latent.group.form, arguments, Values(x))) @ weights

    found, slopes = jit(lambda p, d: jax.jvp(each, (p,), (d,)))(start, along)
    exact, slope = jit(lambda p, d: jax.jvp(whole, (p,), (d,)))(start, along)
    for values, truth in ((found, exact), (slopes, slope)):
        values = np.asarray(values)
        error = abs(values.mean() - float(truth))
        assert error < 4.5 * values.std() / np.sqrt(WAVES) + 1e-4 * abs(float(truth)), (error, values.std())


@pytest.mark.parametrize(("columns", "kernel"), TABLE)
def test_waves_of_the_table_have_its_covariance(columns: int, kernel: str) -> None:
    """E[Phi Phi'] = K, and the same of derivatives: false alarms in 1 of 70,000 comparisons."""
    check(program(columns, kernel), columns, 3)


@pytest.mark.parametrize(("columns", "definition", "kernel"), FORMULAS)
def test_waves_of_formulas_have_their_covariance(columns: int, definition: str, kernel: str) -> None:
    """Those whose spectral density is found, or whose parts are known."""
    check(program(columns, kernel, definition), columns, 4)


ELL, Q = sp.symbols("ell q", positive=True)
WRITTEN = {
    Wave: lambda wave: sp.cos(wave.rate * R),
    Circle: lambda circle: sp.exp(-circle.size * sp.sin(circle.rate * R) ** 2),
    Quadratic: lambda each: (1 + R**2 / (2 * each.alpha * each.ell**2)) ** -each.alpha,
}


@pytest.mark.parametrize(
    ("columns", "profile"),
    [
        (2, (1 + R**2 / ELL) ** -Q),
        (3, ELL * (ELL + Q * R**2) ** -Q),
        (1, (2 + R**2 / Q**2) ** -ELL * sp.cos(R / ELL) ** 2 + 3 * sp.exp(-Q * sp.sin(R / ELL) ** 2)),
    ],
)
def test_the_pieces_of_a_formula_are_the_formula(columns: int, profile: sp.Expr) -> None:
    """As each says what it is: those of many draws are compared above, and take long to compile."""
    found = terms(profile, columns)
    assert found is not None
    whole = sp.Add(*[sp.Mul(size, *[WRITTEN[type(piece)](piece) for piece in pieces]) for size, pieces in found])
    for numbers in ({ELL: 0.7, Q: 1.9, R: 0.6}, {ELL: 2.3, Q: 0.4, R: 1.7}):
        assert float(whole.subs(numbers)) == pytest.approx(float(profile.subs(numbers)), rel=1e-12)


@pytest.mark.parametrize(
    ("columns", "definition", "kernel", "said"),
    [
        (2, "", "RBF(1) + White()", "`White`"),
        (2, "", "ArcCosine(order = 0)", "step"),
        (2, "k(a, b; ell) = exp(-sum(abs(a - b)) / ell)", "k(ell) * RBF(1)", "`k` is a formula"),
        (4, "", "Patch(RBF(1), image = [2, 2], patch = [1, 1])", "`Patch`"),
        (1, "k(r; ell) = exp(-sqrt(r) / ell)", "k(ell)", "formula `k`"),
    ],
)
def test_the_factor_without_waves_is_named(columns: int, definition: str, kernel: str, said: str) -> None:
    """With what to use instead."""
    of = program(columns, kernel, definition)
    with pytest.raises(gpdsl.GpdslError, match=said) as error:
        fourier_features(of, 10, 0)
    assert "engine = vi" in str(error.value)


def test_a_column_does_not_depend_on_the_others() -> None:
    """Any columns in any order, in single and in double precision, are those of the whole."""
    features = fourier_features(program(3, "RBF(ell) * Periodic(1, 2) + s * Matern32(ard)"), 1000, 5)
    start = features.latent.program.parameters.unconstrained()
    x = np.random.default_rng(0).normal(size=(4, 3))
    values = jit(features.values)
    whole = values(start, jnp.asarray(x), jnp.arange(1000))
    some = np.array([999, 3, 3, 512, 0])
    np.testing.assert_allclose(values(start, jnp.asarray(x), some), whole[:, some], rtol=1e-12)
    single = values({n: np.float32(v) for n, v in start.items()}, jnp.asarray(x, jnp.float32), some)
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, whole[:, some], atol=1e-4 / np.sqrt(1000))


@pytest.mark.parametrize(("on", "suited"), [("x[2]", True), ("x[1] + x[2]", True), ("x[2..3]", False), ("x", False)])
def test_columns_count_for_what_has_waves_over_one_alone(on: str, suited: bool) -> None:
    """A cosine of the distance is positive definite over one column, whichever it is, and over no more."""
    definition = "k(r; b) = exp(-r) * (3 + cos(b * r) + 2 * cos(2 * b * r)) / 6"
    of = program(3, f"s * k(q, on = {on}) + RBF(ell)", definition)
    said = unsuited(of.groups[0].form, 3)
    assert said is None if suited else said is not None and "formula `k`" in said


def test_threefry_gives_the_published_words() -> None:
    """The known answers of Random123."""
    pairs = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]
    for key, counter, answer in pairs:
        found = threefry(tuple(map(jnp.uint32, key)), *map(jnp.uint32, counter))
        assert tuple(map(int, found)) == answer


def test_streams_are_uniform_normal_and_even() -> None:
    """Kolmogorov-Smirnov, and choices that are spread evenly and independent of each other."""
    stream = Stream(7, jnp.arange(50_000), jnp.float64)
    assert stats.kstest(np.asarray(stream.uniforms(3)).ravel(), "uniform").pvalue > 1e-4
    assert stats.kstest(np.asarray(stream.normals(3)).ravel(), "norm").pvalue > 1e-4
    table = np.zeros((3, 5))
    np.add.at(table, (np.asarray(stream.choices(3)), np.asarray(stream.choices(5))), 1)
    assert np.ptp(table) <= 1
    assert np.bincount(stream.choices(100)).min() > 300


def test_choices_of_too_many_are_uniform_alone() -> None:
    choices = np.asarray(Stream(7, jnp.arange(4000), jnp.float64).choices(MOST_STRATA + 1))
    assert (choices.min(), choices.max()) == (0, MOST_STRATA)
    assert stats.chisquare(np.bincount(choices)).pvalue > 1e-4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_uniform_number_is_below_1(dtype: str) -> None:
    """One word in 2^24 rounds to 1 in single precision, and 10^7 waves meet it: this index does with the seed 0."""
    stream = Stream(0, jnp.asarray([3_154_904]), jnp.dtype(dtype))
    assert 1.0 - 1e-7 < float(stream.uniforms(1)[0, 0]) < 1.0
    again = Stream(0, jnp.asarray([3_154_904]), jnp.dtype(dtype))
    assert 5.0 < float(again.normals(1)[0, 0]) < 6.0


def test_quick_normal_quantiles() -> None:
    """Against SciPy, from one tail to the other."""
    probability = (np.concatenate([np.arange(0, 2**24, 997), [2**24 - 2]]) + 0.5) * 2.0**-24
    single = probability.astype(np.float32)
    exact = stats.norm.ppf(single.astype(float))
    np.testing.assert_allclose(quick_normal_quantile(jnp.asarray(single)), exact, rtol=1e-6, atol=5e-7)


@pytest.mark.parametrize(("columns", "kernel"), [(33, "s * RBF(ell)"), (40, "Matern32(ell) * Linear(1) + RBF(1)")])
def test_consecutive_functions_are_those_of_their_indices(columns: int, kernel: str) -> None:
    """A cosine and a sine of one wave draw it once; runs may begin with either, and end with either."""
    of = program(columns, kernel)
    features, learnt = fourier_features(of, 101, 3), of.parameters.unconstrained()
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, columns)))
    consecutive, each = jit(partial(features.consecutive, learnt, x)), jit(partial(features.values, learnt, x))
    for first, size in ((0, 101), (6, 8), (7, 8), (7, 9), (94, 7), (100, 1)):
        index = first + jnp.arange(size)
        np.testing.assert_allclose(consecutive(index), each(index), atol=1e-13)


def test_cosines_of_turns() -> None:
    """Against NumPy, for angles of many turns."""
    turns = np.random.default_rng(0).normal(size=10_000) * 20
    np.testing.assert_allclose(cosine(jnp.asarray(turns)), np.cos(2 * np.pi * turns), atol=1e-12)
    single = turns.astype(np.float32)
    np.testing.assert_allclose(cosine(jnp.asarray(single)), np.cos(2 * np.pi * single.astype(float)), atol=5e-7)
    slopes = jax.vmap(jax.grad(cosine))(jnp.asarray(turns))
    np.testing.assert_allclose(slopes, -2 * np.pi * np.sin(2 * np.pi * turns), atol=1e-11)


def test_gamma_quantiles_and_their_derivative_in_the_shape() -> None:
    """Against SciPy's quantile function and its difference quotient."""
    shape, normal = np.array([[1.2], [2.0], [30.0]]), np.linspace(-4, 4, 41)
    probability = special.ndtr(normal)
    found, slopes = jit(lambda a, z: jax.jvp(lambda a: gamma_quantile(a, z), (a,), (jnp.ones_like(a),)))(shape, normal)
    np.testing.assert_allclose(found, stats.gamma.ppf(probability, shape), rtol=1e-8)
    step = 1e-4
    ahead, behind = (stats.gamma.ppf(probability, shape + h) for h in (step, -step))
    np.testing.assert_allclose(slopes, (ahead - behind) / (2 * step), rtol=1e-5)


def test_radii_leave_room_for_parameters_to_move() -> None:
    """A hundredth on either side of where the mass of a density without any lies; three hundred times as far of one."""
    still = sp.exp(-(FREQUENCY**2) / 2)
    moving = sp.exp(-(FREQUENCY**2) * sp.Symbol("ell", positive=True) ** 2 / 2)  # the same at 1, where it is looked at
    fixed, free = (table_radii(each, 2) for each in (still, moving))
    mass = special.gammainc(1.0, fixed[[0, -1]] ** 2 / 2)  # of a chi squared variable with two degrees of freedom
    assert mass[0] < 1e-6 and mass[1] > 1 - 1e-6
    np.testing.assert_allclose([fixed[0] / free[0], free[-1] / fixed[-1]], SPREAD / 1.02)
