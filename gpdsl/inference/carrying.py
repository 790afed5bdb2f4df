"""A fit's posterior in another program's coordinates: as it is where nothing changed, else as a process.

A posterior is carried over as q at the new inducing functionals, under the old kernel and the old inducing functionals,
whitened by the new kernel: the best start there is, for any number of inducing points, dense or not, for other rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import factorise, sparse_features
from gpdsl.inference.warm import Carried, Start
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Coefficients, Functionals, blocks, every_point, outline
from gpdsl.kernels.numerics import cholesky
from gpdsl.program.cache import jit
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.program import Program

ROUNDING = 100.0
"""Times the jitter that a whitened covariance gets: it is a difference of larger matrices."""


def carry(
    start: Start, program: Program, learnt: Mapping[str, Array], inducing: Sequence[Functionals], jitter: float
) -> Carried:
    """The other fit's posterior in this program's coordinates, at its (unconstrained) parameters."""
    found: list[Whitened | None] = []
    for group, functionals in zip(program.groups, inducing, strict=True):
        places = [at for at in map(start.group_of, group.names) if at is not None]
        if len(places) < len(group.names):
            found.append(None)
        elif group.per_row:
            found.append(_row_posterior([(start.posterior[at], own) for at, own in places], len(functionals)))
        elif any(_unlike(start.inducing[at], functionals) for at, _ in places):
            found.append(None)
        else:
            same = _unchanged(start, program, group, places, learnt, functionals, jitter)
            found.append(same or _group_posterior(start, program, group, places, learnt, functionals, jitter))
    return Carried(found, start.weights)


def _unchanged(
    start: Start,
    program: Program,
    group: Group,
    places: Sequence[tuple[int, slice]],
    learnt: Mapping[str, Array],
    functionals: Functionals,
    jitter: float,
) -> Whitened | None:
    """The other fit's posterior of a group as it is, when kernel, inducing functionals and jitter are; else None.

    Seen through covariances it would lose what the rows say most precisely: those are small differences of large ones.
    """
    place, other = places[0][0], start.program.groups[places[0][0]]
    old = start.inducing[place]
    if other.names != group.names or other.form != group.form or jitter != start.jitter:
        return None
    if outline(old) != outline(functionals) or not _close(old, functionals):
        return None
    width = every_point(functionals).shape[-1]
    parameters = {name: jnp.asarray(value) for name, value in start.parameters.items()}
    here = kernel_values(program.evaluator, group, program.parameters.constrain(learnt), width)
    there = kernel_values(start.program.evaluator, other, parameters, width)
    if not _close((there.scale, there.arguments), (here.scale, here.arguments)):
        return None
    q, dtype = start.posterior[place], every_point(functionals).dtype
    return Whitened(jnp.asarray(q.mean, dtype), jnp.asarray(triangular(np.asarray(q.root)), dtype))


def _unlike(one: Functionals, other: Functionals) -> bool:
    """Whether both have features that are not points, of which no covariances are known."""
    parts = [[part for block in blocks(each) for _, part in block] for each in (one, other)]
    a, b = ([part for part in each if isinstance(part, Coefficients)] for each in parts)
    known = [outline(each) for each in a] == [outline(each) for each in b] and _close(a, b)
    return bool(a and b) and not known


def _close(one: Any, other: Any) -> bool:
    """Whether two trees of arrays differ by no more than rounding."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True)]
    return all(a.shape == b.shape and np.allclose(a, b, 8 * np.finfo(b.dtype).eps, 0.0) for a, b in pairs)


def triangular(root: Float[np.ndarray, "... M columns"]) -> Float[np.ndarray, "... M M"]:
    """The lower triangular root of root root', with a positive diagonal."""
    lower = np.swapaxes(np.linalg.qr(np.swapaxes(root, -1, -2), mode="r"), -1, -2)
    signs = np.sign(np.diagonal(lower, axis1=-2, axis2=-1))
    return lower * np.where(signs == 0, 1.0, signs)[..., None, :]


