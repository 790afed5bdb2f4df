"""The posterior of all fields at their points, as a fit holds it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.plan.options import Choice
from gpdsl.inference.posteriors.posterior import Posterior
from gpdsl.program.evaluation import deviations, field_means, roots
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FieldMarginals(Marginals):
    """Means and variances [1, 1, D] of all values, and a root of their covariance. `count` rows read them."""

    root: Float[Array, "D R"] | None = None
    count: int = field(default=1, metadata={"static": True})

    together = True

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


@dataclass(frozen=True, eq=False)
class OverFields(Posterior):
    """Of fields: values at points that are the same in every row, whitened, with one Gaussian across them."""

    whitened, jointly, carries = False, True, False

    @staticmethod
    def suits(program: Program, choice: Choice) -> bool:
        return bool(program.fields)

    def support(self, choice: Choice, rows: int) -> str:
        names = ", ".join(field.name for field in self.program.fields)
        return f"all {self.program.latents} values of {names} jointly"

    def marginals(self, program: Program, rows: Rows, count: int) -> FieldMarginals:
        """From the posterior of the whitened values."""
        parameters, (posterior, _) = self.numbers
        mean = jnp.concatenate([q.mean.reshape(-1) for q in posterior])
        root = jnp.concatenate([q.root.reshape(-1, q.root.shape[-1]) for q in posterior])
        whitened = jnp.concatenate([mean[:, None], root], axis=1)
        loaded = deviations(program, roots(program, parameters, self.jitter), whitened)
        centre = field_means(program, parameters) + loaded[:, 0]
        variance = jnp.sum(loaded[:, 1:] ** 2, axis=1)
        return FieldMarginals(centre[None, None], variance[None, None], None, loaded[:, 1:], count)
