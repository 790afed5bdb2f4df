"""Densities of rows under draws of all functions, where latents are functions of others or of variables of rows.

Given the functions of all layers, rows are independent: p(y_n | functions) = E[p(y_n | f(x_n, w_n))] over the prior of
the row's variables w_n, which is what they are before y_n is known. Of one row alone functions are drawn at nodes of
w_n together, half of them spread by the prior and half by what q says of the row, which weights make up for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp
from scipy.stats import norm, qmc

from gpdsl.data import Data
from gpdsl.inference.posteriors.posterior import by_parts
from gpdsl.inference.problem import Monitor
from gpdsl.program.cache import precision
from gpdsl.program.evaluation import prior_means
from gpdsl.program.groups import kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import take_rows
from gpdsl.results.density import log_densities
from gpdsl.results.expectation import ROUGH, Beliefs
from gpdsl.results.integrals import sample_latents
from gpdsl.results.row_variables import white_of_fitted

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

DRAWS, NODES = (1024, 256), (256, 64)
"""Draws of functions of the variables of a row, and nodes of these: where there is one layer, and where there are more,
each of whose draws has covariances of its own."""

WIDER = 1.5
"""Standard deviations of q that nodes are spread by."""


def drawn_densities(
    fit: Fit, bound: Data, some: Int[np.ndarray, " rows"] | None = None
) -> Float[np.ndarray, "draws rows"]:
    """log p(y_n | functions) of the rows that were fitted, or some of them, in the units of the fit, at draws of q."""
    rows = np.arange(bound.rows) if some is None else some
    with precision(fit.options.dtype):
        if any(group.per_row for group in fit.program.groups):
            return _at_nodes(fit, bound, rows)
        beliefs = fit.beliefs(bound.take(rows), likelihoods=True)
        return by_parts(len(rows), lambda _, each: _at_passes(beliefs.part(each)), 1, beliefs.at_once)


def _at_passes(beliefs: Beliefs) -> Float[np.ndarray, "draws rows"]:
    """Of some rows, each of which is drawn through the layers on its own: they have nothing but functions."""
    latents, _ = sample_latents(beliefs, ROUGH, need_externals=False)
    found = np.asarray(beliefs.compile("densities", lambda known, at: log_densities(known, at, {}))(latents))
    return found.reshape(-1, found.shape[-1])


def _at_nodes(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "draws rows"]:
    from gpdsl.results.fitting import progress_shown

    beliefs, program = fit.beliefs(bound, likelihoods=True, program=fit.predicting), fit.predicting
    deep = bool(program.inner - program.declarations.rows.keys())
    draws, nodes = DRAWS[deep], NODES[deep]
    values, log_weights = _nodes(fit, beliefs, nodes)
    found, rng = np.empty((draws, len(some))), np.random.default_rng(fit.options.seed)
    nothing = jnp.zeros((1, nodes, program.latents), beliefs.marginals.mean.dtype)
    with progress_shown(None, None) as report:
        monitor = Monitor(len(some), report, "rows left out")
        for place, row in enumerate(some):
            rows = take_rows(beliefs.rows, np.full(nodes, row))
            draw = fit.at_rows.functions(program, rows, values[row])
            assert draw is not None  # latents are functions of others
            drawn = draw(draws, rng)
            alone = Beliefs(program, beliefs.parameters, rows, Marginals(nothing, nothing), np.ones(1), beliefs.seed)
            compute = alone.compile("densities", lambda known, at: log_densities(known, at, {}))
            each = np.asarray(compute(jnp.asarray(drawn[:, None], nothing.dtype)))[:, 0]
            found[:, place] = logsumexp(each + log_weights[row], axis=1)
            monitor.report(place + 1, float(np.mean(found[:, place])))
    return found


def _nodes(
    fit: Fit, beliefs: Beliefs, count: int
) -> tuple[Float[np.ndarray, "rows nodes latents"], Float[np.ndarray, "rows nodes"]]:
    """Values of the variables of every row at its nodes, and logarithms of what these weigh, which add up to about 1.

    Nodes are those of two densities, each of which counts as often as it has nodes (Veach and Guibas 1995).
    """
    program, rows = beliefs.program, beliefs.rows
    own = [(place, group) for place, group in enumerate(program.groups) if group.per_row]
    width = sum(group.size for _, group in own)
    normals = norm.ppf(np.clip(qmc.Sobol(width, seed=0).random(count // 2), 1e-9, 1.0 - 1e-9))
    values, start = np.zeros((beliefs.count, count, program.latents)), 0
    prior, by_q = np.zeros((beliefs.count, count)), np.zeros((beliefs.count, count))
    for place, group in own:
        part, start = normals[:, start : start + group.size], start + group.size
        mean, sd = (each[:, None, :] for each in _spread(fit, place))
        white = np.concatenate([np.broadcast_to(part, (len(mean), *part.shape)), mean + sd * part], axis=1)
        prior += norm.logpdf(white).sum(axis=-1)
        by_q += norm.logpdf(white, mean, sd).sum(axis=-1)
        scale = np.sqrt(np.asarray(kernel_values(program.evaluator, group, beliefs.parameters).scale))
        around = np.asarray(prior_means(program.evaluator, [group], beliefs.parameters, rows, beliefs.count))
        values[..., group.start : group.stop] = around[:, None] + scale * white
    return values, prior - np.logaddexp(prior, by_q) - np.log(count / 2)


def _spread(fit: Fit, place: int) -> tuple[Float[np.ndarray, "rows elements"], Float[np.ndarray, "rows elements"]]:
    mean, variance = white_of_fitted(fit, place)
    return mean, WIDER * np.sqrt(variance)
