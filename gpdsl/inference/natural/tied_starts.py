"""Where sites on minibatches start: at what is known, or at the prior, but for latents that would never leave it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from gpdsl.inference.natural.departure import Chosen, departures, directions, slopeless
from gpdsl.inference.natural.tied import Tied, no_sites
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.starts import principal
from gpdsl.inference.warm import Carried
from gpdsl.program.compilation import jit
from gpdsl.program.groups import Group

Added = tuple[list[Tied], list[Array]]
"""What some rows add to given sites, faintly, and the scales of the kernels."""


def departed(
    groups: Sequence[Group],
    prior: list[Tied],
    add: Callable[[list[Tied]], Added],
    seed: int,
    begun: Carried | None = None,
) -> Added:
    """Sites that are one as far as rows pull the latents, and mean displacements alone elsewhere; and the scales.

    Groups whose posterior is known have the sites that it takes.
    """
    added, scales = add(prior)
    known = [None] * len(groups) if begun is None else begun.heaviest
    if all(q is not None for q in known):
        return _known(known, added, scales), scales
    nothing = [no_sites(group.size, now.factor) for group, now in zip(groups, added, strict=True)]

    def displaced(chosen: Chosen) -> list[Tied]:
        toward = directions(groups, chosen, [tied.linear.shape[1] for tied in nothing], seed)
        return [_toward(tied, *each, scale) for tied, each, scale in zip(nothing, toward, scales, strict=True)]

    def look(chosen: Chosen) -> list[Bool[np.ndarray, "latents"]]:
        return _flat(*(add(displaced(chosen)) if chosen else (added, scales)))

    return _known(known, displaced(departures(groups, look)), scales), scales


def _known(known: Sequence[Whitened | None], others: list[Tied], scales: list[Array]) -> list[Tied]:
    """The sites of what is known, and the others."""
    found = zip(known, others, scales, strict=True)
    return [tied if q is None else _sites_of(q, tied.factor, scale) for q, tied, scale in found]


def _sites_of(q: Whitened, factor: Array, scale: Array) -> Tied:
    """The t(u) whose posterior q is, in the coordinates of `factor`: G = (S^-1 - I) / s, h = S^-1 m / sqrt(s)."""
    root, scales = np.asarray(q.root[0], float), np.asarray(scale, float)[:, None]
    inverse = np.linalg.inv(root)
    precision = np.swapaxes(inverse, -1, -2) @ inverse
    linear = np.einsum("jab,jb->ja", precision, np.asarray(q.mean[0], float)) / np.sqrt(scales)
    told = (precision - np.eye(root.shape[-1])) / scales[..., None]
    return Tied(jnp.asarray(linear, factor.dtype), jnp.asarray(told, factor.dtype), factor)


def _toward(tied: Tied, leading: np.ndarray, draws: np.ndarray, scale: Array) -> Tied:
    """Sites that displace some latents, if any."""
    if not (leading.any() or draws.any()):
        return tied
    whitened = leading[:, None] * np.asarray(jit(principal)(tied.factor)) + draws
    return replace(tied, linear=jnp.asarray(whitened / np.sqrt(np.asarray(scale))[:, None], tied.linear.dtype))


def _flat(added: Sequence[Tied], scales: Sequence[Array]) -> list[Bool[np.ndarray, "latents"]]:
    """Which latents of each group get no slope in their means, though there is one in their variances."""
    found = []
    for tied, scale in zip(added, scales, strict=True):
        steepest = np.max(np.abs(tied.linear), axis=1) * np.sqrt(scale)
        curved = np.max(np.abs(np.diagonal(tied.precision, axis1=1, axis2=2)), axis=1) * np.asarray(scale)
        found.append(np.asarray(slopeless(steepest, curved)))
    return found
