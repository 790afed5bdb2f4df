"""Which row of the drawing each node stands in: parameters above or below the data, causes above their effects.

The rows of the data form one band, so that their plate is a rectangle: what does not vary between rows of data stands
above it, or below when it matters only at the bottom (the noise of an observation).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from gpdsl.symbolic.graph.network import ROWS, Network

Layers = dict[str, int]
Arrow = tuple[str, str]


def layers_of(network: Network) -> Layers:
    """The row of every node, from 0 at the top."""
    arrows = _without_cycles(network)
    inside = {key for key, node in network.nodes.items() if ROWS in node.plates}
    band = _lowered(inside, [a for a in arrows if a[0] in inside and a[1] in inside])
    depth = max(band.values(), default=-1)
    outside = [key for key in network.nodes if key not in inside]
    chain = _lowered(set(outside), [a for a in arrows if a[0] not in inside and a[1] not in inside])
    bottom = _below(outside, arrows, band, depth)
    above = {key: layer for key, layer in chain.items() if key not in bottom}
    height = max(above.values(), default=-1) + 1
    # Without a chain of their own, parameters stand right above the band.
    layers = {key: layer + height for key, layer in band.items()}
    layers |= _at_the_end(above, arrows, height)
    return layers | dict.fromkeys(bottom, height + depth + 1)


def _linked(arrows: Iterable[Arrow]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The causes and the effects of every node that has any."""
    causes: dict[str, list[str]] = {}
    effects: dict[str, list[str]] = {}
    for a, b in arrows:
        causes.setdefault(b, []).append(a)
        effects.setdefault(a, []).append(b)
    return causes, effects


def _below(outside: Iterable[str], arrows: list[Arrow], band: Layers, depth: int) -> set[str]:
    """Those that matter only to the lower half of the band, and to nothing else outside of it."""
    causes, effects = _linked(arrows)
    return {
        key
        for key in outside
        if key in effects and key not in causes and all(b in band and 2 * band[b] > depth for b in effects[key])
    }


def _at_the_end(above: Layers, arrows: list[Arrow], height: int) -> Layers:
    """Move what stands above the band down to it, unless something else above depends on it."""
    effects = _linked(arrows)[1]
    placed: Layers = {}
    for key in sorted(above, key=lambda each: -above[each]):
        below = [placed[b] for b in effects.get(key, ()) if b in placed]
        placed[key] = min(below, default=height) - 1
    return placed


def _lowered(keys: set[str], arrows: list[Arrow]) -> Layers:
    """Longest path from a source; sources then go down to just above their first effect."""
    causes, effects = _linked(arrows)
    layers: Layers = {}
    for key in _peeled(keys, effects, causes):
        layers[key] = max((layers[a] + 1 for a in causes.get(key, ())), default=0)
    return layers | {
        key: min(layers[b] for b in effects[key]) - 1 for key in layers if key in effects and key not in causes
    }


def _peeled(
    keys: Iterable[str], effects: Mapping[str, Sequence[str]], causes: Mapping[str, Sequence[str]]
) -> list[str]:
    """Nodes after all of their causes, but for those on a cycle and behind one."""
    left = {key: len(causes.get(key, ())) for key in keys}
    order = [key for key in left if not left[key]]
    for key in order:  # which grows
        for effect in effects.get(key, ()):
            left[effect] -= 1
            if not left[effect]:
                order.append(effect)
    return order


def _without_cycles(network: Network) -> list[Arrow]:
    """The arrows less those that close a cycle (outputs whose elements depend on each other's)."""
    causes, effects = _linked(network.arrows)
    free = {*_peeled(network.nodes, effects, causes), *_peeled(network.nodes, causes, effects)}
    closing: set[Arrow] = set()
    after: dict[str, set[str]] = {key: {key} for key in network.nodes if key not in free}
    for a, b in network.arrows:
        if a in free or b in free:
            continue
        if a in after[b]:
            closing.add((a, b))
            continue
        for key, found in after.items():
            if a in found:
                after[key] = found | after[b]
    return [arrow for arrow in network.arrows if arrow not in closing]


# --- strips ----------------------------------------------------------------------------------------------------------


Strip = frozenset[str]
_MOST = 7
"""Strips whose every order is tried; more are put in order one after another."""


def strip_of(network: Network) -> dict[str, Strip]:
    """The strip of every node: its plates other than that of the rows."""
    return {key: node.plates - {ROWS} for key, node in network.nodes.items()}


def ordered_strips(network: Network) -> list[Strip]:
    """All strips from left to right: plates in as few runs as possible, then arrows short."""
    strips = list(dict.fromkeys(strip_of(network).values()))
    of = strip_of(network)
    pulls: dict[tuple[Strip, Strip], int] = {}
    for a, b in network.arrows:
        pulls[of[a], of[b]] = pulls.get((of[a], of[b]), 0) + 1
    if len(strips) <= _MOST:
        return min(map(list, itertools.permutations(strips)), key=lambda tried: _cost(tried, pulls))
    order: list[Strip] = []
    for strip in sorted(strips, key=len, reverse=True):
        places = ([*order[:k], strip, *order[k:]] for k in range(len(order) + 1))
        order = min(places, key=lambda tried: _cost(tried, pulls))
    return order


def _cost(order: Sequence[Strip], pulls: Mapping[tuple[Strip, Strip], int]) -> tuple[int, int]:
    position = {strip: k for k, strip in enumerate(order)}
    runs = sum(len(plate_runs(order, key)) for key in frozenset().union(*order))
    pairs = ((count, a, b) for (a, b), count in pulls.items() if a in position and b in position)
    return runs, sum(count * abs(position[a] - position[b]) for count, a, b in pairs)


def plate_runs(order: Sequence[Strip], key: str) -> list[tuple[int, int]]:
    """The runs of neighbouring strips that lie in a plate: first and last position of each."""
    inside = [k for k, strip in enumerate(order) if key in strip]
    starts = [k for k in inside if k - 1 not in inside]
    ends = [k for k in inside if k + 1 not in inside]
    return list(zip(starts, ends, strict=True))
