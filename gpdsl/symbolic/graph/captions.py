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
