"""How well every row is predicted by all others, without fits for each: leave-one-out cross-validation, and WAIC.

Parameters stay those of the fit, or are averaged over where these are integrated over or drawn: each setting then
counts as much as the other rows say, by Pareto-smoothed importance sampling (Vehtari, Gelman and Gabry 2017).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from gpdsl.data import Data
from gpdsl.errors import GpdslError, GpdslWarning, plural
from gpdsl.inference.integrated import UNTRUSTED
from gpdsl.inference.posteriors.posterior import Posterior, by_parts
from gpdsl.language.calls import spoken
from gpdsl.language.options import check_option
from gpdsl.program.cache import precision
from gpdsl.program.white import training, white_beside
from gpdsl.results.criticism.cavity import Values, among_others, cavities, fields_left_out
from gpdsl.results.criticism.through_layers import (
    Places,
    averaged,
    by_draws,
    drawn_densities,
    reweighted,
    rows_left_out,
)
from gpdsl.results.density import drawn_log_densities, is_opaque, log_predictive
from gpdsl.results.expectation import Beliefs
from gpdsl.results.prediction import Prediction
from gpdsl.results.scored import places_of, randomised

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

ROUNDING = 0.05
"""Nats below 0 that are no less than none."""

UNRESOLVED = 0.5
"""Share of the settings of parameters in which rounding leaves a row of an exact fit no noise of its size."""

MUCH = 1.0
"""Nats by which WAIC may differ from rows left out, in all. A variance of a log density above 0.4 (Vehtari et al.
2017) tells less: one row in twenty of right fits has more, and sums then differ by a tenth of a nat."""

EXACT = "exact leave-one-out"

ONE_GAUSSIAN = {"full", "coupled", "linear"}
"""Posterior families in which each row stands by a Gaussian site."""


@spoken
@dataclass(frozen=True, eq=False, repr=False)
class Elpd:
    """Expected log predictive density of new rows like those of the data, in nats: the sum over rows, higher is better.

    `pointwise` [rows] has its terms, NaN for rows of which nothing is observed; `of_itself` is log p(y_n | all data),
    the row's own value included.
    """

    fit: Fit
    data: Data
    pointwise: Float[np.ndarray, " rows"]
    of_itself: Float[np.ndarray, " rows"]
    method: str

    @property
    def elpd(self) -> float:
        """The sum over rows."""
        return float(np.nansum(self.pointwise))

    @property
    def se(self) -> float:
        """Its standard error, from how unlike the rows are; NaN of a single row."""
        seen = self.pointwise[np.isfinite(self.pointwise)]
        return float(np.sqrt(len(seen) * np.var(seen))) if len(seen) > 1 else np.nan

    @property
    def effective_parameters(self) -> float:
        """By how much the fit predicts its own rows better than unseen ones, in nats; NaN if it does not."""
        found = float(np.nansum(self.of_itself)) - self.elpd
        return found if found >= -ROUNDING else np.nan

    def __repr__(self) -> str:
        return f"<{self.said}, {_parameters(self.effective_parameters)}>"

    @property
    def said(self) -> str:
        """How well of how many rows, in words."""
        name, count = self.fit.program.declarations.name, int(np.sum(np.isfinite(self.pointwise)))
        error = f" ± {self.se:.1f}" if count > 1 else ""
        rows = plural(count, "row") + ", which tells no standard error" * (count == 1)
        return f"{self.method} of {name}: elpd {self.elpd:.1f}{error} nats, {rows}"


def _parameters(count: float) -> str:
    """Effective ones, or why they are not told."""
    if np.isnan(count):
        return "no effective parameters, as its own values tell the fit nothing of a row"
    return f"{abs(count):.1f} effective parameters"


@spoken
@dataclass(frozen=True, eq=False, repr=False)
class LeaveOneOut(Elpd):
    """Rows left out one by one. `method` says how; `k` [rows] is Pareto's shape where rows are weighted, else NaN.

    Above 0.7 a row moves the posterior so much that what the others say of it is not to be trusted.
    """

    k: Float[np.ndarray, " rows"]
    log_weights: Float[np.ndarray, "settings rows"]
    """Of settings of the parameters, without each row; one setting where parameters have one value."""
    left: Sequence[Beliefs] | None
    """What all other rows say of each, under every setting; empty where that is known by weighted draws alone, None of
    a copy."""
    error: Float[np.ndarray, " rows"] | None = None
    """Nats that each term may be off by, 0 of rows that are left out exactly or by a fit without them."""
    without: Mapping[int, Fit] = field(default_factory=dict)
    """Fits without a row, by its number from 0."""
    not_made: int = 0
    """Such fits that an interrupt has kept from being made: `error` says what their rows may be off by."""
    densities: Float[np.ndarray, "settings rows"] | None = None
    """log p(y_n | the other rows) under every setting, in the units of the fit."""
    places: Mapping[str, Places] = field(default_factory=dict)
    """P(Y < y) and P(Y <= y) of outputs by the other rows, where these are known by weighted draws of functions."""
    trusted = UNTRUSTED
    """k above which weights are not to be trusted."""

    @property
    def doubtful(self) -> Bool[np.ndarray, " rows"]:
        """Rows whose k is above 0.7, and which no fit without them has predicted."""
        return self.k > self.trusted

    @property
    def elpd_error(self) -> float:
        """Nats that `elpd` may be off by, as leaving rows out is an approximation whose errors lean one way."""
        return float("nan") if self.error is None else float(np.nansum(self.error))

    @cached_property
    def _predictions(self) -> list[Prediction]:
        left = self.left or leave_one_bound(self.fit, self.data).left or ()
        return [Prediction(each, self.fit.options.dtype, self.fit.standardised) for each in left]

    def __getstate__(self) -> dict[str, Any]:
        """`pickle` and `copy` leave out what all other rows say, which `pit` works out again."""
        held = {name: value for name, value in vars(self).items() if name != "_predictions"}
        return held | {"left": None if self.left else self.left}

    def pit(self, name: str, seed: int = 0) -> np.ndarray:
        """Where each value of an output lies in what the other rows predict of it, from 0 to 1 [rows, *axes].

        Uniform where the model is right; see `Prediction.pit`. Raises GpdslError where rows are left out by weighted
        draws of latents.
        """
        if name not in self.data.observed:
            known = ", ".join(f"`{each}`" for each in self.data.observed)
            raise GpdslError(f"pit of `{name}`: expected an output, of which there are {known}")
        if name not in self.places and self.left is not None and not self.left:
            raise GpdslError(
                f"pit of `{name}`: rows are left out by weighted draws here; predict rows that were not fitted, and "
                "ask for prediction.pit"
            )
        values = np.where(self.data.observed[name], self.data.outputs[name], np.nan)
        if name in self.places:
            low, high = np.array(self.places[name])
        else:
            own = [np.stack(places_of(each, name, values)) for each in self._predictions]
            shape = len(own), 1, len(values), *(1,) * (values.ndim - 1)
            low, high = np.sum(np.exp(self.log_weights).reshape(shape) * np.stack(own), axis=0)
        for row, one in self.without.items():
            alone = one.predict_bound(self.data.take(np.asarray([row])), None, None)
            low[row], high[row] = (each[0] for each in places_of(alone, name, values[[row]]))
        return randomised(low, high, np.isfinite(values), check_option("seed", seed))

    def __repr__(self) -> str:
        said = super().__repr__()[:-1]
        if self.without:
            said += f", {len(self.without)} of them by fits without them"
        if self.not_made:
            said += f", interrupted before {plural(self.not_made, 'fit')} without a row"
        if self.error is not None and np.any(self.error > 0):
            said += f", within {self.elpd_error:.2g} nats"
        if np.isfinite(self.k).any():
            said += f", k up to {np.nanmax(self.k):.2f}, above 0.7 in {int(np.sum(self.doubtful))}"
        return f"{said}>"


def fitted_rows(fit: Fit, data: Any, what: str) -> Data:
    """The data as the fit saw them. Raises GpdslError for others than were fitted."""
    bound = fit.bind(data, None, outputs=True)
    if other := fit.unlike_fitted(bound):
        raise GpdslError(
            f"{what} asks for the data that were fitted, {fit.rows} rows: other values here of "
            f"{', '.join(f'`{name}`' for name in other)}; of new rows ask for fit.log_predictive_density"
        )
    return bound


def leave_one_bound(fit: Fit, bound: Data) -> LeaveOneOut:
    """Every row left out of the fit as it is."""
    if fit.options.beta != 1:
        raise GpdslError(
            f"loo takes rows out of the posterior, and with beta = {fit.options.beta:g} q is none: fit with beta = 1, "
            "or keep rows to ask for fit.log_predictive_density"
        )
    if fit.program.inner:
        return _through_layers(fit, bound)
    with precision(fit.options.dtype):
        beliefs = _beliefs(fit, bound)
        several = list(_settings(fit, beliefs))
        found = [_one_setting(fit, each, at) for each, at in several]
        itself = np.stack([_log_densities(each, _known(at)) for each, at in several])
    base = log_weights_of(fit)
    each = np.stack([values for values, _, _ in found])
    log_weights, k = reweighted(base, each)
    shapes = np.stack([own for _, own, _ in found])
    k = np.where(np.isfinite(k), k, np.fmax.reduce(shapes, axis=0))
    seen, offset = bound.observed_rows, fit.standardised.log_jacobian(bound.observed)
    return LeaveOneOut(
        fit,
        bound,
        np.where(seen, np.logaddexp.reduce(log_weights + each, axis=0) - offset, np.nan),
        np.where(seen, np.logaddexp.reduce(base[:, None] + itself, axis=0) - offset, np.nan),
        EXACT if fit.settings is None and (fit.choice.exact or np.isneginf(k[seen]).all()) else "leave-one-out",
        np.where(seen & np.isfinite(k), k, np.nan),
        log_weights,
        [left for _, _, left in found if left is not None] if all(left for _, _, left in found) else [],
        densities=each,
    )


def _through_layers(fit: Fit, bound: Data) -> LeaveOneOut:
    """By weighted draws of functions."""
    drawn = rows_left_out(fit, bound, np.arange(bound.rows))
    seen, offset = bound.observed_rows, fit.standardised.log_jacobian(bound.observed)
    pointwise, itself = (np.where(seen, each - offset, np.nan) for each in (drawn.without, drawn.itself))
    k, one = np.where(seen & np.isfinite(drawn.k), drawn.k, np.nan), np.zeros((1, bound.rows))
    return LeaveOneOut(fit, bound, pointwise, itself, "leave-one-out", k, one, [], places=drawn.places)


def densities_of_settings(fit: Fit, bound: Data, row: int) -> Float[np.ndarray, " settings"]:
    """log p(y_n) of a row that the fit has not seen, under every setting of its parameters.

    Draws of all latents tell it by those of the other rows, as they do where it was seen.
    """
    with precision(fit.options.dtype):
        several = list(_settings(fit, fit.beliefs(bound.take(np.asarray([row])), likelihoods=True)))
        if not _known(several[0][1]):
            return np.concatenate([_log_densities(each) for each, _ in several])
    known = leave_one_bound(fit, bound).densities
    assert known is not None  # of rows in no layers
    return known[:, row]


def widely_applicable(fit: Fit, data: Any) -> Elpd:
    """See `Fit.waic`."""
    bound = fitted_rows(fit, data, "waic")
    if fit.program.inner:
        drawn = drawn_densities(fit, bound, np.arange(bound.rows))
        itself = averaged(drawn)
        mean, square = drawn.mean(axis=0), np.mean(drawn**2, axis=0)
    else:
        itself, mean, square = _of_settings(fit, bound)
    itself = np.where(bound.observed_rows, itself - fit.standardised.log_jacobian(bound.observed), np.nan)
    found = Elpd(fit, bound, itself - (square - mean**2), itself, "WAIC")
    if said := _too_high(found):
        warnings.warn(f"waic: {said}; fit.loo(data) leaves rows out", GpdslWarning, stacklevel=4)
    return found


def _too_high(waic: Elpd) -> str:
    """By how much, beside rows left out; empty where that is little, or as beta is not 1 they cannot be."""
    if waic.fit.options.beta != 1:
        return ""
    left = leave_one_bound(waic.fit, waic.data)
    above = float(np.nansum(np.abs(waic.pointwise - left.pointwise)))
    if not (rows := int(np.sum(left.doubtful))) and above <= MUCH:
        return ""
    weights = f", as draws tell with k above 0.7 in {plural(rows, 'row')}" if rows else ""
    return f"rows differ by {above:.3g} nats in all from what they have when left out{weights}"


def _of_settings(fit: Fit, bound: Data) -> Float[np.ndarray, "3 rows"]:
    """log p(y_n), and means and mean squares of log p(y_n | f_n), in the units of the fit, over all settings."""
    with precision(fit.options.dtype):
        pairs = list(_settings(fit, _beliefs(fit, bound)))
        several = [each for each, _ in pairs]
        _expect_noise(fit, bound, pairs)
        itself = np.stack([_log_densities(each) for each in several])
        moments = np.stack([_moments(each) for each in several])
    base = log_weights_of(fit)
    average = np.logaddexp.reduce(base[:, None] + itself, axis=0)
    return np.stack([average, *np.tensordot(np.exp(base), moments, axes=1)])


def _expect_noise(fit: Fit, bound: Data, pairs: Sequence[tuple[Beliefs, Posterior]]) -> None:
    """Raise GpdslError where rounding hides the noise of an exact fit."""
    if not fit.choice.exact:
        return
    known = [(Values.of(beliefs, at), beliefs) for beliefs, at in pairs]
    resolved = [values.resolved(beliefs)[bound.observed_rows] for values, beliefs in known if values is not None]
    hidden = int(np.sum(np.mean(resolved, axis=0) < UNRESOLVED)) if resolved else 0
    if hidden:
        raise GpdslError(
            f"waic: what varies of the latents within the posterior is less than what rounding does to them in "
            f"{plural(hidden, 'row')}, as noise is next to none: fit.loo(data) takes rows out without that; a noise "
            "that is larger, or learnt, would do"
        )


def _moments(beliefs: Beliefs) -> Float[np.ndarray, "2 rows"]:
    """Mean and mean square of log p(y_n | f_n) over draws."""

    def of_part(_: int, rows: slice) -> np.ndarray:
        drawn = drawn_log_densities(beliefs.part(rows))
        each = np.stack([drawn.mean(axis=0), np.mean(drawn**2, axis=0)])
        return np.einsum("k,mkn->mn", beliefs.weights, each)

    return by_parts(beliefs.count, of_part, 1)


def _beliefs(fit: Fit, bound: Data) -> Beliefs:
    """Of the rows that were fitted: with their row variables, and white noise as noise of what is observed."""
    if fit.choice.dense and fit.choice.posterior.startswith(("diagonal", "mixture(")):
        raise GpdslError(
            f"rows cannot be left out of posterior = {fit.choice.posterior} without inducing points, which takes each "
            "row's latents as if all others were known: fit with posterior = full"
        )
    program = training(fit.program, dense=True).for_prediction()  # a row leaves with all that it reads, together
    if any(white_beside(group) for group in program.groups):
        raise GpdslError(
            "rows cannot be left out where White() in a kernel is not the noise of one normal output; write it as a "
            "variable of each row instead (`row e ~ Normal(0, sd)`)"
        )
    return fit.beliefs(bound, likelihoods=True, program=program)


def _settings(fit: Fit, beliefs: Beliefs) -> Iterator[tuple[Beliefs, Posterior]]:
    """What every setting of the parameters says, one where they have one value, and with which posterior."""
    if fit.settings is None:
        yield beliefs, fit.at_rows
        return
    yield from zip(fit.settings.beliefs(fit.at_rows, beliefs), fit.settings.posteriors(fit.at_rows), strict=True)


def log_weights_of(fit: Fit) -> Float[np.ndarray, " settings"]:
    return np.zeros(1) if fit.settings is None else np.log(fit.settings.weights)


def _leaves_sites(fit: Fit, beliefs: Beliefs) -> bool:
    """Whether rows stand in q by Gaussian sites."""
    if fit.at_rows.by_data:
        return True
    variational = fit.options.engine == "vi" and fit.choice.posterior in ONE_GAUSSIAN
    return variational and not is_opaque(beliefs.program) and not beliefs.program.opaque and beliefs.program.latents > 0


def _one_setting(
    fit: Fit, beliefs: Beliefs, at_rows: Posterior
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"], Beliefs | None]:
    """log p(y_n | the other rows), Pareto's k where draws were weighted, and what the others say where it is known."""
    count, nothing = beliefs.count, np.full(beliefs.count, np.nan)
    if not beliefs.program.latents:
        return _log_densities(beliefs), nothing, beliefs
    if _known(at_rows):
        among = among_others(beliefs, at_rows)
        others = beliefs if among is None else replace(beliefs, marginals=among, blocks=None)
        return _log_densities(others, among is None, many=True), nothing, others
    if not _leaves_sites(fit, beliefs):
        one = fields_left_out if beliefs.program.fields and not beliefs.program.opaque else by_draws
        found = by_parts(count, lambda _, rows: one(beliefs.part(rows)), 1)
        if len(odd := np.flatnonzero(~np.isfinite(found[0]))):
            found[:, odd] = by_draws(beliefs.part(odd))
        return found[0], found[1], None
    known = Values.of(beliefs, at_rows) if fit.choice.exact else None
    left, sound = cavities(beliefs, at_rows, known)
    without = replace(beliefs, marginals=left, blocks=None)
    values, k = _log_densities(without) if known is None else known.log_densities(beliefs), nothing
    odd = np.flatnonzero(~sound)
    if len(odd):
        values[odd], k[odd] = by_draws(beliefs.part(odd))
    return values, k, without


def _log_densities(beliefs: Beliefs, rough: bool = False, many: bool = False) -> Float[np.ndarray, " rows"]:
    """log p(y_n) of every row under what is believed of its latents; `rough` and `many` as in `log_predictive`."""
    return by_parts(beliefs.count, lambda _, rows: log_predictive(beliefs.part(rows), rough, many))


def _known(at_rows: Posterior) -> bool:
    """Whether the posterior is a draw of all latents, as of Markov chains: rows leave by the weights of draws."""
    return bool(at_rows.q) and not any(np.any(q.root) for q in at_rows.q)
