"""As many inducing points as it takes: what they lose, how they are chosen, when there are enough, what is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslWarning
from gpdsl.inference.driver import Task
from gpdsl.inference.exact import engine
from gpdsl.inference.inducing import choosing, growth
from gpdsl.inference.inducing.choosing import bending
from gpdsl.inference.inducing.loss import Loss, loss_of
from gpdsl.inference.inducing.start import distinct, pivoted
from gpdsl.inference.infer import infer
from gpdsl.inference.plan import options
from gpdsl.inference.plan.options import choose_batch
from gpdsl.inference.problem import Found, Result
from gpdsl.kernels.functionals import every_point
from gpdsl.program.program import at_values
from gpdsl.results.fitting import prepare
from tests.inference.conftest import COUNTS
from tests.inference.problems import problem_of

SERIES = """
input x : real
output y : real
param ell : positive = 1
param s2 : positive = 1
param sigma : positive = 0.5
latent f(x) ~ GP(0, s2 * Matern32(ell))
y ~ Normal(f, sigma)
"""


def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    gaps = np.sqrt(3) * np.abs(a[:, None] - b)
    return (1 + gaps) * np.exp(-gaps)


def series(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """Five rows in each length-scale, noise 0.3."""
    x = np.sort(rng.uniform(0, rows / 5, rows))
    f = np.linalg.cholesky(kernel(x, x) + 1e-9 * np.eye(rows)) @ rng.standard_normal(rows)
    return {"x": x, "y": f + 0.3 * rng.standard_normal(rows)}


def evidence(data: dict[str, np.ndarray]) -> float:
    covariance = kernel(data["x"], data["x"]) + 0.09 * np.eye(len(data["x"]))
    fit = data["y"] @ np.linalg.solve(covariance, data["y"])
    return float(-0.5 * (fit + np.linalg.slogdet(2 * np.pi * covariance)[1]))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of rows and points that decide, a tenth as large."""
    monkeypatch.setattr(options, "DENSE_ROWS", 150)
    monkeypatch.setattr(options, "DENSE_ALONE", 150)
    monkeypatch.setattr(options, "DEFAULT_INDUCING", 20)
    monkeypatch.setattr(engine, "EXACT_VALUES", 400)
    monkeypatch.setattr(growth, "EXACT_ROWS", 0)
    monkeypatch.setattr(choosing, "FEW", 60)


@pytest.mark.parametrize("start", ["kmeans", "greedy"])
def test_points_do_not_depend_on_the_order_of_rows(rng: np.random.Generator, start: str) -> None:
    x, order = rng.normal(size=(120, 3)), rng.permutation(120)
    x[7] = x[90]
    text = COUNTS.replace("x : real", "x : real[3]")
    counts = rng.poisson(1.0, 120)

    def points(rows: np.ndarray) -> np.ndarray:
        data = {"x": x[rows], "n": counts[rows]}
        return np.asarray(problem_of(text, data, inducing=15, inducing_start=start).inducing[0].points)

    np.testing.assert_array_equal(points(order), points(np.arange(120)))


def test_the_order_of_distinct_rows_is_that_of_their_values(rng: np.random.Generator) -> None:
    rows = rng.integers(0, 3, size=(200, 3)).astype(float)
    signed = np.where((rows == 0) & (rng.random(rows.shape) < 0.5), -0.0, rows)
    found = distinct(rows)
    np.testing.assert_array_equal(distinct(signed[rng.permutation(200)]), found)
    assert len(found) == len(np.unique(rows, axis=0)) == 27
    np.testing.assert_allclose(distinct(1e-3 * rows + 7.0), 1e-3 * found + 7.0)  # in other units
    gaps = np.diff(distinct(np.arange(2000.0)[:, None])[:, 0])
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1] + 0.5) < 0.1  # as of a random order


