"""Exact inference against dense linear algebra in NumPy: evidence, gradient, predictions, whatever the noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy import stats
from scipy.stats import multivariate_normal

import gpdsl
from gpdsl.inference.exact.evidence import evidence_of, log_normal, one_program, parts_of, solve
from gpdsl.inference.exact.system import make_system
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.resolution import MATTERS, jitter_note, rounding_note
from gpdsl.program.cache import precision
from gpdsl.program.rows import Rows
from gpdsl.results.fitting import start_of
from tests.inference.problems import problem_of

PLAIN = """
input x : real[D]
output y : real
param s2 : positive = 1.3
param ell : positive[D] = 0.8
param sigma : positive = 0.3
param mu : real = 0.2
latent f(x) ~ GP(mu, s2 * {kernel}(ell))
y ~ Normal(f, sigma)
"""

MIXED = """
index p in 1..3
index q in 1..2
input x : real
output y[p] : real
param W[p, q] : real = 0.5
param ell[q] : positive = 0.8
param sigma[p] : positive = 0.3
latent h[q](x) ~ GP(0, RBF(ell[q]))
let f[p] = sum(q, W[p, q] * h[q])
y[p] ~ Normal(f[p], sigma[p])
"""

PROFILES = {
    "RBF": lambda d: np.exp(-0.5 * d**2),
    "Matern12": lambda d: np.exp(-d),
    "Matern52": lambda d: (1 + np.sqrt(5) * d + 5 * d**2 / 3) * np.exp(-np.sqrt(5) * d),
}


def gram(a: np.ndarray, b: np.ndarray, ell: Any, kernel: str = "RBF") -> np.ndarray:
    gaps = (np.reshape(a, (len(a), 1, -1)) - np.reshape(b, (1, len(b), -1))) / ell
    return PROFILES[kernel](np.sqrt(np.sum(gaps**2, axis=-1)))


def plain_evidence(x: np.ndarray, y: np.ndarray, flat: np.ndarray, kernel: str) -> float:
    """Of `PLAIN` at unconstrained ell, mu, s2 and sigma: the order of a flattened dictionary."""
    columns = x.shape[1]
    ell, mu, s2, sigma = np.exp(flat[:columns]), flat[columns], np.exp(flat[columns + 1]), np.exp(flat[columns + 2])
    covariance = s2 * gram(x, x, ell, kernel) + sigma**2 * np.eye(len(x))
    return float(multivariate_normal.logpdf(y, np.full(len(x), mu), covariance))


def flat_of(learnt: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.ravel(learnt[name]) for name in sorted(learnt)])


@pytest.mark.parametrize("kernel", list(PROFILES))
@pytest.mark.parametrize("columns", [2, 6])
def test_evidence_and_gradient_are_those_of_dense_algebra(rng: np.random.Generator, kernel: str, columns: int) -> None:
    x, y = rng.normal(size=(30, columns)), rng.normal(size=30)
    with precision("float64"):
        problem = problem_of(PLAIN.format(kernel=kernel), {"x": x, "y": y})
        system = make_system(problem.program, problem.rows)
        assert problem.choice.exact == (30,) and system is not None
        at = {name: jnp.asarray(rng.normal(size=np.shape(v)) * 0.3) for name, v in problem.parameters.items()}
        value, gradient = evidence_of(problem, system)(at)
    flat = flat_of(at)
    assert value == pytest.approx(plain_evidence(x, y, flat, kernel), abs=1e-9)
    steps = 1e-5 * np.eye(len(flat))
    slopes = [(plain_evidence(x, y, flat + s, kernel) - plain_evidence(x, y, flat - s, kernel)) / 2e-5 for s in steps]
    np.testing.assert_allclose(flat_of(gradient), slopes, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shared", [False, True], ids=["a kernel each", "one kernel"])
def test_mixed_latents_with_missing_outputs(rng: np.random.Generator, shared: bool) -> None:
    """The evidence is that of the observed values alone; latents at new rows are correlated given them."""
    x, new = rng.normal(size=25), rng.normal(size=4)
    y = rng.normal(size=(25, 3))
    y[rng.random(y.shape) < 0.3] = np.nan
    y[7] = np.nan
    mixing, ell, sigma = rng.normal(size=(3, 2)), np.array([0.6, 1.4]), np.array([0.2, 0.5, 0.3])
    start = {"W": mixing, "ell": ell, "sigma": sigma}
    if shared:
        ell, start["ell"] = np.array([0.6, 0.6]), 0.6
    text = MIXED.replace("ell[q] :", "ell :").replace("(ell[q])", "(ell)") if shared else MIXED
    fit = gpdsl.compile(text).fit({"x": x, "y": y}, fixed=["W", "ell", "sigma"], init=start)
    seen = ~np.isnan(y)
    row, output = np.nonzero(seen)
    kernels = [gram(x, x, each) for each in ell]
    signal = sum(np.outer(mixing[output, q], mixing[output, q]) * k[np.ix_(row, row)] for q, k in enumerate(kernels))
    covariance = signal + np.diag(sigma[output] ** 2)
    assert fit.choice.exact == (seen.sum(),)
    assert fit.elbo == pytest.approx(multivariate_normal.logpdf(y[seen], np.zeros(seen.sum()), covariance), abs=1e-9)
    cross = np.stack([mixing[output, q] * gram(new, x[row], ell[q]) for q in range(2)])  # [latents, new, values]
    prediction = fit.predict({"x": new})
    np.testing.assert_allclose(prediction.mean("h"), (cross @ np.linalg.solve(covariance, y[seen])).T, atol=1e-10)
    lost = np.einsum("pnv,vw,qnw->npq", cross, np.linalg.inv(covariance), cross)
    posterior = np.eye(2) - lost
    np.testing.assert_allclose(prediction.variance("h"), np.diagonal(posterior, axis1=1, axis2=2), atol=1e-10)
    total = np.einsum("pq,nqr,pr->np", mixing, posterior, mixing) + sigma**2
    np.testing.assert_allclose(prediction.variance("y"), total, atol=1e-10)


def test_outputs_that_share_no_latent_are_factorised_apart(rng: np.random.Generator) -> None:
    text = "index p in 1..3\ninput x : real\noutput y[p] : real\nparam s : positive = 0.4\n" + (
        "latent f[p](x) ~ GP(0, p * RBF(1))\ny[p] ~ Normal(f[p], s)\n"
    )
    x, y = rng.normal(size=12), rng.normal(size=(12, 3))
    y[3, 1] = np.nan
    fit = gpdsl.compile(text).fit({"x": x, "y": y}, fixed=["s"])
    assert fit.choice.exact == (12, 11, 12)
    found = 0.0
    for p in range(3):
        some = ~np.isnan(y[:, p])
        covariance = (p + 1) * gram(x[some], x[some], 1.0) + 0.16 * np.eye(some.sum())
        found += multivariate_normal.logpdf(y[some, p], np.zeros(some.sum()), covariance)
    assert fit.elbo == pytest.approx(found, abs=1e-9)


def test_derivatives_and_transforms_are_linear_observations_too(rng: np.random.Generator) -> None:
    """log y and the slope of f observed together: cov(f, f') of an RBF by hand, and the Jacobian of the logarithm."""
    x = np.sort(rng.normal(size=9))
    y, slope = np.exp(rng.normal(size=9)), rng.normal(size=9)
    text = (
        "input x : real\noutput y : positive\noutput g : real\nlatent f(x) ~ GP(0.5, RBF(0.7))\n"
        "log(y) ~ Normal(f, 0.3)\ng ~ Normal(D(f, x), 0.2)\n"
    )
    fit = gpdsl.compile(text).fit({"x": x, "y": y, "g": slope})
    gap, k = x[:, None] - x[None, :], gram(x, x, 0.7)
    mixed, twice = k * gap / 0.49, k * (1 / 0.49 - gap**2 / 0.49**2)
    covariance = np.block([[k, mixed], [mixed.T, twice]]) + np.diag(np.repeat([0.09, 0.04], 9))
    mean = np.repeat([0.5, 0.0], 9)
    expected = multivariate_normal.logpdf(np.concatenate([np.log(y), slope]), mean, covariance) - np.log(y).sum()
    assert fit.elbo == pytest.approx(expected, abs=1e-8)
    np.testing.assert_allclose(
        fit.predict({"x": x[:3]}).mean("f"),
        0.5 + (np.hstack([k, mixed]) @ np.linalg.solve(covariance, np.concatenate([np.log(y), slope]) - mean))[:3],
        atol=1e-8,
    )


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_noise_far_below_the_variance_is_no_jitter(rng: np.random.Generator, unit: float) -> None:
    """A variance of 1 and a noise of 1e-6 units: jitter of 1e-8 s2 would be the noise, and y would fit it."""
    x = np.linspace(0, 1, 12)[:, None]
    y = unit * (np.sin(9 * x[:, 0]) + 1e-6 * rng.normal(size=12))
    held = {"s2": unit**2, "ell": [0.05], "sigma": 1e-6 * unit, "mu": 0.0}
    fit = gpdsl.compile(PLAIN.format(kernel="RBF")).fit({"x": x, "y": y}, fixed=list(held), init=held)
    covariance = gram(x, x, 0.05) + 1e-12 * np.eye(12)
    expected = multivariate_normal.logpdf(y / unit, np.zeros(12), covariance) - 12 * np.log(unit)
    assert fit.jitter == 0.0
    assert fit.elbo == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(fit.predict({"x": x}).mean("f"), y, atol=1e-5 * unit)


def test_one_program_and_two_with_lapack_between_agree(rng: np.random.Generator) -> None:
    """What runs on a GPU gives the values and slopes of what runs on a CPU."""
    with precision("float64"):
        root, z = jnp.asarray(rng.normal(size=(20, 5))), jnp.asarray(rng.normal(size=20))
        found = solve(root @ root.T, z)
        assert found is not None
        value, (slope, in_z) = jax.value_and_grad(log_normal, argnums=(0, 1))(root @ root.T, z)
        assert float(value) == pytest.approx(found.value, abs=1e-12)
        np.testing.assert_allclose(in_z, -found.alpha[0], atol=1e-12)
        inverse = np.triu(found.inverse[0]) + np.triu(found.inverse[0], 1).T
        np.testing.assert_allclose(slope, 0.5 * (np.outer(found.alpha[0], found.alpha[0]) - inverse), atol=1e-12)


@pytest.mark.parametrize("missing", [False, True])
def test_the_whole_evidence_as_one_program(rng: np.random.Generator, missing: bool) -> None:
    y = rng.normal(size=(14, 3))
    y[rng.random(y.shape) < 0.2 * missing] = np.nan
    with precision("float64"):
        problem = problem_of(MIXED, {"x": rng.normal(size=14), "y": y})
        system = make_system(problem.program, problem.rows)
        assert system is not None
        at = {name: v + 0.3 * jnp.asarray(rng.normal(size=np.shape(v))) for name, v in problem.parameters.items()}
        (value, slopes), (other, gradient) = one_program(problem, system)(at), evidence_of(problem, system)(at)
    assert value == pytest.approx(other, abs=1e-10)
    np.testing.assert_allclose(flat_of(slopes), flat_of(gradient), atol=1e-9)


def test_the_one_program_has_a_lowering_for_gpus(rng: np.random.Generator) -> None:
    with precision("float64"):
        problem = problem_of(MIXED, {"x": rng.normal(size=6), "y": rng.normal(size=(6, 3))})
        system = make_system(problem.program, problem.rows)
        assert system is not None

        def value(learnt: dict, rows: Rows) -> jax.Array:
            matrices, vectors, constant = parts_of(system, learnt, rows)
            return constant + sum(jnp.sum(jax.vmap(log_normal)(*each)) for each in zip(matrices, vectors, strict=True))

        exporting = jax.export.export(jax.jit(jax.value_and_grad(value)), platforms=["cuda"])
        assert "custom_call" in exporting(problem.parameters, problem.rows).mlir_module()


def test_noise_that_rounding_hides_is_said(rng: np.random.Generator) -> None:
    x = rng.normal(size=(30, 2))
    model, exact = gpdsl.compile(PLAIN.format(kernel="RBF")), {"x": x, "y": np.sin(x[:, 0])}
    plain = model.fit(exact)
    noisy = model.fit({"x": x, "y": np.sin(x[:, 0]) + 0.1 * rng.normal(size=30)})
    assert "float64 hardly resolves" in plain.summary() and noisy.notes == ()
    # Less noise than rounding counts as that, and not by chance: the end is a start, and rows are predicted by others.
    again = model.fit(exact, start=plain)
    assert again.elbo == pytest.approx(plain.elbo, abs=1) and again.standard_errors
    assert 100 < plain.loo(exact, refits=0).elpd < 500


def test_noise_below_rounding_that_is_known_costs_nothing(rng: np.random.Generator) -> None:
    """Rows are told by others whatever it is, and new ones by a density that is no difference of large numbers."""
    x, model = rng.normal(size=(5, 2)), gpdsl.compile(PLAIN.format(kernel="RBF"))
    few, held = {"x": x, "y": np.sin(x[:, 0])}, ["s2", "ell", "mu", "sigma"]
    known, resolved = (model.fit(few, init={"sigma": sd}, fixed=held) for sd in (1e-9, 1e-5))
    assert known.elbo == pytest.approx(resolved.elbo, abs=1e-2)
    assert known.loo(few).elpd == pytest.approx(resolved.loo(few).elpd, abs=1e-3)
    far = {"x": [[90.0, 0.0]], "y": [1.0]}
    expected = stats.norm.logpdf(1.0, known.parameters["mu"], np.sqrt(known.parameters["s2"]))
    assert known.log_predictive_density(far) == pytest.approx(expected, abs=1e-8)
    with pytest.warns(gpdsl.GpdslWarning, match="waic: rows differ by [0-9.e+]+ nats in all from"):
        assert known.elbo < resolved.waic(few).elpd < 60
    with pytest.raises(gpdsl.GpdslError, match="within the posterior is less than what rounding"):
        known.waic(few)


def test_a_search_that_begins_on_some_rows_ends_where_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(120, 2))
    data = {"x": x, "y": np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * rng.normal(size=120)}
    model = gpdsl.compile(PLAIN.format(kernel="RBF"))
    whole = model.fit(data)
    monkeypatch.setattr("gpdsl.inference.exact.engine.SAMPLED_FROM", 60)
    begun = model.fit(data)
    assert begun.history[0, 1] > whole.elbo - 5.0 > whole.history[0, 1]
    assert begun.elbo == pytest.approx(whole.elbo, abs=1e-4)
    assert len(begun.history) < len(whole.history)
    assert begun.parameters["sigma"] == pytest.approx(float(whole.parameters["sigma"]), rel=1e-3)


