"""Text to rows: the lines of a file as the formatter sees them, tokens apart from comments, blanks forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from lark import Token

from gpdsl.language.parser import grammar
from gpdsl.language.source import Source
from gpdsl.language.statements import Piece, split

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
