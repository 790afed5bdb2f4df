"""How much wider what is known of latents is once the learnt parameters are averaged over, instead of plugged in.

With theta the end of a search, Sigma the covariance of the learnt parameters there by the curvature of the evidence,
and a_i the columns of a root of Sigma, the law of total variance to second order in the a_i says of a latent at a row

    Var[f | y] ~ v(theta) + sum_i { [v(theta + a_i) + v(theta - a_i)] / 2 - v(theta)
                                    + [m(theta + a_i) - m(theta - a_i)]^2 / 4 },

m and v its mean and variance at given parameters. Where these have longer tails than a Gaussian it is more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from gpdsl.data import some_rows
from gpdsl.errors import GpdslError
from gpdsl.inference.ascent.lbfgs import unflat
from gpdsl.inference.diagnosis import Curvature, Unknown, curvature
from gpdsl.inference.integrated import AFFORDABLE, WORTH, Integrated, evaluations_of
from gpdsl.inference.problem import as_arrays
from gpdsl.program.program import Program, take_rows
from gpdsl.results.criticism.finding import (
    PLUGGED,
    PROGRAMS,
    Ended,
    Finding,
    affordable,
    allows_errors,
    evaluation,
    skipped,
)
from gpdsl.results.criticism.seen import Seen
from gpdsl.results.settings import Settings
from gpdsl.results.table import predictable_outputs

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

ROWS, SOME = 1000, 200
"""At which latents are looked at, and outputs, at most."""

NUMBERS = {"real", "positive", "count", "unit"}
"""Kinds of outputs that have a standard deviation of their own."""

FEW = 500
"""Values that a posterior is over, up to which its matrices are made at each setting of the parameters."""

WIDENED = 1.5
"""Times as wide as a posterior would be, but for a level and scale that parameters share, from which intervals are too
narrow."""

MANY = 20
"""Times as wide beyond which nothing is told of how much: a normal approximation does not reach as far."""

SCALED = 0.1
"""Times the scale of the fit from which that at another setting is told."""


TROUBLE = (GpdslError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, MemoryError)
"""What a look may end in, at models that nobody has thought of."""


def curvature_of(fit: Fit, ended: Ended) -> Curvature:
    """Of the evidence at the end of a search. Raises Unknown."""
    if not ended.learnt:
        raise Unknown("nothing was learnt")
    if fit.options.beta != 1:
        raise Unknown(f"with beta = {fit.options.beta:g} the bound is not one of the evidence")
    if fit.settings is not None:
        raise Unknown("parameters are averaged over, with standard deviations")
    if fit.interrupted:
        raise Unknown("the search was interrupted")
    if ended.profile is None:
        how = f"{fit.choice.optimizer} moves q and parameters together"
        raise Unknown(f"{how}, so that the bound at the best q of other parameters is not known")
    evaluations = 1 + sum(np.size(each) for each in ended.learnt.values())
    if not allows_errors(fit, evaluations):
        raise Unknown(f"they take {evaluations} evaluations of the evidence; ask for diagnose = full")
    learnt, bound = as_arrays(dict(ended.learnt), fit.options.dtype), None if fit.program.sampled else ended.bound
    return curvature(fit.program, ended.evidence, learnt, bound, fit.rows)


def beside(fit: Fit, ended: Ended, found: Curvature) -> Settings | None:
    """A standard deviation to either side along each direction that the data determine, with the posteriors there.

    None where there is none, or the end is no maximum along these.
    """
    like, results, profile = as_arrays(dict(ended.learnt), fit.options.dtype), [], ended.evidence
    top = profile.value(like)
    for place in (found.place + sign * axis for axis in found.axes.T for sign in (1, -1)):
        if not -np.inf < profile.value(unflat(like, place)) <= top:
            return None
        results.append(profile.at(unflat(like, place)))
    constrain, count = fit.program.parameters.constrain, len(results)
    evenly = Integrated(np.full(count, 1.0 / max(count, 1)), tuple(results), np.nan, float(count), count)
    return Settings.of(evenly, constrain, fit.options.dtype) if results else None


def widened(seen: Seen, there: Settings) -> dict[str, tuple[float, float]]:
    """By how much standard deviations of each latent grow over all rows, and those without its level and scale."""
    program, columns = seen.fit.program, _columns(seen.fit.program)
    if not columns:
        return {}
    means, variances = _marginals(seen, there)
    alike = np.stack([_as_first(means[:, :, at], variances[:, :, at]) for at in columns], axis=3)
    ratios = (_ratio(means[:, :, columns], variances[:, :, columns]), _ratio(*alike))
    return {
        program.latent_names[at]: (float(whole), float(shape))
        for at, whole, shape in zip(columns, *ratios, strict=True)
    }


def widened_outputs(seen: Seen, there: Settings) -> dict[str, tuple[float, float]]:
    """The same of outputs that are numbers, by predictions averaged over the settings, of which each is one of 2 d."""
    fit, declared, found = seen.fit, seen.fit.program.declarations, {}
    data = seen.data.take(some_rows(seen.data.rows, SOME))
    alone, averaged = (each.predict_bound(data, None, None) for each in (fit, replace(fit, settings=there)))
    for name in predictable_outputs(declared):
        if declared.outputs[name].kind in NUMBERS:
            known, apart = alone.variance(name), averaged.variance(name) - alone.variance(name)
            total = np.sum(known + apart * len(there.each) / 2) / np.sum(known)
            found[name] = (float(np.sqrt(max(total, 0.0))),) * 2 if np.isfinite(total) else (1.0, 1.0)
    return found


def _ratio(
    means: Float[np.ndarray, "settings rows columns"], variances: Float[np.ndarray, "settings rows columns"]
) -> Float[np.ndarray, " columns"]:
    """Of standard deviations over all rows with the parameters averaged over, and at the first setting."""
    grown = np.sum(variances[1:] - variances[0], axis=(0, 1)) / 2
    grown += np.sum((means[1::2] - means[2::2]) ** 2, axis=(0, 1)) / 4
    known = np.sum(variances[0], axis=0)
    return np.sqrt(np.maximum(known + grown, 0.0) / np.where(known > 0, known, np.inf))


def _as_first(
    means: Float[np.ndarray, "settings rows"], variances: Float[np.ndarray, "settings rows"]
) -> Float[np.ndarray, "2 settings rows"]:
    """Those of a latent in the level and scale of the first setting, as far as these are seen in its mean."""
    first = means[0] - means[0].mean()
    slopes = means @ first / max(first @ first, np.finfo(float).tiny)
    slopes = np.where(slopes > SCALED, slopes, 1.0)[:, None]
    return np.stack([(means - means.mean(axis=1, keepdims=True)) / slopes, variances / slopes**2])


def _marginals(seen: Seen, there: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances, [settings, rows, columns], of the fit and at each setting."""
    fit, data = seen.fit, seen.data
    if is_quick(seen):
        fits = [replace(fit, parameters=s.parameters, posterior=s.posterior, held=s.held) for s in there.each]
        every = [each.marginals() for each in (seen, *(Seen(other, data) for other in fits))]
    else:
        some, every = some_rows(data.rows, ROWS), []
        for each in (fit.at_rows, *there.posteriors(fit.at_rows)):
            found = each.marginals(fit.program, take_rows(seen.rows, some), len(some))
            every.append((np.asarray(found.mean[0], float), np.asarray(found.variance[0], float)))
    return np.stack([mean for mean, _ in every]), np.stack([variance for _, variance in every])