def test_jitter_that_takes_the_place_of_noise_is_said() -> None:
    """Of a likelihood that is not normal, whose dense posterior has jitter: observations without noise, and with it."""
    x = np.linspace(0, 3, 20)
    model = gpdsl.compile(
        "input x : real\noutput y : real\nparam s : positive = 0.1\nparam s2 : positive = 1\n"
        "latent f(x) ~ GP(0, s2 * RBF(1))\ny ~ StudentT(4, f, s)\n"
    )
    plain = model.fit({"x": x, "y": np.sin(x)})
    noisy = model.fit({"x": x, "y": np.sin(x) + 0.1 * np.random.default_rng(0).normal(size=20)})
    assert plain.jitter == noisy.jitter > 0.0
    assert "noise variance: the bound takes it" in plain.summary() and noisy.notes == ()


def test_an_exact_fit_is_kept_in_a_file_as_it_is(rng: np.random.Generator, tmp_path: Path) -> None:
    y = rng.normal(size=(15, 3))
    y[2, 1] = np.nan
    fit = gpdsl.compile(MIXED).fit({"x": rng.normal(size=15), "y": y}, steps=2)
    fit.save(tmp_path / "a.gpfit")
    again, new = gpdsl.load_fit(tmp_path / "a.gpfit"), {"x": rng.normal(size=4)}
    for name in ("h", "f", "y"):
        np.testing.assert_array_equal(again.predict(new).mean(name), fit.predict(new).mean(name))
        np.testing.assert_array_equal(again.predict(new).variance(name), fit.predict(new).variance(name))
    assert again.summary() == fit.summary()


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"inducing": 30}, 1e-3),
        pytest.param({"optimizer": "natural"}, 1e-3, marks=pytest.mark.slow),
        pytest.param({"posterior": "diagonal", "inducing": 10}, np.inf, marks=pytest.mark.slow),
    ],
)
def test_other_fits_start_from_an_exact_one(rng: np.random.Generator, options: dict, bound: float) -> None:
    x = np.sort(rng.normal(size=30))[:, None]
    data = {"x": x, "y": np.sin(x[:, 0]) + 0.3 * rng.normal(size=30)}
    model = gpdsl.compile(PLAIN.format(kernel="RBF"))
    exact = model.fit(data)
    assert model.fit(data, start=exact).elbo >= exact.elbo - 1e-9
    other = model.fit(data, start=exact, fixed=list(exact.parameters), **options)
    assert not other.choice.exact
    assert exact.elbo - bound <= other.elbo <= exact.elbo + 1e-4


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("latent f(x) ~ GP(0, RBF(1))\ny ~ StudentT(4, f, 0.3)", {}),
        ("latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f^2, 0.3)", {}),
        ("latent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, RBF(1))\ny ~ Normal(f, exp(g))", {}),
        ("latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.3)", {"inducing": 5}),
        ("latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.3)", {"expectations": "sampled", "samples": 8}),
        ("latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.3)", {"posterior": "diagonal"}),
        ("latent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, RBF(1))\ny ~ Normal(f + g, 0.3)", {"posterior": "full"}),
    ],
)
def test_what_is_not_conjugate_or_asked_otherwise_is_not_exact(text: str, options: dict) -> None:
    x = np.linspace(0, 1, 8)
    problem = problem_of(f"input x : real\noutput y : real\n{text}\n", {"x": x, "y": np.sin(x)}, **options)
    assert not problem.choice.exact


