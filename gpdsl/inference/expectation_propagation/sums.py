"""The sum of all sites as a function of the inducing values: moments of rows under it, and what keeps it up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gpdsl.inference.blocks import Block, over_blocks
from gpdsl.inference.bound import GroupView, assemble
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.natural.sweep import covariances_at
from gpdsl.inference.natural.tied import Posterior, Tied, no_sites
from gpdsl.inference.posteriors.features import Covariances, Features
from gpdsl.inference.posteriors.free_posterior import by_latent
from gpdsl.inference.problem import Problem
from gpdsl.kernels.numerics import inverse_lower
from gpdsl.program.groups import KernelValues
from gpdsl.program.joint import Marginals
from gpdsl.program.rows import Rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """What is learnt, the optimiser's memory, every row's `Sites` (relative to the prior mean), and their sums.

    `anchors` are the inducing inputs that the sums belong to, where these are learnt.
    """

    point: Any
    memory: Any
    sites: Any
    tied: list[Tied]
    anchors: Any


@dataclass(frozen=True)
class Group:
    """One group at some rows and hyperparameters: L, phi = L^-1 Kuf, what is left open, the kernels' scales."""

    factor: Float[Array, "g M M"]
    inverse: Float[Array, "g M M"]
    phi: Float[Array, "g M rows"]
    residual: Float[Array, "g rows"]
    scale: Float[Array, "latents"]


def groups_at(problem: Problem, point: Any, held: Any, rows: Rows) -> list[Group]:
    """Every group at some rows."""
    return [group_of(known, scale) for known, scale in covariances_at(problem, point, held, rows)]


def group_of(known: Covariances, scale: Array) -> Group:
    factor = jnp.linalg.cholesky(known.inducing)
    inverse = inverse_lower(factor)
    phi = inverse @ known.cross
    return Group(factor, inverse, phi, jnp.maximum(known.prior - jnp.sum(phi**2, axis=1), 0.0), scale)


def each_latent(shared: Float[Array, "g ..."], latents: int) -> Float[Array, "latents ..."]:
    """One for each latent of what latents with one kernel share."""
    return jnp.broadcast_to(shared, (latents, *shared.shape[1:]))


Moments = list[tuple[Array, Array]]


def marginals_of(
    problem: Problem, parameters: Mapping[str, Array], rows: Rows, scales: Sequence[Array], moments: Moments
) -> Marginals:
    """Marginals of all columns, from each group's moments at unit scale [latents, rows]."""
    seen = [
        GroupView(group, KernelValues(scale, ()), Features(mean, mean, mean))
        for group, scale, (mean, _) in zip(problem.program.groups, scales, moments, strict=True)
    ]
    return assemble(
        problem.program, parameters, rows, seen, [(mean[None], variance[None]) for mean, variance in moments]
    )


def block_size(problem: Problem) -> int:
    """Rows at a time in a pass over all of them: those of a visit, so that sampled moments have their points."""
    return min(problem.choice.batch, problem.count)


def moments_at(
    problem: Problem, parameters: Mapping[str, Array], rows: Rows, here: list[Group], posteriors: list[Posterior]
) -> tuple[Marginals, Float[Array, "rows latents"]]:
    """Marginals of the rows, and what the inducing values leave open in them."""
    scales, moments, left = [g.scale for g in here], [], []
    for g, q in zip(here, posteriors, strict=True):
        phi = each_latent(g.phi, q.mean.shape[0])
        residual = each_latent(g.residual, q.mean.shape[0])
        mean = jnp.einsum("jm,jmn->jn", q.mean, phi)
        moments.append((mean, jnp.sum(phi * (q.covariance @ phi), axis=1) + residual))
        left.append((jnp.zeros_like(mean), residual))
    marginals = marginals_of(problem, parameters, rows, scales, moments)
    return marginals, marginals_of(problem, parameters, rows, scales, left).variance[0]


def summed(problem: Problem, tied: list[Tied], here: list[Group], new: Sites, old: Sites) -> list[Tied]:
    """The sums with some rows' sites replaced."""
    linear, precision = new.linear - old.linear, new.precision - old.precision
    found = []
    for group, t, g in zip(problem.program.groups, tied, here, strict=True):
        columns, phi = slice(group.start, group.stop), each_latent(g.phi, group.size)
        moment = jnp.einsum("jn,jmn->jm", by_latent(group, linear[:, columns]), phi)
        gram = (phi * by_latent(group, precision[:, columns])[:, None, :]) @ jnp.swapaxes(phi, 1, 2)
        found.append(Tied(t.linear + moment, t.precision + 0.5 * (gram + jnp.swapaxes(gram, 1, 2)), t.factor))
    return found


def added_up(problem: Problem, state: State, rows: Rows, held: Any) -> list[Tied]:
    """The sums of all sites made anew, block by block."""
    first = groups_at(problem, state.point, held, jax.tree.map(lambda a: a[:1], rows))
    nothing = [no_sites(group.size, g.factor) for group, g in zip(problem.program.groups, first, strict=True)]

    def one(block: Block, _: None) -> tuple[list[Tied], None]:
        sites = jax.tree.map(lambda a: a * block.weight[:, None], block.beside)
        here = groups_at(problem, state.point, held, block.rows)
        found = summed(problem, nothing, here, sites, jax.tree.map(jnp.zeros_like, sites))
        return [replace(t, factor=jnp.zeros(())) for t in found], None

    total, _ = over_blocks(rows, block_size(problem), one, state.sites)
    return [replace(t, factor=n.factor) for t, n in zip(total, nothing, strict=True)]
