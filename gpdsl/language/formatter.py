"""The formatter: a model text in the one canonical layout; blanks and line ends change, tokens and comments do not.

The rules: one blank around operators, none around `^` and `..`, none inside brackets; the signs of adjacent
declarations and the comments behind lines stand in columns until the next empty line, and so do the parts of right
sides of one form where the user began a column; lines inside brackets are broken where the user broke them, and
indented; one empty line at most, none at the ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, pairwise, takewhile
from types import MappingProxyType

from lark import Token

from gpdsl.language.calls import answering
from gpdsl.language.errors.base import ModelError, display_width
from gpdsl.language.errors.limits import in_order
from gpdsl.language.parser import Piece, grammar, parse, split
from gpdsl.language.vocabulary import Source

# Columns: the signs of adjacent declarations one below the other, and the comments at the ends of adjacent lines.
#
# Inside a right side, columns stay that the user began: where two blanks or more stand before an operator or after a
# comma, adjacent lines of the same form stay aligned at that place, with no more blanks than it takes.

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


# The formatter: a model text in the one canonical layout; blanks and line ends change, tokens and comments do not.

# Text to rows: the lines of a file as the formatter sees them, tokens apart from comments, blanks forgotten.

INDENT = 4
_BETWEEN = re.compile(r"#[^\n]*|\n")


@dataclass
class Row:
    """One line of a statement, or a comment on a line of its own (no tokens); `first` counts the tokens before it."""

    tokens: list[Token] = field(default_factory=list)
    comment: str = ""
    first: int = 0
    indent: int = 0


Block = list[Row]
"""The rows of one statement; one row without tokens for a comment between statements; none for a blank line."""


def blocks(source: Source) -> Iterator[Block]:
    """What a text that parses consists of, from top to bottom."""
    lines = source.text.split("\n")
    line = 1
    for piece in split(source)[0]:
        yield from _between(lines[line - 1 : piece.line - 1])
        yield _rows(piece)
        line = piece.line + piece.text.count("\n") + 1
    yield from _between(lines[line - 1 :])


def same_statements(one: Source, other: Source) -> bool:
    """Whether two texts that parse differ at most in blanks and comments."""

    def statements(source: Source) -> list[list[Token]]:
        found = ([token for row in block for token in row.tokens] for block in blocks(source))
        return [tokens for tokens in found if tokens]

    return statements(one) == statements(other)


def _between(lines: list[str]) -> Iterator[Block]:
    for line in lines:
        comment = line.strip()
        yield [Row(comment=comment)] if comment else []


def _rows(piece: Piece) -> Block:
    """A statement as the user broke it into lines; empty lines inside brackets are dropped."""
    tokens = list(grammar().parse_interactive(piece.text).iter_parse())
    rows = [Row()]
    position = 0
    for number, token in enumerate([*tokens, None]):
        start = len(piece.text) if token is None else token.start_pos or 0
        for mark in _BETWEEN.findall(piece.text[position:start]):
            if mark != "\n":
                rows[-1].comment = mark.strip()
            elif rows[-1].tokens or rows[-1].comment:
                rows.append(Row(first=number))
        if token is not None:
            rows[-1].tokens.append(token)
            position = token.end_pos or start
    rows = [row for row in rows if row.tokens or row.comment]
    _indent(rows)
    return rows


def _indent(rows: Block) -> None:
    """Indent every row once more than the row that opened the bracket it stands in, a closing bracket as that row."""
    opened: list[int] = []
    for row in rows:
        closing = len(list(takewhile(lambda token: token in _CLOSERS, row.tokens)))
        if closing:
            row.indent = opened[-closing]
        elif opened:
            row.indent = opened[-1] + INDENT
        for token in row.tokens:
            if token in _OPENERS:
                opened.append(row.indent)
            elif token in _CLOSERS:
                opened.pop()


_BYTE_ORDER_MARK = "\ufeff"


@answering
def format_text(text: str, name: str = "<model>") -> str:
    """A model text in canonical layout. Formatting again changes nothing, and the model stays the same.

    The line ends stay those of the first line; a byte-order mark is dropped. Names need not be declared; errors show
    `name`. Raises ModelError for a text with mistakes of syntax, which cannot be laid out.
    """
    ends = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
    source = Source(text.removeprefix(_BYTE_ORDER_MARK).replace("\r\n", "\n"), name)
    tree = parse(source)
    if tree.mistakes:
        raise ModelError(source, in_order(tree.mistakes))
    lines: list[str] = []
    for blank, group in groupby(blocks(source), key=lambda block: not block):
        if not blank:
            lines += [""] * bool(lines) + _paragraph(list(group))
    return "".join(line + ends for line in lines)


def _paragraph(group: Sequence[Block]) -> list[str]:
    """The lines between two empty ones."""
    statements = [block for block in group if block[0].tokens]
    first_lines = iter(_first_lines(statements))
    lines: list[tuple[str, str]] = []
    for block in group:
        if not block[0].tokens:
            lines.append(("", block[0].comment))
            continue
        lines.append((next(first_lines), block[0].comment))
        lines += _following(block)
    return with_comments(lines)


def _first_lines(statements: Sequence[Block]) -> Iterable[str]:
    """The first line of every statement, in columns with those of its neighbours of the same table."""
    for _, group in groupby(statements, key=lambda block: table_of(sort_of(block[0].tokens))):
        pairs = [cells(sort_of(block[0].tokens), *next(_written(block))) for block in group]
        tails = laid_out(tail for _, tail in pairs)
        yield from columns([[*head, tail] for (head, _), tail in zip(pairs, tails, strict=True)])


def _following(block: Block) -> Iterable[tuple[str, str]]:
    """The further lines of a statement, each with its comment; a comment on its own line is indented."""
    texts = laid_out(islice(_written(block), 1, None))
    for row, text in zip(block[1:], texts, strict=True):
        line = " " * row.indent + text
        yield (line, row.comment) if row.tokens else ("", line + row.comment)


def _written(block: Block) -> Iterator[Written]:
    """The rows of a statement as they are laid out: spaces depend on the rows before."""
    every = blanks([token for row in block for token in row.tokens])
    for row in block:
        yield row.tokens, every[row.first : row.first + len(row.tokens)]