def test_a_log_normal_has_the_jacobian_of_its_logarithm(rng: np.random.Generator) -> None:
    x = np.linspace(0, 3, 12)
    y = 5 * np.exp(rng.normal(size=12))
    text = "input x : real\noutput y : positive\nlatent f(x) ~ GP(0, RBF(1))\ny ~ LogNormal(f, 0.3)\n"
    fit = gpdsl.compile(text).fit({"x": x, "y": y})
    expected = multivariate_normal.logpdf(np.log(y), np.zeros(12), gram(x, x, 1.0) + 0.09 * np.eye(12))
    assert fit.elbo == pytest.approx(expected - np.log(y).sum(), abs=1e-8)


def test_the_posterior_that_another_fit_starts_from_is_the_same_one(rng: np.random.Generator) -> None:
    """At the rows, from whitened values: mean and variance of the prediction, with a missing output and a variance."""
    x = np.sort(rng.normal(size=15))
    y = np.sin(x)[:, None] * [1, 2] + 0.3 * rng.normal(size=(15, 2))
    y[4, 1] = np.nan
    text = (
        "index p in 1..2\ninput x : real\noutput y[p] : real\nconst a[p] = [1, 2]\n"
        "latent f(x) ~ GP(0, 4 * Matern12(1))\ny[p] ~ Normal(a[p] * f, 0.5)\n"
    )
    fit = gpdsl.compile(text).fit({"x": x, "y": y})
    start = start_of(fit)
    assert start is not None
    (q,) = start.posterior
    factor = 2 * np.linalg.cholesky(gram(x, x, 1.0, "Matern12") + 1e-9 * np.eye(15))
    root = factor @ np.asarray(q.root)[0, 0]
    np.testing.assert_allclose(factor @ np.asarray(q.mean)[0, 0], fit.predict({"x": x}).mean("f"), atol=1e-4)
    np.testing.assert_allclose(np.sum(root**2, axis=1), fit.predict({"x": x}).variance("f"), rtol=1e-3)


