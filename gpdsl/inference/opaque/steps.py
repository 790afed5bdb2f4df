"""The compiled steps between calls of opaque functions; each is made for one problem and the columns they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.expected_log_likelihood import opaque_density
from gpdsl.inference.natural.profiled import setting_of, split_point
from gpdsl.inference.natural.sites import Sites, site_elbo, site_marginals, site_target
from gpdsl.inference.opaque.surrogate import FAILED, SMOOTHING, Reads, arguments_of, column_covariance
from gpdsl.inference.problem import Problem
from gpdsl.program.joint import Marginals, basis_columns, block_root, with_sums
from gpdsl.program.rows import Rows
from gpdsl.symbolic.translate import ExternalUse

Compiled = Callable[..., Any]


def _marginals(problem: Problem, point: Any, sites: Sites, rows: Rows, held: Any) -> Marginals:
    setting = setting_of(problem, point, held, rows)
    return site_marginals(setting.program, setting.parameters, rows, setting.views(), sites)[0]


def place_step(problem: Problem, reads: Reads) -> Compiled:
    program = problem.program

    def place(point: Any, sites: Sites, rows: Rows, held: Any) -> tuple[Array, Array]:
        q = _marginals(problem, point, sites, rows, held)
        mean, columns = q.mean[0][:, np.asarray(reads.columns)], len(reads.columns)
        root = block_root(column_covariance(program, q, reads.columns), np.arange(columns))
        if not reads.parameters:
            return mean, root
        learnt, _ = split_point(point, held)
        flat = jnp.concatenate([jnp.ravel(learnt[name]) for name, _ in reads.parameters])
        whole = SMOOTHING * jnp.broadcast_to(jnp.eye(reads.width, dtype=root.dtype), (len(mean), *(reads.width,) * 2))
        mean = jnp.concatenate([mean, jnp.broadcast_to(flat, (len(mean), flat.size))], axis=1)
        return mean, whole.at[:, :columns, :columns].set(root)

    return place


def shaken_step(problem: Problem, reads: Reads) -> Compiled:
    """The place after a full step whose gradients are off by this much."""
    place, program = place_step(problem, reads), problem.program

    def shaken(point: Any, sites: Sites, rows: Rows, held: Any, slope: Array, curvature: Array) -> tuple[Array, Array]:
        q = _marginals(problem, point, sites, rows, held)

        width = len(reads.columns)

        def linear(q: Marginals) -> Array:
            spread = column_covariance(program, q, reads.columns)
            along = jnp.sum(slope[:, :width] * q.mean[0][:, np.asarray(reads.columns)])
            return along + jnp.sum(curvature[:, :width, :width] * spread)

        change = site_target(q, jax.grad(linear)(q))
        moved = Sites(sites.linear + change.linear, sites.precision + change.precision)
        return place(point, moved, rows, held)

    return shaken


def latents_of(problem: Problem, reads: Reads, x: Float[Array, "S rows J"]) -> Float[Array, "S 1 rows all"]:
    """All columns, where only some matter; all that matter, where sums follow from the others."""
    x = jnp.asarray(x, problem.options.dtype)[:, None, :, : len(reads.columns)]
    if reads.columns == tuple(basis_columns(problem.program)):
        return with_sums(problem.program, x)
    return jnp.zeros((*x.shape[:-1], problem.program.latents), x.dtype).at[..., np.asarray(reads.columns)].set(x)


def shaped_of(problem: Problem, latents: Array, values: Mapping[str, Array | np.ndarray]) -> dict[str, Array]:
    """Values of opaque calls in their declared shapes."""
    shapes = {use.key: use.result for use in problem.program.uses()}
    return {k: jnp.asarray(v, latents.dtype).reshape(*latents.shape[:3], *shapes[k]) for k, v in values.items()}


def propose_step(problem: Problem, reads: Reads) -> Compiled:
    def propose(point: Any, rows: Rows, x: Array) -> tuple[Mapping[str, Array], Rows, Array]:
        learnt, _ = split_point(point, problem.inducing)
        parameters = problem.program.parameters.constrain(learnt)
        smoothed = jnp.asarray(x, problem.options.dtype)[:, None, :, len(reads.columns) :]
        parameters |= reads.constrained(problem.program, smoothed)
        return parameters, rows, latents_of(problem, reads, x)

    return propose


def density_step(problem: Problem, reads: Reads) -> Compiled:
    """Log densities [S, rows] of the terms with opaque values, at points and values that are known or guessed."""
    program = problem.program

    def density(point: Any, rows: Rows, x: Array, values: Mapping[str, Array], failed: Array | None) -> Array:
        latents = latents_of(problem, reads, x)
        known = shaped_of(problem, latents, values)
        if failed is not None:
            known[FAILED] = jnp.asarray(failed, latents.dtype)[:, None]
        learnt, _ = split_point(point, problem.inducing)
        return opaque_density(program, program.parameters.constrain(learnt), rows, latents, known)[:, 0]

    return density


def slope_step(problem: Problem, reads: Reads) -> Compiled:
    """Derivatives of those log densities in the points and in the values."""
    density = density_step(problem, reads)

    def slope(point: Any, rows: Rows, x: Array, values: Mapping[str, Array], failed: Array | None) -> Any:
        total = lambda x, values: jnp.sum(density(point, rows, x, values, failed))  # noqa: E731
        return jax.grad(total, argnums=(0, 1))(jnp.asarray(x), jax.tree.map(jnp.asarray, dict(values)))

    return slope


def pushed_step(problem: Problem, reads: Reads) -> dict[str, Compiled]:
    """Derivatives of the arguments of every opaque call when what is read moves in a direction, row by row."""
    program, propose = problem.program, propose_step(problem, reads)

    def make(use: ExternalUse) -> Compiled:
        def pushed(point: Any, rows: Rows, x: Array, direction: Array) -> list[Array]:
            def passed(x: Array) -> list[Array]:
                parameters, seen, latents = propose(point, rows, x)
                return arguments_of(program, use, parameters, seen, latents, {})

            x = jnp.asarray(x)
            return jax.jvp(passed, (x,), (jnp.broadcast_to(jnp.asarray(direction, x.dtype), x.shape),))[1]

        return problem.compiling(pushed)

    return {use.key: make(use) for use in program.uses()}


def bound_step(problem: Problem) -> Compiled:
    def bound(point: Any, sites: Sites, rows: Rows, held: Any, normals: Array, surrogate: Any, jitter: Any) -> Array:
        return site_elbo(setting_of(problem, point, held, rows, jitter), sites, normals, surrogate)

    return bound
