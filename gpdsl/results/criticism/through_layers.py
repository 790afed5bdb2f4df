"""Rows left out of fits whose latents are functions of others, or of variables of rows.

Given the functions of all layers, rows are independent: p(y_n | functions) = E[p(y_n | f(x_n, w_n))] over the prior of
the row's variables w_n, which is what they are before y_n is known. Rows that have none are told by draws that pass
through the layers, and rows that have some at nodes of these.

Where one layer is a function of them, a row stands in q of its inducing values by a Gaussian site. With w_n the row's
variables, nodes w_j of q with weights q_j, and f_j = m_j + r_j' u + e_j, u ~ N(0, I), what q says there,

    Lambda = -sum_j q_j E[d^2 log p(y_n | f_j) / df^2] r_j r_j',    g = sum_j q_j E[d log p / df] r_j:

the site is taken out of q (`cavity`), u ~ N(-A^-1 g, A^-1) with A = I - Lambda, and the row's variables are as the
prior has them. Where that is no distribution, and where there are layers below, draws of functions are weighted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Int
from scipy.special import log_softmax, logsumexp, softmax

from gpdsl.data import Data
from gpdsl.inference.posteriors.posterior import by_parts, parts
from gpdsl.inference.problem import Monitor, as_arrays, as_numpy
from gpdsl.inference.proposals import smoothed
from gpdsl.inference.sampling import even_normals
from gpdsl.program.cache import precision
from gpdsl.program.joint import Marginals
from gpdsl.program.program import make_rows, take_rows
from gpdsl.program.rows import Rows
from gpdsl.results.criticism.cavity import LEAST, cavities, expected_at
from gpdsl.results.density import drawn_log_densities, log_densities, of_components
from gpdsl.results.draws import Draws
from gpdsl.results.expectation import ROUGH, Beliefs
from gpdsl.results.fit import Fit
from gpdsl.results.fitting import progress_shown
from gpdsl.results.integrals import normals_of, sample_latents
from gpdsl.results.row_variables import prior_of, white_of_fitted
from gpdsl.results.table import predictable_outputs


def rows_left_out(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"]) -> LeftOut:
    """What the others say of some of the rows that were fitted."""
    with precision(fit.options.dtype):
        return at_nodes(fit, bound, some) if _has_variables(fit) else at_passes(fit, bound.take(some))


def drawn_densities(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "draws rows"]:
    """log p(y_n | functions) of draws of functions."""
    with precision(fit.options.dtype):
        if _has_variables(fit):
            every = Variables(fit, bound)
            return np.stack([every.drawn(int(row))[1] for row in some], axis=1)

        return densities_at_passes(fit, bound.take(some))


def _has_variables(fit: Fit) -> bool:
    return any(group.per_row for group in fit.program.groups)


Places = tuple[Float[np.ndarray, "rows *axes"], Float[np.ndarray, "rows *axes"]]
"""P(Y < y) and P(Y <= y)."""


class LeftOut(NamedTuple):
    """What all other rows say of each of some rows that were fitted."""

    without: Float[np.ndarray, " rows"]
    """log p(y_n | the other rows), in the units of the fit."""
    itself: Float[np.ndarray, " rows"]
    """log p(y_n | all rows)."""
    k: Float[np.ndarray, " rows"]
    """Pareto's shape of the weights of draws that leave the row out; NaN where its site was taken out of q instead."""
    lost: Float[np.ndarray, " rows"]
    """Nats of the bound by which q of the variables of a row is below the best one beside q of the functions."""
    places: Mapping[str, Places]
    """By all other rows, of the outputs that can be drawn."""
    of_all: Mapping[str, Places]
    """The same by all rows, where draws leave the row out."""


def at_passes(fit: Fit, some: Data) -> LeftOut:
    """Of some rows that have nothing but functions."""
    beliefs, outputs, found = fit.beliefs(some, likelihoods=True), outputs_of(fit, some), list[LeftOut]()
    for own, skip in parts(some.rows, beliefs.at_once):
        left = _at_passes(fit, beliefs.part(own), {name: each[own] for name, each in outputs.items()})
        found.append(jax.tree.map(lambda each, skip=skip: each[skip:], left))
    return jax.tree.map(lambda *each: np.concatenate(each), *found)


def densities_at_passes(fit: Fit, some: Data) -> Float[np.ndarray, "draws rows"]:
    """log p(y_n | functions) of rows that have nothing but these, each drawn through the layers on its own."""
    beliefs = fit.beliefs(some, likelihoods=True)
    return by_parts(some.rows, lambda _, each: _drawn(beliefs.part(each))[1], 1, beliefs.at_once)


