"""The steps between calls of opaque functions, to be compiled: for one problem and the columns they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.expected_log_likelihood import opaque_density
from gpdsl.inference.natural.profiled import setting_of, split_point
from gpdsl.inference.natural.sites import Sites, site_marginals, site_target
from gpdsl.inference.opaque.surrogate import FAILED, SMOOTHING, Reads, arguments_of, column_covariance
from gpdsl.inference.problem import Problem
from gpdsl.program.joint import Marginals, basis_columns, block_root, with_sums
from gpdsl.program.rows import Rows
from gpdsl.symbolic.translate import ExternalUse

Compiled = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Steps:
    """What a problem computes of what its opaque functions read in a row."""

    problem: Problem
    reads: Reads

    def _marginals(self, point: Any, sites: Sites, rows: Rows, held: Any) -> Marginals:
        return site_marginals(setting_of(self.problem, point, held, rows).views(), sites)[0]

    def place(self, point: Any, sites: Sites, rows: Rows, held: Any) -> tuple[Array, Array]:
        """Mean and root of the Gaussian of what is read."""
        q, reads = self._marginals(point, sites, rows, held), self.reads
        mean, columns = q.mean[0][:, np.asarray(reads.columns)], len(reads.columns)
        root = block_root(column_covariance(self.problem.program, q, reads.columns), np.arange(columns))
        if not reads.parameters:
            return mean, root
        learnt, _ = split_point(point, held)
        flat = jnp.concatenate([jnp.ravel(learnt[name]) for name, _ in reads.parameters])
        whole = SMOOTHING * jnp.broadcast_to(jnp.eye(reads.width, dtype=root.dtype), (len(mean), *(reads.width,) * 2))
        mean = jnp.concatenate([mean, jnp.broadcast_to(flat, (len(mean), flat.size))], axis=1)
        return mean, whole.at[:, :columns, :columns].set(root)

    def shaken(
        self, point: Any, sites: Sites, rows: Rows, held: Any, slope: Array, curvature: Array
    ) -> tuple[Array, Array]:
        """The place after a full step whose gradients are off by this much."""
        q = self._marginals(point, sites, rows, held)
        # What is read of parameters is no step of the sites.
        columns, width = self.reads.columns, len(self.reads.columns)

        def linear(q: Marginals) -> Array:
            spread = column_covariance(self.problem.program, q, columns)
            along = jnp.sum(slope[:, :width] * q.mean[0][:, np.asarray(columns)])
            return along + jnp.sum(curvature[:, :width, :width] * spread)

        change = site_target(q, jax.grad(linear)(q))
        moved = Sites(sites.linear + change.linear, sites.precision + change.precision)
        return self.place(point, moved, rows, held)

    def latents(self, x: Float[Array, "S rows J"]) -> Float[Array, "S 1 rows all"]:
        """All columns, where only some matter; all that matter, where sums follow from the others."""
        x = jnp.asarray(x, self.problem.options.dtype)[:, None, :, : len(self.reads.columns)]
        if self.reads.columns == tuple(basis_columns(self.problem.program)):
            return with_sums(self.problem.program, x)
        everywhere = jnp.zeros((*x.shape[:-1], self.problem.program.latents), x.dtype)
        return everywhere.at[..., np.asarray(self.reads.columns)].set(x)

    def shaped(self, latents: Array, values: Mapping[str, Array | np.ndarray]) -> dict[str, Array]:
        """Values of opaque calls in their declared shapes."""
        shapes = {use.key: use.result for use in self.problem.program.uses()}
        return {k: jnp.asarray(v, latents.dtype).reshape(*latents.shape[:3], *shapes[k]) for k, v in values.items()}

    def propose(self, point: Any, rows: Rows, x: Array) -> tuple[Mapping[str, Array], Rows, Array]:
        """Parameters, rows and latents that the functions are called at."""
        learnt, _ = split_point(point, self.problem.inducing)
        parameters = self.problem.program.parameters.constrain(learnt)
        smoothed = jnp.asarray(x, self.problem.options.dtype)[:, None, :, len(self.reads.columns) :]
        parameters |= self.reads.constrained(self.problem.program, smoothed)
        return parameters, rows, self.latents(x)

    def density(
        self, point: Any, rows: Rows, x: Array, values: Mapping[str, Array], failed: Array | None
    ) -> Float[Array, "S rows"]:
        """Log densities [S, rows] of the terms with opaque values, at points and values that are known or guessed."""
        program, latents = self.problem.program, self.latents(x)
        known = self.shaped(latents, values)
        if failed is not None:
            known[FAILED] = jnp.asarray(failed, latents.dtype)[:, None]
        learnt, _ = split_point(point, self.problem.inducing)
        return opaque_density(program, program.parameters.constrain(learnt), rows, latents, known)[:, 0]

    def slope(self, point: Any, rows: Rows, x: Array, values: Mapping[str, Array]) -> Any:
        """Derivatives of those log densities in the points and in the values."""
        total = lambda x, values: jnp.sum(self.density(point, rows, x, values, None))  # noqa: E731
        return jax.grad(total, argnums=(0, 1))(jnp.asarray(x), jax.tree.map(jnp.asarray, dict(values)))

    def pushed(self, use: ExternalUse) -> Compiled:
        """Derivatives of the arguments of an opaque call when what is read moves along a direction."""

        def pushed(point: Any, rows: Rows, x: Array, direction: Array) -> list[Array]:
            def passed(x: Array) -> list[Array]:
                parameters, seen, latents = self.propose(point, rows, x)
                return arguments_of(self.problem.program, use, parameters, seen, latents, {})

            x = jnp.asarray(x)
            return jax.jvp(passed, (x,), (jnp.broadcast_to(jnp.asarray(direction, x.dtype), x.shape),))[1]

        return pushed
