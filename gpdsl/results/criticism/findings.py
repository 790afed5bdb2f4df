"""What is to be doubted of a fit: one line each, with a number, a verdict, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from gpdsl.data import Data, some_rows
from gpdsl.errors import GpdslError, described
from gpdsl.inference.blocks import machine_for
from gpdsl.inference.diagnosis import Unknown, natural_errors
from gpdsl.inference.inducing.loss import Loss, loss_through_layers
from gpdsl.inference.integrated import UNTRUSTED
from gpdsl.inference.problem import as_arrays
from gpdsl.program.cache import precision
from gpdsl.results.criticism.checks import STATISTICS, checks
from gpdsl.results.criticism.finding import (
    EVALUATIONS,
    EVIDENCE,
    POINTS,
    PROGRAMS,
    SPEED,
    UNFINISHED,
    Diagnosis,
    Ended,
    Finding,
    Inspection,
    affordable,
    allows_errors,
    at_edges,
    cut_short,
    frame,
    judged,
    of_curvature,
    skipped,
    unmade,
)
from gpdsl.results.criticism.importance import (
    importance,
    kept_from,
    one_gaussian,
    price_of_draws,
    price_of_one,
    reasons,
    with_statistics,
)
from gpdsl.results.criticism.learnt import certainty, informed, other_places, price_of_certainty, worth
from gpdsl.results.criticism.left_out import LeaveOneOut, fitted_rows, leave_one_bound
from gpdsl.results.criticism.places import (
    CHANCE,
    in_deviations,
    learn_noise,
    line_of,
    of_both,
    of_elements,
    price_of_values,
    spreading,
    values_seen,
)
from gpdsl.results.criticism.plugged import TROUBLE, curvature_of, plugged
from gpdsl.results.criticism.seen import Seen
from gpdsl.results.criticism.structure import correlation, flexibility, reach, rows_and_levels, symmetry
from gpdsl.results.criticism.through_layers import multiplications, rows_left_out
from gpdsl.results.fitting import on_device
from gpdsl.results.scored import randomised
from gpdsl.results.summary import STOPPED, estimate, in_data_units, more_points
from gpdsl.results.table import predictable_outputs

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


ASKED = {"full", "all", "everything"}
"""Words for all that there is, which are no names of files."""

MANY = 0.02
"""Share of rows with k above 0.7."""

NOTHING = 0.01
"""Share of its start from which down a parameter is next to 0."""

DRAWS, ROWS = 1000, 1000
"""Data sets drawn anew, and rows of each at most."""

THROUGH_LAYERS, LAYERS, LOST = 100, 1.2, 0.2
"""Rows at which fits of layers are looked at, at most; the price of leaving these out, two thirds of that of drawing
data anew; and nats a row that q of its variables may lose."""


def diagnose(fit: Fit, data: Any, full: bool) -> Diagnosis:
    """See `Fit.diagnose`. Raises GpdslError for other data than were fitted."""
    found = fit.inspection
    if (full and data is None) or (isinstance(data, str) and data in ASKED):
        raise GpdslError(
            "diagnose: a fit keeps no data, so that everything is looked at where it gets the rows that were fitted: "
            "fit.diagnose(data); or ask before, model.fit(data, diagnose='full')"
        )
    if data is None:
        return found.diagnosis
    bound = fitted_rows(fit, data, "diagnose")
    with precision(fit.options.dtype), np.errstate(all="ignore"):
        seen = Seen(fit, bound)
        told = _looked(fit, seen, np.inf)
        every = judged(fit, (*found.of_parameters, *told.findings))
        return Diagnosis((*every, *reasons(fit, seen, told.silent), *unmade((), told.failed, found.lacking)))


def parameter_frame(fit: Fit) -> Any:
    """See `Fit.to_frame`."""
    lines: list[tuple] = []
    standardised = bool(fit.standardised.sds)
    for name in fit.parameters:
        value = estimate(fit, name)
        errors = np.broadcast_to(fit.standard_errors.get(name, np.nan), np.shape(value))
        held, there = name in fit.program.parameters.held, np.broadcast_to(in_data_units(fit, name), np.shape(value))
        for at in np.ndindex(np.shape(value)):
            own = (float(value[at]), float(errors[at]))
            more = tuple(float(there[at]) * each for each in own) if standardised else ()
            lines.append((name, tuple(i + 1 for i in at), *own, held, *more))
    columns = ["parameter", "element", "value", "standard_error", "fixed"]
    return frame(lines, columns + (["value_in_data_units", "standard_error_in_data_units"] if standardised else []))


def _of_fit(fit: Fit, _: Seen) -> Iterator[Finding]:
    """Whether it has ended, and what inference itself has noted."""
    if fit.interrupted:
        by = "an opaque function" if fit.message.startswith(STOPPED) else "the user"
        ended = fit.message.startswith("converged")
        state = "what a search ended with, before all else was tried" if ended else "the best state until then"
        said = f"interrupted by {by}: this is {state}, and everything below is of that"
        remedy = "go on with model.fit(data, start=fit), or resume=True (--resume) where it had a checkpoint"
        yield Finding(UNFINISHED, float(len(fit.history)), True, said, remedy)
    yield from cut_short(fit)
    yield from (Finding("note", np.nan, True, note) for note in fit.notes)
    if fit.inducing_loss is not None and not fit.choice.exact:
        yield _lost(fit, Loss(fit.inducing_loss, fit.rows))


def _lost(fit: Fit, loss: Loss) -> Finding:
    """What inducing points lose."""
    said = f"{fit.choice.support} lose about {loss.nats:,.{'0f' if loss.nats > 10 else '2g'}} nats of the evidence"
    return Finding(POINTS, loss.nats, not loss.small, said, more_points(fit))


def _left_open(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """The same of layers, whose fit does not tell."""
    if fit.program.inner:
        held = fit.inducing, fit.posterior, fit.jitter
        known = fit.standardised.applied(seen.data)
        yield _lost(fit, loss_through_layers(fit.predicting, known, fit.parameters, held, fit.options.dtype))


def _left_out(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """What the other rows say of each; nothing where rows cannot be left out."""
    if fit.program.inner:
        yield from _through_layers(fit, seen.data)
        return
    try:
        left = leave_one_bound(fit, seen.data)
    except GpdslError:  # of a posterior that has no such thing
        return
    yield from _of_rows(left)
    yield from _of_places(left)


def _through_layers(fit: Fit, data: Data) -> Iterator[Finding]:
    """The same of some rows; and whether they lie in what is predicted of them, though they were seen."""
    some = some_rows(data.rows, THROUGH_LAYERS)
    part = data.take(some)
    seen = part.observed_rows
    drawn = rows_left_out(fit, data, some[seen])
    share = float(np.mean(drawn.k > UNTRUSTED)) if len(drawn.k) else 0.0
    said = f"Pareto's k is above 0.7 in {share:.0%} of the rows"  # also where q takes layers for independent
    if share > MANY:
        yield skipped(f"rows left out, as {said}: fit.cross_validate(data) predicts them without", share)
    else:
        yield Finding("rows left out", share, False, said)
    worth, first = drawn.itself - drawn.without, learn_noise(fit.program)
    instead = spreading(fit.program) or (f"{first}give it a prior" if first else "give the noise a prior")
    said = f"a row's own value is worth {np.mean(worth):.2g} nats to what is said of it, on average"
    remedy = f"the fit follows the noise of single rows: {instead}; or a length-scale is too short"
    yield Finding("effective parameters", float(np.sum(worth)), float(np.mean(worth)) > 1, said, remedy)
    if drawn.lost.any() and fit.options.importance == 1 and fit.options.beta == 1:
        lost = float(np.mean(drawn.lost))
        said = f"one Gaussian for the variables of a row loses {lost:.2g} nats of the bound a row"
        remedy = "what the outputs say of them has several peaks, or is curved: importance = 5 may make the bound "
        yield Finding("q of row variables", lost, lost > LOST, said, f"{remedy}tighter")
    for name in predictable_outputs(fit.program.declarations):
        known = part.observed[name][seen]
        weighed = np.broadcast_to(~(drawn.k > UNTRUSTED), known.T.shape).T  # a row's elements are weighed together
        low, high = np.where(weighed, drawn.places[name], drawn.of_all[name])
        if known.any():
            places, line = randomised(low, high, known, 0)[known], line_of(fit, part, int(np.sum(known)))
            yield of_both(name, places, weighed[known], first, line)


def _of_rows(left: LeaveOneOut) -> Iterator[Finding]:
    """Rows that move the posterior."""
    weighted, seen = np.isfinite(left.k), int(np.sum(np.isfinite(left.pointwise)))
    if weighted.any():
        share = float(np.sum(left.doubtful)) / seen
        said = f"Pareto's k is above 0.7 in {share:.0%} of the rows"
        remedy = "single rows move the posterior: look at these rows, or give the noise heavier tails"
        yield Finding("rows left out", share, share > MANY, said, remedy)


def _of_places(left: LeaveOneOut) -> Iterator[Finding]:
    """Whether values lie evenly in what the other rows predict of them."""
    program = left.fit.program
    first, normal = learn_noise(program), all(each.distribution == "Normal" for each in program.observations)
    for name in predictable_outputs(program.declarations) if left.left else ():
        places = left.pit(name)
        known, title = np.isfinite(places), f"calibration of {name}"
        places = places[known]
        if not places.size:
            continue
        inside, p = float(np.mean(np.abs(places - 0.5) < 0.45)), float(scipy.stats.kstest(places, "uniform").pvalue)
        deviations = in_deviations(places)
        spread, chance = _spread(deviations)
        words = "narrow" if inside < 0.9 else "wide, or not where the values are"
        said = f"90% intervals from the other rows hold {inside:.0%} of its values, p {p:.2g}"
        if chance < min(p, CHANCE):
            p, words = chance, "narrow" if spread > 1 else "wide"
            said += f"; values spread {spread:.2f} times as wide as these say, p {p:.2g}"
        less = spread < 1 and {each.distribution for each in program.observations} == {"Poisson"}
        law = "`Binomial(trials, logit = f)` of counts that have a largest one, or another law" if less else ""
        remedy = f"predictions are too {words}: {first}take {law or 'another likelihood or kernel'}"
        exact, several = left.fit.choice.exact, known.ndim > 1  # `calibrated` and `values_seen` tell of others
        pattern = None if exact else of_elements(left.fit, title, deviations, known, left.data, several, normal)
        yield pattern or Finding(title, p, p < CHANCE, said, remedy)


def _spread(deviations: Float[np.ndarray, " values"]) -> tuple[float, float]:
    """Root mean square of values in standard deviations, and how seldom it is as far from 1; 1 where that is little."""
    count, total = len(deviations), float(np.sum(deviations**2))
    spread = np.sqrt(total / count)
    p = 2 * min(scipy.stats.chi2.cdf(total, count), scipy.stats.chi2.sf(total, count))
    return float(spread), float(p) if abs(spread - 1.0) > SPREAD else 1.0


def _of_statistics(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """Statistics that data drawn anew hardly ever have."""
    data, some = seen.data, some_rows(seen.data.rows, THROUGH_LAYERS if fit.program.inner else ROWS)
    part = data if len(some) == data.rows else data.take(some)
    for name in with_statistics(fit):
        if not part.observed[name].any():
            continue
        output = fit.program.declarations.outputs[name]
        asked = {each: of for each, of in STATISTICS.items() if each != "zeros" or output.kind == "count"}
        if output.kind != "count" and not np.ptp(part.outputs[name][part.observed[name]]):
            yield skipped(f"min, max, variance of {name}, as its values are all the same: no noise reproduces that")
            asked = {"mean": STATISTICS["mean"]}
        for found in checks(fit, part, asked, name, 0, DRAWS):
            low, high = np.quantile(found.drawn, [0.05, 0.95])
            odd = 2 * min(found.p, 1.0 - found.p) < CHANCE
            said = f"{found.observed:.4g}, of data drawn anew {low:.4g} to {high:.4g}, p {found.p:.2g}"
            remedy = "the likelihood or its noise does not suit the values"
            yield Finding(f"{found.statistic} of {name}", found.p, odd, said, remedy)


SPREAD = 0.1
"""Share by which values spread more or less than others say, from which on it matters."""


class Look(NamedTuple):
    """One thing to look at: what finds it, and what that costs beside the fit, in the seconds of `price`."""

    find: Callable[[Fit, Seen], Iterator[Finding]]
    price: Callable[[Fit, Seen], float] = lambda *_: 0.0


def _price(fit: Fit, programs: int, through_layers: float) -> float:
    """Of so many programs, or of what is done through layers."""
    return through_layers * bool(programs) if fit.program.inner else PROGRAMS * programs


def _price_of_rows(fit: Fit, seen: Seen) -> float:
    """Draws of functions of a row's variables, through layers, have covariances of their own at its nodes."""
    return _price(fit, 3, LAYERS + multiplications(fit, min(seen.data.rows, THROUGH_LAYERS)) / SPEED)


