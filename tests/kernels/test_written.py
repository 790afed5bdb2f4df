"""Kernels by formula, structured kernels and chosen columns against their formulas in plain NumPy, pair by pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from numpy.linalg import norm

from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.functionals import Derivatives, Values
from gpdsl.language.vocabulary import KERNELS
from gpdsl.program.cache import jit
from gpdsl.symbolic.kernel_coordinates import FORMULAS

from .test_covariance import DEGREE, REFERENCES
from .written import Numbers, drawn, placed, written

WIDTH = {"x": 3, "s": 1, "z": 7, "w": 20, "task": 1, "t": 1}


def sigmoid(v: float) -> float:
    return 1 / (1 + np.exp(-v))


def arc_cosine(order: int) -> Callable[..., float]:
    def kernel(a: np.ndarray, b: np.ndarray, ell: np.ndarray, p: float) -> float:
        first, second, both = a @ (ell * a) + p, b @ (ell * b) + p, a @ (ell * b) + p
        angle = np.arccos(np.clip(both / np.sqrt(first * second), -1, 1))
        rest = np.pi - angle
        shape = [
            rest,
            np.sin(angle) + rest * np.cos(angle),
            3 * np.sin(angle) * np.cos(angle) + rest * (1 + 2 * np.cos(angle) ** 2),
        ]
        return (first * second) ** (order / 2) * shape[order] / np.pi

    return kernel


def spectral_mixture(a: np.ndarray, b: np.ndarray, weights: np.ndarray, means: np.ndarray, sds: np.ndarray) -> float:
    t = a - b
    waves = [np.exp(-2 * np.pi**2 * t**2 * s**2) * np.cos(2 * np.pi * t * m) for m, s in zip(means, sds, strict=True)]
    return sum(w * np.prod(wave) for w, wave in zip(weights, waves, strict=True))


def patches(a: np.ndarray, b: np.ndarray, ls: float) -> float:
    cut = lambda v: [v.reshape(2, 3)[i : i + 1, j : j + 2].ravel() for i in range(2) for j in range(2)]  # noqa: E731
    return np.mean([[np.exp(-sum((p - q) ** 2) / 2 / ls**2) for q in cut(b[:6])] for p in cut(a[:6])])


def change_point(a: np.ndarray, b: np.ndarray, ls: float, p: float) -> float:
    first, second = sigmoid((a[0] - 0.3) / 0.5), sigmoid((b[0] - 0.3) / 0.5)
    before, after = np.exp(-((a[0] - b[0]) ** 2) / 2 / ls**2), p * a[0] * b[0] / ls**2
    return (1 - first) * (1 - second) * before + first * second * after


def level(v: np.ndarray) -> int:
    return int(np.clip(np.round(v[-1]), 1, 3)) - 1


def coregion(a: np.ndarray, b: np.ndarray, ell: np.ndarray, W: np.ndarray, kappa: np.ndarray) -> float:
    between = W @ W.T + np.diag(kappa)
    return np.exp(-sum(((a - b)[:3] / ell) ** 2) / 2) * between[level(a), level(b)]


@dataclass(frozen=True)
class Case:
    """A kernel over an input, the definition it needs, and its formula."""

    over: str
    kernel: str
    formula: Callable[..., float]
    definition: str = ""


def by_formula(over: str, head: str, body: str, formula: Callable[..., float]) -> Case:
    return Case(over, "k()", formula, f"kernel k({head}) = {body}")


# Of the points of these the last column is the value of an index at each, from 1.


def windows(v: np.ndarray, u: np.ndarray, t: np.ndarray) -> float:
    return np.prod(np.sqrt(2 * v * u / (v**2 + u**2)) * np.exp(-(t**2) / (v**2 + u**2)))


def smoothed(a: np.ndarray, b: np.ndarray, kappa: np.ndarray) -> float:
    return windows(kappa[level(a)], kappa[level(b)], norm(a[:-1] - b[:-1]))


def smoothed_by_column(a: np.ndarray, b: np.ndarray, **widths: np.ndarray) -> float:
    (each,) = widths.values()
    return windows(each[level(a)], each[level(b)], a[:-1] - b[:-1])


def mixed(a: np.ndarray, b: np.ndarray, W: np.ndarray) -> float:
    return W[level(a)] @ W[level(b)] * np.exp(-((a[0] - b[0]) ** 2))


def own(a: np.ndarray, b: np.ndarray, kappa: np.ndarray, ls: float) -> float:
    return (1 + kappa[level(a)] * (level(a) == level(b))) * np.exp(-((a[0] - b[0]) ** 2) / ls)


def late(a: np.ndarray, b: np.ndarray, kappa: np.ndarray, ls: float) -> float:
    return np.exp(-abs(a[0] - kappa[level(a)] - b[0] + kappa[level(b)]) / ls)


WINDOWS = "sqrt(2 * {0}[d] * {0}[e] / ({0}[d]^2 + {0}[e]^2)) * exp(-{1}^2 / ({0}[d]^2 + {0}[e]^2))"


def of_levels(over: str, head: str, body: str, formula: Callable[..., float], call: str = "k()") -> Case:
    return Case(over, call, formula, f"kernel k[d, e]({head}) = {body}")


BY_LEVEL = {
    "windows": of_levels("s, t", "a, b; kappa", WINDOWS.format("kappa", "(a - b)"), smoothed),
    "windows of a distance": of_levels("x, t", "r; kappa", WINDOWS.format("kappa", "r"), smoothed),
    "windows of a sum": of_levels("x, t", "a, b; kappa", WINDOWS.format("kappa", "norm(a - b)"), smoothed),
    "windows of the model": of_levels("s, t", "a, b", WINDOWS.format("kappa", "(a - b)"), smoothed),
    "windows before the columns": of_levels(
        "t, x",
        "r; kappa",
        WINDOWS.format("kappa", "r"),
        lambda a, b, kappa: smoothed(np.roll(a, -1), np.roll(b, -1), kappa),
        "k(on = [t, x])",
    ),
    "windows of some columns": of_levels(
        "z, t",
        "r; v",
        WINDOWS.format("v", "r"),
        lambda a, b, kappa: smoothed(np.append(2 * a[1:3], a[-1]), np.append(2 * b[1:3], b[-1]), kappa),
        "k(kappa, on = [2 * z[2..3], t])",
    ),
    "windows by column": of_levels("z, t", "a, b; ex", f"prod({WINDOWS.format('ex', '(a - b)')})", smoothed_by_column),
    "windows by many columns": of_levels(
        "w, t", "a, b; ew", f"prod({WINDOWS.format('ew', '(a - b)')})", smoothed_by_column
    ),
    "mixed levels": of_levels("s, t", "a, b; W", "sum(r, W[d, r] * W[e, r]) * exp(-(a - b)^2)", mixed),
    "the same level": of_levels("s, t", "r; kappa, ls", "(if d == e then 1 + kappa[d] else 1) * exp(-r^2 / ls)", own),
    "late levels": of_levels("s, t", "a, b; kappa, ls", "exp(-abs(a - kappa[d] - b + kappa[e]) / ls)", late),
    "many scales": Case(
        "s",
        "k()",
        lambda a, b, weights, sds: sum(weights * np.exp(-((a - b) ** 2) * sds)),
        "kernel k(r; weights, sds) = sum(q, weights[q] * exp(-sds[q] * r^2))",
    ),
}


CASES = {
    "distance, even powers": by_formula(
        "x", "r; ls", "exp(-r^2/(2*ls^2))", lambda a, b, ls: np.exp(-(norm(a - b) ** 2) / 2 / ls**2)
    ),
    "distance, odd powers": by_formula(
        "z",
        "r; ls",
        "(1 + sqrt(3)*r/ls)*exp(-sqrt(3)*r/ls)",
        lambda a, b, ls: (1 + 3**0.5 * norm(a - b) / ls) * np.exp(-(3**0.5) * norm(a - b) / ls),
    ),
    "distance, a sine": by_formula(
        "s",
        "r; ls, p",
        "exp(-2*sin(pi*r/p)^2/ls^2)",
        lambda a, b, ls, p: np.exp(-2 * np.sin(np.pi * norm(a - b) / p) ** 2 / ls**2),
    ),
    "distance, an even function of several columns": by_formula(
        "x", "r; ls", "1/cosh(r/ls)", lambda a, b, ls: 1 / np.cosh(norm(a - b) / ls)
    ),
    "distance, a limit at zero": by_formula(
        "x", "r; ls", "sin(r/ls)/(r/ls)", lambda a, b, ls: np.sinc(norm(a - b) / ls / np.pi)
    ),
    "distance, a power that is learnt": by_formula(
        "x",
        "r; ls, p",
        "exp(-(r/ls)^(2*sigmoid(p)))",
        lambda a, b, ls, p: np.exp(-((norm(a - b) / ls) ** (2 * sigmoid(p)))),
    ),
    "distance, a function without a written derivative": by_formula(
        "x", "r; ls", "2*sigmoid(-r/ls)", lambda a, b, ls: 2 * sigmoid(-norm(a - b) / ls)
    ),
    "distance, an end": by_formula(
        "x",
        "r; ls",
        "max(1 - r/(3*ls), 0)^4*(4*r/(3*ls) + 1)",
        lambda a, b, ls: max(1 - norm(a - b) / 3 / ls, 0) ** 4 * (4 * norm(a - b) / 3 / ls + 1),
    ),
    "distance, a condition": by_formula(
        "s", "r; ls", "if r < ls then 1 - r/ls else 0", lambda a, b, ls: max(1 - norm(a - b) / ls, 0)
    ),
    "points, scales per column": by_formula(
        "z", "a, b; ez", "exp(-sum((a-b)^2/ez^2)/2)", lambda a, b, ez: np.exp(-sum((a - b) ** 2 / ez**2) / 2)
    ),
    "points, a norm": by_formula(
        "z",
        "a, b; ls",
        "(1 + norm(a-b)/ls)*exp(-norm(a-b)/ls)",
        lambda a, b, ls: (1 + norm(a - b) / ls) * np.exp(-norm(a - b) / ls),
    ),
    "points, products and an element": by_formula(
        "z", "a, b; ls", "dot(a, b)/ls + a[1]*b[1]", lambda a, b, ls: a @ b / ls + a[0] * b[0]
    ),
    "points, powers": by_formula(
        "z", "a, b; ls, ez", "sum(ez*a^2*b^2 + ls)", lambda a, b, ls, ez: sum(ez * a**2 * b**2 + ls)
    ),
    "points, a product of products": by_formula("z", "a, b; ez", "prod(a*b/ez)", lambda a, b, ez: np.prod(a * b / ez)),
    "points, a product over columns": by_formula(
        "z", "a, b; ez", "prod(1 + exp(-abs(a-b)/ez))", lambda a, b, ez: np.prod(1 + np.exp(-abs(a - b) / ez))
    ),
    "points, many columns in a loop": by_formula(
        "w", "a, b; ls", "sum(ls*min(exp(a), exp(b)))", lambda a, b, ls: sum(ls * np.minimum(np.exp(a), np.exp(b)))
    ),
    "points, one column": by_formula(
        "s",
        "a, b; ls, p",
        "exp(-abs(a-b)/ls)*cos(2*pi*(a-b)/p)",
        lambda a, b, ls, p: np.exp(-abs(a - b)[0] / ls) * np.cos(2 * np.pi * (a - b)[0] / p),
    ),
    "points, a quantity of the model": by_formula("s", "a, b", "ls + p*a*b", lambda a, b, ls, p: ls + p * a[0] * b[0]),
    "points, a mean": by_formula("x", "a, b; ls", "(mean(a*b) + ls)^2", lambda a, b, ls: (np.mean(a * b) + ls) ** 2),
    "points, a slice": by_formula("x", "a, b; ls", "ls + sum(a[2..3]*b[2..3])", lambda a, b, ls: ls + a[1:] @ b[1:]),
    "points, a condition": by_formula(
        "s",
        "a, b; ls",
        "if a*b > 0 then ls*min(abs(a), abs(b)) else 0",
        lambda a, b, ls: ls * min(abs(a[0]), abs(b[0])) if a[0] * b[0] > 0 else 0.0,
    ),
    "arguments of a call": Case(
        "x", "k(2, p)", lambda a, b, p: np.exp(-norm(a - b) / 2) * p, "kernel k(r; ls, c) = c*exp(-r/ls)"
    ),
    "sums and products": Case(
        "x",
        "p*k()^2 + ls*RBF(ell)*k(ls = 3)",
        lambda a, b, p, ls, ell: (
            p * np.exp(-2 * norm(a - b) / ls) + ls * np.exp(-sum(((a - b) / ell) ** 2) / 2 - norm(a - b) / 3)
        ),
        "kernel k(r; ls) = exp(-r/ls)",
    ),
    "some columns": Case("z", "RBF(ell, on = z[2..4])", lambda a, b, ell: np.exp(-sum(((a - b)[1:4] / ell) ** 2) / 2)),
    "a column": Case("z", "Linear(ls, on = z[5])", lambda a, b, ls: a[4] * b[4] / ls**2),
    "a function of columns": Case(
        "z", "RBF(1, on = tanh(z/ez))", lambda a, b, ez: np.exp(-sum((np.tanh(a / ez) - np.tanh(b / ez)) ** 2) / 2)
    ),
    "several functions of columns": Case(
        "x",
        "RBF(ell, on = [x[1], exp(x[2]*p), sum(x)])",
        lambda a, b, p, ell: np.exp(
            -sum(((np.array([a[0] - b[0], np.exp(a[1] * p) - np.exp(b[1] * p), sum(a - b)])) / ell) ** 2) / 2
        ),
    ),
    "several inputs": Case(
        "x, s",
        "RBF(ls, on = x)*Matern12(p, on = s)",
        lambda a, b, ls, p: np.exp(-(norm((a - b)[:3]) ** 2) / 2 / ls**2 - abs(a - b)[3] / p),
    ),
    "a formula of one column": Case(
        "x", "k(on = x[2])", lambda a, b, ls: np.exp(-abs(a - b)[1] / ls), "kernel k(a, b; ls) = exp(-abs(a - b)/ls)"
    ),
    "a user function of columns": Case(
        "s",
        "RBF(1, on = warp(s; p))",
        lambda a, b, p: np.exp(-((np.arcsinh(a * p) - np.arcsinh(b * p))[0] ** 2) / 2),
        "function warp(v; p) = asinh(v * p)",
    ),
    "change point": Case("s", "ChangePoint(RBF(ls), p*Linear(ls), at = 0.3, width = 0.5)", change_point),
    "patches": Case("z", "Patch(RBF(ls), image = [2, 3], patch = [1, 2], on = z[1..6])", patches),
    "spectral mixture": Case(
        "x",
        "SpectralMixture(weights, means, sds, on = 0.1 * x)",
        lambda a, b, **n: spectral_mixture(0.1 * a, 0.1 * b, **n),
    ),
    "coregion": Case("x, task", "RBF(ell, on = x)*Coregion(W, kappa, on = task)", coregion),
    "arc-cosine 0": Case("x", "ArcCosine(0, ell, p)", arc_cosine(0)),
    "arc-cosine 1": Case("x", "ArcCosine(1, ell, p)", arc_cosine(1)),
    "arc-cosine 2": Case("x", "ArcCosine(2, ell, p)", arc_cosine(2)),
    **BY_LEVEL,
}


GIVEN = {
    "ell": [0.7, 1.3, 2.1],
    "alpha": 0.6,
    "period": 1.9,
    "offset": 0.4,
    "degree": DEGREE,
    "weight": [0.4, 1.2, 0.9],
    "bias": 0.5,
    "weights": [0.3, 0.9],
    "means": [[0.1, 0.3, 0.2], [0.4, 0.2, 0.5]],
    "sds": [0.2, 0.4],
}
ANALYSED = [(name, 0) for name in FORMULAS if name not in {"ArcCosine", "Coregion"}]


@pytest.mark.parametrize(("name", "order"), [*ANALYSED, *(("ArcCosine", order) for order in (0, 1, 2))])
def test_the_formulas_that_are_analysed_are_those_that_are_computed(name: str, order: int) -> None:
    given = {each.name: GIVEN.get(each.name, order) for each in KERNELS[name].parameters}
    arrays = {key: np.asarray(value) for key, value in given.items() if key not in {"degree", "order"}}
    if name == "ArcCosine":
        arrays = {"ell": arrays["weight"], "p": arrays["bias"]}
    formula = {**REFERENCES, "ArcCosine": arc_cosine(order), "SpectralMixture": spectral_mixture}[name]
    a, b = np.random.default_rng(5).normal(size=(2, 3))
    for first, second in ((a, b), (b, b)):
        found = FORMULAS[name](list(map(sp.Float, first)), list(map(sp.Float, second)), **given)
        assert float(found) == pytest.approx(float(formula(first, second, **arrays)), rel=1e-7, abs=1e-9)


def points(case: Case, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Random rows; a task is a number from 1, and so is the value of an index."""
    columns = [
        rng.integers(1, 4, size=(rows, 1)).astype(float)
        if name in ("task", "t")
        else rng.normal(size=(rows, WIDTH[name]))
        for name in case.over.split(", ")
    ]
    return np.concatenate(columns, axis=1)


