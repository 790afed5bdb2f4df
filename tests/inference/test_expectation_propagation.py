"""EP against dense EP row after row, brute-force integrals, finite differences, and variational inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.expectation_propagation import engine, objective
from gpdsl.inference.expectation_propagation.lattices import Along, Corrected, EachLatent, Formula, Together
from gpdsl.program.joint import Marginals
from tests.inference.problems import unlearnt

HEAD = "input x : real[2]\noutput y : {kind}\nlatent f(x) ~ GP({mean}, {s2} * RBF({ell}))\n"


def model(likelihood: str, kind: str = "binary", mean: float = 0.0, s2: float = 3.0, ell: float = 1.3) -> gpdsl.Model:
    return gpdsl.compile(HEAD.format(kind=kind, mean=mean, s2=s2, ell=ell) + f"y ~ {likelihood}\n")


def rbf(a: np.ndarray, b: np.ndarray, s2: float = 3.0, ell: float = 1.3) -> np.ndarray:
    return s2 * np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1) / ell**2)


def classes(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    x = rng.normal(size=(rows, 2))
    return {"x": x, "y": (np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=rows) > 0).astype(int)}


def dense_ep(prior: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """log Z, means and variances of Rasmussen and Williams, algorithm 3.5 and eq. 3.65: one site after the other."""
    count, sign = len(y), 2.0 * y - 1.0
    nu, tau, sigma, mu = np.zeros(count), np.zeros(count), prior.copy(), np.zeros(count)
    for _ in range(100):
        before = tau.copy()
        for i in range(count):
            cavity_tau, cavity_nu = 1 / sigma[i, i] - tau[i], mu[i] / sigma[i, i] - nu[i]
            mean, variance = cavity_nu / cavity_tau, 1 / cavity_tau
            z = sign[i] * mean / np.sqrt(1 + variance)
            ratio = np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(z))
            tilted_mean = mean + sign[i] * variance * ratio / np.sqrt(1 + variance)
            tilted_variance = variance - variance**2 * ratio / (1 + variance) * (z + ratio)
            change = 1 / tilted_variance - cavity_tau - tau[i]
            tau[i] += change
            nu[i] = tilted_mean / tilted_variance - cavity_nu
            sigma = sigma - np.outer(sigma[:, i], sigma[i]) * change / (1 + change * sigma[i, i])
            mu = sigma @ nu
        root = np.sqrt(tau)
        factor = np.linalg.cholesky(np.eye(count) + root[:, None] * prior * root)
        half = np.linalg.solve(factor, root[:, None] * prior)
        sigma = prior - half.T @ half
        mu = sigma @ nu
        if np.abs(tau - before).max() < 1e-13:
            break
    variance = np.diag(sigma)
    cavity_tau = 1 / variance - tau
    mean = (mu / variance - nu) / cavity_tau
    value = stats.norm.logcdf(sign * mean / np.sqrt(1 + 1 / cavity_tau)).sum() + 0.5 * np.log1p(tau / cavity_tau).sum()
    value += -np.log(np.diag(factor)).sum() + 0.5 * (nu @ sigma @ nu - (nu**2 / (cavity_tau + tau)).sum())
    value += 0.5 * (mean * cavity_tau / (cavity_tau + tau) * (tau * mean - 2 * nu)).sum()
    return float(value), mu, variance


def test_dense_probit_is_that_of_sequential_ep() -> None:
    data = classes(np.random.default_rng(3), 40)
    prior = rbf(data["x"], data["x"]) + 3e-8 * np.eye(40)
    value, mean, variance = dense_ep(prior, data["y"])
    fit = model("Bernoulli(probit = f)").fit(data, engine="ep", inducing=0)
    assert abs(fit.elbo - value) < 1e-8
    probability = special.ndtr(mean / np.sqrt(1 + variance))
    assert np.abs(fit.predict(data).mean("y") - probability).max() < 1e-6


def test_inducing_points_are_dense_ep_under_the_prior_of_fitc() -> None:
    rng = np.random.default_rng(4)
    data = classes(rng, 50)
    fit = model("Bernoulli(probit = f)").fit(data, engine="ep", inducing=8)
    z = np.asarray(fit.inducing[0].points)
    inner = rbf(z, z) + 3e-8 * np.eye(8)
    across = rbf(data["x"], z)
    low_rank = across @ np.linalg.solve(inner, across.T)
    prior = low_rank + np.diag(3.0 - np.diag(low_rank))
    value, mean, variance = dense_ep(prior, data["y"])
    assert abs(fit.elbo - value) < 1e-7
    found = fit.predict(data).mean("f")
    assert found.shape == mean.shape and np.all(np.isfinite(variance))


DENSITIES: dict[str, tuple[str, str, float, Callable[[np.ndarray], np.ndarray]]] = {
    "poisson": ("Poisson(exp(f))", "count", 4.0, lambda f: stats.poisson.pmf(4, np.exp(f))),
    "student": ("StudentT(3, f, 0.3)", "real", 6.0, lambda f: stats.t.pdf((6.0 - f) / 0.3, 3) / 0.3),
    "logistic": ("Bernoulli(logit = f)", "binary", 1.0, special.expit),
    "probit": ("Bernoulli(probit = f)", "binary", 1.0, special.ndtr),
    "normal": ("Normal(f, 0.05)", "real", 2.0, lambda f: stats.norm.pdf(2.0, f, 0.05)),
    "laplace": ("Laplace(f, 0.1)", "real", 2.0, lambda f: np.exp(-np.abs(2.0 - f) / 0.1) / 0.2),
    "square": ("Normal(f^2, 0.3)", "real", 2.0, lambda f: stats.norm.pdf(2.0, f**2, 0.3)),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_one_row_is_exact(name: str) -> None:
    """With a single row EP has nothing to approximate: evidence, mean and variance are those of the integral."""
    likelihood, kind, y, density = DENSITIES[name]
    data = {"x": np.zeros((1, 2)), "y": np.array([y])}
    fit = model(likelihood, kind, mean=0.4, s2=2.0).fit(data, engine="ep", inducing=0)
    f = np.linspace(-14.0, 15.0, 400_001)
    weights = density(f) * stats.norm.pdf(f, 0.4, np.sqrt(2.0))
    total = integrate.trapezoid(weights, f)
    mean = integrate.trapezoid(weights * f, f) / total
    variance = integrate.trapezoid(weights * (f - mean) ** 2, f) / total
    error = 3e-3 if name == "laplace" else 1e-4  # the lattice meets a kink
    assert abs(fit.elbo - np.log(total)) < error
    found = fit.predict(data)
    assert abs(found.mean("f")[0] - mean) < error * (1 + abs(mean))
    assert abs(found.variance("f")[0] / variance - 1) < 3 * error


TWO = """
input x : real
output y : real
latent f(x) ~ GP(0.5, 1.5 * RBF(1))
latent g(x) ~ GP(-1, 0.4 * RBF(1))
y ~ Normal(f, exp(g))
"""


def test_one_row_of_two_latents_is_exact() -> None:
    fit = gpdsl.compile(TWO).fit({"x": [0.0], "y": [2.5]}, engine="ep", inducing=0)
    assert fit.choice.posterior == "coupled"
    f, g = np.linspace(-8, 9, 2001)[:, None], np.linspace(-6, 4, 1501)[None]
    joint = stats.norm.pdf(2.5, f, np.exp(g)) * stats.norm.pdf(f, 0.5, np.sqrt(1.5))
    joint = joint * stats.norm.pdf(g, -1, np.sqrt(0.4))
    total = integrate.trapezoid(integrate.trapezoid(joint, g[0], axis=1), f[:, 0])
    assert abs(fit.elbo - np.log(total)) < 1e-3
    mean = integrate.trapezoid(integrate.trapezoid(joint * g, g[0], axis=1), f[:, 0]) / total
    assert abs(fit.predict({"x": [0.0]}).mean("g")[0] - mean) < 2e-3


SOFTMAX = """
index c in 1..C
input x : real
output y : label[c]
latent f[c](x) ~ GP(0, 2 * RBF(1))
y ~ Categorical(logits = f)
"""


def test_sampled_moments_of_many_latents() -> None:
    """Three logits, one row: by symmetry the evidence is log(1/3); two neighbours raise it, as the integral says."""
    data = {
        "x": np.array([0.0, 50.0, 100.0]),
        "y": np.array(["a", "b", "c"]),
    }  # three rows that know nothing of each other
    fit = gpdsl.compile(SOFTMAX).fit(data, engine="ep", inducing=0, samples=4096)
    assert abs(fit.elbo - 3 * np.log(1 / 3)) < 5e-3


@pytest.mark.parametrize("likelihood", ["Bernoulli(probit = f)", "Bernoulli(logit = f)"])
def test_gradient_of_the_evidence_is_that_of_sites_that_follow(likelihood: str, caught: Callable[..., Any]) -> None:
    data = classes(np.random.default_rng(5), 30)
    text = "input x : real[2]\noutput y : binary\nparam m : real = 0.2\nparam s2 : positive = 2\n"
    text += "param ell : positive[2] = 1\n"
    compiled = gpdsl.compile(text + f"latent f(x) ~ GP(m, s2 * RBF(ell))\ny ~ {likelihood}\n")
    point = {"m": 0.3, "s2": 1.7, "ell": [0.8, 1.4]}
    problem = caught(compiled, data, inducing=0, init=point, tolerance=1e-13)
    run = engine.EpSearch(problem, engine.tilted_of(problem))
    compute = engine.jit(objective.converged(problem, run.tilted))
    like = run.start.linear.dtype.type
    value, gradient, _ = compute(run.best.point, run.start, run.rest)
    for name, slope in gradient["parameters"].items():
        for place in np.ndindex(np.shape(slope)):
            moved = []
            for step in (1e-4, -1e-4):
                there = {k: np.array(v, float) for k, v in run.best.point["parameters"].items()}
                there[name][place] += step
                point_there = {**run.best.point, "parameters": {k: like(v) for k, v in there.items()}}
                moved.append(float(compute(point_there, run.start, run.rest)[0]))
            assert abs((moved[0] - moved[1]) / 2e-4 - np.asarray(slope)[place]) < 1e-5 * (1 + abs(float(value)))


@pytest.mark.parametrize(
    ("likelihood", "kind", "inducing"), [("Poisson(exp(f))", "count", 0), ("Bernoulli(logit = f)", "binary", 7)]
)
def test_power_towards_zero_is_variational_inference(likelihood: str, kind: str, inducing: int) -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(40, 2))
    y = rng.poisson(np.exp(np.sin(x[:, 0]))) if kind == "count" else rng.integers(0, 2, 40)
    compiled, data = model(likelihood, kind, s2=1.0), {"x": x, "y": y}
    bound = compiled.fit(data, inducing=inducing)
    gaps = [compiled.fit(data, engine="ep", power=a, inducing=inducing).elbo - bound.elbo for a in (0.02, 0.01)]
    assert abs(gaps[1]) < 0.03
    assert abs(gaps[0] / gaps[1] - 2.0) < 0.05  # a gap in proportion to the power
    near = compiled.fit(data, engine="ep", power=1e-4, inducing=inducing).predict(data)
    assert np.abs(near.mean("f") - bound.predict(data).mean("f")).max() < 1e-3


def test_estimates_of_one_moment_agree() -> None:
    data = classes(np.random.default_rng(7), 30)
    compiled = model("Bernoulli(probit = f)")
    closed, lattice, sampled = (
        compiled.fit(data, engine="ep", inducing=0, expectations=how).elbo for how in ("auto", "quadrature", "sampled")
    )
    assert abs(closed - lattice) < 1e-8
    assert 0 < abs(closed - sampled) < 0.05


@pytest.mark.parametrize("latents", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_derivatives_of_sums_are_those_of_automatic_differentiation(latents: int) -> None:
    rng = np.random.default_rng(latents)
    root = np.tril(rng.normal(size=(4, latents, latents))) + 2 * np.eye(latents)
    covariance = root @ np.swapaxes(root, 1, 2)
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    mean, points = rng.normal(size=(4, latents)), 2 * rng.normal(size=(50, 4, latents))
    basis = np.arange(latents)
    first, second = (Together(jnp.asarray(points), jnp.asarray(rng.normal(size=(50, 4))), basis) for _ in range(2))
    read = jnp.asarray(rng.random((4, latents)) < 0.7)
    each = EachLatent(jnp.asarray(points), jnp.asarray(rng.normal(size=points.shape)), read, jnp.ones(4))
    apart = Marginals(jnp.asarray(mean)[None], jnp.asarray(variance)[None])
    joint = Marginals(jnp.asarray(mean)[None], jnp.asarray(variance)[None], jnp.asarray(covariance)[None])
    slopes = jnp.asarray(rng.normal(size=(4, latents)))

    def summed(q: Marginals) -> Marginals:
        variance = jnp.sum(slopes**2 * q.variance, axis=-1)
        if q.covariance is not None:
            variance = jnp.einsum("ni,knij,nj->kn", slopes, q.covariance, slopes)
        return Marginals(jnp.sum(slopes * q.mean, axis=-1)[..., None], variance[..., None])

    one = EachLatent(each.nodes[..., :1], each.behind[..., :1], jnp.ones((4, 1), bool), jnp.ones(4))
    along = Along(one, summed, slopes)
    cases = [(first, apart), (first, joint), (Corrected(first, second, one), apart), (each, apart), (along, joint)]

    def both() -> list[tuple[dict, dict]]:
        of = [(each.derivatives(cavity), Formula(each, separate=False).derivatives(cavity)) for each, cavity in cases]
        return [(vars(found), vars(known)) for found, known in of]

    for found, known in jax.jit(both)():
        for name, value in found.items():
            np.testing.assert_allclose(value, known[name], rtol=1e-6, atol=1e-7)


def test_outliers_have_sites_of_negative_precision() -> None:
    """A row that contradicts its neighbours widens the posterior under a heavy tail: its site is negative."""
    x = np.column_stack([np.linspace(-1, 1, 9), np.linspace(0, 0.1, 9)])
    y = np.where(np.arange(9) == 4, 9.0, 0.0)
    robust = model("StudentT(3, f, 0.2)", "real").fit({"x": x, "y": y}, engine="ep", inducing=0)
    assert "settle" not in robust.message and "improper" not in robust.message
    assert abs(robust.predict({"x": x}).mean("f")[4]) < 0.2
    plain = model("Normal(f, 0.2)", "real").fit({"x": x, "y": y}, engine="ep", inducing=0)
    assert abs(plain.predict({"x": x}).mean("f")[4]) > 0.5


@pytest.mark.slow
def test_hyperparameters_with_every_sweep_end_where_those_after_convergence_do() -> None:
    data = classes(np.random.default_rng(8), 60)
    text = "input x : real[2]\noutput y : binary\nparam s2 : positive = 2\nparam ell : positive = 1\n"
    compiled = gpdsl.compile(text + "latent f(x) ~ GP(0, s2 * RBF(ell))\ny ~ Bernoulli(probit = f)\n")
    outer = compiled.fit(data, engine="ep", inducing=0)
    inner = compiled.fit(data, engine="ep", inducing=0, optimizer="adam", steps=400)
    assert outer.elbo > compiled.fit(data, engine="ep", inducing=0, fixed=["s2", "ell"]).elbo + 0.05
    assert abs(inner.elbo - outer.elbo) < 0.02


def test_a_fixed_point_that_is_not_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "SWEEPS", 2)
    fit = model("Bernoulli(probit = f)").fit(classes(np.random.default_rng(9), 30), engine="ep", inducing=0)
    assert "did not settle within 2 sweeps" in fit.message and "did not settle" in fit.summary()
    assert "converged" not in fit.message and any("can be relied on" in note for note in fit.notes)
    assert np.all(np.diff(fit.history[:, 0]) > 0)


def test_a_lower_power_stands_in_where_sites_do_not_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is that of the lower power, not one with its name."""
    compiled, data = model("Bernoulli(probit = f)"), classes(np.random.default_rng(9), 30)
    lower = compiled.fit(data, engine="ep", inducing=0, power=0.5)
    doubt = engine.EpSearch.doubt

    def unsettled(search: Any) -> str:
        return doubt.fget(search) if search.tilted.power < 0.9 else "; the sites did not settle"  # type: ignore[misc]

    monkeypatch.setattr(engine.EpSearch, "doubt", property(unsettled))
    fit = compiled.fit(data, engine="ep", inducing=0)
    assert fit.elbo == lower.elbo
    assert fit.notes == ("expectation propagation did not settle at power = 1: this is the answer of 0.5",)


