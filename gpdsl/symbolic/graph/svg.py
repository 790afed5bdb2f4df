"""A laid-out graphical model as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape, quoteattr

from gpdsl.symbolic.graph.layout import FONT, Layout, Placed, Point, Rectangle, is_dot
from gpdsl.symbolic.graph.network import ROWS, Box, Label, Network, Node

_INK, _SHADE, _PLATE = "#1a1a1a", "#d4d4d4", "#5a6b7b"
_HALO = 'stroke="white" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
_MARGIN = 14.0
_FAMILY = "'Latin Modern Math', 'STIX Two Text', 'Times New Roman', serif"


def svg(layout: Layout) -> str:
    """The drawing as one SVG document, sized to its content."""
    left, top, right, bottom = _frame(layout)
    width, height = right - left, bottom - top
    title = layout.network.title or layout.network.name
    box = f"{left:.1f} {top:.1f} {width:.1f} {height:.1f}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="{_FAMILY}" font-size="{FONT:g}">',
        f"  <title>{escape(title)}</title>",
        '  <defs><marker id="arrow" viewBox="0 0 10 8" refX="9" refY="4" markerWidth="9" markerHeight="7" '
        f'orient="auto"><path d="M0,0 L10,4 L0,8 Z" fill="{_INK}"/></marker></defs>',
        f'  <rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="white"/>',
        *(f"  {_plate(plate)}" for plate in layout.boxes),
        *(f"  {_arrow(layout, a, b, points)}" for a, b, points in layout.arrows),
        *(f"  {_plate_label(*each)}" for each in zip(layout.boxes, layout.captions, strict=True)),
        *(f"  {each}" for placed in layout.nodes.values() for each in _node(placed)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _frame(layout: Layout) -> tuple[float, float, float, float]:
    xs, ys = [0.0], [0.0]
    for placed in layout.nodes.values():
        room = max(placed.rx, placed.node.label.width * FONT / 2)
        label = FONT + 8 if is_dot(placed.node) else 0.0
        xs += [placed.x - room, placed.x + room]
        ys += [placed.y - placed.ry - label, placed.y + placed.ry + label]
    for box in layout.boxes:
        xs += [box.left, box.right]
        ys += [box.top, box.bottom]
    return min(xs[1:]) - _MARGIN, min(ys[1:]) - _MARGIN, max(xs[1:]) + _MARGIN, max(ys[1:]) + _MARGIN


def _plate(box: Box) -> str:
    return (
        f'<rect x="{box.left:.1f}" y="{box.top:.1f}" width="{box.right - box.left:.1f}" '
        f'height="{box.bottom - box.top:.1f}" rx="7" fill="none" stroke="{_PLATE}" stroke-width="1.1"/>'
    )


def _plate_label(box: Box, place: Rectangle) -> str:
    at = f'x="{(place[0] + place[2]) / 2:.1f}" y="{place[3] - 3:.1f}" text-anchor="middle"'
    return f'<text {at} font-size="12.5" {_HALO} fill="{_PLATE}">{escape(box.plate.label)}</text>'


def _node(placed: Placed) -> Iterator[str]:
    node = placed.node
    yield f"<g><title>{escape(node.tooltip)}</title>"
    yield from (f"  {each}" for each in _shape(placed))
    y, halo = placed.y + FONT * 0.33, ""
    if is_dot(node):
        halo = f" {_HALO}"
        y = placed.y + FONT + 4 if placed.under else placed.y - placed.ry - 6
    yield f'  <text x="{placed.x:.1f}" y="{y:.1f}" text-anchor="middle"{halo}>{_text(node.label)}</text></g>'


def _shape(placed: Placed) -> Iterator[str]:
    x, y, kind = placed.x, placed.y, placed.node.kind
    at = f'cx="{x:.1f}" cy="{y:.1f}"'
    line = f'stroke="{_INK}"'
    if kind in {"input", "param"}:
        yield f'<circle {at} r="{placed.rx:g}" fill="{_INK}"/>'
    elif kind == "const":
        side = 2 * placed.rx - 1
        corner = f'x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:g}" height="{side:g}"'
        yield f'<rect {corner} fill="white" {line} stroke-width="1.3"/>'
    elif kind == "external":
        corner = f'x="{x - placed.rx:.1f}" y="{y - 15:.1f}" width="{2 * placed.rx:.1f}" height="30"'
        yield f'<rect {corner} rx="2" fill="white" {line} stroke-width="1.2"/>'
    else:
        fill = _SHADE if kind == "output" else "white"
        width = 2.6 if kind == "latent" else 1.2
        yield f'<ellipse {at} rx="{placed.rx:.1f}" ry="{placed.ry:.1f}" fill="{fill}" {line} stroke-width="{width}"/>'
        if kind == "let":
            inner = f'rx="{placed.rx - 3.2:.1f}" ry="{placed.ry - 3.2:.1f}"'
            yield f'<ellipse {at} {inner} fill="none" {line} stroke-width="1.2"/>'


def _text(label: Label) -> str:
    style = (' font-style="italic"' if label.italic else "") + (' font-weight="bold"' if label.bold else "")
    text = f"<tspan{style}>{escape(label.base)}</tspan>"
    if label.above:
        text += f'<tspan dy="-5" font-size="{FONT * 0.7:.1f}">{escape(label.above)}</tspan>'
    if label.below:
        drop = 9 if label.above else 4
        text += f'<tspan dy="{drop}" font-size="{FONT * 0.7:.1f}">{escape(label.below)}</tspan>'
    return text


def _arrow(layout: Layout, a: str, b: str, points: tuple[Point, ...]) -> str:
    """A smooth line through the points, from border to border."""
    first, last = layout.nodes[a], layout.nodes[b]
    start = _border(first, points[1])
    end = _border(last, points[-2])
    path = [start, *points[1:-1], end]
    shape = f"M{start[0]:.1f},{start[1]:.1f}"
    if len(path) == 2:
        shape += f" L{end[0]:.1f},{end[1]:.1f}"
    for one, two in zip(path, path[1:], strict=False) if len(path) > 2 else ():
        bend = (two[1] - one[1]) / 2
        shape += f" C{one[0]:.1f},{one[1] + bend:.1f} {two[0]:.1f},{two[1] - bend:.1f} {two[0]:.1f},{two[1]:.1f}"
    names = quoteattr(f"{a} -> {b}")
    line = f'fill="none" stroke="{_INK}" stroke-width="1.1" marker-end="url(#arrow)"'
    return f'<path d="{shape}" data-arrow={names} {line}/>'


def _border(placed: Placed, towards: Point) -> Point:
    """Where the line from a node's centre leaves its shape."""
    dx, dy = towards[0] - placed.x, towards[1] - placed.y
    if placed.node.kind == "external":
        scale = min(placed.rx / abs(dx) if dx else math.inf, 15 / abs(dy) if dy else math.inf)
    else:
        scale = 1 / math.hypot(dx / placed.rx, dy / placed.ry) if dx or dy else 0.0
    gap = 1 + 1.5 / max(math.hypot(dx * scale, dy * scale), 1e-9)
    return placed.x + dx * scale * gap, placed.y + dy * scale * gap


