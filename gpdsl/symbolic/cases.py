"""Definitions by cases: which case of a `let` defines an element."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from gpdsl.language import model as m

HOLDS: Mapping[str, Callable[[int, int], bool]] = {
    "all": lambda position, value: True,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def is_generic(declared: m.Let) -> bool:
    """Whether one formula defines every element."""
    return len(declared.cases) == 1 and all(guard.operator == "all" for guard in declared.cases[0].guards)


def case_of(declared: m.Let, positions: Mapping[str, int]) -> m.Case | None:
    """The case that defines the element at these positions, by index name; None when there is none."""
    for case in declared.cases:
        if all(HOLDS[guard.operator](positions[guard.index], guard.value) for guard in case.guards):
            return case
    return None
