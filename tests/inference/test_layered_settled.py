"""Layers of few rows: fits that settle, never below where they start, and passes that are spread evenly."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.driver import Task
from gpdsl.inference.inducing import growth
from gpdsl.inference.layered import engine, planning, settled
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Found, Monitor, Result
from gpdsl.inference.sampling import spread_normals

ONE = "input x : real\noutput y : real\nparam ell : positive = 1\nparam sigma : positive = 0.1\n"
STEP = (
    ONE
    + """param ell_h : positive = 1
latent h(x) ~ GP(0, RBF(ell_h))
latent f(h) ~ GP(0, RBF(ell))
y ~ Normal(f, sigma)"""
)
ONE += "latent f(x) ~ GP(0, RBF(ell))\ny ~ Normal(f, sigma)"
PASSING = STEP.replace("GP(0, RBF(ell_h))", "GP(x, s * RBF(ell_h))") + "\nparam s : positive = 0.0001"


def step(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, rows)
    return {"x": x, "y": np.where(x > 0.2, 1.0, -1.0) + 0.1 * rng.standard_normal(rows)}


def test_spread_normals_are_normal_in_opposite_pairs_one_from_every_share() -> None:
    found = np.asarray(spread_normals(jax.random.key(0), (6, 2000, 2), jnp.dtype(float)))
    np.testing.assert_array_equal(found[:3], -found[3:])
    shares = np.sort(np.floor(3 * 2 * stats.norm.sf(np.abs(found[:3]))), axis=0)
    np.testing.assert_array_equal(shares, np.broadcast_to(np.arange(3.0)[:, None, None], shares.shape))
    for k in range(2):
        assert stats.kstest(found[0, :, k], stats.norm.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(found[:3].reshape(-1, 2).T)[0, 1]) < 4 / np.sqrt(6000)


@pytest.mark.slow
def test_two_layers_of_few_rows_begin_near_one_and_settle_far_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SETTLING", 360)
    data = step(60)
    one, fit = (gpdsl.compile(each).fit(data, progress=False) for each in (ONE, STEP))
    assert fit.history[0, 1] > one.elbo - 40
    assert fit.elbo > one.elbo + 10
    assert fit.message.startswith("converged: 120 more steps") == (not fit.notes)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "least"), [(STEP, 70.0), (PASSING, 100.0)])
def test_two_layers_of_a_step_have_the_bound_of_long_searches(text: str, least: float) -> None:
    """On 200 rows, where one layer has 22 nats."""
    assert gpdsl.compile(text).fit(step(200), progress=False).elbo > least


def test_a_fit_whose_steps_lead_astray_ends_where_it_began() -> None:
    data = step(40)
    one = gpdsl.compile(ONE).fit(data, progress=False)
    lost = gpdsl.compile(PASSING).fit(data, progress=False, steps=5, learning_rate=30.0, inducing=20)
    assert lost.history[-1, 1] < one.elbo - 100
    assert one.elbo - 10 < lost.elbo < one.elbo + 0.1


def test_steps_that_are_asked_for_are_taken_in_one_cycle() -> None:
    fit = gpdsl.compile(STEP).fit(step(30), progress=False, steps=60, inducing=10)
    assert fit.history[-1, 0] == 60
    assert fit.message == "all steps done"


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"dtype": "float32"}, marks=pytest.mark.slow)], ids=["double", "single"]
)
def test_counts_are_followed_by_half_steps(options: dict[str, Any]) -> None:
    """The last layer of a likelihood that is not Gaussian is where natural gradients alone bring it."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, 50)
    text = "input x : real\noutput n : count\nlatent h(x) ~ GP(x, 1e-10 * RBF(1))\nlatent f(h) ~ GP(0, RBF(1))\n"
    text += "n ~ Poisson(exp(f))"
    one = "input x : real\noutput n : count\nlatent f(x) ~ GP(0, RBF(1))\nn ~ Poisson(exp(f))"
    data = {"x": x, "n": rng.poisson(np.exp(x))}
    fit = gpdsl.compile(text).fit(data, progress=False, steps=100, inducing=20, **options)
    known = gpdsl.compile(one).fit(data, progress=False, inducing=20)
    np.testing.assert_allclose(fit.elbo, known.elbo, atol=0.01 if not options else 0.1)


