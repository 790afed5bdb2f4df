"""One Gaussian across all latents: against dense linear algebra, and never below the factorised posterior."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import gpdsl
from gpdsl.data import bind
from gpdsl.inference.bound import views
from gpdsl.inference.infer import plan
from gpdsl.inference.natural.profiled import outer_point, profiled_bound
from gpdsl.inference.natural.site_starts import start_sites
from gpdsl.inference.plan import planning
from gpdsl.inference.plan.options import make_options
from gpdsl.inference.posteriors.coupled import joint_marginals, joint_posterior
from gpdsl.inference.problem import as_arrays
from gpdsl.kernels.functionals import Values
from gpdsl.program.cache import jit
from gpdsl.program.program import Program, make_program, make_rows
from tests.inference.problems import problem_of

JITTER = 1e-8
A, B = np.array([1.0, 0.5, -0.4]), np.array([0.2, -1.0, 0.7])

MIXED = """
index p in 1..3
input x : real
output y[p] : real
param sigma : positive = 0.3
const a[p] = [1.0, 0.5, -0.4]
const b[p] = [0.2, -1.0, 0.7]
latent f(x) ~ GP(0.5, 1.3 * RBF(1))
latent g(x) ~ GP(0, Matern12(0.7))
let product = f * g
let drift = f * D(f, x)
let both = g * D(f, x)
y[p] ~ Normal(a[p] * f + b[p] * g, sigma)
"""

FACTOR = """
input x : real
output y : real
output z : real
latent f(x) ~ GP(0, RBF(1))
row w ~ Normal(0.2, 1.5)
y ~ Normal(f + w, 0.3)
z ~ Normal(f - 0.5 * w, 0.4)
"""

NOISY = """
input x : real
output y : real
param s : positive = 1
latent f(x) ~ GP(0, RBF(1))
latent h(x) ~ GP(-1, 0.5 * RBF(2))
y ~ StudentT(4, s * f, exp(h))
"""

NETWORK = """
index q in 1..2
index p in 1..2
input x : real
output y[p] : real
latent g[q](x) ~ GP(0, RBF(0.5))
latent w[p,q](x) ~ GP(0, RBF(2))
y[p] ~ Normal(sum(q, w[p,q] * g[q]), 0.2)
"""

CLASSES = """
index c in 1..3
input x : real
output y : label[c]
latent f[c](x) ~ GP(0, 2 * RBF(1))
y ~ Categorical(logits = f)
"""


def kernels(x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    gap = x[:, None] - z[None, :]
    same = JITTER * (gap == 0)
    return 1.3 * (np.exp(-0.5 * gap**2) + same), np.exp(-np.abs(gap) / 0.7) + same


class Dense:
    """The exact posterior of MIXED: outputs one after the other, latents f and g."""

    def __init__(self, x: np.ndarray, y: np.ndarray, sigma: float = 0.3) -> None:
        self.x, self.sigma = x, sigma
        f, g = kernels(x, x)
        self.covariance = np.kron(np.outer(A, A), f) + np.kron(np.outer(B, B), g) + sigma**2 * np.eye(3 * len(x))
        self.residual = (y - 0.5 * A).T.ravel()

    def evidence(self) -> float:
        return float(multivariate_normal(np.zeros(len(self.residual)), self.covariance).logpdf(self.residual))

    def at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means [rows, 2] and covariances [rows, 2, 2] of f and g."""
        f, g = kernels(x, self.x)
        cross = np.stack([np.kron(A, f), np.kron(B, g)], axis=1)  # [rows, 2, 3 n]
        solved = np.linalg.solve(
            self.covariance, np.concatenate([self.residual[:, None], cross.reshape(-1, len(self.residual)).T], axis=1)
        )
        mean = cross @ solved[:, 0] + np.array([0.5, 0.0])
        explained = np.einsum("nij,jnk->nik", cross, solved[:, 1:].reshape(-1, len(x), 2))
        return mean, np.diag([1.3, 1.0]) - explained


@pytest.fixture(scope="module")
def mixed() -> tuple[dict[str, np.ndarray], gpdsl.Fit, Dense]:
    rng = np.random.default_rng(11)
    x = np.sort(rng.uniform(-2, 2, 18))
    y = np.sin(x)[:, None] * A + np.cos(2 * x)[:, None] * B + 0.3 * rng.normal(size=(18, 3))
    data = {"x": x, "y": y}
    return data, gpdsl.compile(MIXED).fit(data, fixed=["sigma"]), Dense(x, y)


