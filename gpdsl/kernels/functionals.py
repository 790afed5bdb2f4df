"""Linear functionals of a Gaussian process: what is asked of a latent. Values at points are the first kind."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from jaxtyping import Array, Float


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Values:
    """f(x_1), ..., f(x_n): the process evaluated at `points` [n, D]."""

    points: Float[Array, "n D"]

    def __len__(self) -> int:
        return self.points.shape[-2]


Functionals = Values
"""Every kind of functional `covariance` understands."""
