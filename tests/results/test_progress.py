"""What the progress of a fit shows of the simulator, on a terminal and elsewhere."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from gpdsl.forward import Usage
from gpdsl.inference.monitor import Report
from gpdsl.results import progress

SHOWN = "12,800 evaluations, 6,400/s, 50% of the time inside"


def report(usage: Usage) -> Report:
    return Report(3, 10, -1.5, 4.0, 9.0, "full posterior, natural", usage)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(("usage", "shown"), [(Usage(12_800, 0, 0, 0, 2.0), True), (Usage(), False)])
def test_evaluations_are_shown_where_there_are_any(
    usage: Usage, shown: bool, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=200, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda **how: console)
    told: list[Report] = []
    with progress.progress_bar(told.append) as callback:
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
    with progress.progress_bar() as callback:
        callback(report(Usage()))
        callback(report(Usage()))
    assert written == ["compiling", "full posterior, natural, step 3 of at most 10: elbo -1.50, at most 9 s left", ""]
