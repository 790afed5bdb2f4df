"""Plates as rectangles: around all of their nodes and no others, one inside the other where they meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpdsl.symbolic.graph.layers import Strip, plate_runs
from gpdsl.symbolic.graph.network import ROWS, Network, Plate

PAD, STEP, LABEL = 12.0, 8.0, 18.0

Extent = tuple[float, float, float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle with the plate's label in its lower right corner."""

    plate: Plate
    left: float
    top: float
    right: float
    bottom: float


def boxes_of(network: Network, extents: Mapping[str, Extent], order: Sequence[Strip]) -> tuple[Box, ...]:
    """The rectangles of every plate, small ones last. A plate whose strips are apart has several."""
    groups = [(plate, frozenset(members)) for plate in network.plates for members in _runs(network, plate.key, order)]
    # The smaller of two rectangles that meet gets the smaller margin, and an outer one holds the inner ones whole.
    groups.sort(key=lambda each: _area(_around([extents[key] for key in each[1]])))
    done: list[tuple[Box, frozenset[str]]] = []
    for plate, members in groups:
        inside = [_extent(box) for box, its in done if its <= members]
        left, top, right, bottom = _around([*inside, *(extents[key] for key in members)])
        own = _around([extents[key] for key in members])
        rank = sum(_meet(own, _extent(box)) for box, its in done if not its <= members)
        pad = (STEP if inside else PAD) + STEP * rank
        # Arrows to the outputs often cross the middle of the lower border: there is room for the label beside them.
        least = 2 * label_width(plate) + 24 if plate.key == ROWS else label_width(plate) + 16
        # What stands in a strip of the plate's own nodes is above or below the plate.
        within = {node.plates - {ROWS} for key, node in network.nodes.items() if key in members}
        others = [
            extents[key]
            for key, node in network.nodes.items()
            if key not in members and node.plates - {ROWS} not in within
        ]
        # What is kept free beside it is for the borders of the plates around this one.
        left, right = _widened(left - pad, right + pad, least, others, STEP * (1 + len(network.plates)))
        low = bottom + pad + LABEL * (rank + 1) - STEP * rank
        done.append((Box(plate, left, top - pad, right, low), members))
    return tuple(box for box, _ in reversed(done))


def _widened(left: float, right: float, least: float, others: Sequence[Extent], free: float) -> tuple[float, float]:
    """An interval at least so wide where there is room: on both sides, else on that with more of it."""
    short = max(0.0, least - (right - left))
    room_left = min((left - free - each[2] for each in others if each[2] <= left), default=short)
    room_right = min((each[0] - free - right for each in others if each[0] >= right), default=short)
    room_left, room_right = max(room_left, 0.0), max(room_right, 0.0)
    to_left = min(max(short / 2, short - room_right), room_left)
    return left - to_left, right + min(short - to_left, room_right)


def _extent(box: Box) -> Extent:
    return box.left, box.top, box.right, box.bottom


def _area(extent: Extent) -> float:
    return (extent[2] - extent[0]) * (extent[3] - extent[1])


def label_width(plate: Plate) -> float:
    """About how wide the label of a plate is."""
    return 6.2 * len(plate.label)


def _runs(network: Network, plate: str, order: Sequence[Strip]) -> list[list[str]]:
    members = [key for key, node in network.nodes.items() if plate in node.plates]
    runs = plate_runs(order, plate)
    if not runs:  # the plate of the rows, which all strips cross
        return [members]
    position = {strip: k for k, strip in enumerate(order)}
    named: Strip = frozenset().union(*order)
    places = {key: position[network.nodes[key].plates & named] for key in members}
    return [found for first, last in runs if (found := [k for k in members if first <= places[k] <= last])]


def _around(extents: Sequence[Extent]) -> Extent:
    left, top, right, bottom = zip(*extents, strict=True)
    return min(left), min(top), max(right), max(bottom)


def _meet(a: Extent, b: Extent) -> bool:
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]
