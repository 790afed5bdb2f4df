"""The engine against exact inference: linear regression in weight space, exact GPs, other engines; and its habits."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
import gpdsl.inference.problem
from gpdsl.inference.driver import drive
from gpdsl.inference.problem import Result
from gpdsl.inference.quadruply_stochastic import posterior
from gpdsl.inference.quadruply_stochastic.basis import Basis
from gpdsl.inference.quadruply_stochastic.engine import QsgpSearch, _start
from gpdsl.inference.quadruply_stochastic.posterior import augmentation
from gpdsl.inference.quadruply_stochastic.weights import Weights, fourier_features
from gpdsl.inference.watch import watching
from gpdsl.program.cache import jit
from tests.inference.quadruply_stochastic.conftest import CLASSES, REGRESSION, Case, make_problem

FIXED = ["mu", "s2", "ell", "sigma"]
Data = dict[str, np.ndarray]


def rows_of(rng: np.random.Generator, n: int) -> Data:
    x = rng.standard_normal((n, 2))
    return {"x": x, "y": np.sin(1.5 * x[:, 0]) * np.cos(x[:, 1]) + 0.3 * rng.standard_normal(n)}


def weight_space(fit: gpdsl.Fit, data: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Phi of the data, and the exact posterior of the weights."""
    assert fit.weight_space is not None
    values = fit.parameters
    learnt = fit.program.parameters.learnt(values)
    features = fit.weight_space.basis.features(fit.program, fit.weight_space.features, fit.options.seed)
    phi = np.asarray(features.values(learnt, jnp.asarray(data["x"]), jnp.arange(features.count)), float)
    noise = float(values["sigma"]) ** 2
    covariance = np.linalg.inv(phi.T @ phi / noise + np.eye(features.count))
    return phi, covariance @ phi.T @ (data["y"] - float(values["mu"])) / noise, covariance


def test_a_full_root_converges_to_exact_bayesian_linear_regression(rng: np.random.Generator) -> None:
    data, m = rows_of(rng, 40), 12
    model = gpdsl.compile(REGRESSION)
    choices = {"features": m, "chevron": m, "fixed": FIXED, "dtype": "float64"}
    fit = model.fit(data, engine="qsgp", steps=300, **choices)
    phi, mean, covariance = weight_space(fit, data)
    prediction = fit.predict(data)
    assert np.allclose(prediction.mean("f"), phi @ mean + 0.3, atol=1e-4)
    assert np.allclose(prediction.variance("f"), np.sum((phi @ covariance) * phi, axis=1), rtol=2e-3)
    noise = float(fit.parameters["sigma"]) ** 2
    marginal = phi @ phi.T + noise * np.eye(40)
    residual = data["y"] - 0.3
    evidence = -0.5 * (residual @ np.linalg.solve(marginal, residual) + np.linalg.slogdet(2 * np.pi * marginal)[1])
    assert fit.elbo == pytest.approx(evidence, abs=0.01)
    assert fit.elbo_se == 0.0  # all rows were seen


def test_the_diagonal_is_proposition_1(rng: np.random.Generator) -> None:
    data, m = rows_of(rng, 60), 30
    fit = gpdsl.compile(REGRESSION).fit(data, engine="qsgp", features=m, fixed=FIXED, steps=60, dtype="float64")
    phi, mean, _ = weight_space(fit, data)
    assert fit.weight_space is not None
    noise = float(fit.parameters["sigma"]) ** 2
    assert np.allclose(fit.weight_space.q.curvature, np.sum(phi**2, axis=0) / noise, rtol=1e-6)
    assert np.allclose(phi @ fit.weight_space.q.vectors[0], phi @ mean, atol=1e-3)


def test_minibatches_of_rows_and_functions_come_near_the_exact_gp(rng: np.random.Generator) -> None:
    data, there = rows_of(rng, 400), rows_of(rng, 50)
    model = gpdsl.compile(REGRESSION)
    exact = model.fit(data, fixed=FIXED).predict(there).mean("f")
    prior = float(np.std(exact))
    swept = model.fit(data, engine="qsgp", features=1000, batch=100, feature_batch=300, fixed=FIXED, steps=600)
    assert np.sqrt(np.mean((swept.predict(there).mean("f") - exact) ** 2)) < 0.15 * prior


@pytest.mark.slow
def test_the_papers_steps_come_near_the_exact_gp(rng: np.random.Generator) -> None:
    data, there = rows_of(rng, 400), rows_of(rng, 50)
    model = gpdsl.compile(REGRESSION)
    exact = model.fit(data, fixed=FIXED).predict(there).mean("f")
    choices = {"features": 400, "batch": 50, "feature_batch": 100, "feature_sums": "sampled", "fixed": FIXED}
    found = model.fit(data, engine="qsgp", steps=3000, **choices).predict(there).mean("f")
    assert np.sqrt(np.mean((found - exact) ** 2)) < 0.3 * float(np.std(exact))


