"""How observed values compare with what was predicted of them. `Prediction` is one of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gpdsl.program.precision import in_precision
from gpdsl.results.crps import crps_of
from gpdsl.results.pit import pit_of

if TYPE_CHECKING:
    from gpdsl.results.prediction import Prediction


class Scored:
    """The scores of a prediction."""

    dtype: str

    @in_precision
    def crps(self, name: str, observed: Any, *, draws: int = 2000, seed: int = 0) -> np.ndarray:
        """Continuous ranked probability score of observed values of an output, [rows, *axes] and in its units.

        0 is best; NaN where a value is missing. Exact for normal and binary outputs, else from draws of each row.
        Gneiting and Raftery (2007).
        """
        return crps_of(cast("Prediction", self), name, observed, draws, seed)

    @in_precision
    def pit(self, name: str, observed: Any, *, seed: int = 0) -> np.ndarray:
        """Where observed values of an output lie in what is predicted of them, from 0 to 1 [rows, *axes].

        Uniform where the model is right; NaN where a value is missing. Where a value has a probability of its own, as a
        count has, a random place within this jump (Dunn and Smyth 1996). Labels are in the order of their levels.
        """
        return pit_of(cast("Prediction", self), name, observed, seed)