def outliers(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A sine with heavy-tailed noise and three outliers."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 6, 50))
    y = np.sin(x) + 0.2 * rng.laplace(size=50)
    y[[5, 20, 40]] += [4, -5, 3]
    return x, y


def importance_sampled(prior: np.ndarray, y: np.ndarray, scale: float, nu: float) -> float:
    """log of the integral of Student likelihoods over N(0, prior), by samples about the mode with EM's precisions."""
    mean = np.zeros(len(y))
    for _ in range(200):
        weight = (nu + 1) / (nu * scale**2 + (y - mean) ** 2)
        mean = prior @ np.linalg.solve(prior + np.diag(1 / weight), y)
    wide = prior - prior @ np.linalg.solve(prior + np.diag(1 / (0.8 * weight)), prior)
    root = np.linalg.cholesky(wide + 1e-10 * np.eye(len(y)))
    f = mean + np.random.default_rng(0).standard_normal((4_000, len(y))) @ root.T
    log = stats.t.logpdf(y, nu, f, scale).sum(1) + stats.multivariate_normal.logpdf(f, np.zeros(len(y)), prior)
    log -= stats.multivariate_normal.logpdf(f, mean, root @ root.T)
    return float(special.logsumexp(log) - np.log(len(log)))


@pytest.mark.parametrize("seed", [3, *(pytest.param(each, marks=pytest.mark.slow) for each in (0, 1, 2, 4, 5, 6))])
def test_outliers_do_not_make_cavities_improper(seed: int) -> None:
    """Full steps would: site precisions fall below zero faster than neighbours make up for it, and log Z runs away."""
    text = "input x : real\noutput y : real\nparam ell : positive = 1.47\nlatent f(x) ~ GP(0, 0.59 * RBF(ell))\n"
    compiled = gpdsl.compile(text + "y ~ StudentT(4, f, 0.238)\n")
    x, y = outliers(seed)
    prior = 0.59 * np.exp(-0.5 * ((x[:, None] - x) / 1.47) ** 2) + 1e-6 * np.eye(50)
    fit = compiled.fit({"x": x, "y": y}, engine="ep", inducing=0, fixed=["ell"])
    assert fit.message == "converged" and not fit.notes
    assert fit.elbo == pytest.approx(importance_sampled(prior, y, 0.238, 4.0), abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lbfgs", pytest.param("adam", marks=pytest.mark.slow)])
def test_parameters_of_data_with_outliers_are_those_of_a_lower_power(optimizer: str) -> None:
    text = "input x : real\noutput y : real\nparam s2 : positive\nparam ell : positive\nparam s : positive\n"
    compiled = gpdsl.compile(text + "latent f(x) ~ GP(0, s2 * RBF(ell))\ny ~ StudentT(4, f, s)\n")
    x, y = outliers(3)
    whole, less = (compiled.fit({"x": x, "y": y}, engine="ep", power=p, optimizer=optimizer) for p in (1.0, 0.9))
    assert whole.elbo == pytest.approx(less.elbo, abs=0.1)
    assert np.abs(whole.predict({"x": x}).mean("f")).max() < 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"posterior": "mixture(2)"}, "Gaussian sites"),
        ({"power": 1.5}, "at most 1"),
        ({"power": 0}, "at least"),
        ({"optimizer": "natural"}, "belongs to engine = vi"),
        ({"schedule": "alternating"}, "belongs to engine = vi"),
        ({"batch": 5, "inducing": 3, "optimizer": "lbfgs"}, "all rows at once"),
        ({"batch": 5, "inducing": 3, "posterior": "coupled"}, "all rows at once"),
    ],
)
def test_refusals(options: dict[str, Any], words: str) -> None:
    with pytest.raises(GpdslError, match=words):
        model("Bernoulli(probit = f)").fit(classes(np.random.default_rng(1), 10), engine="ep", **options)


