"""Predictions of layers: many passes of new rows, which are the components of a mixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.stats import norm, qmc

from gpdsl.inference.layered.propagation import Drawn, Layers
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import row_features
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, row_count

DRAWS = 256
"""Passes of every row."""


def layered_marginals(
    program: Program,
    rows: Rows,
    parameters: Mapping[str, Array],
    inducing: Sequence[Functionals],
    posterior: Sequence[Whitened],
    jitter: float,
) -> Marginals:
    """Marginals of all latents at rows, one component for each pass, all with equal weight.

    The passes are the same for every row: what is said of a row depends on no other.
    """
    layers = Layers(program, program.sharp)
    dtype = jax.tree.leaves(inducing)[0].dtype
    shared = jnp.asarray(common_normals(program.latents), dtype)[:, None]
    normals = jnp.broadcast_to(shared, (DRAWS, row_count(rows), program.latents))
    white = {}
    for place, group in enumerate(program.groups):
        if group.per_row and program.inner & set(group.names):
            mean, variance = posterior[place].moments(row_features(rows, dtype))
            white[place] = mean[0].T + jnp.sqrt(variance[0].T) * normals[..., group.start : group.stop]
    return layers.marginals(parameters, inducing, dict(enumerate(posterior)), rows, Drawn(normals, white), jitter)


def common_normals(columns: int) -> np.ndarray:
    """Standard normals [passes, columns] that are more even than random ones."""
    uniform = qmc.Sobol(columns, seed=0).random(DRAWS)
    return norm.ppf(np.clip(uniform, 1e-9, 1.0 - 1e-9))