def _found(elbo: float, interrupted: bool = False) -> Any:
    result = Result({}, [], [], np.ones(1), elbo, 0.0, "done", interrupted)
    return Found(result, Monitor(1), SimpleNamespace(dense=False, exact=False), 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "both", "tiniest", "ends"),
    [
        (-20.0, None, None, -10.0),  # one layer is below, and none goes on from it
        (5.0, 6.0, None, 6.0),
        (5.0, 2.0, 6.0, 6.0),  # with next to no variance below what is lost is found
        (5.0, 2.0, 3.0, 3.0),
    ],
)
def test_layers_go_on_from_one_where_that_is_higher(
    one: float, both: Any, tiniest: Any, ends: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One layer that is higher all the same is told of in a note."""
    answers = iter([_found(each) for each in (both, tiniest) if each is not None])
    found = _settled(monkeypatch, _found(-10.0), _found(one), lambda *_: next(answers))
    assert found[0].elbo == ends and next(answers, None) is None
    assert any("a bound that is 2 nats higher" in note for note in found[0].notes) == (ends == 3.0)


@pytest.mark.parametrize("where", ["one layer", "all layers"])
def test_an_interrupt_while_layers_go_on_keeps_what_was_found(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> Any:
        raise KeyboardInterrupt

    found = _settled(monkeypatch, _found(-10.0), _found(5.0, interrupted=where == "one layer"), stop)
    assert found[0].elbo == -10.0 and found[0].interrupted and found[0].message == settled.INTERRUPTED


def _settled(monkeypatch: pytest.MonkeyPatch, found: Any, one: Any, fit_all: Any) -> Any:
    """What `no_worse_than_one` makes of 100 rows, a fit of one layer, and those that go on from it."""
    for name, value in (("may_go_on", True), ("_fit_of_one", (None, one)), ("_from", (None, ())), ("passing_on", None)):
        monkeypatch.setattr(settled, name, lambda *_, value=value: value)
    monkeypatch.setattr(settled, "may_be_none", lambda _: True)
    task: Any = Task(None, SimpleNamespace(rows=100), None)  # type: ignore[arg-type]
    return settled.no_worse_than_one(task, found, None, fit_all)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "cycles", "converged"),
    [
        ([-100.0, -50.0, -49.99], 2, True),  # two cycles at least, the second of which gains next to nothing
        ([-100.0, -99.99, -99.98], 2, True),
        ([-100.0, -50.0, -60.0], 2, True),  # a loss is no gain, and the best place is gone back to
        ([-100.0, -50.0, -40.0, -30.0], 3, False),
        ([-100.0, -120.0, -90.0, -89.0], 3, False),  # gains are above the best of all before
        ([10.0, 20.0, 30.0, 30.01], 3, True),
    ],
)
def test_cycles_go_on_from_the_best_place_while_they_gain(values: list[float], cycles: int, converged: bool) -> None:
    search: Any = object.__new__(settled.SettledSearch)
    left, began = iter(enumerate(values)), list[int]()
    search.__dict__.update(done=0, slight=0.05)

    def steps(to: int) -> str:
        began.append(search.point)
        search.done = to
        return settled.ALL_DONE

    def end() -> tuple[float, tuple[int, int, int]]:
        number, value = next(left)
        return value, (number, number, number)

    search.__dict__.update(_until=steps, _end=end)
    search.ends, search.point = [search._end()], 0
    message = search._cycles(300, 100)
    assert (len(search.ends) - 1, search.done) == (cycles, 100 * cycles)
    assert message.startswith("converged: 100 more steps") if converged else message == settled.ALL_DONE
    best = [int(np.argmax(values[: k + 1])) for k in range(cycles + 1)]
    assert (began, search.point) == (best[:-1], best[-1])
    assert search.gain == pytest.approx(values[cycles] - max(values[:cycles]))


@pytest.mark.parametrize(("gain", "said"), [(0.04, ()), (3.0, "the last 120 of 600 steps have raised it by 3 nats")])
def test_a_last_cycle_that_has_gained_is_told(gain: float, said: Any) -> None:
    ends = [(0.0, None)] * settled.FEWEST
    search = SimpleNamespace(untried=False, done=600, limit=600, length=120, slight=0.05, gain=gain, ends=ends)
    notes = settled.SettledSearch._notes(search)  # type: ignore[arg-type]
    assert notes == () if not said else said in notes[0]
    search.untried = True
    assert settled.SettledSearch._notes(search) == (settled.UNTRIED,)  # type: ignore[arg-type]


@dataclass
class Chosen:
    """What the search for layers knows of their points."""

    inducing: int
    reasons: dict[str, str] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("later", "points", "said"),
    [
        (-4.0, 5, "the 5 of one layer, from which all go on"),
        (-4.0, 50, "50 inducing points of the last layer give more than depth gives with 20"),
        (-14.0, 50, ""),
    ],
)
def test_of_layers_that_go_on_the_better_are_kept_with_the_reason(
    later: float, points: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an interrupt of those that go on is one of the fit, whichever is kept."""
    found = Found(*_found(-9.0)[:2], Chosen(20), 0.1)
    found[1].history[:] = [(7, -9.0, 1.0)]
    on = Found(*_found(later, interrupted=True)[:2], Chosen(points), 0.2)
    on[1].history[:] = [(2, later, 1.0)]
    monkeypatch.setattr(growth, "infer", lambda *_: on)
    data: Any = SimpleNamespace(rows=60)
    start: Any = SimpleNamespace(inducing=[range(points), range(3)])
    task = Task(None, data, Options())  # type: ignore[arg-type]
    best, history, choice, jitter = growth._layers_go_on(task, found, None, start)  # type: ignore[arg-type]
    assert best.elbo == max(later, -9.0) and best.interrupted and [step for step, *_ in history.history] == [7, 9]
    assert (said in choice.reasons["inducing"], jitter) == (True, 0.2) if said else (choice, jitter) == (found[2], 0.1)


def test_an_interrupt_between_fits_that_grow_keeps_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(growth, "infer", lambda *_: _found(-3.0))
    monkeypatch.setattr(growth, "_left_open", lambda *_: True)
    monkeypatch.setattr(growth, "_assess", stop)
    best = growth._grown(Task(None, SimpleNamespace(rows=5), Options()))[0]  # type: ignore[arg-type]
    assert best.elbo == -3.0 and best.interrupted


@pytest.mark.parametrize("conjugate", [True, False])
@pytest.mark.parametrize(("slow", "samples", "width"), [(False, 8, 2), (False, 8, 1), (False, 0, 2), (True, 8, 2)])
def test_the_last_layer_goes_less_far_in_the_end_where_passes_are_noisy(
    conjugate: bool, slow: bool, samples: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All the way, or half of it where nothing is conjugate; a tenth of the steps falls from 1, as a cosine does."""
    monkeypatch.setattr(settled, "inner_width", lambda _: width)
    problem = SimpleNamespace(program=SimpleNamespace(conjugate=conjugate), choice=SimpleNamespace(samples=samples))
    search: Any = object.__new__(settled.SettledSearch)
    search.__dict__.update(problem=problem, slow=slow, begun=3, length=100, pace=0.2)
    steps = 3 + np.arange(100)
    cosine = engine.SLOWEST + (1 - engine.SLOWEST) * 0.5 * (1 + np.cos(np.pi * np.arange(100) / 100))
    found = search._lengths(steps)
    np.testing.assert_allclose(found[:, 0], 0.2 * np.minimum(np.arange(100) / 100 / engine.RISE, 1) * cosine)
    if slow:
        np.testing.assert_allclose(found[:, 1], engine.SHARE * cosine)
        return
    fall = np.minimum(5.0 * cosine, 1.0) if samples and width > 1 else np.ones(100)
    np.testing.assert_allclose(found[:, 1], fall * (1.0 if conjugate else 0.5))
