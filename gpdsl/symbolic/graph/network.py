"""Nodes, arrows and plates of a model: what depends on what, and what is repeated along which index."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
