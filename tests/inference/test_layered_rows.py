"""Row variables as arguments of latents: importance weights against quadrature, gradients, fits and predictions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.inducing.loss import Loss
from gpdsl.inference.layered.engine import LayeredSearch
from gpdsl.inference.layered.propagation import Drawn, Expected, Layers, row_moments
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Result
from gpdsl.kernels.functionals import Values
from tests.inference.test_layered import _posterior, _program

HIDDEN = """
model hidden
input x : real
output y : real
param ell : positive = 1
param sigma : positive = 0.3
row w ~ Normal(0, 1)
latent f(x, w) ~ GP(0, RBF(ell))
y ~ Normal(f, sigma)
"""

DEEP_HIDDEN = """
model deep_hidden
index q in 1..2
input x : real
output y : real
param ell : positive = 1
param sigma : positive = 0.3
row w ~ Normal(0, 1)
latent h[q](x, w) ~ GP(0, RBF(ell))
latent f(h) ~ GP(0, RBF(ell))
y ~ Normal(f, sigma)
"""


def _small(rng: np.random.Generator, text: str = HIDDEN) -> tuple[Any, Any, Any, Any, Any]:
    x, y = np.linspace(-1, 1, 4), np.array([0.3, -0.8, 0.5, 1.1])
    program, rows, parameters = _program(text, {"x": x, "y": y})
    rows = rows.__class__(rows.inputs, rows.outputs, rows.observed, rows.indicators, jnp.arange(4))
    points, posterior = [], {}
    for place, group in enumerate(program.groups):
        if group.per_row:
            points.append(Values(jnp.zeros((4, 0))))
            sd = 1.1 + 0.1 * rng.random((1, 1, 4, 1))
            posterior[place] = Whitened(jnp.asarray(0.5 * rng.standard_normal((1, 1, 4))), jnp.asarray(sd))
        else:
            z = rng.standard_normal((5, 2))
            points.append(Values(jnp.asarray(z)))
            posterior[place] = _posterior(rng, group.size, z, 0.3)
    return program, rows, parameters, points, posterior


def _integrals(program: Any, rows: Any, parameters: Any, points: Any, posterior: Any) -> np.ndarray:
    """log of the integral of exp(E_f[log p(y | f(x, w))]) over the prior of w, by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    white = jnp.broadcast_to(jnp.asarray(nodes)[:, None, None], (120, 4, 1))
    place = next(p for p, group in enumerate(program.groups) if group.per_row)
    layers = Layers(program, frozenset())
    drawn = Drawn(jnp.zeros((120, 4, program.latents)), {place: white})
    found = layers.marginals(parameters, points, posterior, rows, drawn, 1e-8)
    column = program.evaluator.columns["f", next(iter(program.groups[1 - place].readings.all))][0]
    mean, variance = (np.asarray(a)[..., column] for a in (found.mean, found.variance))
    y, s2 = np.asarray(rows.outputs["y"]), 0.09
    density = -0.5 * np.log(2 * np.pi * s2) - ((y - mean) ** 2 + variance) / (2 * s2)
    return logsumexp(density, axis=0, b=(weights / weights.sum())[:, None])