NEW = np.array([-2.3, -0.71, 0.05, 1.4, 3.0])


def test_linear_mixing_of_gaussian_latents_is_exact(mixed: tuple) -> None:
    _, fit, dense = mixed
    assert fit.choice.posterior == "coupled"  # nobody asked for it
    assert fit.elbo == pytest.approx(dense.evidence(), abs=1e-6)
    assert len(fit.history) == 1  # at once: no factorised posterior is sought before


def test_predictions_keep_the_correlation_between_latents(mixed: tuple) -> None:
    _, fit, dense = mixed
    mean, covariance = dense.at(NEW)
    pred = fit.predict({"x": NEW})
    np.testing.assert_allclose(pred.mean("f"), mean[:, 0], atol=1e-6)
    np.testing.assert_allclose(pred.variance("g"), covariance[:, 1, 1], atol=1e-6)
    between, (own_f, own_g) = covariance[:, 0, 1], np.diagonal(covariance, axis1=1, axis2=2).T
    assert np.abs(between[1:-1]).min() > 1e-3
    np.testing.assert_allclose(pred.mean("product"), mean[:, 0] * mean[:, 1] + between, atol=1e-6)
    spread = mean[:, 0] ** 2 * own_g + mean[:, 1] ** 2 * own_f + 2 * mean[:, 0] * mean[:, 1] * between
    np.testing.assert_allclose(pred.variance("product"), spread + own_f * own_g + between**2, atol=1e-6)
    outputs = A[:, None] * mean[:, 0] + B[:, None] * mean[:, 1]
    np.testing.assert_allclose(pred.mean("y"), outputs.T, atol=1e-6)
    weights = np.stack([A, B], axis=1)
    noisy = np.einsum("pi,nij,pj->np", weights, covariance, weights) + 0.09
    np.testing.assert_allclose(pred.variance("y"), noisy, atol=1e-6)
    upper = outputs.T + np.sqrt(noisy) * 1.2815515655446004
    np.testing.assert_allclose(pred.quantile("y", 0.9), upper, atol=1e-5)


def test_readings_of_one_latent_are_correlated_with_each_other_and_with_the_others(mixed: tuple) -> None:
    """f, its derivative and g at rows that were not fitted: the derivative was not read while fitting."""
    _, fit, dense = mixed
    f, g = kernels(NEW, dense.x)
    slope = -(NEW[:, None] - dense.x) * 1.3 * np.exp(-0.5 * (NEW[:, None] - dense.x) ** 2)
    cross = np.stack([np.kron(A, f), np.kron(A, slope), np.kron(B, g)], axis=1)
    inverse = np.linalg.inv(dense.covariance)
    mean = cross @ inverse @ dense.residual + np.array([0.5, 0.0, 0.0])
    covariance = np.diag([1.3, 1.3, 1.0]) - cross @ inverse @ np.swapaxes(cross, 1, 2)
    pred = fit.predict({"x": NEW})
    np.testing.assert_allclose(pred.mean("drift"), mean[:, 0] * mean[:, 1] + covariance[:, 0, 1], atol=1e-5)
    np.testing.assert_allclose(pred.mean("both"), mean[:, 1] * mean[:, 2] + covariance[:, 1, 2], atol=1e-5)


def test_draws_and_quantiles_of_a_product(mixed: tuple) -> None:
    _, fit, dense = mixed
    mean, covariance = dense.at(NEW)
    draws = fit.predict({"x": NEW}).sample("product", 4000, seed=3)
    exact = mean[:, 0] * mean[:, 1] + covariance[:, 0, 1]
    assert np.all(np.abs(draws.mean(axis=0) - exact) < 5 * draws.std(axis=0) / np.sqrt(4000))
    median = fit.predict({"x": NEW}).quantile("product", 0.5)
    assert np.all(np.abs(np.mean(draws < median, axis=0) - 0.5) < 5 * 0.5 / np.sqrt(4000) + 0.02)


def test_predictive_densities_count_all_outputs_together(mixed: tuple) -> None:
    _, fit, dense = mixed
    mean, covariance = dense.at(NEW)
    y = np.random.default_rng(5).normal(size=(5, 3))
    weights = np.stack([A, B], axis=1)
    joint = weights @ covariance @ weights.T + 0.09 * np.eye(3)
    exact = [multivariate_normal(weights @ m, c).logpdf(t) for m, c, t in zip(mean, joint, y, strict=True)]
    np.testing.assert_allclose(fit.log_predictive_density({"x": NEW, "y": y}), exact, atol=1e-5)


