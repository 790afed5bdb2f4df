"""A dense posterior of the latents themselves, held while the prior moves: SAVIGP section 6.1 in whitened coordinates.

Whitened values are good coordinates for a search, but they move the latents with the prior. `carried` gives the
whitened parameters of the same q(f) under other hyperparameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.bound import GroupView, Layout, views
from gpdsl.inference.posteriors.family import Diagonal, Family, Full, Linear, Parameters
from gpdsl.inference.posteriors.features import Features
from gpdsl.kernels.numerics import solve_lower
from gpdsl.program.evaluation import prior_means
from gpdsl.program.groups import Group
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows


def is_free(family: Family) -> bool:
    """Whether a dense posterior of this family has parameters of its own, whatever the prior: all but `linear`."""
    return isinstance(family, (Full, Diagonal)) and not isinstance(family, Linear)


def carried(
    program: Program, layout: Layout, state: Mapping[str, Any], changed: Mapping[str, Array], rows: Rows, jitter: Any
) -> dict[str, Any]:
    """The state with some (unconstrained) parameters changed and q of the latents at the rows as it was."""
    moved = {**state["parameters"], **changed}
    count = next(iter(rows.observed.values())).shape[0]
    ends = []
    for learnt in (state["parameters"], moved):
        parameters = program.parameters.constrain(learnt)
        seen = views(program, parameters, state["inducing"], rows, layout.dense, jitter)
        ends.append((seen, prior_means(program.evaluator, program.groups, parameters, rows, count)))
    (old, before), (new, after) = ends
    groups = []
    for q, was, now in zip(state["posterior"]["groups"], old, new, strict=True):
        if was.group.per_row:
            groups.append(q)
            continue
        columns = slice(was.group.start, was.group.stop)
        shift = by_latent(was.group, (before - after)[:, columns])
        groups.append(_rewhitened(layout.family_of(was.group), q, was, now, shift))
    return {"parameters": moved, "posterior": {**state["posterior"], "groups": groups}}


def by_latent(group: Group, values: Float[Array, "rows columns"]) -> Float[Array, "latents values"]:
    """One row per latent: the rows of one reading after the other."""
    apart = values.T.reshape(len(group.readings.all), group.size, -1)
    return jnp.swapaxes(apart, 0, 1).reshape(group.size, -1)


def _rewhitened(
    family: Family, q: Parameters, was: GroupView, now: GroupView, shift: Float[Array, "latents M"]
) -> Parameters:
    """f = mean + sqrt(s) L w under both priors: w' = sqrt(s / s') L'^-1 L w + L'^-1 (mean - mean') / sqrt(s')."""
    ratio = jnp.sqrt(was.kernel.scale / now.kernel.scale)
    assert isinstance(was.features, Features) and isinstance(now.features, Features)
    change = solve_lower(now.features.factor, was.features.factor)  # [g, M, M], lower triangular
    per_latent = jnp.broadcast_to(change, (shift.shape[0], *change.shape[1:])) * ratio[:, None, None]
    factor = jnp.broadcast_to(now.features.factor, per_latent.shape)
    moved = solve_lower(factor, (shift / jnp.sqrt(now.kernel.scale)[:, None])[..., None])[..., 0]
    mean = jnp.einsum("jnm,kjm->kjn", per_latent, q["mean"]) + moved
    if isinstance(family, Diagonal):
        return {"mean": mean, "log_sd": q["log_sd"] + jnp.log(ratio)[:, None]}
    root = jnp.einsum("jnm,kjml->kjnl", per_latent, family.prepare(q, was.features)["root"])
    diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
    logs = jnp.log(diagonal)[..., None] * jnp.eye(root.shape[-1], dtype=root.dtype)
    return {"mean": mean, "root": jnp.tril(root, -1) + logs}
