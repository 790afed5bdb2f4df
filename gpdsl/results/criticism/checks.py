"""Posterior predictive checks: a statistic of the data beside that of data drawn anew (Gelman, Meng and Stern 1996)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gpdsl.data.values import as_numbers
from gpdsl.errors import GpdslError, described, needed, plural, preformatted, quoted
from gpdsl.inference.integrated import UNTRUSTED
from gpdsl.inference.watch import watching
from gpdsl.language.calls import answering
from gpdsl.program.cache import precision
from gpdsl.program.program import make_rows
from gpdsl.program.rows import Scope, censored
from gpdsl.results.criticism.left_out import Elpd, LeaveOneOut, fitted_rows
from gpdsl.results.criticism.without import CrossValidation, leave_one_out
from gpdsl.results.fit import Fit
from gpdsl.results.levels import in_levels, levels_of, numbered_levels
from gpdsl.results.named import check_draws

if TYPE_CHECKING:
    from pandas import DataFrame

    from gpdsl.data import Data
    from gpdsl.results.fit import Fit


MEASURES = {"positive": "real", "unit": "real", "ordinal": "label", "binary": "label"}
"""Kinds of outputs whose densities are of the measure of another: `log(y) ~ Normal(f, s)` of a positive y may stand
beside a real one, and a `Categorical` beside an `Ordinal`."""

Statistic = Callable[[np.ndarray], float]

STATISTICS: dict[str, Statistic] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "variance": np.var,
    "zeros": lambda values: float(np.mean(values == 0)),
}


@dataclass(frozen=True, eq=False, repr=False)
class Check:
    """A statistic of the observed values of an output, and that of each data set drawn anew at the same rows."""

    statistic: str
    output: str
    observed: float
    drawn: Float[np.ndarray, " draws"]

    @property
    def p(self) -> float:
        """Share of drawn data whose statistic is above the observed one; equal ones count half."""
        return float(np.mean(self.drawn > self.observed) + 0.5 * np.mean(self.drawn == self.observed))

    @property
    def _says_nothing(self) -> bool:
        """Whether it is the variance of values that are all the same, which no noise reproduces."""
        return self.statistic == "variance" and self.observed == 0

    def __repr__(self) -> str:
        low, high = np.quantile(self.drawn, [0.05, 0.95])
        return (
            f"<check of {self.output}: {self.statistic} {self.observed:.4g}, drawn anew {low:.4g} to {high:.4g} (90%), "
            f"p {self.p:.3g}{', which is no sign: the values are all the same' * self._says_nothing}>"
        )


def check(fit: Fit, data: Any, statistic: str | Statistic, name: str | None, draws: int, seed: int) -> Check:
    """See `Fit.check_predictive`. Raises GpdslError for names of no statistic or output, and what is no number."""
    bound = fitted_rows(fit, data, "check_predictive")
    outputs = fit.program.declarations.outputs
    output = next(iter(outputs)) if name is None else name
    if output not in outputs:
        raise GpdslError(f"the model has no output `{output}`; it has {', '.join(outputs)}")
    if not callable(statistic) and statistic not in STATISTICS:
        raise GpdslError(f"statistic = {statistic!r}: expected a function, or one of {', '.join(STATISTICS)}")
    if not callable(statistic) and outputs[output].label is not None and not as_numbers(levels_of(fit.program, output)):
        raise GpdslError(
            f"`{output}` is a label, whose levels have no {statistic}; pass a function of their numbers, as the share "
            "of the second, lambda levels: np.mean(levels == 2)"
        )
    asked = {_name(statistic): statistic if callable(statistic) else STATISTICS[statistic]}
    return checks(fit, bound, asked, output, check_draws("check_predictive", draws, seed), draws)[0]


def checks(fit: Fit, bound: Data, statistics: dict[str, Statistic], output: str, seed: int, draws: int) -> list[Check]:
    """Several statistics of the same draws."""
    known = bound.observed[output]
    first = 0 if fit.program.declarations.outputs[output].label is None else 1  # draws number levels from 1
    observed = in_levels(fit.program, output, bound.outputs[output][known] + first)
    if not observed.size:
        raise GpdslError(f"`{output}` has no observed value")
    drawn = fit.predict_bound(bound, None, None).draws(output, draws, seed)[:, known]
    return [
        Check(name, output, _value(name, each, observed), np.array([_value(name, each, one) for one in drawn]))
        for name, each in statistics.items()
    ]


def _name(statistic: str | Statistic) -> str:
    return str(getattr(statistic, "__name__", "statistic")) if callable(statistic) else statistic


def _value(name: str, statistic: Statistic, values: np.ndarray) -> float:
    try:
        return float(statistic(values))
    except Exception as problem:
        raise GpdslError(
            f"the statistic {quoted(name)} gave no number for an array of {plural(values.size, 'value')}: "
            f"{described(problem)}"
        ) from problem


# Fits of the same data side by side, by how well they predict rows that they have not seen.

CLOSE = 4.0
"""Nats of difference below which its standard error says little (Sivula et al. 2020)."""


@dataclass(frozen=True)
class Compared:
    """One fit: its elpd by leaving rows out, with its standard error, and how far it lies below the best."""

    name: str
    elpd: float
    se: float
    effective_parameters: float
    difference: float
    difference_se: float
    """Of the difference, row by row: smaller than those of its parts, as all fits have the same rows."""
    worst_k: float
    elpd_error: float = float("nan")
    """Nats that `elpd` may be off by, as leaving rows out is approximate; NaN where nothing tells."""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The table, the best fit first."""

    rows: tuple[Compared, ...]
    elpds: Mapping[str, Elpd]

    def to_frame(self) -> DataFrame:
        """A pandas frame with the names as its index."""
        pd = needed("pandas", "to_frame", "data")
        return pd.DataFrame([vars(each) for each in self.rows]).set_index("name")

    def __repr__(self) -> str:
        width = max(len("fit"), *(len(each.name) for each in self.rows))
        lines = [f"{'fit':<{width}}      elpd      se  within  difference      se  parameters  worst k"]
        for each in self.rows:
            k = f"{each.worst_k:7.2f}" if np.isfinite(each.worst_k) else "      -"
            within = f"{each.elpd_error:6.1f}" if np.isfinite(each.elpd_error) else "     -"
            lines.append(
                f"{each.name:<{width}}  {each.elpd:8.1f}  {each.se:6.1f}  {within}  {each.difference:10.1f}  "
                f"{each.difference_se:6.1f}  {each.effective_parameters:10.1f}  {k}"
            )
        return "\n".join([*lines, *self._notes()])

    def _notes(self) -> list[str]:
        notes = []
        if len(self.rows) > 1 and -self.rows[1].difference < CLOSE:
            notes.append(f"differences below {CLOSE:g} nats tell little")
        notes.extend(self._unsure())
        if any(isinstance(each, LeaveOneOut) and each.not_made for each in self.elpds.values()):
            notes.append("interrupted before all fits without a row were made: `within` says what that may cost")
        methods = {each.method.removeprefix("exact ") for each in self.elpds.values()}
        if len(methods) > 1:
            notes.append(f"rows are left out in different ways: {', '.join(sorted(methods))}")
        elif len({_firsts(each.folds) for each in self.elpds.values() if isinstance(each, CrossValidation)}) > 1:
            notes.append("rows are held back in different folds, by which one model differs from itself: take one seed")
        if any(each.worst_k > UNTRUSTED for each in self.rows):
            notes.append(f"k above {UNTRUSTED}: single rows move that posterior so much that its elpd is unsure")
        return notes

    def _unsure(self) -> Iterator[str]:
        """Of fits that lie less far below the best than the two numbers may be off by together."""
        best, *others = self.rows
        within = {each.name: np.nan_to_num(best.elpd_error) + np.nan_to_num(each.elpd_error) for each in others}
        near = [each.name for each in others if 0 < -each.difference < within[each.name]]
        if near:
            yield (
                f"{quoted(best.name)} may be no better than {', '.join(map(quoted, near))}: the two numbers may be off "
                "by more than they differ; cross_validate of each tells"
            )

    def _repr_html_(self) -> str:
        return preformatted(repr(self))