def test_a_saved_fit_keeps_it(mixed: tuple, tmp_path: Path) -> None:
    _, fit, _ = mixed
    fit.save(tmp_path / "mixed.gpfit")
    again = gpdsl.load_fit(tmp_path / "mixed.gpfit").predict({"x": NEW})
    np.testing.assert_array_equal(again.mean("product"), fit.predict({"x": NEW}).mean("product"))
    assert "coupled" in fit.summary()


def test_row_variables_are_correlated_with_latents() -> None:
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(-2, 2, 12))
    y, z = rng.normal(size=(2, 12))
    fit = gpdsl.compile(FACTOR).fit({"x": x, "y": y, "z": z})
    gap = x[:, None] - x[None, :]
    f = np.exp(-0.5 * gap**2) + JITTER * np.eye(12)
    weights = np.array([1.0, -0.5])
    covariance = np.kron(np.ones((2, 2)), f) + np.kron(np.outer(weights, weights), 2.25 * np.eye(12))
    covariance += np.kron(np.diag([0.09, 0.16]), np.eye(12))
    mean = np.repeat(0.2 * weights, 12)
    assert fit.choice.posterior == "coupled"
    assert fit.elbo == pytest.approx(multivariate_normal(mean, covariance).logpdf(np.concatenate([y, z])), abs=1e-6)
    pred = fit.predict({"x": x + 0.01})
    np.testing.assert_allclose(pred.variance("w"), 2.25)  # a new row's own


def bound_to(text: str, data: dict[str, np.ndarray]) -> tuple[Program, object]:
    model = gpdsl.compile(text)
    found = bind(model.declarations, data)
    return make_program(model.declarations, found.sizes, found.levels, {}), found


@pytest.mark.parametrize("dense", [True, False])
def test_marginals_of_random_sites_are_those_of_dense_algebra(rng: np.random.Generator, dense: bool) -> None:
    """q is the prior times exp(sum_n b_n'f_n - f_n'L_n f_n / 2), where the sites see what the inducing values say."""
    x = np.sort(rng.uniform(-2, 2, 9))
    program, data = bound_to(MIXED, {"x": x, "y": rng.normal(size=(9, 3))})
    rows = as_arrays(make_rows(program, data), "float64")
    parameters = {"sigma": jnp.asarray(0.3)}
    points = x if dense else np.linspace(-2, 2, 4)
    inducing = [Values(jnp.asarray(points[:, None]))] * 2
    root = rng.normal(size=(9, 2, 2))
    precision, linear = root @ np.swapaxes(root, 1, 2) - 0.05 * np.eye(2), rng.normal(size=(9, 2))
    prior = np.tile([0.5, 0.0], (9, 1))
    seen = views(program, parameters, inducing, rows, dense, JITTER)
    q, divergence = joint_posterior(seen, jnp.asarray(linear), jnp.asarray(precision), jnp.asarray(prior))
    found = joint_marginals(seen, q)

    count, m = len(x), len(points)
    inside, cross, own = kernels(points, points), kernels(x, points), kernels(x, x)
    phi = np.zeros((count, 2, 2 * m))
    for i in range(2):
        phi[:, i, i * m : (i + 1) * m] = np.linalg.solve(inside[i], cross[i].T).T
    k = np.block([[inside[0], np.zeros((m, m))], [np.zeros((m, m)), inside[1]]])
    seen_precision = np.einsum("nia,nij,njb->ab", phi, precision, phi)
    s = np.linalg.inv(np.linalg.inv(k) + seen_precision)
    mean_u = s @ np.einsum("nia,ni->a", phi, linear - np.einsum("nij,nj->ni", precision, prior))
    left = [
        np.diag(o) - np.einsum("na,na->n", phi[:, i, i * m : (i + 1) * m], c)
        for i, (o, c) in enumerate(zip(own, cross, strict=True))
    ]
    covariance = phi @ s @ np.swapaxes(phi, 1, 2) + (0 if dense else np.stack(left, 1)[:, :, None] * np.eye(2))
    np.testing.assert_allclose(found.mean[0], phi @ mean_u + prior, atol=1e-6)
    np.testing.assert_allclose(found.covariance[0], covariance, atol=1e-6)
    np.testing.assert_allclose(found.variance[0], np.diagonal(covariance, axis1=1, axis2=2), atol=1e-6)
    kl = np.trace(np.linalg.solve(k, s)) + mean_u @ np.linalg.solve(k, mean_u) - 2 * m
    kl += np.linalg.slogdet(k)[1] - np.linalg.slogdet(s)[1]
    assert float(divergence) == pytest.approx(0.5 * kl, abs=1e-5)


