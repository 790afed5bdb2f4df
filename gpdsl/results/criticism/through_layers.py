"""Densities of rows under draws of all functions, where latents are functions of others or of variables of rows.

Given the functions of all layers, rows are independent: p(y_n | functions) = E[p(y_n | f(x_n, w_n))] over the prior of
the row's variables w_n, which is what they are before y_n is known. Of one row alone functions are drawn at nodes of
w_n together, half of them spread by the prior and half by what q says of the row, which weights make up for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp, softmax
from scipy.stats import norm, qmc

from gpdsl.data import Data
from gpdsl.inference.posteriors.posterior import parts
from gpdsl.inference.problem import Monitor, as_arrays, as_numpy
from gpdsl.inference.proposals import smoothed
from gpdsl.program.cache import precision
from gpdsl.program.joint import Marginals
from gpdsl.program.program import make_rows, take_rows
from gpdsl.program.rows import Rows
from gpdsl.results.criticism.cavity import cavities
from gpdsl.results.density import log_densities, of_components
from gpdsl.results.draws import Draws
from gpdsl.results.expectation import ROUGH, Beliefs
from gpdsl.results.integrals import sample_latents
from gpdsl.results.row_variables import prior_of, white_of_fitted
from gpdsl.results.table import predictable_outputs

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
    without: Float[np.ndarray, " rows"]
    """log p(y_n | the other rows), by draws with smoothed weights that leave the row out."""
    k: Float[np.ndarray, " rows"]
    """Pareto's shape of these weights."""
    places: Mapping[str, Float[np.ndarray, "2 rows *axes"]]
    """P(Y < y) and P(Y <= y) by all other rows, of the outputs that can be drawn."""
    lost: Float[np.ndarray, " rows"]
    """Nats of the bound by which q of the variables of a row is below the best one beside q of the functions."""

    @property
    def itself(self) -> Float[np.ndarray, " rows"]:
        """Logarithms of the mean densities over draws."""
        return np.logaddexp.reduce(self.densities, axis=0) - np.log(len(self.densities))