@pytest.mark.slow
def test_more_replicas_raise_the_bound_towards_the_integral(rng: np.random.Generator) -> None:
    program, rows, parameters, points, posterior = _small(rng)
    known = float(np.sum(_integrals(program, rows, parameters, points, posterior)))
    bounds = []
    for replicas in (1, 2, 5, 25, 400):
        expected = Expected(Layers(program, frozenset(), replicas), samples=200_000 // (replicas * 10), total=4)
        bounds.append(float(expected(parameters, points, posterior, rows, jax.random.key(1), 1e-8)))
    assert np.all(np.diff(bounds) > -0.02) and bounds[0] < known - 0.1
    assert abs(bounds[-1] - known) < 0.05


def test_one_replica_is_the_ordinary_bound(rng: np.random.Generator) -> None:
    """The mean of a log weight is the expectation less the divergence that is known in closed form."""
    program, rows, parameters, points, posterior = _small(rng)
    ordinary = Expected(Layers(program, frozenset()), samples=40_000, total=4)
    value = float(ordinary(parameters, points, posterior, rows, jax.random.key(0), 1e-8))
    place = ordinary.variables[0]
    mean, sd = row_moments(posterior[place], rows, jnp.dtype(float))
    normals = jax.random.normal(jax.random.key(3), (40_000, 4, 1))
    white = mean + sd * normals
    drawn = Drawn(jnp.zeros((40_000, 4, program.latents)), {place: white})
    found = Layers(program, frozenset()).marginals(parameters, points, posterior, rows, drawn, 1e-8)
    from gpdsl.inference.expected_log_likelihood import expected_log_likelihood

    weights = expected_log_likelihood(program, parameters, rows, found)
    weights = weights + jnp.sum(0.5 * normals**2 + jnp.log(sd) - 0.5 * white**2, axis=-1)
    assert abs(value - float(jnp.sum(jnp.mean(weights, axis=0)))) < 0.1


def test_weights_of_replicas_are_those_of_densities(rng: np.random.Generator) -> None:
    """log of the mean of p(y | w) p(w) / q(w), with the doubly reparameterised gradient: squares of shares of weights
    times the slope of each log weight in w alone (Tucker et al., 2019, equation 8)."""
    samples, replicas = 2, 3
    expected = Expected(Layers(_small(rng)[0], frozenset(), replicas), samples=samples, total=4)
    place = expected.variables[0]
    mean, sd, eps = rng.normal(size=(4, 1)), 0.5 + rng.random((4, 1)), rng.normal(size=(samples * replicas, 4, 1))

    def bound(mean: Any, sd: Any) -> Any:
        likelihood = lambda white: jnp.sum(jnp.sin(2 * white[place]), axis=-1)  # noqa: E731
        return expected._weighed(likelihood, {place: mean + sd * eps}, {place: (mean, sd)})

    w = mean + sd * eps
    each = np.sin(2 * w) + stats.norm.logpdf(w) - stats.norm.logpdf(w, mean, sd)
    apart = each.reshape(samples, replicas, 4)
    np.testing.assert_allclose(jax.jit(bound)(mean, sd), logsumexp(apart, axis=1) - np.log(replicas), rtol=1e-10)
    shares = np.exp(apart - logsumexp(apart, axis=1, keepdims=True)).reshape(w.shape)
    slope = shares**2 * (2 * np.cos(2 * w) + (w - mean) / sd**2 - w)
    found = jax.jit(jax.grad(lambda *given: jnp.sum(bound(*given)), argnums=(0, 1)))(mean, sd)
    np.testing.assert_allclose(found[0], slope.sum(axis=0), rtol=1e-10)
    np.testing.assert_allclose(found[1], (slope * eps).sum(axis=0), rtol=1e-10)


def test_a_mean_that_is_an_input_is_that_input_and_an_error_added() -> None:
    """With inducing points on the line x + 0.2 e, either model has the same bound, sample by sample."""
    z, found = np.random.default_rng(0).standard_normal((5, 1)), []
    for row, arguments, on in (("e ~ Normal(0, 1)", "x, e", ", on = x + 0.2 * e"), ("t ~ Normal(x, 0.2)", "t", "")):
        text = f"input x : real\noutput y : real\nrow {row}\n"
        text += f"latent f({arguments}) ~ GP(0, RBF(0.8{on}))\ny ~ Normal(f, 0.3)"
        program, rows, parameters, points, posterior = _small(np.random.default_rng(1), text)
        place = next(p for p, group in enumerate(program.groups) if not group.per_row)
        points[place] = Values(jnp.asarray(np.hstack([z, 0 * z]) if on else z))
        posterior |= {place: _posterior(np.random.default_rng(2), 1, z, 0.3)}
        posterior |= {1 - place: Whitened(jnp.linspace(-1, 1, 4)[None, None], jnp.full((1, 1, 4, 1), 0.7))}
        expected = Expected(Layers(program, frozenset()), samples=3, total=4)
        found.append(float(expected(parameters, points, posterior, rows, jax.random.key(2), 1e-8)))
    assert found[0] == pytest.approx(found[1], abs=1e-9)


@pytest.mark.parametrize("text", [HIDDEN, pytest.param(DEEP_HIDDEN, marks=pytest.mark.slow)])
def test_gradients_in_row_variables_are_those_of_the_bound(rng: np.random.Generator, text: str) -> None:
    """Doubly reparameterised or not: their mean is the slope of the mean bound."""
    program, rows, parameters, points, posterior = _small(rng, text)
    expected = Expected(Layers(program, frozenset(), 3), samples=20_000, total=4)
    place = expected.variables[0]

    def bound(shift: Any, key: Any) -> Any:
        q = posterior[place]
        moved = Whitened(q.mean + shift[0], q.root * jnp.exp(shift[1]))
        return expected(parameters, points, {**posterior, place: moved}, rows, key, 1e-8)

    key = jax.random.key(5)
    slope = np.asarray(jax.jit(jax.grad(bound))(jnp.zeros(2), key))
    step = 0.02 * np.eye(2)
    value = jax.jit(bound)
    known = [(float(value(s, key)) - float(value(-s, key))) / 0.04 for s in step]
    np.testing.assert_allclose(slope, known, atol=0.08)


def test_doubly_reparameterised_gradients_have_less_noise(rng: np.random.Generator, monkeypatch: Any) -> None:
    program, rows, parameters, points, posterior = _small(rng)

    def noise() -> float:
        expected = Expected(Layers(program, frozenset(), 32), samples=1, total=4)
        place = expected.variables[0]
        q = posterior[place]

        def bound(shift: Any, key: Any) -> Any:
            moved = Whitened(q.mean + shift, q.root)
            return expected(parameters, points, {**posterior, place: moved}, rows, key, 1e-8)

        keys = jax.random.split(jax.random.key(0), 200)
        return float(jnp.std(jax.jit(jax.vmap(jax.grad(bound), (None, 0)))(0.0, keys)))

    doubly = noise()
    monkeypatch.setattr(Layers, "ties_replicas", True)
    assert doubly < 0.6 * noise()


def test_replicas_of_a_row_are_drawn_from_one_function(rng: np.random.Generator) -> None:
    """At equal values of the variable there is one value; at others, covariances are those of dense algebra.

    Without a normal, and with one for either replica, values are the mean and the columns of a root.
    """
    program, rows, parameters, points, posterior = _small(rng, DEEP_HIDDEN)
    place = next(p for p, group in enumerate(program.groups) if group.per_row)
    inner = program.order[1]
    w = np.array([0.4, -0.5])
    white = jnp.broadcast_to(jnp.asarray(np.tile(w, 3))[:, None, None], (6, 4, 1))
    normals = np.zeros((3, 2, 4, program.latents))
    normals[[1, 2], [0, 1]] = 1.0
    drawn = Drawn(jnp.asarray(normals.reshape(6, 4, -1)), {place: white})
    layers = Layers(program, frozenset({"h"}), 2)
    found = jax.jit(lambda drawn: layers.marginals(parameters, points, posterior, rows, drawn, 1e-8).mean)(drawn)
    first = np.asarray(found[..., program.groups[inner].start]).reshape(3, 2, 4)[:, :, 2]
    z, q = np.asarray(points[inner].points), posterior[inner]
    kernel = lambda a, b: np.exp(-0.5 * np.sum((a[:, None] - b[None]) ** 2, axis=-1))  # noqa: E731
    at = np.stack([np.full(2, float(rows.inputs["x"][2])), w], axis=1)
    phi = np.linalg.solve(np.linalg.cholesky(kernel(z, z) + 1e-8 * np.eye(5)), kernel(z, at)).T
    root = phi @ np.asarray(q.root[0, 0])
    known = kernel(at, at) - phi @ phi.T + root @ root.T
    columns = first[1:] - first[0]
    np.testing.assert_allclose(columns.T @ columns, known, atol=1e-6)


CLASSES = """
index c in 1..3
output k : label[c]
row w ~ Normal(0, 1)
latent f[c](w) ~ GP(0, RBF(100))
k ~ Categorical(logits = f)
"""


def test_replicas_of_a_row_share_the_functions_where_likelihoods_are_sampled() -> None:
    """Functions that do not vary with w gain nothing by replicas: those of their own raised the bound by 0.5."""
    program, rows, parameters = _program(CLASSES, {"k": np.repeat([1, 2, 3], 4)})
    rows = rows.__class__(rows.inputs, rows.outputs, rows.observed, rows.indicators, jnp.arange(12))
    assert program.sampled
    points, posterior = [], {}
    for place, group in enumerate(program.groups):
        size, count = (1, 12) if group.per_row else (3, 2)
        points.append(Values(jnp.zeros((12, 0)) if group.per_row else jnp.array([[-1.0], [1.0]])))
        root = jnp.ones((1, 1, 12, 1)) if group.per_row else jnp.broadcast_to(jnp.eye(2), (1, 3, 2, 2))
        posterior[place] = Whitened(jnp.zeros((1, size, count)), root)
    keys, found = jax.random.split(jax.random.key(0), 200), []
    for replicas in (1, 50):
        bound = Expected(Layers(program, program.sharp, replicas), 1, 12)
        values = jax.jit(jax.vmap(lambda key, bound=bound: bound(parameters, points, posterior, rows, key, 1e-8)))(keys)
        found.append((float(jnp.mean(values)), float(jnp.std(values)) / 200**0.5))
    (one, error), (many, other) = found
    assert abs(many - one) < 4 * float(np.hypot(error, other))


@pytest.fixture(scope="module")
def forked() -> tuple[gpdsl.Fit, dict[str, np.ndarray]]:
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, 80)
    data = {"x": x, "y": np.where(rng.random(80) < 0.5, 1.0, -1.0) * (1 + 0.3 * x) + 0.05 * rng.standard_normal(80)}
    return gpdsl.compile(HIDDEN).fit(data, inducing=15, steps=600, learning_rate=0.03, importance=4), data