def is_quick(seen: Seen) -> bool:
    """Whether marginals take no program, and matrices of few numbers."""
    return seen.plain and seen.on_host and sum(map(len, seen.fit.inducing)) <= FEW


def _columns(program: Program) -> list[int]:
    """Those of latents, but for variables of rows, whose posterior is one of their own rows."""
    groups = [] if program.inner or program.fields else [each for each in program.groups if not each.per_row]
    return [group.start + number for group in groups for number in range(group.size)]


def plugged(seen: Seen, ended: Ended, found: Curvature) -> Iterator[Finding]:
    """Whether intervals are too narrow, as they have the learnt parameters for known."""
    fit, posteriors = seen.fit, 2 * found.axes.shape[1]
    if not allows_errors(fit, posteriors) or not (is_quick(seen) or affordable(fit) > PROGRAMS):
        yield skipped(f"{PLUGGED}, as that takes {posteriors} posteriors; ask for diagnose = full")
    elif there := beside(fit, ended, found):
        grown = widened(seen, there) or widened_outputs(seen, there)
        name, (ratio, shape) = max(grown.items(), key=lambda each: each[1], default=("", (1.0, 1.0)))
        said = f"{_wider(name, ratio)} with the parameters averaged over"
        said += f", {shape:.2f} times but for its level and scale" * (ratio > WIDENED > shape)
        opened = sorted(_open_without_prior(fit, found))
        first = f"give {', '.join(f'`{each}`' for each in opened)} a prior, and " * bool(opened)
        remedy = f"intervals are too narrow: {first}take hyperparameters = integrated"
        if name:
            yield Finding(PLUGGED, ratio, max(shape for _, shape in grown.values()) > WIDENED, said, remedy)


def worth_averaging(fit: Fit, ended: Ended) -> str:
    """What it changes to average over the learnt parameters, in words; none where it does not matter or costs much."""
    if _seconds(fit) > AFFORDABLE:
        return ""
    try:
        found = curvature_of(fit, ended)
        there, seen = beside(fit, ended, found), Seen(fit, fit.standardised.removed(ended.data))
        grown = {} if there is None else widened(seen, there) | widened_outputs(seen, there)
    except (Unknown, *TROUBLE):
        return ""
    name, (ratio, _) = max(grown.items(), key=lambda each: each[1], default=("", (1.0, 1.0)))
    if _open_without_prior(fit, found):  # flat on the real line
        return ""
    return _wider(name, ratio) if round(ratio, 2) >= WORTH else ""


def _seconds(fit: Fit) -> float:
    """What averages over the learnt parameters may take, by sizes."""
    return evaluations_of(sum(map(np.size, fit.program.parameters.unconstrained().values()))) * evaluation(fit)


def _open_without_prior(fit: Fit, found: Curvature) -> set[str]:
    """Parameters that averages would depend on by where they are cut off."""
    open_ended = np.flatnonzero(np.isinf(np.diagonal(found.covariance)))
    return {found.names[at].split("[")[0] for at in open_ended} - fit.program.priors.keys()


def why_plugged(fit: Fit) -> str:
    """Why `hyperparameters = auto` has not averaged over the learnt parameters, in words."""
    if (seconds := _seconds(fit)) > AFFORDABLE:
        return f"averages over the parameters may take {seconds:.0f} s"
    if not fit.standard_errors:
        return f"no curvature tells what averages over the parameters would change: {fit.inspection.lacking}"
    for name, errors in fit.standard_errors.items():
        if np.isinf(errors).any() and name not in fit.program.priors:
            return f"the data leave `{name}` open, and averages need a prior of it"
    found = [each.said for each in fit.inspection.findings if each.name == PLUGGED and round(each.number, 2) < WORTH]
    return found[0] if found else "averages over the parameters change little, or nothing tells what"


def _wider(name: str, ratio: float) -> str:
    times = f"about {ratio:.2f}" if ratio < MANY else f"over {MANY}"
    return f"standard deviations of `{name}` are {times} times as large"
