"""What a picture shows of one quantity: its centre and a band, or the probabilities of its levels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from gpdsl.results.pictures.rows import Seen
from gpdsl.results.prediction import Prediction

BAND = (0.05, 0.95)


@dataclass(frozen=True, eq=False)
class Quantity:
    """`centre` is [rows, *axes], or [rows, levels] where there are `levels`; `band` is [2, rows, *axes], or nothing.

    `kind` is that of an output: binary ones and labels have probabilities, and no band.
    """

    name: str
    kind: str
    centre: np.ndarray
    band: np.ndarray | None = None
    levels: tuple = ()

    @property
    def ordered(self) -> bool:
        """Whether the levels are in order."""
        return self.kind == "ordinal"

    def at(self, rows: slice) -> Quantity:
        """In some rows."""
        return replace(self, centre=self.centre[rows], band=None if self.band is None else self.band[:, rows])

    def averaged(self, count: int) -> Quantity:
        """Over each `count` rows that follow one another; the band is where 90% of them lie."""
        apart = self.centre.reshape(-1, count, *self.centre.shape[1:])
        band = None if self.levels else np.quantile(apart, BAND, axis=1)
        return replace(self, centre=apart.mean(axis=1), band=band)


def quantity(seen: Seen, prediction: Prediction, name: str) -> Quantity:
    """What a prediction says of a name: mean (median where some row has no mean) and 90% band."""
    output = seen.fit.program.declarations.outputs.get(name)
    kind = "" if output is None else output.kind
    if output is not None and output.label is not None:
        chances = prediction.mean(name)
        first = chances.reshape(len(chances), -1, chances.shape[-1])[:, 0]
        return Quantity(name, kind, first, levels=prediction.levels(name))
    centre = mean_or_median(prediction, name)
    band = None if kind == "binary" else np.asarray(prediction.quantile(name, BAND))
    return Quantity(name, kind, centre, band)


def mean_or_median(prediction: Prediction, name: str) -> np.ndarray:
    """Means, or medians where some row has no mean."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = prediction.mean(name)
    return found if np.all(np.isfinite(found)) else prediction.quantile(name, 0.5)