@pytest.mark.parametrize("noise", [1e-5, 0.3])
def test_repeated_inputs_are_exact_too(rng: np.random.Generator, noise: float) -> None:
    x = np.repeat(np.linspace(0, 3, 10), 3)[:, None]
    y = np.sin(x[:, 0]) + noise * rng.normal(size=30)
    held = {"s2": 1.0, "ell": [0.5], "sigma": noise, "mu": 0.0}
    fit = gpdsl.compile(PLAIN.format(kernel="Matern52")).fit({"x": x, "y": y}, fixed=list(held), init=held)
    covariance = gram(x, x, 0.5, "Matern52") + noise**2 * np.eye(30)
    assert fit.jitter == 0.0 and fit.choice.exact == (30,)
    white = np.linalg.solve(factor := np.linalg.cholesky(covariance), y)
    expected = -0.5 * white @ white - np.sum(np.log(np.diag(factor))) - 15 * np.log(2 * np.pi)
    assert fit.elbo == pytest.approx(expected, rel=1e-6)


def test_a_signal_of_two_scales_is_not_taken_for_noise(rng: np.random.Generator) -> None:
    """From the length-scale that the range of x suggests, a search ends where half of the signal is noise."""
    x = np.sort(rng.uniform(0, 14, 150))
    y = np.sin(x) + 0.5 * np.sin(7 * x) + 0.2 * rng.normal(size=150)
    text = (
        "input x : real\noutput y : real\nparam s2 : positive\nparam ell : positive\nparam sigma : positive\n"
        "latent f(x) ~ GP(0, s2 * RBF(ell))\ny ~ Normal(f, sigma)\n"
    )
    fit = gpdsl.compile(text).fit({"x": x, "y": y})
    attainable = multivariate_normal.logpdf(y, np.zeros(150), 0.7 * gram(x, x, 0.3) + 0.04 * np.eye(150))
    assert fit.elbo > attainable and fit.parameters["sigma"] < 0.3


