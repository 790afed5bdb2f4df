"""Latents over latents: the bound against that of one layer, brute force, and what fits and predictions say."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.bound import Bound, Layout
from gpdsl.inference.layered.engine import Precise
from gpdsl.inference.layered.propagation import Drawn, Expected, Layers, divergence
from gpdsl.inference.posteriors.family import Full, Whitened
from gpdsl.kernels.functionals import Values
from gpdsl.program.program import Program, make_rows
from gpdsl.results.fitting import prepare
from tests.inference.problems import unlearnt

SHALLOW = """
model shallow
input x : real[2]
output y : real
param s2 : positive = 1.3
param sigma : positive = 0.2
latent f(x) ~ GP(0.1, s2 * RBF(0.9))
y ~ Normal(f, sigma)
"""

DEEP = """
model deep
index d in 1..2
input x[d] : real
output y : real
param s2 : positive = 1.3
param inner : positive = 1e-14
param sigma : positive = 0.2
latent h[d](x) ~ GP(x[d], inner * RBF(1))
latent f(h) ~ GP(0.1, s2 * RBF(0.9))
y ~ Normal(f, sigma)
"""

STEP = """
model step
input x : real
output y : real
param ell_h : positive = 1
param ell_f : positive = 1
param sigma : positive = 0.1
latent h(x) ~ GP(0, RBF(ell_h))
latent f(h) ~ GP(0, RBF(ell_f))
y ~ Normal(f, sigma)
"""


def _data(rng: np.random.Generator, rows: int = 25) -> dict[str, np.ndarray]:
    x = rng.standard_normal((rows, 2))
    return {"x": x, "y": np.sin(2 * x[:, 0]) + 0.2 * rng.standard_normal(rows)}


def _program(text: str, data: Any) -> tuple[Program, Any, dict[str, Any]]:
    program, bound, _ = prepare(gpdsl.compile(text), data, {}, {})
    rows = jax.tree.map(jnp.asarray, make_rows(program, bound))
    return program, rows, program.parameters.constrain(program.parameters.unconstrained())


def _posterior(rng: np.random.Generator, latents: int, points: np.ndarray, sd: float) -> Whitened:
    size = len(points)
    root = np.tril(0.1 * rng.standard_normal((1, latents, size, size)), -1) + sd * np.eye(size)
    return Whitened(jnp.asarray(rng.standard_normal((1, latents, size))), jnp.asarray(root))


def test_one_layer_has_the_bound_of_sparse_inference(rng: np.random.Generator) -> None:
    data = _data(rng)
    program, rows, parameters = _program(SHALLOW, data)
    points = [Values(jnp.asarray(data["x"][:7]))]
    q = _posterior(rng, 1, data["x"][:7], 0.4)
    expected = Expected(Layers(program, frozenset()), samples=2, total=25)
    found = expected(parameters, points, {0: q}, rows, jax.random.key(0), 1e-8) - divergence(q)
    raw = jnp.where(jnp.eye(7) > 0, jnp.log(jnp.abs(q.root)), q.root)
    groups = {"groups": [{"mean": q.mean, "root": raw}], "logits": jnp.zeros(1)}
    state = {"parameters": program.parameters.unconstrained(), "posterior": groups, "inducing": points}
    known = Bound(program, Layout(Full(), False), rows, 1e-8).value(state, 25, None)
    np.testing.assert_allclose(found, known, rtol=1e-9)


def test_a_layer_that_changes_nothing_leaves_the_bound_of_the_other(rng: np.random.Generator) -> None:
    data = _data(rng)
    points, key = Values(jnp.asarray(data["x"][:7])), jax.random.key(0)
    last, inner = _posterior(rng, 1, data["x"][:7], 0.4), _posterior(rng, 2, data["x"][:7], 1.0)
    bounds = []
    for text, posterior in ((SHALLOW, [last]), (DEEP, [inner, last])):
        program, rows, parameters = _program(text, data)
        expected = Expected(Layers(program, frozenset()), samples=3, total=25)
        bounds.append(
            float(expected(parameters, [points] * len(posterior), dict(enumerate(posterior)), rows, key, 1e-8))
        )
    np.testing.assert_allclose(bounds[1], bounds[0], rtol=1e-6)


def test_sampled_layers_average_to_the_expectation_of_brute_force(rng: np.random.Generator) -> None:
    """E[log p(y | f)] over h by quadrature, with dense conditionals in NumPy."""
    x = np.linspace(-1, 1, 4)
    y = np.array([0.3, -0.2, 0.5, 0.1])
    program, rows, parameters = _program(STEP, {"x": x, "y": y})
    z, u = np.array([[-1.0], [0.2], [1.1]]), np.array([[-0.8], [0.1], [0.9]])
    first, second = _posterior(rng, 1, z, 0.5), _posterior(rng, 1, u, 0.4)

    def moments(at: np.ndarray, z: np.ndarray, q: Whitened) -> tuple[np.ndarray, np.ndarray]:
        k = lambda a, b: np.exp(-0.5 * (a[:, None] - b[None, :]) ** 2)  # noqa: E731
        factor = np.linalg.cholesky(k(z[:, 0], z[:, 0]) + 1e-8 * np.eye(3))
        phi = np.linalg.solve(factor, k(z[:, 0], at)).T
        root = np.asarray(q.root[0, 0])
        return phi @ np.asarray(q.mean[0, 0]), 1.0 - np.sum(phi**2, 1) + np.sum((phi @ root) ** 2, 1)

    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    mean, variance = moments(x, z, first)
    at = mean[:, None] + np.sqrt(variance)[:, None] * nodes
    m, v = (a.reshape(4, 80) for a in moments(at.ravel(), u, second))
    density = -0.5 * np.log(2 * np.pi * 0.01) - ((y[:, None] - m) ** 2 + v) / 0.02
    known = float(np.sum(density @ (weights / weights.sum())))
    expected = Expected(Layers(program, frozenset()), samples=20_000, total=4)
    points = [Values(jnp.asarray(z)), Values(jnp.asarray(u))]
    found = [
        float(expected(parameters, points, {0: first, 1: second}, rows, jax.random.key(s), 1e-8)) for s in range(4)
    ]
    assert abs(np.mean(found) - known) < 4 * np.std(found) / 2 + 1e-3 * abs(known)
    given = parameters, points, {0: first, 1: second}, rows, jax.random.key(0), 1e-8
    nodes = Expected(Layers(program, frozenset()), samples=40, total=4, even=True, quadrature=True)
    np.testing.assert_allclose(float(nodes(*given)), known, rtol=1e-6)
    spread = Expected(Layers(program, frozenset()), samples=20_000, total=4, even=True)
    assert abs(float(spread(*given)) - known) < 0.1 * np.std(found)


def test_a_whole_natural_step_is_the_best_gaussian_of_a_conjugate_model(rng: np.random.Generator) -> None:
    phi, y, noise = rng.standard_normal((12, 4)), rng.standard_normal(12), 0.3
    q = Precise.prior(1, 4, jnp.dtype(float))

    def expected(q: Any) -> jax.Array:
        spread = jnp.sum((phi @ q.covariance[0, 0]) * phi)
        return -0.5 * (jnp.sum((y - phi @ q.mean[0, 0]) ** 2) + spread) / noise**2

    moved = q.moved(jax.grad(expected)(q.gaussians()), 1.0)
    precision = np.eye(4) + phi.T @ phi / noise**2
    np.testing.assert_allclose(moved.mean[0, 0], np.linalg.solve(precision, phi.T @ y / noise**2), rtol=1e-9)
    np.testing.assert_allclose(moved.gaussians().covariance[0, 0], np.linalg.inv(precision), rtol=1e-9)
    root = moved.whitened()
    np.testing.assert_allclose(moved.divergence(moved.gaussians()), divergence(root), rtol=1e-9)


def step() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 60)
    return {"x": x, "y": np.where(x > 0.2, 1.0, -1.0) + 0.1 * rng.standard_normal(60)}


@pytest.fixture(scope="module")
def fitted() -> tuple[gpdsl.Fit, dict[str, np.ndarray]]:
    data = step()
    return gpdsl.compile(STEP).fit(data, inducing=12, steps=600, learning_rate=0.02), data


def test_a_step_is_fitted_better_by_two_layers_than_by_one(fitted: Any) -> None:
    fit, data = fitted
    one = gpdsl.compile(STEP.replace("latent h(x) ~ GP(0, RBF(ell_h))\n", "").replace("f(h)", "f(x)")).fit(data)
    assert fit.elbo > one.elbo + 3.0
    prediction = fit.predict({"x": np.array([-1.5, -0.5, 0.9, 1.5])})
    np.testing.assert_allclose(prediction.mean("y"), [-1, -1, 1, 1], atol=0.15)


def test_predictions_are_mixtures_of_passes(fitted: Any) -> None:
    fit, data = fitted
    beliefs = fit.predict({"x": np.array([0.2])}).beliefs
    mean, variance = (np.asarray(a)[:, 0, -1] for a in (beliefs.marginals.mean, beliefs.marginals.variance))
    sigma2 = fit.parameters["sigma"] ** 2
    prediction = fit.predict({"x": np.array([0.2])})
    np.testing.assert_allclose(prediction.mean("y"), np.mean(mean), rtol=1e-6)
    np.testing.assert_allclose(prediction.variance("y"), np.mean(variance) + np.var(mean) + sigma2, rtol=1e-6)
    density = np.exp(-0.5 * (0.5 - mean) ** 2 / (variance + sigma2)) / np.sqrt(2 * np.pi * (variance + sigma2))
    found = fit.log_predictive_density({"x": np.array([0.2]), "y": np.array([0.5])})
    np.testing.assert_allclose(found, np.log(np.mean(density)), rtol=1e-6)


def test_a_saved_fit_predicts_the_same(fitted: Any, tmp_path: Any) -> None:
    fit, data = fitted
    fit.save(tmp_path / "deep.gpfit")
    again = gpdsl.load_fit(tmp_path / "deep.gpfit")
    new = {"x": np.array([-0.3, 0.4])}
    np.testing.assert_array_equal(again.predict(new).mean("y"), fit.predict(new).mean("y"))


def test_a_fit_that_goes_on_begins_where_the_other_ended() -> None:
    data, model = step(), gpdsl.compile(STEP)
    fit = unlearnt(model, data, inducing=12, init={"ell_h": 0.7, "sigma": 0.4})
    more = model.fit(data, start=fit, steps=5, learning_rate=1e-4)
    for name, value in fit.parameters.items():
        np.testing.assert_allclose(more.parameters[name], value, rtol=0.01)
    for ended, begun in zip(fit.inducing, more.inducing, strict=True):
        np.testing.assert_allclose(begun.points, ended.points, atol=0.01)
    np.testing.assert_allclose(more.posterior[0].mean, fit.posterior[0].mean, atol=0.01)  # the last layer moves at once
    spread = [root @ np.swapaxes(root, -1, -2) for root in (more.posterior[0].root, fit.posterior[0].root)]
    np.testing.assert_allclose(*spread, atol=0.01)


@pytest.mark.slow
def test_inducing_points_take_shorter_steps_than_parameters(fitted: Any) -> None:
    fit, data = fitted
    long = {"steps": 10, "learning_rate": 0.5, "optimizer": "adam"}  # which does not go back to a better start
    more = gpdsl.compile(STEP).fit(data, start=fit, **long, progress=False)
    moved = [np.abs(a.points - b.points).max() for a, b in zip(fit.inducing, more.inducing, strict=True)]
    learnt = [np.abs(np.log(more.parameters[name] / fit.parameters[name])).max() for name in fit.parameters]
    assert 0.01 < max(moved) < 10 * 0.025 < 0.5 < max(learnt)


def test_layers_begin_at_a_fit_of_the_last_one(rng: np.random.Generator) -> None:
    """A step from there, parameters are those of the model without the layer that passes its arguments on."""
    data = _data(rng, 60)
    one, deep = (
        gpdsl.compile(text.replace("sigma : positive = 0.2", "sigma : positive = 3")) for text in (SHALLOW, DEEP)
    )
    known = one.fit(data, inducing=20, progress=False).parameters
    found = deep.fit(data, inducing=20, steps=1, learning_rate=1e-4, progress=False).parameters
    for name in ("sigma", "s2"):
        np.testing.assert_allclose(found[name], known[name], rtol=0.01)


@pytest.mark.parametrize(
    ("option", "value"),
    [("engine", "ep"), ("engine", "mcmc"), ("posterior", "diagonal"), ("optimizer", "lbfgs"), ("devices", 2)],
)
def test_what_layers_do_not_cover_is_refused(option: str, value: Any) -> None:
    with pytest.raises(GpdslError, match=f"{option} = {value}.*`h`"):
        gpdsl.compile(STEP).fit({"x": np.arange(5.0), "y": np.arange(5.0)}, **{option: value})


def test_the_plan_says_how_rows_go_through_the_layers() -> None:
    text = gpdsl.compile(STEP).explain({"x": np.arange(5.0), "y": np.arange(5.0)})
    assert text.index("h: 1 process(es) over x") < text.index(
        "f: 1 process(es) over h (1 column(s)), kernel RBF(ell_f)"
    )
    assert "sampled at sampled arguments" in text and "natural gradients for the last layer" in text
    assert "from a fit of the last layer alone" in text


def test_drawn_replicas_without_row_variables_see_one_function(rng: np.random.Generator) -> None:
    """What does not differ between replicas of a row is one value."""
    program, rows, parameters = _program(STEP, {"x": np.linspace(-1, 1, 4), "y": np.zeros(4)})
    z = np.array([[-1.0], [0.2], [1.1]])
    posterior = {0: _posterior(rng, 1, z, 0.5), 1: _posterior(rng, 1, z, 0.4)}
    layers = Layers(program, frozenset({"h"}), replicas=3)
    drawn = Drawn(jnp.asarray(rng.standard_normal((6, 4, 2))), {})
    found = layers.marginals(parameters, [Values(jnp.asarray(z))] * 2, posterior, rows, drawn, 1e-8).mean[..., 0]
    np.testing.assert_array_equal(found[0], found[1])
    assert np.all(found[0] != found[3])


TALLIES = """
input x : real
output n : count
latent h(x) ~ GP(x, RBF(1))
latent f(h) ~ GP(0, RBF(1))
n ~ Poisson(exp(f))
"""


def test_mixtures_of_many_passes_are_integrated_as_few_are(rng: np.random.Generator) -> None:
    """Densities and quantiles of counts, against quadrature over every pass."""
    x = np.linspace(-1, 1, 8)
    fit = gpdsl.compile(TALLIES).fit({"x": x, "n": rng.poisson(np.exp(x))}, steps=50, inducing=5)
    prediction = fit.predict({"x": x[:2]})
    q = prediction.beliefs.marginals
    mean, variance = np.asarray(q.mean)[..., 1], np.asarray(q.variance)[..., 1]
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    rate = np.exp(mean[..., None] + np.sqrt(variance)[..., None] * nodes)
    probabilities = [np.mean(stats.poisson.pmf(k, rate) @ (weights / weights.sum()), axis=0) for k in range(4)]
    for k in range(3):
        found = fit.log_predictive_density({"x": x[:2], "n": np.full(2, k)})
        np.testing.assert_allclose(np.exp(found), probabilities[k], rtol=1e-4)
    below = np.cumsum(probabilities, axis=0)
    quantile = prediction.quantile("n", 0.5)
    np.testing.assert_array_equal(quantile, np.argmax(below >= 0.5, axis=0))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            """
