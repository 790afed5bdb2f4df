"""What the progress of a fit shows of the simulator, on a terminal and elsewhere."""

from __future__ import annotations

import io

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
