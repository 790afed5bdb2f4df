"""A posterior over weights as a fit holds it: q(w) on the host, and the marginals of the latent at any rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.inference.quadruply_stochastic.features import fourier_features
from gpdsl.inference.quadruply_stochastic.reading import inputs_of, moments
from gpdsl.inference.quadruply_stochastic.weights import Weights
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

BLOCK = 4_000
"""Basis functions at a time, when a fit predicts."""


@dataclass(frozen=True, eq=False)
class WeightSpace:
    """q(w) over the basis functions that a seed draws.

    The functions are drawn again from their seed wherever they are needed, so they take no memory.
    """

    q: Weights
    seed: int

    @property
    def features(self) -> int:
        """m."""
        return self.q.curvature.shape[0]

    def marginals(self, program: Program, rows: Rows, parameters: Mapping[str, Array], q: Weights) -> Marginals:
        """Mean and variance of the latent at rows: phi mu and phi C C' phi', some functions at a time.

        `parameters` are constrained, and `q` is this posterior's on the device.
        """
        learnt = program.parameters.learnt(parameters)
        basis = fourier_features(program, self.features, self.seed)
        projected, variance = moments(basis, learnt, inputs_of(program, rows), q, BLOCK)
        prior: Array = prior_means(program.evaluator, program.groups, parameters, rows, variance.shape[0])
        return Marginals((prior[:, 0] + projected[:, 0])[None, :, None], jnp.asarray(variance)[None, :, None])

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file keeps."""
        return {"weights.vectors": np.asarray(self.q.vectors), "weights.curvature": np.asarray(self.q.curvature)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], seed: int) -> WeightSpace | None:
        """The posterior of a file, None where it holds no weights."""
        if "weights.vectors" not in arrays:
            return None
        return cls(Weights(arrays["weights.vectors"], arrays["weights.curvature"]), seed)

    def __str__(self) -> str:
        return f"{self.features} random Fourier features"
