"""The evidence lower bound: ELBO = L_ent + L_cross + L_ell, SAVIGP eqs. 9 to 20."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.expected_log_likelihood import Marginals, expected_log_likelihood
from gpdsl.inference.features import Features, dense_features, factorise, sparse_features, values_at
from gpdsl.inference.posterior import Family
from gpdsl.program.groups import Group, KernelValues, kernel_values, prior_means, stack_inputs
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

State = Mapping[str, Any]
"""What is optimised: `parameters` (unconstrained), `posterior` ({groups, logits}) and `inducing` (inputs per group)."""


@dataclass(frozen=True)
class Layout:
    """Static choices of a fit: the family, and whether the rows are the inducing points (dense)."""

    family: Family
    dense: bool


@dataclass(frozen=True)
class GroupView:
    """One group at the current parameters: its numbers and the features of the rows."""

    group: Group
    kernel: KernelValues
    features: Features


def views(
    program: Program,
    parameters: Mapping[str, Array],
    inducing: Sequence[Float[Array, "M D"]],
    rows: Rows,
    dense: bool,
    jitter: Array | float,
) -> list[GroupView]:
    """Kernel numbers, factors and features of every group. `parameters` are constrained."""
    found = []
    for group, points in zip(program.groups, inducing, strict=True):
        kernel = kernel_values(program.evaluator, group, parameters, points.shape[-1])
        functionals = values_at(points)
        factor = factorise(group, kernel, functionals, jitter)
        if dense:
            features = dense_features(factor)
        else:
            features = sparse_features(group, kernel, functionals, values_at(stack_inputs(group.inputs, rows)), factor)
        found.append(GroupView(group, kernel, features))
    return found


def assemble(
    program: Program,
    parameters: Mapping[str, Array],
    rows: Rows,
    seen: Sequence[GroupView],
    moments: Sequence[tuple[Float[Array, "K latents rows"], Float[Array, "K latents rows"]]],
) -> Marginals:
    """Marginals of all latents, from each group's moments at unit scale: SAVIGP eqs. 21 to 23."""
    count = moments[0][0].shape[-1]
    means = [jnp.sqrt(v.kernel.scale)[:, None] * mean for v, (mean, _) in zip(seen, moments, strict=True)]
    variances = [v.kernel.scale[:, None] * variance for v, (_, variance) in zip(seen, moments, strict=True)]
    prior = prior_means(program.evaluator, program.groups, parameters, rows, count)
    stack = lambda parts: jnp.swapaxes(jnp.concatenate(parts, axis=1), 1, 2)  # noqa: E731
    return Marginals(prior + stack(means), stack(variances))


def marginals(
    program: Program, layout: Layout, state: State, rows: Rows, jitter: Array | float
) -> tuple[Marginals, list[GroupView]]:
    """Marginals of q at the rows, and the groups' views they came from."""
    parameters = program.parameters.constrain(state["parameters"])
    seen = views(program, parameters, state["inducing"], rows, layout.dense, jitter)
    moments = [layout.family.moments(q, v.features) for q, v in zip(state["posterior"]["groups"], seen, strict=True)]
    return assemble(program, parameters, rows, seen, moments), seen


def weights(state: State) -> Float[Array, "K"]:
    """Mixture weights pi."""
    logits = state["posterior"]["logits"]
    return jnp.exp(logits - jnp.log(jnp.sum(jnp.exp(logits - jnp.max(logits)))) - jnp.max(logits))


def divergence(layout: Layout, state: State, seen: Sequence[GroupView]) -> Float[Array, ""]:
    """-(L_ent + L_cross): the exact KL for one component, an upper bound on it (Jensen, eq. 18) for several."""
    family, pi = layout.family, weights(state)
    pairs = list(zip(state["posterior"]["groups"], seen, strict=True))
    cross = sum(family.cross(q, v.features) for q, v in pairs)
    if family.components == 1:
        entropy = sum(family.entropy(q) for q, _ in pairs)
        return -jnp.sum(entropy + cross)
    overlap = sum(family.overlap(q, v.features) for q, v in pairs) + jnp.log(pi)
    largest = jnp.max(overlap, axis=1, keepdims=True)
    log_sums = jnp.log(jnp.sum(jnp.exp(overlap - largest), axis=1)) + largest[:, 0]
    return jnp.sum(pi * (log_sums - cross))


def elbo(
    program: Program,
    layout: Layout,
    state: State,
    rows: Rows,
    total_rows: Array | float,
    normals: Array | None,
    externals: Mapping[str, Array] | None,
    jitter: Array | float,
) -> Float[Array, ""]:
    """The bound, from all rows or a minibatch: the expected log likelihood is scaled to `total_rows`."""
    q, seen = marginals(program, layout, state, rows, jitter)
    parameters = program.parameters.constrain(state["parameters"])
    per_row = expected_log_likelihood(program, parameters, rows, q, normals, externals)
    expected = jnp.sum(weights(state)[:, None] * per_row) * (total_rows / per_row.shape[1])
    return expected - divergence(layout, state, seen) + program.log_prior(parameters)
