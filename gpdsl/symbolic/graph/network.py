"""Nodes, arrows and plates of a model: what depends on what, and what is repeated along which index."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpdsl.language import model as m
from gpdsl.symbolic.dependence import kernel_expressions, row_quantities
from gpdsl.symbolic.latex.names import Symbols

# Names as labels of a drawing: Greek letters, and subscripts of a name's own.

_NAMES = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "ell"),
    *("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega"),
)
_GREEK = dict(zip(_NAMES, "αβγδεζηθικλμνξπρστυφχψωℓΓΔΘΛΞΠΣΦΨΩ", strict=True))


@dataclass(frozen=True)
class Label:
    """A word, its subscript and superscript. `italic` for single letters, `bold` for what has columns."""

    base: str
    below: str = ""
    above: str = ""
    italic: bool = False
    bold: bool = False

    @property
    def plain(self) -> str:
        """The label in one line of text."""
        return self.base + self.above.replace("2", "²") + (f"_{self.below}" if self.below else "")

    @property
    def width(self) -> float:
        """About how wide it is, in units of the font size."""
        return 0.6 * len(self.base) + 0.42 * max(len(self.below), len(self.above))


def label_of(name: str, *, bold: bool = False) -> Label:
    """The label of a name: `ell_g` is ℓ with subscript g, `s2` the square of s."""
    head, *tail = name.split("_")
    above = ""
    if head in {"s2", "sigma2", "tau2"}:
        head, above = head[:-1], "2"
    numbered = re.fullmatch(r"(.*\D)(\d+)", head)
    if numbered:
        head, tail = numbered[1], [numbered[2], *tail]
    base = _GREEK.get(head, head)
    if not head or "" in tail or (len(base) > 1 and any(len(each) > 1 and not each.isdigit() for each in tail)):
        return Label(name, bold=bold)
    return Label(base, ",".join(_GREEK.get(each, each) for each in tail), above, italic=len(base) == 1, bold=bold)


ROWS = "rows of data"
"""The plate of the rows; no index can have this name."""


@dataclass(frozen=True)
class Node:
    """A quantity. `kind` is input, output, const, param, row, latent, let or external; `plates` are those around it."""

    key: str
    kind: str
    label: Label
    plates: frozenset[str] = frozenset()
    tooltip: str = ""


@dataclass(frozen=True)
class Plate:
    """A box around what is repeated, and the range written in its corner."""

    key: str
    label: str


@dataclass(frozen=True)
class Network:
    """A graphical model. Arrows are pairs of node keys, without those from a node to itself."""

    name: str
    title: str
    nodes: dict[str, Node]
    arrows: tuple[tuple[str, str], ...]
    plates: tuple[Plate, ...]


def network(declarations: m.Declarations) -> Network:
    """The graphical model of a checked model."""
    d = declarations
    varying = row_quantities(d)
    nodes = {node.key: node for node in _nodes(d, varying)}
    arrows = dict.fromkeys((a, b) for a, b in _arrows(d) if a != b and a in nodes and b in nodes)
    # A constant or parameter that nothing reads says nothing in a drawing of dependences.
    linked = {key for arrow in arrows for key in arrow}
    kept = {k: n for k, n in nodes.items() if k in linked or n.kind not in {"const", "param", "external"}}
    used = {key for node in kept.values() for key in node.plates}
    return Network(d.name, d.title, kept, tuple(arrows), tuple(p for p in _plates(d) if p.key in used))


def _nodes(d: m.Declarations, varying: frozenset[str]) -> Iterator[Node]:
    tables = {
        "const": d.consts,
        "param": d.params,
        "input": d.inputs,
        "row": d.rows,
        "latent": d.latents,
        "let": d.lets,
        "output": d.outputs,
    }
    for kind, table in tables.items():
        for name in table:
            axes = d.axes_of(name)
            plates = {axis.name for axis in axes if axis.name is not None}
            bare = any(axis.name is None for axis in axes)
            rows = {ROWS} if name in varying else set()
            yield Node(name, kind, label_of(name, bold=bare), frozenset(plates | rows), f"{kind} {name}")
    for name in d.externals:
        # An opaque function takes and gives whole arrays of a row.
        yield Node(f"external {name}", "external", Label(name), frozenset({ROWS}), f"external {name}")


def _plates(d: m.Declarations) -> Iterator[Plate]:
    symbols = Symbols(d)
    yield Plate(ROWS, f"{symbols.row} = 1, …, {symbols.count}")
    for index in d.indices.values():
        size = str(index.axis.size) if index.axis.size is not None else str(index.axis.dimension)
        text = {"1": "1", "2": "1, 2"}.get(size, f"1, …, {size}")
        yield Plate(index.name, f"{label_of(index.name).plain} = {text}")


def _arrows(d: m.Declarations) -> Iterator[tuple[str, str]]:
    for param in d.params.values():
        yield from _into(param.name, param.prior.expressions() if param.prior else ())
    for row in d.rows.values():
        yield from _into(row.name, row.distribution.expressions())
    for latent in d.latents.values():
        yield from ((argument, latent.name) for argument in latent.arguments)
        yield from _into(latent.name, (latent.mean, *kernel_expressions(latent.kernel)))
    for let in d.lets.values():
        yield from _into(let.name, (case.body for case in let.cases))
    for observation in d.observations:
        left = (observation.transform,) if observation.transform is not None else ()
        for output in observation.outputs:
            yield from _into(output, (*left, *observation.distribution.expressions()))


def _into(target: str, expressions: Iterator[m.Expression] | tuple[m.Expression, ...]) -> Iterator[tuple[str, str]]:
    """Arrows from everything read to the target; through the box of an opaque function where there is one."""
    waiting = [(each, target) for each in expressions]
    while waiting:
        expression, head = waiting.pop()
        match expression:
            case m.Read(name=name):
                yield name, head
                yield from ((each, head) for each in expression.functional.at if not m.is_number(each))
            case m.ExternalCall(function=function, arguments=arguments):
                box = f"external {function}"
                yield box, head
                waiting.extend((each, box) for each in reversed(arguments))
            case _:
                waiting.extend((each, head) for each in reversed(m.parts(expression)))


# Plates as rectangles: around all of their nodes and no others, one inside the other where they meet.

# Which row of the drawing each node stands in: parameters above or below the data, causes above their effects.
#
# The rows of the data form one band, so that their plate is a rectangle: what does not vary between rows of data stands
# above it, or below when it matters only at the bottom (the noise of an observation).

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
    return 6.9 * len(plate.label)


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