def drawn_densities(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"] | None = None) -> Drawn:
    """Of the rows that were fitted, or some of them."""
    rows = np.arange(bound.rows) if some is None else some
    with precision(fit.options.dtype):
        if any(group.per_row for group in fit.program.groups):
            return _at_nodes(fit, bound, rows)
        part = bound.take(rows)
        beliefs, outputs = fit.beliefs(part, likelihoods=True), _outputs(fit, part)
        found = []
        for own, skip in parts(len(rows), beliefs.at_once):
            values = {name: each[own] for name, each in outputs.items()}
            found.append(_but_for(skip, _at_passes(fit, beliefs.part(own), values)))
        return found[0] if len(found) == 1 else _together(found)


def _but_for(skip: int, drawn: Drawn) -> Drawn:
    """Without the first rows."""
    places = {name: each[:, skip:] for name, each in drawn.places.items()}
    return Drawn(drawn.densities[:, skip:], drawn.without[skip:], drawn.k[skip:], places, drawn.lost[skip:])


def _together(found: list[Drawn]) -> Drawn:
    """Rows after each other."""
    places = {name: np.concatenate([each.places[name] for each in found], axis=1) for name in found[0].places}
    without, k, lost = (np.concatenate([each[i] for each in found]) for i in (1, 2, 4))
    return Drawn(np.concatenate([each.densities for each in found], axis=1), without, k, places, lost)


def _outputs(fit: Fit, some: Data) -> dict[str, np.ndarray]:
    """Values of the outputs that can be drawn as draws have them: in the units of the fit, labels from 1."""
    declared, known = fit.program.declarations, fit.standardised.applied(some).outputs
    return {n: known[n] + (declared.outputs[n].label is not None) for n in predictable_outputs(declared)}


def _places(
    beliefs: Beliefs,
    latents: Float[np.ndarray, "draws rows latents"],
    log_weights: Float[np.ndarray, "draws rows"],
    outputs: Mapping[str, np.ndarray],
) -> dict[str, Float[np.ndarray, "2 rows *axes"]]:
    """The weight of what is drawn anew below values of outputs, and not above them."""
    seed, weights = np.random.default_rng(beliefs.seed), np.exp(log_weights)
    draws = Draws(beliefs, jnp.asarray(latents[:, None]), np.zeros(weights.shape, int), seed)
    found = dict[str, np.ndarray]()
    for name, values in outputs.items():
        anew = draws.of(name)
        shares = [np.einsum("sn,sn...->n...", weights, each) for each in (anew < values, anew <= values)]
        found[name] = np.clip(np.stack(shares), 0.0, 1.0)
    return found


def reweighted(
    base: Float[np.ndarray, " draws"], log_densities: Float[np.ndarray, "draws rows"]
) -> tuple[Float[np.ndarray, "draws rows"], Float[np.ndarray, " rows"]]:
    """Log weights of draws without each row, that add up to 1, by their `base`; and Pareto's k of each row."""
    found = [smoothed(base - each) for each in log_densities.T]
    return np.stack([weights for weights, _ in found], axis=1), np.array([k for _, k in found])


def _at_passes(fit: Fit, beliefs: Beliefs, outputs: Mapping[str, np.ndarray]) -> Drawn:
    """Of some rows, each of which is drawn through the layers on its own: they have nothing but functions.

    Where draws of the functions below tell of a row with even weights, what the last ones say without it is known by
    its site (`cavities`) under each; else all are weighted.
    """
    latents, _ = sample_latents(beliefs, ROUGH, need_externals=False)
    found = np.asarray(beliefs.compile("densities", lambda known, at: log_densities(known, at, {}))(latents))
    passes, (rows, columns) = len(beliefs.weights), latents.shape[2:]
    densities = found.reshape(-1, rows)
    left, sound = cavities(beliefs.folded(), fit.at_rows)
    alone = np.asarray(of_components(replace(beliefs.folded(), marginals=left, blocks=None), rough=True, many=True))
    log_weights, k = reweighted(np.zeros(len(densities)), densities)
    without = np.logaddexp.reduce(log_weights + densities, axis=0)
    of_passes, shape = reweighted(np.zeros(passes), alone.reshape(passes, rows))
    better = sound.reshape(passes, rows).all(axis=0) & ~(shape > k)
    by_sites = np.logaddexp.reduce(of_passes + alone.reshape(passes, rows), axis=0)
    log_weights = np.where(better, np.tile(of_passes, (ROUGH, 1)) - np.log(ROUGH), log_weights)
    there = jax.tree.map(lambda each: each.reshape(passes, rows, *each.shape[2:]), left)
    others, _ = sample_latents(replace(beliefs, marginals=there), ROUGH, need_externals=False)
    chosen = np.where(
        better[:, None], np.reshape(others, (-1, rows, columns)), np.reshape(latents, (-1, rows, columns))
    )
    places = _places(beliefs, chosen, log_weights, outputs)
    without[better], k[better] = by_sites[better], shape[better]
    return Drawn(densities, without, k, places, np.zeros(rows))


def _at_nodes(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"]) -> Drawn:
    from gpdsl.results.fitting import progress_shown

    program, dtype = fit.predicting, fit.options.dtype
    made = replace(make_rows(program, fit.standardised.applied(bound)), numbers=np.arange(bound.rows))
    every, parameters = as_numpy(made, dtype), as_arrays(dict(fit.parameters), dtype)
    deep = bool(program.inner - program.declarations.rows.keys())
    draws, nodes = DRAWS[deep], NODES[deep]
    at, rng = _nodes(fit, parameters, every, nodes, bound.rows), np.random.default_rng(fit.options.seed)
    found, lost = np.empty((draws, len(some))), np.empty(len(some))
    chosen = np.empty((draws, len(some), program.latents))
    nothing = jnp.zeros((1, nodes, program.latents), dtype)
    with progress_shown(None, None) as report:
        monitor = Monitor(len(some), report, "rows left out")
        for place, row in enumerate(some):
            rows = take_rows(every, np.full(nodes, row))
            draw = fit.at_rows.functions(program, rows, at.values[row])
            assert draw is not None  # latents are functions of others
            latents = jnp.asarray(draw(draws, rng)[:, None], nothing.dtype)
            node = rng.choice(nodes, draws, p=softmax(at.prior[row]))
            chosen[:, place] = latents[np.arange(draws), 0, node]
            alone = Beliefs(program, parameters, rows, Marginals(nothing, nothing), np.ones(1), fit.options.seed)
            compute = alone.compile("densities", lambda known, at: log_densities(known, at, {}))
            each = np.asarray(compute(latents))[:, 0]
            found[:, place] = logsumexp(each + at.prior[row], axis=1)
            expected = each.mean(axis=0)  # under q of the functions, which the best q of the variables knows no more of
            lost[place] = logsumexp(expected + at.prior[row]) - expected @ at.q[row] + at.divergence[row]
            monitor.report(place + 1, float(np.mean(found[:, place])))
    own = jnp.zeros((1, len(some), program.latents), dtype)
    anew = Beliefs(program, parameters, take_rows(every, some), Marginals(own, own), np.ones(1), fit.options.seed)
    log_weights, k = reweighted(np.zeros(draws), found)
    without = np.logaddexp.reduce(log_weights + found, axis=0)
    return Drawn(found, without, k, _places(anew, chosen, log_weights, _outputs(fit, bound.take(some))), lost)


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
