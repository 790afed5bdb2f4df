"""Where the label of a plate stands: in the corner that fewest lines and other labels cross."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpdsl.symbolic.graph.plates import Box, label_width

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]

_HEIGHT, _INSET = 13.0, 8.0


def captions(boxes: Sequence[Box], lines: Sequence[Sequence[Point]], taken: Sequence[Rectangle]) -> list[Rectangle]:
    """The rectangle of every label. `lines` are arrows as points, `taken` the rectangles of nodes and their labels."""
    found: list[Rectangle] = []
    for box in boxes:
        width = label_width(box.plate)
        edges = [edge for other in boxes if other is not box for edge in _edges(other)]
        places = _corners(box, width)
        crossed = [_crossings(place, [*lines, *edges], [*taken, *found]) for place in places]
        found.append(places[crossed.index(min(crossed))])
    return found


def _corners(box: Box, width: float) -> list[Rectangle]:
    """Places in order of preference: along the lower border from the right, then along the upper one."""
    right, left = box.right - _INSET - width, box.left + _INSET
    middle = (left + right) / 2
    low, high = box.bottom - _HEIGHT - 4, box.top + 3
    return [(x, y, x + width, y + _HEIGHT) for y in (low, high) for x in (right, left, middle)]


def _edges(box: Box) -> Iterator[list[Point]]:
    corners = [(box.left, box.top), (box.right, box.top), (box.right, box.bottom), (box.left, box.bottom)]
    for one, two in zip(corners, [*corners[1:], corners[0]], strict=True):
        yield [one, two]


def _crossings(place: Rectangle, lines: Sequence[Sequence[Point]], taken: Sequence[Rectangle]) -> int:
    hit = sum(any(_inside(place, point) for point in _dense(line)) for line in lines)
    covered = sum(a[0] < place[2] and place[0] < a[2] and a[1] < place[3] and place[1] < a[3] for a in taken)
    return hit + 3 * covered


def _inside(place: Rectangle, point: Point) -> bool:
    return place[0] - 2 <= point[0] <= place[2] + 2 and place[1] - 2 <= point[1] <= place[3] + 2


def _dense(line: Sequence[Point]) -> Iterator[Point]:
    """Points every few units along a line."""
    for (x1, y1), (x2, y2) in zip(line, line[1:], strict=False):
        steps = max(1, int(max(abs(x2 - x1), abs(y2 - y1)) // 5))
        for k in range(steps + 1):
            yield x1 + (x2 - x1) * k / steps, y1 + (y2 - y1) * k / steps