def _firsts(folds: Int[np.ndarray, " rows"]) -> bytes:
    """The first row of each row's fold, whatever the folds are called."""
    _, first, fold = np.unique(folds, return_index=True, return_inverse=True)
    return first[fold].tobytes()


@answering
def compare(fits: Mapping[str, Fit | Elpd] | Sequence[Fit | Elpd], data: Any = None) -> Comparison:
    """Fits of the same data by `fit.loo`, the best first, with differences to it and their standard errors.

    fits: by name, or a list, named by their models. In place of a fit may stand what its `loo`, `waic`,
    `cross_validate` or `leave_future_out` has found; `data` are for the others. Raises GpdslError where fits have other
    data or outputs, or other rows are predicted: densities of different things cannot be compared.
    """
    if isinstance(fits, Fit | Elpd):
        raise GpdslError("compare: one fit is nothing to compare: expected fits by name, or a list of them")
    if not isinstance(fits, Iterable):
        raise GpdslError(f"compare: expected fits by name, or a list of them, got {quoted(repr(fits))}")
    named = dict(fits) if isinstance(fits, Mapping) else _named(fits)
    if not named or not all(isinstance(each, Fit | Elpd) for each in named.values()):
        raise GpdslError(f"compare: expected fits by name, or a list of them, got {quoted(repr(fits))}")
    if data is None and (bare := [name for name, each in named.items() if isinstance(each, Fit)]):
        raise GpdslError(f"compare: {quoted(bare[0])} is a fit: give the data that were fitted, compare(fits, data)")
    _verify_outputs({name: _fit_of(each) for name, each in named.items()})
    with watching():  # an interrupt ends the fits without a row of all of them
        found = {name: leave_one_out(each, data) if isinstance(each, Fit) else each for name, each in named.items()}
    _verify_rows(found)
    best = max(found, key=lambda name: found[name].elpd)
    rows = [_compared(name, each, found[best]) for name, each in found.items()]
    return Comparison(tuple(sorted(rows, key=lambda each: -each.elpd)), found)


