"""Fits of some of the rows, made anew one after the other: under a name, with progress, kept at an interrupt."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from gpdsl.data import Data
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Report
from gpdsl.inference.watch import watching

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

T = TypeVar("T")
R = TypeVar("R")
Callback = Callable[[Report], None] | None


def made_of(names: Sequence[str], some: Sequence[T], one: Callable[[T, Callback], R]) -> list[R]:
    """What is made of some fits of other rows, each under its name; of those alone that were made before an interrupt.

    Progress is shown where that takes long and somebody looks.
    """
    from gpdsl.results.fitting import progress_shown

    found, begun = list[R](), time.perf_counter()
    with watching() as watch, progress_shown(None, None) as report, suppress(KeyboardInterrupt):
        for done, (name, each) in enumerate(zip(names, some, strict=True)):
            if watch.asked:
                break
            left = (time.perf_counter() - begun) / done * (len(some) - done) if done else None
            with naming(name):
                found.append(one(each, report and partial(_within, report, name, left)))
    return found


def _within(report: Callable[[Report], None], name: str, left: float | None, of_one: Report) -> None:
    report(replace(of_one, stage=name, remaining=left))


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Warnings that come meanwhile begin with what they are of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for each in caught:
        warnings.warn(f"{what}: {each.message}", each.category, stacklevel=7)


def refitted(fit: Fit, some: Data, options: Options, callback: Callback) -> Fit:
    """The model fitted to some of the values, from where the fit of all of them has ended."""
    from gpdsl.results.fitting import fit_model

    found = fit_model(fit.model, some, fit.columns, callback, False, options, start=fit)
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def options_anew(fit: Fit) -> Options:
    """Those of the fit, with what it has chosen by its number of rows, and no values to begin at other than its own."""
    init = {name: fit.parameters[name] for name in fit.options.init}
    inducing = fit.options.inducing
    if inducing is None and fit.choice.weights is None and not (fit.choice.exact or fit.choice.dense):
        inducing = dict(fit.choice.own) or fit.choice.inducing
    return replace(fit.options, init=init, inducing=inducing, diagnose="no")
