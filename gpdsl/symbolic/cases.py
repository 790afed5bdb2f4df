"""Definitions by cases: which case of a `let` defines an element."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from gpdsl.language import model as m

HOLDS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def decisive(declared: m.Let) -> set[str]:
    """The indices whose value decides which case holds; along the others every case is generic."""
    return {guard.index for case in declared.cases for guard in case.guards if guard.operator != "all"}


def case_of(declared: m.Let, positions: Mapping[str, int]) -> m.Case | None:
    """The case that defines the element at these positions of the decisive indices; None when there is none."""
    for case in declared.cases:
        if all(g.operator == "all" or HOLDS[g.operator](positions[g.index], g.value) for g in case.guards):
            return case
    return None
