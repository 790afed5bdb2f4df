"""Joint draws of a latent: all its functionals at all rows, by a factor of their covariance matrix."""

from __future__ import annotations

import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.simulation.errors import NotPositiveDefinite, TooManyPoints

MAX_POINTS = 5000
"""Rows times functionals of one latent: the factor takes n^3 / 3 operations and 8 n^2 bytes."""

JITTERS = tuple(10.0**power for power in range(-10, -4))
"""Relative to the mean variance: far below any noise that data could show."""


class JointDraws:
    """Draws of one latent's elements; elements with the same covariance matrix share its factor."""

    def __init__(self, latent: str, source: str, points: int) -> None:
        if points > MAX_POINTS:
            raise DataError(TooManyPoints(latent, points, MAX_POINTS), source=source)
        self.latent = latent
        self.source = source
        self._factors: dict[bytes, np.ndarray] = {}

    def draw(self, mean: np.ndarray, covariance: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """One draw [points] of N(mean, covariance)."""
        key = covariance.tobytes()
        if key not in self._factors:
            self._factors = {key: self._factor(covariance)}
        return mean + self._factors[key] @ generator.standard_normal(len(mean))

    def _factor(self, covariance: np.ndarray) -> np.ndarray:
        if not np.isfinite(covariance).all():
            raise DataError(NotPositiveDefinite(self.latent), source=self.source)
        scale = max(float(np.mean(np.diag(covariance))), np.finfo(float).tiny)
        for jitter in JITTERS:
            try:
                return np.linalg.cholesky(covariance + jitter * scale * np.eye(len(covariance)))
            except np.linalg.LinAlgError:
                continue
        raise DataError(NotPositiveDefinite(self.latent), source=self.source)
