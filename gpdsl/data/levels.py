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


def unseen_levels(
    declarations: m.Declarations, found: Found, known: Sequence[Level], further: Sequence[Level]
) -> tuple[Level, ...]:
    """Levels that an earlier fit does not know: `further`, of other inputs and rows, and then those of this input.

    Raises Wrong where something has values for the `known` ones alone.
    """
    index = _index(declarations, found)
    if declarations.indices[index].levels is not None or declarations.indices[index].axis.size is not None:
        return ()
    names = set(map(str, known))
    new = [level for level in distinct_levels([found], MAX_GROUPS) if str(level) not in names]
    if new and (needs := _needs_levels(declarations, found.name)):
        numbers = label_values(found, index, [*known, *new])
        column, row, at = place_of(found, numbers >= len(known))
        value = str(new[int(numbers[at]) - len(known)])
        raise Wrong(UnknownLevel(column, row, value, index, needs, _remedy(declarations, needs, index, found.name)))
    names = set(map(str, further))
    return (*further, *(level for level in new if str(level) not in names))


def numbered(declarations: m.Declarations, found: Found, levels: Sequence[Level]) -> np.ndarray:
    """The numbers of an input's levels, from 1. Raises Wrong for a missing one, and for one that is no level."""
    values = label_values(found, _index(declarations, found), levels)
    missing = np.isnan(values)
    if missing.any():
        column, row, _ = place_of(found, missing)
        raise Wrong(NotFinite(column, row, "missing"))
    return values + 1.0


def _index(declarations: m.Declarations, found: Found) -> str:
    label = declarations.inputs[found.name].label
    assert label is not None
    return label.name or ""


def _needs_levels(declarations: m.Declarations, label: str) -> str:
    """Something that has a value for each level of an input, and no prior that says what others have; or nothing."""
    tables = declarations.lets, declarations.latents, {o.span: o for o in declarations.observations}
    for read in (each for table in tables for declared in table.values() for each in _reads(declared)):
        if m.At(label) in read.subscripts:
            return read.name
    return next((column.latent for column in level_columns(declarations) if column.name == label), "")


def _remedy(declarations: m.Declarations, needs: str, index: str, label: str) -> str:
    """How new levels get values of a quantity."""
    param = declarations.params.get(needs)
    if param is None:
        return f"fit again with this level, or leave its rows out: nothing says what `{needs}` is there"
    bounded = param.lower is not None or param.upper is not None
    inferred, normal = "new levels follow priors that are inferred", "real ~ Normal(mu, tau)"
    if param.constraint == "unit" and not bounded:
        return f"{inferred}: `param z[{index}] : {normal}`, with `sigmoid(z[{label}])` for `{needs}[{label}]`"
    form = f"`param {needs}[{index}] : {'positive ~ LogNormal(m, s)' if param.constraint == 'positive' else normal}`"
    if bounded or param.prior is not None:
        return f"{inferred}: declare it {form}"
    return f"give `{needs}` a prior, {form}: new levels then follow it"


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