LOOKS: dict[str, Look] = {
    "notes": Look(_of_fit),
    "symmetry": Look(symmetry),
    POINTS: Look(_left_open, lambda fit, _: PROGRAMS * bool(fit.program.inner)),
    "reach of latents": Look(reach),
    "rows and levels": Look(rows_and_levels),
    EVIDENCE: Look(worth),
    "what is known of latents": Look(informed, lambda _, seen: PROGRAMS * (seen.plain and not seen.on_host)),
    "certainty of classes": Look(certainty, price_of_certainty),
    "correlation between latents": Look(correlation),
    "effective parameters": Look(flexibility, lambda fit, seen: PROGRAMS * (fit.at_rows.by_data and not seen.on_host)),
    "values seen": Look(values_seen, price_of_values),
    "rows left out": Look(_left_out, _price_of_rows),
    "data drawn anew": Look(_of_statistics, lambda fit, _: _price(fit, 2 * bool(with_statistics(fit)), 1.5 * LAYERS)),
    "q against the posterior": Look(importance, price_of_draws),
    "mixture against one Gaussian": Look(one_gaussian, price_of_one),
}
"""What is looked at, in the order in which it is told and paid for; what costs nothing is always made."""


# Looking at a fit: the curvature of its evidence, and everything else that a tenth of the fit pays for.
#
# What costs more is made when it is asked for, by `fit.diagnose(data)` or `diagnose = full`, and named until then.


