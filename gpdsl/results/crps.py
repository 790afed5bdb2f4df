"""The continuous ranked probability score: the integral of (F(z) - [z >= y])^2, E|Y - y| - E|Y - Y'| / 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from gpdsl.data.columns import Found
from gpdsl.data.convert import from_object
from gpdsl.data.values import Wrong, binary_values, numbers
from gpdsl.errors import GpdslError
from gpdsl.results.draws import sizes_of
from gpdsl.results.expectation import Beliefs
from gpdsl.results.named import check_draws, is_output, of_output
from gpdsl.results.outputs import law_of_output
from gpdsl.results.predictive import Predictive
from gpdsl.symbolic.terms import ObservationTerms

if TYPE_CHECKING:
    from gpdsl.results.prediction import Prediction

Array = np.ndarray

MOST = 512
"""Components of which all pairs are taken."""


class NotNormalError(Exception):
    """The distribution of an output is no mixture of normal ones, or of too many."""


def crps_of(prediction: Prediction, name: str, observed: Any, draws: int, seed: int) -> Array:
    """See `Prediction.crps`. Raises GpdslError for labels, what is no output, and values of another shape."""
    beliefs = prediction.beliefs
    if not is_output(beliefs, name):
        raise GpdslError(f"crps of `{name}`: expected an output, of which there are observations")
    declared = beliefs.program.declarations.outputs[name]
    if declared.label is not None:
        raise GpdslError(f"crps of `{name}`: a label has no distances; use the log density, `gpdsl.score.nlpd`")
    try:
        values = from_object(name, observed, f"crps of `{name}`")
        given = Found(name, values, (name,) * int(np.prod(values.shape[1:])))
        y = np.asarray(binary_values(given) if declared.kind == "binary" else numbers(given), float)
    except Wrong as wrong:
        raise GpdslError(f"crps of `{name}`: {wrong.mistake.message_text()}") from None
    shape = (beliefs.count, *beliefs.program.translator.shape(declared.axes))
    if y.shape != shape:
        raise GpdslError(f"crps of `{name}`: the values have the shape {y.shape}, expected {shape}")
    if declared.kind == "binary":
        found: Array = (prediction.mean(name) - y) ** 2
        return found
    seed = check_draws(f"crps of `{name}`", draws, seed, y.size)
    at = prediction.standardised.into(name, y)
    try:
        score = _of_normals(at, *_components(prediction, name))
    except NotNormalError:
        score = _of_draws(at, prediction.standardised.into(name, prediction.sample(name, draws, seed)))
    return prediction.standardised.widened(name, score)


def _components(prediction: Prediction, name: str) -> tuple[Array, Array, Array]:
    """Means, standard deviations and weights of all components of an output, [K, rows, *axes] and [K]."""
    means, variances, weights = [], [], []
    for weight, each in prediction.weighted:
        beliefs = each.beliefs
        found = of_output(beliefs, name, lambda o, keys, b=beliefs: np.concatenate(_normals(b, o, keys)))  # type: ignore[misc]
        mean, variance = np.split(found, 2)
        means.append(mean)
        variances.append(variance)
        weights.append(weight * beliefs.weights)
    return np.concatenate(means), np.sqrt(np.concatenate(variances)), np.concatenate(weights)


def _normals(beliefs: Beliefs, o: ObservationTerms, keys: tuple[str, ...]) -> tuple[Array, Array]:
    """Means and variances of the components of a statement, [K, rows, *keys]."""
    law = law_of_output(beliefs, o, keys)
    known = law.normal() if isinstance(law, Predictive) else None
    if known is None or len(beliefs.weights) > MOST:  # their pairs are too many
        raise NotNormalError
    shape = len(beliefs.weights), beliefs.count, *sizes_of(beliefs, keys)
    return np.broadcast_to(known[0], shape), np.broadcast_to(known[1], shape)


def _of_normals(y: Array, mean: Array, sd: Array, weights: Array) -> Array:
    """Of mixtures of normals: Grimit et al. (2006), eq. 6."""
    apart = np.tensordot(weights, _size(y - mean, sd), axes=1)
    for weight, centre, width in zip(weights, mean, sd, strict=True):
        apart -= 0.5 * weight * np.tensordot(weights, _size(centre - mean, np.hypot(width, sd)), axes=1)
    return apart


def _size(mean: Array, sd: Array) -> Array:
    """E|Z| of a normal variable."""
    z = mean / sd
    found: Array = mean * (2.0 * ndtr(z) - 1.0) + sd * np.sqrt(2.0 / np.pi) * np.exp(-0.5 * z**2)
    return found


def _of_draws(y: Array, draws: Array) -> Array:
    """The unbiased estimate from draws [count, ...]: sorted, the i-th of n is above i others and below n - 1 - i."""
    count = len(draws)
    ranks = (2.0 * np.arange(count) - count + 1.0) / (count * max(count - 1, 1))
    found: Array = np.mean(np.abs(draws - y), axis=0) - np.tensordot(ranks, np.sort(draws, axis=0), axes=1)
    return found