def _row_posterior(parts: Sequence[tuple[Whitened, slice]], rows: int) -> Whitened | None:
    """Row variables belong to their rows: carried when there are as many."""
    if any(q.mean.shape[-1] != rows for q, _ in parts):
        return None
    sds = [np.sqrt(np.sum(np.asarray(q.root)[:, own] ** 2, axis=-1, keepdims=True)) for q, own in parts]
    return Whitened(
        np.concatenate([np.asarray(q.mean)[:, own] for q, own in parts], axis=1), np.concatenate(sds, axis=1)
    )


def _group_posterior(
    start: Start,
    program: Program,
    group: Group,
    places: Sequence[tuple[int, slice]],
    learnt: Mapping[str, Array],
    functionals: Functionals,
    jitter: float,
) -> Whitened:
    dtype = every_point(functionals).dtype
    numbers = jax.tree.map(
        lambda a: jnp.asarray(a, dtype), (dict(start.parameters), list(start.inducing), list(start.posterior))
    )

    def bring(numbers: Any, learnt: Any, functionals: Any) -> Whitened:
        parameters, inducing, posterior = numbers
        pieces = [
            _seen_at(start, start.program.groups[at], own, parameters, inducing[at], posterior[at], functionals)
            for at, own in places
        ]
        mean, covariance = (jnp.concatenate(each, axis=1) for each in zip(*pieces, strict=True))
        width = every_point(functionals).shape[-1]
        kernel = kernel_values(program.evaluator, group, program.parameters.constrain(learnt), width)
        factor = factorise(group, kernel, functionals, jitter)
        factor = jnp.broadcast_to(factor, (group.size, *factor.shape[1:]))
        scale = kernel.scale[:, None, None]
        whiten = jax.vmap(jax.vmap(lambda f, right: solve_triangular(f, right, lower=True)), in_axes=(None, 0))
        half = whiten(factor, covariance / scale)
        white = whiten(factor, jnp.swapaxes(half, -1, -2))
        moved = whiten(factor, (mean / jnp.sqrt(kernel.scale)[:, None])[..., None])[..., 0]
        return Whitened(moved, cholesky(0.5 * (white + jnp.swapaxes(white, -1, -2)), ROUNDING * jitter))

    return jit(bring)(numbers, dict(learnt), functionals)


def _seen_at(
    start: Start,
    group: Group,
    own: slice,
    parameters: Mapping[str, Array],
    inducing: Functionals,
    q: Whitened,
    functionals: Functionals,
) -> tuple[Float[Array, "K latents M"], Float[Array, "K latents M M"]]:
    """Means (without the prior's) and covariances of some of a group's latents at functionals, SAVIGP eqs. 22, 23."""
    kernel = kernel_values(start.program.evaluator, group, parameters, every_point(functionals).shape[-1])
    factor = factorise(group, kernel, inducing, start.jitter)
    phi = sparse_features(group, kernel, inducing, functionals, factor).phi
    other = functionals if group.apart else None
    prior = jnp.stack(
        [
            covariance(group.form, tuple(a[g] for a in kernel.arguments), functionals, other)
            for g in range(group.factors)
        ]
    )
    open_part = prior - phi @ jnp.swapaxes(phi, -1, -2)
    phi, open_part = (jnp.broadcast_to(a, (group.size, *a.shape[1:]))[own] for a in (phi, open_part))
    scale = kernel.scale[own]
    mean = jnp.einsum("jnm,kjm->kjn", phi, jnp.asarray(q.mean)[:, own]) * jnp.sqrt(scale)[:, None]
    spread = jnp.einsum("jnm,kjmr->kjnr", phi, jnp.asarray(q.root)[:, own])
    return mean, scale[:, None, None] * (spread @ jnp.swapaxes(spread, -1, -2) + open_part)
