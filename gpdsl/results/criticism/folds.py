"""Rows held back in turn and predicted by fits of the others, their parameters learnt anew: K-fold, and of the future.

Every fit begins where that of all rows has ended, with its options, levels and units, so that it takes few steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int

from gpdsl.data import Data, read_table
from gpdsl.data.errors import shown
from gpdsl.data.looks import level_columns
from gpdsl.errors import GpdslError, plural, quoted
from gpdsl.inference.plan.options import Options
from gpdsl.language.model import Axis
from gpdsl.language.options import check_option
from gpdsl.language.source import closest
from gpdsl.results.criticism.left_out import Elpd, fitted_rows, observed_rows

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

Chosen = Bool[np.ndarray, " rows"]
Split = tuple[Chosen, Chosen]
"""The rows that a fit has, and those that it predicts."""


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation(Elpd):
    """Rows predicted by fits that have not seen them.

    `folds` [rows] is the fit, from 1, that predicts a row; 0 where none does. `parameters` are those of each fit.
    """

    folds: Int[np.ndarray, " rows"]
    parameters: tuple[Mapping[str, np.ndarray], ...]

    def __repr__(self) -> str:
        return f"<{self.said}, {plural(len(self.parameters), 'fit')}>"


def cross_validate(fit: Fit, data: Any, folds: int, by: str | None, seed: int) -> CrossValidation:
    """See `Fit.cross_validate`."""
    bound = fitted_rows(fit, data, "cross_validate")
    values = np.arange(bound.rows) if by is None else _column(fit, data, bound, by, "cross_validate")
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    things = "rows" if by is None else f"values of `{by}`"
    _check_whole("cross_validate: folds", folds, 2, len(sizes), f"there are {len(sizes)} {things}")
    fold = _dealt(sizes, folds, check_option("seed", seed))[group]
    splits = [(fold != each, fold == each) for each in range(folds)]
    return _validated(fit, bound, splits, f"{folds}-fold cross-validation")


def leave_future_out(
    fit: Fit, data: Any, first: int | None, ahead: int, by: str | None, every: int | None
) -> CrossValidation:
    """See `Fit.leave_future_out`."""
    what = "leave_future_out"
    bound = fitted_rows(fit, data, what)
    times, place = np.unique(_column(fit, data, bound, by or _time(fit, bound), what), return_inverse=True)
    count = len(times)
    first = max(count // 2, 1) if first is None else first
    _check_whole(f"{what}: first", first, 1, count - 1, f"the rows have {count} times")
    _check_whole(f"{what}: ahead", ahead, 1, count, f"the rows have {count} times")
    every = ahead if every is None else every
    _check_whole(f"{what}: every", every, ahead, count, f"from `ahead`, so that no row is predicted twice, to {count}")
    splits = [(place < now, (place >= now) & (place < now + ahead)) for now in range(first, count, every)]
    return _validated(fit, bound, splits, "leave-future-out")


def _validated(fit: Fit, bound: Data, splits: list[Split], method: str) -> CrossValidation:
    """Every split fitted anew, and its rows predicted. Raises GpdslError before the first fit where one cannot be."""
    for number, split in enumerate(splits, 1):
        _check_split(fit, bound, split, f"{method}: fit {number} of {len(splits)}")
    folds, found, parameters = np.zeros(bound.rows, int), np.full(bound.rows, np.nan), []
    for kept, left in splits:
        if not (left := left & observed_rows(bound)).any():
            continue
        one = _fitted(fit, bound.take(np.flatnonzero(kept)))
        parameters.append(one.parameters)
        folds[left] = len(parameters)
        found[left] = one.log_predictive_density(bound.take(np.flatnonzero(left)))
    itself = np.where(folds > 0, fit.log_predictive_density(bound), np.nan)
    return CrossValidation(fit, bound, found, itself, method, folds, tuple(parameters))


def _fitted(fit: Fit, some: Data) -> Fit:
    """The model fitted to some of the rows, from where the fit of all of them has ended."""
    from gpdsl.results.fitting import fit_model

    found = fit_model(fit.model, some, fit.columns, None, False, options_anew(fit), start=fit)
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def options_anew(fit: Fit) -> Options:
    """Those of the fit, with what it has chosen by its number of rows, and no values to begin at other than its own."""
    init = {name: fit.parameters[name] for name in fit.options.init}
    inducing = fit.options.inducing
    if inducing is None and fit.choice.weights is None and not (fit.choice.exact or fit.choice.dense):
        inducing = fit.choice.inducing
    return replace(fit.options, init=init, inducing=inducing, diagnose="no")


def _check_split(fit: Fit, bound: Data, split: Split, where: str) -> None:
    """Raise GpdslError where the rows of a fit tell nothing of what is needed: it would stay where the start has it."""
    kept, left = split
    for name, observed in bound.observed.items():
        if not observed[kept].any():
            raise GpdslError(f"{where} has no row in which `{name}` is observed: hold fewer rows back at a time")
    for axis, name, levels in _levels(fit, bound):
        new = np.setdiff1d(levels[left], levels[kept])
        loose = _by_level(fit, axis) if new.size else []
        if loose:
            words = bound.levels.get(axis.name or "", ())
            level = shown(str(words[int(new[0]) - 1])) if words else f"{new[0]:g}"
            raise GpdslError(
                f"{where} has no row with {level} in `{name}`, and `{loose[0]}` has a value for each level and no "
                f"prior that says what it is there: give it one (`param {loose[0]}[{axis.describe()}] : real ~ "
                "Normal(0, 1)`), or hold other rows back"
            )


def _levels(fit: Fit, bound: Data) -> Iterator[tuple[Axis, str, np.ndarray]]:
    """Every axis whose levels an input numbers, with the input and its levels in all rows."""
    for name, each in fit.program.declarations.inputs.items():
        if each.label is not None:
            yield each.label, name, bound.inputs[name]
    for column in level_columns(fit.program.declarations):
        yield column.axis, column.name, bound.inputs[column.name].reshape(bound.rows, -1)[:, column.column]


def _by_level(fit: Fit, axis: Axis) -> list[str]:
    """Parameters that are learnt level by level, from the rows of each level alone."""
    learnt = {n: each for n, each in fit.program.declarations.params.items() if n not in fit.program.parameters.held}
    return [name for name, each in learnt.items() if each.prior is None and axis in each.axes]


def _dealt(sizes: Int[np.ndarray, " groups"], folds: int, seed: int) -> Int[np.ndarray, " groups"]:
    """The fold of each group, from 0, drawn at random: large groups first, each to the fold with the fewest rows."""
    order = np.random.default_rng(seed).permutation(len(sizes))
    fold, rows = np.empty(len(sizes), int), np.zeros(folds, int)
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        fold[group] = np.argmin(rows)
        rows[fold[group]] += sizes[group]
    return fold


def _time(fit: Fit, bound: Data) -> str:
    """The input that is a time, or the only one."""
    inputs = fit.program.declarations.inputs
    times = [name for name, each in inputs.items() if each.kind == "time"] or list(inputs)
    if len(times) == 1:
        return times[0]
    named = ", ".join(f"`{name}`" for name in times)
    raise GpdslError(f"leave_future_out: which input is the time? It could be {named}: say by={times[0]!r}")


def _column(fit: Fit, data: Any, bound: Data, by: str, what: str) -> np.ndarray:
    """The values of an input, or of any column of the data; values that can be put in order."""
    if by in bound.inputs:
        values = bound.inputs[by]
    else:
        columns = read_table(data).columns
        if by not in columns:
            near = closest(str(by), [*bound.inputs, *columns])
            known = f"did you mean `{near}`?" if near else f"the model has {', '.join(bound.inputs)}"
            raise GpdslError(
                f"{what}: by = {quoted(repr(by))} is no input of the model and no column of the data; {known}"
            )
        values = columns[by]
    if values.ndim != 1 or len(values) != bound.rows:
        raise GpdslError(f"{what}: by = `{by}` has the shape {values.shape}; expected one value for each row")
    missing = [row for row, value in enumerate(values.tolist(), 1) if value is None or value != value]
    if missing:
        raise GpdslError(f"{what}: by = `{by}` has no value in row {missing[0]}")
    return values if values.dtype != object else _comparable(values, by, what)


def _comparable(values: np.ndarray, by: str, what: str) -> np.ndarray:
    """Text or dates as they are. Raises GpdslError for a mixture, which has no order."""
    try:
        sorted(set(values.tolist()))
    except TypeError as problem:
        raise GpdslError(f"{what}: by = `{by}` has values of several types, which have no order") from problem
    return values


def _check_whole(what: str, value: Any, least: int, most: int, why: str) -> None:
    """Raise GpdslError for what is no whole number between two others."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        raise GpdslError(f"{what} = {quoted(repr(value))}: expected a whole number from {least} to {most}; {why}")
