"""The posterior of fields as predictions take it: one row of values that every row of the data reads, drawn jointly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.program.fields import deviations, field_means, roots
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FieldMarginals(Marginals):
    """Means and variances [1, 1, D] of all values, and a root of their covariance. `count` rows read them."""

    root: Float[Array, "D R"] | None = None
    count: int = field(default=1, metadata={"static": True})

    @property
    def rows(self) -> int:
        """Number of rows of the data."""
        return self.count

    def part(self, index: slice | np.ndarray) -> FieldMarginals:
        """For some of the rows."""
        return replace(self, count=len(np.arange(self.count)[index]))

    def at(self, program: Program, normals: Float[Array, "S K 1 D"]) -> Float[Array, "S K 1 D"]:
        """Joint samples, each of a whole field."""
        assert self.root is not None
        return self.mean + normals @ self.root.T


def field_marginals(
    program: Program, parameters: Mapping[str, Array], posterior: Sequence[Any], jitter: float, count: int
) -> FieldMarginals:
    """The posterior of all fields at their points, from that of the whitened values."""
    mean = jnp.concatenate([jnp.asarray(q.mean).reshape(-1) for q in posterior])
    root = jnp.concatenate([jnp.asarray(q.root).reshape(-1, np.shape(q.root)[-1]) for q in posterior])
    loaded = deviations(program, roots(program, parameters, jitter), jnp.concatenate([mean[:, None], root], axis=1))
    centre = field_means(program, parameters) + loaded[:, 0]
    variance = jnp.sum(loaded[:, 1:] ** 2, axis=1)
    return FieldMarginals(centre[None, None], variance[None, None], None, loaded[:, 1:], count)
