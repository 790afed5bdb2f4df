"""Sites of a dense posterior by LAPACK between programs: against dense algebra and the one program elsewhere."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.natural import profiled
from gpdsl.inference.natural.lapack import RowPosterior, _inverse, row_posterior
from gpdsl.inference.natural.profiled import _place, outer_point, profiled_bound, setting_of
from gpdsl.inference.natural.refine import Progress, refine
from gpdsl.inference.natural.row_space import Ascent, RowSpace, _Found, in_row_space
from gpdsl.inference.natural.site_starts import start_sites
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.problem import Problem
from gpdsl.program.cache import jit
from tests.inference.problems import problem_of

BINARY = """
input x : real[D]
output y : binary
param m : real = 0.3
param s2 : positive = 2
param ell : positive = 0.8
latent f(x) ~ GP(m, s2 * RBF(ell))
y ~ Bernoulli(logit = f)
"""

CLASSES = """
index c in 1..C
input x : real[D]
output y : label[c]
param s2 : positive = 2
param ell : positive = 0.8
latent f[c](x) ~ GP(0, s2 * RBF(ell))
y ~ Categorical(logits = f)
"""

OUTLIERS = """
input x : real[D]
output y : real
param s2 : positive = 2
param ell : positive = 0.8
param sd : positive = 0.3
latent f(x) ~ GP(0, s2 * Matern52(ell))
y ~ StudentT(3, f, sd)
"""

SLOPES = """
input x : real
output y : binary
output z : count
param s2 : positive = 2
param ell : positive = 0.8
param k : positive = 1.1
latent f(x) ~ GP(0.2, s2 * RBF(ell))
latent g(x) ~ GP(0, k * Matern32(0.5))
y ~ Bernoulli(probit = f)
z ~ Poisson(exp(D(f, x)))
"""


def data_of(text: str, rng: np.random.Generator, rows: int = 25) -> dict[str, np.ndarray]:
    x = rng.normal(size=(rows, 2)) if "real[D]" in text else np.sort(rng.uniform(-2, 2, rows))
    y: np.ndarray = np.arange(rows) % 3
    if "StudentT" in text:
        y = np.sin(x[:, 0]) + 0.2 * rng.normal(size=rows)
        y[3] += 9.0
    elif "binary" in text:
        y = rng.integers(0, 2, rows)
    return {"x": x, "y": y, **({"z": rng.poisson(1.0, rows)} if "z :" in text else {})}


def dense(prior: np.ndarray, precision: np.ndarray, linear: np.ndarray) -> dict[str, Any]:
    """The same by inverses."""
    inverse = np.linalg.inv(prior)
    covariance = np.linalg.inv(inverse + np.diag(precision))
    mean = covariance @ linear
    squares = mean @ inverse @ mean + np.trace(inverse @ covariance) - len(mean)
    log_det = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(covariance)[1]
    return {
        "mean": mean,
        "variance": np.diag(covariance),
        "divergence": 0.5 * (squares + log_det),
        "growth": 0.5 * squares,
        "alpha": inverse @ mean,
        "matrix": inverse - inverse @ covariance @ inverse,
    }


@pytest.mark.parametrize("some", ["positive", "nothing", "negative"])
def test_a_posterior_given_sites_is_that_of_dense_algebra(some: str, rng: np.random.Generator) -> None:
    x = rng.normal(size=(30, 2))
    prior = 1.7 * np.exp(-0.5 * np.sum((x[:, None] - x) ** 2, axis=-1)) + 0.05 * np.eye(30)
    precision, linear = rng.gamma(1.0, 1.0, 30), rng.normal(size=30)
    if some != "positive":
        precision[[3, 7]] = 0.0, 1e-14
    if some == "negative":
        precision[[5, 6, 20]] = -0.02, -0.1, -0.05
    q, exact = row_posterior(prior, precision, linear), dense(prior, precision, linear)
    assert q is not None
    upper = np.triu(q.shrinkage)
    found = {**vars(q), "matrix": upper + np.triu(upper, 1).T}
    for name, value in exact.items():
        np.testing.assert_allclose(found[name], value, atol=1e-9, err_msg=name)


def test_sites_that_make_no_gaussian_give_none(rng: np.random.Generator) -> None:
    assert row_posterior(np.eye(4), np.asarray([1.0, 2.0, -1.5, 1.0]), np.ones(4)) is None
    assert row_posterior(np.eye(4), np.asarray([1.0, np.nan, 1.0, 1.0]), np.ones(4)) is None
    assert isinstance(row_posterior(np.eye(4), np.full(4, -0.5), np.ones(4)), RowPosterior)


def loop_of(problem: Problem, point: Any, normals: Any) -> tuple[Ascent, tuple]:
    given = problem.rows, problem.inducing, jnp.asarray(problem.jitter)
    return Ascent(problem, _place, point, start_sites(problem), given, normals), given


@pytest.mark.parametrize("text", [BINARY, CLASSES, OUTLIERS, SLOPES])
def test_bound_and_gradient_are_those_of_automatic_differentiation(text: str, rng: np.random.Generator) -> None:
    problem = problem_of(text, data_of(text, rng), posterior="full", tolerance=1e-15, samples=20)
    assert in_row_space(problem)
    point, sites = outer_point(problem, problem.parameters, problem.inducing), start_sites(problem)
    normals = problem.batch_normals(jax.random.key(0))
    rest = problem.rest(normals)
    value, slope, ends, _ = jit(partial(profiled_bound, problem, None))(point, sites, rest)
    loop, given = loop_of(problem, point, normals)
    found, gradient, found_sites, settled = loop(point, sites, given, normals, 1e-13, 1000)
    assert settled
    assert float(found) == pytest.approx(float(value), abs=1e-9)
    np.testing.assert_allclose(found_sites.precision, ends.precision, atol=1e-5)
    if text == OUTLIERS:
        assert np.min(found_sites.precision) < 0
    again, exact, _, _ = jit(partial(profiled_bound, problem, None))(point, found_sites, rest)
    assert float(again) == pytest.approx(float(found), abs=1e-10)
    for name, each in gradient["parameters"].items():
        np.testing.assert_allclose(each, exact["parameters"][name], rtol=1e-6, atol=1e-7, err_msg=name)


def test_it_begins_with_sites_of_unit_scale_about_the_mean_of_the_prior(rng: np.random.Generator) -> None:
    """Of f = 0.3 + sqrt(2) g: the site of g, at a row, of exp(b f - lambda f^2 / 2)."""
    x, precision, linear = rng.normal(size=(4, 2)), rng.gamma(1.0, 1.0, (4, 1)), rng.normal(size=(4, 1))
    problem = problem_of(BINARY, {"x": x, "y": np.arange(4) % 2}, posterior="full")
    point, given = outer_point(problem, problem.parameters, problem.inducing), (problem.rows, problem.inducing)
    sites = Sites(jnp.asarray(linear), jnp.asarray(precision))
    begin = jit(RowSpace(problem, _place).begin)
    (covariance,), _, _, trial, ((found, moved),) = begin(point, sites, (*given, jnp.asarray(problem.jitter)))
    np.testing.assert_array_equal(trial.linear, linear)
    distances = np.sum((x[:, None] - x) ** 2, axis=-1)
    np.testing.assert_allclose(covariance[0], np.exp(-0.5 * distances / 0.64) + problem.jitter * np.eye(4), rtol=1e-7)
    np.testing.assert_allclose(found, 2.0 * precision.T)
    np.testing.assert_allclose(moved, np.sqrt(2.0) * (linear - 0.3 * precision).T)


def test_slopes_in_the_prior_are_those_of_the_divergence(rng: np.random.Generator) -> None:
    """Of q at fixed moments of the values: in the mean, and in the logarithms of scale and length-scale."""
    x, precision, linear = rng.normal(size=(4, 2)), rng.gamma(1.0, 1.0, 4), rng.normal(size=4)
    problem = problem_of(BINARY, {"x": x, "y": np.arange(4) % 2}, posterior="full")
    point, distances = outer_point(problem, problem.parameters, problem.inducing), np.sum((x[:, None] - x) ** 2, -1)

    def prior(ell: float) -> np.ndarray:
        return np.exp(-0.5 * distances / ell**2) + problem.jitter * np.eye(4)

    q = row_posterior(prior(0.8), precision, linear)
    assert q is not None
    known = _Found([[q]])
    given = problem.rows, problem.inducing, jnp.asarray(problem.jitter)
    own = partial(RowSpace(problem, _place).gradient, normals=None)
    found = jit(own)(point, given, moments=known.moments, slopes=known.slopes)["parameters"]
    covariance = np.linalg.inv(np.linalg.inv(prior(0.8)) + np.diag(precision))

    def lost(m: float, s2: float, ell: float) -> float:
        """The divergence, up to a constant, of values of mean 0.3 + sqrt(2) * mean and covariance 2 * covariance."""
        c, off = s2 * prior(ell), 0.3 - m + np.sqrt(2.0) * covariance @ linear
        inverse = np.linalg.inv(c)
        return 0.5 * float(off @ inverse @ off + 2.0 * np.trace(inverse @ covariance) + np.linalg.slogdet(c)[1])

    h = 1e-5
    assert found["m"] == pytest.approx((lost(0.3 - h, 2, 0.8) - lost(0.3 + h, 2, 0.8)) / (2 * h), rel=1e-6)
    assert found["s2"] == pytest.approx((lost(0.3, 2 - h, 0.8) - lost(0.3, 2 + h, 0.8)) / h, rel=1e-6)
    assert found["ell"] == pytest.approx(0.8 * (lost(0.3, 2, 0.8 - h) - lost(0.3, 2, 0.8 + h)) / (2 * h), rel=1e-6)


def test_the_programs_between_do_no_linear_algebra(rng: np.random.Generator) -> None:
    """One factorisation per update of the sites: none besides LAPACK's."""
    problem = problem_of(BINARY, data_of(BINARY, rng))
    point = outer_point(problem, problem.parameters, problem.inducing)
    loop, _ = loop_of(problem, point, None)
    for program in (loop._begin, loop._step, loop._gradient):
        assert "potrf" not in program.as_text()  # type: ignore[union-attr]
    assert "potrf" in jit(partial(profiled_bound, problem, None)).lower(
        point, start_sites(problem), problem.rest()
    ).compile().as_text()  # fmt: skip


