"""Rows left out by fits without them: held back in turn and predicted, or because they move a fit much."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from gpdsl.data import Data, read_table
from gpdsl.data.bound import level_columns
from gpdsl.data.errors import shown
from gpdsl.data.times import ordered
from gpdsl.errors import GpdslError, GpdslWarning, plural, quoted
from gpdsl.inference.plan.options import Options
from gpdsl.language.model import Axis
from gpdsl.language.options import check_option
from gpdsl.language.vocabulary import closest
from gpdsl.results.criticism import left_out
from gpdsl.results.criticism.reference import Callback, made_of, naming, options_anew, refitted

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


# Rows held back in turn and predicted by fits of the others, their parameters learnt anew: K-fold, and of the future.
#
# Every fit begins where that of all rows has ended, with its options, levels and units, so that it takes few steps.

Chosen = Bool[np.ndarray, " rows"]
Split = tuple[Chosen, Chosen]
"""The rows that a fit has, and those that it predicts."""


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation(left_out.Elpd):
    """Rows predicted by fits that have not seen them.

    `folds` [rows] is the fit, from 1, that predicts a row; 0 where none does. `parameters` are those of each fit.
    `interrupted` tells that some fits were not made.
    """

    folds: Int[np.ndarray, " rows"]
    parameters: tuple[Mapping[str, np.ndarray], ...]
    interrupted: bool = False

    def __repr__(self) -> str:
        stopped = ", interrupted before the others" if self.interrupted else ""
        return f"<{self.said}, {plural(len(self.parameters), 'fit')}{stopped}>"


FOLDS = 5
"""That rows are dealt to, if nobody says how many, and there are as many."""


def cross_validate(fit: Fit, data: Any, folds: int | None, by: str | None, seed: int) -> CrossValidation:
    """See `Fit.cross_validate`."""
    bound = left_out.fitted_rows(fit, data, "cross_validate")
    values = np.arange(bound.rows) if by is None else _column(data, bound, by, "cross_validate")
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    there = plural(len(sizes), "row") if by is None else f"{plural(len(sizes), 'value')} of `{by}`"
    folds = max(min(FOLDS, len(sizes)), 2) if folds is None else folds
    _check_whole("cross_validate: folds", folds, 2, len(sizes), f"the data have {there}")
    fold = _dealt(sizes, folds, check_option("seed", seed))[group]
    splits = [(fold != each, fold == each) for each in range(folds)]
    return _validated(fit, bound, splits, f"{folds}-fold cross-validation")


def leave_future_out(
    fit: Fit, data: Any, first: int | None, ahead: int, by: str | None, every: int | None
) -> CrossValidation:
    """See `Fit.leave_future_out`."""
    what = "leave_future_out"
    bound = left_out.fitted_rows(fit, data, what)
    by = _time(fit) if by is None else by
    times, place = np.unique(_moments(_column(data, bound, by, what), fit, bound, by), return_inverse=True)
    count = len(times)
    first = max(count // 2, 1) if first is None else first
    _check_whole(f"{what}: first", first, 1, count - 1, f"the rows have {plural(count, 'time')}")
    _check_whole(f"{what}: ahead", ahead, 1, count, f"the rows have {plural(count, 'time')}")
    every = ahead if every is None else every
    _check_whole(f"{what}: every", every, ahead, count, f"from `ahead`, so that no row is predicted twice, to {count}")
    splits = [(place < now, (place >= now) & (place < now + ahead)) for now in range(first, count, every)]
    return _validated(fit, bound, splits, "leave-future-out")


def _validated(fit: Fit, bound: Data, splits: list[Split], method: str) -> CrossValidation:
    """Every split fitted anew, and its rows predicted. Raises GpdslError before the first fit where one cannot be."""
    for number, split in enumerate(splits, 1):
        _check_split(fit, bound, split, f"{method}: fit {number} of {len(splits)}")
    folds, found = np.zeros(bound.rows, int), np.full(bound.rows, np.nan)
    seen = bound.observed_rows
    told = [(kept, left & seen) for kept, left in splits if np.any(left & seen)]

    def one(split: Split, callback: Callback) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
        kept, left = map(np.flatnonzero, split)
        fitted = refitted(fit, bound.take(kept), options_anew(fit), callback)
        return fitted.parameters, fitted.log_predictive_density(bound.take(left))

    made = made_of([f"fit {number} of {len(told)}" for number in range(1, len(told) + 1)], told, one)
    if not made:
        raise KeyboardInterrupt
    for number, ((_, left), (_, densities)) in enumerate(zip(told, made, strict=False), 1):
        folds[left], found[left] = number, densities
    itself = np.where(folds > 0, fit.log_predictive_density(bound), np.nan)
    parameters = tuple(each for each, _ in made)
    return CrossValidation(fit, bound, found, itself, method, folds, parameters, len(made) < len(told))


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


def _time(fit: Fit) -> str:
    """The input that is a time, or the only one that is no label."""
    inputs = fit.program.declarations.inputs
    times = [name for name, each in inputs.items() if each.kind == "time"]
    times = times or [name for name, each in inputs.items() if each.label is None]
    if len(times) == 1:
        return times[0]
    named = ", ".join(f"`{name}`" for name in times) or "a column of the data"
    raise GpdslError(f"leave_future_out: which is the time? It could be {named}: say by={(*times, 'column')[0]!r}")


def _moments(values: np.ndarray, fit: Fit, bound: Data, by: str) -> np.ndarray:
    """Values whose order is that of time."""
    told = fit.program.declarations.inputs.get(by)
    if told is not None and told.label is not None:
        words = bound.levels.get(told.label.name or "")
        values = values if words is None else np.array(words, object)[values.astype(int) - 1]
    return _comparable(ordered(values, f"leave_future_out: by = `{by}`"), by, "leave_future_out")


def _column(data: Any, bound: Data, by: str, what: str) -> np.ndarray:
    """The values of an input, or of any column of the data; values that can be put in order."""
    if not isinstance(by, str):
        raise GpdslError(
            f"{what}: by takes the name of an input or of a column, and no {type(by).__name__}; "
            "add these values to the data as a column, and name that"
        )
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
    return _comparable(values, by, what)


def _comparable(values: np.ndarray, by: str, what: str) -> np.ndarray:
    """The values as they are. Raises GpdslError for a mixture, which has no order."""
    try:
        if values.dtype == object:
            sorted(set(values.tolist()))
    except TypeError as problem:
        raise GpdslError(f"{what}: by = `{by}` has values of several types, which have no order") from problem
    return values


def _check_whole(what: str, value: Any, least: int, most: int, why: str) -> None:
    """Raise GpdslError for what is no whole number between two others, and where there is none."""
    if least > most:
        raise GpdslError(f"{what}: nothing can be left out, as {why}")
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        given = "a number of 15 digits or more" if whole and abs(value) >= 10**14 else quoted(repr(value))
        raise GpdslError(f"{what} = {given}: expected a whole number from {least} to {most}; {why}")


# Rows that move a fit much, left out by fits without them: what taking a site away, or weights, only approximate.

MOVED = 0.25
"""Nats by which a fit predicts a row better than the others do, from which it is left out by a fit without it."""

SHARE, LEAST = 0.25, 0.15
"""Of these nats that a density is off by, where nothing tells, and at least."""

MOST, FEWER = 20, 5
"""Rows that are left out by fits, if nothing is said: where a fit is one search, and where it is many."""

BRIDGES = 100
"""Steps of the fixed point that a bridge between two averages is."""

OVERLAP = 0.5
"""Nats that it may be off by, from which the settings are taken to have none in common."""

NEAR, OFF_AT_MOST = 0.1, 0.5
"""Nats between the density of a row and the difference of bounds up to which they are near; what the latter may be off
by at most."""

EXACT = 1e-3
"""Nats between taking a site away and a fit without the row below which sites do not depend on where they are found."""

LARGEST = 1000
"""Rows up to which fits are made without being asked for."""


def leave_one_out(fit: Fit, data: Any, refits: int | None = None) -> left_out.LeaveOneOut:
    """See `Fit.loo`. Raises GpdslError for other data than were fitted, and what is no number of fits."""
    if refits is not None and (isinstance(refits, bool) or not isinstance(refits, int | np.integer) or refits < 0):
        raise GpdslError(f"loo: refits = {quoted(repr(refits))}: expected how many rows fits may leave out, as 20 or 0")
    bound = left_out.fitted_rows(fit, data, "loo")
    found = left_out.leave_one_bound(fit, bound)
    asked = _rows(found)
    rows = asked[: _by_itself(fit) if refits is None else int(refits)].tolist()
    names = [f"{_without(row)}, {number} of {len(rows)}" for number, row in enumerate(rows, 1)]
    made = made_of(names, rows, partial(_fit_without, fit, bound))
    told = _told(found, {row: one for row, one in zip(rows, made, strict=False) if one is not None}, rows)
    return replace(told, not_made=len(rows) - len(made))


def _without(row: int) -> str:
    return f"row {row + 1} left out"


def _moved(found: left_out.LeaveOneOut) -> Float[np.ndarray, " rows"]:
    """Nats that a row's own value is worth to its density; 0 where it is left out exactly, or nothing is observed."""
    if found.method == left_out.EXACT:
        return np.zeros(len(found.pointwise))
    return np.nan_to_num(np.abs(found.of_itself - found.pointwise), posinf=np.inf)


