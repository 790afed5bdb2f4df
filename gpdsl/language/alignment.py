"""Columns: the signs of adjacent declarations one below the other, and the comments at the ends of adjacent lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from lark import Token

from gpdsl.language.render import display_width

COMMENT_GAP = 4
# A longer line keeps its comment to itself, so as not to push those of its neighbours out of sight.
LONG_LINE = 80
_SIGNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "INPUT": (":",),
        "OUTPUT": (":",),
        "PARAM": (":", "="),
        "CONST": ("=",),
        "LET": ("=",),
        "ROW": (":", "~"),
        "LATENT": ("~",),
        "INDEX": ("in",),
        "observation": ("~",),
    }
)
"""The signs that line up in each sort of statement, in their order."""

# Data and parameters are written in one table; every other sort of statement has its own.
_TABLES = {"INPUT": "declared", "OUTPUT": "declared", "PARAM": "declared"}
_OTHERS = frozenset({"MODEL", "FUNCTION", "KERNEL", "DENSITY", "EXTERNAL", "INFER"})


def sort_of(tokens: Sequence[Token]) -> str:
    """The sort of a statement: the terminal of its first word, or `observation`."""
    first = tokens[0].type
    return first if first in _SIGNS or first in _OTHERS else "observation"


def table_of(sort: str) -> str:
    """Adjacent statements of one table have their columns in common; empty for a sort without columns."""
    return _TABLES.get(sort, sort) if sort in _SIGNS else ""


def cells(sort: str, tokens: Sequence[Token], blanks: Sequence[bool]) -> list[str]:
    """The first row of a statement, cut before each sign that lines up and after the word it begins with."""
    parts = [""]
    depth = 0
    signs = list(_SIGNS.get(sort, ()))
    for place, (token, blank) in enumerate(zip(tokens, blanks, strict=False)):
        if depth == 0 and token in signs and token.type != "NAME":
            del signs[: signs.index(str(token)) + 1]
            parts.append("")
        elif place == 1 and sort in _SIGNS and sort != "observation":
            parts.append("")
        parts[-1] += " " * (blank and bool(parts[-1])) + str(token)
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
    return parts


def columns(rows: Sequence[list[str]]) -> list[str]:
    """Each row of cells as one text; cells are as wide as the widest of their column, those that end a row aside."""
    widths: dict[int, int] = {}
    for row in rows:
        for number, cell in enumerate(row[:-1]):
            widths[number] = max(widths.get(number, 0), display_width(cell))
    return [
        " ".join([*(_padded(cell, widths[number]) for number, cell in enumerate(row[:-1])), row[-1]]) for row in rows
    ]


def with_comments(lines: Iterable[tuple[str, str]]) -> list[str]:
    """Lines, and the comments behind them in one column."""
    pairs = list(lines)
    widths = [display_width(line) for line, comment in pairs if line and comment]
    column = max((each for each in widths if each <= LONG_LINE), default=0)
    return [
        _padded(line, max(column, display_width(line)) + COMMENT_GAP) + comment if line and comment else line or comment
        for line, comment in pairs
    ]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))