def test_an_indefinite_precision_is_no_posterior(rng: np.random.Generator) -> None:
    x = np.linspace(-1, 1, 5)
    program, data = bound_to(MIXED, {"x": x, "y": rng.normal(size=(5, 3))})
    rows = as_arrays(make_rows(program, data), "float64")
    seen = views(program, {"sigma": jnp.asarray(0.3)}, [Values(jnp.asarray(x[:, None]))] * 2, rows, True, JITTER)
    precision = jnp.broadcast_to(-20.0 * jnp.eye(2), (5, 2, 2))
    assert np.isnan(float(joint_posterior(seen, jnp.ones((5, 2)), precision, jnp.zeros((5, 2)))[1]))


def _case(name: str, seed: int) -> tuple[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-2, 2, 20))
    if name == "noisy":
        return NOISY, {"x": x, "y": np.sin(2 * x) + np.exp(-1 + 0.5 * x) * rng.standard_t(4, size=20)}
    if name == "network":
        return NETWORK, {"x": x, "y": np.stack([np.sin(3 * x), x * np.cos(2 * x)], 1) + 0.2 * rng.normal(size=(20, 2))}
    return CLASSES, {"x": x, "y": 1 + (np.abs(np.floor(x + 0.5 * rng.normal(size=20))) % 3).astype(int)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        *(("noisy", seed) for seed in (0, 1, 2)),
        *(("network", seed) for seed in (0, 1, 2)),
        *(("classes", seed) for seed in (1, 2)),
    ],
)
def test_never_below_the_factorised_posterior(name: str, seed: int) -> None:
    text, data = _case(name, seed)
    full, coupled = (gpdsl.compile(text).fit(data, posterior=each) for each in ("full", "coupled"))
    assert coupled.elbo >= full.elbo - 1e-6 - 3 * (full.elbo_se + coupled.elbo_se)
    assert np.all(np.isfinite(coupled.predict(data).variance(next(iter(full.program.declarations.latents)))))


@pytest.mark.slow
def test_an_opaque_function_gives_the_posterior_of_its_formula() -> None:
    """Two latents of which one product is seen: values alone find how they go together."""
    text = """
    input x : real
    output t : real
    latent d(x) ~ GP(2, 0.3 * RBF(1))
    latent v(x) ~ GP(0.7, 0.1 * RBF(1))
    t ~ Normal(d * exp(-v), 0.05)
    """
    called = text.replace("t ~", "external ratio(d: real, v: real) -> real\n    t ~").replace(
        "d * exp(-v)", "ratio(d, v)"
    )
    x = np.linspace(-1, 1, 8)
    data = {"x": x, "t": 1 + 0.2 * np.sin(2 * x)}
    symbolic = gpdsl.compile(text).fit(data)
    opaque = gpdsl.compile(called, externals={"ratio": lambda d, v: d * np.exp(-v)}).fit(data, seed=1)
    assert symbolic.choice.posterior == opaque.choice.posterior == "coupled"
    assert opaque.elbo == pytest.approx(symbolic.elbo, abs=0.1)
    ours, theirs = (fit.predict({"x": x}).beliefs.marginals for fit in (opaque, symbolic))
    sd = np.sqrt(np.asarray(theirs.variance))
    assert np.abs((np.asarray(ours.mean) - theirs.mean) / sd).max() < 0.1
    between = [np.asarray(q.covariance)[0, :, 0, 1] / (sd[0, :, 0] * sd[0, :, 1]) for q in (ours, theirs)]
    assert between[1].min() > 0.8
    np.testing.assert_allclose(*between, atol=0.08)
    few = gpdsl.compile(called, externals={"ratio": lambda d, v: d * np.exp(-v)}).explain(
        data, samples=20, control_variate="constant"
    )
    assert "20 samples are too few to estimate the covariances of 2 latent values" in few


