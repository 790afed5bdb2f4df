"""The formatter: a model text in the one canonical layout; blanks and line ends change, tokens and comments do not.

The rules: one blank around operators, none around `^` and `..`, none inside brackets; the signs of adjacent
declarations and the comments behind lines stand in columns until the next empty line; lines inside brackets are broken
where the user broke them, and indented; one empty line at most, none at the ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from gpdsl.language.alignment import cells, columns, sort_of, table_of, with_comments
from gpdsl.language.errors.base import ModelError
from gpdsl.language.parser import parse
from gpdsl.language.rows import Block, blocks
from gpdsl.language.source import Source
from gpdsl.language.spacing import blanks

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
        by_place = sorted(tree.mistakes, key=lambda each: (each.span.line, each.span.column))
        raise ModelError(source, tuple(by_place))
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
    for table, group in groupby(statements, key=lambda block: table_of(sort_of(block[0].tokens))):
        rows = [cells(sort_of(block[0].tokens), block[0].tokens, blanks(_tokens(block))) for block in group]
        yield from columns(rows) if table else ["".join(row) for row in rows]


def _following(block: Block) -> Iterable[tuple[str, str]]:
    """The further lines of a statement, each with its comment; a comment on its own line is indented."""
    every = blanks(_tokens(block))
    for row in block[1:]:
        texts = [
            " " * (number > 0 and every[row.first + number]) + str(token) for number, token in enumerate(row.tokens)
        ]
        line = " " * row.indent + "".join(texts)
        yield (line, row.comment) if row.tokens else ("", line + row.comment)


def _tokens(block: Block) -> list:
    return [token for row in block for token in row.tokens]
