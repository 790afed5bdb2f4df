"""Other fits beside one: Markov chains from the same model and data, and fits of some of the rows, made anew."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gpdsl.data import Data
from gpdsl.errors import GpdslError, needed, preformatted, quoted
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Report
from gpdsl.inference.watch import watching
from gpdsl.results.criticism.left_out import fitted_rows
from gpdsl.results.fit import Fit
from gpdsl.results.fitting import fit_model, progress_shown
from gpdsl.results.table import subscript

if TYPE_CHECKING:
    from pandas import DataFrame


SHIFTED = 0.2
"""Standard deviations between means, over all rows, from which these differ."""

NARROW, WIDE = 0.8, 1.25
"""Ratios of standard deviations from which these differ."""

LEVEL = 0.9
"""Of the intervals."""

DRAWS = 1000
"""Of the reference, that are counted inside the intervals of the fit."""

UNTOLD = "too few draws to tell"

AGAINST = "mcmc"

OWN_PLAN = {"posterior": "auto", "optimizer": "auto", "schedule": "joint", "batch": 0, "hyperparameters": "point"}
"""What chains ask for, whatever the model's `infer` line or the fit has."""


@dataclass(frozen=True)
class Distance:
    """How far a latent, a quantity or a parameter of the fit is from the reference, over all rows.

    `mean` is the root mean square of the difference of means in standard deviations of the reference, `worst` the
    largest; `sd` the ratio of standard deviations (its geometric mean), and `inside` the share of the reference in the
    90% intervals of the fit: both are NaN of a parameter of which the fit has one value.
    """

    name: str
    mean: float
    worst: float
    sd: float
    inside: float
    slack: float
    """Standard deviations by which the means of the reference are unsure: one over the root of its effective draws."""

    @property
    def verdict(self) -> str:
        """`ok`, or what differs by more than the reference is unsure of."""
        found = []
        if self.mean > SHIFTED + 2 * self.slack:
            found.append("shifted")
        elif self.slack > SHIFTED / 2:  # a shift that matters would not show
            found.append(UNTOLD)
        if np.isnan(self.sd):
            found.append("one value")
        elif self.sd < NARROW / (1 + 2 * self.slack):
            found.append("too narrow")
        elif self.sd > WIDE * (1 + 2 * self.slack):
            found.append("too wide")
        return ", ".join(found) or "ok"

    def __str__(self) -> str:
        spread = f"{self.sd:8.2f}  {self.inside:6.2f}" if np.isfinite(self.sd) else f"{'-':>8}  {'-':>6}"
        return f"{self.mean:6.2f}  {self.worst:6.2f}  {spread}  {self.verdict}"


@dataclass(frozen=True, eq=False, repr=False)
class Distances:
    """Every distance, and the fit that the distances are from."""

    rows: tuple[Distance, ...]
    reference: Fit

    @property
    def doubtful(self) -> tuple[Distance, ...]:
        """What differs, or cannot be told."""
        return tuple(each for each in self.rows if each.verdict != "ok")

    @property
    def verdict(self) -> str:
        """One sentence, with what to do."""
        if not self.doubtful:
            return f"all {len(self.rows)} agree with the reference"
        differ = [each for each in self.doubtful if each.verdict != UNTOLD]
        if not differ:
            return f"{UNTOLD}: ask for more, as draws=1000"
        found = {word for each in differ for word in each.verdict.split(", ")}
        names = ", ".join(f"`{each.name}`" for each in differ[:8])
        more = f" and {len(differ) - 8} more" if len(differ) > 8 else ""
        remedy = "engine = mcmc, as the reference has it"
        if "one value" in found:
            remedy = "hyperparameters = integrated averages over parameters, which have one value here"
        return f"{names}{more} of {len(self.rows)} differ: {remedy}"

    def to_frame(self) -> DataFrame:
        """A pandas frame with the names as its index."""
        pd = needed("pandas", "to_frame", "data")
        return pd.DataFrame([{**vars(each), "verdict": each.verdict} for each in self.rows]).set_index("name")

    def __repr__(self) -> str:
        width = max(len("name"), *(len(each.name) for each in self.rows))
        lines = [f"{'name':<{width}}    mean   worst  sd ratio  in 90%  verdict"]
        lines += [f"{each.name:<{width}}  {each}" for each in self.rows]
        lines.append(self.verdict)
        return "\n".join([*lines, *(f"of the reference: {note}" for note in self.reference.notes)])

    def _repr_html_(self) -> str:
        return preformatted(repr(self))


