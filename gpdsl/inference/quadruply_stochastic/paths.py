"""Whole functions drawn from a posterior over weights: Phi(x) w for w from q, and what inducing points leave open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from gpdsl.inference.posteriors.pathwise import PriorDraws, random_waves, refuse_unsuited
from gpdsl.inference.quadruply_stochastic.posterior import BLOCK, WeightSpace, augmentation
from gpdsl.inference.quadruply_stochastic.reading import inputs_of, slab, slabs
from gpdsl.kernels.functionals import Values
from gpdsl.kernels.numerics import cholesky
from gpdsl.program.groups import kernel_values
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Weighted:
    """Drawn weights; of inducing points also draws of the prior, and K^-1 of their values there where q is dense."""

    weights: Float[Array, "m draws"]
    prior: PriorDraws | None = None
    duals: Float[Array, "m draws"] | None = None


def weighted(
    held: WeightSpace,
    program: Program,
    parameters: Mapping[str, Array],
    count: int,
    rng: np.random.Generator,
    seed: int,
) -> Weighted:
    """So many draws of q."""
    features, learnt = held.read(program, parameters)
    q, every = held.q, jnp.arange(held.features)
    alone = np.asarray(q.deviation(features.precision(learnt, every), every))
    normals = rng.standard_normal((q.columns, count)), rng.standard_normal((held.features, count))
    weights = np.asarray(q.vectors[0])[:, None] + np.asarray(q.vectors[1:]).T @ normals[0] + alone[:, None] * normals[1]
    if held.basis.kind != "inducing":
        return Weighted(jnp.asarray(weights))
    refuse_unsuited(program)
    (prior,) = random_waves(program, count, rng)
    if q.columns < held.features:
        return Weighted(jnp.asarray(weights), prior)
    assert held.basis.centres is not None
    values = _prior_at(program, parameters, prior, jnp.asarray(held.basis.centres), seed)
    values = values + jnp.sqrt(held.jitter * features.precision(learnt, every))[:, None] * rng.standard_normal(
        values.shape
    )
    factor = cholesky(features.cross_precision(learnt, every, every), held.jitter)
    return Weighted(jnp.asarray(weights), prior, cho_solve((factor, True), values))


def weighted_at(
    held: WeightSpace, program: Program, rows: Rows, parameters: Mapping[str, Array], drawn: Weighted, seed: int
) -> Float[Array, "draws rows 1"]:
    """Drawn functions at rows, around their prior mean; some basis functions at a time."""
    (features, learnt), x = held.read(program, parameters), inputs_of(program, rows)
    size = min(BLOCK, held.features)
    left = drawn.weights if drawn.duals is None else drawn.weights - drawn.duals

    def add(total: Array, number: Array) -> tuple[Array, None]:
        index, live = slab(number, size, held.features)
        return total + (features.consecutive(learnt, x, index) * live) @ left[index], None

    start = jnp.zeros((x.shape[0], left.shape[1]), x.dtype)
    total, _ = jax.lax.scan(add, start, jnp.arange(slabs(held.features, size)))
    if drawn.prior is not None:
        prior = _prior_at(program, parameters, drawn.prior, x, seed)
        if drawn.duals is None:  # the variance of the row's own weight
            own = jax.vmap(lambda point: features.latent.covariance(learnt, point[None])[0, 0])(x)
            prior = prior * jnp.sqrt(augmentation(features, learnt, x, held.stiffness, BLOCK) / own)[:, None]
        total = total + prior
    return total.T[..., None]


def _prior_at(
    program: Program, parameters: Mapping[str, Array], prior: PriorDraws, x: Float[Array, "n d"], seed: int
) -> Float[Array, "n draws"]:
    group = program.groups[0]
    kernel = kernel_values(program.evaluator, group, parameters, x.shape[1])
    return jnp.sqrt(kernel.scale[0]) * prior.at(group, kernel, Values(x), seed)[0]