@pytest.mark.parametrize("rows", [200, 900])
def test_blocks_of_pivots_leave_as_little_open_as_one_after_the_other(rng: np.random.Generator, rows: int) -> None:
    x = rng.uniform(0, 60, rows)
    covariance = kernel(x, x)
    found = pivoted(lambda some: covariance[some], np.diag(covariance), 80, 1e-10)
    residual, factor, open_ = np.ones(rows), np.zeros((0, rows)), []
    for _ in range(80):
        pivot = int(np.argmax(residual))
        row = (covariance[pivot] - factor[:, pivot] @ factor) / np.sqrt(residual[pivot])
        factor, residual = np.vstack([factor, row]), residual - row**2
        open_.append(residual.mean())
    assert len(set(found.chosen)) == 80
    np.testing.assert_allclose(found.open, open_, rtol=1e-6 if rows <= 256 else 0.12)
    left = covariance - covariance[:, found.chosen] @ np.linalg.solve(
        covariance[np.ix_(found.chosen, found.chosen)], covariance[found.chosen]
    )
    assert found.open[-1] == pytest.approx(np.diag(left).mean(), rel=1e-6)


@pytest.mark.parametrize("inducing", [90, 150, 250])
def test_the_loss_of_normal_noise_is_that_of_the_evidence(rng: np.random.Generator, inducing: int) -> None:
    data, held = series(rng, 400), ["ell", "s2", "sigma"]
    prepared = prepare(gpdsl.compile(SERIES.replace("0.5", "0.3")), data, {}, {"fixed": held, "inducing": inducing})
    found = infer(Task(*prepared))
    lost = evidence(data) - found[0].elbo
    assert lost / 2 < loss_of(*prepared, found).nats < 2 * lost


def test_rows_that_say_little_lose_little(counts: Any, rng: np.random.Generator) -> None:
    """Counts with small rates: variance left open costs in proportion to what they tell, the rate."""
    x = rng.uniform(-20, 20, 300)
    losses = []
    for offset in ("0.3", "-3.0"):
        model = gpdsl.compile(COUNTS.replace("0.3", offset))
        prepared = prepare(
            model, {"x": x, "n": np.zeros(300)}, {}, {"fixed": ["s2", "ell"], "inducing": 12, "batch": 0}
        )
        losses.append(loss_of(*prepared, infer(Task(*prepared))).nats)
    assert 0 < 3 * losses[1] < losses[0]


@pytest.mark.parametrize("where", [{"ell": 7.0, "s2": 0.5, "sigma": 0.85}, {"ell": 1.0, "s2": 0.001, "sigma": 1.0}])
def test_patches_tell_what_bent_hyperparameters_lose(rng: np.random.Generator, where: dict[str, float]) -> None:
    """Those that 200 points of 5,000 rows find, and those of a null model."""
    data = series(rng, 1000)
    program, bound, chosen = prepare(gpdsl.compile(SERIES), data, {}, {"init": where})
    choice = options.decide(chosen, 1000, opaque=False)
    found = bending(program, bound, chosen, choice)
    x, y = data["x"], data["y"]
    gaps = np.sqrt(3) * np.abs(x[:, None] - x) / where["ell"]
    covariance = where["s2"] * (1 + gaps) * np.exp(-gaps) + where["sigma"] ** 2 * np.eye(1000)
    bent = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    assert (evidence(data) - bent) / 2 < found.nats < 2 * (evidence(data) - bent)
    there = at_values(program, {"ell": 1.0, "s2": 1.0, "sigma": 0.3})
    assert bending(there, bound, chosen, choice).nats < 25  # noise of 300 rows that stand for 1000