def check_against(fit: Fit, data: Any, against: str | Fit, options: dict[str, Any]) -> Distances:
    """See `Fit.check`."""
    fitted_rows(fit, data, "check")
    if isinstance(against, Fit):
        fitted_rows(against, data, "check")
        reference = against
    elif against == AGAINST:
        reference = _chains(fit, data, options)
    else:
        raise GpdslError(f"check: against = {quoted(repr(against))}: expected 'mcmc', or a fit of the same data")
    slack = 0.0 if reference.settings is None else 1.0 / np.sqrt(max(reference.settings.effective, 1.0))
    rows = tuple(Distance(*each, slack) for each in (*_of_parameters(fit, reference), *_of_rows(fit, reference, data)))
    if not rows:
        raise GpdslError("check: the two fits have no name in common")
    return Distances(rows, reference)


def _chains(fit: Fit, data: Any, options: dict[str, Any]) -> Fit:
    """Chains that begin where the fit has ended."""
    kept = {"fixed": fit.options.fixed, "seed": fit.options.seed, "dtype": fit.options.dtype}
    asked = {**OWN_PLAN, **kept, **options}
    found: Fit = fit.model.fit(data, columns=fit.columns, engine="mcmc", start=fit, **asked)
    if found.interrupted and found.settings is None:  # before there were draws
        raise KeyboardInterrupt
    return found


Numbers = tuple[str, float, float, float, float]


def _of_parameters(fit: Fit, reference: Fit) -> Iterator[Numbers]:
    """Of every element that is learnt, where the reference has a distribution of it."""
    if reference.settings is None:
        return
    held = reference.program.parameters.held
    for name in (each for each in reference.parameters if each in fit.parameters and each not in held):
        mean, sd = reference.settings.mean(name), reference.settings.sd(name)
        own = fit.parameters[name] if fit.settings is None else fit.settings.mean(name)
        for at in np.ndindex(*np.shape(mean)):
            if not sd[at] > 0:
                continue
            apart = abs(float(own[at] - mean[at])) / float(sd[at])
            ratio = inside = float("nan")
            if fit.settings is not None:
                low, high = fit.settings.quantile(name, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
                share = reference.settings.share_below
                inside = float(share(name, high)[at] - share(name, low)[at])
                ratio = float(fit.settings.sd(name)[at] / sd[at])
            yield name + subscript(each + 1 for each in at), apart, apart, ratio, inside


def _of_rows(fit: Fit, reference: Fit, data: Any) -> Iterator[Numbers]:
    """Of latents and quantities that both have, at the rows of the data."""
    ours, theirs = fit.predict(data), reference.predict(data)
    known = fit.program.declarations, reference.program.declarations
    first, other = ({*each.latents, *each.lets} for each in known)
    for name in (each for each in [*known[0].latents, *known[0].lets] if each in first & other):
        mean, sd = theirs.mean(name), np.sqrt(theirs.variance(name))
        apart, ratio = np.abs(ours.mean(name) - mean) / sd, np.sqrt(ours.variance(name)) / sd
        low, high = ours.interval(name, LEVEL)
        drawn = theirs.sample(name, DRAWS)
        inside = np.mean((drawn >= low) & (drawn <= high), axis=0)
        for at in np.ndindex(*mean.shape[1:]):
            own = (slice(None), *at)
            some = np.isfinite(apart[own])  # what is the same in every draw has no distance
            if some.any():
                each = apart[own][some]
                spread = float(np.exp(np.mean(np.log(np.maximum(ratio[own][some], 1e-12)))))
                element = name + subscript(place + 1 for place in at)
                yield element, float(np.sqrt(np.mean(each**2))), float(each.max()), spread, float(inside[own].mean())


# Fits of some of the rows, made anew one after the other: under a name, with progress, kept at an interrupt.


T = TypeVar("T")
R = TypeVar("R")
Callback = Callable[[Report], None] | None


def made_of(names: Sequence[str], some: Sequence[T], one: Callable[[T, Callback], R]) -> list[R]:
    """What is made of some fits of other rows, each under its name; of those alone that were made before an interrupt.

    Progress is shown where that takes long and somebody looks.
    """
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
    """The model fitted to some of the values, from where the fit of all of them has ended.

    From the beginning where it has ended at next to no noise: some values may have no finite evidence there.
    """
    fitted = partial(fit_model, fit.model, some, fit.columns, callback, False, options)
    try:
        found = fitted(start=fit)
    except GpdslError:
        if not fit.choice.exact or set(fit.program.parameters.initial) <= set(options.fixed):
            raise
        units = fit.standardised
        found = fitted(standardised={name: (units.means[name], sd) for name, sd in units.sds.items()})
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def options_anew(fit: Fit) -> Options:
    """Those of the fit, with what it has chosen for its rows, and no values to begin at other than its own."""
    init = {name: fit.parameters[name] for name in fit.options.init}
    inducing = fit.options.inducing
    if inducing is None and fit.choice.weights is None and not (fit.choice.exact or fit.choice.dense):
        inducing = dict(fit.choice.own) or fit.choice.inducing
    how = fit.options.hyperparameters
    if how == "auto":
        how = "point" if fit.settings is None else "integrated"
    return replace(fit.options, init=init, inducing=inducing, hyperparameters=how, diagnose="no")
