"""What inducing points lose where latents are functions of others: by the rule of `loss`, at samples of these.

What is told of a row is how much its part of the bound falls as the variance rises that inducing values leave open,
through the layers above too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.data import Data, some_rows
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.inducing.loss import Loss
from gpdsl.inference.layered.propagation import Drawn, Layers, row_moments
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import Features
from gpdsl.inference.problem import as_arrays
from gpdsl.inference.sampling import spread_normals
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.cache import jit
from gpdsl.program.program import Program, make_rows, take_rows
from gpdsl.program.rows import Rows

PASSES, ROWS, STEP = 16, 400, 1e-2
"""Passes of rows, as many of these at most, and of differences in the share of the variance that values leave open."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Opened:
    """q of inducing values, with such a share more of the variance that they leave open."""

    q: Whitened
    share: Array

    def moments(self, features: Features) -> tuple[Array, Array]:
        """Means and variances at the arguments, at unit kernel scale."""
        mean, variance = self.q.moments(features)
        return mean, variance + self.share * features.residual


def loss_through_layers(
    program: Program,
    data: Data,
    parameters: Mapping[str, np.ndarray],
    posterior: tuple[Sequence[Functionals], Sequence[Whitened], float],
    dtype: str,
) -> Loss:
    """By the parameters in their domains and the posterior of a fit: inducing points, q of values there, and jitter."""
    (inducing, every, jitter), some = posterior, some_rows(data.rows, ROWS)
    layers, made = Layers(program, program.sharp), replace(make_rows(program, data), numbers=np.arange(data.rows))
    shape = PASSES, len(some), program.latents
    normals = jit(lambda key: spread_normals(key, shape, jnp.dtype(dtype)), brief=True)(jax.random.key(0))

    def likelihood(share: Any, parameters: Any, inducing: Any, q: Any, rows: Rows) -> Float[Array, " rows"]:
        opened, white = dict[int, Any](enumerate(q)), dict[int, Array]()
        for place, group in enumerate(program.groups):
            if group.per_row:
                mean, sd = row_moments(q[place], rows, normals.dtype)
                white[place] = mean + sd * normals[..., group.start : group.stop]
            else:
                opened[place] = Opened(q[place], share[place])
        found = layers.marginals(parameters, inducing, opened, rows, Drawn(normals, white), jitter)
        return jnp.mean(expected_log_likelihood(program, parameters, rows, found, normals[None]), axis=0)

    given = as_arrays((dict(parameters), list(inducing), list(every), take_rows(made, some)), dtype)
    shares = as_arrays(list(STEP * np.eye(len(program.groups) + 1)[:, 1:]), dtype)
    compute = jit(likelihood, brief=True)
    none, *more = (np.asarray(compute(each, *given), float) for each in shares)
    rho = np.maximum(2.0 * (none - np.stack(more)) / STEP, 0.0)
    return Loss(float(np.sum(rho - 0.5 * np.log1p(rho))) * data.rows / len(some), data.rows)
