"""Joint draws of a latent: all its functionals at all rows, by a factor of their covariance matrix."""

from __future__ import annotations

import numpy as np

from gpdsl.data.errors import DataError
from gpdsl.kernels.functionals import Functionals
from gpdsl.simulation.errors import NotPositiveDefinite, TooManyPoints
from gpdsl.simulation.processes import Process

MAX_POINTS = 5000
"""Rows times functionals of one latent: the factor takes n^3 / 3 operations and 8 n^2 bytes."""

JITTERS = tuple(10.0**power for power in range(-10, -4))
"""Relative to the mean variance: far below any noise that data could show."""


class JointDraws:
    """Draws of one latent's elements; elements with the same covariance up to scale share its factor."""

    def __init__(self, latent: str, source: str, functionals: Functionals) -> None:
        if len(functionals) > MAX_POINTS:
            raise DataError(TooManyPoints(latent, len(functionals), MAX_POINTS), source=source)
        self.latent = latent
        self.source = source
        self.functionals = functionals
        self._factors: dict[tuple[bytes, ...], np.ndarray] = {}

    def draw(self, process: Process, generator: np.random.Generator) -> np.ndarray:
        """One draw [functionals] around zero."""
        if process.key not in self._factors:
            # only the latest is kept: a factor of thousands of rows is large, and equal ones follow one another
            self._factors = {process.key: self._factor(process.covariance(self.functionals))}
        if not process.scale >= 0:
            raise DataError(NotPositiveDefinite(self.latent), source=self.source)
        return np.sqrt(process.scale) * self._factors[process.key] @ generator.standard_normal(len(self.functionals))

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