@pytest.mark.parametrize(("there", "lost"), [(5.0, 5.0), (1.0, 2.0), (200.0, 102.0)])
def test_bent_parameters_lose_no_more_than_is_open_at_straight_ones(
    monkeypatch: pytest.MonkeyPatch, there: float, lost: float
) -> None:
    """2 nats are open where the search has ended, and patches gain 100 at parameters of `ell` three times as long."""
    data = {"x": np.arange(5.0), "y": np.arange(5.0)}
    program, bound, chosen = prepare(gpdsl.compile(SERIES), data, {}, {"inducing": 3})
    found = infer(Task(program, bound, chosen))
    straight = at_values(program, {name: np.asarray(3.0) for name in program.parameters.initial})
    monkeypatch.setattr(growth, "dense_gain", lambda *_: None)
    monkeypatch.setattr(growth, "bending", lambda *_: choosing.Bending(100.0, straight))
    wanted = straight.parameters.unconstrained()

    def open_at(program: Any, data: Any, options: Any, found: Any) -> Loss:
        own = all(np.array_equal(found[0].parameters[name], value) for name, value in wanted.items())
        return Loss(there if own else 2.0, 5)

    monkeypatch.setattr(growth, "loss_of", open_at)
    loss, where = growth._assess(program, bound, chosen, found)
    assert loss.nats == lost and where is straight


def test_points_are_chosen_under_the_kernel_that_asks_for_most(rng: np.random.Generator) -> None:
    """Be it that of the fit or that of patches."""
    program, bound, chosen = prepare(gpdsl.compile(SERIES), series(rng, 200), {}, {"inducing": 10})
    best = infer(Task(program, bound, chosen))
    smooth, rough = (at_values(program, {"ell": ell, "s2": 1.0, "sigma": 0.3}) for ell in (40.0, 1.0))

    def points(*kernels: Any) -> np.ndarray:
        found = choosing.choose_more(kernels, bound, chosen, best, Loss(50.0, 200), growth.ALONE)
        assert found is not None
        return np.asarray(every_point(found[0]))

    many = points(rough, rough)
    assert not np.array_equal(points(smooth, smooth), many)
    np.testing.assert_array_equal(points(smooth, rough), many)
    np.testing.assert_array_equal(points(rough, smooth), many)


