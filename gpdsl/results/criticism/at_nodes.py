"""Rows left out where latents are functions of variables of rows: at nodes of these.

Where one layer is a function of them, a row stands in q of its inducing values by a Gaussian site. With w_n the row's
variables, nodes w_j of q with weights q_j, and f_j = m_j + r_j' u + e_j, u ~ N(0, I), what q says there,

    Lambda = -sum_j q_j E[d^2 log p(y_n | f_j) / df^2] r_j r_j',    g = sum_j q_j E[d log p / df] r_j:

the site is taken out of q (`cavity`), u ~ N(-A^-1 g, A^-1) with A = I - Lambda, and the row's variables are as the
prior has them. Where that is no distribution, and where there are layers below, draws of functions are weighted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import norm, qmc

from gpdsl.data import Data
from gpdsl.inference.problem import Monitor, as_arrays, as_numpy
from gpdsl.inference.proposals import smoothed
from gpdsl.program.joint import Marginals
from gpdsl.program.program import make_rows, take_rows
from gpdsl.program.rows import Rows
from gpdsl.results.criticism.cavity import LEAST, expected_at
from gpdsl.results.criticism.passes import LeftOut, outputs_of, places_among
from gpdsl.results.density import log_densities, of_components
from gpdsl.results.expectation import Beliefs
from gpdsl.results.row_variables import prior_of, white_of_fitted

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

DRAWS, NODES = (1024, 256), (256, 64)
"""Draws of functions of the variables of a row, and nodes of these: where there is one layer, and where there are more,
each of whose draws has covariances of its own."""

WIDER = 1.5
"""Standard deviations of q that its nodes are spread by."""


def at_nodes(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"]) -> LeftOut:
    """What the other rows say of each, of the rows that were fitted, or some of them."""
    from gpdsl.results.fitting import progress_shown

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


def densities_at_nodes(fit: Fit, bound: Data, some: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "draws rows"]:
    """log p(y_n | functions) of draws of functions."""
    every = Variables(fit, bound)
    return np.stack([every.drawn(int(row))[1] for row in some], axis=1)


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
    return Nodes(values, log_softmax(prior - either, axis=1), softmax(by_q - either, axis=1), divergence)
