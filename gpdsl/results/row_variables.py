"""The posterior of the variables of rows, `row w ~ Normal(0, 1)`: where a latent variable model puts each row.

Of rows that were fitted q tells it. Of new rows it is p(w | y) ~ N(w; prior) p(y | w), an average over the weighted
passes by which their densities are found: the share of a pass is its weight times the density of the row's outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from gpdsl.data import Data
from gpdsl.errors import GpdslError, plural
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.posterior import by_parts
from gpdsl.inference.problem import as_arrays
from gpdsl.language.calls import Named
from gpdsl.program.cache import precision
from gpdsl.program.evaluation import prior_means
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.program import Program, make_rows
from gpdsl.program.rows import Rows
from gpdsl.results.density import of_components
from gpdsl.results.settings import refuse_settings
from gpdsl.symbolic.readings import OWN

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


FEWEST, EVENLY = 20.0, 4.0
"""Passes that the posterior of a new row has to rest on, by the inverse of the sum of their squared shares; where they
are evenly spaced along one number, in which the rule of trapezoids is exact as soon as they are as close as the
posterior is wide."""

NAMED = 5
"""Rows that an error names."""


class RowVariable(NamedTuple):
    """Means and standard deviations of a variable in every row."""

    mean: Float[np.ndarray, "rows *axes"]
    sd: Float[np.ndarray, "rows *axes"]


def row_variables(fit: Fit, data: Any) -> Mapping[str, RowVariable]:
    """See `Fit.row_variables`."""
    program, found = fit.program, Named()
    if not program.declarations.rows:
        raise GpdslError(
            f"row_variables: {fit.model.name} has none; `row w ~ Normal(0, 1)` declares one, a value of each row"
        )
    refuse_settings(fit.settings, "row_variables", "leave out hyperparameters, or predict the rows")
    bound = data if isinstance(data, Data) else fit.bind(data, None, outputs=True)
    white = _of_new(fit, bound) if fit.unlike_fitted(bound) else partial(white_of_fitted, fit)
    with precision(fit.options.dtype):
        rows = as_arrays(make_rows(program, fit.standardised.applied(bound)), fit.options.dtype)
        parameters = as_arrays(dict(fit.parameters), fit.options.dtype)
        for place, group in enumerate(program.groups):
            if not group.per_row:
                continue
            prior, scale = prior_of(program, group, parameters, rows, bound.rows)
            mean, variance = white(place)
            moments = prior + scale * mean, scale * np.sqrt(np.maximum(variance, 0.0))
            for name in group.names:
                first, last = (each - group.start for each in program.evaluator.columns[name, OWN])
                shape = program.translator.shape(program.declarations.axes_of(name))
                found[name] = RowVariable(*(each[:, first:last].reshape(-1, *shape) for each in moments))
    return found


def prior_of(
    program: Program, group: Group, parameters: Mapping[str, Any], rows: Rows, count: int
) -> tuple[Float[np.ndarray, "rows elements"], Float[np.ndarray, " elements"]]:
    """Means at so many rows and standard deviations of the variables of one group, before outputs are known."""
    scale = np.sqrt(np.asarray(kernel_values(program.evaluator, group, parameters).scale))
    return np.asarray(prior_means(program.evaluator, [group], parameters, rows, count)), scale


White = tuple[Float[np.ndarray, "rows elements"], Float[np.ndarray, "rows elements"]]
"""Means and variances of the variables of one group, whitened."""


def white_of_fitted(fit: Fit, place: int) -> White:
    """What q says of the variables of one group, at the rows that were fitted. Raises GpdslError without such a q."""
    q = fit.posterior[place] if place < len(fit.posterior) else None
    if not isinstance(q, Whitened):
        raise GpdslError("row_variables: only fits by engine = vi keep them apart from the latents")
    weights = np.asarray(fit.weights)[:, None, None]
    white, spread = np.asarray(q.mean), np.asarray(q.root)[..., 0] ** 2
    mean = np.sum(weights * white, axis=0)
    return mean.T, (np.sum(weights * (spread + white**2), axis=0) - mean**2).T


def _of_new(fit: Fit, bound: Data) -> Callable[[int], White]:
    """By the shares of passes, given the outputs that are observed.

    Raises GpdslError for variables that no latent is a function of, and for rows whose posterior rests on few passes.
    """
    program = fit.program
    if terms := [f"`{name}`" for name in program.declarations.rows if name not in program.inner]:
        raise GpdslError(
            f"row_variables of new rows are known where latents are functions of them, and {', '.join(terms)} is a "
            f"term of others: ask for the data that were fitted, {fit.rows} rows, or fit these"
        )
    normals = fit.densities_at_rows.deviates(program)
    with precision(fit.options.dtype):
        beliefs = fit.beliefs(bound, likelihoods=True)

        def of_part(_: int, rows: slice) -> np.ndarray:
            logs = np.asarray(of_components(beliefs.part(rows)), float) + np.log(beliefs.weights)[:, None]
            shares = softmax(logs, axis=0).T
            return np.column_stack([1.0 / np.sum(shares**2, axis=1), shares @ normals, shares @ normals**2])

        count, mean, square = np.split(by_parts(bound.rows, of_part, 0, beliefs.at_once), [1, 1 + program.latents], 1)
    fewest = EVENLY if np.count_nonzero(normals.any(axis=0)) == 1 else FEWEST
    if few := (np.flatnonzero(~(count[:, 0] >= fewest)) + 1).tolist():
        some = ", ".join(map(str, few[:NAMED])) + ", ..." * (len(few) > NAMED)
        raise GpdslError(
            f"row_variables: the posterior of {plural(len(few), 'new row')} ({some}, counted from 1) is narrower than "
            f"{len(normals)} passes tell, or the outputs are far from all that were fitted; fit these rows with the "
            "others, `model.fit(all_rows, start=fit)`"
        )
    own = [slice(group.start, group.stop) for group in program.groups]
    return lambda place: (mean[:, own[place]], square[:, own[place]] - mean[:, own[place]] ** 2)