@pytest.mark.slow
def test_a_classification_agrees_with_variational_inference(rng: np.random.Generator) -> None:
    x = rng.standard_normal((250, 2))
    data = {"x": x, "y": (rng.random(250) < 1 / (1 + np.exp(-3 * x[:, 0]))).astype(int)}
    model = gpdsl.compile(CLASSES)
    wanted = model.fit(data, fixed=["s2"]).predict(data).mean("f")
    fit = model.fit(data, engine="qsgp", features=1500, fixed=["s2"], steps=300)
    found = fit.predict(data).mean("f")
    assert np.corrcoef(found, wanted)[0, 1] > 0.99


@pytest.mark.slow
def test_theorem_3_classifies_as_variational_inference_does(rng: np.random.Generator) -> None:
    x = rng.standard_normal((250, 2))
    data = {"x": x, "y": (rng.random(250) < 1 / (1 + np.exp(-3 * x[:, 0]))).astype(int)}
    model = gpdsl.compile(CLASSES)
    wanted = model.fit(data, fixed=["s2"]).predict(data).mean("f")
    choices = {"features": 500, "feature_batch": 250, "feature_sums": "sampled", "fixed": ["s2"]}
    found = model.fit(data, engine="qsgp", steps=1000, **choices).predict(data).mean("f")
    assert np.corrcoef(found, wanted)[0, 1] > 0.95


@pytest.mark.slow
def test_dense_columns_narrow_the_variance_on_minibatches(rng: np.random.Generator) -> None:
    data = rows_of(rng, 600)
    model = gpdsl.compile(REGRESSION)
    choices = {"features": 200, "batch": 150, "feature_batch": 60, "fixed": FIXED, "steps": 1200}
    plain = model.fit(data, engine="qsgp", **choices)
    dense = model.fit(data, engine="qsgp", chevron=40, **choices)
    assert dense.elbo > plain.elbo
    phi, _, covariance = weight_space(dense, data)
    exact = np.sum((phi @ covariance) * phi, axis=1)
    error = [np.mean(np.abs(np.log(each.predict(data).variance("f") / exact))) for each in (plain, dense)]
    assert error[1] < error[0]


@pytest.mark.slow
def test_it_learns_hyperparameters_from_some_rows_first(rng: np.random.Generator) -> None:
    data = rows_of(rng, 300)
    fit = gpdsl.compile(REGRESSION).fit(data, engine="qsgp", features=500, start_rows=100, steps=60)
    assert 0.2 < float(fit.parameters["sigma"]) < 0.5
    assert fit.options.dtype == "float32"
    assert "500 random Fourier features" in fit.summary()


def test_the_start_stays_finite_where_its_rows_say_nothing(rng: np.random.Generator) -> None:
    x = rng.standard_normal((60, 2))
    data = {"x": x, "y": 1e4 * np.sin(x[:, 0])}  # without noise, in a unit of its own, and flat in the other column
    sizes = {"features": 100, "start_rows": 60, "steps": 1}
    fit = gpdsl.compile(REGRESSION).fit(data, engine="qsgp", **sizes)
    noise = float(fit.parameters["sigma"]) / np.std(data["y"])
    assert 4e-4 < noise < 2e-3  # what single precision can follow; without restraint it goes to nothing
    near, useless = fit.parameters["ell"]
    assert 0.5 < near < 10
    assert 10 * near < useless < 1e6


def test_weights_start_with_the_precision_that_they_have_on_average(rng: np.random.Generator) -> None:
    """That of the prior, 1, and the trace of Phi' Phi / sigma^2 by weight."""
    problem = make_problem(REGRESSION, rows_of(rng, 30), "float64", features=8, basis="fourier")
    features, choice = fourier_features(problem.program, 8, 3), SimpleNamespace(chevron=2)
    with jax.enable_x64(True):
        q = _start(problem, features, problem.parameters, choice)  # type: ignore[arg-type]
        phi = jit(features.values)(problem.parameters, jnp.asarray(problem.rows.inputs["x"]), jnp.arange(8))
    curvature = np.sum(np.square(phi)) / 8 / 0.4**2
    np.testing.assert_allclose(q.curvature, curvature)
    np.testing.assert_allclose(q.vectors, np.eye(3, 8, k=-1) / np.sqrt(1 + curvature))