def _rows(found: left_out.LeaveOneOut) -> Int[np.ndarray, " some"]:
    """Those that no approximation is to be trusted with, the worst first."""
    moved = _moved(found)
    exact = found.fit.choice.exact  # else weights tell of these
    many = np.zeros(len(moved), bool) if exact else moved > MOVED
    odd = np.flatnonzero(many | found.doubtful)
    return odd[np.lexsort((-moved[odd], ~found.doubtful[odd]))]


def _by_itself(fit: Fit) -> int:
    """Fits that are made without being asked for: none that take chains, other programs, or many rows."""
    program, options = fit.program, fit.options
    plain = options.engine in {"vi", "ep"} and not options.batch and fit.rows <= LARGEST
    if not plain or program.opaque or program.fields or options.parameters == "gaussian":
        return 0
    return FEWER if options.posterior == "corrected" or fit.settings is not None or program.inner else MOST


def _fit_without(fit: Fit, bound: Data, row: int, callback: Callback) -> Fit | None:
    """The model fitted to all rows but one, whose values are missing; None, with a warning, where that cannot be."""
    seen = np.arange(bound.rows) != row
    observed = {name: known & seen.reshape(-1, *(1,) * (known.ndim - 1)) for name, known in bound.observed.items()}
    outputs = {name: np.where(observed[name], each, 0) for name, each in bound.outputs.items()}
    try:
        return refitted(fit, replace(bound, outputs=outputs, observed=observed), _options(fit), callback)
    except GpdslError as problem:
        warnings.warn(f"its term is the approximate one, as {problem}", GpdslWarning, stacklevel=2)
        return None


