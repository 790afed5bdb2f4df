"""How observed values compare with what was predicted of them. `Prediction` is one of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gpdsl.errors import GpdslError, quoted
from gpdsl.program.cache import in_precision
from gpdsl.results.named import is_output
from gpdsl.results.ranked import crps_of, observed_numbers
from gpdsl.results.shares import falls_below

if TYPE_CHECKING:
    from gpdsl.results.prediction import Prediction


# Where observed values lie in what is predicted of them: probability integral transforms.

DRAWS = 400
"""Where there is no distribution function."""


def pit_of(prediction: Prediction, name: str, observed: Any, seed: int) -> np.ndarray:
    """See `Prediction.pit`. Raises GpdslError for what is no output, and values of another shape."""
    beliefs = prediction.beliefs
    if not is_output(beliefs, name):
        raise GpdslError(f"pit of `{name}`: expected an output, of which there are observations")
    declared = beliefs.program.declarations.outputs[name]
    if declared.label is None:
        values = observed_numbers(beliefs, name, observed, f"pit of `{name}`")
    else:
        values = _numbered(prediction, name, observed)
    shape = (beliefs.count, *beliefs.program.translator.shape(declared.axes))
    if values.shape != shape:
        raise GpdslError(f"pit of `{name}`: the values have the shape {values.shape}, expected {shape}")
    return places_drawn(prediction, name, values, seed)


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
    missing = level is None or level != level
    return float("nan") if missing else numbers.get(level)


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

        That of a binary output is of 0 and 1, whatever its levels.

        0 is best; NaN where a value is missing. Exact for normal and binary outputs; by quadrature where there is a
        distribution function, up to some thousand rows; else from draws of each row. Gneiting and Raftery (2007).
        """
        return crps_of(cast("Prediction", self), name, observed, draws, seed)

    @in_precision
    def pit(self, name: str, observed: Any, *, seed: int = 0) -> np.ndarray:
        """Where observed values of an output lie in what is predicted of them, from 0 to 1 [rows, *axes].

        Uniform where the model is right; NaN where a value is missing. Where a value has a probability of its own, as a
        count has, a random place within this jump (Dunn and Smyth 1996). Labels are in the order of their levels.
        """
        return pit_of(cast("Prediction", self), name, observed, seed)