def test_the_plan_and_the_summary_say_what_is_done() -> None:
    data = classes(np.random.default_rng(1), 10)
    assert "closed form" in model("Bernoulli(probit = f)").explain(data, engine="ep")
    plan = model("Bernoulli(logit = f)").explain(data, engine="ep", power=0.5)
    assert "power 0.5" in plan and "96 nodes" in plan
    moved = {"inducing": 4, "learn_inducing": True}
    plan = model("Bernoulli(probit = f)").explain(data, engine="ep", **moved)
    assert "power 0.5" in plan and "power: at power 1 inducing inputs that move" in plan and "quadrature" in plan
    assert "closed form" in model("Bernoulli(probit = f)").explain(data, engine="ep", power=1, **moved)
    assert "log Z (EP)" in unlearnt(model("Bernoulli(probit = f)"), data, engine="ep").summary()


def test_a_lattice_over_two_latents_states_what_it_leaves_open() -> None:
    """Of one row log Z is the integral itself: of g under N(0, 0.8) in closed form, of f by quadrature."""
    text = """
    input x : real
    output y : real
    latent f(x) ~ GP(0, RBF(1))
    latent g(x) ~ GP(0, 0.8 * RBF(2))
    y ~ Normal(f * g, 0.2)
    """
    fit = gpdsl.compile(text).fit({"x": [0.3], "y": [1.5]}, engine="ep")
    density = lambda f: stats.norm.pdf(1.5, 0, np.sqrt(0.04 + 0.8 * f**2)) * stats.norm.pdf(f)  # noqa: E731
    integral, _ = integrate.quad(density, -9, 9, points=[0, 1, -1])
    assert 1e-5 < abs(fit.elbo - np.log(integral)) < 2 * fit.elbo_se < 5e-3


