"""Inducing points that explain the prior: greedy conditional variance, which is pivoted Cholesky.

Each point is the row whose value is known least given those at the points before it, under the kernel at the starting
parameters. Burt, Rasmussen and van der Wilk (2020), Convergence of sparse variational inference, section 4.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.posteriors.features import factorise, sparse_features
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.functionals import Values
from gpdsl.kernels.numerics import jitter_for
from gpdsl.program.compilation import jit
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.program import Program


def greedy_points(
    program: Program, group: Group, points: Float[np.ndarray, "n D"], count: int, dtype: str
) -> Float[np.ndarray, "at_most_count D"]:
    """At most `count` of the points: fewer when these determine all others.

    Latents with different kernels share the points; their mean covariance is what the points explain.
    """
    learnt = {name: jnp.asarray(value, dtype) for name, value in program.parameters.unconstrained().items()}
    compiled = jit(lambda learnt, points: _pivots(program, group, learnt, points, count))
    chosen, left = (np.asarray(a) for a in compiled(learnt, jnp.asarray(points, dtype)))
    return points[chosen[left > jitter_for(jnp.dtype(dtype))]]


def _pivots(
    program: Program, group: Group, learnt: dict[str, Array], points: Float[Array, "n D"], count: int
) -> tuple[Float[Array, "count"], Float[Array, "count"]]:
    """Row numbers in the order they are chosen, and the share of the prior variance each had left when it was."""
    kernel = kernel_values(program.evaluator, group, program.parameters.constrain(learnt), points.shape[-1])
    kernels = [tuple(a[g] for a in kernel.arguments) for g in range(group.factors)]

    def covariances(point: Array) -> Array:
        rows = [covariance(group.form, each, Values(point[None]), Values(points))[0] for each in kernels]
        return jnp.mean(jnp.stack(rows), axis=0)

    prior = jnp.mean(jnp.stack([variance(group.form, each, Values(points)) for each in kernels]), axis=0)

    def step(number: Array, carry: Any) -> Any:
        factor, residual, chosen, left = carry
        pivot = jnp.argmax(residual)
        rest = covariances(points[pivot]) - factor[:, pivot] @ factor
        column = rest / jnp.sqrt(jnp.maximum(residual[pivot], jnp.finfo(rest.dtype).tiny))
        column = jnp.where(residual[pivot] > 0, column, 0.0)
        after = jnp.maximum(residual - column**2, 0.0).at[pivot].set(0.0)
        return (
            factor.at[number].set(column),
            after,
            chosen.at[number].set(pivot),
            left.at[number].set(residual[pivot] / jnp.mean(prior)),
        )

    count = min(count, points.shape[0])
    start = (jnp.zeros((count, points.shape[0]), prior.dtype), prior, jnp.zeros(count, int), jnp.zeros(count))
    _, _, chosen, left = jax.lax.fori_loop(0, count, step, start)
    return chosen, left


def unexplained(
    program: Program,
    group: Group,
    points: Float[np.ndarray, "n D"],
    inducing: Float[np.ndarray, "M D"],
    dtype: str,
) -> float:
    """Mean prior variance at the points that values at the inducing points leave open, under the start kernel."""
    learnt = {name: jnp.asarray(value, dtype) for name, value in program.parameters.unconstrained().items()}
    jitter = jitter_for(jnp.dtype(dtype))

    def left(learnt: dict[str, Array], points: Array, inducing: Array) -> Array:
        kernel = kernel_values(program.evaluator, group, program.parameters.constrain(learnt), points.shape[-1])
        factor = factorise(group, kernel, Values(inducing), jitter)
        features = sparse_features(group, kernel, Values(inducing), Values(points), factor)
        return jnp.mean(features.residual)

    return float(jit(left)(learnt, *(jnp.asarray(each, dtype) for each in (points, inducing))))