def _drawn(beliefs: Beliefs) -> tuple[Float[np.ndarray, "draws rows latents"], Float[np.ndarray, "draws rows"]]:
    """Draws of the latents of rows, and log p(y_n | functions)."""

    def told(known: Beliefs, normals: Array) -> tuple[Array, Array]:
        latents, _ = sample_latents(known, ROUGH, False, known.marginals.at(known.program, normals))
        return latents, log_densities(known, latents, {})

    latents, found = as_numpy(beliefs.compile("draws and densities", told)(normals_of(beliefs, ROUGH)))
    return latents.reshape(-1, *latents.shape[2:]), found.reshape(-1, found.shape[-1])


def outputs_of(fit: Fit, some: Data) -> dict[str, np.ndarray]:
    """Values of the outputs that can be drawn as draws have them: in the units of the fit, labels from 1."""
    declared, known = fit.program.declarations, fit.standardised.applied(some).outputs
    return {n: known[n] + (declared.outputs[n].label is not None) for n in predictable_outputs(declared)}


def places_among(
    beliefs: Beliefs,
    latents: Float[np.ndarray, "draws rows latents"],
    log_weights: Float[np.ndarray, "draws rows"],
    outputs: Mapping[str, np.ndarray],
) -> dict[str, Places]:
    """The weight of what is drawn anew below values of outputs, and not above them."""
    seed, weights = np.random.default_rng(beliefs.seed), np.exp(log_weights)
    own = cast(Array, latents[:, None])  # on the host, where an index takes no program
    draws = Draws(beliefs, own, np.zeros(weights.shape, int), seed)
    found = dict[str, Places]()
    for name, values in outputs.items():
        anew = draws.of(name)
        below, reached = (np.einsum("sn,sn...->n...", weights, each) for each in (anew < values, anew <= values))
        found[name] = np.clip(below, 0.0, 1.0), np.clip(reached, 0.0, 1.0)
    return found


def averaged(log_densities: Float[np.ndarray, "draws *rows"]) -> Float[np.ndarray, "*rows"]:
    """The logarithm of the mean of densities over draws, in double precision wherever it is asked for."""
    found: np.ndarray = np.logaddexp.reduce(log_densities, axis=0) - np.log(len(log_densities))
    return found


def reweighted(
    base: Float[np.ndarray, " draws"], log_densities: Float[np.ndarray, "draws rows"]
) -> tuple[Float[np.ndarray, "draws rows"], Float[np.ndarray, " rows"]]:
    """Log weights of draws without each row, that add up to 1, by their `base`; and Pareto's k of each row."""
    found = [smoothed(base - each) for each in log_densities.T]
    return np.stack([weights for weights, _ in found], axis=1), np.array([k for _, k in found])


def _at_passes(fit: Fit, beliefs: Beliefs, outputs: Mapping[str, np.ndarray]) -> LeftOut:
    """Where draws of the functions below tell of a row with even weights, what the last ones say without it is known by
    its site (`cavities`) under each; else draws of all are weighted."""
    passes, rows = len(beliefs.weights), beliefs.count
    latents, densities = _drawn(beliefs)
    log_weights, k = reweighted(np.zeros(len(densities)), densities)
    without = np.logaddexp.reduce(log_weights + densities, axis=0)
    left, sound = cavities(beliefs.folded(), fit.at_rows)
    alone = np.asarray(of_components(replace(beliefs.folded(), marginals=left, blocks=None), rough=True, many=True))
    alone = alone.reshape(passes, rows)
    of_passes, shape = reweighted(np.zeros(passes), alone)
    better = sound.reshape(passes, rows).all(axis=0) & ~(shape > k)
    by_sites = np.logaddexp.reduce(of_passes + alone, axis=0)
    without[better], k[better] = by_sites[better], shape[better]
    log_weights = np.where(better, np.tile(of_passes, (ROUGH, 1)) - np.log(ROUGH), log_weights)
    there = jax.tree.map(lambda each: each.reshape(passes, rows, *each.shape[2:]), as_numpy(left))
    chosen = np.where(better[:, None], _drawn(replace(beliefs, marginals=there))[0], latents)
    places = places_among(beliefs, chosen, log_weights, outputs)
    of_all = places_among(beliefs, latents, np.full_like(log_weights, -np.log(len(latents))), outputs)
    return LeftOut(without, averaged(densities), k, np.zeros(rows), places, of_all)


# Rows with variables: at nodes of these.

DRAWS, NODES = (1024, 256), (256, 64)
"""Draws of functions of the variables of a row, and nodes of these: where there is one layer, and where there are more,
each of whose draws has covariances of its own."""

WIDER = 1.5
"""Standard deviations of q that its nodes are spread by."""


ROOTS = 5
"""Products of two square matrices of inducing values, whose columns nodes are, that a draw takes about as long as."""


