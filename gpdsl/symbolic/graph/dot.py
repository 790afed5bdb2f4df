"""A graphical model as DOT text for Graphviz, plates as clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpdsl.symbolic.graph.network import ROWS, Network, Node

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