def test_the_default_keeps_correlation_where_it_arises_and_can_be_afforded(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(-2, 2, 20)
    data = {"x": x, "y": np.sin(x)}
    chosen = plan(*_planned(NOISY, data, {})).choice
    assert chosen.posterior == "coupled" and "`y` mixes latents" in chosen.reasons["posterior"]
    assert plan(*_planned(NOISY, data, {"posterior": "full"})).choice.posterior == "full"
    assert plan(*_planned(NOISY, data, {"optimizer": "adam"})).choice.posterior == "full"
    assert plan(*_planned(NOISY, data, {"posterior": "diagonal"})).choice.posterior == "diagonal"
    apart = NOISY.replace("y ~ StudentT(4, s * f, exp(h))", "y ~ StudentT(4, s * f, 1)")
    assert plan(*_planned(apart, data, {})).choice.posterior == "full"
    batches = plan(*_planned(NOISY, data, {"batch": 5, "inducing": 5})).choice
    assert batches.posterior == "full" and "minibatches leave latents independent" in batches.reasons["posterior"]
    monkeypatch.setattr(planning, "LARGEST", 10)
    large = plan(*_planned(NOISY, data, {})).choice
    assert large.posterior == "full" and "too many" in large.reasons["posterior"]


def _planned(text: str, data: dict[str, np.ndarray], given: dict[str, object]) -> tuple:
    program, found = bound_to(text, data)
    return program, found, make_options({}, given)


def test_the_gradient_of_the_profiled_bound_is_that_of_finite_differences(rng: np.random.Generator) -> None:
    """In the hyperparameters, through sites that are refined at each point: envelope theorem."""
    x = np.sort(rng.uniform(-2, 2, 10))
    text = MIXED.replace("1.3 * RBF(1)", "1.3 * RBF(ell)").replace(
        "latent f", "param ell : positive = 0.8\nlatent f", 1
    )
    text = text.replace("y[p] ~ Normal(a[p] * f + b[p] * g, sigma)", "y[p] ~ Normal(a[p] * f + b[p] * exp(g), sigma)")
    data = {"x": x, "y": np.sin(x)[:, None] * A + 0.1 * rng.normal(size=(10, 3))}
    problem = problem_of(text, data, tolerance=1e-13)
    point, start = problem.parameters, outer_point(problem, problem.parameters, problem.inducing)
    objective = jit(partial(profiled_bound, problem, None))

    def at(point: dict) -> tuple:
        return objective(point, start_sites(problem), problem.rest()._replace(jitter=JITTER))

    _, gradient, sites, _ = at(start)
    assert sites.coupled and np.abs(np.asarray(sites.precision[:, 0, 1])).max() > 0.1
    for name in ("ell", "sigma"):
        moved = [{**start, "parameters": {**point, name: point[name] + h}} for h in (1e-4, -1e-4)]
        difference = float(at(moved[0])[0] - at(moved[1])[0]) / 2e-4
        assert float(gradient["parameters"][name]) == pytest.approx(difference, rel=1e-4, abs=1e-5)


def test_what_does_not_go_with_it_is_said() -> None:
    data = {"x": np.linspace(-2, 2, 20), "y": np.zeros(20)}
    for options in ({"optimizer": "adam"}, {"batch": 5, "inducing": 4}):
        with pytest.raises(gpdsl.GpdslError, match="posterior = coupled is found by natural gradients on all rows"):
            gpdsl.compile(NOISY).fit(data, posterior="coupled", **options)


def test_covariances_and_draws_of_each_latent_are_those_of_dense_algebra() -> None:
    """Of two latents that the data only see the sum of."""
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, 0.5 * Matern12(2))\n"
    x, new = np.linspace(0, 4, 6), np.array([0.5, 1.7, 6.0])
    fit = gpdsl.compile(text + "y ~ Normal(f + g, 0.3)").fit({"x": x, "y": np.sin(x)}, posterior="coupled", inducing=6)
    found = fit.predict({"x": new})

    def smooth(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * (a[:, None] - b) ** 2)

    def rough(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return 0.5 * np.exp(-abs(a[:, None] - b) / 2)

    seen = smooth(x, x) + rough(x, x) + 0.09 * np.eye(6)
    for name, kernel in (("f", smooth), ("g", rough)):
        cross = kernel(new, x)
        expected = kernel(new, new) - cross @ np.linalg.solve(seen, cross.T)
        np.testing.assert_allclose(found.covariance(name), expected, atol=1e-5)
        drawn = found.draws(name, 4000, seed=0)
        np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.07)  # five standard errors
