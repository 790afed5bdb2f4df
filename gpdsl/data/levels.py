"""Labels: the levels of each index that is a label's, in their order, and the numbers that inputs of levels become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass

import numpy as np

from gpdsl.data.columns import Found
from gpdsl.data.level_columns import level_columns
from gpdsl.data.level_mistakes import UnknownLevel
from gpdsl.data.mistakes import NotFinite
from gpdsl.data.values import Level, Wrong, distinct_levels, label_values, place_of
from gpdsl.language import model as m

MAX_GROUPS = 1_000_000


def labelled(declarations: m.Declarations, index: str) -> list[m.Input | m.Output]:
    """The inputs and outputs whose levels are those of an index."""
    every: list[m.Input | m.Output] = [*declarations.inputs.values(), *declarations.outputs.values()]
    return [each for each in every if each.label is not None and each.label.name == index]


def found_levels(users: Sequence[m.Input | m.Output], founds: Mapping[str, Found]) -> tuple[Level, ...]:
    """The distinct labels of the columns of an index. Raises Wrong for more of them than labels have."""
    own = [founds[user.name] for user in users if user.name in founds]
    inputs = any(isinstance(user, m.Input) for user in users)
    return distinct_levels(own, MAX_GROUPS) if inputs else distinct_levels(own)


def numbered(
    declarations: m.Declarations, found: Found, levels: Mapping[str, Sequence[Level]], seen: bool
) -> np.ndarray:
    """The numbers of an input's levels, from 1. Raises Wrong for a missing one, and for one that is no level.

    With `seen`, the levels are those of an earlier fit: others get numbers of their own above these, where every
    quantity of a level has a prior.
    """
    label = declarations.inputs[found.name].label
    assert label is not None
    index = label.name or ""
    known = list(levels[index])
    if seen and declarations.indices[index].levels is None and declarations.indices[index].axis.size is None:
        new = [level for level in distinct_levels([found], MAX_GROUPS) if str(level) not in set(map(str, known))]
        if new and (needs := _needs_levels(declarations, found.name)):
            wrong = np.array([str(each) == str(new[0]) for each in found.values.tolist()])
            column, row, _ = place_of(found, wrong)
            raise Wrong(UnknownLevel(column, row, str(new[0]), index, needs))
        known += new
    values = label_values(found, index, known)
    missing = np.isnan(values)
    if missing.any():
        column, row, _ = place_of(found, missing)
        raise Wrong(NotFinite(column, row, "missing"))
    return values + 1.0


def _needs_levels(declarations: m.Declarations, label: str) -> str:
    """Something that has a value for each level of an input, and no prior that says what others have; or nothing."""
    tables = declarations.lets, declarations.latents, {o.span: o for o in declarations.observations}
    for read in (each for table in tables for declared in table.values() for each in _reads(declared)):
        if m.At(label) in read.subscripts:
            return read.name
    return next((column.latent for column in level_columns(declarations) if column.name == label), "")


def _reads(node: object) -> Iterable[m.Read]:
    """Every read inside a declaration."""
    if isinstance(node, m.Read):
        yield node
    inside: Iterable[object] = ()
    if isinstance(node, tuple):
        inside = node
    elif isinstance(node, Mapping):
        inside = node.values()
    elif is_dataclass(node):
        inside = [getattr(node, each.name) for each in fields(node)]
    for each in inside:
        yield from _reads(each)
