"""Means and variances of outputs observed through a transform, over the latents as well: mixtures over their nodes."""

from __future__ import annotations

import numpy as np
import sympy as sp

from gpdsl.results.existence import NEGLIGIBLE
from gpdsl.results.nodes import smooth_nodes
from gpdsl.results.predictive import Predictive
from gpdsl.results.warp_moments import Moments, law_moments
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.terms import Warp

AT_ONCE, SLIGHT = 8192, 1e-6
"""For how many laws moments are computed together, and how far beyond an order they are said to exist."""

UNSEEN, DOMINANT = 1e-22, 1e-4
"""Weights that no moment may come from, and the part of it that must not."""

Array = np.ndarray


def warp_moments(base: Predictive, warp: Warp, *, increasing: bool) -> tuple[Array, Array]:
    """Mean and variance [rows, *keys] of outputs whose transform `base` describes, over the latents as well.

    Both are NaN where there is no mean; the variance is infinite where there is none but a mean.
    """
    law, given, shares = _at_nodes(base, warp)
    count, found = len(shares), []
    total = base.beliefs.count * int(np.prod(base.sizes))
    size = max(1, AT_ONCE // count)
    for start in range(0, total, size):
        part = slice(start, start + size)
        rows = min(size, total - start)
        one = law.map(lambda leaf: leaf[:, part].reshape(-1))  # noqa: B023
        with np.errstate(all="ignore"):
            under = law_moments(warp, one, {s: v[:, part].reshape(-1) for s, v in given.items()}, increasing=increasing)
            each = Moments(*(a.reshape(count, rows) for a in (under.mean, under.variance, under.order)))
            found.append(_over_latents(each, shares[:, None]))
    mean, variance = (
        np.concatenate(each).reshape(base.beliefs.count, *base.sizes) for each in zip(*found, strict=True)
    )
    return mean, variance


def _over_latents(each: Moments, shares: Array) -> tuple[Array, Array]:
    """Mean and variance [n] of the mixture over nodes [nodes, n]; what has no chance to be seen does not count."""
    none, wide = each.order <= 1 + SLIGHT, each.order <= 2 + SLIGHT
    first, second = np.where(none, 0.0, each.mean), np.where(wide, 0.0, each.variance)
    mean = np.sum(shares * first, axis=0)
    spread = shares * (second + np.where(none, 0.0, (first - mean) ** 2))
    lost = np.sum(shares * none, axis=0) > NEGLIGIBLE
    lost |= _from_nowhere(shares * np.abs(first), shares)
    infinite = (np.sum(shares * wide, axis=0) > NEGLIGIBLE) | _from_nowhere(spread, shares)
    variance = np.where(infinite, np.inf, np.sum(spread, axis=0))
    return np.where(lost, np.nan, mean), np.where(lost, np.nan, variance)


def _from_nowhere(parts: Array, shares: Array) -> Array:
    """Whether a sum is made by nodes so far out that it grows with them."""
    unseen = np.where(shares < UNSEEN, parts, 0.0).sum(axis=0)
    return ~np.isfinite(parts).all(axis=0) | (unseen > DOMINANT * parts.sum(axis=0))


def _at_nodes(base: Predictive, warp: Warp) -> tuple[Law, dict[sp.Symbol, Array], Array]:
    """The law of the transform and what the transform reads, at nodes of the latents [nodes, rows * keys]."""
    beliefs, own = base.beliefs, (warp.value.free_symbols | warp.slope.free_symbols) - {warp.symbol}
    read = {f"read {place}": symbol for place, symbol in enumerate(sorted(own, key=lambda each: each.name))}
    exact = base.normal()
    leaves = {} if exact is not None else base.leaves()
    values, nodes = smooth_nodes(beliefs, {**leaves, **read}, base.keys)
    shares = (nodes[:, None] * beliefs.weights[None, :]).reshape(-1)
    shape = (len(nodes), len(beliefs.weights), beliefs.count, *base.sizes)

    def flat(value: Array) -> Array:
        return np.broadcast_to(np.asarray(value, float), shape).reshape(len(shares), -1)

    given = {symbol: flat(np.asarray(values[name])) for name, symbol in read.items()}
    if exact is not None:
        return Law("Normal", {"mean": flat(exact[0]), "sd": flat(np.sqrt(exact[1]))}), given, shares
    return base.law.filled(flat(np.asarray(values[name])) for name in leaves), given, shares
