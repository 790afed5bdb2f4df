"""Densities of rows under draws of all functions, where latents are functions of others or of variables of rows.

Given the functions of all layers, rows are independent: p(y_n | functions) = E[p(y_n | f(x_n, w_n))] over the prior of
the row's variables w_n, which is what they are before y_n is known. Of one row alone functions are drawn at nodes of
w_n together, half of them spread by the prior and half by what q says of the row, which weights make up for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp, softmax
from scipy.stats import norm, qmc

from gpdsl.data import Data
from gpdsl.inference.posteriors.posterior import by_parts
from gpdsl.inference.problem import Monitor, as_arrays, as_numpy
from gpdsl.program.cache import precision
from gpdsl.program.joint import Marginals
from gpdsl.program.program import make_rows, take_rows
from gpdsl.program.rows import Rows
from gpdsl.results.density import log_densities
from gpdsl.results.expectation import ROUGH, Beliefs
from gpdsl.results.integrals import sample_latents
from gpdsl.results.row_variables import prior_of, white_of_fitted

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

DRAWS, NODES = (1024, 256), (256, 64)
"""Draws of functions of the variables of a row, and nodes of these: where there is one layer, and where there are more,
each of whose draws has covariances of its own."""

WIDER = 1.5
"""Standard deviations of q that its nodes are spread by."""


class Drawn(NamedTuple):
    """What draws of functions say of rows that were fitted."""

    densities: Float[np.ndarray, "draws rows"]
    """log p(y_n | functions), in the units of the fit."""
    lost: Float[np.ndarray, " rows"]
    """Nats of the bound by which q of the variables of a row is below the best one beside q of the functions."""


def drawn_densities(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"] | None = None) -> Drawn:
    """Of the rows that were fitted, or some of them."""
    rows = np.arange(bound.rows) if some is None else some
    with precision(fit.options.dtype):
        if any(group.per_row for group in fit.program.groups):
            return _at_nodes(fit, bound, rows)
        beliefs = fit.beliefs(bound.take(rows), likelihoods=True)
        drawn = by_parts(len(rows), lambda _, each: _at_passes(beliefs.part(each)), 1, beliefs.at_once)
        return Drawn(drawn, np.zeros(len(rows)))


def _at_passes(beliefs: Beliefs) -> Float[np.ndarray, "draws rows"]:
    """Of some rows, each of which is drawn through the layers on its own: they have nothing but functions."""
    latents, _ = sample_latents(beliefs, ROUGH, need_externals=False)
    found = np.asarray(beliefs.compile("densities", lambda known, at: log_densities(known, at, {}))(latents))
    return found.reshape(-1, found.shape[-1])


def _at_nodes(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"]) -> Drawn:
    from gpdsl.results.fitting import progress_shown

    program, dtype = fit.predicting, fit.options.dtype
    made = replace(make_rows(program, fit.standardised.applied(bound)), numbers=np.arange(bound.rows))
    every, parameters = as_numpy(made, dtype), as_arrays(dict(fit.parameters), dtype)
    deep = bool(program.inner - program.declarations.rows.keys())
    draws, nodes = DRAWS[deep], NODES[deep]
    at, rng = _nodes(fit, parameters, every, nodes, bound.rows), np.random.default_rng(fit.options.seed)
    found, lost = np.empty((draws, len(some))), np.empty(len(some))
    nothing = jnp.zeros((1, nodes, program.latents), dtype)
    with progress_shown(None, None) as report:
        monitor = Monitor(len(some), report, "rows left out")
        for place, row in enumerate(some):
            rows = take_rows(every, np.full(nodes, row))
            draw = fit.at_rows.functions(program, rows, at.values[row])
            assert draw is not None  # latents are functions of others
            latents = jnp.asarray(draw(draws, rng)[:, None], nothing.dtype)
            alone = Beliefs(program, parameters, rows, Marginals(nothing, nothing), np.ones(1), fit.options.seed)
            compute = alone.compile("densities", lambda known, at: log_densities(known, at, {}))
            each = np.asarray(compute(latents))[:, 0]
            found[:, place] = logsumexp(each + at.prior[row], axis=1)
            expected = each.mean(axis=0)  # under q of the functions, which the best q of the variables knows no more of
            lost[place] = logsumexp(expected + at.prior[row]) - expected @ at.q[row] + at.divergence[row]
            monitor.report(place + 1, float(np.mean(found[:, place])))
    return Drawn(found, lost)


class Nodes(NamedTuple):
    """Values of the variables of every row, and how they stand for the prior and for q of these.

    Nodes are those of two densities, each of which counts as often as it has nodes (Veach and Guibas 1995).
    """

    values: Float[np.ndarray, "rows nodes latents"]
    prior: Float[np.ndarray, "rows nodes"]
    """Logarithms of weights, which add up to about 1."""
    q: Float[np.ndarray, "rows nodes"]
    """Weights, which add up to 1."""
    divergence: Float[np.ndarray, " rows"]
    """Of q from the prior."""


def _nodes(fit: Fit, parameters: Mapping[str, Any], rows: Rows, count: int, size: int) -> Nodes:
    """So many at each of the rows, whose number is `size`."""
    program = fit.predicting
    own = [(place, group) for place, group in enumerate(program.groups) if group.per_row]
    width = sum(group.size for _, group in own)
    normals = norm.ppf(np.clip(qmc.Sobol(width, seed=0).random(count // 2), 1e-9, 1.0 - 1e-9))
    values, start, divergence = np.zeros((size, count, program.latents)), 0, np.zeros(size)
    prior, by_q, wide = np.zeros((3, size, count))
    for place, group in own:
        part, start = normals[:, start : start + group.size], start + group.size
        mean, variance = (each[:, None, :] for each in white_of_fitted(fit, place))
        sd = np.sqrt(variance)
        white = np.concatenate([np.broadcast_to(part, (len(mean), *part.shape)), mean + WIDER * sd * part], axis=1)
        prior += norm.logpdf(white).sum(axis=-1)
        by_q += norm.logpdf(white, mean, sd).sum(axis=-1)
        wide += norm.logpdf(white, mean, WIDER * sd).sum(axis=-1)
        divergence += 0.5 * np.sum(variance + mean**2 - 1.0 - np.log(variance), axis=(1, 2))
        around, scale = prior_of(program, group, parameters, rows, size)
        values[..., group.start : group.stop] = around[:, None] + scale * white
    either = np.logaddexp(prior, wide)
    return Nodes(values, prior - either - np.log(count / 2), softmax(by_q - either, axis=1), divergence)