def test_augmentation_is_proposition_4(regression: Case) -> None:
    case, noise = regression, 0.16
    x = np.asarray(case.rows.inputs["x"])
    features = Basis("inducing", x).features(case.program, len(x), 0)
    points = jnp.asarray(np.concatenate([x[:2] + 0.1, [[50.0, 50.0]]]))
    added = augmentation(features, case.learnt, points, case.count / noise, 5)
    scaled = (np.asarray(points)[:, None] - x[None]) / 0.9
    k = 1.4 * np.exp(-0.5 * np.sum(scaled**2, axis=2))
    wanted = noise * 1.4**2 / (np.sum(k**2, axis=1) + noise * 1.4)
    assert np.allclose(added, wanted)
    assert added[2] == pytest.approx(1.4)  # the prior variance, far from all rows


OTHERS = [pytest.param(basis, marks=pytest.mark.slow) for basis in ("inducing", "relevance")]


@pytest.mark.parametrize("basis", ["fourier", *OTHERS])
def test_a_saved_fit_predicts_the_same(rng: np.random.Generator, tmp_path: Path, basis: str) -> None:
    data = rows_of(rng, 50)
    asked: dict[str, Any] = {"engine": "qsgp", "basis": basis, "features": 40, "steps": 20, "diagnose": "no"}
    fit = gpdsl.compile(REGRESSION).fit(data, fixed=FIXED, **asked)
    fit.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit")
    for name in ("f", "y"):
        assert np.array_equal(fit.predict(data).mean(name), again.predict(data).mean(name))
        assert np.array_equal(fit.predict(data).variance(name), again.predict(data).variance(name))
    assert again.summary() == fit.summary()


def test_an_interrupted_fit_keeps_its_state(rng: np.random.Generator) -> None:
    def stop(report: Any) -> None:
        if report.step >= 4:
            raise KeyboardInterrupt

    fit = gpdsl.compile(REGRESSION).fit(
        rows_of(rng, 50), engine="qsgp", features=100, fixed=FIXED, steps=50, callback=stop
    )
    assert fit.interrupted
    assert np.isfinite(fit.elbo)
    assert len(fit.history) == 4


