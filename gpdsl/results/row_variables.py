"""The posterior of the variables of rows, `row w ~ Normal(0, 1)`: where a latent variable model puts each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from gpdsl.errors import GpdslError
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import as_arrays
from gpdsl.program.cache import precision
from gpdsl.program.evaluation import prior_means
from gpdsl.program.groups import kernel_values
from gpdsl.program.program import make_rows
from gpdsl.results.criticism.left_out import fitted_rows
from gpdsl.results.settings import refuse_settings
from gpdsl.symbolic.readings import OWN

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


class RowVariable(NamedTuple):
    """Means and standard deviations of a variable in every row that was fitted."""

    mean: Float[np.ndarray, "rows *axes"]
    sd: Float[np.ndarray, "rows *axes"]


def row_variables(fit: Fit, data: Any) -> Mapping[str, RowVariable]:
    """See `Fit.row_variables`."""
    program, found = fit.program, {}
    if not program.declarations.rows:
        raise GpdslError(
            f"row_variables: {fit.model.name} has none; `row w ~ Normal(0, 1)` declares one, a value of each row"
        )
    refuse_settings(fit.settings, "row_variables", "leave out hyperparameters, or predict the rows")
    bound = fitted_rows(fit, data, "row_variables")
    with precision(fit.options.dtype):
        rows = as_arrays(make_rows(program, fit.standardised.applied(bound)), fit.options.dtype)
        parameters = as_arrays(dict(fit.parameters), fit.options.dtype)
        for place, group in enumerate(program.groups):
            if not group.per_row:
                continue
            q = fit.posterior[place] if place < len(fit.posterior) else None
            if not isinstance(q, Whitened):
                raise GpdslError("row_variables: only fits by engine = vi keep them apart from the latents")
            scale = np.sqrt(np.asarray(kernel_values(program.evaluator, group, parameters, 0).scale))[:, None]
            prior = np.asarray(prior_means(program.evaluator, [group], parameters, rows, bound.rows))
            weights = np.asarray(fit.weights)[:, None, None]
            white, spread = np.asarray(q.mean), np.asarray(q.root)[..., 0] ** 2
            mean = np.sum(weights * white, axis=0)
            variance = np.sum(weights * (spread + white**2), axis=0) - mean**2
            moments = prior + (scale * mean).T, (scale * np.sqrt(np.maximum(variance, 0.0))).T
            for name in group.names:
                first, last = (each - group.start for each in program.evaluator.columns[name, OWN])
                shape = program.translator.shape(program.declarations.axes_of(name))
                found[name] = RowVariable(*(each[:, first:last].reshape(-1, *shape) for each in moments))
    return found
