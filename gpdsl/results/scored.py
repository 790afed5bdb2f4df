"""How observed values compare with what was predicted of them: scores, and the ranked probability score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.special import ndtr

from gpdsl.data.columns import Found
from gpdsl.data.convert import column_of
from gpdsl.data.values import Wrong, binary_values, numbers
from gpdsl.errors import GpdslError, quoted
from gpdsl.language.options import check_option
from gpdsl.program.cache import in_precision
from gpdsl.results.draws import NoLawError, Shares, falls_below, law_of_output, sizes_of
from gpdsl.results.expectation import Beliefs
from gpdsl.results.named import check_draws, is_output, of_output
from gpdsl.results.predictive import Predictive
from gpdsl.symbolic.terms import ObservationTerms

if TYPE_CHECKING:
    from gpdsl.results.prediction import Prediction


# Where observed values lie in what is predicted of them: probability integral transforms.

DRAWS = 400
"""Where there is no distribution function."""


def pit_of(prediction: Prediction, name: str, observed: Any, seed: int) -> np.ndarray:
    """See `Prediction.pit`. Raises GpdslError as `_observed` does."""
    return places_drawn(prediction, name, _observed(prediction, name, observed, f"pit of `{name}`"), seed)


def _observed(prediction: Prediction, name: str, observed: Any, what: str, distances: bool = False) -> np.ndarray:
    """Values of an output as numbers [rows, *axes], levels of labels from 0.

    Raises GpdslError for what is no output, values of another shape, and labels where `distances` are asked for.
    """
    beliefs = prediction.beliefs
    if not is_output(beliefs, name):
        raise GpdslError(f"{what}: expected an output, of which there are observations")
    declared = beliefs.program.declarations.outputs[name]
    if distances and declared.label is not None:
        raise GpdslError(f"{what}: a label has no distances; use the log density, `gpdsl.score.nlpd`")
    plain = declared.label is None
    values = observed_numbers(beliefs, name, observed, what) if plain else _numbered(prediction, name, observed)
    shape = (beliefs.count, *beliefs.program.translator.shape(declared.axes))
    if values.shape != shape:
        raise GpdslError(f"{what}: the values have the shape {values.shape}, expected {shape}")
    return values


def _numbered(prediction: Prediction, name: str, observed: Any) -> np.ndarray:
    """Levels as numbers from 0. Raises GpdslError for what is no level, nor missing."""
    given = np.asarray(observed, dtype=object)
    numbers = {level: float(place) for place, level in enumerate(prediction.levels(name))}
    found = np.array([_number(each, numbers) for each in given.ravel()], dtype=object)
    odd = np.array([each is None for each in found])
    if odd.any():
        levels = ", ".join(map(str, numbers))
        raise GpdslError(f"pit of `{name}`: {quoted(given.ravel()[odd][0])} is none of its levels, {levels}")
    return found.astype(float).reshape(given.shape)


def _number(level: Any, numbers: Mapping[Any, float]) -> float | None:
    try:
        return float("nan") if level is None or level != level else numbers.get(level)
    except TypeError:  # of pandas' NA nobody knows whether it differs; lists are no levels
        return float("nan") if type(level).__name__ == "NAType" else None


def places_drawn(prediction: Prediction, name: str, values: np.ndarray, seed: int = 0) -> np.ndarray:
    """Of values as the data hold them, labels as numbers from 0; NaN of none."""
    return randomised(*places_of(prediction, name, values), np.isfinite(values), seed)


def places_of(prediction: Prediction, name: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(Y < y) and P(Y <= y) of values [rows, *axes]; of labels, which are numbered from 0, in their order."""
    at = np.where(np.isfinite(values), values, 0.0)
    output = prediction.beliefs.program.declarations.outputs[name]
    if output.label is not None:
        upto = np.concatenate([np.zeros((*values.shape, 1)), np.cumsum(prediction.mean(name), axis=-1)], axis=-1)
        low, high = (np.take_along_axis(upto, (at + k).astype(int)[..., None], -1)[..., 0] for k in (0, 1))
        return low, high
    if output.kind == "binary":
        no = 1.0 - prediction.mean(name)
        return np.where(at > 0, no, 0.0), np.where(at > 0, 1.0, no)
    found = falls_below(prediction, name, at)
    return among_draws(prediction, name, at) if found is None else found