@pytest.mark.parametrize(("presses", "kept"), [(1, True), (2, False)])
def test_a_second_interrupt_ends_without_a_state(presses: int, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come when a call has used up the memory of the state and its result is not kept yet."""

    def advance() -> tuple[int, float]:
        for _ in range(presses):
            signal.raise_signal(signal.SIGINT)
        return 1, 0.0

    search = object.__new__(QsgpSearch)
    monitor = gpdsl.inference.problem.Monitor(10)
    search.problem = SimpleNamespace(choice=SimpleNamespace(steps=10), monitor=monitor)  # type: ignore[assignment]
    search.first, search.interrupted, search.stepping = None, False, False
    search.ascent = SimpleNamespace(advance=advance)  # type: ignore[assignment]
    monkeypatch.setattr(QsgpSearch, "_ended", lambda self, first: Result({}, [], [], np.ones(1), 0.0, 0.0))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with watching():
            if kept:
                found = drive(monitor, search)
                assert (found.message, found.interrupted) == ("interrupted", True)
            else:
                with pytest.raises(KeyboardInterrupt):
                    drive(monitor, search)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_fit_goes_on_from_another(rng: np.random.Generator) -> None:
    data, model = rows_of(rng, 200), gpdsl.compile(REGRESSION)
    choices = {"engine": "qsgp", "features": 300, "batch": 20, "fixed": FIXED}
    first = model.fit(data, steps=100, **choices)
    second = model.fit(data, steps=1, start=first, **choices)
    alone = model.fit(data, steps=1, **choices)
    assert second.elbo > alone.elbo + 0.05 * abs(first.elbo)
    assert second.elbo == pytest.approx(first.elbo, abs=0.05 * abs(first.elbo))


REFUSED = {
    "several": ("latent g(x) ~ GP(0, RBF(1))\ny ~ Normal(f + g, 0.3)", {}, "one latent process"),
    "kernel": ("y ~ Normal(f, 0.3)", {"posterior": "full"}, "chevron"),
    "inducing": ("y ~ Normal(f, 0.3)", {"inducing": 10}, "belongs to engine = vi"),
    "concave": ("y ~ StudentT(4, f, 0.3)", {"feature_sums": "sampled"}, "log-concave"),
    "dense": ("y ~ Normal(f, 0.3)", {"basis": "inducing", "feature_sums": "running"}, "dense prior precision"),
    "chevron": ("y ~ Normal(f, 0.3)", {"features": 5, "chevron": 6}, "no more columns"),
    "row": ("row w ~ Normal(0, 1)\ny ~ Normal(f + w, 0.3)", {}, "row variable `w`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_does_not_cover_is_refused_with_a_way_out(rng: np.random.Generator, case: str) -> None:
    rest, choices, words = REFUSED[case]
    model = gpdsl.compile(f"input x : real[2]\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\n{rest}\n")
    with pytest.raises(gpdsl.GpdslError, match=words):
        model.fit(rows_of(rng, 20), engine="qsgp", **choices)


@pytest.mark.parametrize("basis", ["fourier", "inducing", "relevance"])
def test_a_kernel_without_random_features_is_refused(rng: np.random.Generator, basis: str) -> None:
    model = gpdsl.compile(
        "input x : real[2]\noutput y : real\nlatent f(x) ~ GP(0, RBF(1) + 0.1 * White())\ny ~ Normal(f, 0.3)\n"
    )
    with pytest.raises(gpdsl.GpdslError, match="random Fourier features"):
        model.fit(rows_of(rng, 20), engine="qsgp", basis=basis)


def test_a_model_can_ask_for_it() -> None:
    model = gpdsl.compile(REGRESSION + "infer qsgp: features = 200, chevron = 2, feature_sums = sampled\n")
    assert model.declarations.infer.options["features"] == 200


@pytest.mark.parametrize("columns", [0, 2, 5])
@pytest.mark.parametrize("kind", ["fourier", "inducing"])
def test_drawn_functions_are_sums_over_drawn_weights_and_what_inducing_points_leave_open(
    kind: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phi w; of points w's own function of each row beside it, or draws of the prior bent through those at the points.

    The prior is a function that is known, and so are all normals.
    """
    rng, m, draws, jitter = np.random.default_rng(0), 5, 3, 0.01
    centres, x = rng.normal(size=(m, 1)), rng.normal(size=(4, 1))
    kernel = lambda a, b: np.exp(-0.5 * (a - b.T) ** 2)  # noqa: E731
    vectors, curvature, precision = rng.normal(size=(1 + columns, m)), rng.gamma(2.0, size=m), np.full(m, 1.3)
    normals = [rng.normal(size=size) for size in ((columns, draws), (m, draws), (m, draws))]
    given = iter(normals)
    features = SimpleNamespace(
        precision=lambda learnt, every: jnp.asarray(precision[np.asarray(every)]),
        consecutive=lambda learnt, at, index: jnp.take(jnp.asarray(kernel(x, centres)), index, axis=1),
        cross_precision=lambda *_: jnp.asarray(kernel(centres, centres)),
        latent=SimpleNamespace(covariance=lambda learnt, point: jnp.ones((1, 1))),
    )
    held: Any = SimpleNamespace(
        read=lambda *_: (features, {}),
        q=Weights(jnp.asarray(vectors), jnp.asarray(curvature)),
        features=m,
        basis=SimpleNamespace(kind=kind, centres=centres),
        jitter=jitter,
        stiffness=1.0,
    )
    prior = lambda *given: jnp.sin(3.0 * given[-1]) * jnp.arange(1.0, 1.0 + draws)  # noqa: E731
    added = np.array([0.1, 0.4, 0.2, 0.3])
    for name, stands in {
        "refuse_unsuited": lambda _: None,
        "random_waves": lambda *_: (jnp.zeros(()),),
        "_prior_at": prior,
        "inputs_of": lambda *_: jnp.asarray(x),
        "augmentation": lambda *_: jnp.asarray(added),
    }.items():
        monkeypatch.setattr(posterior, name, stands)
    with jax.enable_x64(True):
        source = SimpleNamespace(standard_normal=lambda size: next(given))
        drawn = posterior._weighted(held, None, {}, draws, source, 0)  # type: ignore[arg-type]
        found = posterior._weighted_at(held, None, None, {}, drawn)  # type: ignore[arg-type]
    alone = np.where(np.arange(m) < columns, 0.0, 1 / np.sqrt(precision + curvature))
    weights = vectors[:1].T + vectors[1:].T @ normals[0] + alone[:, None] * normals[1]
    expected = kernel(x, centres) @ weights
    if kind == "inducing" and columns < m:
        expected = expected + prior(x) * np.sqrt(added)[:, None]
    elif kind == "inducing":
        there = prior(centres) + np.sqrt(jitter * 1.3) * normals[2]
        bend = np.linalg.solve(kernel(centres, centres) + jitter * np.eye(m), there)
        expected = expected + prior(x) - kernel(x, centres) @ bend
    np.testing.assert_allclose(found[..., 0].T, expected, rtol=1e-6, atol=1e-9)
