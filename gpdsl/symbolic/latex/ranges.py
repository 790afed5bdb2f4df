"""What indices run over: `p = 1, ..., P`, also where guards leave a part of them."""

from __future__ import annotations

from collections.abc import Sequence

from gpdsl.language import model as m
from gpdsl.symbolic.latex.names import Symbols, escaped

_RELATIONS = {"<": "<", "<=": r"\le", ">": ">", ">=": r"\ge", "!=": r"\ne", "==": "="}


def index_range(symbols: Symbols, axis: m.Axis) -> str:
    """`p = 1, \\dots, P`."""
    return f"{symbols.index(axis)} = {_run('1', symbols.size(axis))}"


def _run(first: str, last: str) -> str:
    if first == last:
        return first
    if last.isdigit() and int(last) - int(first) <= 2:
        return ", ".join(str(each) for each in range(int(first), int(last) + 1))
    return rf"{first}, \dots, {last}"


def row_range(symbols: Symbols) -> str:
    """`n = 1, \\dots, N`."""
    return rf"{symbols.row} = 1, \dots, {symbols.count}"


def guarded(symbols: Symbols, axis: m.Axis, guard: m.Guard | None) -> str:
    """The values of an axis for which a guard holds."""
    index, size = symbols.index(axis), symbols.size(axis)
    match guard:
        case None | m.Guard(operator="all"):
            return index_range(symbols, axis)
        case m.Guard(operator=">", value=value):
            return f"{index} = {_run(str(value + 1), size)}"
        case m.Guard(operator=">=", value=value):
            return f"{index} = {_run(str(value), size)}"
        case m.Guard(operator="<", value=value):
            return f"{index} = {_run('1', str(value - 1))}"
        case m.Guard(operator="<=", value=value):
            return f"{index} = {_run('1', str(value))}"
    return condition(symbols, axis, guard)


def condition(symbols: Symbols, axis: m.Axis, guard: m.Guard) -> str:
    """A guard as a condition: `p > 1`."""
    return f"{symbols.index(axis)} {_RELATIONS[guard.operator]} {guard.value}"


def quantified(
    symbols: Symbols, axes: Sequence[m.Axis], guards: Sequence[m.Guard] = (), *, rows: bool = False
) -> tuple[str, str]:
    """Everything a line holds for: with ranges, and in short."""
    every: Sequence[m.Guard | None] = guards or [None] * len(axes)
    pairs = list(zip(axes, every, strict=True))
    ranges = [guarded(symbols, axis, guard) for axis, guard in pairs]
    free = [symbols.index(axis) for axis, guard in pairs if guard is None or guard.operator == "all"]
    told = [condition(symbols, axis, guard) for axis, guard in pairs if guard is not None and guard.operator != "all"]
    letters = ", ".join([*([symbols.row] if rows else []), *free])
    long = [*([row_range(symbols)] if rows else []), *ranges]
    short = [*([rf"\forall\, {letters}"] if letters else []), *told]
    return r",\; ".join(long), r",\; ".join(short)


def levels(index: m.Index) -> str:
    """The levels an index lists."""
    shown = (rf"\text{{{escaped(each)}}}" if isinstance(each, str) else str(each) for each in index.levels or ())
    return rf"\{{{', '.join(shown)}\}}"