def inspect(fit: Fit, ended: Ended) -> Inspection:
    """All that is affordable."""
    seen, paid = Seen(fit, fit.standardised.removed(ended.data)), affordable(fit)
    edges = list(at_edges(fit))
    errors, lacking, findings = {}, "", [finding for finding, _ in edges]
    quiet = np.errstate(all="ignore")  # of evidences that are not finite
    with precision(fit.options.dtype), on_device(fit.options.device), machine_for(fit.rows), quiet:
        try:
            found = curvature_of(fit, ended)
            errors = natural_errors(fit.program.parameters, found, as_arrays(dict(ended.learnt), fit.options.dtype))
            findings += of_curvature(found, {name for _, names in edges for name in names}, _gone(fit))
            findings += _unless_it_fails(plugged, seen, ended, found)
        except Unknown as reason:
            lacking = str(reason)
        findings += _other_places(fit, ended)
        told = _looked(fit, seen, paid)
        findings = [*judged(fit, [*findings, *told.findings]), *reasons(fit, seen, told.silent)]
    return Inspection(errors, lacking, tuple(findings), tuple(told.left), tuple(told.failed))


def _gone(fit: Fit) -> set[str]:
    """Positive parameters that the search has left with next to nothing of their start."""
    declared, starts = fit.program.declarations.params, fit.program.parameters.initial
    positive = {name: start for name, start in starts.items() if declared[name].constraint == "positive"}
    return {name for name, start in positive.items() if not start.ndim and fit.parameters[name] < NOTHING * start}


