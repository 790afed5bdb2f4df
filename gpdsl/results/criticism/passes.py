"""Rows left out where latents are functions of others: by passes through layers, given which rows are independent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

import jax
import numpy as np
from jaxtyping import Array, Float

from gpdsl.data import Data
from gpdsl.inference.posteriors.posterior import by_parts, parts
from gpdsl.inference.problem import as_numpy
from gpdsl.inference.proposals import smoothed
from gpdsl.results.criticism.cavity import cavities
from gpdsl.results.density import log_densities, of_components
from gpdsl.results.draws import Draws
from gpdsl.results.expectation import ROUGH, Beliefs
from gpdsl.results.integrals import normals_of, sample_latents
from gpdsl.results.table import predictable_outputs

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


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
    places: Mapping[str, Float[np.ndarray, "2 rows *axes"]]
    """P(Y < y) and P(Y <= y) by all other rows, of the outputs that can be drawn."""
    of_all: Mapping[str, Float[np.ndarray, "2 rows *axes"]]
    """The same by all rows, where draws leave the row out."""


def at_passes(fit: Fit, some: Data) -> LeftOut:
    """Of some rows that have nothing but functions."""
    beliefs, outputs, found = fit.beliefs(some, likelihoods=True), outputs_of(fit, some), list[tuple[LeftOut, int]]()
    for own, skip in parts(some.rows, beliefs.at_once):
        told = _at_passes(fit, beliefs.part(own), {name: each[own] for name, each in outputs.items()})
        found.append((told, skip))
    numbers = [np.stack([told.without, told.itself, told.k, told.lost])[:, skip:] for told, skip in found]
    without, itself, k, lost = np.concatenate(numbers, axis=1)
    names = found[0][0].places
    places = {n: np.concatenate([told.places[n][:, skip:] for told, skip in found], axis=1) for n in names}
    of_all = {n: np.concatenate([told.of_all[n][:, skip:] for told, skip in found], axis=1) for n in names}
    return LeftOut(without, itself, k, lost, places, of_all)


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
) -> dict[str, Float[np.ndarray, "2 rows *axes"]]:
    """The weight of what is drawn anew below values of outputs, and not above them."""
    seed, weights = np.random.default_rng(beliefs.seed), np.exp(log_weights)
    own = cast(Array, latents[:, None])  # on the host, where an index takes no program
    draws = Draws(beliefs, own, np.zeros(weights.shape, int), seed)
    found = dict[str, np.ndarray]()
    for name, values in outputs.items():
        anew = draws.of(name)
        shares = [np.einsum("sn,sn...->n...", weights, each) for each in (anew < values, anew <= values)]
        found[name] = np.clip(np.stack(shares), 0.0, 1.0)
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
