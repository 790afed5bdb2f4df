"""Where layers start: places of centres, projections, whitened means and row variables, against NumPy."""

from __future__ import annotations

import pickle
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.driver import Task
from gpdsl.inference.inducing import growth
from gpdsl.inference.layered import planning, settled
from gpdsl.inference.layered.propagation import Expected, Layers
from gpdsl.inference.layered.start import INNER_SD, NARROW, _enough, _projection, may_be_none, passing_on, start_layers
from gpdsl.inference.plan.options import Options
from gpdsl.inference.posteriors.features import factorise, sparse_features
from gpdsl.inference.problem import Found, Monitor, Report, Result
from gpdsl.kernels.functionals import Values
from gpdsl.program.groups import kernel_values
from gpdsl.program.program import make_rows
from gpdsl.results import checkpoint
from gpdsl.results.fitting import prepare
from tests.inference.test_layered import _posterior

LAYERS = """
index d in 1..2
input x : real
input v : real[3]
output y : real
latent h[d](v) ~ GP(0, 0.7 * RBF(1.5))
latent f(h, x) ~ GP(0, 4 * RBF(1))
y ~ Normal(f, 0.2)
"""
EMBEDDED = """
index q in 1..2
output y : real[4]
index p in 1..4
row w[q] ~ Normal(0, 1)
latent f[p](w) ~ GP(0, RBF(1))
y[p] ~ Normal(f[p], 0.3)
"""


def started(text: str, data: dict[str, np.ndarray], inducing: list[int]) -> tuple[Any, ...]:
    program, bound, _ = prepare(gpdsl.compile(text), data, {}, {})
    return program, *start_layers(program, make_rows(program, bound), inducing, 1e-8, 0, bound)


@pytest.mark.parametrize("wanted", [5, 6])
@pytest.mark.parametrize("moving", [[False, False], [True, False]])
def test_as_many_centres_as_rows_stand_at_the_rows(wanted: int, moving: list[bool], rng: np.random.Generator) -> None:
    arguments = rng.normal(size=(6, 2))
    places, count = _enough(arguments, wanted, np.array(moving), rng)
    np.testing.assert_array_equal(places, arguments)
    assert count == wanted


def test_more_centres_than_rows_stand_beside_them_along_what_moves(rng: np.random.Generator) -> None:
    """Noise as wide as the columns are; a column that is known keeps its values, and one that is constant gets 1."""
    arguments = rng.normal(size=(400, 3)) * [5.0, 2.0, 0.0] + [0.0, 0.0, 7.0]
    places, count = _enough(arguments, 1001, np.array([True, False, True]), rng)
    assert (len(places), count) == (1200, 1001)
    np.testing.assert_array_equal(places[:400], arguments)
    gap = places[400:] - np.tile(arguments, (2, 1))
    np.testing.assert_array_equal(gap[:, 1], 0.0)
    np.testing.assert_allclose(np.std(gap, axis=0)[[0, 2]], [np.std(arguments[:, 0]), 1.0], rtol=5 / np.sqrt(2 * 800))
    fixed, most = _enough(arguments, 1001, np.zeros(3, bool), rng)
    assert (len(fixed), most) == (400, 400)


@pytest.mark.parametrize("latents", [1, 3, 5])
def test_projections_have_unit_deviations(latents: int, rng: np.random.Generator) -> None:
    arguments = rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3)) + 4.0
    found = _projection(arguments, latents, rng)(arguments)
    white = (arguments - arguments.mean(axis=0)) / arguments.std(axis=0)
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(found.std(axis=0), 1.0)
    if latents == 1:
        _, vectors = np.linalg.eigh(white.T @ white)
        first = white @ vectors[:, -1]
        assert abs(np.corrcoef(found[:, 0], first)[0, 1]) == pytest.approx(1.0)
    else:
        np.testing.assert_allclose(found[:, :3], white)


