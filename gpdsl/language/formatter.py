"""The formatter: a model text in the one canonical layout; blanks and line ends change, tokens and comments do not.

The rules: one blank around operators, none around `^` and `..`, none inside brackets; the signs of adjacent
declarations and the comments behind lines stand in columns until the next empty line, and so do the parts of right
sides of one form where the user began a column; lines inside brackets are broken where the user broke them, and
indented; one empty line at most, none at the ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, takewhile

from lark import Token

from gpdsl.language.alignment import Written, blanks, cells, columns, laid_out, sort_of, table_of, with_comments
from gpdsl.language.checker.scope import in_order
from gpdsl.language.errors.base import ModelError
from gpdsl.language.parser import Piece, grammar, parse, split
from gpdsl.language.source import Source

# Text to rows: the lines of a file as the formatter sees them, tokens apart from comments, blanks forgotten.

INDENT = 4
_OPENERS, _CLOSERS = frozenset("([{"), frozenset(")]}")
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