def test_it_takes_the_iterations_that_one_program_takes(rng: np.random.Generator) -> None:
    """Also where what is left is told from the length of a step: there are as many to each tolerance."""
    problem = problem_of(BINARY, data_of(BINARY, rng))
    point, sites = outer_point(problem, problem.parameters, problem.inducing), start_sites(problem)
    loop, given = loop_of(problem, point, None)
    step, taken, counts = loop._step, list[float](), list[tuple[int, int]]()
    loop._step = lambda *known: (taken.append(known[3]), step(*known))[1]

    def refined(tolerance: jax.Array) -> Progress:
        setting = setting_of(problem, point, problem.inducing, problem.rows)
        return refine(setting, sites, None, tolerance, 100)  # type: ignore[arg-type]

    at_once = jit(refined)
    for tolerance in (1e-1, 1e-3, 1e-5, 1e-7):
        loop(point, sites, given, None, tolerance, 100)
        counts.append((taken.count(tolerance), int(at_once(jnp.asarray(tolerance)).iterations)))
    assert [one for one, _ in counts] == [other for _, other in counts]


@pytest.mark.filterwarnings("ignore:.*is not a covariance")
def test_a_kernel_that_is_none_is_refused(rng: np.random.Generator) -> None:
    """B may have a factor where K has none; a posterior in whitened values needs that of K."""
    text = BINARY.replace("latent f(x) ~ GP(m, s2 * RBF(ell))", "latent f(x) ~ GP(m, bump())").replace(
        "real[D]", "real"
    )
    model = gpdsl.compile("kernel bump(r) = 0.3 * s2 * exp(-(r / ell)^4)\n" + text)
    with pytest.raises(gpdsl.GpdslError, match="negative eigenvalues"):
        model.fit({"x": rng.normal(size=30), "y": rng.integers(0, 2, 30)})