@pytest.mark.parametrize(("size", "little"), [(1.0, 1e-3), (-50.0, 0.05), (0.2, 1e-3)])
def test_steps_end_where_the_mean_of_the_last_rises_by_less_than_each_may(size: float, little: float) -> None:
    """Of twenty, by twenty times the tolerance, of the evidence or of one."""
    before, step = [size] * 20, 20 * little

    def rises(by: float) -> bool:
        trace = [size - 9.0] * 7 + before + [size + by * step] * 20
        return not engine._settled(trace, 1e-3)

    assert rises(1.3) and not rises(0.7) and not rises(-2.0)
    assert not engine._settled([size] * 39, 1e-3) and engine._settled([size] * 40, 1e-3)
    assert engine._settled([0.0] * 20 + [1e-8] * 20, 0.0) and not engine._settled([0.0] * 20 + [3e-8] * 20, 0.0)


@pytest.mark.filterwarnings("ignore:1 of the 2 columns:gpdsl.GpdslWarning")
def test_rounding_of_single_precision_asks_for_no_finer_quadrature() -> None:
    x = np.linspace(0, 6, 20)[:, None] * [1.0, 0.0]
    y = (np.random.default_rng(0).uniform(size=20) < special.expit(4 * np.sin(2 * x[:, 0]))).astype(int)
    fit = model("Bernoulli(logit=2*f)", ell=1.0).fit({"x": x, "y": y}, engine="ep", dtype="float32")
    assert "finer quadrature" not in fit.message
