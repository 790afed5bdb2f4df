"""What a long fit shows and keeps while it goes on: a progress bar, and its best state in a file every minute or so."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from gpdsl.data import Data
from gpdsl.errors import GpdslError, GpdslWarning
from gpdsl.inference.plan.options import Choice, Options, make_options, settled
from gpdsl.inference.problem import Monitor, Report, Result
from gpdsl.language.formatter import same_statements
from gpdsl.results.fit import Fit
from gpdsl.results.persistence import header_of, load_fit, save_fit
from gpdsl.shown import in_notebook

if TYPE_CHECKING:
    from gpdsl.model import Model


# A progress bar for long fits: step, bound and time left on a terminal, sparse lines elsewhere.

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
                elbo=_reached(report),
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
    return f"step {report.step} of at most {report.steps}: elbo {_reached(report)}{left}{_simulator(report)}"


def _reached(report: Report) -> str:
    """The bound; a dash before the first step."""
    return f"{report.elbo:.2f}" if report.elbo > -math.inf else "–"


def _simulator(report: Report) -> str:
    """What opaque functions cost so far; nothing without any."""
    return f"; {report.usage.line(report.elapsed)}" if report.usage.evaluations else ""


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# The best state of a fit that goes on, kept in a file every minute or so, and going on from it.

EVERY = 60.0
"""Seconds between two files."""

SHARE = 0.05
"""Of the time of a fit that keeping its state may take."""

KEPT = "kept while the fit went on: resume=True goes on from here"
"""Message of a state that is no end."""

LEAST = 0.1
"""Of the steps of a noisy search, that one that goes on makes at least."""

NOISE = 4.0
"""Standard errors by which a bound with noise is the higher one."""

Made = Callable[[Result, Choice, float, Monitor], Fit]


@dataclass
class Checkpoint:
    """Keeps the best of the searches that have ended and of the one under way, whichever has the higher bound.

    `made` makes a fit of a result. Within a search the latest state is the best one, as its engine sees it.
    """

    path: Path
    made: Made
    best: Fit | None = None
    """The best end of a search, or the fit that this one goes on from."""
    fresh: bool = False
    """Whether that is not in the file yet."""
    due: float = field(default_factory=lambda: time.perf_counter() + EVERY)
    latest: tuple[Choice, float, Monitor, Callable[[], Result]] | None = None
    """The state of the search under way that is in no file yet."""

    def __call__(
        self, choice: Choice, jitter: float, monitor: Monitor, state: Callable[[], Result], ended: bool
    ) -> None:
        """See `inference.driver.Keep`."""
        begun = time.perf_counter()
        self.latest = None if ended else (choice, jitter, monitor, state)
        if ended:
            found = self._fit(state(), choice, jitter, monitor)
            if self._better(found):
                self.best, self.fresh = found, True
            return
        if begun < self.due:
            return
        found = self._fit(state(), choice, jitter, monitor)
        if self._better(found):
            self._save(found)
        elif self.fresh and self.best is not None:
            self._save(self.best)
            self.fresh = False
        took = time.perf_counter() - begun
        self.due = time.perf_counter() + max(EVERY, took / SHARE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Keep what there is of a fit that an error has ended: that error is what is to be told, and none of this."""
        if kind is None or not issubclass(kind, Exception):
            return
        with suppress(Exception):
            found = None
            if self.latest is not None:
                choice, jitter, monitor, state = self.latest
                found = self._fit(state(), choice, jitter, monitor)
            if found is not None and self._better(found):
                self._save(found)
            elif self.fresh and self.best is not None:
                self._save(self.best)

    def _fit(self, result: Result, choice: Choice, jitter: float, monitor: Monitor) -> Fit:
        return replace(self.made(result, choice, jitter, monitor), interrupted=True, message=KEPT)

    def _better(self, found: Fit) -> bool:
        return bool(np.isfinite(found.elbo)) and (self.best is None or found.elbo >= self.best.elbo)

    def _save(self, fit: Fit) -> None:
        try:
            save_fit(fit, self.path)
        except GpdslError as problem:  # a full disk is no reason to lose the fit
            warnings.warn(f"the state of the fit is not kept: {problem}", GpdslWarning, stacklevel=2)


def kept_before(model: Model, given: Mapping[str, Any] | Options, start: Any, checkpoint: Any) -> Fit | None:
    """The fit to go on from, None where there is no file yet. Raises GpdslError for one of another model or options.

    Also where there is no file to look into, or another fit to `start` from.
    """
    if checkpoint is None:
        raise GpdslError("resume goes on from what a fit has kept: name its file, checkpoint='model.gpfit'")
    if start is not None:
        raise GpdslError("resume goes on from the fit in checkpoint, and start from another one: leave one of them out")
    options, path = make_options(model.declarations.infer.options, given, model.declarations.latents), Path(checkpoint)
    if not os.path.exists(path):  # which no name is too long for
        return None
    found = load_fit(path, model.externals)
    if not same_statements(found.program.declarations.source, model.declarations.source):
        raise GpdslError(f"resume: {path} is a fit of another model: begin at it with start, or choose another file")
    if options.inducing is None and isinstance(found.options.inducing, Mapping):
        options = replace(options, inducing=found.options.inducing)  # it had them from the fit that it began at
    options = replace(settled(options, found.rows), steps=None)
    now, then = header_of(replace(found, options=options)), header_of(found)
    odd = [n for n, value in now["options"].items() if value != then["options"][n] and n not in ("steps", "device")]
    if odd:
        raise GpdslError(
            f"resume: {path} was fitted with another {', '.join(odd)}: ask for the same, or begin at it with start"
        )
    return found


def verify_data(path: Any, before: Fit, data: Data) -> None:
    """Raise GpdslError unless the data are those of the fit to go on from."""
    now = data.digests
    odd = ", ".join(f"`{name}`" for name in now if now[name] != before.digests[name])
    if odd:
        what = f"{odd} had other values" if before.rows == data.rows else f"it had {before.rows} rows, not {data.rows}"
        raise GpdslError(
            f"resume: {path} is a fit of other data ({what}): give the same data, or begin at it with start"
        )


def noisy(known: Fit) -> bool:
    """Whether bounds on the way are those of some rows or samples, and tell little between two states."""
    return bool(known.choice.batch) or known.choice.optimizer in ("adam", "adadelta") or known.program.sampled


def steps_left(known: Fit, options: Options) -> Options:
    """The options of a fit that goes on: of a search with noise, whose steps become shorter, what is left of it.

    That is of the steps that are asked for now, be they more or fewer than before. Steps of layers that go on from one
    are shorter than others: they stay as long as they were.
    """
    if not (noisy(known) and len(known.history)):
        return options
    planned = known.options.steps or known.choice.steps
    asked = options.steps or planned
    left = max(known.choice.steps - int(known.history[-1, 0]), 0) + asked - planned
    rate = known.choice.learning_rate if known.program.inner else options.learning_rate
    least = int(LEAST * min(asked, known.choice.steps))
    return replace(options, steps=max(left, least, 1), learning_rate=rate)


def not_below(known: Fit, fit: Fit) -> Fit:
    """A fit that went on, or the state it went on from where that has the higher bound.

    Of a search with noise that is the bound at its end, or where it was interrupted, and higher beyond its errors.
    """
    unsure = 0.0
    if noisy(known):
        unsure = np.inf if known.message == KEPT else NOISE * math.hypot(known.elbo_se, fit.elbo_se)
    if known.elbo > fit.elbo + unsure and known.averages_bound == fit.averages_bound:
        return replace(known, message=fit.message, interrupted=fit.interrupted, options=fit.options)
    return fit