def test_inner_layers_start_almost_known_at_projections(rng: np.random.Generator) -> None:
    """The values at the rows are projections, as wide as the prior; q is as if those at the points were measured."""
    v, x = rng.normal(size=(9, 3)), rng.normal(size=9)
    program, points, start, values = started(LAYERS, {"v": v, "x": x, "y": x}, [9, 4])
    place = next(k for k, group in enumerate(program.groups) if "h" in group.names)
    white = (v - v.mean(axis=0)) / v.std(axis=0)
    h, z = values["h"], np.asarray(points[place].points)
    np.testing.assert_allclose(h.std(axis=0), np.sqrt(0.7), rtol=1e-6)
    assert np.linalg.matrix_rank(np.c_[white, h], tol=1e-6) == 3
    assert len(z) == 9
    kernel = 0.7 * (np.exp(-0.5 * np.sum((z[:, None] - z) ** 2, axis=-1) / 1.5**2) + 1e-8 * np.eye(9))
    nearest = np.argmin(np.sum((z[:, None] - v) ** 2, axis=-1), axis=1)
    np.testing.assert_allclose(z, v[nearest], atol=1e-10)
    factor = np.linalg.cholesky(kernel)
    gain = kernel @ np.linalg.inv(kernel + 0.7 * INNER_SD**2 * np.eye(9))
    np.testing.assert_allclose(factor @ start[place]["mean"][0].T, gain @ h[nearest], atol=1e-8)
    logs = start[place]["root"]
    root = np.tril(logs, -1) + np.exp(np.diagonal(logs, axis1=-2, axis2=-1))[..., None] * np.eye(9)
    found = factor @ root @ np.swapaxes(factor @ root, -1, -2)
    np.testing.assert_allclose(found, np.broadcast_to(kernel - gain @ kernel, (1, 2, 9, 9)), atol=1e-8)
    other = start[1 - place]
    assert not np.any(other["mean"]) and not np.any(other["root"])
    assert np.asarray(points[1 - place].points).shape == (4, 3)


def test_row_variables_start_at_principal_components_of_the_outputs(rng: np.random.Generator) -> None:
    """A value that is missing counts as the mean of its column."""
    y = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 4)) + 0.01 * rng.normal(size=(30, 4)) + [1.0, 2.0, 3.0, 4.0]
    y[3, 1] = np.nan
    program, _, start, values = started(EMBEDDED, {"y": y}, [30, 6])
    place = next(k for k, group in enumerate(program.groups) if group.per_row)
    filled = np.where(np.isnan(y), np.nanmean(y, axis=0), y)
    white = (filled - filled.mean(axis=0)) / filled.std(axis=0)
    _, vectors = np.linalg.eigh(white.T @ white)
    wanted = white @ vectors[:, :1:-1]
    wanted = wanted / wanted.std(axis=0)
    found = start[place]["mean"][0].T
    np.testing.assert_allclose(np.abs(np.sum(found * wanted, axis=0)) / 30, 1.0)
    np.testing.assert_allclose(values["w"], found)
    np.testing.assert_allclose(start[place]["log_sd"], np.log(NARROW))


SHARP = """
input x : real
output y : real
param ell : positive = 0.5
param s : positive = 0.0001
param sigma : positive = 0.3
latent h(x) ~ GP(x, s * RBF(1))
latent f(h) ~ GP(0, RBF(ell))
y ~ Normal(f, sigma)
"""
ALONE = SHARP.replace("latent h(x) ~ GP(x, s * RBF(1))\n", "").replace("f(h)", "f(x)").replace("param s ", "param t ")


@pytest.fixture
def sharp(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A quick sine, which 8 points cannot follow, and layers that take no more by themselves."""
    for name, value in {"BATCH": 60, "LAST": 8, "INDUCING": 8, "STEPS": 50, "FEWEST": 50}.items():
        monkeypatch.setattr(planning, name, value)
    monkeypatch.setattr(growth, "GOING_ON", 50)
    monkeypatch.setattr(settled, "WIDEST", 50)
    x = rng.uniform(0, 6, 180)
    return {"x": x, "y": np.sin(4 * x) + 0.1 * rng.normal(size=180)}


def test_layers_end_no_worse_than_one_with_more_inducing_points(sharp: dict[str, np.ndarray]) -> None:
    """Beside the exact evidence of one layer: 8 points end hundreds of nats below it, and layers that go on do not."""
    exact = gpdsl.compile(ALONE).fit(sharp, progress=False)
    few = gpdsl.compile(SHARP).fit(sharp, progress=False, steps=50)  # who asks for steps gets these alone
    fit = gpdsl.compile(SHARP).fit(sharp, progress=False)
    assert few.elbo < exact.elbo - 100
    assert exact.elbo - 5 < fit.elbo < exact.elbo + 1
    assert "50 inducing points of the last layer give more" in fit.choice.reasons["inducing"]
    assert "8 inducing points of h, 50 inducing points of f" in str(fit.summary())
    assert [step for step, *_ in fit.history][-1] == 100


STEP = SHARP.replace("s : positive = 0.0001", "s : positive = 0.1")


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_few_rows_of_a_step_end_no_worse_than_one_layer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide inner layer costs tens of nats, which so few steps do not win back: layers go on from one, as none."""
    for name in ("SETTLING", "FEWEST"):
        monkeypatch.setattr(planning, name, 9)
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.7, 1.7, 50)
    data = {"x": x, "y": np.sign(x) + 0.05 * rng.normal(size=50)}
    exact = gpdsl.compile(ALONE).fit(data, progress=False)
    few = gpdsl.compile(STEP).fit(data, progress=False, steps=9, seed=seed)
    fit = gpdsl.compile(STEP).fit(data, progress=False, seed=seed)
    assert few.elbo < exact.elbo - 10
    assert fit.elbo > exact.elbo - 1 - 3 * fit.elbo_se
    assert "the 50 of one layer, from which all go on" in fit.choice.reasons["inducing"]
    assert fit.parameters["s"] < 1e-5


