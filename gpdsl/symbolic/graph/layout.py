"""Where everything is drawn: nodes in rows and strips, arrows around nodes, plates as rectangles around their nodes.

The method is Sugiyama's: rows by dependence, an invisible node wherever a long arrow crosses a row, order within a row
by the mean position of neighbours, and positions by least squares with a least distance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpdsl.symbolic.graph import network as net

# Where the label of a plate stands: in the corner that fewest lines and other labels cross.

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]

_HEIGHT, _INSET = 13.0, 8.0


def captions(boxes: Sequence[net.Box], lines: Sequence[Sequence[Point]], taken: Sequence[Rectangle]) -> list[Rectangle]:
    """The rectangle of every label. `lines` are arrows as points, `taken` the rectangles of nodes and their labels."""
    found: list[Rectangle] = []
    for box in boxes:
        width = net.label_width(box.plate)
        edges = [edge for other in boxes if other is not box for edge in _edges(other)]
        places = _corners(box, width)
        crossed = [_crossings(place, [*lines, *edges], [*taken, *found]) for place in places]
        found.append(places[crossed.index(min(crossed))])
    return found


def _corners(box: net.Box, width: float) -> list[Rectangle]:
    """Places in order of preference: along the lower border from the right, then along the upper one."""
    right, left = box.right - _INSET - width, box.left + _INSET
    middle = (left + right) / 2
    low, high = box.bottom - _HEIGHT - 4, box.top + 3
    return [(x, y, x + width, y + _HEIGHT) for y in (low, high) for x in (right, left, middle)]


def _edges(box: net.Box) -> Iterator[list[Point]]:
    corners = [(box.left, box.top), (box.right, box.top), (box.right, box.bottom), (box.left, box.bottom)]
    for one, two in zip(corners, [*corners[1:], corners[0]], strict=True):
        yield [one, two]


def _crossings(place: Rectangle, lines: Sequence[Sequence[Point]], taken: Sequence[Rectangle]) -> int:
    left, top, right, bottom = place
    near = left - 2, top - 2, right + 2, bottom + 2
    hit = sum(any(_meets(near, *ends) for ends in zip(line, line[1:], strict=False)) for line in lines)
    covered = sum(a[0] < right and left < a[2] and a[1] < bottom and top < a[3] for a in taken)
    return hit + 3 * covered


def _meets(place: Rectangle, start: Point, end: Point) -> bool:
    """Whether a straight line has a point in a rectangle: the parts of it between both pairs of sides overlap."""
    first, last = 0.0, 1.0
    for axis in (0, 1):
        begin, step = start[axis], end[axis] - start[axis]
        low, high = place[axis] - begin, place[axis + 2] - begin
        if step:
            first, last = max(first, min(low / step, high / step)), min(last, max(low / step, high / step))
        elif low > 0 or high < 0:
            return False
    return first <= last


FONT = 15.0
GAP, ROW_HEIGHT, STRIP_GAP, BAND_GAP = 26.0, 80.0, 30.0, 26.0
RADIUS, DOT = 21.0, 4.5
SWEEPS = 12
FARTHEST = 50
"""Rows that an arrow may cross and be led around their nodes; a longer one is straight."""


@dataclass(frozen=True)
class Placed:
    """A node and its centre; `rx`, `ry` are the halves of its shape. `under`: the label of a mark stands under it."""

    node: net.Node
    x: float
    y: float
    rx: float
    ry: float
    under: bool = False


@dataclass(frozen=True)
class Layout:
    """A drawing: nodes, the points that arrows go through, and the boxes of plates."""

    network: net.Network
    nodes: dict[str, Placed]
    arrows: tuple[tuple[str, str, tuple[Point, ...]], ...]
    boxes: tuple[net.Box, ...]
    captions: tuple[Rectangle, ...]


def is_dot(node: net.Node) -> bool:
    """Whether a node is a small mark with its label beside it."""
    return node.kind in {"input", "param", "const"}


def halves(node: net.Node) -> tuple[float, float]:
    """Half the width and height of a node's shape."""
    if is_dot(node):
        return DOT, DOT
    return max(RADIUS, node.label.width * FONT / 2 + 9), RADIUS


def _room(node: net.Node | None) -> float:
    """Half the width that nothing else may use."""
    if node is None:
        return 4.0
    if is_dot(node):
        return max(DOT, node.label.width * FONT / 2)
    return halves(node)[0]


