"""A progress bar for long fits: step, bound and time left on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from gpdsl.inference.monitor import Report
from gpdsl.shown import in_notebook

SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_CHANGES = 10.0, 0.2
PATIENCE = 3.0
"""Seconds that nobody who did not ask for a bar has to look at one."""


@contextmanager
def progress_bar(
    also: Callable[[Report], None] | None = None, patience: float = 0.0
) -> Iterator[Callable[[Report], None]]:
    """A callback for `Model.fit` that shows progress on standard error; `also` is called with every report too.

    Fits that take less than so many seconds show nothing.
    """
    console = Console(stderr=True)
    show = _output if in_notebook() else _bar if console.is_terminal else _lines
    begun = time.monotonic()
    with ExitStack() as stack:
        callback = None if patience else stack.enter_context(show(console))

        def both(report: Report) -> None:
            nonlocal callback
            if callback is None and time.monotonic() - begun >= patience:
                callback = stack.enter_context(show(console))
            if callback is not None:
                callback(report)
            if also is not None:
                also(report)

        yield both


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[Report], None]]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(
            "step {task.completed:.0f} of at most {task.total:.0f}  elbo {task.fields[elbo]}  {task.fields[left]}"
            "{task.fields[simulator]}"
        ),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("compiling", total=1, elbo="–", left="", simulator="")

        def callback(report: Report) -> None:
            left = "" if report.remaining is None else f"at most {duration(report.remaining)} left"
            bar.update(
                task,
                description=report.stage,
                completed=report.step,
                total=report.steps,
                elbo=f"{report.elbo:.2f}",
                left=left,
                simulator=_simulator(report),
            )

        yield callback


@contextmanager
def _output(console: Console) -> Iterator[Callable[[Report], None]]:
    """One line in the output of a cell of a notebook, which changes and goes when the fit ends."""
    from IPython.display import Pretty, display

    line, last = display(Pretty("compiling"), display_id=True), 0.0

    def callback(report: Report) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_CHANGES:
            last = time.monotonic()
            line.update(Pretty(f"{report.stage}, {_said(report)}"))

    try:
        yield callback
    finally:
        line.update(Pretty(""))


@contextmanager
def _lines(console: Console) -> Iterator[Callable[[Report], None]]:
    last = -SECONDS_BETWEEN_LINES

    def callback(report: Report) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            console.print(_said(report), highlight=False)

    yield callback


def _said(report: Report) -> str:
    left = "" if report.remaining is None else f", at most {duration(report.remaining)} left"
    return f"step {report.step} of at most {report.steps}: elbo {report.elbo:.2f}{left}{_simulator(report)}"


def _simulator(report: Report) -> str:
    """What opaque functions cost so far; nothing without any."""
    return f"; {report.usage.line(report.elapsed)}" if report.usage.evaluations else ""


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