@pytest.mark.slow
def test_outliers_have_bent_nothing() -> None:
    """Patches without outliers ask for less noise than all rows: at such parameters features leave no more open."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-5, 5, 1200)
    data = {"x": x, "y": np.sin(x) + 0.2 * rng.standard_t(2, 1200)}
    model = gpdsl.compile(SERIES)
    program, bound, chosen = prepare(model, data, {}, {"inducing": "eigen(40)"})
    found = infer(Task(program, bound, chosen))
    here = at_values(program, program.parameters.constrain(found[0].parameters))
    bent = bending(here, bound, chosen, found[2]).nats
    lost = model.fit(data, inducing=0, diagnose="no").elbo - found[0].elbo
    loss, _ = growth._assess(program, bound, chosen, found)
    assert 0 <= lost < 1 < 100 < bent
    assert lost / 2 <= loss.nats < 1


@pytest.mark.slow
def test_points_are_added_until_little_is_lost(small: None, rng: np.random.Generator) -> None:
    data = series(rng, 600)
    model = gpdsl.compile(SERIES)
    fit, few = model.fit(data), model.fit(data, inducing=20)
    best = model.fit(data, inducing=0)
    assert fit.choice.inducing > 200
    assert fit.inducing_loss is not None and fit.inducing_loss <= 1.0
    assert best.elbo - 2.0 < fit.elbo <= best.elbo
    assert best.elbo - few.elbo > 100
    assert np.all(np.diff(fit.history[:, 0]) > 0) and np.all(np.diff(fit.history[:, 2]) >= 0)
    assert few.inducing_loss is not None and few.inducing_loss > 100


@pytest.mark.parametrize(
    ("half", "inducing", "likelihood"),
    [
        (4, 5, "Poisson(exp(f + 0.3))"),
        pytest.param(12, 8, "Bernoulli(logit = f + 0.3)", marks=pytest.mark.slow),
    ],
)
def test_a_number_that_is_asked_for_is_told_its_loss(
    rng: np.random.Generator, half: float, inducing: int, likelihood: str
) -> None:
    """Much of it by bent hyperparameters, which say that little is lost; the reference is the dense fit."""
    x, counted = rng.uniform(-half, half, 200), "Poisson" in likelihood
    wave = 1 + np.sin(2 * x)
    seen = rng.poisson(np.exp(wave)) if counted else rng.random(200) < 1 / (1 + np.exp(4 - 4 * wave))
    text = COUNTS.replace("Poisson(exp(f + 0.3))", likelihood)
    model = gpdsl.compile(text if counted else text.replace(": count", ": binary"))
    fit, dense = (model.fit({"x": x, "n": seen.astype(int)}, inducing=count) for count in (inducing, 0))
    assert fit.inducing_loss is not None
    assert fit.inducing_loss == pytest.approx(dense.elbo - fit.elbo, rel=0.02)
    assert f"{inducing} inducing points lose about {fit.inducing_loss:,.0f} nats" in fit.summary()


def test_what_of_a_loss_cannot_be_told_is_said(counts: Any) -> None:
    model, data = counts
    given = {"inducing": 5, "posterior": "diagonal"}
    held = model.fit(data, **given, steps=2, fixed=["s2", "ell"])
    for fit, told in ((model.fit(data, **given), True), (held, False)):
        assert fit.inducing_loss is not None and fit.inducing_loss > 0
        assert ("if they have not bent the parameters too" in fit.summary()) is told
        assert not any("bent" in note for note in fit.notes)
    text = COUNTS.replace("latent", "external rate(f: real) -> real\nlatent").replace("exp(f + 0.3)", "rate(f)")
    opaque = gpdsl.compile(text, externals={"rate": lambda f: np.exp(f + 0.3)}).fit(data, inducing=5, steps=2)
    assert opaque.inducing_loss is None
    assert any("cannot be told: the likelihood is opaque" in note for note in opaque.notes)
    assert "lose" not in opaque.summary().replace("points lose cannot be told", "")


@pytest.mark.slow
def test_where_the_budget_ends_the_loss_is_said(
    small: None, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(choosing, "BUDGET", 450 * 60.0**2)
    data = series(rng, 450)
    model = gpdsl.compile(SERIES)
    with pytest.warns(GpdslWarning, match=r"features eigen\(60\) lose about .* nats of the evidence"):
        fit = model.fit(data)
    lost = model.fit(data, inducing=0).elbo - fit.elbo
    assert fit.choice.inducing == 60
    assert fit.inducing_loss is not None and lost / 2 < fit.inducing_loss < 2 * lost
    assert "take longer and lose less" in fit.summary()
    fit.save(tmp_path / "fit.gpfit")
    assert gpdsl.load_fit(tmp_path / "fit.gpfit").inducing_loss == fit.inducing_loss


@pytest.mark.slow
def test_exact_inference_takes_over_where_it_costs_no_more(
    small: None, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "EXACT_ROWS", 1000)
    data = series(rng, 500)
    fit, best = (gpdsl.compile(SERIES).fit(data, **given) for given in ({}, {"inducing": 0}))
    assert fit.elbo == pytest.approx(best.elbo, abs=1e-3)
    assert fit.inducing_loss == 0.0


@pytest.mark.slow
def test_rows_in_another_order_end_at_the_same_points(small: None, rng: np.random.Generator) -> None:
    x = rng.uniform(-15, 15, 300)
    data, order = {"x": x, "n": rng.poisson(np.exp(1 + np.sin(2 * x)))}, rng.permutation(300)
    model = gpdsl.compile(COUNTS)
    one, other = model.fit(data), model.fit({name: values[order] for name, values in data.items()})
    assert one.choice.inducing > 20
    np.testing.assert_array_equal(one.inducing[0].points, other.inducing[0].points)
    assert other.elbo == pytest.approx(one.elbo, abs=1e-5)


@pytest.mark.slow
def test_minibatches_get_more_points_too(small: None, rng: np.random.Generator) -> None:
    x = rng.uniform(-15, 15, 1000)
    data = {"x": x, "n": rng.poisson(np.exp(1 + np.sin(2 * x)))}
    fit = gpdsl.compile(COUNTS).fit(data, batch=100, steps=200)
    few = gpdsl.compile(COUNTS).fit(data, batch=100, steps=200, inducing=20)
    assert fit.choice.inducing > 20 and fit.elbo > few.elbo + 10


def test_who_asks_for_a_number_gets_it(small: None, counts: Any, rng: np.random.Generator) -> None:
    x = rng.uniform(-15, 15, 200)
    data = {"x": x, "n": rng.poisson(np.exp(1 + np.sin(2 * x)))}
    fit = gpdsl.compile(COUNTS).fit(data, inducing=10, steps=3)
    assert fit.choice.inducing == 10
    assert gpdsl.compile(COUNTS).fit(data, start=fit, steps=3).choice.inducing == 10


@pytest.mark.parametrize(
    ("rows", "learnt", "batch"),
    [(15_000, 20, 1000), (15_000, 3, 0), (9_000, 40, 0), (20_001, 0, 1000), (20_000, 2, 0), (12_000, 0, 0)],
)
def test_all_rows_are_taken_at_once_where_that_costs_little(rows: int, learnt: int, batch: int) -> None:
    found, reason = choose_batch(rows, learnt)
    assert found == batch
    assert str(rows) in reason


def test_losses_are_judged_by_the_rows() -> None:
    assert Loss(0.9, 10).small and Loss(4.9, 5000).small and not Loss(5.1, 5000).small
    assert Loss(51.0, 5000).much and not Loss(49.0, 5000).much
    assert Loss(1.0, 10).plus(2.0).nats == 3.0


def test_as_many_points_are_affordable_as_the_budget_pays() -> None:
    """Of steps on minibatches, of evaluations at all rows, and of latents that are coupled, one more costs too much."""
    problem = problem_of(COUNTS, {"x": np.arange(5.0), "n": np.arange(5)})

    def points(rows: int, **chosen: Any) -> int:
        return choosing.affordable(problem.program, replace(problem.choice, **chosen), rows)

    batch = points(10**6, batch=1000)
    cost = [1000 * m**2 + choosing.CUBES * m**3 for m in (batch, batch + 1)]
    assert cost[0] < choosing.BATCH_BUDGET <= cost[1]
    all_rows = points(10_000, batch=0)
    assert 10_000 * all_rows**2 <= choosing.BUDGET < 10_000 * (all_rows + 1) ** 2
    assert points(100_000, batch=0, posterior="coupled") == points(100_000, batch=0)  # of one latent
    many = choosing.affordable(problem.program, replace(problem.choice, batch=0), 10_000, growth.ALONE)
    assert 10_000 * many**2 <= growth.ALONE * choosing.BUDGET < 10_000 * (many + 1) ** 2


def test_the_last_of_several_layers_alone_may_take_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that has a bound to beat, of layers, may have more points than one of a model of one layer."""
    problem, asked = problem_of(COUNTS, {"x": np.arange(5.0), "n": np.arange(5)}), []
    found = Found(Result({}, [], [], np.ones(1), 0.0, 0.0), problem.monitor, problem.choice, 0.0)
    monkeypatch.setattr(growth, "infer", lambda *_: found)
    monkeypatch.setattr(growth, "_left_open", lambda *_: True)
    monkeypatch.setattr(growth, "_assess", lambda *_: (Loss(100.0, 5), problem.program))
    monkeypatch.setattr(growth, "_next", lambda *given: asked.append(given[-1]))
    for bound in ((), (-10.0,)):
        data = cast("Any", SimpleNamespace(rows=5))
        growth._grown(Task(problem.program, data, problem.options), *bound)
    assert asked == [1.0, growth.ALONE] and growth.ALONE > 1.0
