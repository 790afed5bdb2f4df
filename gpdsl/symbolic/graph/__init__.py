"""A checked model as a graphical model with plates: `graph(declarations, "svg")`, or `"dot"` for Graphviz.

Comes in: checked declarations. Goes out: text. The drawing needs nothing but the standard library.
"""

from __future__ import annotations

from gpdsl.language.model import Declarations
from gpdsl.symbolic.graph.layout import lay_out
from gpdsl.symbolic.graph.network import network
from gpdsl.symbolic.graph.svg import dot, svg

FORMATS = ("svg", "dot")


def graph(declarations: Declarations, form: str = "svg") -> str:
    """The model's quantities and what depends on what: an SVG drawing, or a description for Graphviz."""
    found = network(declarations)
    return dot(found) if form == "dot" else svg(lay_out(found))