def _options(fit: Fit) -> Options:
    """Those of the fit, with its parameters, unless they are integrated over."""
    options = options_anew(fit)
    if options.hyperparameters == "integrated":
        return options
    return replace(options, fixed=tuple(fit.parameters), init=dict(fit.parameters))


def _told(found: left_out.LeaveOneOut, without: dict[int, Fit], asked: Sequence[int] = ()) -> left_out.LeaveOneOut:
    """With the densities of rows by the fits without them, and what the others may be off by.

    By all that they are worth, where a fit was `asked` for and could not be made.
    """
    pointwise, k, moved = found.pointwise.copy(), found.k.copy(), _moved(found)
    off = np.zeros(len(pointwise))
    for row, one in without.items():
        with naming(_without(row)):
            pointwise[row], off[row] = _density(found, one, row)
        k[row] = np.nan
    error = _share(found.pointwise, pointwise, moved, list(without)) * moved
    error = np.where((k > found.trusted) | np.isin(np.arange(len(k)), asked), np.maximum(moved, error), error)
    error[list(without)] = off[list(without)]
    return replace(found, pointwise=pointwise, k=k, error=error, without=without)


def _density(found: left_out.LeaveOneOut, one: Fit, row: int) -> tuple[float, float]:
    """log p(y_n | the others) by a fit of these, and what it may be off by.

    Far out in the tail of q that density is what the tail of a Gaussian says. The difference of the bounds with the
    row and without it is another approximation of the same number, whose gaps nearly cancel. Against quadrature over
    three latents, 90 rows of five likelihoods, the former was off by up to 17 nats and the latter by .35; where they
    are near each other, the former is the better one. With inducing points it always is: what bounds lose by these
    differs by nats with the row and without it. Under normal noise taking the site away gives the same, exactly.
    Of layers and row variables it is too, and is off by what the nearer of both others says.

    Where parameters are averaged over, a value that few settings of the others allow is looked at from both sides: by
    the settings of the others and by those of all rows, whose averages are each too low and too high, and with the
    bridge between them (Meng and Wong 1996).
    """
    some = found.data.take(np.asarray([row]))
    below = float(one.log_predictive_density(some)[0])
    if one.settings is None or found.densities is None:
        worth = _worth(found.fit, one)
        apart = abs(below - worth) if np.isfinite(worth) else 0.0
        if found.fit.program.inner:  # searches through layers end where they do: one without a row may end nats higher
            return below, min(apart, abs(below - found.pointwise[row]))
        if found.fit.inducing_loss is not None:  # with the row and without it bounds lose different amounts
            return below, apart if abs(below - found.pointwise[row]) > EXACT else 0.0
        return (worth, min(apart / 2, OFF_AT_MOST)) if apart > NEAR else (below, apart)
    offset = float(np.sum(found.fit.standardised.log_jacobian(some.observed)))
    theirs, own = left_out.densities_of_settings(one, found.data, row), found.densities[:, row]
    high, low = left_out.log_weights_of(found.fit), left_out.log_weights_of(one)
    value = below + offset
    for _ in range(BRIDGES):
        ahead, back = theirs - np.logaddexp(theirs - value, 0.0), -np.logaddexp(own - value, 0.0)
        value = float(np.logaddexp.reduce(low + ahead) - np.logaddexp.reduce(high + back))
    above = -float(np.logaddexp.reduce(high - own)) - offset
    error = float(np.hypot(_spread(low, ahead), _spread(high, back)))
    return value - offset, max(error, (above - below) * (LEAST if error < OVERLAP else 1.0))


def _worth(fit: Fit, one: Fit) -> float:
    """log p(y) - log p(the others) by their bounds or estimates, at the same parameters; NaN if not known."""
    if fit.settings is not None or one.settings is not None or fit.options.beta != 1:
        return np.nan
    return (fit.elbo - fit.log_prior) - (one.elbo - one.log_prior)  # those of `one`, which are held, have no priors


def _spread(log_weights: Float[np.ndarray, " settings"], terms: Float[np.ndarray, " settings"]) -> float:
    """The standard error of the logarithm of an average of exponentials."""
    shares = np.exp(log_weights + terms - np.logaddexp.reduce(log_weights + terms))
    return float(np.sqrt(np.sum((shares - np.exp(log_weights)) ** 2)))


def _share(
    before: Float[np.ndarray, " rows"],
    after: Float[np.ndarray, " rows"],
    moved: Float[np.ndarray, " rows"],
    rows: list[int],
) -> float:
    """How far off the densities of these rows were, as a share of what their own values are worth to them."""
    known = [row for row in rows if moved[row] > 0 and np.isfinite(after[row] - before[row])]
    if not known:
        return SHARE
    return max(float(np.sqrt(np.mean(((after - before)[known] / moved[known]) ** 2))), LEAST)