def test_kinks_are_left_to_one_program(rng: np.random.Generator) -> None:
    """Nodes make kinks of those of |f|^1.5, at which the best q lies; E|y - f| has a formula, which is smooth."""
    data = data_of(OUTLIERS, rng)
    assert not in_row_space(problem_of(OUTLIERS.replace("StudentT(3, f, sd)", "StudentT(3, abs(f)^1.5, sd)"), data))
    assert in_row_space(problem_of(OUTLIERS.replace("StudentT(3, f, sd)", "Laplace(f, sd)"), data))
    assert in_row_space(problem_of(OUTLIERS, data))


def test_fits_are_those_of_one_program(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_of(BINARY, rng, 40)
    fit = gpdsl.compile(BINARY).fit(data)
    monkeypatch.setattr(profiled, "in_row_space", lambda problem: False)
    other = gpdsl.compile(BINARY).fit(data)
    assert fit.elbo == pytest.approx(other.elbo, abs=1e-6)
    new = {"x": rng.normal(size=(6, 2))}
    np.testing.assert_allclose(fit.predict(new).variance("f"), other.predict(new).variance("f"), rtol=1e-3)


def test_the_bound_is_as_accurate_as_the_last_gain_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of what the last point gained over the best before it; nothing of one that is worse, or no number."""
    values, asked = [-50.0, -20.0, -30.0, np.nan, -19.0, -19.0], list[float]()

    class Told:
        def __init__(self, *_: Any) -> None: ...

        def __call__(self, point: Any, sites: Any, given: Any, normals: Any, tolerance: float, *rest: Any) -> Any:
            asked.append(tolerance)
            assert (point, sites, normals, *rest) == ("point", "sites", "normals", 7, True)
            return values[len(asked) - 1], None, sites, True

    monkeypatch.setattr(profiled, "Ascent", Told)
    monkeypatch.setattr(profiled, "_accuracy", lambda *_: 1e-8)
    rest: Any = "rows", "held", None, 1e-6
    start: Any = SimpleNamespace(point=None, sites=None)
    ascend: Any = profiled._between_programs(SimpleNamespace(), start, rest)  # type: ignore[arg-type]
    found = [ascend("point", "sites", "normals", None, 7, True)[0] for _ in values]
    np.testing.assert_array_equal(found, values)
    assert asked == pytest.approx([1e-8, 1e-8, 30e-4, 1e-8, 1e-8, 1e-4], rel=1e-12)


def test_a_tolerance_is_a_number_of_nats_a_row() -> None:
    for tolerance, opaque, expected in ((1e-6, False, 4e-5), (0.0, False, 4e-11), (1e-9, True, 4e-6)):
        problem: Any = SimpleNamespace(
            options=SimpleNamespace(tolerance=tolerance), program=SimpleNamespace(opaque=opaque), count=40
        )
        assert profiled._accuracy(problem) == pytest.approx(expected)


@pytest.mark.parametrize("size", [64, 65, 131, 300])
def test_the_inverse_half_by_half_is_that_of_lapack(size: int, rng: np.random.Generator) -> None:
    root = rng.normal(size=(size, size))
    factor = np.asfortranarray(np.linalg.cholesky(np.eye(size) + root @ root.T / size))
    np.testing.assert_allclose(_inverse(factor), np.linalg.inv(factor), atol=1e-13)
