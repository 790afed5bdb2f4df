"""Vertical strips of the drawing: nodes in the same plates stand in one, so that a plate is a run of strips."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from gpdsl.symbolic.graph.network import ROWS, Network

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