index l in 1..2
index q in 1..2
input x : real
output y : real
param wide : positive[2] = 1
latent h[1, q](x) ~ GP(0, RBF(1))
latent h[l > 1, q](h[l - 1], x) ~ GP(h[l - 1, q], RBF(1))
latent f(h[2], x) ~ GP(0, RBF(wide, on = h[2]) + Linear(on = x))
let both = f + h[1, 1]
y ~ Normal(both, 0.2)
""",
            {},
        ),
        (STEP, {"dtype": "float32", "batch": 10}),
    ],
    ids=["three layers that skip", "single precision"],
)
def test_other_models_are_fitted(text: str, options: dict[str, Any], rng: np.random.Generator) -> None:
    x = np.linspace(-2, 2, 30)
    data = {"x": x, "y": np.sin(2 * x) + 0.1 * rng.standard_normal(30)}
    fit = gpdsl.compile(text).fit(data, steps=250, inducing=10, learning_rate=0.03, **options)
    assert fit.history[-1, 1] > fit.history[0, 1] + 20
    assert np.sqrt(np.mean((fit.predict({"x": x}).mean("y") - np.sin(2 * x)) ** 2)) < 0.3


@pytest.mark.parametrize(
    ("read", "column"), [("D(h, x)", 16), ("integral(h, 0, x)", 16), ("h(a)", 16), ("h - h(a)", 20)]
)
def test_more_than_the_value_of_an_inner_latent_is_refused_where_it_is_read(read: str, column: int) -> None:
    text = "input x : real\ninput a : real\noutput y : real\nlatent h(x) ~ GP(0, RBF(1))\nlatent f(h) ~ GP(0, RBF(1))\n"
    data = {name: np.linspace(0.1, 2, 20) for name in ("x", "a", "y")}
    with pytest.raises(
        GpdslError, match=rf":6:{column}: error\[E547\]: `h` is an argument of `f`(.|\n)*write `h` itself"
    ):
        gpdsl.compile(f"{text}y ~ Normal(f + {read}, 1)\n").fit(data, steps=1)


def test_draws_of_all_rows_are_functions_with_the_moments_of_single_rows(fitted: Any) -> None:
    """Rows that lie close together have nearly one value; each row alone has the law of `sample`."""
    fit, _ = fitted
    prediction = fit.predict({"x": np.array([0.1, 0.1 + 1e-4, 1.2])})
    drawn = prediction.draws("f", 600, seed=1)
    assert np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1] > 0.999
    np.testing.assert_allclose(drawn.mean(axis=0), prediction.mean("f"), atol=0.12)
    np.testing.assert_allclose(drawn.std(axis=0), np.sqrt(prediction.variance("f")), rtol=0.15, atol=0.01)
    alone = prediction.sample("f", 600, seed=1)
    np.testing.assert_allclose(alone.std(axis=0), np.sqrt(prediction.variance("f")), rtol=0.15, atol=0.01)
    assert prediction.draws("y", 3).shape == (3, 3) and prediction.total("y", count=50).mean.shape == ()