def test_what_rounding_hides_is_judged_by_the_largest_signal() -> None:
    x = np.linspace(0, 3, 20)
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f * exp(-9 * x), 1e-7)\n"
    fit = gpdsl.compile(text).fit({"x": x, "y": np.sin(x) * np.exp(-9 * x)})
    assert "hardly resolves" in fit.summary()
    few = MATTERS / (100 * np.finfo("float64").eps)
    assert rounding_note([0.9 * few], 100, "float64") == () != rounding_note([1.1 * few], 100, "float64")


def test_jitter_is_judged_in_units_of_the_latent() -> None:
    x = np.linspace(0, 3, 20)
    text = (
        "input x : real\noutput y : real\nparam v : positive = 100\n"
        "latent f(x) ~ GP(0, v * Matern12(1))\ny ~ StudentT(4, f, 1)\n"
    )
    with precision("float64"):
        problem = problem_of(text, {"x": x, "y": np.sin(x)}, inducing=0)
        for times, said in ((2.0, True), (0.5, False)):
            share = jnp.full((20, 1), times * MATTERS / (100 * problem.jitter))
            assert bool(jitter_note(problem, problem.parameters, Sites(jnp.zeros((20, 1)), share))) == said


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("regression.0.columns", lambda a: a[:-1]),
        ("regression.0.columns", lambda a: a + 99),
        ("regression.0.rows", lambda a: a[:-1]),
        ("regression.0.rows", lambda a: a + 99),
        ("regression.0.z", lambda a: a * np.nan),
        ("regression.0.loadings", lambda a: a[..., :-1]),
        ("regression.0.elements", lambda a: a + 9),
        ("inducing.0.0", lambda a: a[:-1]),
        ("inducing.0.0", lambda a: a * np.nan),
    ],
)
def test_an_edited_file_is_said_to_be_damaged(tmp_path: Path, name: str, change: Any) -> None:
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=6), "y": rng.normal(size=(6, 3))}
    gpdsl.compile(MIXED).fit(data, steps=1).save(tmp_path / "a.gpfit")
    with safe_open(tmp_path / "a.gpfit", framework="numpy") as handle:
        arrays = {key: handle.get_tensor(key) for key in handle.keys()}  # noqa: SIM118
        header = handle.metadata()
    arrays[name] = np.ascontiguousarray(change(arrays[name]))
    save_file(arrays, tmp_path / "b.gpfit", header)
    with pytest.raises(gpdsl.GpdslError, match="damaged"):
        gpdsl.load_fit(tmp_path / "b.gpfit")
