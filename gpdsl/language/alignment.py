"""Columns: the signs of adjacent declarations one below the other, and the comments at the ends of adjacent lines.

Inside a right side, columns stay that the user began: where two blanks or more stand before an operator or after a
comma, adjacent lines of the same form stay aligned at that place, with no more blanks than it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
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
_OPERATORS = frozenset({"+", "-", "*", "/", "@", "~", "fixed"})
_OTHERS = frozenset({"MODEL", "USE", "FUNCTION", "KERNEL", "DENSITY", "EXTERNAL", "INFER"})


def sort_of(tokens: Sequence[Token]) -> str:
    """The sort of a statement: the terminal of its first word, or `observation`."""
    first = tokens[0].type
    return first if first in _SIGNS or first in _OTHERS else "observation"


def table_of(sort: str) -> str:
    """Adjacent statements of one table have their columns in common; empty for a sort without columns."""
    return _TABLES.get(sort, sort) if sort in _SIGNS else ""


Written = tuple[Sequence[Token], Sequence[bool]]
"""The tokens of a line, and whether a blank stands before each."""


def cells(sort: str, tokens: Sequence[Token], blanks: Sequence[bool]) -> tuple[list[str], Written]:
    """The first row of a statement, cut before each sign that lines up and after the word it begins with; what stands
    from the last cut is not put together yet."""
    cuts = [0]
    depth = 0
    signs = list(_SIGNS.get(sort, ()))
    for place, token in enumerate(tokens):
        if depth == 0 and token in signs and token.type != "NAME":
            del signs[: signs.index(str(token)) + 1]
            cuts.append(place)
        elif place == 1 and sort in _SIGNS and sort != "observation":
            cuts.append(place)
        depth += _step(token)
    parts = [(tokens[start:end], blanks[start:end]) for start, end in pairwise([*cuts, len(tokens)])]
    return [_joined(*part) for part in parts[:-1]], parts[-1]


def laid_out(rows: Iterable[Written]) -> list[str]:
    """Each row as a text; adjacent ones of the same form keep the columns that the user began in one of them."""
    found: list[str] = []
    marked = [(row, _marks(*row)) for row in rows]
    for _, group in groupby(marked, key=_form):
        run = list(group)
        begun = {number for row, marks in run for number, (_, place) in enumerate(marks) if _gap(row[0], place) > 1}
        found += columns([_cut(row, [marks[number][1] for number in sorted(begun)]) for row, marks in run])
    return found


def _marks(tokens: Sequence[Token], blanks: Sequence[bool]) -> list[tuple[str, int]]:
    """The places of a row where a column may begin, each with the sign that says so."""
    found: list[tuple[str, int]] = []
    depth = 0
    for place, (token, blank) in enumerate(zip(tokens, blanks, strict=True)):
        if place and blank and depth <= 1:
            if tokens[place - 1] == ",":
                found.append((",", place))
            elif token in _OPERATORS:
                found.append((str(token), place))
        depth += _step(token)
    return found


def _form(marked: tuple[Written, list[tuple[str, int]]]) -> list[str]:
    return [sign for sign, _ in marked[1]]


def _gap(tokens: Sequence[Token], place: int) -> int:
    """How many characters the user wrote between a token and the one before it."""
    return (tokens[place].start_pos or 0) - (tokens[place - 1].end_pos or 0)


def _cut(row: Written, places: Sequence[int]) -> list[str]:
    tokens, blanks = row
    return [_joined(tokens[start:end], blanks[start:end]) for start, end in pairwise([0, *places, len(tokens)])]


def _joined(tokens: Sequence[Token], blanks: Sequence[bool]) -> str:
    return "".join(
        " " * (number > 0 and blank) + str(token)
        for number, (token, blank) in enumerate(zip(tokens, blanks, strict=True))
    )


def _step(token: Token) -> int:
    return (token in ("(", "[", "{")) - (token in (")", "]", "}"))


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


# Where a blank stands between two tokens of a statement, and where none does.

_OPENERS, _CLOSERS = frozenset("([{"), frozenset(")]}")
_VALUES = frozenset({"NAME", "NUMBER", "TEXT"})
_TIGHT = frozenset({"^", ".."})


def blanks(tokens: Sequence[Token]) -> list[bool]:
    """For every token of a statement, whether a blank stands before it when it follows another on the same row."""
    openers = _openers(tokens)
    plain = {each for each in set(openers) if each is not None and _is_plain(tokens, openers, each)}
    return [
        place > 0 and _blank(tokens, place, openers[place] is None, openers[place] in plain)
        for place in range(len(tokens))
    ]


def _openers(tokens: Sequence[Token]) -> list[int | None]:
    """For every token the place of the bracket it stands in; a closing bracket stands outside its own."""
    found: list[int | None] = []
    stack: list[int] = []
    for place, token in enumerate(tokens):
        if token in _CLOSERS:
            stack.pop()
        found.append(stack[-1] if stack else None)
        if token in _OPENERS:
            stack.append(place)
    return found


def _is_plain(tokens: Sequence[Token], openers: Sequence[int | None], opener: int) -> bool:
    """Whether a bracket holds subscripts or sizes of one token each, which stand close: `w[p,q]`, `real[4,D]`."""
    if tokens[opener] != "[" or opener == 0 or not (tokens[opener - 1].type == "NAME" or tokens[opener - 1] == ")"):
        return False
    place, commas = opener + 1, False
    while openers[place] == opener:
        if (tokens[place] == ",") is not commas:
            return False
        commas = not commas
        place += 1
    return True


def _blank(tokens: Sequence[Token], place: int, outside: bool, plain: bool) -> bool:
    previous, token = tokens[place - 1], tokens[place]
    if previous in _OPENERS or token in _CLOSERS or token in (",", ";"):
        return False
    if previous in _TIGHT or token in _TIGHT:
        # `1.` and `..`, or `..` and `.5`, would be read as other numbers when written together.
        return previous.endswith(".") and token.startswith(".")
    if previous == "-" and not _subtracts(tokens, place - 1):
        return False
    if token in ("(", "["):
        # A call or subscripts belong to the name before them; after a sign or a word such as `then` they group.
        return not (previous.type == "NAME" or previous + token in ("](", ")["))
    if previous == ",":
        return not plain
    return token != ":" or (outside and tokens[0].type != "INFER")


def _subtracts(tokens: Sequence[Token], place: int) -> bool:
    """Whether the minus at `place` is an operator and no sign: something with a value stands before it."""
    return place > 0 and (tokens[place - 1].type in _VALUES or tokens[place - 1] in _CLOSERS)