def test_outputs_that_fork_are_told_apart(forked: Any) -> None:
    fit, data = forked
    prediction = fit.predict({"x": np.array([0.0])})
    assert abs(prediction.mean("y")[0]) < 0.5 and prediction.variance("y")[0] > 0.4
    new = {"x": np.zeros(3), "y": np.array([-1.0, 0.0, 1.0])}
    density = fit.log_predictive_density(new)
    assert density[0] > density[1] + 0.5 and density[2] > density[1] + 0.5


def test_importance_is_refused_without_variables_to_weigh() -> None:
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)"
    with pytest.raises(GpdslError, match="importance = 5 weighs replicas of row variables"):
        gpdsl.compile(text).fit({"x": np.arange(4.0), "y": np.arange(4.0)}, importance=5)


@pytest.mark.parametrize(("noise", "said"), [(0.5, "converged"), (5.0, "not known"), (230.0, "not known")])
def test_a_bound_told_within_many_nats_has_not_converged(noise: float, said: str) -> None:
    search: Any = SimpleNamespace(_rise=lambda: (0.0, 3 * noise), slight=Loss(0.0, 40).slight, done=200)
    result = LayeredSearch._told(search, Result({}, [], [], np.ones(1), -3.0, 0.1, "all steps done"))
    assert said in (result.message if said == "converged" else result.notes[0])
    assert ("converged" in result.message) is (said == "converged")


def test_single_precision_samples_what_whitened_averages_would_lose() -> None:
    x = np.linspace(-2, 2, 30)
    model, data = gpdsl.zoo("uncertain_inputs"), {"x": x, "y": np.sin(x)}
    told = [model.explain(data, **options) for options in ({"dtype": "float32"}, {"dtype": "float64"})]
    assert ["without samples" in each for each in told] == [False, True]
    assert "without samples" in model.explain(data, dtype="float32", expectations="closed")
