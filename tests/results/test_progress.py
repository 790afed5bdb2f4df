"""What the progress of a fit shows of the simulator, on a terminal and elsewhere."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import gpdsl
from gpdsl.forward import Usage
from gpdsl.inference import problem
from gpdsl.inference.problem import Monitor, Report
from gpdsl.results import checkpoint

SHOWN = "12,800 evaluations, 6,400/s, 50% of the time inside"


def report(usage: Usage) -> Report:
    return Report(3, 10, -1.5, 4.0, 9.0, "full posterior, natural", usage)


def test_a_fit_that_is_soon_done_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody asked; the first report after three seconds has a bar. Others than `show` hear all of them."""
    written, now, told = io.StringIO(), [0.0], list[Report]()
    console = Console(file=written, force_terminal=True, width=200, color_system=None)
    monkeypatch.setattr(checkpoint, "Console", lambda **how: console)
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    with checkpoint.progress_bar(told.append, checkpoint.PATIENCE) as callback:
        callback(report(Usage()))
        assert written.getvalue() == ""
        now[0] = 3.5
        callback(report(Usage()))
    assert "step 3 of at most 10" in written.getvalue()
    assert len(told) == 2


def test_the_time_left_after_a_search_is_that_of_its_own_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of eight settings in six seconds leave eighteen, however long the search before them took."""
    now, told = [100.0], list[Report]()
    monkeypatch.setattr(problem.time, "perf_counter", lambda: now[0])
    one = Monitor(10, told.append, _start=0.0)
    one.explored(0, 8)
    now[0] += 6.0
    one.explored(2, 8)
    assert [(each.step, each.steps, each.remaining) for each in told] == [(0, 8, None), (2, 8, 18.0)]


@pytest.mark.parametrize(("asked", "shown"), [(None, True), (True, True), (False, False)])
def test_long_fits_show_a_bar_where_somebody_looks(
    asked: bool | None, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(checkpoint, "Console", lambda **how: Console(file=written, width=200))
    monkeypatch.setattr(checkpoint, "PATIENCE", 1e-9)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n")
    model.fit({"x": [0.0, 1.0], "y": [0.0, 1.0]}, progress=asked)
    assert ("step" in written.getvalue()) == shown


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(("usage", "shown"), [(Usage(12_800, 0, 0, 0, 2.0), True), (Usage(), False)])
def test_evaluations_are_shown_where_there_are_any(
    usage: Usage, shown: bool, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=200, color_system=None)
    monkeypatch.setattr(checkpoint, "Console", lambda **how: console)
    told: list[Report] = []
    with checkpoint.progress_bar(told.append) as callback:
        callback(report(usage))
    assert (SHOWN in written.getvalue()) == shown
    assert "step 3 of at most 10" in written.getvalue()
    assert [each.step for each in told] == [3]


def test_a_notebook_shows_one_line_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the two functions of IPython that are used; `ipykernel` itself is no part of the tests."""
    written: list[Any] = []

    def display(shown: Any, display_id: bool) -> Any:
        assert display_id
        written.append(shown)
        return SimpleNamespace(update=written.append)

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    module = SimpleNamespace(display=display, Pretty=str)
    monkeypatch.setitem(sys.modules, "IPython.display", module)  # type: ignore[arg-type]
    with checkpoint.progress_bar() as callback:
        callback(report(Usage()))
        callback(report(Usage()))
    assert written == ["compiling", "full posterior, natural, step 3 of at most 10: elbo -1.50, at most 9 s left", ""]


def test_a_callback_that_cannot_be_called_is_refused_before_the_fit() -> None:
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n")
    with pytest.raises(gpdsl.GpdslError, match="callback: expected a function that takes a Progress, got 3"):
        model.fit({"x": [0.0, 1.0], "y": [0.0, 1.0]}, callback=3)  # type: ignore[arg-type]
