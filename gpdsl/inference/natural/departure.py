"""Leaving a start from which no step leads anywhere, by as few latents as that takes.

In a Gaussian process regression network, y[p] = w[p] g, E[w g] has the gradient E[g] in the mean of w and E[w] in that
of g: with both priors at zero the symmetric q is a stationary point, and hyperparameters learnt there explain all as
noise. A start at draws from the prior makes g change its sign, and every w[p] has to follow at the same places: it
ends at poor optima. One latent that starts elsewhere can be enough to give slopes to all others; it is looked for, and
starts at the function that its prior varies along most, which has one sign wherever covariances are positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Array, Bool, Float

from gpdsl.program.groups import Group

FLAT = 1e-8
"""Largest slope in the means, relative to that in the variances, of a latent that nothing pulls away from its start."""

ONE_BY_ONE = 8
"""Latents that are displaced one after the other; if more have to be, the rest is displaced at once."""

Latent = tuple[int, int]
"""A latent: the place of its group, and its number there."""

Chosen = tuple[Latent, ...]
"""Latents that are displaced, in the order in which they were found."""

Direction = tuple[Float[np.ndarray, "latents"], Float[np.ndarray, "latents M"]]
"""Where the latents of a group are displaced to: so many times the leading function, and a draw in whitened values."""

Look = Callable[[Chosen], Sequence[Bool[np.ndarray, "latents"]]]
"""Which latents of each group have no slope in their means, though in their variances, when some are displaced."""


def departures(groups: Sequence[Group], look: Look) -> Chosen:
    """The latents to displace."""
    chosen: Chosen = ()
    flat = look(chosen)
    for _ in range(ONE_BY_ONE):
        if not any(each.any() for each in flat):
            return chosen
        trials = [(*chosen, latent) for latent in _first(groups, flat)]
        left = [[a & b for a, b in zip(flat, look(trial), strict=True)] for trial in trials]
        best = int(np.argmin([sum(each.sum() for each in rest) for rest in left]))
        chosen, flat = trials[best], left[best]
    return (*chosen, *((place, int(latent)) for place, each in enumerate(flat) for latent in np.flatnonzero(each)))


def _first(groups: Sequence[Group], flat: Sequence[Bool[np.ndarray, "latents"]]) -> Iterator[Latent]:
    """The first flat element of every latent: elements of one latent differ in data alone."""
    for place, (group, each) in enumerate(zip(groups, flat, strict=True)):
        before = 0
        for member in group.members:
            own = np.flatnonzero(each[before : before + member.count])
            if own.size:
                yield place, before + int(own[0])
            before += member.count


def slopeless(steepest: Array, curved: Array) -> Array:
    """Where the largest slope in the means is nothing beside that in the variances."""
    return (steepest <= FLAT * curved) & (curved > 0)


def directions(groups: Sequence[Group], chosen: Chosen, sizes: Sequence[int], seed: int) -> list[Direction]:
    """Where the latents of each group start.

    The first chosen of a group starts at the leading function, others at a draw from the prior, as do row variables.
    """
    found = [(np.zeros(group.size), np.zeros((group.size, size))) for group, size in zip(groups, sizes, strict=True)]
    for place, latent in chosen:
        leading, draws = found[place]
        if groups[place].per_row or leading.any():
            draws[latent] = np.random.default_rng([seed, place, latent]).standard_normal(draws.shape[1])
        else:
            leading[latent] = 1.0
    return found
