"""Rows that move a fit much, left out by fits without them: what taking a site away, or weights, only approximate.

Both take the other rows' part in q as it is, though it was found beside the row. What that costs grows with how much
better the fit predicts the row than the others do: measured over Student-t, Poisson, binary and heteroscedastic
data with outliers, about a quarter of it. Rows above a bound, and those whose k is above 0.7, are therefore left out by
fits of all others: values without their observation, so that the programs of one serve for all, at the parameters
of the fit, or integrated over them anew. What the other rows' densities are off by is told from how far these were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from gpdsl.data import Data
from gpdsl.errors import GpdslError, quoted
from gpdsl.inference.monitor import Monitor
from gpdsl.inference.plan.options import Options
from gpdsl.results.criticism.folds import options_anew
from gpdsl.results.criticism.left_out import (
    LeaveOneOut,
    densities_of_settings,
    fitted_rows,
    known_exactly,
    leave_one_bound,
    log_weights_of,
)

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

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


def leave_one_out(fit: Fit, data: Any, refits: int | None = None) -> LeaveOneOut:
    """See `Fit.loo`. Raises GpdslError for other data than were fitted, and what is no number of fits."""
    if refits is not None and (isinstance(refits, bool) or not isinstance(refits, int | np.integer) or refits < 0):
        raise GpdslError(f"loo: refits = {quoted(repr(refits))}: expected how many rows fits may leave out, as 20 or 0")
    bound = fitted_rows(fit, data, "loo")
    found = leave_one_bound(fit, bound)
    asked = _rows(found)
    most = min(_by_itself(fit) if refits is None else int(refits), len(asked))
    return _told(found, dict(_fits_without(fit, bound, asked[:most])))


def _fits_without(fit: Fit, bound: Data, rows: Int[np.ndarray, " some"]) -> Iterator[tuple[int, Fit]]:
    """A fit without each row; with a bar where that takes long and somebody looks."""
    from gpdsl.results.fitting import progress_shown

    with progress_shown(None, None) as report:
        monitor = Monitor(len(rows), report, "fits without a row")
        for done, row in enumerate(map(int, rows), 1):
            found = _fit_without(fit, bound, row)
            yield row, found
            monitor.report(done, found.elbo)


def _moved(found: LeaveOneOut) -> Float[np.ndarray, " rows"]:
    """Nats that a row's own value is worth to its density; 0 where it is left out exactly, or nothing is observed."""
    if known_exactly(found.fit) and found.fit.settings is None:
        return np.zeros(len(found.pointwise))
    return np.nan_to_num(np.abs(found.of_itself - found.pointwise), posinf=np.inf)


def _rows(found: LeaveOneOut) -> Int[np.ndarray, " some"]:
    """Those that no approximation is to be trusted with, the worst first."""
    moved = _moved(found)
    many = moved > MOVED if not known_exactly(found.fit) else np.zeros(len(moved), bool)  # weights tell of these
    odd = np.flatnonzero(many | found.doubtful)
    return odd[np.lexsort((-moved[odd], ~found.doubtful[odd]))]


def _by_itself(fit: Fit) -> int:
    """Fits that are made without being asked for: none that take chains, other programs, or many rows."""
    program, options = fit.program, fit.options
    plain = options.engine in {"vi", "ep"} and not options.batch and fit.rows <= LARGEST
    if not plain or program.opaque or program.fields or options.parameters == "gaussian":
        return 0
    return FEWER if options.posterior == "corrected" or fit.settings is not None else MOST


def _fit_without(fit: Fit, bound: Data, row: int) -> Fit:
    """The model fitted to all rows but one, whose values are missing."""
    from gpdsl.results.fitting import fit_model

    seen = np.arange(bound.rows) != row
    observed = {name: known & seen.reshape(-1, *(1,) * (known.ndim - 1)) for name, known in bound.observed.items()}
    outputs = {name: np.where(observed[name], each, 0) for name, each in bound.outputs.items()}
    others = replace(bound, outputs=outputs, observed=observed)
    found = fit_model(fit.model, others, fit.columns, None, False, _options(fit), start=fit)
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def _options(fit: Fit) -> Options:
    """Those of the fit, with its parameters, unless they are integrated over."""
    options = options_anew(fit)
    if fit.settings is not None and fit.options.hyperparameters == "integrated":
        return options
    return replace(options, fixed=tuple(fit.parameters), init=dict(fit.parameters))


def _told(found: LeaveOneOut, without: dict[int, Fit]) -> LeaveOneOut:
    """With the densities of rows by the fits without them, and what the others may be off by."""
    pointwise, k, moved = found.pointwise.copy(), found.k.copy(), _moved(found)
    off = np.zeros(len(pointwise))
    for row, one in without.items():
        pointwise[row], off[row] = _density(found, one, row)
        k[row] = np.nan
    error = _share(found.pointwise, pointwise, moved, list(without)) * moved
    error = np.where(k > found.trusted, np.maximum(moved, error), error)
    error[list(without)] = off[list(without)]
    return replace(found, pointwise=pointwise, k=k, error=error, without=without)


def _density(found: LeaveOneOut, one: Fit, row: int) -> tuple[float, float]:
    """log p(y_n | the others) by a fit of these, and what it may be off by.

    Far out in the tail of q that density is what the tail of a Gaussian says. The difference of the bounds with the
    row and without it is another approximation of the same number, whose gaps nearly cancel. Against quadrature over
    three latents, 90 rows of five likelihoods, the former was off by up to 17 nats and the latter by .35; where they
    are near each other, the former is the better one. With inducing points it always is: what bounds lose by these
    differs by nats with the row and without it. Under normal noise taking the site away gives the same, exactly.

    Where parameters are averaged over, a value that few settings of the others allow is looked at from both sides: by
    the settings of the others and by those of all rows, whose averages are each too low and too high, and with the
    bridge between them (Meng and Wong 1996).
    """
    some = found.data.take(np.asarray([row]))
    below = float(one.log_predictive_density(some)[0])
    if one.settings is None or found.densities is None:
        worth = _worth(found.fit, one)
        apart = abs(below - worth) if np.isfinite(worth) else 0.0
        if found.fit.inducing_loss is not None:  # with the row and without it bounds lose different amounts
            return below, apart if abs(below - found.pointwise[row]) > EXACT else 0.0
        return (worth, min(apart / 2, OFF_AT_MOST)) if apart > NEAR else (below, apart)
    offset = float(np.sum(found.fit.standardised.log_jacobian(some.observed)))
    theirs, own = densities_of_settings(one, some)[:, 0], found.densities[:, row]
    high, low = log_weights_of(found.fit), log_weights_of(one)
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
