"""What a model wants of its data: columns, their names, types and values, and the sizes they determine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from gpdsl.language import model as m

_INPUTS = {
    "real": "finite numbers",
    "positive": "finite numbers above 0",
    "count": "whole numbers from 0",
    "time": "dates or times, as 2024-01-05 or 2024-01-05T14:30",
}
_OUTPUTS = {
    "real": "finite numbers",
    "positive": "finite numbers above 0",
    "unit": "numbers strictly between 0 and 1",
    "count": "whole numbers from 0",
    "binary": "two values: 0 and 1, -1 and 1, false and true, or two words",
}
_MOST = 64
"""Columns that are listed by name."""


def requirements(declarations: m.Declarations) -> list[dict[str, Any]]:
    """One entry for each input and output, in the order in which they are looked for."""
    d = declarations
    return [*(_entry(d, each) for each in d.inputs.values()), *(_entry(d, each) for each in d.outputs.values())]


def _entry(d: m.Declarations, quantity: m.Input | m.Output) -> dict[str, Any]:
    is_input = isinstance(quantity, m.Input)
    return {
        "name": quantity.name,
        "role": "input" if is_input else "output",
        "kind": quantity.kind,
        "shape": ["rows", *(axis.size if axis.size is not None else axis.dimension for axis in quantity.axes)],
        "columns": columns(quantity),
        "values": _values(d, quantity),
        "missing": not is_input,
        "varies": is_input and any(quantity.name in each.arguments for each in d.latents.values()),
        "binds": _binds(d, quantity),
    }


def columns(quantity: m.Input | m.Output) -> list[str] | None:
    """Names the columns may have in a table (`x1`, `x2`); None when data say how many there are, or for very many.

    An array of the quantity's own name, one column per element, serves as well.
    """
    sizes = [axis.size for axis in quantity.axes]
    known = [size for size in sizes if size is not None]
    total = 1
    for size in known:
        total *= size
    if len(known) < len(sizes) or total > _MOST:
        return None
    if not sizes:
        return [quantity.name]
    positions = itertools.product(*(range(1, size + 1) for size in known))
    return [f"{quantity.name}{'_'.join(map(str, position))}" for position in positions]


def _values(d: m.Declarations, quantity: m.Input | m.Output) -> str:
    if quantity.label is None:
        return (_INPUTS if isinstance(quantity, m.Input) else _OUTPUTS).get(quantity.kind, quantity.kind)
    index = d.indices.get(quantity.label.name or "")
    levels: Sequence[object] = index.levels or () if index is not None else ()
    order = ", in this order" if quantity.kind == "ordinal" else ""
    if levels:
        return f"one of {', '.join(map(str, levels))}{order}"
    if quantity.label.size is not None:
        return f"whole numbers from 1 to {quantity.label.size}{order}"
    return "any labels; those found are the levels" + (", in sorted order" if order else "")


def _binds(d: m.Declarations, quantity: m.Input | m.Output) -> list[str]:
    """The sizes left free that this quantity determines."""
    axes = [*quantity.axes]
    if quantity.label is not None:
        axes.append(quantity.label)
    return list(dict.fromkeys(axis.dimension for axis in axes if axis.dimension is not None and axis.size is None))