class _Rows:
    """Nodes and invisible nodes by row and strip, with their positions from left to right."""

    def __init__(self, network: net.Network) -> None:
        self.network = network
        layers = net.layers_of(network)
        self.layer = {key: layers[key] for key in network.nodes}  # in the order of the file, always
        self.strip = net.strip_of(network)
        self.order = net.ordered_strips(network)
        self.rooms = {key: _room(node) for key, node in network.nodes.items()}
        self.paths: dict[tuple[str, str], list[str]] = {}
        self.neighbours: dict[str, list[str]] = {key: [] for key in network.nodes}
        self.crowds = Counter((self.strip[key], self.layer[key]) for key in network.nodes)
        for arrow in network.arrows:
            self._add_path(arrow)
        self.rows: dict[tuple[int, net.Strip], list[str]] = {}
        for key, layer in self.layer.items():
            self.rows.setdefault((layer, self.strip[key]), []).append(key)
        self.spans = self._spans()
        self.x = {key: self.spans[self.strip[key]][0] for key in self.layer}
        self._settle()

    def _add_path(self, arrow: tuple[str, str]) -> None:
        a, b = arrow
        step = 1 if self.layer[b] > self.layer[a] else -1
        path = [a]
        far = abs(self.layer[b] - self.layer[a]) > FARTHEST
        for layer in range(self.layer[a] + step, self.layer[b], step) if not far else ():
            key = f"{a}→{b}@{layer}"
            self.layer[key], self.strip[key] = layer, self.strip[b if self._belongs(b, layer) else a]
            self.rooms[key] = _room(None)
            self.neighbours[key] = []
            path.append(key)
        path.append(b)
        for one, two in zip(path, path[1:], strict=False):
            self.neighbours[one].append(two)
            self.neighbours[two].append(one)
        self.paths[arrow] = path

    def _belongs(self, key: str, layer: int) -> bool:
        """Whether the strip of a node has few enough nodes in a row to let an arrow through."""
        return self.crowds[self.strip[key], layer] < 3

    def _width(self, keys: Sequence[str]) -> float:
        return sum(2 * self.rooms[key] for key in keys) + GAP * (len(keys) - 1)

    def _spans(self) -> dict[net.Strip, tuple[float, float]]:
        """Left and right end of every strip."""
        labels = {plate.key: net.label_width(plate) for plate in self.network.plates}
        spans: dict[net.Strip, tuple[float, float]] = {}
        left = 0.0
        for strip in self.order:
            widest = max(self._width(keys) for (_, each), keys in self.rows.items() if each == strip)
            width = max(widest, 2 * RADIUS, *(labels[key] for key in strip), 0.0)
            spans[strip] = (left, left + width)
            left += width + STRIP_GAP + 16 * len(strip)
        if len(spans) == 1 and net.ROWS in labels:  # the label of the rows stands beside the arrow in the middle
            spans = {strip: (0.0, max(high, 2 * labels[net.ROWS] + 24)) for strip, (_, high) in spans.items()}
        return spans

    def _settle(self) -> None:
        for sweep in range(SWEEPS):
            rows = sorted(self.rows, key=lambda each: each[0], reverse=bool(sweep % 2))
            for row in rows:
                keys = self.rows[row]
                wished = {key: self._wished(key) for key in keys}
                if sweep < SWEEPS - 2:
                    keys.sort(key=lambda each: wished[each])
                self._place(keys, wished, self.spans[row[1]])

    def _wished(self, key: str) -> float:
        near = [self.x[each] for each in self.neighbours[key]]
        low, high = self.spans[self.strip[key]]
        return sum(near) / len(near) if near else (low + high) / 2

    def _place(self, keys: Sequence[str], wished: Mapping[str, float], span: tuple[float, float]) -> None:
        offsets = [0.0]
        for one, two in zip(keys, keys[1:], strict=False):
            offsets.append(offsets[-1] + self.rooms[one] + GAP + self.rooms[two])
        free = isotonic([wished[key] - offset for key, offset in zip(keys, offsets, strict=True)])
        low = span[0] + self.rooms[keys[0]]
        high = span[1] - self.rooms[keys[-1]] - offsets[-1]
        for key, offset, value in zip(keys, offsets, free, strict=True):
            self.x[key] = min(max(value, low), max(low, high)) + offset


def isotonic(values: Sequence[float]) -> list[float]:
    """The nearest sequence, in least squares, that never decreases (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, number = pools.pop()
            total, count = total + before, count + number
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]


def lay_out(network: net.Network) -> Layout:
    """Positions of everything."""
    rows = _Rows(network)
    found = _placed(network, rows, 0.0)
    short = _short(found)
    return _placed(network, rows, short) if short > 0 else found


def _short(found: Layout) -> float:
    """How much farther down what stands below the rows of data has to be: many plates within theirs make it high."""
    under = [_extent(placed)[1] for placed in found.nodes.values() if placed.under]
    ends = [box.bottom for box in found.boxes if box.plate.key == net.ROWS]
    return max(ends, default=0.0) + net.STEP - min(under) if under and ends else 0.0


def _placed(network: net.Network, rows: _Rows, lower: float) -> Layout:
    """The drawing with what stands below the rows of data so much lower than usual."""
    band = [rows.layer[key] for key, node in network.nodes.items() if net.ROWS in node.plates]
    first, last = min(band, default=0), max(band, default=0)
    height = {
        k: k * ROW_HEIGHT + BAND_GAP * (k >= first) + (BAND_GAP + lower) * (k > last) for k in set(rows.layer.values())
    }
    nodes = {
        key: Placed(node, rows.x[key], height[rows.layer[key]], *halves(node), under=rows.layer[key] > last)
        for key, node in network.nodes.items()
    }
    arrows = tuple(
        (a, b, tuple((rows.x[key], height[rows.layer[key]]) for key in path)) for (a, b), path in rows.paths.items()
    )
    extents = {key: _extent(placed) for key, placed in nodes.items()}
    boxes = net.boxes_of(network, extents, rows.order)
    labels = captions(boxes, [points for _, _, points in arrows], list(extents.values()))
    return Layout(network, nodes, arrows, boxes, tuple(labels))


def _extent(placed: Placed) -> tuple[float, float, float, float]:
    """The rectangle a node and its label need."""
    room = _room(placed.node)
    label = FONT + 4 if is_dot(placed.node) else 0.0
    over, under = (0.0, label) if placed.under else (label, 0.0)
    return placed.x - room, placed.y - placed.ry - over, placed.x + room, placed.y + placed.ry + under