# A graphical model as DOT text for Graphviz, plates as clusters.

_STYLES: Mapping[str, str] = {
    "input": 'shape=point, width=0.11, xlabel={label}, label=""',
    "param": 'shape=point, width=0.11, xlabel={label}, label=""',
    "const": 'shape=square, width=0.11, fixedsize=true, style=filled, fillcolor=white, xlabel={label}, label=""',
    "row": "shape=ellipse, label={label}",
    "latent": "shape=ellipse, penwidth=2.4, label={label}",
    "let": "shape=ellipse, peripheries=2, label={label}",
    "output": 'shape=ellipse, style=filled, fillcolor="#d0d0d0", label={label}',
    "external": "shape=box, label={label}",
}


def dot(network: Network) -> str:
    """The description; clusters nest, so a node is drawn in those of its plates that fit into one nesting."""
    order = [ROWS, *(plate.key for plate in network.plates if plate.key != ROWS)]
    labels = {plate.key: plate.label for plate in network.plates}
    lines = [f"digraph {_quoted(network.name)} {{", "  rankdir=TB; fontname=serif;", "  node [fontname=serif];"]
    if network.title:
        lines.append(f"  label={_quoted(network.title)}; labelloc=t;")
    groups: dict[tuple[str, ...], list[Node]] = {}
    for node in network.nodes.values():
        groups.setdefault(tuple(key for key in order if key in node.plates), []).append(node)
    lines += _cluster((), groups, labels, "  ")
    lines += [f"  {_quoted(a)} -> {_quoted(b)};" for a, b in network.arrows]
    return "\n".join([*lines, "}"]) + "\n"


def _cluster(
    path: tuple[str, ...], groups: Mapping[tuple[str, ...], list[Node]], labels: Mapping[str, str], indent: str
) -> Iterator[str]:
    """The nodes in exactly the plates of `path`, then the clusters inside."""
    for node in groups.get(path, ()):
        style = _STYLES[node.kind].format(label=_quoted(node.label.plain))
        yield f"{indent}{_quoted(node.key)} [{style}];"
    inside = dict.fromkeys(key[: len(path) + 1] for key in groups if key[: len(path)] == path and len(key) > len(path))
    for inner in inside:
        yield f"{indent}subgraph {_quoted('cluster_' + '/'.join(inner))} {{"
        yield f"{indent}  label={_quoted(labels[inner[-1]])}; labeljust=r; labelloc=b; style=rounded;"
        yield from _cluster(inner, groups, labels, indent + "  ")
        yield f"{indent}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