def multiplications(fit: Fit, rows: int) -> float:
    """Of draws of functions that leave so many rows out, where layers and variables of rows are both there; else 0."""
    program = fit.predicting
    if not _has_variables(fit) or not program.inner - program.declarations.rows.keys():
        return 0.0
    squares = sum(g.size * len(z) ** 2 for g, z in zip(program.groups, fit.inducing, strict=True) if not g.per_row)
    return float(ROOTS * rows * DRAWS[True] * NODES[True] * squares)


def at_nodes(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"]) -> LeftOut:
    """What the other rows say of each, of the rows that were fitted, or some of them."""
    every, found = Variables(fit, bound), list[One]()
    with progress_shown(None, None) as report:
        monitor = Monitor(len(some), report, "rows left out")
        for row in map(int, some):
            found.append((None if every.deep else every.by_site(row)) or every.by_draws(row))
            monitor.report(len(found), found[-1].numbers[0])
    latents, log_weights = (np.stack([each[i] for each in found], axis=1) for i in (1, 2))
    alone, outputs = every.alone(some), outputs_of(fit, bound.take(some))
    places = places_among(alone, latents, log_weights, outputs)
    of_all = places_among(alone, latents, np.full_like(log_weights, -np.log(len(latents))), outputs)
    without, itself, k, lost = np.reshape([each.numbers for each in found], (-1, 4)).T
    return LeftOut(without, itself, k, lost, places, of_all)


class One(NamedTuple):
    """What all others say of a row."""

    numbers: tuple[float, ...]
    """log p(y_n | the other rows), log p(y_n | all), Pareto's k, and what q of its variables loses."""
    latents: Float[np.ndarray, "draws latents"]
    log_weights: Float[np.ndarray, " draws"]
    """Of draws of its latents without it; they add up to 1."""


class Variables:
    """The rows of a fit with their variables at nodes."""

    def __init__(self, fit: Fit, bound: Data) -> None:
        self.fit, self.program, dtype = fit, fit.predicting, fit.options.dtype
        made = replace(make_rows(self.program, fit.standardised.applied(bound)), numbers=np.arange(bound.rows))
        self.rows, self.parameters = as_numpy(made, dtype), as_arrays(dict(fit.parameters), dtype)
        self.deep = bool(self.program.inner - self.program.declarations.rows.keys())
        self.draws, self.nodes = DRAWS[self.deep], NODES[self.deep]
        self.at = _nodes(fit, self.parameters, self.rows, self.nodes, bound.rows)
        self.rng = np.random.default_rng(fit.options.seed)

    def alone(self, some: Int[np.ndarray, " rows"], *moments: np.ndarray) -> Beliefs:
        """Some rows, with means and variances of their latents, or none."""
        known = moments or (np.zeros((len(some), self.program.latents)),) * 2
        mean, variance = (jnp.asarray(each[None], self.fit.options.dtype) for each in known)
        rows, own = take_rows(self.rows, some), Marginals(mean, variance)
        return Beliefs(self.program, self.parameters, rows, own, np.ones(1), self.fit.options.seed)

    def by_site(self, row: int) -> One | None:
        """By taking the row's site out of q; None where that is no distribution."""
        same, values, weights = np.full(self.nodes, row), self.at.values[row], self.at.q[row]
        told = list(self.fit.at_rows.roots(self.program, take_rows(self.rows, same), values))
        mean, variance = values.copy(), np.zeros_like(values)
        for each in told:
            mean[:, each.columns] = each.mean.T
            variance[:, each.columns] = (each.left + np.sum(each.root**2, axis=-1)).T
        q = self.alone(same, mean, variance)
        expected, slope, precision = expected_at(q)
        left_mean, left_variance = mean.copy(), variance.copy()
        for each in told:
            for latent, column in enumerate(range(each.columns.start, each.columns.stop)):
                moved = _without(each.root[latent], weights * slope[:, column], weights * precision[:, column])
                if moved is None:
                    return None
                left_mean[:, column] += moved[0]
                left_variance[:, column] = each.left[latent] + moved[1]
        left, prior = self.alone(same, left_mean, left_variance), self.at.prior[row]
        own, others = (np.asarray(of_components(each, rough=True, many=True))[0] for each in (q, left))
        node = self.rng.choice(self.nodes, self.draws, p=np.exp(prior))
        normals = self.rng.standard_normal((self.draws, self.program.latents))
        latents = left_mean[node] + np.sqrt(left_variance[node]) * normals
        numbers = logsumexp(others + prior), logsumexp(own + prior), np.nan, self._lost(row, expected)
        return One(numbers, latents, np.full(self.draws, -np.log(self.draws)))

    def by_draws(self, row: int) -> One:
        """By draws of all functions with smoothed weights."""
        latents, densities, expected = self.drawn(row)
        log_weights, k = smoothed(-densities)
        node = self.rng.choice(self.nodes, self.draws, p=np.exp(self.at.prior[row]))
        without, itself = logsumexp(log_weights + densities), logsumexp(densities) - np.log(len(densities))
        return One((without, itself, k, self._lost(row, expected)), latents[np.arange(self.draws), node], log_weights)

    def drawn(self, row: int) -> tuple[np.ndarray, Float[np.ndarray, " draws"], Float[np.ndarray, " nodes"]]:
        """Draws of functions [draws, nodes, latents], log p(y_n | functions), and log densities at nodes on average."""
        same = np.full(self.nodes, row)
        draw = self.fit.at_rows.functions(self.program, take_rows(self.rows, same), self.at.values[row])
        assert draw is not None  # latents are functions of others
        latents = jnp.asarray(draw(self.draws, self.rng)[:, None], self.fit.options.dtype)
        compute = self.alone(same).compile("densities", lambda known, at: log_densities(known, at, {}))
        each = np.asarray(compute(latents))[:, 0]
        return np.asarray(latents[:, 0]), logsumexp(each + self.at.prior[row], axis=1), each.mean(axis=0)

    def _lost(self, row: int, expected: Float[np.ndarray, " nodes"]) -> float:
        """By q of the row's variables beside the best one, which knows no more of the functions than q of these."""
        best = logsumexp(expected + self.at.prior[row])
        return float(best - expected @ self.at.q[row] + self.at.divergence[row])


def _without(
    root: Float[np.ndarray, "nodes M"], slope: Float[np.ndarray, " nodes"], precision: Float[np.ndarray, " nodes"]
) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]] | None:
    """By how much means move without a site, and variances by what is told; None where that is no distribution."""
    kept = np.eye(root.shape[1]) - root.T @ (precision[:, None] * root)
    values, vectors = np.linalg.eigh(kept)
    if not values[0] > LEAST:
        return None
    turned = root @ (vectors / np.sqrt(values))
    return -turned @ (turned.T @ slope), np.sum(turned**2, axis=1)


