"""Where sites on minibatches start: at the prior, but for latents that would never leave it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from gpdsl.inference.natural.departure import Chosen, departures, directions, slopeless
from gpdsl.inference.natural.tied import Tied, no_sites
from gpdsl.inference.starts import principal
from gpdsl.program.compilation import jit
from gpdsl.program.groups import Group

Added = tuple[list[Tied], list[Array]]
"""What some rows add to given sites, faintly, and the scales of the kernels."""


def departed(groups: Sequence[Group], prior: list[Tied], add: Callable[[list[Tied]], Added], seed: int) -> Added:
    """Sites that are one as far as rows pull the latents, and mean displacements alone elsewhere; and the scales."""
    added, scales = add(prior)
    nothing = [no_sites(group.size, now.factor) for group, now in zip(groups, added, strict=True)]

    def displaced(chosen: Chosen) -> list[Tied]:
        toward = directions(groups, chosen, [tied.linear.shape[1] for tied in nothing], seed)
        return [_toward(tied, *each, scale) for tied, each, scale in zip(nothing, toward, scales, strict=True)]

    def look(chosen: Chosen) -> list[Bool[np.ndarray, "latents"]]:
        return _flat(*(add(displaced(chosen)) if chosen else (added, scales)))

    return displaced(departures(groups, look)), scales


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
