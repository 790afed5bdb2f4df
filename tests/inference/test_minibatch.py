"""Natural gradients on minibatches: the optimum of the batch engine, within noise; stops, failures, refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.natural.minibatch import MinibatchSearch, Schedule, settled
from gpdsl.inference.problem import Monitor, Report
from tests.inference.conftest import COUNTS

Case = tuple[gpdsl.Model, dict[str, np.ndarray]]


@pytest.mark.parametrize("case", [pytest.param("regression", marks=pytest.mark.slow), "counts"])
def test_all_rows_in_one_batch_end_at_the_batch_optimum(case: str, request: pytest.FixtureRequest) -> None:
    model, data = request.getfixturevalue(case)
    names = list(model.declarations.params)
    rows = len(data["x"])
    batch = model.fit(data, inducing=8, fixed=names, tolerance=1e-13)
    natural = model.fit(data, inducing=8, fixed=names, batch=rows, steps=100)
    assert natural.choice.optimizer == "natural"
    assert natural.elbo == pytest.approx(batch.elbo, abs=1e-6)
    for name in ("mean", "variance"):
        ours, theirs = getattr(natural.predict(data), name)("f"), getattr(batch.predict(data), name)("f")
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def _many(rng: np.random.Generator) -> dict[str, np.ndarray]:
    x = rng.uniform(-3, 3, 600)
    return {"x": x, "n": rng.poisson(np.exp(np.sin(2 * x) + 0.3))}


def test_minibatches_learn_what_all_rows_say(counts: Case, rng: np.random.Generator) -> None:
    model, data = counts[0], _many(rng)
    batch = model.fit(data, inducing=10)
    natural = model.fit(data, inducing=10, batch=100, steps=300)
    assert abs(natural.elbo - batch.elbo) < 4 * natural.elbo_se + 0.5
    assert natural.parameters["ell"] == pytest.approx(batch.parameters["ell"], rel=0.15)
    sd = np.sqrt(batch.predict(data).variance("f"))
    assert np.abs((natural.predict(data).mean("f") - batch.predict(data).mean("f")) / sd).mean() < 0.4


@pytest.mark.slow
def test_single_precision_ends_at_the_same_bound(counts: Case, rng: np.random.Generator) -> None:
    model, data = counts[0], _many(rng)
    double, single = (
        model.fit(data, inducing=10, batch=100, steps=50, fixed=["s2", "ell"], dtype=dtype)
        for dtype in ("float64", "float32")
    )
    assert single.elbo == pytest.approx(double.elbo, abs=0.3)


def test_few_samples_give_precisions_that_hold(rng: np.random.Generator) -> None:
    """Softmax from ten samples a row: no step is refused, and the classes are told apart."""
    text = """
    index c in 1..3
    input x : real
    output y : label[c]
    latent f[c](x) ~ GP(0, 4 * RBF(1))
    y ~ Categorical(logits = f)
    """
    x = rng.uniform(-3, 3, 400)
    data = {"x": x, "y": 1 + (x > -1).astype(int) + (x > 1).astype(int)}
    model = gpdsl.compile(text.replace("\n    ", "\n"))
    fit = model.fit(data, inducing=8, batch=40, samples=10, steps=100)
    assert np.isfinite(fit.history[:, 1]).all()
    assert gpdsl.score.error_rate(fit, data) < 0.05
    whole = model.fit(data, inducing=8, posterior="full", samples=200)
    assert abs(fit.elbo - whole.elbo) < 4 * fit.elbo_se + 3


def test_products_leave_the_start_where_nothing_pulls(rng: np.random.Generator) -> None:
    x = rng.uniform(-2, 2, 300)
    y = np.sin(2 * x) * x + 0.1 * rng.standard_normal(300)
    text = """
    input x : real
    output y : real
    param sigma : positive = 0.2
    latent f(x) ~ GP(0, RBF(1))
    latent g(x) ~ GP(0, RBF(1))
    y ~ Normal(f * g, sigma)
    """
    fit = gpdsl.compile(text.replace("\n    ", "\n")).fit({"x": x, "y": y}, inducing=12, batch=60, steps=250)
    assert fit.parameters["sigma"] < 0.2


def test_steps_that_are_far_too_long_are_taken_back(counts: Case, rng: np.random.Generator) -> None:
    model, data = counts[0], _many(rng)
    fit = model.fit(data, inducing=8, batch=100, steps=50, learning_rate=1000.0)
    assert np.isfinite(fit.elbo)
    assert all(np.isfinite(value).all() for value in fit.parameters.values())


def test_an_interruption_keeps_what_is_there(counts: Case, rng: np.random.Generator) -> None:
    def stop(report: Report) -> None:
        if report.step >= 100:
            raise KeyboardInterrupt

    fit = counts[0].fit(_many(rng), inducing=8, batch=100, callback=stop)
    assert fit.interrupted
    assert len(fit.history) == 2
    assert np.isfinite(fit.elbo)


def test_the_plan_says_why(counts: Case, rng: np.random.Generator) -> None:
    model, data = counts[0], _many(rng)
    assert "natural gradients for q, Adam for the rest" in model.explain(data, inducing=8, batch=100)
    assert "adam" in model.explain(data, inducing=8, batch=100, posterior="diagonal")
    rows = gpdsl.compile(model.declarations.source.text.replace("latent f", "row w ~ Normal(0, 1)\nlatent f", 1))
    planned = rows.explain(data, inducing=8, batch=100)
    assert "row variables have a factor of q in every row" in planned
    with pytest.raises(GpdslError, match="does not cover row variables"):
        rows.fit(data, inducing=8, batch=100, optimizer="natural")


def test_the_pace_falls_to_nothing_and_the_sites_to_the_share_of_a_batch() -> None:
    schedule = Schedule(400, 0.01, 0.1)
    pace = schedule.paces(0, 400)
    assert pace.length[0] == pytest.approx(0.1)
    assert pace.length[-1] < 1e-4 < pace.length[200] / 2
    assert pace.gain[0] == pytest.approx(0.12)
    assert pace.gain[-1] == pytest.approx(0.01, rel=0.01)
    assert Schedule(400, 0.5, 0.1).paces(0, 400).gain[-1] == pytest.approx(0.01, rel=0.01)
    assert pace.keep[:9].tolist() == [1.0] * 9
    np.testing.assert_allclose(pace.keep[9:] + pace.gain[9:], 1.0)
    schedule.finish_from(100)
    assert schedule.end == 200


def test_inducing_inputs_move_in_units_of_their_spread(regression: Case) -> None:
    """Where the inputs are measured in other units, they end at the same places."""
    model, rng = regression[0], np.random.default_rng(5)
    x = rng.normal(size=(400, 2))
    data = {"x": x, "y": np.sin(3 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=400)}
    options = {"inducing": 6, "batch": 50, "learn_inducing": True, "steps": 150}
    plain = model.fit(data, **options)
    other = model.fit({**data, "x": 1e-3 * x}, init={"ell": 0.0008}, **options)
    assert other.elbo == pytest.approx(plain.elbo, rel=1e-3)
    np.testing.assert_allclose(1e3 * other.inducing[0].points, plain.inducing[0].points, rtol=0.01, atol=0.01)


@pytest.mark.slow
def test_a_search_that_has_settled_ends_as_gently_as_it_went(rng: np.random.Generator) -> None:
    """Twenty thousand rows: it stops by itself, as high as the batch optimum."""
    x = rng.uniform(-3, 3, size=20_000)
    data = {"x": x, "n": rng.poisson(np.exp(np.sin(2 * x)))}
    model = gpdsl.compile(COUNTS)
    few = model.fit(data, inducing=12, batch=500, seed=1)
    assert few.message.startswith("converged")
    assert 600 <= few.history[-1, 0] < 1000
    best = model.fit(data, inducing=12, batch=0, seed=1)
    assert abs(few.elbo - best.elbo) < 3 * few.elbo_se + 1e-3 * abs(best.elbo)


def test_a_bound_that_rises_has_not_settled(rng: np.random.Generator) -> None:
    noise = rng.standard_normal(400)
    assert settled(list(noise - np.mean(noise[-100:]) + np.mean(noise[-200:-100])))
    assert not settled(list(noise + 0.02 * np.arange(400)))
    assert not settled(list(noise[:200]))


def test_a_slow_rise_is_seen_through_the_noise_of_the_rows_drawn(rng: np.random.Generator) -> None:
    """What a minibatch lacks, the others of its pass over the data have: whole passes are compared."""
    epoch, steps = 20, 600
    noise = rng.standard_normal((steps // epoch, epoch))
    noise -= noise.mean(axis=1, keepdims=True)
    rise = list(noise.ravel() + 1e-4 * np.arange(steps))
    assert not settled(rise, epoch)
    assert any(settled(rise[:end]) for end in range(301, steps, 7))
    assert settled(list(noise.ravel()[:-epoch]) + [-1.0] * epoch, epoch)


@pytest.mark.parametrize("optimizer", ["natural", pytest.param("adam", marks=pytest.mark.slow)])
def test_the_reported_bound_is_that_of_all_rows(counts: Case, rng: np.random.Generator, optimizer: str) -> None:
    """As the batch engine finds it when it starts at the end of the minibatch fit and makes no step."""
    model, data = counts[0], _many(rng)
    fit = model.fit(data, inducing=10, batch=50, steps=60, optimizer=optimizer, seed=2)
    assert fit.elbo_se == 0.0
    rest = {"inducing": 10, "fixed": ["s2", "ell"], "posterior": "full", "batch": 0}
    still = model.fit(data, start=fit, optimizer="adam", learning_rate=1e-9, steps=1, **rest)
    assert still.elbo == pytest.approx(fit.elbo, abs=1e-4)


@pytest.mark.parametrize("failures", [2, 99])
def test_chunks_that_end_in_no_number_are_made_anew_with_shorter_steps(failures: int) -> None:
    begun: list[tuple[int, float]] = []
    search: Any = SimpleNamespace(schedule=Schedule(100, 0.1, 0.01), size=50, trace=[], at=None)
    search.problem = SimpleNamespace(epoch=1, monitor=Monitor(100))

    def chunk(done: int) -> Any:
        begun.append((done, search.schedule.rate))
        failed = len(begun) <= failures
        return (np.full(3, np.nan if failed else done),), np.full(50, -1.0 - failed)

    search._chunk = chunk
    message = MinibatchSearch._all_steps(search)
    if failures == 99:
        assert message == "stopped: the bound is not a finite number, however small the steps"
        assert len(begun) == 7 and search.at is None
        return
    assert [done for done, _ in begun] == [0, 0, 0, 50]
    np.testing.assert_allclose([rate for _, rate in begun], [0.01, 0.003, 0.0009, 0.0009])
    assert search.at[0][0] == 50 and search.trace == [-1.0] * 100
    assert [step for step, *_ in search.problem.monitor.history] == [50, 100]