class Looked(NamedTuple):
    """What was found, and names of looks that cost too much, failed, and had nothing to say."""

    findings: list[Finding]
    left: list[str]
    failed: list[str]
    silent: list[str]


def _looked(fit: Fit, seen: Seen, paid: float) -> Looked:
    """All that so many seconds pay for."""
    found = Looked([], [], [], [])
    for name, look in LOOKS.items():
        try:
            kept = kept_from(fit, seen, name)
            price = 0.0 if kept else look.price(fit, seen)
            if price > paid:
                found.left.append(name)
                continue
            told = [] if kept else list(look.find(fit, seen))
        except TROUBLE as problem:  # a summary is worth more than a look at it
            found.failed.append(f"{name} ({described(problem)[:100]})")
            continue
        paid -= price
        found.findings.extend(told)
        found.silent.extend([] if told else [name])
    return found


def _other_places(fit: Fit, ended: Ended) -> list[Finding]:
    """Learnt parameters that no density tells apart; averages over parameters and chains tell of theirs."""
    if ended.profile is None or fit.settings is not None or not allows_errors(fit, EVALUATIONS):
        return []
    learnt = as_arrays(dict(ended.learnt), fit.options.dtype)
    return _unless_it_fails(other_places, fit, ended.evidence, learnt)


def _unless_it_fails(find: Callable[..., Iterator[Finding]], *given: Any) -> list[Finding]:
    """What is found, or nothing."""
    try:
        return list(find(*given))
    except TROUBLE:
        return []