def test_layers_that_pass_arguments_on_have_next_to_no_variance() -> None:
    """Whatever scales it, once or squared, for each latent or all; others, and narrow ones, stay as they are."""
    text = """
    index q in 1..2
    input x : real[2]
    output y : real
    param a[q] : positive = [0.5, 0.00001]
    param b    : positive = 2
    param c    : positive = 3
    param d    : positive = 0.7
    latent g[q](x) ~ GP(x[q], a[q] * RBF(b))
    latent h[q](g) ~ GP(g[q], c^2 * RBF(1))
    latent k(h) ~ GP(0, d * RBF(1))
    latent f(k) ~ GP(k, d * RBF(1))
    y ~ Normal(f, 0.1)
    """
    data = {"x": np.arange(8.0).reshape(4, 2), "y": np.arange(4.0)}
    known = prepare(gpdsl.compile(text), data, {}, {})[0]
    found = passing_on(known).parameters.initial
    np.testing.assert_allclose(found["a"], [1e-6, 1e-5])
    np.testing.assert_allclose(found["c"], 1e-3)
    assert found["b"] == 2 and found["d"] == 0.7


def test_layers_with_numbers_of_points_of_their_own_come_back_from_files(
    sharp: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """Numbers that nobody asked for: of files, pickles and checkpoints."""
    fit = gpdsl.compile(SHARP).fit(sharp, progress=False, checkpoint=tmp_path / "fit")
    assert fit.choice.own == {"h": 8, "f": 50}
    rows, known = {"x": np.array([0.5, 3.0, 9.0])}, fit.predict({"x": np.array([0.5, 3.0, 9.0])}).mean("y")
    for again in (gpdsl.load_fit(tmp_path / "fit"), pickle.loads(pickle.dumps(fit))):  # noqa: S301
        np.testing.assert_array_equal(again.predict(rows).mean("y"), known)
        assert again.choice.own == fit.choice.own
    resumed = gpdsl.compile(SHARP).fit(sharp, progress=False, checkpoint=tmp_path / "fit", resume=True)
    assert resumed.elbo == fit.elbo


def test_layers_stay_where_depth_gives_more(sharp: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the bound of one layer cannot come so far, nothing is fitted again."""
    monkeypatch.setattr(growth, "_layers_go_on", lambda *_: pytest.fail("there is nothing to go on from"))
    fit = gpdsl.compile(SHARP).fit(
        {"x": sharp["x"], "y": np.sin(0.5 * sharp["x"]) + 0.1 * np.resize([1, -1, 0, 0.5], 180)}, progress=False
    )
    assert "inducing" not in fit.choice.reasons


def test_an_interrupted_look_at_one_layer_keeps_what_all_found(
    sharp: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(growth, "_grown_to", stop)
    fit = gpdsl.compile(SHARP).fit(sharp, progress=False)
    assert fit.interrupted
    assert "interrupted" in fit.message
    assert np.isfinite(fit.elbo)
    assert [step for step, *_ in fit.history][-1] == 50


def test_the_last_layer_alone_is_the_model_that_says_so() -> None:
    """With the inputs that it reads, and no parameters of others among what it learns."""
    text = SHARP.replace("f(h)", "f(h, v)").replace("input x : real", "input x : real\ninput v : real\ninput n : real")
    data = {name: np.arange(5.0) for name in ("x", "v", "n", "y")}
    program, bound, options = prepare(gpdsl.compile(text.replace("Normal(f,", "Normal(f + n,")), data, {}, {})
    alone = settled._alone(program, bound, options, None)
    one, known = alone.program, alone.data
    assert set(one.declarations.inputs) == set(known.inputs) == {"h", "v", "n"}
    np.testing.assert_allclose(known.inputs["h"], data["x"], rtol=1e-6)
    assert set(one.parameters.initial) == {"ell", "sigma"}
    assert float(one.parameters.held["s"]) == 1e-4


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("kind", [gpdsl.GpdslError, ValueError])
def test_what_a_callback_raises_while_one_layer_is_looked_at_is_the_callers(
    sharp: dict[str, np.ndarray], kind: type[Exception], late: bool
) -> None:
    """Their own exception, with its cause: while one layer is fitted alone, and while all go on from it."""

    def stop(report: Any) -> None:
        alone = report.stage.startswith("the last layer alone")
        if report.step > 50 and alone != late:
            raise kind("enough") from KeyError("why")

    with pytest.raises(kind, match="enough") as caught:
        gpdsl.compile(SHARP).fit(sharp, progress=False, callback=stop)
    assert isinstance(caught.value.__cause__, KeyError)


def test_one_layer_ahead_of_layers_that_cannot_be_none_is_no_doubt(sharp: dict[str, np.ndarray]) -> None:
    """A fixed variance, or a constant mean, costs what it costs: no further steps would change that."""
    learnt, fixed = (gpdsl.compile(SHARP), gpdsl.compile(SHARP.replace("s * RBF(1)", "0.5 * RBF(1)")))
    constant = gpdsl.compile(SHARP.replace("GP(x, s", "GP(0, s"))
    programs = [prepare(each, sharp, {}, {})[0] for each in (learnt, fixed, constant)]
    assert [may_be_none(each) for each in programs] == [True, False, False]
    result = Result({}, [], [], np.ones(1), -20.0, 0.0, "converged")
    for none, ahead in ((True, 10.0), (False, 10.0), (False, 0.5)):
        found = Found(result, None, None, 0.0)  # type: ignore[arg-type]
        (told, *_) = settled._told_of_one(found, -20.0 + ahead, 80, none)
        assert bool(told.notes) == none
        assert ("10 nats higher" in told.message) == (ahead > 1 and not none)


@pytest.mark.slow
def test_one_layer_that_stays_ahead_is_told(sharp: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that go on with a wide variance lose what one has: the note has the difference of the two bounds."""
    monkeypatch.setattr(growth, "GOING_ON", 5)
    monkeypatch.setattr(growth, "GENTLE", 0.3)
    text = SHARP.replace("positive = 0.0001", "positive = 1")
    exact = gpdsl.compile(ALONE).fit(sharp, progress=False)
    fit = gpdsl.compile(text).fit(sharp, progress=False)
    told = [each for each in fit.notes if each.startswith("the last layer alone")]
    assert len(told) == 1
    assert f"{exact.elbo - fit.elbo:.1f}"[:-2] in told[0]


def test_seconds_of_the_look_at_one_layer_count(sharp: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    look, heard = growth._grown_to, []

    def slow(*given: Any) -> Any:
        time.sleep(1.5)
        return look(*given)

    monkeypatch.setattr(growth, "_grown_to", slow)
    fit = gpdsl.compile(SHARP).fit(sharp, progress=False, callback=heard.append)
    seconds = {int(step): elapsed for step, _, elapsed in fit.history}
    assert seconds[51 if 51 in seconds else min(each for each in seconds if each > 50)] - seconds[50] > 1.5
    alone = [each for each in heard if each.stage.startswith("the last layer alone, ")]
    assert 0 < len(alone) < len(heard)
    for each in heard:
        if each not in alone:
            np.testing.assert_allclose(seconds[each.step], each.elapsed, atol=0.5)


def interrupts(when: Callable[[Any], bool]) -> Callable[[Any], None]:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as it is not where tests run in the background
    return lambda report: signal.raise_signal(signal.SIGINT) if when(report) else None


@pytest.mark.parametrize("at", [20, 50])
def test_what_goes_on_from_an_interrupted_fit_looks_at_one_layer(
    sharp: dict[str, np.ndarray], tmp_path: Path, at: int
) -> None:
    """Where it was interrupted before that look, or in it: it ends where a fit ends that nobody interrupts."""
    where, model = tmp_path / "fit", gpdsl.compile(SHARP)
    before = model.fit(sharp, progress=False, checkpoint=where, callback=interrupts(lambda each: each.step > at))
    assert before.interrupted
    assert set(before.choice.own) == set()
    after = model.fit(sharp, progress=False, checkpoint=where, resume=True)
    exact = gpdsl.compile(ALONE).fit(sharp, progress=False)
    assert exact.elbo - 5 < after.elbo < exact.elbo + 1
    assert after.choice.own == {"h": 8, "f": 50}
    assert model.fit(sharp, progress=False, checkpoint=where, resume=True).elbo == after.elbo


def test_what_goes_on_while_layers_go_on_from_one_does_just_that(
    sharp: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is looked at again, and steps stay short."""
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)
    where, model = tmp_path / "fit", gpdsl.compile(SHARP)
    with pytest.raises(RuntimeError, match="gone"):
        model.fit(sharp, progress=False, checkpoint=where, callback=_gone)
    kept = gpdsl.load_fit(where)
    assert kept.choice.own == {"h": 8, "f": 50}
    monkeypatch.setattr(growth, "_grown_to", lambda *_: pytest.fail("it has been looked at"))
    after = model.fit(sharp, progress=False, checkpoint=where, resume=True)
    assert after.elbo > kept.elbo - 4
    assert after.choice.learning_rate == growth.GENTLE


def _gone(report: Any) -> None:
    """A process that ends among the last steps."""
    if report.step > 75 and not report.stage.startswith("the last"):
        raise RuntimeError("gone")


def test_what_goes_on_from_an_interrupted_fit_is_not_lost_where_it_ends_lower(
    sharp: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """Few long steps from many inducing points fall far: the state that was interrupted stays, in the file as well."""

    def stop(report: Any) -> None:
        if report.step > 50:
            signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # as it is not where tests run in the background
    where, model = tmp_path / "fit", gpdsl.compile(SHARP)
    before = model.fit(sharp, progress=False, checkpoint=where, callback=stop)
    assert before.interrupted
    for _ in range(2):
        after = model.fit(sharp, progress=False, checkpoint=where, resume=True)
        assert not after.interrupted
        assert after.elbo > before.elbo - 4


WAVES = """
input x : real
output y : real
param ell : positive = 1
latent h(x) ~ GP(x, 0.5 * Matern52(1))
latent g(x) ~ GP(0, 0.1 * Matern32(1))
latent f(h) ~ GP(0, RBF(ell))
y ~ Normal(f + g, 0.2)
"""


@pytest.mark.parametrize(
    "features",
    ["eigen(40)", *(pytest.param(f, marks=pytest.mark.slow) for f in ("fourier(40)", "points(20) + slopes(20)"))],
)
def test_features_of_a_layer_start_as_its_points_do(features: str, rng: np.random.Generator) -> None:
    """q is the posterior of a function that was measured along its arguments: here by dense algebra."""
    x = np.linspace(-2, 2, 60)
    text = WAVES.replace("GP(x, 0.5", "GP(0, 0.5")
    program, points, q, _ = started(text, {"x": x, "y": x}, [features, 10, 10])
    group, z = program.groups[0], points[0]
    kernel = kernel_values(program.evaluator, group, program.parameters.constrain(program.parameters.unconstrained()))
    found = sparse_features(group, kernel, z, Values(jnp.asarray(x[:, None])), factorise(group, kernel, z, 1e-8))
    root = np.tril(q[0]["root"][0, 0], -1) + np.diag(np.exp(np.diag(q[0]["root"][0, 0])))
    mean, spread = found.phi[0] @ q[0]["mean"][0, 0], np.sqrt(np.sum((found.phi[0] @ root) ** 2, axis=1))
    gaps = np.sqrt(5) * np.abs(x[:, None] - x)
    among = (1 + gaps + gaps**2 / 3) * np.exp(-gaps)
    gain = among @ np.linalg.inv(among + INNER_SD**2 * np.eye(60))
    np.testing.assert_allclose(mean, gain @ (x / x.std()), atol=0.01)
    np.testing.assert_allclose(spread, np.sqrt(np.diag(among - gain @ among)), rtol=0.2)


def test_layers_with_features_below_have_the_bound_of_points_that_say_the_same(rng: np.random.Generator) -> None:
    """A layer that is a line has one feature, or one point, that says it all."""
    x = rng.uniform(-2, 2, 12)
    data, text = {"x": x, "y": np.sin(2 * x)}, WAVES.replace("0.5 * Matern52(1)", "0.5 * Linear(1)")
    bounds = []
    for asked in ("eigen(1)", 1):
        program, points, _, _ = started(text, data, [asked, 12, 5])
        numbers = np.random.default_rng(1)
        q = {p: _posterior(numbers, 1, np.zeros(len(z)), 0.5) for p, z in enumerate(points)}
        if asked == 1:
            points[0] = Values(np.ones((1, 1)))
            points[2] = bounds[0][1]
        rows = jax.tree.map(jnp.asarray, make_rows(program, prepare(gpdsl.compile(text), data, {}, {})[1]))
        parameters = program.parameters.constrain(program.parameters.unconstrained())
        given = parameters, points, q, rows, jax.random.key(0), 1e-10
        bounds.append((float(Expected(Layers(program, frozenset()), 8, 12)(*given)), points[2]))
    assert bounds[0][0] == pytest.approx(bounds[1][0], rel=1e-8)


@pytest.mark.slow
def test_layers_with_features_below_are_fitted_kept_and_explained(sharp: dict[str, np.ndarray], tmp_path: Path) -> None:
    asked, model = {"h": "eigen(12)", "g": "fourier(9)", "f": 20}, gpdsl.compile(WAVES)
    fit = model.fit(sharp, progress=False, inducing=asked)
    assert fit.choice.own == asked and [len(z) for z in fit.inducing] == [12, 9, 20]
    fit.save(tmp_path / "fit.gpfit")
    again, rows = gpdsl.load_fit(tmp_path / "fit.gpfit"), {"x": [-1.0, 3.0]}
    np.testing.assert_array_equal(again.predict(rows).mean("y"), fit.predict(rows).mean("y"))
    assert "12 inducing variables as asked, eigen(12), full Gaussian" in model.explain(sharp, inducing=asked)
    more = model.fit(sharp, progress=False, inducing=asked, start=again, steps=3, learning_rate=1e-4)
    assert more.elbo == pytest.approx(fit.elbo, abs=3 * (fit.elbo_se + more.elbo_se) + 1)
    for other in ("fourier(12)", "eigen(13)", "eigen(12, over = [-9, 9])", 12):
        with pytest.raises(gpdsl.GpdslError, match="has 12 inducing variables of another kind of `h`, from which"):
            model.fit(sharp, progress=False, inducing=asked | {"h": other}, start=again, steps=3)
    with pytest.raises(gpdsl.GpdslError, match="20 inducing points of `f`, from which .* or set inducing f = 20"):
        model.fit(sharp, progress=False, inducing=asked | {"f": 21}, start=again, steps=3)


def test_layers_over_moving_values_have_points_alone() -> None:
    model, data = gpdsl.compile(WAVES), {"x": np.arange(4.0), "y": np.arange(4.0)}
    for asked in ("eigen(4)", {"f": "eigen(4)"}):
        with pytest.raises(gpdsl.GpdslError, match="`f` is a function of `h`, whose values move"):
            model.fit(data, inducing=asked)
    with pytest.raises(gpdsl.GpdslError, match="inducing h = eigen.4. are not points"):
        model.fit(data, inducing={"h": "eigen(4)"}, expectations="closed")


@pytest.mark.slow
def test_layers_over_data_without_noise_end_no_worse_than_one() -> None:
    """Variance of a layer that is next to none elsewhere is large beside next to no noise."""
    x = np.linspace(-2, 2, 30)
    wide = SHARP.replace("0.0001", "0.1").replace("0.5", "1")
    fit = gpdsl.compile(wide).fit({"x": x, "y": np.sin(2 * x)}, seed=0, standardise=True, progress=False)
    assert fit.elbo > 140 and not fit.notes


@dataclass(frozen=True)
class Chosen:
    """What is asked of a choice when layers go on from one."""

    inducing: int
    reasons: dict[str, str] = field(default_factory=dict)


def test_a_callback_is_told_of_steps_and_seconds_since_the_first_of_several_fits() -> None:
    """And of the bound before, until there is one."""
    told: list[Report] = []
    before = Monitor(9)
    before.history[:] = [(2, -8.0, 0.1), (7, -5.0, 0.3)]
    task = Task(None, None, Options(), told.append).after(before, "two layers: ")  # type: ignore[arg-type]
    assert task.callback is not None
    for elbo in (-np.inf, -3.0):
        task.callback(Report(4, 50, elbo, 10.0, None, "fit"))
    assert [(each.step, each.steps, each.elbo, each.stage) for each in told] == [
        (11, 57, -5.0, "two layers: fit"),
        (11, 57, -3.0, "two layers: fit"),
    ]
    assert all(10.0 < each.elapsed <= 10.0 + before.elapsed for each in told)


@pytest.mark.parametrize(
    ("rows", "points", "gained", "told"),
    [
        (50, 30, 2.0, "30 inducing points of the last layer give more than depth gives with 8"),
        (growth.FEW + 1, 8, 2.0, "the 8 of one layer, from which all go on: its bound was higher than theirs"),
        (50, 30, -2.0, ""),
    ],
)
def test_layers_go_on_from_one_in_few_short_steps_and_stay_where_that_loses(
    rows: int, points: int, gained: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    first, later = Monitor(50), Monitor(50)
    first.history[:], later.history[:] = [(50, -20.0, 1.0)], [(7, -20.0 + gained, 0.5)]

    def infer(task: Any) -> Any:
        options = task.options
        assert options.steps == (growth.GOING_ON_ALL if rows <= growth.FEW else growth.GOING_ON)
        assert options.learning_rate == growth.GENTLE and options.samples == 3
        task.keep(Chosen(points), "so far")
        result = Result({}, [], [], np.ones(1), -20.0 + gained, 0.0, interrupted=True)
        return Found(result, later, Chosen(points), 1e-6)  # type: ignore[arg-type]

    monkeypatch.setattr(growth, "infer", infer)
    start: Any = SimpleNamespace(inducing=[np.zeros((8, 1)), np.zeros((points, 1))])
    found: Any = Found(Result({}, [], [], np.ones(1), -20.0, 0.0), first, Chosen(8), 1e-8)  # type: ignore[arg-type]
    given: Any = None, SimpleNamespace(rows=rows), Options(samples=3), None, None, lambda *of: kept.append(of)
    result, history, choice, jitter = growth._layers_go_on(Task(*given), found, None, start)  # type: ignore[arg-type]
    assert result.interrupted and result.elbo == max(-20.0, -20.0 + gained)
    assert [step for step, *_ in history.history] == [50, 57]
    assert jitter == (1e-6 if told else 1e-8)
    assert choice.reasons == ({"inducing": told} if told else {})
    assert kept[0][0].reasons["inducing"] and kept[0][1] == "so far"


@pytest.mark.parametrize(("rows", "given"), [(60, {}), (150, {}), (60, {"importance": 3}), (3000, {"batch": 400})])
def test_a_step_has_as_many_passes_as_are_about_a_thousand(
    rows: int, given: dict[str, int], rng: np.random.Generator
) -> None:
    """Of all its rows and their weighed replicas; one of a row at least, and ten at most."""
    x = rng.normal(size=9)
    program, _, options = prepare(gpdsl.compile(LAYERS), {"v": rng.normal(size=(9, 3)), "x": x, "y": x}, {}, {})
    choice = planning._decide(program, rows, replace(options, optimizer="adam", **given))  # type: ignore[arg-type]
    more = given.get("batch", rows) * given.get("importance", 1)
    assert choice.samples == 1 or choice.samples * more <= planning.PASSES
    assert choice.samples == planning.MOST_PASSES or (choice.samples + 1) * more > planning.PASSES


@pytest.mark.parametrize("rows", [600, 900])
def test_a_search_that_sees_all_rows_has_as_many_steps_as_its_work_is_worth(
    rows: int, rng: np.random.Generator
) -> None:
    """Two passes of a row in each, for pairs of opposite samples, with products of 256 inducing points."""
    x = rng.normal(size=9)
    program, _, options = prepare(gpdsl.compile(LAYERS), {"v": rng.normal(size=(9, 3)), "x": x, "y": x}, {}, {})
    choice = planning._decide(program, rows, options)
    work = 2 * rows * 256**2
    assert (choice.samples, choice.optimizer) == (2, "natural")
    assert choice.steps * work <= planning.WORK < (choice.steps + 1) * work