def _fit_of(each: Fit | Elpd) -> Fit:
    return each.fit if isinstance(each, Elpd) else each


def _named(fits: Sequence[Fit | Elpd]) -> dict[str, Fit | Elpd]:
    """By their models; numbered where these have one name."""
    names = [_fit_of(each).program.declarations.name if isinstance(each, Fit | Elpd) else "" for each in fits]
    single = len(set(names)) == len(names)
    keys = names if single else [f"{name} {place}" for place, name in enumerate(names, 1)]
    return dict(zip(keys, fits, strict=True))


def _verify_outputs(fits: Mapping[str, Fit]) -> None:
    """Raise GpdslError where fits observe different things."""
    first, *others = fits

    def observed(name: str) -> dict[str, str]:
        return {output: each.kind for output, each in fits[name].program.declarations.outputs.items()}

    def measured(name: str) -> dict[str, str]:
        return {output: MEASURES.get(kind, kind) for output, kind in observed(name).items()}

    for other in others:
        if measured(other) != measured(first):
            ours, theirs = (", ".join(f"{n} : {kind}" for n, kind in observed(each).items()) for each in (first, other))
            raise GpdslError(
                f"compare: {quoted(first)} has the outputs {ours}, {quoted(other)} has {theirs}; only densities of the "
                "same outputs can be compared"
            )


def _verify_rows(found: Mapping[str, Elpd]) -> None:
    """Raise GpdslError where other values are observed, or other rows predicted."""
    first, *others = found
    ours = found[first]
    for other in others:
        theirs = found[other]
        for name in ours.data.outputs:
            one, two = (_values(each, name) for each in (ours, theirs))
            if not np.array_equal(one, two, equal_nan=one.dtype.kind == "f"):
                raise GpdslError(
                    f"compare: {quoted(first)} and {quoted(other)} have other values of `{name}`: fit both to the same "
                    "rows, in the same order"
                )
            if np.any(odd := (counts := _censored(ours, name)) != _censored(theirs, name)):
                row = int(np.argmax(odd))
                with_, without = (first, other) if counts[row] else (other, first)
                raise GpdslError(
                    f"compare: in {plural(int(odd.sum()), 'row')}, row {row + 1} for one, `{name}` is at a bound of "
                    f"the `Censored` of {quoted(with_)}, a probability there, whose number for {quoted(without)} is "
                    "that of a density, so that units decide; censor both at the same bounds"
                )
        known, also = ~np.isnan(ours.pointwise), ~np.isnan(theirs.pointwise)
        if np.any(known != also):
            raise GpdslError(
                f"compare: {quoted(first)} predicts {known.sum()} rows ({ours.method}), {quoted(other)} {also.sum()} "
                f"({theirs.method}), of which {np.sum(known & also)} are the same: leave the same rows out"
            )


def _values(each: Elpd, name: str) -> np.ndarray:
    """Values of an output in the data, levels as words; NaN where there is none."""
    known, values = each.data.observed[name], each.data.outputs[name]
    levels, _ = numbered_levels(each.fit.program, name)
    if not levels:
        return np.where(known, values, np.nan)
    return np.array([*map(str, levels), ""])[np.where(known, values, -1).astype(int)]


def _censored(each: Elpd, name: str) -> np.ndarray:
    """How many values of an output have a probability and no density, in each row."""
    fit, found = each.fit, np.zeros(each.data.rows, int)
    for o in fit.program.observations:
        if o.law is not None and o.law.name == "Censored" and o.outputs[0] == name:
            with precision(fit.options.dtype):
                rows = make_rows(fit.program, fit.standardised.applied(each.data))
                learnt = {key: jnp.asarray(value) for key, value in fit.parameters.items()}
                found += censored(fit.program.evaluator, o, Scope(learnt, rows))
    return found


def _compared(name: str, each: Elpd, best: Elpd) -> Compared:
    apart = each.pointwise - best.pointwise
    apart = apart[np.isfinite(apart)]
    k = each.k if isinstance(each, LeaveOneOut) else np.full(1, np.nan)
    worst = float(np.nanmax(k)) if np.isfinite(k).any() else float("nan")
    se = float(np.sqrt(len(apart) * np.var(apart)))
    error = each.elpd_error if isinstance(each, LeaveOneOut) else float("nan")
    return Compared(name, each.elpd, each.se, each.effective_parameters, float(apart.sum()), se, worst, error)