class Nodes(NamedTuple):
    """Values of the variables of every row, and how they stand for the prior and for q of these.

    Nodes are those of two densities, each of which counts as often as it has nodes (Veach and Guibas 1995).
    """

    values: Float[np.ndarray, "rows nodes latents"]
    prior: Float[np.ndarray, "rows nodes"]
    """Logarithms of weights, which add up to 1."""
    q: Float[np.ndarray, "rows nodes"]
    """Weights, which add up to 1."""
    divergence: Float[np.ndarray, " rows"]
    """Of q from the prior."""


def _nodes(fit: Fit, parameters: Mapping[str, Any], rows: Rows, count: int, size: int) -> Nodes:
    """So many at each of the rows, whose number is `size`."""
    program = fit.predicting
    own = [(place, group) for place, group in enumerate(program.groups) if group.per_row]
    width = sum(group.size for _, group in own)
    normals = even_normals(count // 2, width)
    values, start, divergence = np.zeros((size, count, program.latents)), 0, np.zeros(size)
    prior, by_q, wide = np.zeros((3, size, count))
    for place, group in own:
        part, start = normals[:, start : start + group.size], start + group.size
        mean, variance = (each[:, None, :] for each in white_of_fitted(fit, place))
        sd = np.sqrt(variance)
        white = np.concatenate([np.broadcast_to(part, (len(mean), *part.shape)), mean + WIDER * sd * part], axis=1)
        prior += scipy.stats.norm.logpdf(white).sum(axis=-1)
        by_q += scipy.stats.norm.logpdf(white, mean, sd).sum(axis=-1)
        wide += scipy.stats.norm.logpdf(white, mean, WIDER * sd).sum(axis=-1)
        divergence += 0.5 * np.sum(variance + mean**2 - 1.0 - np.log(variance), axis=(1, 2))
        around, scale = prior_of(program, group, parameters, rows, size)
        values[..., group.start : group.stop] = around[:, None] + scale * white
    either = np.logaddexp(prior, wide)
    return Nodes(values, log_softmax(prior - either, axis=1), softmax(by_q - either, axis=1), divergence)


def by_draws(beliefs: Beliefs) -> Float[np.ndarray, "2 rows"]:
    """log p(y_n | the other rows) from draws of q with smoothed weights 1 / p(y_n | f_n), and Pareto's k."""
    drawn = drawn_log_densities(beliefs)
    flat = drawn.reshape(-1, drawn.shape[-1])
    base = np.broadcast_to(np.log(beliefs.weights), drawn.shape[:2]).reshape(-1)
    log_weights, k = reweighted(base, flat)
    return np.stack([np.logaddexp.reduce(log_weights + flat, axis=0), k])
