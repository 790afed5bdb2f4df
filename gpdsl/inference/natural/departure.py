"""Where sites on minibatches start: at the prior, but for latents that would never leave it.

Nothing pulls away from zero the means of latents that multiply each other. In a regression network, y[p] = w[p] g, a
start at draws from the prior makes g change its sign, and every w[p] has to follow at the same places: it ends at poor
optima. One latent that starts elsewhere can be enough to give slopes to all others; it is looked for, and starts at the
function that its prior varies along most, which has one sign wherever covariances are positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from gpdsl.inference.natural.saddle import FLAT
from gpdsl.inference.natural.tied import Tied
from gpdsl.inference.starts import principal
from gpdsl.program.compilation import jit
from gpdsl.program.groups import Group

Look = Callable[[list[Tied]], tuple[list[Tied], list[Array]]]
"""What some rows add to given sites, faintly, and the scales of the kernels."""

ONE_BY_ONE = 8
"""Latents that are displaced one after the other; if more have to be, the rest is displaced at once."""


def departed(groups: Sequence[Group], prior: list[Tied], look: Look, seed: int) -> tuple[list[Tied], list[Array]]:
    """Sites that are one as far as rows pull the latents, and mean displacements alone elsewhere; and the scales."""
    added, scales = look(prior)
    sites = [replace(_nothing(tied), factor=now.factor) for tied, now in zip(prior, added, strict=True)]
    rng, flat = np.random.default_rng(seed), _flat(added, scales)
    for _ in range(ONE_BY_ONE):
        if not any(each.any() for each in flat):
            return sites, scales
        trials = [_displaced(sites, scales, *at, rng) for at in _first(groups, flat)]
        left = [[a & b for a, b in zip(flat, _flat(*look(trial)), strict=True)] for trial in trials]
        best = int(np.argmin([sum(each.sum() for each in rest) for rest in left]))
        sites, flat = trials[best], left[best]
    for place, each in enumerate(flat):
        for latent in np.flatnonzero(each):
            sites = _displaced(sites, scales, place, int(latent), rng)
    return sites, scales


def _nothing(tied: Tied) -> Tied:
    return replace(tied, linear=jnp.zeros_like(tied.linear), precision=jnp.zeros_like(tied.precision))


def _flat(added: Sequence[Tied], scales: Sequence[Array]) -> list[Bool[np.ndarray, "latents"]]:
    """Which latents of each group get no slope in their means, though there is one in their variances."""
    found = []
    for tied, scale in zip(added, scales, strict=True):
        steepest = np.max(np.abs(tied.linear), axis=1) * np.sqrt(scale)
        curved = np.max(np.abs(np.diagonal(tied.precision, axis1=1, axis2=2)), axis=1) * np.asarray(scale)
        found.append((steepest <= FLAT * curved) & (curved > 0))
    return found


def _first(groups: Sequence[Group], flat: Sequence[Bool[np.ndarray, "latents"]]) -> Iterator[tuple[int, int]]:
    """Group and number of the first flat element of every latent: elements of one latent differ in data alone."""
    for place, (group, each) in enumerate(zip(groups, flat, strict=True)):
        before = 0
        for member in group.members:
            own = np.flatnonzero(each[before : before + member.count])
            if own.size:
                yield place, before + int(own[0])
            before += member.count


def _displaced(sites: list[Tied], scales: list[Array], place: int, latent: int, rng: np.random.Generator) -> list[Tied]:
    """The first of a group's latents along the leading function of its prior, others at a draw from it."""
    tied = sites[place]
    linear = np.array(tied.linear)
    shape = linear.shape[1]
    factor = tied.factor[latent if tied.factor.shape[0] > 1 else 0]
    draw = rng.standard_normal(shape) if linear.any() else np.asarray(jit(principal)(factor[None]))[0]
    linear[latent] = draw / np.sqrt(np.asarray(scales[place])[latent])
    moved = replace(tied, linear=jnp.asarray(linear, tied.linear.dtype))
    return [*sites[:place], moved, *sites[place + 1 :]]