def reference(case: Case, numbers: Numbers, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([[case.formula(x, y, **numbers) for y in b] for x in a])


@pytest.mark.parametrize("name", CASES)
def test_equals_its_formula(name: str) -> None:
    """Every entry, the variance and positive definiteness, also where points coincide."""
    case, rng = CASES[name], np.random.default_rng(len(name))
    found = written(case.over, case.kernel, case.definition)
    assert not found.factors, "the references know no factor of the whole kernel"
    numbers = drawn(found.arguments, rng)
    a, b = points(case, 6, rng), points(case, 5, rng)
    a[1] = a[0]

    @jit
    def everything(given: list[jax.Array], at_a: jax.Array, at_b: jax.Array) -> tuple[jax.Array, ...]:
        first, second = Values(at_a), Values(at_b)
        between, within = covariance(found.form, given, first, second), covariance(found.form, given, first)
        return between, within, variance(found.form, given, first)

    with jax.enable_x64(True):
        between, within, diagonal = map(np.asarray, everything(placed(found.arguments, numbers), a, b))
    np.testing.assert_allclose(between, reference(case, numbers, a, b), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(within, reference(case, numbers, a, a), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(diagonal, np.diagonal(reference(case, numbers, a, a)), rtol=1e-7)
    assert np.linalg.eigvalsh(within).min() > -1e-8 * np.trace(within)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_differences(name: str) -> None:
    """Along a random direction; and finite where points coincide."""
    case, rng = CASES[name], np.random.default_rng(7 + len(name))
    found = written(case.over, case.kernel, case.definition)
    numbers, at, weights = drawn(found.arguments, rng), points(case, 4, rng), rng.normal(size=(4, 4))

    def total(given: list[jax.Array], x: jax.Array) -> jax.Array:
        return jnp.sum(weights * covariance(found.form, given, Values(x)))

    with jax.enable_x64(True):
        given = placed(found.arguments, numbers)
        both = jit(jax.value_and_grad(total, argnums=(0, 1)))
        slopes = jax.tree.map(np.asarray, jax.tree.leaves(both(given, at)[1]))
        along = jax.tree.map(lambda v: rng.normal(size=v.shape), (given, at))
        above, below = (
            float(both(*jax.tree.map(lambda v, d, h=h: v + h * d, (given, at), along))[0]) for h in (1e-6, -1e-6)
        )
        at[1] = at[0]
        coincident = jax.tree.leaves(both(given, at)[1])
    slope = sum(np.sum(s * d) for s, d in zip(slopes, jax.tree.leaves(along), strict=True))
    assert float(slope) == pytest.approx((above - below) / 2e-6, rel=2e-5, abs=1e-7)
    assert all(np.isfinite(each).all() for each in coincident)


@pytest.mark.parametrize("name", CASES)
def test_single_precision_and_batches(name: str) -> None:
    """float32 stays float32, and each of a batch of parameters gives what it gives alone."""
    case, rng = CASES[name], np.random.default_rng(11 + len(name))
    found = written(case.over, case.kernel, case.definition)
    numbers, a = drawn(found.arguments, rng), points(case, 4, rng)
    others = {key: 1.1 * value for key, value in numbers.items()}
    batch = [np.stack(pair) for pair in zip(*(placed(found.arguments, n) for n in (numbers, others)), strict=True)]
    # Batched in the precision that is most likely to be mixed up; NumPy has the same numbers with twice the digits.
    compute = jit(jax.vmap(lambda given: covariance(found.form, given, Values(jnp.asarray(a, "f4"))), axis_size=2))
    single = compute([jnp.asarray(value, "f4") for value in batch])
    assert single.dtype == jnp.float32
    for values, matrix in zip((numbers, others), single, strict=True):
        np.testing.assert_allclose(matrix, reference(case, values, a, a), rtol=2e-3, atol=2e-3)


def test_derivatives_where_two_points_meet_are_those_of_the_formula() -> None:
    """Of cubic splines: the slope is a Brownian motion, whose variance is the place; half of it by JAX's min(a, b)."""
    spline = written("s", "k()", "kernel k(a, b) = abs(a - b)*min(a, b)^2/2 + min(a, b)^3/3")
    at = np.array([[0.3], [2.0], [50.0]])
    slopes = Derivatives(jnp.asarray(at), (0,))
    among, own = jit(lambda: (covariance(spline.form, [], slopes), variance(spline.form, [], slopes)))()
    np.testing.assert_allclose(among, np.minimum(at, at.T), rtol=1e-6)
    np.testing.assert_allclose(own, at[:, 0], rtol=1e-6)
