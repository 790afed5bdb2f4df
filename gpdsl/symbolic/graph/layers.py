"""Which row of the drawing each node stands in: parameters above or below the data, causes above their effects.

The rows of the data form one band, so that their plate is a rectangle: what does not vary between rows of data stands
above it, or below when it matters only at the bottom (the noise of an observation).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpdsl.symbolic.graph.network import ROWS, Network

Layers = dict[str, int]


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


def _below(outside: Iterable[str], arrows: list[tuple[str, str]], band: Layers, depth: int) -> set[str]:
    """Those that matter only to the lower half of the band, and to nothing else outside of it."""
    chosen = set()
    for key in outside:
        effects = [b for a, b in arrows if a == key]
        causes = [a for a, b in arrows if b == key]
        low = all(b in band and 2 * band[b] > depth for b in effects)
        if effects and low and not causes:
            chosen.add(key)
    return chosen


def _at_the_end(above: Layers, arrows: list[tuple[str, str]], height: int) -> Layers:
    """Move what stands above the band down to it, unless something else above depends on it."""
    placed: Layers = {}
    for key in sorted(above, key=lambda each: -above[each]):
        below = [placed[b] for a, b in arrows if a == key and b in placed]
        placed[key] = min(below, default=height) - 1
    return placed


def _lowered(keys: set[str], arrows: list[tuple[str, str]]) -> Layers:
    """Longest path from a source; sources then go down to just above their first effect."""
    layers: Layers = {}
    order = _ordered(keys, arrows)
    for key in order:
        layers[key] = max((layers[a] + 1 for a, b in arrows if b == key and a in layers), default=0)
    for key in reversed(order):
        effects = [layers[b] for a, b in arrows if a == key]
        if effects and not any(b == key for _, b in arrows):
            layers[key] = min(effects) - 1
    return layers


def _ordered(keys: set[str], arrows: list[tuple[str, str]]) -> list[str]:
    """Causes before effects; the arrows have no cycle."""
    causes = {key: {a for a, b in arrows if b == key} for key in sorted(keys)}
    order: list[str] = []
    while causes:
        ready = [key for key, before in causes.items() if not before & causes.keys()]
        order += ready
        causes = {key: before for key, before in causes.items() if key not in ready}
    return order


def _without_cycles(network: Network) -> list[tuple[str, str]]:
    """The arrows less those that close a cycle (outputs whose elements depend on each other's)."""
    kept: list[tuple[str, str]] = []
    after: dict[str, set[str]] = {key: {key} for key in network.nodes}
    reached: Mapping[str, set[str]] = after
    for a, b in network.arrows:
        if a in reached[b]:
            continue
        kept.append((a, b))
        for key, found in after.items():
            if a in found:
                after[key] = found | after[b]
    return kept
