"""Signals during a fit: noted wherever they come, honoured between steps, and the handlers are as before afterwards."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import gpdsl
from gpdsl.inference import problem as problems
from gpdsl.inference.ascent.lbfgs import Remembered, looked_at, maximise
from gpdsl.inference.watch import honour_interrupts, loading, watching

COUNTS = """
model counts
input x : real
output n : count
param ell : positive = 1
param s2 : positive = 1
latent f(x) ~ GP(0, s2 * RBF(ell))
n ~ Poisson(exp(f))
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM)

ENGINES: dict[str, dict[str, Any]] = {
    "natural": {},
    "nothing to learn": {"fixed": ["ell", "s2"]},
    "lbfgs": {"optimizer": "lbfgs"},
    "mixture": {"posterior": "mixture(2)"},
    "adam": {"optimizer": "adam", "batch": 10, "inducing": 5},
    "minibatch natural": {"batch": 10, "inducing": 5},
    "alternating": {"schedule": "alternating"},
    "ep": {"engine": "ep"},
    "ep together": {"engine": "ep", "optimizer": "adam"},
    "ep minibatch": {"engine": "ep", "batch": 10, "inducing": 5},
    "qsgp": {"engine": "qsgp", "features": 20, "batch": 10, "start_rows": 10},
    "qsgp sampled": {"engine": "qsgp", "features": 20, "batch": 10, "feature_sums": "sampled", "feature_batch": 5},
}


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """Those of a Python program that was started in the foreground."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 5, 30)
    return {"x": x, "n": rng.poisson(np.exp(np.sin(x)))}


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noted_and_honoured_later_and_the_next_one_at_once(number: signal.Signals) -> None:
    handlers = [signal.getsignal(each) for each in SIGNALS]
    with watching() as watch:
        honour_interrupts()
        signal.raise_signal(number)
        assert watch.asked
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                honour_interrupts()
        for second in SIGNALS:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(second)
    assert [signal.getsignal(each) for each in SIGNALS] == handlers
    honour_interrupts()


def test_who_has_chosen_another_handler_keeps_it() -> None:
    for handler in (signal.SIG_IGN, lambda *_: None):
        signal.signal(signal.SIGINT, handler)
        with watching() as watch:
            assert signal.getsignal(signal.SIGINT) is handler
            signal.raise_signal(signal.SIGINT)
        assert not watch.asked and signal.getsignal(signal.SIGINT) is handler


def test_a_fit_inside_a_fit_is_under_the_same_watch() -> None:
    with watching() as outer, watching() as inner:
        assert inner is outer
    with pytest.raises(ZeroDivisionError), watching():
        1 / 0  # noqa: B018
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_is_not_asked() -> None:
    found: list[bool] = []

    def work() -> None:
        with watching() as watch:
            honour_interrupts()
            found.append(watch.asked)

    with watching():
        signal.raise_signal(signal.SIGINT)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [False]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_modules_are_loaded_comes_after_them(number: signal.Signals) -> None:
    for outer in (partial(watching, waits=False), watching, loading):
        loaded = []
        with pytest.raises(KeyboardInterrupt), outer(), loading():
            signal.raise_signal(number)
            loaded.append(1)
        assert loaded
    with watching() as watch:
        signal.raise_signal(number)
        with loading():  # a fit that was asked before ends in its own way
            loaded.append(2)
    assert watch.number == number and loaded == [1, 2]


@pytest.mark.parametrize("number", SIGNALS)
def test_under_a_watch_a_signal_is_waited_with_in_fits_only(number: signal.Signals) -> None:
    with watching(waits=False) as watch:
        with watching() as inner:
            assert inner is watch
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert watch.asked and watch.number == number


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupt_that_comes_where_exceptions_are_lost_comes_again(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: said.append(what.exc_type))

    class Finalised:
        def __init__(self, last: Callable[[], object]) -> None:
            self.last = last

        def __del__(self) -> None:
            self.last()

    with watching(waits=False) as watch:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            Finalised(lambda: signal.raise_signal(number))
            time.sleep(10)
        assert watch.number == number and said == []
        assert time.monotonic() - start < 5  # it has ended what the main thread waits for
        Finalised(lambda: 1 / 0)
        assert said == [ZeroDivisionError]


def test_a_search_ends_after_its_first_evaluation() -> None:
    with watching():
        signal.raise_signal(signal.SIGINT)
        seen = Remembered(lambda x: (-float((x - 3.0) ** 2), -2 * (x - 3.0)), np.float64(0.0))
        with pytest.raises(KeyboardInterrupt):
            maximise(seen, np.float64(0.0), steps=50, tolerance=1e-9, report=lambda *_: None)
        assert seen.best.value == -9.0
        nothing = Remembered(lambda x: (x, x), 2.0)
        with pytest.raises(KeyboardInterrupt):
            looked_at(nothing, 2.0, lambda *_: honour_interrupts())
        assert nothing.best.value == 2.0


LONGER = ("nothing to learn", "mixture", "alternating", "ep together", "ep minibatch", "qsgp", "qsgp sampled")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LONGER else []) for n in ENGINES])
def test_an_interrupt_while_a_program_compiles_ends_the_fit_at_its_first_step(
    name: str, data: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAX may drop what is raised there; the fit must end nevertheless, with a state."""
    compile_, pressed = problems.jit, []

    def jit(function: Callable[..., Any], **how: Any) -> Any:
        def traced(*arguments: Any) -> Any:
            if not pressed:
                pressed.append(1)
                signal.raise_signal(signal.SIGINT)
            return function(*arguments)

        return compile_(traced, **how)

    monkeypatch.setattr(problems, "jit", jit)
    steps: list[int] = []
    fit = gpdsl.compile(COUNTS).fit(data, callback=lambda report: steps.append(report.step), **ENGINES[name])
    assert pressed and fit.interrupted and np.isfinite(fit.elbo)
    assert len(steps) <= 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_between_the_stages_of_a_growing_fit_keeps_the_stage_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gpdsl.inference.inducing import growth

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 10, 40))
    seen = {"x": x, "n": rng.poisson(np.exp(np.sin(x)))}
    monkeypatch.setattr(growth, "_left_open", lambda *_: True)
    monkeypatch.setattr(growth, "_assess", stop)
    fit = gpdsl.compile(COUNTS).fit(seen, inducing=6)
    assert fit.interrupted and np.isfinite(fit.elbo)


def test_an_interrupt_before_the_first_state_is_one(data: dict[str, np.ndarray]) -> None:
    model, before = gpdsl.compile(COUNTS), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "value_and_grad", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        model.fit(data, optimizer="lbfgs")
    assert signal.getsignal(signal.SIGINT) is before