def randomised(low: np.ndarray, high: np.ndarray, known: np.ndarray, seed: int) -> np.ndarray:
    """A random place between the two where a value has a probability of its own (Dunn and Smyth 1996); NaN of none."""
    random = np.random.default_rng(seed).random(np.shape(low))
    return np.where(known, low + random * np.maximum(high - low, 0.0), np.nan)


def among_draws(prediction: Prediction, name: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Between which shares of draws values lie."""
    drawn = prediction.sample(name, DRAWS)
    return np.sum(drawn < values, axis=0) / (DRAWS + 1), (np.sum(drawn <= values, axis=0) + 1) / (DRAWS + 1)


class Scored:
    """The scores of a prediction."""

    dtype: str

    @in_precision
    def crps(self, name: str, observed: Any, *, draws: int = 2000, seed: int = 0) -> np.ndarray:
        """Continuous ranked probability score of observed values of an output, [rows, *axes] and in its units.

        That of a binary output is of 0 and 1, whatever its levels. 0 is best; NaN where a value is missing. Exact for
        normal and binary outputs; by quadrature where there is a distribution function, up to some thousand rows; else
        from draws of each row. Gneiting and Raftery (2007).
        """
        prediction = cast("Prediction", self)
        y = _observed(prediction, name, observed, f"crps of `{name}`", distances=True)
        declared = prediction.beliefs.program.declarations.outputs[name]
        if declared.kind == "binary":
            found: Array = (prediction.mean(name) - y) ** 2
            return found
        seed = check_draws(f"crps of `{name}`", draws, seed, y.size)
        at = prediction.standardised.into(name, y)
        try:
            score = _of_normals(at, *_components(prediction, name))
        except NotNormalError:
            drawn = np.sort(prediction.standardised.into(name, prediction.sample(name, draws, seed)), axis=0)
            try:
                score = _Integral(prediction, name).of(at, drawn, whole=declared.kind == "count")
            except NoLawError:
                score = _of_draws(at, drawn)
        return prediction.standardised.widened(name, score)

    @in_precision
    def pit(self, name: str, observed: Any, *, seed: int = 0) -> np.ndarray:
        """Where observed values of an output lie in what is predicted of them, from 0 to 1 [rows, *axes].

        Uniform where the model is right; NaN where a value is missing. Where a value has a probability of its own, as a
        count has, a random place within this jump (Dunn and Smyth 1996). Labels are in the order of their levels.
        """
        return pit_of(cast("Prediction", self), name, observed, check_option("seed", seed))


# The continuous ranked probability score: the integral of (F(z) - [z >= y])^2, E|Y - y| - E|Y - Y'| / 2.

Array = np.ndarray

MOST = 512
"""Components of which all pairs are taken."""


class NotNormalError(Exception):
    """The distribution of an output is no mixture of normal ones, or of too many."""


def observed_numbers(beliefs: Beliefs, name: str, observed: Any, what: str) -> Array:
    """Values of an output that is no label as the data hold them. Raises GpdslError for what is none of `what`."""
    try:
        values = column_of(name, observed, what)
        given = Found(name, values, (name,) * int(np.prod(values.shape[1:])))
        if beliefs.program.declarations.outputs[name].kind == "binary":
            return np.asarray(binary_values(given, beliefs.program.levels.get(name, ())), float)
        return np.asarray(numbers(given), float)
    except Wrong as wrong:
        raise GpdslError(f"{what}: {wrong.mistake.message_text()}") from None


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
    known = law.normal if isinstance(law, Predictive) else None
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
    """The unbiased estimate from sorted draws [count, ...]: the i-th of n is above i others and below n - 1 - i."""
    count = len(draws)
    ranks = (2.0 * np.arange(count) - count + 1.0) / (count * max(count - 1, 1))
    found: Array = np.mean(np.abs(draws - y), axis=0) - np.tensordot(ranks, draws, axes=1)
    return found


LEVELS = np.array([0, 0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.94, 0.97, 0.99, 0.997, 1])
"""Shares of the draws between which a distribution function is smooth; the squares of what lies beyond are nothing."""

GAPS, NODES = 2, 4
"""Of the widest gaps among the draws, as between tops, whose ends are edges too; nodes between two edges."""
RULE = list(zip(*np.polynomial.legendre.leggauss(NODES), strict=True))
"""Gauss's between two of these."""

WORK = 3e7
"""Conditional distribution functions that are evaluated at most: some seconds."""


class _Integral:
    """By the distribution function of an output, whatever its law. Raises NoLawError where there is none."""

    def __init__(self, prediction: Prediction, name: str) -> None:
        self.name = name
        self.laws = [(weight, Shares(each.beliefs)) for weight, each in prediction.weighted]

    def of(self, y: Array, drawn: Array, *, whole: bool) -> Array:
        """Of values [rows, *axes], beside sorted draws; `whole` says that values are counts."""
        known = np.where(np.isnan(y), drawn[len(drawn) // 2], y)
        edges = drawn[np.rint(LEVELS * (len(drawn) - 1)).astype(int)]
        if not np.isfinite(edges).all():
            raise NoLawError
        middle, inner = edges[len(edges) // 2], drawn[len(drawn) // 100 : -(len(drawn) // 100) or None]
        widest = np.argsort(-np.diff(inner, axis=0), axis=0, kind="stable")[:GAPS]
        gaps = [np.take_along_axis(inner, widest + k, axis=0) for k in (0, 1)]
        edges = np.concatenate(
            [[2 * edges[0] - middle], edges, [2 * edges[-1] - middle + (1.0 if whole else 0.0)], [known], *gaps]
        )
        edges = np.sort(np.floor(edges) if whole else edges, axis=0)
        panels = zip(edges, edges[1:], strict=False)
        found = sum(self._whole(*each, known) if whole else self._smooth(*each, known) for each in panels)
        return np.where(np.isnan(y), np.nan, found)

    def _smooth(self, low: Array, high: Array, y: Array) -> Array:
        """The integral of (F(z) - [z >= y])^2 between two edges, of which y may be one."""
        half = 0.5 * (high - low)
        values = (w * (self._below(low + half * (1.0 + place)) - (low >= y)) ** 2 for place, w in RULE)
        return np.asarray(half * sum(values))

    def _whole(self, low: Array, high: Array, y: Array) -> Array:
        """The sum of it over the whole numbers from one edge to before the next.

        One by one where they are few; else by the integral of a line through the middles of the steps of F.
        """
        few, half, found = high - low <= NODES, 0.5 * (high - low), np.zeros(y.shape)
        for number, (place, weight) in enumerate(RULE):
            z = np.where(few, low + number, low + half * (1.0 + place) - 0.5)
            share, below = z - np.floor(z), self._below(np.floor(z))
            if share.any():
                below = (1.0 - share) * below + share * self._below(np.floor(z) + 1.0)
            found += np.where(few, number < high - low, half * weight) * (below - (low >= y)) ** 2
        return found

    def _below(self, z: Array) -> Array:
        total, work = np.zeros(z.shape), 0
        for weight, shares in self.laws:
            found = shares.beyond(self.name, z, "<=")
            if found is None:
                raise NoLawError
            total, work = total + weight * found, work + shares.nodes * z.size
        if work * len(LEVELS) * NODES > WORK:
            raise NoLawError
        return total
